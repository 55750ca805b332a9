/* charsmap.h - SentencePiece's precompiled_charsmap: what a grapheme or a character is replaced by.
 *
 * Bytes: u32 size of a double-array trie, the trie (Darts-clone units, u32), then NUL-terminated replacements. Little-endian.
 * Followed as the reference does it: the shortest entry that begins a grapheme of at most 5 bytes replaces the whole of it.
 */
#ifndef EXA_TEXT_CHARSMAP_H
#define EXA_TEXT_CHARSMAP_H

#include "base/buf.h"
#include "base/err.h"

struct charsmap {
    const uint8_t *trie; /* not owned */
    size_t n_units;
    const char *texts;
    size_t n_texts;
};

/* data stays the caller's, and must live as long as the map. ERR_FORMAT: the sizes do not fit. */
int charsmap_open(struct charsmap *m, const void *data, size_t n, struct err *e);
/* Append what text[n] becomes; *head as in normalize.h. */
void charsmap_apply(const struct charsmap *m, const char *text, size_t n, struct buf *out,
                    size_t *head);

#endif
