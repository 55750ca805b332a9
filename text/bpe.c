/* bpe.c - see bpe.h.
 *
 * A heap of candidate pairs over a linked list of symbols. An entry is stale when the pair at its place no longer makes the
 * token that it did: that is the reference's own test, and where two merges make one token its answer hangs on it.
 */
#include "text/bpe.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

static size_t pair_hash(uint32_t left, uint32_t right)
{
    uint64_t h = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u;
    return (size_t)(h ^ h >> 29 ^ h >> 47);
}

int bpe_table_init(struct bpe_table *t, size_t n_rules)
{
    size_t n = 16;
    while (n < n_rules * 2)
        n *= 2;
    t->slots = malloc(n * sizeof *t->slots);
    if (!t->slots)
        return ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        t->slots[i].rank = UINT32_MAX;
    t->mask = n - 1;
    return 0;
}

void bpe_table_fini(struct bpe_table *t)
{
    free(t->slots);
    *t = (struct bpe_table){0};
}

static struct bpe_rule *slot_of(const struct bpe_table *t, uint32_t left, uint32_t right)
{
    size_t i = pair_hash(left, right) & t->mask;
    while (t->slots[i].rank != UINT32_MAX &&
           (t->slots[i].left != left || t->slots[i].right != right))
        i = (i + 1) & t->mask;
    return &t->slots[i];
}

void bpe_table_add(struct bpe_table *t, struct bpe_rule rule)
{
    *slot_of(t, rule.left, rule.right) = rule;
}

const struct bpe_rule *bpe_table_find(const struct bpe_table *t, uint32_t left, uint32_t right)
{
    const struct bpe_rule *slot = slot_of(t, left, right);
    return slot->rank == UINT32_MAX ? NULL : slot;
}

void bpe_scratch_fini(struct bpe_scratch *s)
{
    free(s->symbols);
    free(s->heap);
    *s = (struct bpe_scratch){0};
}

int bpe_scratch_reserve(struct bpe_scratch *s, size_t n)
{
    if (n <= s->cap)
        return 0;
    size_t cap = s->cap ? s->cap : 64;
    while (cap < n)
        cap *= 2;
    bpe_scratch_fini(s);
    s->symbols = malloc(cap * sizeof *s->symbols);
    /* n - 1 pairs at first; each of at most n - 1 merges takes one out and puts two in. */
    s->heap = malloc(2 * cap * sizeof *s->heap);
    if (!s->symbols || !s->heap) {
        bpe_scratch_fini(s);
        return ERR_NOMEM;
    }
    s->cap = cap;
    return 0;
}

static void heap_push(struct bpe_scratch *s, uint64_t entry)
{
    size_t i = s->n_heap++;
    while (i > 0 && s->heap[(i - 1) / 2] > entry) {
        s->heap[i] = s->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    s->heap[i] = entry;
}

static uint64_t heap_pop(struct bpe_scratch *s)
{
    uint64_t top = s->heap[0];
    uint64_t last = s->heap[--s->n_heap];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= s->n_heap)
            break;
        if (child + 1 < s->n_heap && s->heap[child + 1] < s->heap[child])
            child++;
        if (s->heap[child] >= last)
            break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    if (s->n_heap)
        s->heap[i] = last;
    return top;
}

/* The rule for the pair whose left symbol is at i, or NULL. */
static const struct bpe_rule *rule_at(const struct bpe_table *t, const struct bpe_scratch *s,
                                      uint32_t i)
{
    const struct bpe_symbol *left = &s->symbols[i];
    if (left->next == BPE_NONE)
        return NULL;
    uint32_t right = s->symbols[left->next].id;
    if (left->id == BPE_NONE || right == BPE_NONE)
        return NULL;
    return bpe_table_find(t, left->id, right);
}

static void consider(const struct bpe_table *t, struct bpe_scratch *s, uint32_t i)
{
    const struct bpe_rule *rule = rule_at(t, s, i);
    if (rule)
        heap_push(s, (uint64_t)rule->rank << 32 | i);
}

void bpe_merge(const struct bpe_table *t, const uint32_t *rank_id, struct bpe_scratch *s, size_t n)
{
    s->n_heap = 0;
    for (size_t i = 0; i < n; i++) {
        s->symbols[i].prev = i ? (uint32_t)i - 1 : BPE_NONE;
        s->symbols[i].next = i + 1 < n ? (uint32_t)i + 1 : BPE_NONE;
    }
    for (size_t i = 0; i + 1 < n; i++)
        consider(t, s, (uint32_t)i);
    while (s->n_heap) {
        uint64_t entry = heap_pop(s);
        uint32_t i = (uint32_t)entry;
        const struct bpe_rule *rule = rule_at(t, s, i);
        if (!rule || rule->id != rank_id[entry >> 32])
            continue;
        struct bpe_symbol *left = &s->symbols[i];
        struct bpe_symbol *gone = &s->symbols[left->next];
        left->id = rule->id;
        left->next = gone->next;
        if (gone->next != BPE_NONE)
            s->symbols[gone->next].prev = i;
        gone->id = BPE_NONE;
        gone->next = BPE_NONE;
        if (left->prev != BPE_NONE)
            consider(t, s, left->prev);
        consider(t, s, i);
    }
}

size_t bpe_merge_short(const struct bpe_table *t, uint32_t *ids, size_t n)
{
    const struct bpe_rule *rules[BPE_SHORT];
    for (size_t i = 0; i + 1 < n; i++)
        rules[i] = bpe_table_find(t, ids[i], ids[i + 1]);
    while (n > 1) {
        size_t best = 0;
        uint32_t rank = UINT32_MAX;
        for (size_t i = 0; i + 1 < n; i++)
            if (rules[i] && rules[i]->rank < rank) {
                rank = rules[i]->rank;
                best = i;
            }
        if (rank == UINT32_MAX)
            break;
        ids[best] = rules[best]->id;
        n--;
        memmove(ids + best + 1, ids + best + 2, (n - best - 1) * sizeof *ids);
        memmove(rules + best, rules + best + 1, (n - best) * sizeof(rules[0]));
        if (best)
            rules[best - 1] = bpe_table_find(t, ids[best - 1], ids[best]);
        if (best + 1 < n)
            rules[best] = bpe_table_find(t, ids[best], ids[best + 1]);
    }
    return n;
}
