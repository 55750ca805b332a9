/* bpe.c - see bpe.h.
 *
 * A heap of candidate pairs over a linked list of symbols. An entry is stale when the pair at
 * its place has changed; as ranks name pairs, it is enough to look the pair up again and compare
 * ranks.
 */
#include "text/bpe.h"

#include "base/err.h"

#include <stdlib.h>

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
    struct bpe_rule *slot = slot_of(t, rule.left, rule.right);
    if (slot->rank == UINT32_MAX)
        *slot = rule;
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

void bpe_merge(const struct bpe_table *t, struct bpe_scratch *s, size_t n)
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
        if (!rule || rule->rank != entry >> 32)
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
