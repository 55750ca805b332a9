/* template_macro.c - arguments to the parameters of a macro, as Jinja binds them: positions, then
 * names, then defaults, which may use the parameters before them. What is left over goes to varargs and
 * kwargs, if the body uses them, and is an error otherwise. */
#include "text/template_internal.h"

static const struct kwarg *named(const struct args *a, struct str name)
{
    for (size_t i = 0; i < a->n_kw; i++)
        if (a->kw[i].name.n == name.n && memcmp(a->kw[i].name.p, name.p, name.n) == 0)
            return &a->kw[i];
    return NULL;
}

/* A parameter of this name that no position has filled. */
static bool takes_name(const struct node *macro, struct str name, size_t n_pos)
{
    for (const struct node *p = macro->kwargs; p; p = p->next, n_pos -= n_pos > 0)
        if (n_pos == 0 && p->name.n == name.n && memcmp(p->name.p, name.p, name.n) == 0)
            return true;
    return false;
}

static int too_many(struct eval *ev, const struct node *macro)
{
    return eval_fail(ev, ERR_FORMAT, "macro %.*s got arguments that it does not take",
                     str_shown(macro->name, 60), macro->name.p);
}

static int bind_varargs(struct eval *ev, struct scope *sc, const struct node *macro,
                        const struct args *a, size_t n_params)
{
    size_t from = a->n_pos < n_params ? a->n_pos : n_params;
    if (!(macro->op & MACRO_VARARGS))
        return a->n_pos > from ? too_many(ev, macro) : 0;
    struct list *rest = list_new(ev, LIST_TUPLE);
    int rc = rest ? 0 : eval_nomem(ev);
    for (size_t i = from; rc == 0 && i < a->n_pos; i++)
        rc = list_push(ev, rest, &a->pos[i]);
    struct value v = value_list(rest);
    return rc ? rc : scope_set(ev, sc, STR("varargs"), &v);
}

/* `caller` is a name of its own: what a call block gives. */
static int bind_kwargs(struct eval *ev, struct scope *sc, const struct node *macro,
                       const struct args *a)
{
    struct dict *rest = dict_new(ev);
    int rc = rest ? 0 : eval_nomem(ev);
    for (size_t i = 0; rc == 0 && i < a->n_kw; i++) {
        struct value key = value_str(a->kw[i].name);
        if (takes_name(macro, a->kw[i].name, a->n_pos))
            continue;
        if (str_is(a->kw[i].name, "caller") && (macro->op & MACRO_CALLER))
            continue;
        if (!(macro->op & MACRO_KWARGS))
            return too_many(ev, macro);
        rc = dict_set(ev, rest, &key, &a->kw[i].value);
    }
    struct value v = {.type = VALUE_DICT, .dict = rest};
    return rc || !(macro->op & MACRO_KWARGS) ? rc : scope_set(ev, sc, STR("kwargs"), &v);
}

static int bind_caller(struct eval *ev, struct scope *sc, const struct node *macro,
                       const struct args *a)
{
    if (!(macro->op & MACRO_CALLER) || takes_name(macro, STR("caller"), 0))
        return 0;
    const struct kwarg *given = named(a, STR("caller"));
    struct value v = given ? given->value : value_undefined(STR("caller"));
    return scope_set(ev, sc, STR("caller"), &v);
}

int macro_bind(struct eval *ev, struct scope *sc, const struct node *macro, const struct args *a)
{
    size_t at = 0;
    int rc = 0;
    for (const struct node *param = macro->kwargs; param && rc == 0; param = param->next, at++) {
        struct value v = value_undefined(param->name);
        const struct kwarg *given = named(a, param->name);
        if (at < a->n_pos)
            v = a->pos[at];
        else if (given)
            v = given->value;
        else if (param->a)
            rc = eval_expr(ev, sc, param->a, &v);
        if (rc == 0)
            rc = scope_set(ev, sc, param->name, &v);
    }
    if (rc == 0)
        rc = bind_varargs(ev, sc, macro, a, at);
    if (rc == 0)
        rc = bind_kwargs(ev, sc, macro, a);
    return rc ? rc : bind_caller(ev, sc, macro, a);
}
