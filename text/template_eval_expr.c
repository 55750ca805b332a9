/* template_eval_expr.c - expressions: names, calls and logic. Arithmetic is in template_arith.c,
 * attributes and subscripts are in template_access.c. */
#include "text/template_internal.h"

/* ---- subscripts ---- */

static int eval_item(struct eval *ev, struct scope *sc, const struct node *n, struct value *out)
{
    struct value of, key[3];
    const struct value *part[3] = {NULL, NULL, NULL};
    int rc = eval_expr(ev, sc, n->a, &of);
    if (rc)
        return rc;
    if (n->b->kind != NODE_SLICE) {
        rc = eval_expr(ev, sc, n->b, &key[0]);
        return rc ? rc : eval_get_item(ev, &of, &key[0], out);
    }
    const struct node *node[3] = {n->b->a, n->b->b, n->b->c};
    for (int i = 0; i < 3 && rc == 0; i++)
        if (node[i]) {
            rc = eval_expr(ev, sc, node[i], &key[i]);
            part[i] = &key[i];
        }
    return rc ? rc : eval_slice(ev, &of, part[0], part[1], part[2], out);
}

/* ---- calls ---- */

/* *list: what it holds goes to the positional arguments. */
static int spread_list(struct eval *ev, const struct value *v, struct list *pos)
{
    struct list *items;
    int rc = value_items(ev, v, &items);
    for (size_t i = 0; rc == 0 && i < items->n; i++)
        rc = list_push(ev, pos, &items->items[i]);
    return rc;
}

/* **dict: its keys are names. */
static int spread_dict(struct eval *ev, const struct value *v, struct dict *named)
{
    if (v->type != VALUE_DICT)
        return eval_fail(ev, ERR_FORMAT, "the value after ** must be a mapping, not %s",
                         value_type_name(v));
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < v->dict->n; i++) {
        const struct value *key = &v->dict->keys[i], *found;
        if (key->type != VALUE_STRING)
            return eval_fail(ev, ERR_FORMAT, "the names after ** must be strings");
        rc = dict_get(ev, named, key, &found);
        if (rc == 0 && found)
            return eval_fail(ev, ERR_FORMAT, "argument \"%.*s\" is given twice",
                             str_shown(key->s, 60), key->s.p);
        if (rc == 0)
            rc = dict_append(ev, named, key, &v->dict->values[i]);
    }
    return rc;
}

static int args_with_spread(struct eval *ev, struct scope *sc, const struct node *n, struct args *a)
{
    struct list *pos = list_new(ev, LIST_LIST);
    struct dict *named = dict_new(ev);
    int rc = pos && named ? 0 : eval_nomem(ev);
    struct value v;
    for (const struct node *arg = n->list; arg && rc == 0; arg = arg->next) {
        rc = eval_expr(ev, sc, arg->kind == NODE_SPREAD ? arg->a : arg, &v);
        if (rc == 0)
            rc = arg->kind == NODE_SPREAD ? spread_list(ev, &v, pos) : list_push(ev, pos, &v);
    }
    for (const struct node *arg = n->kwargs; arg && rc == 0; arg = arg->next) {
        struct value key = value_str(arg->name);
        rc = eval_expr(ev, sc, arg->a, &v);
        if (rc == 0)
            rc = arg->kind == NODE_SPREAD ? spread_dict(ev, &v, named)
                                          : dict_set(ev, named, &key, &v);
    }
    struct kwarg *kw = rc == 0 ? eval_alloc(ev, (named->n + 1) * sizeof *kw) : NULL;
    if (!kw)
        return rc ? rc : eval_nomem(ev);
    for (size_t i = 0; i < named->n; i++)
        kw[i] = (struct kwarg){named->keys[i].s, named->values[i]};
    *a = (struct args){.pos = pos->items, .n_pos = pos->n, .kw = kw, .n_kw = named->n};
    return 0;
}

static int eval_args(struct eval *ev, struct scope *sc, const struct node *n, struct args *a)
{
    size_t n_pos = 0, n_kw = 0;
    bool spread = false;
    for (const struct node *arg = n->list; arg; arg = arg->next, n_pos++)
        spread = spread || arg->kind == NODE_SPREAD;
    for (const struct node *arg = n->kwargs; arg; arg = arg->next, n_kw++)
        spread = spread || arg->kind == NODE_SPREAD;
    if (spread)
        return args_with_spread(ev, sc, n, a);
    *a = (struct args){0};
    struct value *pos = n_pos ? eval_alloc(ev, n_pos * sizeof *pos) : NULL;
    struct kwarg *kw = n_kw ? eval_alloc(ev, n_kw * sizeof *kw) : NULL;
    if ((n_pos && !pos) || (n_kw && !kw))
        return eval_nomem(ev);
    int rc = 0;
    for (const struct node *arg = n->list; arg && rc == 0; arg = arg->next)
        rc = eval_expr(ev, sc, arg, &pos[a->n_pos++]);
    for (const struct node *arg = n->kwargs; arg && rc == 0; arg = arg->next) {
        kw[a->n_kw].name = arg->name;
        rc = eval_expr(ev, sc, arg->a, &kw[a->n_kw++].value);
    }
    a->pos = pos;
    a->kw = kw;
    return rc;
}

int eval_call(struct eval *ev, const struct value *callee, struct args *a, struct value *out)
{
    if (callee->type == VALUE_UNDEFINED)
        return eval_undefined(ev, callee);
    if (callee->type == VALUE_LOOP)
        return eval_recursion(ev, callee->loop, a, out);
    if (callee->type != VALUE_CALLABLE)
        return eval_fail(ev, ERR_FORMAT, "a %s cannot be called", value_type_name(callee));
    const struct callable *c = callee->callable;
    if (c->builtin)
        return builtin_call(ev, c->builtin, &c->self, a, out);
    return eval_macro(ev, c, a, out);
}

/* caller: the body of a call block, one more named argument; or NULL. */
int eval_call_with(struct eval *ev, struct scope *sc, const struct node *n,
                   const struct value *caller, struct value *out)
{
    struct value callee;
    struct args a;
    int rc = eval_expr(ev, sc, n->a, &callee);
    if (rc == 0)
        rc = eval_args(ev, sc, n, &a);
    if (rc == 0 && caller) {
        struct kwarg *kw = eval_alloc(ev, (a.n_kw + 1) * sizeof *kw);
        if (!kw)
            return eval_nomem(ev);
        if (a.n_kw)
            memcpy(kw, a.kw, a.n_kw * sizeof *kw);
        kw[a.n_kw++] = (struct kwarg){STR("caller"), *caller};
        a.kw = kw;
    }
    if (rc == 0) {
        ev->line = n->line;
        rc = eval_call(ev, &callee, &a, out);
    }
    return rc;
}

static int eval_call_node(struct eval *ev, struct scope *sc, const struct node *n,
                          struct value *out)
{
    return eval_call_with(ev, sc, n, NULL, out);
}

static int eval_applied(struct eval *ev, struct scope *sc, const struct node *n, struct value *out)
{
    struct value subject;
    struct args a;
    int rc = eval_expr(ev, sc, n->a, &subject);
    if (rc)
        return rc;
    ev->line = n->line;
    if (!n->builtin)
        return eval_fail(ev, ERR_FORMAT, "no %s named \"%.*s\" here",
                         n->kind == NODE_FILTER ? "filter" : "test", str_shown(n->name, 60),
                         n->name.p);
    rc = eval_args(ev, sc, n, &a);
    return rc ? rc : builtin_call(ev, n->builtin, &subject, &a, out);
}

/* ---- the rest ---- */

static int eval_name(struct eval *ev, struct scope *sc, const struct node *n, struct value *out)
{
    const struct value *found;
    int rc = scope_get(ev, sc, n->name, &found);
    if (rc)
        return rc;
    if (found) {
        *out = *found;
        return 0;
    }
    *out = value_undefined(n->name);
    const struct builtin *b = function_find(n->name);
    return b ? eval_bind(ev, b, NULL, out) : 0;
}

static int eval_sequence(struct eval *ev, struct scope *sc, const struct node *n, struct value *out)
{
    struct list *l = list_new(ev, n->kind == NODE_TUPLE ? LIST_TUPLE : LIST_LIST);
    if (!l)
        return eval_nomem(ev);
    for (const struct node *item = n->list; item; item = item->next) {
        struct value v;
        int rc = eval_expr(ev, sc, item, &v);
        if (rc == 0)
            rc = list_push(ev, l, &v);
        if (rc)
            return rc;
    }
    *out = value_list(l);
    return 0;
}

static int eval_dict(struct eval *ev, struct scope *sc, const struct node *n, struct value *out)
{
    struct dict *d = dict_new(ev);
    if (!d)
        return eval_nomem(ev);
    for (const struct node *pair = n->list; pair; pair = pair->next) {
        struct value key, v;
        int rc = eval_expr(ev, sc, pair->a, &key);
        if (rc == 0)
            rc = eval_expr(ev, sc, pair->b, &v);
        if (rc == 0)
            rc = dict_set(ev, d, &key, &v);
        if (rc)
            return rc;
    }
    *out = (struct value){.type = VALUE_DICT, .dict = d};
    return 0;
}

static int eval_logic(struct eval *ev, struct scope *sc, const struct node *n, struct value *out)
{
    int rc = eval_expr(ev, sc, n->a, out);
    if (rc || value_truth(out) == (n->kind == NODE_OR))
        return rc;
    return eval_expr(ev, sc, n->b, out);
}

static int eval_cond(struct eval *ev, struct scope *sc, const struct node *n, struct value *out)
{
    struct value test;
    int rc = eval_expr(ev, sc, n->a, &test);
    if (rc)
        return rc;
    if (value_truth(&test))
        return eval_expr(ev, sc, n->b, out);
    if (n->c)
        return eval_expr(ev, sc, n->c, out);
    *out = value_undefined(STR("the other value of an inline if"));
    return 0;
}

static int eval_concat(struct eval *ev, struct scope *sc, const struct node *n, struct value *out)
{
    struct builder b = {.ev = ev};
    for (const struct node *part = n->list; part; part = part->next) {
        struct value v;
        struct str s;
        int rc = eval_expr(ev, sc, part, &v);
        if (rc == 0)
            rc = value_to_str(ev, &v, &s);
        if (rc)
            return rc;
        build_put(&b, s);
    }
    struct str text;
    int rc = build_done(&b, &text);
    *out = value_str(text);
    return rc;
}

static int compare_one(struct eval *ev, int op, const struct value *a, const struct value *b,
                       bool *out)
{
    int rc, order = 0;
    switch (op) {
    case OP2('=', '='):
    case OP2('!', '='):
        rc = value_equal(ev, a, b, out);
        *out = *out == (op == OP2('=', '='));
        return rc;
    case OPERAND_IN:
    case OPERAND_NOT_IN:
        rc = value_contains(ev, b, a, out);
        *out = *out == (op == OPERAND_IN);
        return rc;
    default:
        if (a->type == VALUE_UNDEFINED || b->type == VALUE_UNDEFINED)
            return eval_undefined(ev, a->type == VALUE_UNDEFINED ? a : b);
        rc = value_compare(ev, a, b, &order);
        break;
    }
    if (op == '<')
        *out = order < 0;
    else if (op == '>')
        *out = order > 0;
    else if (op == OP2('<', '='))
        *out = order <= 0;
    else
        *out = order >= 0;
    return rc;
}

/* a < b < c compares neighbours and stops at the first that fails. */
static int eval_compare(struct eval *ev, struct scope *sc, const struct node *n, struct value *out)
{
    struct value left, right;
    bool holds = true;
    int rc = eval_expr(ev, sc, n->a, &left);
    for (const struct node *o = n->list; o && rc == 0 && holds; o = o->next) {
        rc = eval_expr(ev, sc, o->a, &right);
        if (rc)
            return rc;
        ev->line = n->line;
        rc = compare_one(ev, o->op, &left, &right, &holds);
        left = right;
    }
    *out = value_bool(holds);
    return rc;
}

static int eval_binary_node(struct eval *ev, struct scope *sc, const struct node *n,
                            struct value *out)
{
    struct value a, b;
    int rc = eval_expr(ev, sc, n->a, &a);
    if (rc == 0)
        rc = eval_expr(ev, sc, n->b, &b);
    if (rc)
        return rc;
    ev->line = n->line;
    bool formats = n->op == '%' && a.type == VALUE_STRING;
    if (a.type == VALUE_UNDEFINED || (b.type == VALUE_UNDEFINED && !formats))
        return eval_undefined(ev, a.type == VALUE_UNDEFINED ? &a : &b);
    return eval_binary(ev, n->op, &a, &b, out);
}

static int eval_sign(struct eval *ev, struct scope *sc, const struct node *n, struct value *out)
{
    struct value v;
    int rc = eval_expr(ev, sc, n->a, &v);
    if (rc)
        return rc;
    if (v.type == VALUE_UNDEFINED)
        return eval_undefined(ev, &v);
    if (n->kind == NODE_NEGATIVE)
        return eval_negative(ev, &v, out);
    if (!value_is_number(&v))
        return eval_fail(ev, ERR_FORMAT, "a %s has no sign", value_type_name(&v));
    *out = v.type == VALUE_BOOL ? value_int(v.b) : v;
    return 0;
}

static int eval_attr(struct eval *ev, struct scope *sc, const struct node *n, struct value *out)
{
    struct value of;
    int rc = eval_expr(ev, sc, n->a, &of);
    if (rc)
        return rc;
    ev->line = n->line;
    return eval_get_attr(ev, &of, n->name, out);
}

static int eval_not(struct eval *ev, struct scope *sc, const struct node *n, struct value *out)
{
    struct value v;
    int rc = eval_expr(ev, sc, n->a, &v);
    if (rc == 0)
        *out = value_bool(!value_truth(&v));
    return rc;
}

/* What has operands. */
static int (*const EVAL[])(struct eval *ev, struct scope *sc, const struct node *n,
                           struct value *out) = {
    [NODE_NAME] = eval_name,      [NODE_LIST] = eval_sequence,   [NODE_TUPLE] = eval_sequence,
    [NODE_DICT] = eval_dict,      [NODE_ATTR] = eval_attr,       [NODE_ITEM] = eval_item,
    [NODE_CALL] = eval_call_node, [NODE_FILTER] = eval_applied,  [NODE_TEST] = eval_applied,
    [NODE_NEGATIVE] = eval_sign,  [NODE_POSITIVE] = eval_sign,   [NODE_NOT] = eval_not,
    [NODE_AND] = eval_logic,      [NODE_OR] = eval_logic,        [NODE_BINARY] = eval_binary_node,
    [NODE_CONCAT] = eval_concat,  [NODE_COMPARE] = eval_compare, [NODE_COND] = eval_cond,
};

static int eval_kind(struct eval *ev, struct scope *sc, const struct node *n, struct value *out)
{
    switch (n->kind) {
    case NODE_STRING:
        *out = value_str(n->name);
        return 0;
    case NODE_INT:
        *out = value_int(n->i);
        return 0;
    case NODE_FLOAT:
        *out = (struct value){.type = VALUE_FLOAT, .f = n->f};
        return 0;
    case NODE_TRUE:
    case NODE_FALSE:
        *out = value_bool(n->kind == NODE_TRUE);
        return 0;
    case NODE_NONE:
        *out = value_none();
        return 0;
    case NODE_CAPTURED:
        *out = ev->captured;
        return 0;
    default:
        if ((size_t)n->kind >= sizeof EVAL / sizeof EVAL[0] || !EVAL[n->kind])
            return eval_fail(ev, ERR_FORMAT, "not an expression");
        return EVAL[n->kind](ev, sc, n, out);
    }
}

int eval_expr(struct eval *ev, struct scope *sc, const struct node *n, struct value *out)
{
    int rc = eval_enter(ev);
    if (rc)
        return rc;
    rc = eval_steps(ev, 1);
    if (rc == 0)
        rc = eval_kind(ev, sc, n, out);
    eval_leave(ev);
    return rc;
}
