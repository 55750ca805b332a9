/* grammar_dfa.c - subset construction over bytes and calls.
 *
 * A call is treated as one more letter: that keeps the language of the whole grammar, and what is left ambiguous are calls
 * alone. Edges are kept as ascending byte ranges; states of choice lists have few of them.
 */
#include "text/grammar_automaton.h"

#include <stdlib.h>
#include <string.h>

static const uint32_t NONE = UINT32_MAX;

/* Subsets already met: sorted node numbers, found by hash. */
struct subset {
    uint32_t *nodes;
    uint32_t n, hash;
};
struct letter_bucket { /* targets of one byte class */
    uint32_t *nodes;
    uint32_t n, cap;
};
struct determinizer {
    struct automaton_ctx *c;
    const struct nfa *nfa;
    struct dfa *out;
    struct subset *subsets; /* [out->cap] */
    uint32_t subsets_cap;
    uint32_t *table; /* hash → state + 1 */
    uint32_t table_cap;
    uint32_t *seen; /* [nfa->n]: round in which a node was put into the set being made */
    uint32_t round;
    uint32_t *stack, *set;                /* [nfa->n] scratch */
    uint8_t class_of[256], first_of[257]; /* bytes that no edge tells apart */
    uint32_t n_classes;
    struct letter_bucket bucket[256];
};

void *automaton_grow(struct automaton_ctx *c, void *p, size_t old, size_t n)
{
    if (c->b->rc)
        return NULL;
    void *q = arena_grow(&c->b->arena, p, old, n);
    if (!q)
        ir_fail(c->b, c->b->arena.over ? ERR_LIMIT : ERR_NOMEM,
                "grammar: compiling it takes more than %zu bytes of memory",
                c->b->limits->max_memory_bytes);
    return q;
}

uint32_t dfa_state_new(struct automaton_ctx *c, struct dfa *d)
{
    if (c->n_states >= c->b->limits->max_states) {
        ir_fail(c->b, ERR_LIMIT, "grammar: too large: its automaton has more than %u states",
                c->b->limits->max_states);
        return NONE;
    }
    if (d->n == d->cap) {
        uint32_t cap = d->cap ? d->cap * 2 : 16;
        struct dfa_state *more =
            automaton_grow(c, d->states, d->cap * sizeof *more, cap * sizeof *more);
        if (!more)
            return NONE;
        d->states = more;
        d->cap = cap;
    }
    d->states[d->n] = (struct dfa_state){0};
    c->n_states++;
    return d->n++;
}

/* ---- subset construction ---- */

static void find_classes(struct determinizer *d)
{
    bool cut[257] = {[0] = true};
    for (uint32_t i = 0; i < d->nfa->n; i++) {
        const struct nfa_node *x = &d->nfa->nodes[i];
        if (x->kind == NFA_BYTE)
            cut[x->lo] = cut[x->hi + 1] = true;
    }
    for (int i = 0; i < 256; i++) {
        if (cut[i])
            d->first_of[d->n_classes++] = (uint8_t)i;
        d->class_of[i] = (uint8_t)(d->n_classes - 1);
    }
}

/* Put what `node` reaches without reading into d->set[n…]; returns the new n. */
static uint32_t close_over(struct determinizer *d, uint32_t node, uint32_t n)
{
    uint32_t top = 0;
    if (d->seen[node] == d->round)
        return n;
    d->seen[node] = d->round;
    d->stack[top++] = node;
    while (top) {
        uint32_t at = d->stack[--top];
        const struct nfa_node *x = &d->nfa->nodes[at];
        if (x->kind != NFA_SPLIT) {
            d->set[n++] = at;
            continue;
        }
        uint32_t next[2] = {x->a, x->b};
        for (int i = 0; i < 2; i++)
            if (d->seen[next[i]] != d->round) {
                d->seen[next[i]] = d->round;
                d->stack[top++] = next[i];
            }
        d->c->b->work++;
    }
    return n;
}

static int number_order(const void *x, const void *y)
{
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return (a > b) - (a < b);
}

static uint32_t set_hash(const uint32_t *set, uint32_t n)
{
    uint64_t h = 1469598103934665603u;
    for (uint32_t i = 0; i < n; i++)
        h = (h ^ set[i]) * 1099511628211u;
    return (uint32_t)(h ^ h >> 32);
}

static bool table_grow(struct determinizer *d)
{
    if (d->table_cap && d->out->n * 2 < d->table_cap)
        return true;
    uint32_t cap = d->table_cap ? d->table_cap * 2 : 64;
    uint32_t *table = ir_alloc(d->c->b, cap * sizeof *table);
    if (!table)
        return false;
    for (uint32_t i = 0; i < d->out->n; i++) {
        uint32_t h = d->subsets[i].hash & (cap - 1);
        while (table[h])
            h = (h + 1) & (cap - 1);
        table[h] = i + 1;
    }
    d->table = table;
    d->table_cap = cap;
    return true;
}

/* The state of d->set[n], made when new. */
static uint32_t state_of(struct determinizer *d, uint32_t n)
{
    if (!ir_work(d->c->b, n + 1) || !table_grow(d))
        return NONE;
    qsort(d->set, n, sizeof *d->set, number_order);
    uint32_t hash = set_hash(d->set, n), h = hash & (d->table_cap - 1);
    for (; d->table[h]; h = (h + 1) & (d->table_cap - 1)) {
        const struct subset *s = &d->subsets[d->table[h] - 1];
        if (s->hash == hash && s->n == n && memcmp(s->nodes, d->set, n * sizeof *d->set) == 0)
            return d->table[h] - 1;
    }
    uint32_t state = dfa_state_new(d->c, d->out);
    uint32_t *copy = state == NONE ? NULL : ir_alloc(d->c->b, (n + 1) * sizeof *copy);
    if (!copy)
        return NONE;
    if (d->out->cap > d->subsets_cap) {
        d->subsets = automaton_grow(d->c, d->subsets, d->subsets_cap * sizeof *d->subsets,
                                    d->out->cap * sizeof *d->subsets);
        d->subsets_cap = d->out->cap;
        if (!d->subsets)
            return NONE;
    }
    memcpy(copy, d->set, n * sizeof *copy);
    d->subsets[state] = (struct subset){copy, n, hash};
    d->table[h] = state + 1;
    return state;
}

static bool bucket_push(struct determinizer *d, struct letter_bucket *k, uint32_t node)
{
    if (k->n == k->cap) {
        uint32_t cap = k->cap ? k->cap * 2 : 16;
        uint32_t *more = automaton_grow(d->c, k->nodes, k->cap * sizeof *more, cap * sizeof *more);
        if (!more)
            return false;
        k->nodes = more;
        k->cap = cap;
    }
    k->nodes[k->n++] = node;
    return true;
}

static uint32_t state_of_targets(struct determinizer *d, const uint32_t *targets, uint32_t n)
{
    uint32_t size = 0;
    d->round++;
    for (uint32_t i = 0; i < n; i++)
        size = close_over(d, targets[i], size);
    return size ? state_of(d, size) : NONE;
}

static bool add_edges(struct determinizer *d, uint32_t state)
{
    struct dfa_edge edges[256];
    uint32_t n = 0;
    for (uint32_t k = 0; k < d->n_classes; k++) {
        struct letter_bucket *bucket = &d->bucket[k];
        if (!bucket->n)
            continue;
        uint32_t to = state_of_targets(d, bucket->nodes, bucket->n);
        if (d->c->b->rc)
            return false;
        if (to == NONE)
            continue;
        uint8_t lo = d->first_of[k];
        uint8_t hi = k + 1 < d->n_classes ? (uint8_t)(d->first_of[k + 1] - 1) : 255;
        if (n && edges[n - 1].to == to && edges[n - 1].hi + 1 == lo)
            edges[n - 1].hi = hi;
        else
            edges[n++] = (struct dfa_edge){lo, hi, to};
    }
    struct dfa_edge *copy = n ? ir_alloc(d->c->b, n * sizeof *copy) : NULL;
    if (n && !copy)
        return false;
    if (n)
        memcpy(copy, edges, n * sizeof *copy);
    d->out->states[state].edges = copy;
    d->out->states[state].n_edges = n;
    return true;
}

/* Calls of the subset, one for each rule; nodes[n] are its NFA_CALL nodes sorted by rule. */
static bool add_calls(struct determinizer *d, uint32_t state, uint32_t *nodes, uint32_t n)
{
    struct dfa_call *calls = n ? ir_alloc(d->c->b, n * sizeof *calls) : NULL;
    uint32_t n_calls = 0;
    if (n && !calls)
        return false;
    for (uint32_t i = 0; i < n;) {
        uint32_t rule = d->nfa->nodes[nodes[i]].b, size = 0;
        d->round++;
        for (; i < n && d->nfa->nodes[nodes[i]].b == rule; i++)
            size = close_over(d, d->nfa->nodes[nodes[i]].a, size);
        uint32_t ret = size ? state_of(d, size) : NONE;
        if (d->c->b->rc)
            return false;
        if (ret != NONE)
            calls[n_calls++] = (struct dfa_call){rule, ret};
    }
    d->out->states[state].calls = calls;
    d->out->states[state].n_calls = n_calls;
    return true;
}

static void sort_by_rule(const struct nfa *nfa, uint32_t *nodes, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) { /* few, and mostly in order */
        uint32_t x = nodes[i], k = i;
        for (; k && nfa->nodes[nodes[k - 1]].b > nfa->nodes[x].b; k--)
            nodes[k] = nodes[k - 1];
        nodes[k] = x;
    }
}

static bool expand(struct determinizer *d, uint32_t state)
{
    struct subset s = d->subsets[state];
    uint32_t *calls = ir_alloc(d->c->b, (s.n + 1) * sizeof *calls), n_calls = 0;
    if (!calls)
        return false;
    for (uint32_t k = 0; k < d->n_classes; k++)
        d->bucket[k].n = 0;
    for (uint32_t i = 0; i < s.n; i++) {
        const struct nfa_node *x = &d->nfa->nodes[s.nodes[i]];
        if (x->kind == NFA_ACCEPT)
            d->out->states[state].accept = true;
        else if (x->kind == NFA_CALL)
            calls[n_calls++] = s.nodes[i];
        else
            for (uint32_t k = d->class_of[x->lo]; k <= d->class_of[x->hi]; k++) {
                d->c->b->work++;
                if (!bucket_push(d, &d->bucket[k], x->a))
                    return false;
            }
    }
    if (n_calls > 1) {
        if (!ir_work(d->c->b, (uint64_t)n_calls * n_calls / 4))
            return false;
        sort_by_rule(d->nfa, calls, n_calls);
    }
    return add_edges(d, state) && add_calls(d, state, calls, n_calls);
}

bool dfa_from_nfa(struct automaton_ctx *c, const struct nfa *n, struct dfa *out)
{
    struct determinizer *d = ir_alloc(c->b, sizeof *d);
    if (!d)
        return false;
    d->c = c;
    d->nfa = n;
    d->out = out;
    *out = (struct dfa){0};
    d->seen = ir_alloc(c->b, n->n * sizeof *d->seen);
    d->stack = ir_alloc(c->b, (n->n + 2) * sizeof *d->stack);
    d->set = ir_alloc(c->b, (n->n + 1) * sizeof *d->set);
    if (!d->seen || !d->stack || !d->set)
        return false;
    find_classes(d);
    if (state_of_targets(d, &n->start, 1) == NONE && !c->b->rc)
        dfa_state_new(c, out); /* nothing can be read: one state, which is no end */
    else
        for (uint32_t i = 0; i < out->n && !c->b->rc; i++)
            if (!expand(d, i))
                return false;
    return !c->b->rc;
}

bool dfa_from_ir(struct automaton_ctx *c, struct ir *x, struct dfa *out)
{
    struct nfa n;
    return nfa_build(c, &n, x) && dfa_from_nfa(c, &n, out);
}
