/* template_func.c - calling built-ins, and the global functions: raise_exception, namespace,
 * dict, range, strftime_now. */
#include "text/template_internal.h"

#include "base/clock.h"

#include <time.h>

const struct builtin *builtin_find(const struct builtin *table, size_t n, struct str name)
{
    for (size_t i = 0; i < n; i++)
        if (str_is(name, table[i].name))
            return &table[i];
    return NULL;
}

/* Which parameter of "a,b,c" is called so; -1: none. */
static int param_index(const char *params, struct str name)
{
    for (int i = 0; *params; i++) {
        size_t n = strcspn(params, ",");
        if (n == name.n && memcmp(params, name.p, n) == 0)
            return i;
        params += n + (params[n] == ',');
    }
    return -1;
}

static size_t param_count(const char *params)
{
    size_t n = *params != 0;
    for (; *params; params++)
        n += *params == ',';
    return n;
}

int builtin_call(struct eval *ev, const struct builtin *b, const struct value *self, struct args *a,
                 struct value *out)
{
    *out = value_none();
    if (b->params[0] == '*')
        return b->fn(ev, self, a, out);
    size_t n = param_count(b->params);
    if (a->n_pos > n)
        return eval_fail(ev, ERR_FORMAT, "%s takes at most %zu arguments, got %zu", b->name, n,
                         a->n_pos);
    memset(a->bound, 0, sizeof a->bound);
    for (size_t i = 0; i < a->n_pos; i++)
        a->bound[i] = &a->pos[i];
    for (size_t i = 0; i < a->n_kw; i++) {
        int at = param_index(b->params, a->kw[i].name);
        if (at < 0 || a->bound[at])
            return eval_fail(ev, ERR_FORMAT, "%s: argument \"%.*s\" is %s", b->name,
                             str_shown(a->kw[i].name, 60), a->kw[i].name.p,
                             at < 0 ? "not known" : "given twice");
        a->bound[at] = &a->kw[i].value;
    }
    return b->fn(ev, self, a, out);
}

int builtin_arg_int(struct eval *ev, const struct value *v, int64_t absent, int64_t *out)
{
    *out = absent;
    if (!v || v->type == VALUE_NONE)
        return 0;
    if (!value_is_integer(v))
        return eval_fail(ev, ERR_FORMAT, "expected an integer, got %s", value_type_name(v));
    *out = value_as_int(v);
    return 0;
}

int builtin_arg_str(struct eval *ev, const struct value *v, struct str absent, struct str *out)
{
    *out = absent;
    if (!v)
        return 0;
    if (v->type != VALUE_STRING)
        return eval_fail(ev, ERR_FORMAT, "expected a string, got %s", value_type_name(v));
    *out = v->s;
    return 0;
}

/* ---- globals ---- */

static int fn_raise_exception(struct eval *ev, const struct value *self, const struct args *a,
                              struct value *out)
{
    struct str text = STR("the template refuses this conversation");
    int rc = a->bound[0] ? value_to_str(ev, a->bound[0], &text) : 0;
    return rc ? rc : err_set(ev->e, ERR_CONFIG, "%.*s", str_shown(text, 400), text.p);
}

/* dict(...) and namespace(...): a mapping or pairs first, then names. */
static int fill_dict(struct eval *ev, const struct args *a, struct dict **out)
{
    struct dict *d = dict_new(ev);
    if (!d)
        return eval_nomem(ev);
    if (a->n_pos > 1)
        return eval_fail(ev, ERR_FORMAT, "expected at most 1 argument, got %zu", a->n_pos);
    int rc = 0;
    if (a->n_pos == 1 && a->pos[0].type == VALUE_DICT) {
        const struct dict *from = a->pos[0].dict;
        for (size_t i = 0; rc == 0 && i < from->n; i++)
            rc = dict_set(ev, d, &from->keys[i], &from->values[i]);
    } else if (a->n_pos == 1) {
        struct list *pairs, *pair;
        rc = value_items(ev, &a->pos[0], &pairs);
        for (size_t i = 0; rc == 0 && i < pairs->n; i++) {
            rc = value_items(ev, &pairs->items[i], &pair);
            if (rc == 0 && pair->n != 2)
                return eval_fail(ev, ERR_FORMAT, "expected pairs, got %zu values", pair->n);
            if (rc == 0)
                rc = dict_set(ev, d, &pair->items[0], &pair->items[1]);
        }
    }
    for (size_t i = 0; rc == 0 && i < a->n_kw; i++) {
        struct value key = value_str(a->kw[i].name);
        rc = dict_set(ev, d, &key, &a->kw[i].value);
    }
    *out = d;
    return rc;
}

static int fn_namespace(struct eval *ev, const struct value *self, const struct args *a,
                        struct value *out)
{
    out->type = VALUE_NAMESPACE;
    return fill_dict(ev, a, &out->dict);
}

static int fn_dict(struct eval *ev, const struct value *self, const struct args *a,
                   struct value *out)
{
    out->type = VALUE_DICT;
    return fill_dict(ev, a, &out->dict);
}

static int fn_range(struct eval *ev, const struct value *self, const struct args *a,
                    struct value *out)
{
    int64_t v[3] = {0, 0, 1};
    for (int i = 0; i < 3; i++) {
        int rc = builtin_arg_int(ev, a->bound[i], v[i], &v[i]);
        if (rc)
            return rc;
    }
    if (!a->bound[0])
        return eval_fail(ev, ERR_FORMAT, "range needs an argument");
    if (!a->bound[1]) {
        v[1] = v[0];
        v[0] = 0;
    }
    if (v[2] == 0)
        return eval_fail(ev, ERR_FORMAT, "the step of range is 0");
    struct list *l = list_new(ev, LIST_RANGE);
    if (!l)
        return eval_nomem(ev);
    l->first = v[0];
    l->stop = v[1];
    l->step = v[2];
    for (int64_t i = v[0]; v[2] > 0 ? i < v[1] : i > v[1];) {
        if (l->n == TEMPLATE_MAX_RANGE)
            return eval_fail(ev, ERR_LIMIT, "range gives more than %d numbers", TEMPLATE_MAX_RANGE);
        struct value item = value_int(i);
        int rc = list_push(ev, l, &item);
        if (rc == 0)
            rc = eval_steps(ev, 1);
        if (rc)
            return rc;
        if (__builtin_add_overflow(i, v[2], &i))
            break;
    }
    *out = value_list(l);
    return 0;
}

static int fn_strftime_now(struct eval *ev, const struct value *self, const struct args *a,
                           struct value *out)
{
    enum { FORMAT_BYTES = 256, TIME_BYTES = 1024 };
    struct str format;
    int rc = builtin_arg_str(ev, a->bound[0], STR("%d %b %Y"), &format);
    if (rc)
        return rc;
    if (format.n >= FORMAT_BYTES || memchr(format.p, 0, format.n))
        return eval_fail(ev, ERR_LIMIT, "a time format is longer than %d bytes", FORMAT_BYTES - 1);
    char fmt[FORMAT_BYTES];
    memcpy(fmt, format.p, format.n);
    fmt[format.n] = 0;
    time_t now = (time_t)(clock_wall_us() / 1000000);
    struct tm tm;
    localtime_r(&now, &tm);
    char *text = eval_alloc(ev, TIME_BYTES);
    if (!text)
        return eval_nomem(ev);
    size_t n = format.n ? strftime(text, TIME_BYTES, fmt, &tm) : 0;
    *out = value_str((struct str){text, n});
    return 0;
}

const struct builtin *function_find(struct str name)
{
    static const struct builtin TABLE[] = {
        {"raise_exception", fn_raise_exception, "message"},
        {"namespace", fn_namespace, "*"},
        {"dict", fn_dict, "*"},
        {"range", fn_range, "start,stop,step"},
        {"strftime_now", fn_strftime_now, "format"},
    };
    return builtin_find(TABLE, BUILTIN_COUNT(TABLE), name);
}
