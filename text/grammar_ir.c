/* grammar_ir.c - see grammar_ir.h. Builders simplify as they go: what matches nothing swallows its sequence and vanishes from
 * alternatives, so that a front end need not look. */
#include "text/grammar_ir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_IR_DEPTH = 800 /* of generated trees: compiling them recurses */ };

void ir_builder_init(struct ir_builder *b, const struct grammar_limits *limits, struct err *e)
{
    *b = (struct ir_builder){.limits = limits, .e = e};
    arena_init(&b->arena, limits->max_memory_bytes);
}

void ir_builder_fini(struct ir_builder *b)
{
    arena_fini(&b->arena);
}

void *ir_fail(struct ir_builder *b, int code, const char *fmt, ...)
{
    if (b->rc)
        return NULL;
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    b->rc = err_set(b->e, code, "%s", text);
    return NULL;
}

void *ir_alloc(struct ir_builder *b, size_t n)
{
    void *p = b->rc ? NULL : arena_alloc(&b->arena, n);
    if (!p && !b->rc)
        ir_fail(b, b->arena.over ? ERR_LIMIT : ERR_NOMEM,
                "grammar: compiling it takes more than %zu bytes of memory",
                b->limits->max_memory_bytes);
    return p;
}

bool ir_work(struct ir_builder *b, uint64_t n)
{
    b->work += n;
    if (b->work > b->limits->max_work)
        ir_fail(b, ERR_LIMIT, "grammar: too complex: compiling it takes more than %llu steps",
                (unsigned long long)b->limits->max_work);
    return !b->rc;
}

static struct ir *node_new(struct ir_builder *b, enum ir_kind kind)
{
    struct ir *x = ir_alloc(b, sizeof *x);
    if (x) {
        x->kind = (uint8_t)kind;
        x->depth = 1;
        x->size = 1;
    }
    return x;
}

struct ir *ir_none(struct ir_builder *b)
{
    return node_new(b, IR_NONE);
}

struct ir *ir_empty(struct ir_builder *b)
{
    return node_new(b, IR_BYTES);
}

struct ir *ir_bytes(struct ir_builder *b, const void *bytes, size_t n)
{
    struct ir *x = node_new(b, IR_BYTES);
    uint8_t *copy = x && n ? ir_alloc(b, n) : NULL;
    if (!x || (n && !copy))
        return NULL;
    if (n)
        memcpy(copy, bytes, n);
    x->bytes = copy;
    x->n = (uint32_t)n;
    x->size = n + 1;
    return x;
}

struct ir *ir_text(struct ir_builder *b, const char *s)
{
    return ir_bytes(b, s, strlen(s));
}

struct ir *ir_set(struct ir_builder *b, struct cp_set set)
{
    if (set.n == 0)
        return ir_none(b);
    struct ir *x = node_new(b, IR_SET);
    if (x) {
        x->set = set;
        /* a range beyond ASCII becomes several byte sequences */
        x->size = 1 + set.n + (set.r[set.n - 1].hi >= 0x80 ? 12 : 0);
    }
    return x;
}

/* Adopt what the kids bring; NULL when one is NULL. */
static struct ir *parent_of(struct ir_builder *b, enum ir_kind kind, struct ir *const *kids,
                            size_t n)
{
    struct ir *x = node_new(b, kind);
    struct ir **copy = x ? ir_alloc(b, (n ? n : 1) * sizeof(struct ir *)) : NULL;
    if (!copy)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        if (!kids[i])
            return NULL;
        copy[i] = kids[i];
        x->size += kids[i]->size;
        if (kids[i]->depth >= x->depth)
            x->depth = (uint16_t)(kids[i]->depth + 1);
    }
    if (x->depth > MAX_IR_DEPTH)
        return ir_fail(b, ERR_LIMIT, "grammar: nested too deeply");
    x->kids = copy;
    x->n = (uint32_t)n;
    return x;
}

struct ir *ir_repeat(struct ir_builder *b, struct ir *kid, uint32_t min, uint32_t max)
{
    if (!kid || b->rc)
        return NULL;
    if (max < min)
        return ir_none(b);
    if (max == 0 || (kid->kind == IR_NONE && min == 0) || (kid->kind == IR_BYTES && kid->n == 0))
        return ir_empty(b);
    if (kid->kind == IR_NONE || (min == 1 && max == 1))
        return kid;
    uint32_t most = max == IR_INF ? min : max;
    if (most > b->limits->max_repeat)
        return ir_fail(b, ERR_LIMIT, "grammar: %u repetitions, at most %u", most,
                       b->limits->max_repeat);
    struct ir *x = parent_of(b, IR_REPEAT, &kid, 1);
    if (!x)
        return NULL;
    x->min = min;
    x->max = max;
    uint64_t copies = most + (max == IR_INF);
    x->size = kid->size > UINT64_MAX / 4 / (copies + 1) ? UINT64_MAX / 4 : (kid->size + 1) * copies;
    return x;
}

struct ir *ir_optional(struct ir_builder *b, struct ir *kid)
{
    return ir_repeat(b, kid, 0, 1);
}

struct ir *ir_call(struct ir_builder *b, uint32_t rule)
{
    struct ir *x = node_new(b, IR_RULE);
    if (x)
        x->rule = rule;
    return x;
}

struct ir *ir_and(struct ir_builder *b, struct ir *x, struct ir *y)
{
    if (!x || !y)
        return NULL;
    if (x->kind == IR_NONE || y->kind == IR_NONE)
        return ir_none(b);
    return parent_of(b, IR_AND, (struct ir *const[]){x, y}, 2);
}

struct ir *ir_multiple(struct ir_builder *b, uint32_t of)
{
    struct ir *x = node_new(b, IR_MULTIPLE);
    if (x) {
        x->min = of;
        x->size = 20u * (uint64_t)of;
    }
    return x;
}

struct ir *ir_share(struct ir_builder *b, struct ir *x, const char *name)
{
    enum { SMALL = 40 };
    if (!x || x->size <= SMALL)
        return x;
    uint32_t rule = ir_rule_new(b, name, strlen(name));
    if (b->rc)
        return NULL;
    b->rules[rule].body = x;
    b->rules[rule].apart = true;
    return ir_call(b, rule);
}

struct ir *ir_minus(struct ir_builder *b, struct ir *x, struct ir *y)
{
    if (!x || !y)
        return NULL;
    if (x->kind == IR_NONE || y->kind == IR_NONE)
        return x;
    return parent_of(b, IR_MINUS, (struct ir *const[]){x, y}, 2);
}

struct ir *ir_list(struct ir_builder *b, enum ir_kind kind, struct ir *const *kids, size_t n)
{
    struct ir_vec kept = {0};
    for (size_t i = 0; i < n; i++) {
        if (!kids[i])
            return NULL;
        bool none = kids[i]->kind == IR_NONE;
        if (none && kind == IR_SEQ)
            return kids[i];
        if (!none && !(kind == IR_SEQ && kids[i]->kind == IR_BYTES && kids[i]->n == 0))
            ir_push(b, &kept, kids[i]);
    }
    if (b->rc)
        return NULL;
    if (kept.n == 1)
        return kept.kids[0];
    if (kept.n == 0)
        return kind == IR_SEQ ? ir_empty(b) : ir_none(b);
    return parent_of(b, kind, kept.kids, kept.n);
}

void ir_push(struct ir_builder *b, struct ir_vec *v, struct ir *kid)
{
    if (!kid || b->rc)
        return;
    if (v->n == v->cap) {
        size_t cap = v->cap ? v->cap * 2 : 8;
        struct ir **more = ir_alloc(b, cap * sizeof *more);
        if (!more)
            return;
        if (v->n)
            memcpy(more, v->kids, v->n * sizeof *more);
        v->kids = more;
        v->cap = cap;
    }
    v->kids[v->n++] = kid;
}

uint32_t ir_rule_new(struct ir_builder *b, const char *name, size_t n)
{
    if (b->n_rules >= b->limits->max_rules) {
        ir_fail(b, ERR_LIMIT, "grammar: more than %u rules", b->limits->max_rules);
        return 0;
    }
    if (b->n_rules == b->cap_rules) {
        uint32_t cap = b->cap_rules ? b->cap_rules * 2 : 16;
        struct ir_rule *more = ir_alloc(b, cap * sizeof *more);
        if (!more)
            return 0;
        if (b->n_rules)
            memcpy(more, b->rules, b->n_rules * sizeof *more);
        b->rules = more;
        b->cap_rules = cap;
    }
    char *copy = ir_alloc(b, n + 1);
    if (!copy)
        return 0;
    memcpy(copy, name, n);
    b->rules[b->n_rules] = (struct ir_rule){.name = copy};
    return b->n_rules++;
}

/* ---- sets of characters ---- */

enum { CP_LAST = 0x10FFFF, SURROGATE_FIRST = 0xD800, SURROGATE_LAST = 0xDFFF };

static int range_order(const void *x, const void *y)
{
    const struct cp_range *a = x, *b = y;
    return (a->lo > b->lo) - (a->lo < b->lo);
}

/* Sorted ranges without the surrogates, joined where they touch. */
static void set_add(struct cp_set *s, uint32_t lo, uint32_t hi)
{
    if (lo > hi)
        return;
    struct cp_range *last = s->n ? &s->r[s->n - 1] : NULL;
    bool touches = last && (lo <= last->hi || lo == last->hi + 1);
    if (!touches)
        s->r[s->n++] = (struct cp_range){lo, hi};
    else if (hi > last->hi)
        last->hi = hi;
}

struct cp_set cp_set_of(struct ir_builder *b, const struct cp_range *r, size_t n)
{
    struct cp_set s = {0};
    struct cp_range *sorted = ir_alloc(b, (n + 1) * sizeof *sorted);
    s.r = ir_alloc(b, (2 * n + 1) * sizeof *s.r);
    if (!sorted || !s.r || !n || !ir_work(b, n))
        return (struct cp_set){0};
    memcpy(sorted, r, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, range_order);
    for (size_t i = 0; i < n; i++) {
        uint32_t lo = sorted[i].lo, hi = sorted[i].hi < CP_LAST ? sorted[i].hi : CP_LAST;
        set_add(&s, lo, hi < SURROGATE_FIRST ? hi : SURROGATE_FIRST - 1);
        set_add(&s, lo > SURROGATE_LAST ? lo : SURROGATE_LAST + 1, hi);
    }
    return s;
}

struct cp_set cp_set_union(struct ir_builder *b, struct cp_set x, struct cp_set y)
{
    struct cp_range *both = ir_alloc(b, ((size_t)x.n + y.n + 1) * sizeof *both);
    if (!both)
        return (struct cp_set){0};
    if (x.n)
        memcpy(both, x.r, x.n * sizeof *both);
    if (y.n)
        memcpy(both + x.n, y.r, y.n * sizeof *both);
    return cp_set_of(b, both, (size_t)x.n + y.n);
}

struct cp_set cp_set_not(struct ir_builder *b, struct cp_set x)
{
    struct cp_range *gaps = ir_alloc(b, ((size_t)x.n + 1) * sizeof *gaps);
    size_t n = 0;
    uint32_t next = 0;
    for (uint32_t i = 0; gaps && i < x.n; i++) {
        if (x.r[i].lo > next)
            gaps[n++] = (struct cp_range){next, x.r[i].lo - 1};
        next = x.r[i].hi + 1;
    }
    if (!gaps)
        return (struct cp_set){0};
    if (next <= CP_LAST)
        gaps[n++] = (struct cp_range){next, CP_LAST};
    return cp_set_of(b, gaps, n);
}

bool cp_set_has(struct cp_set x, uint32_t cp)
{
    for (uint32_t i = 0; i < x.n; i++)
        if (cp >= x.r[i].lo && cp <= x.r[i].hi)
            return true;
    return false;
}
