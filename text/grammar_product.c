/* grammar_product.c - automata without calls combined (x and y, x but not y), and which states can still reach an end. */
#include "text/grammar_automaton.h"

#include <string.h>

static const uint32_t NONE = UINT32_MAX;

/* ---- products ---- */

struct pairing {
    struct automaton_ctx *c;
    uint64_t *pairs; /* of each state: x << 32 | y */
    uint32_t cap;
    uint32_t *table, table_cap;
};

static uint32_t pair_hash(uint64_t pair)
{
    return (uint32_t)(pair * 0x9E3779B97F4A7C15u >> 32);
}

static uint32_t pair_state(struct pairing *p, struct dfa *out, uint32_t x, uint32_t y)
{
    if (out->n * 2 >= p->table_cap) {
        uint32_t cap = p->table_cap ? p->table_cap * 2 : 64;
        uint32_t *table = ir_alloc(p->c->b, cap * sizeof *table);
        if (!table)
            return NONE;
        for (uint32_t i = 0; i < out->n; i++) {
            uint32_t h = pair_hash(p->pairs[i]) & (cap - 1);
            while (table[h])
                h = (h + 1) & (cap - 1);
            table[h] = i + 1;
        }
        p->table = table;
        p->table_cap = cap;
    }
    uint64_t pair = (uint64_t)x << 32 | y;
    uint32_t h = pair_hash(pair) & (p->table_cap - 1);
    for (; p->table[h]; h = (h + 1) & (p->table_cap - 1))
        if (p->pairs[p->table[h] - 1] == pair)
            return p->table[h] - 1;
    uint32_t state = dfa_state_new(p->c, out);
    if (state == NONE)
        return NONE;
    if (out->cap > p->cap) {
        p->pairs =
            automaton_grow(p->c, p->pairs, p->cap * sizeof *p->pairs, out->cap * sizeof *p->pairs);
        p->cap = out->cap;
        if (!p->pairs)
            return NONE;
    }
    p->pairs[state] = pair;
    p->table[h] = state + 1;
    return state;
}

/* The edges of a pair of states; y may be NONE: the second automaton is dead. */
static bool pair_edges(struct pairing *p, struct dfa *out, uint32_t state,
                       const struct dfa_state *x, const struct dfa_state *y, bool minus)
{
    struct dfa_edge edges[512];
    uint32_t n = 0, k = 0;
    for (uint32_t i = 0; i < x->n_edges; i++) {
        unsigned at = x->edges[i].lo, end = x->edges[i].hi;
        while (at <= end) {
            while (y && k < y->n_edges && y->edges[k].hi < at)
                k++;
            bool inside = y && k < y->n_edges && y->edges[k].lo <= at;
            unsigned stop = end;
            if (inside && y->edges[k].hi < stop)
                stop = y->edges[k].hi;
            if (!inside && y && k < y->n_edges && y->edges[k].lo <= stop)
                stop = y->edges[k].lo - 1u;
            if (inside || minus) {
                uint32_t to = pair_state(p, out, x->edges[i].to, inside ? y->edges[k].to : NONE);
                if (to == NONE)
                    return false;
                edges[n++] = (struct dfa_edge){(uint8_t)at, (uint8_t)stop, to};
            }
            at = stop + 1;
        }
    }
    struct dfa_edge *copy = n ? ir_alloc(p->c->b, n * sizeof *copy) : NULL;
    if (n && !copy)
        return false;
    if (n)
        memcpy(copy, edges, n * sizeof *copy);
    out->states[state].edges = copy;
    out->states[state].n_edges = n;
    return true;
}

bool dfa_product(struct automaton_ctx *c, const struct dfa *x, const struct dfa *y, bool minus,
                 struct dfa *out)
{
    struct pairing p = {.c = c};
    *out = (struct dfa){0};
    if (pair_state(&p, out, 0, 0) == NONE)
        return false;
    for (uint32_t i = 0; i < out->n; i++) {
        uint32_t a = (uint32_t)(p.pairs[i] >> 32), b = (uint32_t)p.pairs[i];
        const struct dfa_state *sx = &x->states[a], *sy = b == NONE ? NULL : &y->states[b];
        bool in_y = sy && sy->accept;
        if (!ir_work(c->b, sx->n_edges + (sy ? sy->n_edges : 0) + 1) ||
            !pair_edges(&p, out, i, sx, sy, minus))
            return false;
        out->states[i].accept = sx->accept && in_y != minus;
    }
    return true;
}

/* ---- which states reach an end ---- */

void dfa_mark_live(struct ir_builder *b, struct dfa *d, const bool *productive)
{
    /* The sources of each state, in one array. */
    uint32_t *first = ir_alloc(b, (d->n + 2) * sizeof *first), n_links = 0;
    for (uint32_t i = 0; first && i < d->n; i++) {
        const struct dfa_state *s = &d->states[i];
        n_links += s->n_edges;
        for (uint32_t k = 0; k < s->n_edges; k++)
            first[s->edges[k].to + 1]++;
        for (uint32_t k = 0; k < s->n_calls; k++)
            if (productive[s->calls[k].rule]) {
                first[s->calls[k].ret + 1]++;
                n_links++;
            }
    }
    uint32_t *from = ir_alloc(b, (n_links + 1) * sizeof *from);
    uint32_t *fill = ir_alloc(b, (d->n + 1) * sizeof *fill);
    uint32_t *stack = ir_alloc(b, (d->n + 1) * sizeof *stack), top = 0;
    if (!first || !from || !fill || !stack || !ir_work(b, n_links + d->n))
        return;
    for (uint32_t i = 0; i < d->n; i++)
        first[i + 1] += first[i];
    for (uint32_t i = 0; i < d->n; i++) {
        struct dfa_state *s = &d->states[i];
        for (uint32_t k = 0; k < s->n_edges; k++)
            from[first[s->edges[k].to] + fill[s->edges[k].to]++] = i;
        for (uint32_t k = 0; k < s->n_calls; k++)
            if (productive[s->calls[k].rule])
                from[first[s->calls[k].ret] + fill[s->calls[k].ret]++] = i;
        s->live = s->accept;
        if (s->live)
            stack[top++] = i;
    }
    while (top) {
        uint32_t at = stack[--top];
        for (uint32_t k = first[at]; k < first[at + 1]; k++)
            if (!d->states[from[k]].live) {
                d->states[from[k]].live = true;
                stack[top++] = from[k];
            }
    }
}
