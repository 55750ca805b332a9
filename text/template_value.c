/* template_value.c - values of a template: Python's rules for truth, equality, order, membership
 * and iteration. */
#include "text/template_internal.h"

#include "text/utf8.h"

const char *value_type_name(const struct value *v)
{
    static const char *const LISTS[] = {"list", "tuple", "range", "dict view", "generator"};
    switch (v->type) {
    case VALUE_UNDEFINED:
        return "undefined";
    case VALUE_NONE:
        return "none";
    case VALUE_BOOL:
        return "bool";
    case VALUE_INT:
        return "int";
    case VALUE_FLOAT:
        return "float";
    case VALUE_STRING:
        return "str";
    case VALUE_LIST:
        return LISTS[v->list->kind];
    case VALUE_DICT:
        return "dict";
    case VALUE_NAMESPACE:
        return "namespace";
    case VALUE_LOOP:
        return "loop";
    case VALUE_CALLABLE:
        return "function";
    }
    return "value";
}

bool value_truth(const struct value *v)
{
    switch (v->type) {
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return false;
    case VALUE_BOOL:
        return v->b;
    case VALUE_INT:
        return v->i != 0;
    case VALUE_FLOAT:
        return v->f != 0;
    case VALUE_STRING:
        return v->s.n != 0;
    case VALUE_LIST:
        return v->list->n != 0 || v->list->kind == LIST_GENERATOR;
    case VALUE_DICT:
        return v->dict->n != 0;
    default:
        return true;
    }
}

/* ---- lists and dicts ---- */

struct list *list_new(struct eval *ev, enum list_kind kind)
{
    struct list *l = eval_alloc(ev, sizeof *l);
    if (l)
        l->kind = kind;
    return l;
}

int list_push(struct eval *ev, struct list *l, const struct value *v)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 4;
        struct value *items =
            arena_grow(&ev->arena, l->items, l->cap * sizeof *items, cap * sizeof *items);
        if (!items)
            return eval_nomem(ev);
        l->items = items;
        l->cap = cap;
    }
    l->items[l->n++] = *v;
    return 0;
}

struct dict *dict_new(struct eval *ev)
{
    return eval_alloc(ev, sizeof(struct dict));
}

static int dict_find(struct eval *ev, const struct dict *d, const struct value *key, size_t *at)
{
    for (*at = 0; *at < d->n; ++*at) {
        bool same;
        int rc = value_equal(ev, &d->keys[*at], key, &same);
        if (rc || same)
            return rc;
    }
    return 0;
}

int value_check_key(struct eval *ev, const struct value *v)
{
    bool is_list = v->type == VALUE_LIST;
    int rc = eval_steps(ev, 1);
    if (rc)
        return rc;
    if (is_list && v->list->kind == LIST_TUPLE) {
        rc = eval_enter(ev);
        if (rc)
            return rc;
        for (size_t i = 0; rc == 0 && i < v->list->n; i++)
            rc = value_check_key(ev, &v->list->items[i]);
        eval_leave(ev);
        return rc;
    }
    if (v->type == VALUE_DICT ||
        (is_list && v->list->kind != LIST_RANGE && v->list->kind != LIST_GENERATOR))
        return eval_fail(ev, ERR_FORMAT, "a %s cannot be a key", value_type_name(v));
    return 0;
}

int dict_get(struct eval *ev, const struct dict *d, const struct value *key,
             const struct value **out)
{
    size_t at;
    *out = NULL;
    int rc = dict_find(ev, d, key, &at);
    if (rc == 0 && at < d->n)
        *out = &d->values[at];
    return rc;
}

int dict_append(struct eval *ev, struct dict *d, const struct value *key, const struct value *v)
{
    if (d->n == d->cap) {
        size_t cap = d->cap ? d->cap * 2 : 4, size = sizeof(struct value);
        struct value *keys = arena_grow(&ev->arena, d->keys, d->cap * size, cap * size);
        if (!keys)
            return eval_nomem(ev);
        d->keys = keys;
        struct value *values = arena_grow(&ev->arena, d->values, d->cap * size, cap * size);
        if (!values)
            return eval_nomem(ev);
        d->values = values;
        d->cap = cap;
    }
    d->keys[d->n] = *key;
    d->values[d->n++] = *v;
    return 0;
}

int dict_set(struct eval *ev, struct dict *d, const struct value *key, const struct value *v)
{
    size_t at;
    int rc = value_check_key(ev, key);
    if (rc == 0)
        rc = dict_find(ev, d, key, &at);
    if (rc)
        return rc;
    if (at == d->n)
        return dict_append(ev, d, key, v);
    d->values[at] = *v;
    return 0;
}

/* ---- equality and order ---- */

static int lists_equal(struct eval *ev, const struct list *a, const struct list *b, bool *out)
{
    bool a_is_range = a->kind == LIST_RANGE, b_is_range = b->kind == LIST_RANGE;
    *out = (a->kind == b->kind || (a_is_range && b_is_range)) && a->n == b->n;
    if (a->kind == LIST_GENERATOR)
        *out = a == b;
    for (size_t i = 0; *out && i < a->n && a != b; i++) {
        int rc = value_equal(ev, &a->items[i], &b->items[i], out);
        if (rc)
            return rc;
    }
    return 0;
}

static int dicts_equal(struct eval *ev, const struct dict *a, const struct dict *b, bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n && a != b; i++) {
        const struct value *other;
        int rc = dict_get(ev, b, &a->keys[i], &other);
        if (rc == 0 && !other)
            *out = false;
        else if (rc == 0)
            rc = value_equal(ev, &a->values[i], other, out);
        if (rc)
            return rc;
    }
    return 0;
}

static bool strings_equal(struct str a, struct str b)
{
    return a.n == b.n && memcmp(a.p, b.p, a.n) == 0;
}

int value_equal(struct eval *ev, const struct value *a, const struct value *b, bool *out)
{
    *out = false;
    int rc = eval_steps(ev, 1);
    if (rc)
        return rc;
    if (value_is_number(a) && value_is_number(b)) {
        if (a->type == VALUE_FLOAT || b->type == VALUE_FLOAT)
            *out = value_as_float(a) == value_as_float(b);
        else
            *out = value_as_int(a) == value_as_int(b);
        return 0;
    }
    if (a->type != b->type)
        return 0;
    switch (a->type) {
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        *out = true;
        return 0;
    case VALUE_STRING:
        *out = strings_equal(a->s, b->s);
        return a->s.n == b->s.n ? eval_bytes(ev, a->s.n) : 0;
    case VALUE_LIST:
    case VALUE_DICT:
        rc = eval_enter(ev);
        if (rc)
            return rc;
        rc = a->type == VALUE_LIST ? lists_equal(ev, a->list, b->list, out)
                                   : dicts_equal(ev, a->dict, b->dict, out);
        eval_leave(ev);
        return rc;
    case VALUE_CALLABLE:
        *out = a->callable == b->callable;
        return 0;
    default:
        *out = a->dict == b->dict; /* namespaces and loops are themselves only */
        return 0;
    }
}

static int compare_strings(struct str a, struct str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int c = n ? memcmp(a.p, b.p, n) : 0; /* the order of bytes is that of code points */
    return c ? (c > 0) - (c < 0) : (a.n > b.n) - (a.n < b.n);
}

static int compare_lists(struct eval *ev, const struct list *a, const struct list *b, int *out)
{
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        bool same;
        int rc = value_equal(ev, &a->items[i], &b->items[i], &same);
        if (rc)
            return rc;
        if (!same)
            return value_compare(ev, &a->items[i], &b->items[i], out);
    }
    *out = (a->n > b->n) - (a->n < b->n);
    return 0;
}

int value_compare(struct eval *ev, const struct value *a, const struct value *b, int *out)
{
    if (value_is_number(a) && value_is_number(b)) {
        if (a->type == VALUE_FLOAT || b->type == VALUE_FLOAT) {
            double x = value_as_float(a), y = value_as_float(b);
            *out = (x > y) - (x < y);
        } else {
            int64_t x = value_as_int(a), y = value_as_int(b);
            *out = (x > y) - (x < y);
        }
        return eval_steps(ev, 1);
    }
    if (a->type == VALUE_STRING && b->type == VALUE_STRING) {
        *out = compare_strings(a->s, b->s);
        return eval_bytes(ev, a->s.n < b->s.n ? a->s.n : b->s.n);
    }
    if (a->type == VALUE_LIST && b->type == VALUE_LIST && a->list->kind == b->list->kind &&
        a->list->kind <= LIST_TUPLE) {
        int rc = eval_enter(ev);
        if (rc)
            return rc;
        rc = compare_lists(ev, a->list, b->list, out);
        eval_leave(ev);
        return rc;
    }
    return eval_fail(ev, ERR_FORMAT, "cannot order %s and %s", value_type_name(a),
                     value_type_name(b));
}

/* ---- membership, length, iteration ---- */

int value_contains(struct eval *ev, const struct value *box, const struct value *item, bool *out)
{
    *out = false;
    if (box->type == VALUE_STRING) {
        size_t at;
        if (item->type != VALUE_STRING)
            return eval_fail(ev, ERR_FORMAT, "%s in str: expected str", value_type_name(item));
        *out = str_find(box->s, item->s, 0, &at);
        return eval_bytes(ev, box->s.n);
    }
    if (box->type == VALUE_DICT) {
        const struct value *found;
        int rc = value_check_key(ev, item);
        if (rc)
            return rc;
        rc = dict_get(ev, box->dict, item, &found);
        *out = found != NULL;
        return rc;
    }
    struct list *items;
    bool keys =
        box->type == VALUE_LIST && box->list->kind == LIST_VIEW && box->list->first == VIEW_KEYS;
    int rc = keys ? value_check_key(ev, item) : 0;
    if (rc == 0)
        rc = value_items(ev, box, &items);
    for (size_t i = 0; rc == 0 && !*out && i < items->n; i++)
        rc = value_equal(ev, &items->items[i], item, out);
    return rc;
}

int value_length(struct eval *ev, const struct value *v, size_t *out)
{
    switch (v->type) {
    case VALUE_UNDEFINED:
        *out = 0;
        return 0;
    case VALUE_STRING:
        *out = utf8_length(v->s.p, v->s.n);
        return eval_bytes(ev, v->s.n);
    case VALUE_LIST:
        if (v->list->kind == LIST_GENERATOR)
            break;
        *out = v->list->n;
        return 0;
    case VALUE_DICT:
        *out = v->dict->n;
        return 0;
    default:
        break;
    }
    return eval_fail(ev, ERR_FORMAT, "a %s has no length", value_type_name(v));
}

static int string_items(struct eval *ev, struct str s, struct list *l)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s.n;) {
        uint32_t cp;
        size_t len = utf8_next(s.p + i, &cp);
        struct value one = value_str((struct str){s.p + i, len});
        rc = list_push(ev, l, &one);
        if (rc == 0)
            rc = eval_steps(ev, 1);
        i += len;
    }
    return rc;
}

int value_items(struct eval *ev, const struct value *v, struct list **out)
{
    if (v->type == VALUE_LIST && v->list->kind != LIST_GENERATOR) {
        *out = v->list;
        return 0;
    }
    struct list *l = list_new(ev, LIST_LIST);
    if (!l)
        return eval_nomem(ev);
    *out = l;
    switch (v->type) {
    case VALUE_UNDEFINED:
        return 0;
    case VALUE_LIST: /* what a generator has left */
        l->items = v->list->n ? v->list->items + v->list->taken : NULL;
        l->n = l->cap = v->list->n - v->list->taken;
        v->list->taken = v->list->n;
        return 0;
    case VALUE_STRING:
        return string_items(ev, v->s, l);
    case VALUE_DICT:
        for (size_t i = 0; i < v->dict->n; i++) {
            int rc = list_push(ev, l, &v->dict->keys[i]);
            if (rc)
                return rc;
        }
        return eval_steps(ev, v->dict->n);
    default:
        return eval_fail(ev, ERR_FORMAT, "a %s cannot be iterated", value_type_name(v));
    }
}
