/* template_access.c - attributes, subscripts and slices: Jinja's lookup order (an attribute before a
 * key after a dot, the other way round in brackets) with Python's indices. */
#include "text/template_internal.h"

#include "text/utf8.h"

int eval_bind(struct eval *ev, const struct builtin *b, const struct value *self, struct value *out)
{
    struct callable *c = eval_alloc(ev, sizeof *c);
    if (!c)
        return eval_nomem(ev);
    c->builtin = b;
    if (self)
        c->self = *self;
    *out = (struct value){.type = VALUE_CALLABLE, .callable = c};
    return 0;
}

static int get_method(struct eval *ev, const struct value *v, struct str name, struct value *out)
{
    const struct builtin *b = method_find(v->type, name);
    *out = value_undefined(name);
    if (v->type == VALUE_LIST &&
        (v->list->kind > LIST_RANGE || (v->list->kind != LIST_LIST && str_is(name, "copy"))))
        b = NULL;
    return b ? eval_bind(ev, b, v, out) : 0;
}

/* Attributes that are no methods; false: there is none. */
static bool plain_attr(const struct value *v, struct str name, struct value *out)
{
    bool real = str_is(name, "real") || str_is(name, "numerator");
    switch (v->type) {
    case VALUE_BOOL:
    case VALUE_INT:
        if (!real && !str_is(name, "imag") && !str_is(name, "denominator"))
            return false;
        *out = value_int(real ? value_as_int(v) : str_is(name, "denominator"));
        return true;
    case VALUE_FLOAT:
        if (!str_is(name, "real") && !str_is(name, "imag"))
            return false;
        *out = (struct value){.type = VALUE_FLOAT, .f = str_is(name, "real") ? v->f : 0};
        return true;
    case VALUE_LIST:
        if (v->list->group && (str_is(name, "grouper") || str_is(name, "list")))
            *out = v->list->items[str_is(name, "list")];
        else if (v->list->kind == LIST_RANGE && str_is(name, "start"))
            *out = value_int(v->list->first);
        else if (v->list->kind == LIST_RANGE && str_is(name, "stop"))
            *out = value_int(v->list->stop);
        else if (v->list->kind == LIST_RANGE && str_is(name, "step"))
            *out = value_int(v->list->step);
        else
            return false;
        return true;
    case VALUE_CALLABLE:
        if (v->callable->builtin || !str_is(name, "name"))
            return false;
        *out = value_str(v->callable->macro->name);
        return true;
    default:
        return false;
    }
}

static int loop_attr(struct eval *ev, const struct value *v, struct str name, struct value *out)
{
    const struct loop *loop = v->loop;
    size_t n = loop->items->n, at = loop->at;
    *out = value_undefined(name);
    if (str_is(name, "index"))
        *out = value_int((int64_t)at + 1);
    else if (str_is(name, "index0"))
        *out = value_int((int64_t)at);
    else if (str_is(name, "revindex"))
        *out = value_int((int64_t)(n - at));
    else if (str_is(name, "revindex0"))
        *out = value_int((int64_t)(n - at) - 1);
    else if (str_is(name, "first"))
        *out = value_bool(at == 0);
    else if (str_is(name, "last"))
        *out = value_bool(at + 1 == n);
    else if (str_is(name, "length"))
        *out = value_int((int64_t)n);
    else if (str_is(name, "depth"))
        *out = value_int(loop->depth);
    else if (str_is(name, "depth0"))
        *out = value_int(loop->depth - 1);
    else if (str_is(name, "previtem") && at > 0)
        *out = loop->items->items[at - 1];
    else if (str_is(name, "nextitem") && at + 1 < n)
        *out = loop->items->items[at + 1];
    else
        return get_method(ev, v, name, out);
    return 0;
}

int eval_undefined(struct eval *ev, const struct value *v)
{
    return eval_fail(ev, ERR_FORMAT, "\"%.*s\" is undefined", str_shown(v->s, 60), v->s.p);
}

static int dict_attr(struct eval *ev, const struct value *v, struct str name, struct value *out)
{
    struct value key = value_str(name);
    const struct value *found;
    *out = value_undefined(name);
    int rc = dict_get(ev, v->dict, &key, &found);
    if (rc == 0 && found)
        *out = *found;
    return rc;
}

int eval_get_attr(struct eval *ev, const struct value *v, struct str name, struct value *out)
{
    *out = value_undefined(name);
    bool dunder = name.n > 4 && memcmp(name.p, "__", 2) == 0;
    if (v->type == VALUE_UNDEFINED)
        return dunder ? 0 : eval_undefined(ev, v);
    if (v->type != VALUE_DICT && name.n && name.p[0] == '_') /* the sandbox hides these */
        return 0;
    if (v->type == VALUE_LOOP)
        return loop_attr(ev, v, name, out);
    if (v->type == VALUE_NAMESPACE)
        return dict_attr(ev, v, name, out);
    if (plain_attr(v, name, out) || method_is_refused(v->type, name))
        return 0;
    int rc = get_method(ev, v, name, out);
    if (rc == 0 && v->type == VALUE_DICT && out->type == VALUE_UNDEFINED)
        rc = dict_attr(ev, v, name, out);
    return rc;
}

/* Bytes [from, to) of the character with this index. */
static bool string_index(struct str s, int64_t index, struct str *out)
{
    int64_t n = (int64_t)utf8_length(s.p, s.n);
    index += index < 0 ? n : 0;
    if (index < 0 || index >= n)
        return false;
    size_t at = 0;
    uint32_t cp;
    for (; index > 0; index--)
        at += utf8_next(s.p + at, &cp);
    *out = (struct str){s.p + at, utf8_next(s.p + at, &cp)};
    return true;
}

int eval_get_item(struct eval *ev, const struct value *v, const struct value *key,
                  struct value *out)
{
    const struct value *found = NULL;
    int rc = 0;
    if (v->type == VALUE_UNDEFINED)
        return eval_undefined(ev, v);
    *out = value_undefined(key->type == VALUE_STRING ? key->s : STR("item"));
    if (v->type == VALUE_DICT) {
        rc = dict_get(ev, v->dict, key, &found);
        if (found)
            *out = *found;
    } else if (v->type == VALUE_LIST && value_is_integer(key) && v->list->kind <= LIST_RANGE) {
        int64_t i = value_as_int(key), n = (int64_t)v->list->n;
        i += i < 0 ? n : 0;
        if (i >= 0 && i < n)
            *out = v->list->items[i];
        return 0;
    } else if (v->type == VALUE_STRING && value_is_integer(key)) {
        struct str one;
        if (string_index(v->s, value_as_int(key), &one))
            *out = value_str(one);
        return eval_bytes(ev, v->s.n);
    }
    if (rc == 0 && !found && key->type == VALUE_STRING) {
        bool hidden = key->s.n && key->s.p[0] == '_';
        rc = hidden && v->type == VALUE_DICT ? 0 : eval_get_attr(ev, v, key->s, out);
    }
    return rc;
}

/* Python's slice.indices(): start, stop and step made to fit a length of n. */
static int slice_bounds(struct eval *ev, const struct value *part[3], int64_t n, int64_t *start,
                        int64_t *stop, int64_t *step)
{
    int64_t v[3] = {0, 0, 1};
    bool given[3];
    for (int i = 0; i < 3; i++) {
        given[i] = part[i] && part[i]->type != VALUE_NONE;
        if (given[i] && !value_is_integer(part[i]))
            return eval_fail(ev, ERR_FORMAT, "a slice needs integers, not %s",
                             value_type_name(part[i]));
        if (given[i])
            v[i] = value_as_int(part[i]);
    }
    if (v[2] == 0)
        return eval_fail(ev, ERR_FORMAT, "the step of a slice is 0");
    bool down = v[2] < 0;
    int64_t low = down ? -1 : 0, high = down ? n - 1 : n;
    for (int i = 0; i < 2; i++) {
        if (!given[i])
            v[i] = (i == 0) != down ? low : high;
        else if (v[i] < 0)
            v[i] = v[i] + n < low ? low : v[i] + n;
        else if (v[i] > high)
            v[i] = high;
    }
    *start = v[0];
    *stop = v[1];
    *step = v[2] < -n - 1 ? -n - 1 : v[2] > n + 1 ? n + 1 : v[2];
    return 0;
}

/* Only shown: a wrap does no harm. */
static int64_t scaled(int64_t from, int64_t n, int64_t step)
{
    return (int64_t)((uint64_t)from + (uint64_t)n * (uint64_t)step);
}

static int slice_list(struct eval *ev, const struct list *l, const struct value *part[3],
                      struct value *out)
{
    int64_t start, stop, step;
    int rc = slice_bounds(ev, part, (int64_t)l->n, &start, &stop, &step);
    struct list *made = list_new(ev, l->kind);
    if (rc == 0 && !made)
        rc = eval_nomem(ev);
    if (rc == 0 && l->kind == LIST_RANGE) {
        made->first = scaled(l->first, start, l->step);
        made->stop = scaled(l->first, stop, l->step);
        made->step =
            scaled(0, l->step, part[2] && part[2]->type != VALUE_NONE ? value_as_int(part[2]) : 1);
    }
    for (int64_t i = start; rc == 0 && (step > 0 ? i < stop : i > stop); i += step) {
        rc = list_push(ev, made, &l->items[i]);
        if (rc == 0)
            rc = eval_steps(ev, 1);
    }
    *out = value_list(made);
    return rc;
}

static int slice_string(struct eval *ev, struct str s, const struct value *part[3],
                        struct value *out)
{
    int64_t start, stop, step, n = (int64_t)utf8_length(s.p, s.n);
    int rc = slice_bounds(ev, part, n, &start, &stop, &step);
    if (rc == 0)
        rc = eval_bytes(ev, s.n);
    if (rc)
        return rc;
    uint32_t cp;
    if (step == 1) { /* the usual case shares the bytes */
        size_t from = 0, to;
        for (int64_t i = 0; i < start; i++)
            from += utf8_next(s.p + from, &cp);
        to = from;
        for (int64_t i = start; i < stop; i++)
            to += utf8_next(s.p + to, &cp);
        *out = value_str((struct str){s.p + from, to - from});
        return 0;
    }
    struct value chars = value_str(s), picked;
    struct list *all;
    rc = value_items(ev, &chars, &all);
    if (rc == 0)
        rc = slice_list(ev, all, part, &picked);
    struct builder b = {.ev = ev};
    for (size_t i = 0; rc == 0 && i < picked.list->n; i++)
        build_put(&b, picked.list->items[i].s);
    struct str text = {"", 0};
    if (rc == 0)
        rc = build_done(&b, &text);
    *out = value_str(text);
    return rc;
}

int eval_slice(struct eval *ev, const struct value *v, const struct value *from,
               const struct value *to, const struct value *step, struct value *out)
{
    const struct value *part[3] = {from, to, step};
    if (v->type == VALUE_UNDEFINED)
        return eval_undefined(ev, v);
    if (v->type == VALUE_STRING)
        return slice_string(ev, v->s, part, out);
    if (v->type == VALUE_LIST && v->list->kind <= LIST_RANGE)
        return slice_list(ev, v->list, part, out);
    return eval_fail(ev, ERR_FORMAT, "a %s cannot be sliced", value_type_name(v));
}
