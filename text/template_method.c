/* template_method.c - methods of dicts, lists and loops; those of strings are in
 * template_method_str.c. What would change a value in place is left out, as in Jinja's immutable
 * sandbox. */
#include "text/template_internal.h"

/* ---- dicts ---- */

static int m_get(struct eval *ev, const struct value *self, const struct args *a, struct value *out)
{
    const struct value *found;
    if (!a->bound[0])
        return eval_fail(ev, ERR_FORMAT, "get needs a key");
    int rc = dict_get(ev, self->dict, a->bound[0], &found);
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
                       int64_t *first, int64_t *count)
{
    *first = -1;
    *count = 0;
    if (!a->bound[0])
        return eval_fail(ev, ERR_FORMAT, "expected an argument");
    for (size_t i = 0; i < self->list->n; i++) {
        bool same;
        int rc = value_equal(ev, &self->list->items[i], a->bound[0], &same);
        if (rc)
            return rc;
        *first = same && *first < 0 ? (int64_t)i : *first;
        *count += same;
    }
    return 0;
}

static int m_list_count(struct eval *ev, const struct value *self, const struct args *a,
                        struct value *out)
{
    int64_t first, count;
    int rc = list_search(ev, self, a, &first, &count);
    *out = value_int(count);
    return rc;
}

static int m_list_index(struct eval *ev, const struct value *self, const struct args *a,
                        struct value *out)
{
    int64_t first, count;
    int rc = list_search(ev, self, a, &first, &count);
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

const struct builtin *method_find(enum value_type type, struct str name)
{
    static const struct builtin DICT[] = {
        {"get", m_get, "key,default"},
        {"items", m_items, ""},
        {"keys", m_keys, ""},
        {"values", m_values, ""},
    };
    static const struct builtin LIST[] = {
        {"count", m_list_count, "value"},
        {"index", m_list_index, "value"},
    };
    static const struct builtin LOOP[] = {
        {"cycle", m_cycle, "*"},
        {"changed", m_changed, "*"},
    };
    switch (type) {
    case VALUE_STRING:
        return method_find_string(name);
    case VALUE_DICT:
        return builtin_find(DICT, BUILTIN_COUNT(DICT), name);
    case VALUE_LIST:
        return builtin_find(LIST, BUILTIN_COUNT(LIST), name);
    case VALUE_LOOP:
        return builtin_find(LOOP, BUILTIN_COUNT(LOOP), name);
    default:
        return NULL;
    }
}
