/* bpe.h - byte pair merging: the table of merges, and the merging of one piece in O(n log n).
 *
 * Source: Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units": the
 * pair of lowest rank merges first, the leftmost of equals. A table is immutable once filled;
 * scratch memory belongs to one caller.
 */
#ifndef EXA_TEXT_BPE_H
#define EXA_TEXT_BPE_H

#include <stddef.h>
#include <stdint.h>

struct bpe_rule {
    uint32_t left, right; /* token ids */
    uint32_t rank;        /* UINT32_MAX: free slot */
    uint32_t id;          /* what they become */
};

struct bpe_table {
    struct bpe_rule *slots; /* owned */
    size_t mask;
};

int bpe_table_init(struct bpe_table *t, size_t n_rules); /* 0 or ERR_NOMEM */
void bpe_table_fini(struct bpe_table *t);
/* Of equal pairs the last one stays, as in the reference; at most n_rules are added. */
void bpe_table_add(struct bpe_table *t, struct bpe_rule rule);
const struct bpe_rule *bpe_table_find(const struct bpe_table *t, uint32_t left, uint32_t right);

struct bpe_symbol {
    uint32_t id; /* BPE_NONE: it was merged into the one before */
    uint32_t prev, next;
};
enum { BPE_MAX_PIECE = 1 << 30 };
#define BPE_NONE UINT32_MAX

struct bpe_scratch {
    struct bpe_symbol *symbols;
    uint64_t *heap; /* rank << 32 | index of the left symbol */
    size_t cap, n_heap;
};
void bpe_scratch_fini(struct bpe_scratch *s);
int bpe_scratch_reserve(struct bpe_scratch *s,
                        size_t n); /* room for a piece of n symbols; 0 or ERR_NOMEM */
/* symbols[0..n).id are set by the caller; rank_id[rank] is what that merge makes. Afterwards the list from symbols[0] along
 * `next` holds the result. */
void bpe_merge(const struct bpe_table *t, const uint32_t *rank_id, struct bpe_scratch *s, size_t n);
/* The same for at most BPE_SHORT symbols where no token is made by two merges: ids[n] in place, how many are left. */
enum { BPE_SHORT = 32 };
size_t bpe_merge_short(const struct bpe_table *t, uint32_t *ids, size_t n);

#endif
