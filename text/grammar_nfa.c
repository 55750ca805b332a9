/* grammar_nfa.c - expressions to nondeterministic automata over bytes.
 *
 * Built from the end to the start, so nothing is patched. Characters become UTF-8 byte sequences here; the fragments of one
 * set share their tails, and all end in the same node, which keeps the deterministic automaton small.
 * A long repetition of something large would need a copy of it for each count; outside of regular parts it is cut into rules
 * of about the square root of the count, which are called.
 */
#include "text/grammar_automaton.h"
#include "text/utf8.h"

#include <string.h>

enum {
    MAX_BUILD_DEPTH = 1200,
    CUT_SIZE = 16000, /* repetitions that take more nodes than this are cut */
    CUT_COUNT = 24,   /* unless they are fewer than this */
};

static const uint32_t FAILED = UINT32_MAX;

uint32_t nfa_add(struct automaton_ctx *c, struct nfa *n, struct nfa_node node)
{
    if (c->b->rc || !ir_work(c->b, 1))
        return FAILED;
    if (n->n == n->cap) {
        uint32_t cap = n->cap ? n->cap * 2 : 64;
        struct nfa_node *more =
            automaton_grow(c, n->nodes, n->cap * sizeof *more, cap * sizeof *more);
        if (!more)
            return FAILED;
        n->nodes = more;
        n->cap = cap;
    }
    n->nodes[n->n] = node;
    return n->n++;
}

static uint32_t add_split(struct automaton_ctx *c, struct nfa *n, uint32_t a, uint32_t b)
{
    if (a == FAILED || b == FAILED)
        return FAILED;
    return nfa_add(c, n, (struct nfa_node){.kind = NFA_SPLIT, .a = a, .b = b});
}

static uint32_t add_bytes(struct automaton_ctx *c, struct nfa *n, uint8_t lo, uint8_t hi,
                          uint32_t to)
{
    if (to == FAILED)
        return FAILED;
    return nfa_add(c, n, (struct nfa_node){.kind = NFA_BYTE, .lo = lo, .hi = hi, .a = to});
}

/* ---- UTF-8 ---- */

struct set_build {
    struct automaton_ctx *c;
    struct nfa *n;
    uint32_t next;
    uint32_t any[4]; /* any[k]: k free continuation bytes, then next; made when first needed */
    uint32_t entry;  /* the alternatives so far; FAILED: none yet */
    bool empty;
};

static uint32_t any_tail(struct set_build *s, unsigned k)
{
    if (k == 0)
        return s->next;
    if (s->any[k] == FAILED)
        s->any[k] = add_bytes(s->c, s->n, 0x80, 0xBF, any_tail(s, k - 1));
    return s->any[k];
}

static void add_alternative(struct set_build *s, uint32_t node)
{
    s->entry = s->empty ? node : add_split(s->c, s->n, node, s->entry);
    s->empty = false;
}

/* Sequences between lo and hi, both of `len` bytes, whose first `at` bytes are equal: the alternatives of the bytes from `at`
 * on, as one node. */
static uint32_t tail_between(struct set_build *s, const uint8_t *lo, const uint8_t *hi, unsigned at,
                             unsigned len)
{
    if (at == len)
        return s->next;
    unsigned left = len - at - 1;
    bool lo_free = true, hi_free = true; /* the rest of lo is lowest, of hi is highest */
    for (unsigned i = at + 1; i < len; i++) {
        lo_free = lo_free && lo[i] == 0x80;
        hi_free = hi_free && hi[i] == 0xBF;
    }
    uint8_t first = lo[at], last = hi[at];
    if (first == last) {
        uint32_t to = lo_free && hi_free ? any_tail(s, left) : tail_between(s, lo, hi, at + 1, len);
        return add_bytes(s->c, s->n, first, first, to);
    }
    static const uint8_t LOWEST[4] = {0x80, 0x80, 0x80, 0x80},
                         HIGHEST[4] = {0xBF, 0xBF, 0xBF, 0xBF};
    uint8_t edge[4];
    uint32_t entry = FAILED;
    bool any = false;
    if (!lo_free) {
        memcpy(edge, HIGHEST, 4);
        memcpy(edge, lo, at + 1);
        entry = add_bytes(s->c, s->n, first, first, tail_between(s, lo, edge, at + 1, len));
        any = true;
        first++;
    }
    if (!hi_free) {
        memcpy(edge, LOWEST, 4);
        memcpy(edge, hi, at + 1);
        uint32_t x = add_bytes(s->c, s->n, last, last, tail_between(s, edge, hi, at + 1, len));
        entry = any ? add_split(s->c, s->n, entry, x) : x;
        any = true;
        last--;
    }
    if (first <= last) {
        uint32_t x = add_bytes(s->c, s->n, first, last, any_tail(s, left));
        entry = any ? add_split(s->c, s->n, entry, x) : x;
    }
    return entry;
}

static void add_range(struct set_build *s, uint32_t lo, uint32_t hi)
{
    static const uint32_t LAST_OF_LENGTH[] = {0x7F, 0x7FF, 0xFFFF, 0x10FFFF};
    for (unsigned len = 1; len <= 4 && lo <= hi; len++) {
        uint32_t last = LAST_OF_LENGTH[len - 1];
        if (lo > last)
            continue;
        uint32_t end = hi < last ? hi : last;
        char a[4] = {0}, z[4] = {0};
        utf8_encode(lo, a);
        utf8_encode(end, z);
        add_alternative(s, tail_between(s, (uint8_t *)a, (uint8_t *)z, 0, len));
        lo = end + 1;
    }
}

static uint32_t build_set(struct automaton_ctx *c, struct nfa *n, struct cp_set set, uint32_t next)
{
    struct set_build s = {c, n, next, {FAILED, FAILED, FAILED, FAILED}, FAILED, true};
    for (uint32_t i = 0; i < set.n && !c->b->rc; i++)
        add_range(&s, set.r[i].lo, set.r[i].hi);
    return s.entry;
}

/* ---- expressions ---- */

static uint32_t build(struct automaton_ctx *c, struct nfa *n, struct ir *x, uint32_t next);

static uint32_t integer_root(uint32_t n)
{
    uint32_t r = 1;
    while ((uint64_t)r * r < n)
        r++;
    return r;
}

static struct ir *rule_of(struct ir_builder *b, struct ir *body)
{
    uint32_t r = ir_rule_new(b, "repetition", 10);
    if (b->rc || !body)
        return NULL;
    b->rules[r].body = body;
    b->rules[r].apart = true;
    return ir_call(b, r);
}

/* kid{0,max} or kid{count,count} with calls to rules that take `step` at once. */
static struct ir *cut_repeat(struct ir_builder *b, struct ir *kid, uint32_t min, uint32_t max)
{
    uint32_t step = integer_root(max), whole = max / step, left = max % step;
    struct ir *full = rule_of(b, ir_repeat(b, kid, step, step));
    if (min == max)
        return ir_seq(b, ir_repeat(b, full, whole, whole), ir_repeat(b, kid, left, left));
    struct ir *part = rule_of(b, ir_repeat(b, kid, 0, step - 1));
    return ir_alt(b, ir_seq(b, ir_repeat(b, full, 0, whole - 1), part),
                  ir_seq(b, ir_repeat(b, full, whole, whole), ir_repeat(b, kid, 0, left)));
}

static bool worth_cutting(const struct automaton_ctx *c, const struct ir *kid, uint32_t count)
{
    return !c->regular && count >= CUT_COUNT && kid->size * count > CUT_SIZE;
}

/* kid{count} or, optional, kid{0,count} */
static uint32_t build_times(struct automaton_ctx *c, struct nfa *n, struct ir *kid, uint32_t count,
                            bool optional, uint32_t next)
{
    if (worth_cutting(c, kid, count)) {
        struct ir *cut = cut_repeat(c->b, kid, optional ? 0 : count, count);
        return cut ? build(c, n, cut, next) : FAILED;
    }
    uint32_t at = next;
    for (uint32_t i = 0; i < count && at != FAILED; i++) {
        at = build(c, n, kid, at);
        if (optional)
            at = add_split(c, n, at, next);
    }
    return at;
}

static uint32_t build_repeat(struct automaton_ctx *c, struct nfa *n, struct ir *x, uint32_t next)
{
    struct ir *kid = x->kids[0];
    uint32_t at = next;
    if (x->max == IR_INF) {
        at = add_split(c, n, 0, next);
        uint32_t entry = at == FAILED ? FAILED : build(c, n, kid, at);
        if (entry == FAILED)
            return FAILED;
        n->nodes[at].a = entry;
    } else {
        at = build_times(c, n, kid, x->max - x->min, true, next);
    }
    return at == FAILED ? FAILED : build_times(c, n, kid, x->min, false, at);
}

/* The automaton's states as nodes, its accepting ones going on to next. */
static uint32_t embed(struct automaton_ctx *c, struct nfa *n, const struct dfa *d, uint32_t next)
{
    uint32_t base = n->n;
    for (uint32_t i = 0; i < d->n; i++) /* a place for each state, so that edges can name it */
        if (nfa_add(c, n, (struct nfa_node){.kind = NFA_SPLIT}) == FAILED)
            return FAILED;
    uint32_t dead = nfa_add(c, n, (struct nfa_node){.kind = NFA_SPLIT});
    if (dead == FAILED)
        return FAILED;
    n->nodes[dead].a = n->nodes[dead].b = dead;
    for (uint32_t i = 0; i < d->n; i++) {
        const struct dfa_state *s = &d->states[i];
        uint32_t at = s->accept ? next : dead;
        for (uint32_t k = 0; k < s->n_edges && at != FAILED; k++)
            at = add_split(
                c, n, add_bytes(c, n, s->edges[k].lo, s->edges[k].hi, base + s->edges[k].to), at);
        if (at == FAILED)
            return FAILED;
        n->nodes[base + i].a = n->nodes[base + i].b = at;
    }
    return base;
}

static uint32_t build_product(struct automaton_ctx *c, struct nfa *n, struct ir *x, uint32_t next)
{
    struct automaton_ctx inner = *c;
    inner.regular = true;
    inner.n_states = 0; /* these are intermediate: they count against work and memory */
    struct dfa a = {0}, b = {0}, both = {0};
    if (!dfa_from_ir(&inner, x->kids[0], &a) || !dfa_from_ir(&inner, x->kids[1], &b) ||
        !dfa_product(&inner, &a, &b, x->kind == IR_MINUS, &both))
        return FAILED;
    return embed(c, n, &both, next);
}

/* A node for each remainder; digits lead from one to the next. */
static uint32_t build_multiple(struct automaton_ctx *c, struct nfa *n, uint32_t of, uint32_t next)
{
    uint32_t base = n->n;
    for (uint32_t r = 0; r < of; r++)
        if (nfa_add(c, n, (struct nfa_node){.kind = NFA_SPLIT}) == FAILED)
            return FAILED;
    for (uint32_t r = 0; r < of; r++) {
        uint32_t at = FAILED;
        for (uint32_t digit = 0; digit < 10; digit++) {
            uint32_t to = base + (uint32_t)((r * 10ull + digit) % of);
            uint32_t x = add_bytes(c, n, (uint8_t)('0' + digit), (uint8_t)('0' + digit), to);
            at = digit ? add_split(c, n, x, at) : x;
        }
        if (r == 0)
            at = add_split(c, n, at, next);
        if (at == FAILED)
            return FAILED;
        n->nodes[base + r].a = n->nodes[base + r].b = at;
    }
    return base;
}

static uint32_t build_rule(struct automaton_ctx *c, struct nfa *n, uint32_t rule, uint32_t next)
{
    if (rule < c->n_plan && c->plan[rule].written_in)
        return build(c, n, c->b->rules[rule].body, next);
    if (c->regular) {
        ir_fail(c->b, ERR_CONFIG, "grammar: \"%s\" is not regular and cannot be combined",
                c->b->rules[rule].name);
        return FAILED;
    }
    return nfa_add(c, n, (struct nfa_node){.kind = NFA_CALL, .a = next, .b = rule});
}

static uint32_t build_any(struct automaton_ctx *c, struct nfa *n, struct ir *x, uint32_t next)
{
    uint32_t at = next;
    switch (x->kind) {
    case IR_NONE:
        at = nfa_add(c, n, (struct nfa_node){.kind = NFA_SPLIT, .a = n->n, .b = n->n});
        return at;
    case IR_BYTES:
        for (uint32_t i = x->n; i-- > 0;)
            at = add_bytes(c, n, x->bytes[i], x->bytes[i], at);
        return at;
    case IR_SET:
        return build_set(c, n, x->set, next);
    case IR_SEQ:
        for (uint32_t i = x->n; i-- > 0 && at != FAILED;)
            at = build(c, n, x->kids[i], at);
        return at;
    case IR_ALT:
        at = build(c, n, x->kids[0], next);
        for (uint32_t i = 1; i < x->n && at != FAILED; i++)
            at = add_split(c, n, build(c, n, x->kids[i], next), at);
        return at;
    case IR_MULTIPLE:
        return build_multiple(c, n, x->min, next);
    case IR_REPEAT:
        return build_repeat(c, n, x, next);
    case IR_RULE:
        return build_rule(c, n, x->rule, next);
    default:
        return build_product(c, n, x, next);
    }
}

static uint32_t build(struct automaton_ctx *c, struct nfa *n, struct ir *x, uint32_t next)
{
    if (c->b->rc || next == FAILED || !ir_work(c->b, 1))
        return FAILED;
    if (++c->depth > MAX_BUILD_DEPTH) {
        ir_fail(c->b, ERR_LIMIT, "grammar: nested too deeply");
        return FAILED;
    }
    uint32_t at = build_any(c, n, x, next);
    c->depth--;
    return at;
}

bool nfa_build(struct automaton_ctx *c, struct nfa *n, struct ir *x)
{
    *n = (struct nfa){0};
    uint32_t accept = nfa_add(c, n, (struct nfa_node){.kind = NFA_ACCEPT});
    n->start = build(c, n, x, accept);
    return n->start != FAILED;
}
