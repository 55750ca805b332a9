/* grammar_compile.c - rules become automata, what can never be finished is cut away, and left recursion is refused.
 * All loops over rules run until nothing changes; the builder's work counter bounds them.
 */
#include "text/grammar_automaton.h"
#include "text/grammar_internal.h"

#include <stdlib.h>
#include <string.h>

struct compiler {
    struct ir_builder *b;
    struct automaton_ctx ctx;
    uint32_t root;
    struct dfa **dfas;        /* [limits->max_rules]; NULL: not reached */
    uint32_t *order, n_order; /* reached rules, callers before callees */
    bool *productive, *nullable;
};

/* ---- automata of the rules that are reached ---- */

static bool reach(struct compiler *c, uint32_t rule)
{
    if (c->dfas[rule])
        return true;
    c->dfas[rule] = ir_alloc(c->b, sizeof *c->dfas[rule]);
    if (!c->dfas[rule])
        return false;
    c->order[c->n_order++] = rule;
    return true;
}

static bool build_automata(struct compiler *c)
{
    if (!reach(c, c->root))
        return false;
    for (uint32_t i = 0; i < c->n_order; i++) {
        uint32_t rule = c->order[i];
        struct dfa *d = c->dfas[rule];
        c->ctx.depth = 0;
        if (!dfa_from_ir(&c->ctx, c->b->rules[rule].body, d))
            return false;
        for (uint32_t s = 0; s < d->n; s++)
            for (uint32_t k = 0; k < d->states[s].n_calls; k++)
                if (!reach(c, d->states[s].calls[k].rule))
                    return false;
    }
    return true;
}

/* ---- left recursion ---- */

/* States that the rule's start reaches through calls that may be empty; true when an end is among them. */
static bool left_states(struct compiler *c, const struct dfa *d, uint32_t *list, uint32_t *n,
                        uint8_t *mark)
{
    bool end = false;
    *n = 1;
    list[0] = 0;
    mark[0] = 1;
    for (uint32_t i = 0; i < *n; i++) {
        const struct dfa_state *s = &d->states[list[i]];
        end = end || s->accept;
        for (uint32_t k = 0; k < s->n_calls; k++)
            if (c->nullable[s->calls[k].rule] && !mark[s->calls[k].ret]) {
                mark[s->calls[k].ret] = 1;
                list[(*n)++] = s->calls[k].ret;
            }
    }
    for (uint32_t i = 0; i < *n; i++)
        mark[list[i]] = 0;
    ir_work(c->b, *n);
    return end;
}

struct left_graph {
    uint32_t **edges; /* of each rule, in c->dfas numbering */
    uint32_t *n_edges;
    uint8_t *colour; /* 1: on the path, 2: done */
    uint32_t *path, *at;
};

static bool left_edges(struct compiler *c, struct left_graph *g, uint32_t rule, uint32_t *list,
                       uint8_t *mark)
{
    const struct dfa *d = c->dfas[rule];
    uint32_t n, total = 0;
    left_states(c, d, list, &n, mark);
    for (uint32_t i = 0; i < n; i++)
        total += d->states[list[i]].n_calls;
    g->edges[rule] = ir_alloc(c->b, (total + 1) * sizeof(uint32_t));
    if (!g->edges[rule] || !ir_work(c->b, total))
        return false;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < d->states[list[i]].n_calls; k++)
            g->edges[rule][g->n_edges[rule]++] = d->states[list[i]].calls[k].rule;
    return true;
}

static bool find_left_cycle(struct compiler *c, struct left_graph *g, uint32_t from)
{
    uint32_t top = 0;
    if (g->colour[from])
        return true;
    g->path[top++] = from;
    g->colour[from] = 1;
    while (top) {
        uint32_t rule = g->path[top - 1];
        if (g->at[rule] == g->n_edges[rule]) {
            g->colour[rule] = 2;
            top--;
            continue;
        }
        uint32_t to = g->edges[rule][g->at[rule]++];
        if (g->colour[to] == 1)
            return ir_fail(c->b, ERR_CONFIG,
                           "grammar: \"%s\" calls itself without reading anything (left recursion)",
                           c->b->rules[to].name) != NULL;
        if (!g->colour[to]) {
            g->colour[to] = 1;
            g->path[top++] = to;
        }
    }
    return true;
}

static bool refuse_left_recursion(struct compiler *c)
{
    uint32_t n = c->b->n_rules, most = 1;
    for (uint32_t i = 0; i < c->n_order; i++)
        if (c->dfas[c->order[i]]->n > most)
            most = c->dfas[c->order[i]]->n;
    uint32_t *list = ir_alloc(c->b, most * sizeof *list);
    uint8_t *mark = ir_alloc(c->b, most);
    struct left_graph g = {ir_alloc(c->b, n * sizeof *g.edges),
                           ir_alloc(c->b, n * sizeof *g.n_edges), ir_alloc(c->b, n),
                           ir_alloc(c->b, (n + 1) * sizeof *g.path),
                           ir_alloc(c->b, n * sizeof *g.at)};
    if (c->b->rc)
        return false;
    for (bool changed = true; changed && !c->b->rc;) {
        changed = false;
        for (uint32_t i = c->n_order; i-- > 0;) {
            uint32_t rule = c->order[i], k;
            if (!c->nullable[rule] && left_states(c, c->dfas[rule], list, &k, mark))
                changed = c->nullable[rule] = true;
        }
    }
    for (uint32_t i = 0; i < c->n_order; i++)
        if (!left_edges(c, &g, c->order[i], list, mark))
            return false;
    for (uint32_t i = 0; i < c->n_order; i++)
        if (!find_left_cycle(c, &g, c->order[i]))
            return false;
    return !c->b->rc;
}

/* ---- what can be finished ---- */

static bool find_productive(struct compiler *c)
{
    for (bool changed = true; changed && !c->b->rc;) {
        changed = false;
        for (uint32_t i = c->n_order; i-- > 0;) {
            uint32_t rule = c->order[i];
            dfa_mark_live(c->b, c->dfas[rule], c->productive);
            if (!c->b->rc && c->dfas[rule]->states[0].live && !c->productive[rule])
                changed = c->productive[rule] = true;
        }
    }
    if (!c->b->rc && !c->productive[c->root])
        ir_fail(c->b, ERR_CONFIG, "grammar: it admits no text at all");
    return !c->b->rc;
}

/* ---- packing ---- */

struct packing {
    uint32_t **number; /* of each state of each rule */
    uint32_t n_states, n_calls;
    uint8_t class_of[256], byte_of[256];
    uint32_t n_classes;
};

static bool number_states(struct compiler *c, struct packing *p)
{
    bool cut[257] = {[0] = true};
    p->n_states = 1;
    p->number = ir_alloc(c->b, c->b->n_rules * sizeof *p->number);
    for (uint32_t i = 0; p->number && i < c->n_order; i++) {
        const struct dfa *d = c->dfas[c->order[i]];
        uint32_t *number = p->number[c->order[i]] = ir_alloc(c->b, (d->n + 1) * sizeof *number);
        for (uint32_t s = 0; number && s < d->n; s++) {
            const struct dfa_state *x = &d->states[s];
            if (!x->live)
                continue;
            number[s] = p->n_states++;
            p->n_calls += x->n_calls;
            for (uint32_t k = 0; k < x->n_edges; k++)
                if (d->states[x->edges[k].to].live)
                    cut[x->edges[k].lo] = cut[x->edges[k].hi + 1] = true;
        }
    }
    if (p->n_states > GRAMMAR_TOP_STATES)
        ir_fail(c->b, ERR_LIMIT, "grammar: too large: its automaton has more than %u states",
                GRAMMAR_TOP_STATES - 1);
    for (int i = 0; i < 256; i++) {
        if (cut[i])
            p->byte_of[p->n_classes++] = (uint8_t)i;
        p->class_of[i] = (uint8_t)(p->n_classes - 1);
    }
    return !c->b->rc;
}

static struct grammar *grammar_alloc(struct compiler *c, const struct packing *p)
{
    size_t n = p->n_states, rows = n * p->n_classes * sizeof(uint16_t);
    size_t bytes = sizeof(struct grammar) + (n + 1) * sizeof(uint32_t) +
                   (p->n_calls + 1) * sizeof(struct grammar_call) + rows +
                   3 * n * sizeof(uint16_t) + n;
    struct grammar *g = bytes > c->b->limits->max_memory_bytes ? NULL : calloc(1, bytes);
    if (!g)
        return ir_fail(c->b, bytes > c->b->limits->max_memory_bytes ? ERR_LIMIT : ERR_NOMEM,
                       "grammar: its tables take %zu bytes", bytes);
    g->bytes = bytes;
    g->call_at = (uint32_t *)(g + 1);
    g->calls = (struct grammar_call *)(g->call_at + n + 1);
    g->next = (uint16_t *)(g->calls + p->n_calls + 1);
    g->plain_next = g->next + n * p->n_classes;
    g->plain_chain = g->plain_next + n;
    g->plain_end = g->plain_chain + n;
    g->flags = (uint8_t *)(g->plain_end + n);
    g->n_states = p->n_states;
    g->n_classes = p->n_classes;
    memcpy(g->class_of, p->class_of, sizeof g->class_of);
    memcpy(g->byte_of, p->byte_of, sizeof g->byte_of);
    atomic_init(&g->refs, 1);
    return g;
}

static void pack_state(const struct compiler *c, const struct packing *p, struct grammar *g,
                       uint32_t rule, uint32_t s, uint32_t *n_calls)
{
    const struct dfa *d = c->dfas[rule];
    const struct dfa_state *x = &d->states[s];
    uint32_t at = p->number[rule][s], first = *n_calls;
    uint16_t *row = g->next + (size_t)at * g->n_classes;
    uint8_t flags = x->accept ? STATE_ACCEPT : 0;
    for (uint32_t k = 0; k < x->n_edges; k++) {
        uint32_t to = p->number[rule][x->edges[k].to];
        if (!to)
            continue;
        flags |= STATE_BYTES;
        for (unsigned i = g->class_of[x->edges[k].lo]; i <= g->class_of[x->edges[k].hi]; i++)
            row[i] = (uint16_t)to;
    }
    g->call_at[at] = first;
    for (uint32_t k = 0; k < x->n_calls; k++) {
        uint32_t ret = p->number[rule][x->calls[k].ret];
        if (c->productive[x->calls[k].rule] && ret)
            g->calls[(*n_calls)++] =
                (struct grammar_call){(uint16_t)p->number[x->calls[k].rule][0], (uint16_t)ret};
    }
    if (x->accept && !(flags & STATE_BYTES) && *n_calls == first)
        flags |= STATE_TAIL;
    g->flags[at] = flags;
}

static struct grammar *pack(struct compiler *c)
{
    struct packing p = {0};
    if (!number_states(c, &p))
        return NULL;
    struct grammar *g = grammar_alloc(c, &p);
    if (!g)
        return NULL;
    uint32_t n_calls = 0;
    for (uint32_t i = 0; i < c->n_order; i++)
        for (uint32_t s = 0; s < c->dfas[c->order[i]]->n; s++)
            if (c->dfas[c->order[i]]->states[s].live)
                pack_state(c, &p, g, c->order[i], s, &n_calls);
    g->call_at[g->n_states] = n_calls;
    g->start = (uint16_t)p.number[c->root][0];
    grammar_find_plain(g);
    struct grammar_state s;
    int rc = grammar_start(&s, g, c->b->e);
    if (!rc)
        return g;
    c->b->rc = rc;
    grammar_unref(g);
    return NULL;
}

struct grammar *grammar_compile(struct ir_builder *b, struct ir *root)
{
    uint32_t r = ir_rule_new(b, "the whole text", 14);
    if (b->rc || !root)
        return NULL;
    b->rules[r].body = root;
    b->rules[r].apart = true;
    uint32_t n = b->n_rules;
    size_t most = b->limits->max_rules;
    struct compiler c = {.b = b,
                         .root = r,
                         .dfas = ir_alloc(b, most * sizeof *c.dfas),
                         .order = ir_alloc(b, most * sizeof *c.order),
                         .productive = ir_alloc(b, most),
                         .nullable = ir_alloc(b, most)};
    c.ctx = (struct automaton_ctx){.b = b, .plan = rules_plan(b), .n_plan = n};
    if (b->rc || !build_automata(&c) || !refuse_left_recursion(&c) || !find_productive(&c))
        return NULL;
    return pack(&c);
}
