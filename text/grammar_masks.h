/* grammar_masks.h - which tokens may come next in a grammar_state, as a bit set, from a cache that works for one grammar and one
 * vocabulary.
 *
 * Not thread-safe: one owner, the engine's step. All its memory is taken when it is created; when the cache is full it is
 * emptied and fills again. Answers never depend on what is cached.
 *
 * How (after "XGrammar: Flexible and Efficient Structured Generation Engine for LLMs", 2024): for a state of an automaton, the
 * tokens that stay inside its rule are found once. Of the others only the places in the trie are kept where the rule may end;
 * they are followed up once for each state that the call returns to. A mask is then the union of a few cached sets.
 */
#ifndef EXA_TEXT_GRAMMAR_MASKS_H
#define EXA_TEXT_GRAMMAR_MASKS_H

#include "text/grammar.h"

enum { GRAMMAR_MASKS_BYTES = 32 << 20 }; /* a good size: untouched pages cost nothing */

struct grammar_masks;

/* Keeps a reference to g; t must outlive it. max_bytes: all memory it will ever hold (at least 1 MiB plus 8 masks, else
 * ERR_LIMIT). */
int grammar_masks_create(struct grammar_masks **out, struct grammar *g, const struct token_table *t,
                         size_t max_bytes, struct err *e);
void grammar_masks_destroy(struct grammar_masks *m);

/* mask[ceil(n_vocab / 32)]: bit id % 32 of word id / 32 is set when `id` may come next; ids that end a generation when the
 * state is complete. Returns how many are set. 0 is a dead end: no token of this vocabulary goes on, and the request must
 * end with an error; so it must for GRAMMAR_MASK_OVER: what may come next takes more than max_bytes to find (finding it token by
 * token would keep a step waiting for seconds). That depends on s and max_bytes alone. s must be of this grammar. */
static const uint32_t GRAMMAR_MASK_OVER = UINT32_MAX;
uint32_t grammar_mask(struct grammar_masks *m, const struct grammar_state *s, uint32_t *mask);

/* Find the sets of as many states as time allows, in advance. Returns how many are left. */
uint32_t grammar_masks_warm(struct grammar_masks *m, uint64_t budget_us);

struct grammar_masks_stats {
    uint64_t masks, entry_hits, entry_misses, resets, over;
    size_t used_bytes;
};
void grammar_masks_stats(const struct grammar_masks *m, struct grammar_masks_stats *out);

static inline bool mask_has(const uint32_t *mask, uint32_t id)
{
    return mask[id / 32] >> (id % 32) & 1;
}

#endif
