/* grammar_plan.c - which rules are written into their callers.
 *
 * Those that lead to no cycle and are small, or used once: what is regular becomes one automaton.
 */
#include "text/grammar_automaton.h"

enum {
    WRITE_IN_SIZE = 64,        /* nodes: smaller rules are always written in */
    WRITE_IN_ONCE_SIZE = 4000, /* if there is one call only */
    WRITE_IN_DEPTH = 300,
};

struct cost {
    uint64_t size;
    uint32_t depth;
};
struct planner {
    struct ir_builder *b;
    struct rule_plan *plan; /* of each rule, as all below */
    struct cost *cost;
    uint32_t *n_calls, *n_unplanned; /* calls to it; callees not planned yet */
};

static bool is_leaf(const struct ir *x)
{
    return x->kind == IR_BYTES || x->kind == IR_SET || x->kind == IR_NONE || x->kind == IR_MULTIPLE;
}

static struct cost cost_of(struct planner *c, const struct ir *x)
{
    struct cost sum = {x->size, 1};
    if (x->kind == IR_RULE && c->plan[x->rule].written_in)
        return c->cost[x->rule];
    if (x->kind == IR_RULE || is_leaf(x) || !ir_work(c->b, 1))
        return sum;
    sum.size = 1;
    for (uint32_t i = 0; i < x->n; i++) {
        struct cost kid = cost_of(c, x->kids[i]);
        sum.size += kid.size;
        if (kid.depth >= sum.depth)
            sum.depth = kid.depth + 1;
    }
    uint64_t times = x->kind != IR_REPEAT ? 1 : x->max == IR_INF ? x->min + 1u : x->max;
    sum.size = sum.size > UINT32_MAX ? sum.size : sum.size * times;
    return sum;
}

struct caller_link {
    struct caller_link *next;
    uint32_t caller;
};

static void plan_rule(struct planner *c, uint32_t rule)
{
    struct cost k = cost_of(c, c->b->rules[rule].body);
    c->cost[rule] = k;
    c->plan[rule].written_in =
        !c->b->rules[rule].apart && k.depth <= WRITE_IN_DEPTH &&
        (k.size <= WRITE_IN_SIZE || (c->n_calls[rule] == 1 && k.size <= WRITE_IN_ONCE_SIZE));
}

static bool link_callers(struct planner *c, struct caller_link **callers, uint32_t caller,
                         const struct ir *x)
{
    if (!ir_work(c->b, 1))
        return false;
    if (x->kind == IR_RULE) {
        struct caller_link *l = ir_alloc(c->b, sizeof *l);
        if (!l)
            return false;
        *l = (struct caller_link){callers[x->rule], caller};
        callers[x->rule] = l;
        c->n_calls[x->rule]++;
        c->n_unplanned[caller]++;
    } else if (!is_leaf(x)) {
        for (uint32_t i = 0; i < x->n; i++)
            if (!link_callers(c, callers, caller, x->kids[i]))
                return false;
    }
    return true;
}

/* Callees first; rules that lead to a cycle are never reached and stay calls. */
static bool plan_rules(struct planner *c)
{
    uint32_t n = c->b->n_rules, top = 0;
    struct caller_link **callers = ir_alloc(c->b, n * sizeof *callers);
    uint32_t *ready = ir_alloc(c->b, n * sizeof *ready);
    if (!callers || !ready)
        return false;
    for (uint32_t r = 0; r < n; r++)
        if (!link_callers(c, callers, r, c->b->rules[r].body))
            return false;
    for (uint32_t r = 0; r < n; r++)
        if (c->n_unplanned[r] == 0)
            ready[top++] = r;
    while (top) {
        uint32_t r = ready[--top];
        plan_rule(c, r);
        for (struct caller_link *l = callers[r]; l; l = l->next)
            if (--c->n_unplanned[l->caller] == 0)
                ready[top++] = l->caller;
    }
    return !c->b->rc;
}

struct rule_plan *rules_plan(struct ir_builder *b)
{
    uint32_t n = b->n_rules;
    struct planner c = {.b = b,
                        .plan = ir_alloc(b, n * sizeof *c.plan),
                        .cost = ir_alloc(b, n * sizeof *c.cost),
                        .n_calls = ir_alloc(b, n * sizeof *c.n_calls),
                        .n_unplanned = ir_alloc(b, n * sizeof *c.n_unplanned)};
    return !b->rc && plan_rules(&c) ? c.plan : NULL;
}
