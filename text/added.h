/* added.h - tokens that are found in a text before anything else: longest match, leftmost first.
 *
 * As AddedVocabulary of the `tokenizers` library: a match that is refused (single_word inside a word, a control token where they
 * are not asked for) is passed over as a whole.
 */
#ifndef EXA_TEXT_ADDED_H
#define EXA_TEXT_ADDED_H

#include "text/trie.h"

#include <stdbool.h>

struct added_entry {
    uint32_t id;
    uint8_t flags; /* enum added_flag */
    bool control;
};
struct added_set {
    struct trie trie; /* values are indices of entries */
    struct added_entry *entries;
    uint32_t n_entries;
    bool begins[256]; /* a token begins with this byte */
};

int added_init(struct added_set *s, size_t n_entries, size_t n_bytes, struct err *e);
void added_fini(struct added_set *s);
/* Of equal texts the first one stays. At most n_entries of them, n > 0. */
int added_put(struct added_set *s, const char *text, size_t n, struct added_entry entry,
              struct err *e);

/* The next token in text[n] from *at on. true: text [*from, *start) is ordinary, then comes the entry, whose text ends at *end;
 * *at goes on. false: from *from to n all is ordinary. *from and *at start as 0. */
bool added_next(const struct added_set *s, const char *text, size_t n, bool control, size_t *at,
                size_t *from, size_t *start, size_t *end, const struct added_entry **entry);

#endif
