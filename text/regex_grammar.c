/* regex_grammar.c - see regex_grammar.h. What an anchor means depends on what is around it, so the tree is read first. */
#include "text/regex_grammar.h"

#include "text/regex_tree.h"

struct regex {
    struct scan s;
    const struct regex_form *form;
};

/* What is at one side of a part: INNER: more of the expression; OPEN: its end, where in a search anything may be; ANCHORED: its
 * end, and the text's. */
enum side { INNER, OPEN, ANCHORED };

static struct ir *emit(struct regex *r, const struct rx *x, enum side left, enum side right);

static struct ir *spell(struct regex *r, struct cp_set set)
{
    struct ir_builder *b = r->s.b;
    return r->form->spell ? r->form->spell(b, set) : ir_set(b, set);
}

/* Anything, where a search leaves an end open. */
static struct ir *filler(struct regex *r, enum side side)
{
    struct ir_builder *b = r->s.b;
    if (side != OPEN || !r->form->search)
        return ir_empty(b);
    return ir_repeat(b, spell(r, CP_SET(b, {0, 0x10FFFF})), 0, IR_INF);
}

/* kids[n], of which anchors at the ends are taken off. */
static struct ir *emit_sequence(struct regex *r, const struct rx *const *kids, size_t n,
                                enum side left, enum side right)
{
    struct ir_builder *b = r->s.b;
    struct ir_vec parts = {0};
    size_t from = 0;
    for (; from < n && kids[from]->kind == RX_BEGIN && left != INNER; from++)
        left = ANCHORED;
    for (; n > from && kids[n - 1]->kind == RX_END && right != INNER; n--)
        right = ANCHORED;
    if (from == n)
        return left == OPEN ? filler(r, left) : filler(r, right);
    for (size_t i = from; i < n; i++)
        ir_push(b, &parts, emit(r, kids[i], i == from ? left : INNER, i + 1 == n ? right : INNER));
    return ir_list(b, IR_SEQ, parts.kids, parts.n);
}

static struct ir *emit_alternatives(struct regex *r, const struct rx *x, enum side left,
                                    enum side right)
{
    struct ir_vec parts = {0};
    for (const struct rx *k = x->first; k; k = k->next)
        ir_push(r->s.b, &parts, emit(r, k, left, right));
    return r->s.b->rc ? NULL : ir_list(r->s.b, IR_ALT, parts.kids, parts.n);
}

static struct ir *emit(struct regex *r, const struct rx *x, enum side left, enum side right)
{
    struct ir_builder *b = r->s.b;
    if (b->rc)
        return NULL;
    if (x->kind == RX_ALT)
        return emit_alternatives(r, x, left, right);
    if (x->kind == RX_SEQ) {
        size_t n = 0;
        for (const struct rx *k = x->first; k; k = k->next)
            n++;
        const struct rx **kids = ir_alloc(b, (n + 1) * sizeof *kids);
        if (!kids)
            return NULL;
        n = 0;
        for (const struct rx *k = x->first; k; k = k->next)
            kids[n++] = k;
        return emit_sequence(r, kids, n, left, right);
    }
    if (x->kind == RX_BEGIN || x->kind == RX_END)
        return ir_fail(b, ERR_CONFIG, "%s: an anchor (%s) inside the expression is not supported",
                       r->s.what, x->kind == RX_BEGIN ? "^" : "$");
    struct ir *body = x->kind == RX_SET
                          ? spell(r, x->set)
                          : ir_repeat(b, emit(r, x->first, INNER, INNER), x->min, x->max);
    return ir_seq(b, filler(r, left), body, filler(r, right));
}

struct ir *regex_build(struct ir_builder *b, const struct regex_form *form, const char *text,
                       size_t n)
{
    struct regex r = {{.b = b, .what = form->what, .text = text, .n = n}, form};
    struct rx *x = regex_read(&r.s);
    return x ? emit(&r, x, OPEN, OPEN) : NULL;
}

struct ir *regex_parse(struct ir_builder *b, const char *text, size_t n)
{
    static const struct regex_form WHOLE = {.what = "regex"};
    return regex_build(b, &WHOLE, text, n);
}
