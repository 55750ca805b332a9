/* template_filter_list.c - filters that walk what can be iterated. */
#include "text/template_filter.h"

#include <stdlib.h>

int filter_path(struct eval *ev, const struct value *v, const struct value *path,
                const struct value *absent, struct value *out)
{
    *out = *v;
    struct str rest = path->type == VALUE_STRING ? path->s : STR("");
    for (;;) {
        const char *dot = memchr(rest.p, '.', rest.n);
        struct str part = {rest.p, dot ? (size_t)(dot - rest.p) : rest.n};
        struct value of = *out, key = value_str(part);
        bool is_index = part.n > 0 && part.n < 10;
        for (size_t i = 0; i < part.n; i++)
            is_index = is_index && part.p[i] >= '0' && part.p[i] <= '9';
        if (is_index)
            key = value_int(strtol(part.p, NULL, 10));
        int rc = eval_get_item(ev, &of, path->type == VALUE_STRING ? &key : path, out);
        if (rc == 0 && out->type == VALUE_UNDEFINED && absent && absent->type != VALUE_NONE)
            *out = *absent;
        if (rc || !dot)
            return rc;
        rest = (struct str){dot + 1, rest.n - part.n - 1};
    }
}

/* map and select take anything that is false (none, 0) for an empty list. */
static int lenient_items(struct eval *ev, const struct value *v, struct list **out)
{
    if (value_truth(v))
        return value_items(ev, v, out);
    *out = list_new(ev, LIST_LIST);
    return *out ? 0 : eval_nomem(ev);
}

static const struct value *kwarg_find(const struct args *a, const char *name)
{
    for (size_t i = 0; i < a->n_kw; i++)
        if (str_is(a->kw[i].name, name))
            return &a->kw[i].value;
    return NULL;
}

FILTER(f_list)
{
    struct list *items, *made = list_new(ev, LIST_LIST);
    int rc = made ? value_items(ev, v, &items) : eval_nomem(ev);
    for (size_t i = 0; rc == 0 && i < items->n; i++)
        rc = list_push(ev, made, &items->items[i]);
    *out = value_list(made);
    return rc ? rc : eval_steps(ev, items->n);
}

FILTER(f_first)
{
    struct list *items, *gen = v->type == VALUE_LIST ? v->list : NULL;
    size_t taken = gen ? gen->taken : 0;
    int rc = value_items(ev, v, &items);
    if (rc == 0)
        *out = items->n ? items->items[0] : value_undefined(STR("first item of nothing"));
    if (rc == 0 && gen && gen->kind == LIST_GENERATOR && items->n)
        gen->taken = taken + 1; /* the others are still there */
    return rc;
}

FILTER(f_last)
{
    struct list *items;
    if (v->type == VALUE_LIST && v->list->kind == LIST_GENERATOR)
        return eval_fail(ev, ERR_FORMAT, "last of a generator");
    int rc = value_items(ev, v, &items);
    if (rc == 0)
        *out = items->n ? items->items[items->n - 1] : value_undefined(STR("last item of nothing"));
    return rc;
}

FILTER(f_reverse)
{
    if (v->type == VALUE_STRING) {
        out->type = VALUE_STRING;
        return str_reverse(ev, v->s, &out->s);
    }
    struct list *items, *made = list_new(ev, LIST_GENERATOR);
    int rc = made ? value_items(ev, v, &items) : eval_nomem(ev);
    if (rc == 0)
        rc = eval_steps(ev, items->n);
    for (size_t i = 0; rc == 0 && i < items->n; i++)
        rc = list_push(ev, made, &items->items[items->n - 1 - i]);
    *out = value_list(made);
    return rc;
}

FILTER(f_join)
{
    struct list *items;
    struct str sep = STR("");
    int rc = value_items(ev, v, &items);
    if (rc == 0 && a->bound[0])
        rc = value_to_str(ev, a->bound[0], &sep);
    struct builder b = {.ev = ev};
    for (size_t i = 0; rc == 0 && i < items->n; i++) {
        struct value item = items->items[i];
        struct str text;
        if (a->bound[1] && a->bound[1]->type != VALUE_NONE)
            rc = filter_path(ev, &items->items[i], a->bound[1], NULL, &item);
        if (rc == 0)
            rc = value_to_str(ev, &item, &text);
        if (rc)
            return rc;
        if (i)
            build_put(&b, sep);
        build_put(&b, text);
        rc = b.rc ? b.rc : eval_steps(ev, 1);
    }
    out->type = VALUE_STRING;
    return rc ? rc : build_done(&b, &out->s);
}

/* map('filter', …) or map(attribute='a.b', default=…). */
static int map_one(struct eval *ev, const struct value *item, const struct args *a,
                   const struct builtin *filter, const struct value *path, struct value *out)
{
    if (path)
        return filter_path(ev, item, path, kwarg_find(a, "default"), out);
    struct args rest = {.pos = a->pos + 1, .n_pos = a->n_pos - 1, .kw = a->kw, .n_kw = a->n_kw};
    return builtin_call(ev, filter, item, &rest, out);
}

FILTER(f_map)
{
    const struct value *path = a->n_pos ? NULL : kwarg_find(a, "attribute");
    const struct builtin *filter = NULL;
    if (a->n_pos && a->pos[0].type == VALUE_STRING)
        filter = filter_find(a->pos[0].s);
    size_t known = path ? 1 + (kwarg_find(a, "default") != NULL) : a->n_kw;
    if ((!path && !filter) || known != a->n_kw)
        return eval_fail(ev, ERR_FORMAT, "map needs the name of a filter or attribute=");
    int rc = eval_enter(ev); /* map('map', …) nests */
    if (rc)
        return rc;
    struct list *items, *made = list_new(ev, LIST_GENERATOR);
    rc = made ? lenient_items(ev, v, &items) : eval_nomem(ev);
    for (size_t i = 0; rc == 0 && i < items->n; i++) {
        struct value mapped;
        rc = map_one(ev, &items->items[i], a, filter, path, &mapped);
        if (rc == 0)
            rc = list_push(ev, made, &mapped);
        if (rc == 0)
            rc = eval_steps(ev, 1);
    }
    eval_leave(ev);
    *out = value_list(made);
    return rc;
}

/* select, reject, selectattr, rejectattr: keep the items whose test comes out as `keep`. */
static int choose(struct eval *ev, const struct value *v, const struct args *a, bool by_attr,
                  bool keep, struct value *out)
{
    size_t skip = by_attr ? 1 : 0;
    const struct builtin *test = NULL;
    if (a->n_pos < skip)
        return eval_fail(ev, ERR_FORMAT, "the name of an attribute is missing");
    if (a->n_pos > skip) {
        if (a->pos[skip].type == VALUE_STRING)
            test = test_find(a->pos[skip].s);
        if (!test)
            return eval_fail(ev, ERR_FORMAT, "no such test here");
    }
    struct list *items, *made = list_new(ev, LIST_GENERATOR);
    int rc = made ? lenient_items(ev, v, &items) : eval_nomem(ev);
    for (size_t i = 0; rc == 0 && i < items->n; i++) {
        struct value subject = items->items[i], pass;
        if (by_attr)
            rc = filter_path(ev, &items->items[i], &a->pos[0], NULL, &subject);
        pass = value_bool(value_truth(&subject));
        struct args rest = {.kw = a->kw, .n_kw = a->n_kw};
        if (test) {
            rest.pos = a->pos + skip + 1;
            rest.n_pos = a->n_pos - skip - 1;
        }
        if (rc == 0 && test)
            rc = builtin_call(ev, test, &subject, &rest, &pass);
        if (rc == 0 && value_truth(&pass) == keep)
            rc = list_push(ev, made, &items->items[i]);
        if (rc == 0)
            rc = eval_steps(ev, 1);
    }
    *out = value_list(made);
    return rc;
}

FILTER(f_select)
{
    return choose(ev, v, a, false, true, out);
}

FILTER(f_reject)
{
    return choose(ev, v, a, false, false, out);
}

FILTER(f_selectattr)
{
    return choose(ev, v, a, true, true, out);
}

FILTER(f_rejectattr)
{
    return choose(ev, v, a, true, false, out);
}

/* ---- order ---- */

struct sort_key {
    struct value item, key;
};

int filter_key(struct eval *ev, const struct value *item, const struct value *path,
               const struct value *absent, bool with_case, struct value *key)
{
    *key = *item;
    int rc = path && path->type != VALUE_NONE ? filter_path(ev, item, path, absent, key) : 0;
    if (rc == 0 && key->type == VALUE_STRING && !with_case)
        rc = str_case(ev, key->s, CASE_LOWER, &key->s);
    return rc;
}

/* Merge sort: stable, as Python's. */
static int sort_range(struct eval *ev, struct sort_key *k, struct sort_key *tmp, size_t n,
                      bool down)
{
    if (n < 2)
        return 0;
    size_t half = n / 2;
    int rc = sort_range(ev, k, tmp, half, down);
    if (rc == 0)
        rc = sort_range(ev, k + half, tmp, n - half, down);
    size_t i = 0, j = half;
    for (size_t at = 0; rc == 0 && at < n; at++) {
        int order = -1;
        if (i == half)
            order = 1;
        else if (j < n) {
            rc = value_compare(ev, &k[j].key, &k[i].key, &order);
            order = (down ? order > 0 : order < 0) ? 1 : -1;
        }
        tmp[at] = order > 0 ? k[j++] : k[i++];
        if (rc == 0)
            rc = eval_steps(ev, 1);
    }
    if (rc == 0)
        memcpy(k, tmp, n * sizeof *k);
    return rc;
}

/* The sort filter's keys are lists, one item for each of attribute="a,b": equal ones are never
 * ordered, whatever they are. */
static int multi_key(struct eval *ev, const struct value *item, const struct value *path,
                     bool with_case, struct value *key)
{
    struct list *keys = list_new(ev, LIST_LIST), *paths = NULL;
    int rc = keys ? 0 : eval_nomem(ev);
    if (rc == 0 && path && path->type == VALUE_STRING)
        rc = str_split(ev, path->s, &STR(","), -1, false, &paths);
    for (size_t i = 0; rc == 0 && i < (paths ? paths->n : 1); i++) {
        struct value one;
        rc = filter_key(ev, item, paths ? &paths->items[i] : path, NULL, with_case, &one);
        if (rc == 0)
            rc = list_push(ev, keys, &one);
    }
    *key = value_list(keys);
    return rc;
}

int filter_sorted(struct eval *ev, struct list *items, const struct value *path,
                  const struct value *absent, bool with_case, bool down, struct list **out)
{
    struct sort_key *keys = eval_alloc(ev, items->n * sizeof *keys);
    struct sort_key *tmp = keys ? eval_alloc(ev, items->n * sizeof *tmp) : NULL;
    *out = list_new(ev, LIST_LIST);
    if (!tmp || !*out)
        return eval_nomem(ev);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < items->n; i++) {
        keys[i].item = items->items[i];
        rc = absent ? filter_key(ev, &items->items[i], path, absent, with_case, &keys[i].key)
                    : multi_key(ev, &items->items[i], path, with_case, &keys[i].key);
    }
    if (rc == 0)
        rc = sort_range(ev, keys, tmp, items->n, down);
    for (size_t i = 0; rc == 0 && i < items->n; i++)
        rc = list_push(ev, *out, &keys[i].item);
    return rc;
}

static const struct value NO_DEFAULT = {.type = VALUE_NONE};

static bool is_yes(const struct value *v)
{
    return v && value_truth(v);
}

FILTER(f_sort)
{
    struct list *items, *made = NULL;
    int rc = value_items(ev, v, &items);
    if (rc == 0)
        rc = filter_sorted(ev, items, a->bound[2], NULL, is_yes(a->bound[1]), is_yes(a->bound[0]),
                           &made);
    *out = value_list(made);
    return rc;
}

FILTER(f_dictsort)
{
    struct list *made = NULL;
    struct value pairs, by = value_int(0);
    struct str name;
    if (v->type != VALUE_DICT)
        return eval_fail(ev, ERR_FORMAT, "dictsort of a %s", value_type_name(v));
    struct args no_args = {0};
    int rc = builtin_call(ev, method_find(VALUE_DICT, STR("items")), v, &no_args, &pairs);
    if (rc == 0)
        rc = builtin_arg_str(ev, a->bound[1], STR("key"), &name);
    if (rc)
        return rc;
    if (!str_is(name, "key") && !str_is(name, "value"))
        return eval_fail(ev, ERR_FORMAT, "dictsort: by must be \"key\" or \"value\"");
    by = value_int(str_is(name, "value"));
    rc = filter_sorted(ev, pairs.list, &by, &NO_DEFAULT, is_yes(a->bound[0]), is_yes(a->bound[2]),
                       &made);
    *out = value_list(made);
    return rc;
}

static int extreme(struct eval *ev, const struct value *v, const struct args *a, bool largest,
                   struct value *out)
{
    struct list *items;
    struct value best, key;
    int rc = value_items(ev, v, &items);
    *out = value_undefined(STR("extreme of nothing"));
    for (size_t i = 0; rc == 0 && i < items->n; i++) {
        int order = 1;
        rc = filter_key(ev, &items->items[i], a->bound[1], NULL, is_yes(a->bound[0]), &key);
        if (rc == 0 && i)
            rc = value_compare(ev, &key, &best, &order);
        if (i && !(largest ? order > 0 : order < 0))
            continue;
        best = key;
        *out = items->items[i];
    }
    return rc;
}

FILTER(f_min)
{
    return extreme(ev, v, a, false, out);
}

FILTER(f_max)
{
    return extreme(ev, v, a, true, out);
}

FILTER(f_sum)
{
    struct list *items;
    int rc = value_items(ev, v, &items);
    struct value total = a->bound[1] ? *a->bound[1] : value_int(0);
    bool by_attr = a->bound[0] && a->bound[0]->type != VALUE_NONE;
    if (rc == 0 && total.type == VALUE_STRING)
        rc = eval_fail(ev, ERR_FORMAT, "sum cannot add texts");
    for (size_t i = 0; rc == 0 && i < items->n; i++) {
        struct value item = items->items[i], next;
        if (by_attr)
            rc = filter_path(ev, &items->items[i], a->bound[0], NULL, &item);
        if (rc == 0 && item.type == VALUE_UNDEFINED)
            rc = eval_undefined(ev, &item);
        if (rc == 0)
            rc = eval_binary(ev, '+', &total, &item, &next);
        if (rc == 0)
            total = next;
    }
    *out = total;
    return rc;
}

FILTER(f_unique)
{
    struct list *items, *seen = list_new(ev, LIST_LIST), *made = list_new(ev, LIST_GENERATOR);
    int rc = seen && made ? value_items(ev, v, &items) : eval_nomem(ev);
    for (size_t i = 0; rc == 0 && i < items->n; i++) {
        struct value key, all = value_list(seen);
        bool known = false;
        rc = filter_key(ev, &items->items[i], a->bound[1], NULL, is_yes(a->bound[0]), &key);
        if (rc == 0)
            rc = value_check_key(ev, &key);
        if (rc == 0)
            rc = value_contains(ev, &all, &key, &known);
        if (rc == 0 && !known)
            rc = list_push(ev, seen, &key);
        if (rc == 0 && !known)
            rc = list_push(ev, made, &items->items[i]);
    }
    *out = value_list(made);
    return rc;
}

const struct builtin *filter_find_list(struct str name)
{
    static const struct builtin TABLE[] = {
        {"dictsort", f_dictsort, "?case_sensitive,by,reverse"},
        {"first", f_first, ""},
        {"join", f_join, "?d,attribute"},
        {"last", f_last, ""},
        {"list", f_list, ""},
        {"map", f_map, "*"},
        {"max", f_max, "?case_sensitive,attribute"},
        {"min", f_min, "?case_sensitive,attribute"},
        {"reject", f_reject, "*"},
        {"rejectattr", f_rejectattr, "*"},
        {"reverse", f_reverse, ""},
        {"select", f_select, "*"},
        {"selectattr", f_selectattr, "*"},
        {"sort", f_sort, "?reverse,case_sensitive,attribute"},
        {"sum", f_sum, "?attribute,start"},
        {"unique", f_unique, "?case_sensitive,attribute"},
    };
    return builtin_find(TABLE, BUILTIN_COUNT(TABLE), name);
}
