/* template_eval.c - statements, scopes, output and the budgets of an evaluation.
 *
 * Scopes as in Jinja: each round of a loop, a with-block, a captured block and a call of a macro
 * has its own; an if has not. A name that is set in an inner scope never changes the outer one
 * (templates use namespace() for that).
 */
#include "text/template_internal.h"

#include <stdio.h>

/* ---- errors and budgets ---- */

int eval_fail(struct eval *ev, int code, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_set(ev->e, code, "chat template line %d: %s", ev->line, text);
}

int eval_steps(struct eval *ev, uint64_t n)
{
    if (n > ev->steps_left) {
        ev->steps_left = 0;
        return eval_fail(ev, ERR_LIMIT, "the template takes too many steps");
    }
    ev->steps_left -= n;
    return 0;
}

int eval_nomem(struct eval *ev)
{
    if (ev->arena.over)
        return eval_fail(ev, ERR_LIMIT, "the template takes more than %zu bytes of memory",
                         ev->arena.max_bytes);
    return eval_fail(ev, ERR_NOMEM, "out of memory");
}

void *eval_alloc(struct eval *ev, size_t n)
{
    return arena_alloc(&ev->arena, n);
}

int eval_enter(struct eval *ev)
{
    if (ev->depth >= TEMPLATE_MAX_DEPTH)
        return eval_fail(ev, ERR_LIMIT, "evaluation is nested deeper than %d", TEMPLATE_MAX_DEPTH);
    ev->depth++;
    return 0;
}

void eval_leave(struct eval *ev)
{
    ev->depth--;
}

int eval_write(struct eval *ev, struct str s)
{
    if (ev->capture) {
        build_put(ev->capture, s);
        return ev->capture->rc;
    }
    if (s.n == 0)
        return 0;
    buf_put(ev->out, s.p, s.n);
    if (!buf_ok(ev->out))
        return eval_fail(ev, ERR_LIMIT, "the prompt is larger than %zu bytes", ev->out->max);
    return eval_bytes(ev, s.n);
}

/* ---- scopes ---- */

struct scope *scope_new(struct eval *ev, struct scope *parent)
{
    struct scope *sc = eval_alloc(ev, sizeof *sc);
    if (sc)
        sc->parent = parent;
    return sc;
}

struct scope *scope_hiding(struct eval *ev, struct scope *parent, const struct hidden *hidden)
{
    struct scope *sc = scope_new(ev, parent);
    for (; sc && hidden; hidden = hidden->next) {
        struct var *var = eval_alloc(ev, sizeof *var);
        if (!var)
            return NULL;
        *var = (struct var){sc->vars, hidden->name, value_undefined(hidden->name)};
        sc->vars = var;
    }
    return sc;
}

static int var_find(struct eval *ev, struct var *list, struct str name, struct var **out)
{
    uint64_t seen = 0;
    for (*out = list; *out; *out = (*out)->next, seen++)
        if ((*out)->name.n == name.n && memcmp((*out)->name.p, name.p, name.n) == 0)
            break;
    return eval_steps(ev, seen / 8);
}

int scope_set(struct eval *ev, struct scope *sc, struct str name, const struct value *v)
{
    struct var *var;
    int rc = var_find(ev, sc->vars, name, &var);
    if (rc)
        return rc;
    if (!var) {
        var = eval_alloc(ev, sizeof *var);
        if (!var)
            return eval_nomem(ev);
        *var = (struct var){.next = sc->vars, .name = name};
        sc->vars = var;
    }
    var->value = *v;
    return 0;
}

int scope_get(struct eval *ev, struct scope *sc, struct str name, const struct value **out)
{
    *out = NULL;
    for (; sc; sc = sc->parent) {
        struct var *var;
        int rc = var_find(ev, sc->vars, name, &var);
        if (rc)
            return rc;
        if (var) {
            *out = &var->value;
            return 0;
        }
    }
    return 0;
}

/* ---- assignment ---- */

static int assign_attr(struct eval *ev, struct scope *sc, const struct node *target,
                       const struct value *v)
{
    struct value ns;
    int rc = eval_expr(ev, sc, target->a, &ns);
    if (rc)
        return rc;
    if (ns.type != VALUE_NAMESPACE)
        return eval_fail(ev, ERR_FORMAT, "cannot set an attribute of a %s, only of a namespace",
                         value_type_name(&ns));
    struct value key = value_str(target->name);
    return dict_set(ev, ns.dict, &key, v);
}

static int assign(struct eval *ev, struct scope *sc, const struct node *target,
                  const struct value *v)
{
    if (target->kind == NODE_NAME)
        return scope_set(ev, sc, target->name, v);
    if (target->kind == NODE_ATTR)
        return assign_attr(ev, sc, target, v);
    if (target->kind != NODE_TUPLE)
        return eval_fail(ev, ERR_FORMAT, "cannot assign to this");
    struct list *items;
    int rc = value_items(ev, v, &items);
    if (rc)
        return rc;
    size_t want = 0;
    for (const struct node *n = target->list; n; n = n->next)
        want++;
    if (items->n != want)
        return eval_fail(ev, ERR_FORMAT, "%zu values for %zu names", items->n, want);
    size_t i = 0;
    for (const struct node *n = target->list; n && rc == 0; n = n->next)
        rc = assign(ev, sc, n, &items->items[i++]);
    return rc;
}

/* ---- statements ---- */

static int eval_output(struct eval *ev, struct scope *sc, const struct node *n)
{
    struct value v;
    struct str s;
    int rc = eval_expr(ev, sc, n->a, &v);
    if (rc == 0)
        rc = value_to_str(ev, &v, &s);
    return rc ? rc : eval_write(ev, s);
}

static int eval_if(struct eval *ev, struct scope *sc, const struct node *n)
{
    for (const struct node *branch = n->list; branch; branch = branch->next) {
        bool taken = true;
        if (branch->a) {
            struct value v;
            int rc = eval_expr(ev, sc, branch->a, &v);
            if (rc)
                return rc;
            taken = value_truth(&v);
        }
        if (taken)
            return eval_block(ev, sc, branch->list);
    }
    return 0;
}

/* The items that pass the loop's own condition. */
static int filter_items(struct eval *ev, struct scope *sc, const struct node *n,
                        struct list **items)
{
    struct list *kept = list_new(ev, LIST_LIST);
    if (!kept)
        return eval_nomem(ev);
    for (size_t i = 0; i < (*items)->n; i++) {
        struct scope *inner = scope_new(ev, sc);
        struct value pass;
        if (!inner)
            return eval_nomem(ev);
        int rc = assign(ev, inner, n->a, &(*items)->items[i]);
        if (rc == 0)
            rc = eval_expr(ev, inner, n->c, &pass);
        if (rc == 0 && value_truth(&pass))
            rc = list_push(ev, kept, &(*items)->items[i]);
        if (rc)
            return rc;
    }
    *items = kept;
    return 0;
}

static int eval_round(struct eval *ev, struct scope *sc, const struct node *n, struct loop *loop)
{
    struct scope *inner = scope_hiding(ev, sc, n->hidden);
    if (!inner)
        return eval_nomem(ev);
    struct value loop_value = {.type = VALUE_LOOP, .loop = loop};
    int rc = eval_steps(ev, 1);
    if (rc == 0)
        rc = scope_set(ev, inner, STR("loop"), &loop_value);
    if (rc == 0)
        rc = assign(ev, inner, n->a, &loop->items->items[loop->at]);
    return rc ? rc : eval_block(ev, inner, n->list);
}

static int eval_rounds(struct eval *ev, struct scope *sc, const struct node *n,
                       const struct value *over, int64_t depth)
{
    struct list *items;
    int rc = value_items(ev, over, &items);
    if (rc == 0 && n->c)
        rc = filter_items(ev, sc, n, &items);
    if (rc)
        return rc;
    if (items->n == 0) {
        struct scope *inner = scope_hiding(ev, sc, n->hidden_else);
        return inner ? eval_block(ev, inner, n->other) : eval_nomem(ev);
    }
    struct loop *loop = eval_alloc(ev, sizeof *loop);
    if (!loop)
        return eval_nomem(ev);
    *loop = (struct loop){.items = items, .depth = depth, .node = n, .scope = sc};
    for (; loop->at < items->n; loop->at++) {
        rc = eval_round(ev, sc, n, loop);
        if (rc < 0 || rc == FLOW_BREAK)
            break;
    }
    return rc < 0 ? rc : 0;
}

static int eval_for(struct eval *ev, struct scope *sc, const struct node *n)
{
    struct value over;
    int rc = eval_expr(ev, sc, n->b, &over);
    return rc ? rc : eval_rounds(ev, sc, n, &over, 1);
}

/* Everything that `body` writes, as a text. */
struct captured {
    struct builder b, *outer;
};

static void capture_begin(struct eval *ev, struct captured *c)
{
    *c = (struct captured){.b = {.ev = ev}, .outer = ev->capture};
    ev->capture = &c->b;
}

static int capture_end(struct eval *ev, struct captured *c, int rc, struct value *out)
{
    ev->capture = c->outer;
    out->type = VALUE_STRING;
    return rc ? rc : build_done(&c->b, &out->s);
}

int eval_recursion(struct eval *ev, const struct loop *loop, const struct args *a,
                   struct value *out)
{
    struct captured c;
    if (!loop->node->op)
        return eval_fail(ev, ERR_FORMAT, "a loop that is called must be marked as recursive");
    if (a->n_pos != 1 || a->n_kw)
        return eval_fail(ev, ERR_FORMAT, "a loop is called with what it walks");
    capture_begin(ev, &c);
    int rc = eval_rounds(ev, loop->scope, loop->node, &a->pos[0], loop->depth + 1);
    return capture_end(ev, &c, rc, out);
}

static int eval_set(struct eval *ev, struct scope *sc, const struct node *n)
{
    struct value v;
    int rc = eval_expr(ev, sc, n->b, &v);
    return rc ? rc : assign(ev, sc, n->a, &v);
}

/* Render a body into text, then through the filters that the block names. */
static int eval_captured(struct eval *ev, struct scope *sc, const struct node *n, struct value *out)
{
    struct scope *inner = scope_hiding(ev, sc, n->hidden);
    if (!inner)
        return eval_nomem(ev);
    struct captured c;
    struct value text;
    capture_begin(ev, &c);
    int rc = capture_end(ev, &c, eval_block(ev, inner, n->list), &text);
    if (rc)
        return rc;
    struct value saved = ev->captured;
    ev->captured = text;
    rc = eval_expr(ev, sc, n->b, out);
    ev->captured = saved;
    return rc;
}

static int eval_set_block(struct eval *ev, struct scope *sc, const struct node *n)
{
    struct value v;
    int rc = eval_captured(ev, sc, n, &v);
    return rc ? rc : assign(ev, sc, n->a, &v);
}

static int eval_filter_block(struct eval *ev, struct scope *sc, const struct node *n)
{
    struct value v;
    int rc = eval_captured(ev, sc, n, &v);
    if (rc == 0 && v.type != VALUE_STRING)
        rc =
            eval_fail(ev, ERR_FORMAT, "a filter block must give text, not %s", value_type_name(&v));
    return rc ? rc : eval_write(ev, v.s);
}

static int eval_with(struct eval *ev, struct scope *sc, const struct node *n)
{
    struct scope *inner = scope_hiding(ev, sc, n->hidden);
    if (!inner)
        return eval_nomem(ev);
    for (const struct node *set = n->kwargs; set; set = set->next) {
        struct value v;
        int rc = eval_expr(ev, sc, set->b, &v);
        if (rc == 0)
            rc = assign(ev, inner, set->a, &v);
        if (rc)
            return rc;
    }
    return eval_block(ev, inner, n->list);
}

static int macro_value(struct eval *ev, struct scope *sc, const struct node *n, struct value *out)
{
    struct callable *c = eval_alloc(ev, sizeof *c);
    if (!c)
        return eval_nomem(ev);
    c->macro = n;
    c->closure = sc;
    *out = (struct value){.type = VALUE_CALLABLE, .callable = c};
    return 0;
}

static int define_macro(struct eval *ev, struct scope *sc, const struct node *n)
{
    struct value v;
    int rc = macro_value(ev, sc, n, &v);
    return rc ? rc : scope_set(ev, sc, n->name, &v);
}

static int eval_call_block(struct eval *ev, struct scope *sc, const struct node *n)
{
    struct value caller, v;
    struct str s;
    int rc = macro_value(ev, sc, n, &caller);
    if (rc == 0)
        rc = eval_call_with(ev, sc, n->b, &caller, &v);
    if (rc == 0)
        rc = value_to_str(ev, &v, &s);
    return rc ? rc : eval_write(ev, s);
}

static int eval_statement(struct eval *ev, struct scope *sc, const struct node *n)
{
    switch (n->kind) {
    case NODE_TEXT:
        return eval_write(ev, n->name);
    case NODE_OUTPUT:
        return eval_output(ev, sc, n);
    case NODE_PRINT:
        return eval_block(ev, sc, n->list);
    case NODE_IF:
        return eval_if(ev, sc, n);
    case NODE_FOR:
        return eval_for(ev, sc, n);
    case NODE_SET:
        return eval_set(ev, sc, n);
    case NODE_SET_BLOCK:
        return eval_set_block(ev, sc, n);
    case NODE_FILTER_BLOCK:
        return eval_filter_block(ev, sc, n);
    case NODE_WITH:
        return eval_with(ev, sc, n);
    case NODE_MACRO:
        return define_macro(ev, sc, n);
    case NODE_CALL_BLOCK:
        return eval_call_block(ev, sc, n);
    case NODE_BREAK:
        return FLOW_BREAK;
    case NODE_CONTINUE:
        return FLOW_CONTINUE;
    default:
        return eval_fail(ev, ERR_FORMAT, "not a statement");
    }
}

int eval_block(struct eval *ev, struct scope *sc, const struct node *body)
{
    int rc = eval_enter(ev);
    if (rc)
        return rc;
    for (const struct node *n = body; n && rc == 0; n = n->next) {
        ev->line = n->line;
        rc = eval_steps(ev, 1);
        if (rc == 0)
            rc = eval_statement(ev, sc, n);
    }
    eval_leave(ev);
    return rc;
}

int eval_macro(struct eval *ev, const struct callable *m, const struct args *a, struct value *out)
{
    struct captured c;
    struct scope *sc = scope_hiding(ev, m->closure, m->macro->hidden);
    int rc = sc ? macro_bind(ev, sc, m->macro, a) : eval_nomem(ev);
    if (rc)
        return rc;
    capture_begin(ev, &c);
    return capture_end(ev, &c, eval_block(ev, sc, m->macro->list), out);
}
