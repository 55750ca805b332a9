/* template_method.c - methods of dicts, lists and loops; those of strings are in
 * template_method_str.c. What would change a value in place is left out, as in Jinja's immutable
 * sandbox. */
#include "text/template_internal.h"

#include <math.h>

/* ---- dicts ---- */

static int m_get(struct eval *ev, const struct value *self, const struct args *a, struct value *out)
{
    const struct value *found;
    int rc = value_check_key(ev, a->bound[0]);
    if (rc)
        return rc;
    rc = dict_get(ev, self->dict, a->bound[0], &found);
    *out = found ? *found : a->bound[1] ? *a->bound[1] : value_none();
    return rc;
}

static int view(struct eval *ev, const struct dict *d, enum view_kind kind, struct value *out)
{
    struct list *l = list_new(ev, LIST_VIEW);
    int rc = l ? eval_steps(ev, d->n) : eval_nomem(ev);
    for (size_t i = 0; rc == 0 && i < d->n; i++) {
        struct value v = kind == VIEW_VALUES ? d->values[i] : d->keys[i];
        if (kind == VIEW_ITEMS) {
            struct list *pair = list_new(ev, LIST_TUPLE);
            rc = pair ? list_push(ev, pair, &d->keys[i]) : eval_nomem(ev);
            if (rc == 0)
                rc = list_push(ev, pair, &d->values[i]);
            v = value_list(pair);
        }
        if (rc == 0)
            rc = list_push(ev, l, &v);
    }
    if (rc)
        return rc;
    l->first = kind;
    *out = value_list(l);
    return 0;
}

static int m_items(struct eval *ev, const struct value *self, const struct args *a,
                   struct value *out)
{
    return view(ev, self->dict, VIEW_ITEMS, out);
}

static int m_keys(struct eval *ev, const struct value *self, const struct args *a,
                  struct value *out)
{
    return view(ev, self->dict, VIEW_KEYS, out);
}

static int m_values(struct eval *ev, const struct value *self, const struct args *a,
                    struct value *out)
{
    return view(ev, self->dict, VIEW_VALUES, out);
}

/* ---- lists and loops ---- */

static int list_search(struct eval *ev, const struct value *self, const struct args *a,
                       int64_t from, int64_t to, int64_t *first, int64_t *count)
{
    *first = -1;
    *count = 0;
    for (int64_t i = from; i < to; i++) {
        bool same;
        int rc = value_equal(ev, &self->list->items[i], a->bound[0], &same);
        if (rc)
            return rc;
        *first = same && *first < 0 ? i : *first;
        *count += same;
    }
    return 0;
}

/* start and stop of index(), counted from the end when negative */
static int list_bound(struct eval *ev, const struct value *v, int64_t absent, int64_t n,
                      int64_t *out)
{
    int rc = builtin_arg_int(ev, v, absent, out);
    if (rc)
        return rc;
    *out += *out < 0 ? n : 0;
    *out = *out < 0 ? 0 : *out > n ? n : *out;
    return 0;
}

static int m_list_count(struct eval *ev, const struct value *self, const struct args *a,
                        struct value *out)
{
    int64_t first, count;
    int rc = list_search(ev, self, a, 0, (int64_t)self->list->n, &first, &count);
    *out = value_int(count);
    return rc;
}

static int m_list_index(struct eval *ev, const struct value *self, const struct args *a,
                        struct value *out)
{
    int64_t first = -1, count, from, to, n = (int64_t)self->list->n;
    int rc = list_bound(ev, a->bound[1], 0, n, &from);
    if (rc == 0)
        rc = list_bound(ev, a->bound[2], n, n, &to);
    if (rc == 0)
        rc = list_search(ev, self, a, from, to, &first, &count);
    *out = value_int(first);
    return rc == 0 && first < 0 ? eval_fail(ev, ERR_FORMAT, "the value is not in the list") : rc;
}

static int m_cycle(struct eval *ev, const struct value *self, const struct args *a,
                   struct value *out)
{
    if (a->n_pos == 0)
        return eval_fail(ev, ERR_FORMAT, "cycle needs an argument");
    *out = a->pos[self->loop->at % a->n_pos];
    return 0;
}

static int m_changed(struct eval *ev, const struct value *self, const struct args *a,
                     struct value *out)
{
    struct list *now = list_new(ev, LIST_TUPLE);
    int rc = now ? 0 : eval_nomem(ev);
    for (size_t i = 0; rc == 0 && i < a->n_pos; i++)
        rc = list_push(ev, now, &a->pos[i]);
    if (rc)
        return rc;
    struct value v = value_list(now);
    bool same = false;
    if (self->loop->has_last_seen)
        rc = value_equal(ev, &self->loop->last_seen, &v, &same);
    self->loop->has_last_seen = true;
    self->loop->last_seen = v;
    *out = value_bool(!same);
    return rc;
}

static int m_dict_copy(struct eval *ev, const struct value *self, const struct args *a,
                       struct value *out)
{
    struct dict *d = dict_new(ev);
    int rc = d ? eval_steps(ev, self->dict->n) : eval_nomem(ev);
    for (size_t i = 0; rc == 0 && i < self->dict->n; i++)
        rc = dict_append(ev, d, &self->dict->keys[i], &self->dict->values[i]);
    *out = (struct value){.type = VALUE_DICT, .dict = d};
    return rc;
}

static int m_list_copy(struct eval *ev, const struct value *self, const struct args *a,
                       struct value *out)
{
    return eval_slice(ev, self, NULL, NULL, NULL, out);
}

static int m_is_integer(struct eval *ev, const struct value *self, const struct args *a,
                        struct value *out)
{
    *out = value_bool(self->f == floor(self->f) && isfinite(self->f));
    return 0;
}

static int m_bit_length(struct eval *ev, const struct value *self, const struct args *a,
                        struct value *out)
{
    int64_t i = value_as_int(self);
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    *out = value_int(u ? 64 - __builtin_clzll(u) : 0);
    return 0;
}

bool method_is_refused(enum value_type type, struct str name)
{
    static const char *const LIST[] = {"append", "clear",   "extend", "insert",
                                       "pop",    "reverse", "remove", "sort"};
    static const char *const DICT[] = {"clear", "pop", "popitem", "setdefault", "update"};
    bool refused = false;
    for (size_t i = 0; type == VALUE_LIST && i < sizeof LIST / sizeof LIST[0]; i++)
        refused = refused || str_is(name, LIST[i]);
    for (size_t i = 0; type == VALUE_DICT && i < sizeof DICT / sizeof DICT[0]; i++)
        refused = refused || str_is(name, DICT[i]);
    return refused;
}

const struct builtin *method_find(enum value_type type, struct str name)
{
    static const struct builtin DICT[] = {
        {"copy", m_dict_copy, ""}, {"get", m_get, "/key,?default"}, {"items", m_items, ""},
        {"keys", m_keys, ""},      {"values", m_values, ""},
    };
    static const struct builtin LIST[] = {
        {"copy", m_list_copy, ""},
        {"count", m_list_count, "/value"},
        {"index", m_list_index, "/value,?start,stop"},
    };
    static const struct builtin LOOP[] = {
        {"cycle", m_cycle, "*"},
        {"changed", m_changed, "*"},
    };
    static const struct builtin INT[] = {{"bit_length", m_bit_length, ""}};
    static const struct builtin FLOAT[] = {{"is_integer", m_is_integer, ""}};
    switch (type) {
    case VALUE_STRING:
        return method_find_string(name);
    case VALUE_DICT:
        return builtin_find(DICT, BUILTIN_COUNT(DICT), name);
    case VALUE_LIST:
        return builtin_find(LIST, BUILTIN_COUNT(LIST), name);
    case VALUE_LOOP:
        return builtin_find(LOOP, BUILTIN_COUNT(LOOP), name);
    case VALUE_BOOL:
    case VALUE_INT:
        return builtin_find(INT, BUILTIN_COUNT(INT), name);
    case VALUE_FLOAT:
        return builtin_find(FLOAT, BUILTIN_COUNT(FLOAT), name);
    default:
        return NULL;
    }
}
