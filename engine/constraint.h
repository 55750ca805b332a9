/* constraint.h - compiled constraints of one engine, shared by the requests that have the same one, and kept for the next.
 *
 * An entry is a grammar with the cache of its token masks. There are at most CONSTRAINT_MAX_ENTRIES; one that nobody uses is dropped for
 * a new one, the least recently used first. The token table is built when the cache is made. One thread.
 */
#ifndef EXA_ENGINE_CONSTRAINT_H
#define EXA_ENGINE_CONSTRAINT_H

#include "text/grammar_masks.h"
#include "wire/msg.h"

enum {
    CONSTRAINT_MAX_ENTRIES = 32,
    /* Of an entry. 2 MB are marks for the trie of a vocabulary of 128k; the rest, some hundred masks. */
    CONSTRAINT_MASKS_BYTES = 8 << 20,
};

struct constraints;
struct constraint_entry;

/* A tokenizer that text/ does not know, or none: every constraint is refused (ERR_CONFIG, named). meta may go after. */
int constraints_create(struct constraints **out, const struct model_meta *meta, struct err *e);
void constraints_destroy(struct constraints *c);
/* What it holds now, and the most that it may come to. */
uint64_t constraints_bytes(const struct constraints *c);
uint64_t constraints_max_bytes(const struct model_meta *meta);

/* The entry of this source; the caller gives it back. ERR_LIMIT, ERR_FORMAT, ERR_CONFIG: cannot be compiled. ERR_AGAIN: too many
 * different ones are in use. */
int constraints_take(struct constraints *c, enum constraint_kind kind, const char *source, size_t n,
                     struct constraint_entry **out, struct err *e);
void constraints_give(struct constraints *c, struct constraint_entry *entry); /* NULL is allowed */

void constraint_begin(const struct constraint_entry *entry, struct grammar_state *s);
/* ERR_FORMAT: this token may not come here. */
int constraint_accept(const struct constraints *c, struct grammar_state *s, uint32_t token,
                      struct err *e);
/* Minus infinity for all that may not come. ERR_FORMAT: nothing may. */
int constraint_apply(struct constraints *c, const struct constraint_entry *entry,
                     const struct grammar_state *s, float *logits, uint32_t n_vocab, struct err *e);

#endif
