/* template_func.c - calling built-ins, and the global functions: raise_exception, namespace,
 * dict, range, strftime_now. */
#include "text/template_internal.h"

#include <stdio.h>
#include <time.h>

const struct builtin *builtin_find(const struct builtin *table, size_t n, struct str name)
{
    for (size_t i = 0; i < n; i++)
        if (str_is(name, table[i].name))
            return &table[i];
    return NULL;
}

/* What a parameter list says; see struct builtin. */
struct params {
    bool positional_only;
    size_t n, n_required;
    const char *names[MAX_BOUND];
    size_t lengths[MAX_BOUND];
};

static struct params params_read(const char *text)
{
    struct params p = {0};
    bool optional = false;
    if (*text == '/') {
        p.positional_only = true;
        text++;
    }
    while (*text && p.n < MAX_BOUND) {
        if (*text == '?') {
            optional = true;
            text++;
        }
        size_t n = strcspn(text, ",");
        p.names[p.n] = text;
        p.lengths[p.n++] = n;
        p.n_required += !optional;
        text += n + (text[n] == ',');
    }
    return p;
}

/* Which parameter is called so; p->n: none. */
static size_t param_index(const struct params *p, struct str name)
{
    size_t i = 0;
    while (i < p->n && (p->lengths[i] != name.n || memcmp(p->names[i], name.p, name.n) != 0))
        i++;
    return i;
}

static int bind_args(struct eval *ev, const struct builtin *b, struct args *a)
{
    struct params p = params_read(b->params);
    if (a->n_pos > p.n)
        return eval_fail(ev, ERR_FORMAT, "%s takes at most %zu arguments, got %zu", b->name, p.n,
                         a->n_pos);
    memset(a->bound, 0, sizeof a->bound);
    for (size_t i = 0; i < a->n_pos; i++)
        a->bound[i] = &a->pos[i];
    for (size_t i = 0; i < a->n_kw; i++) {
        size_t at = p.positional_only ? p.n : param_index(&p, a->kw[i].name);
        if (at == p.n || a->bound[at])
            return eval_fail(ev, ERR_FORMAT, "%s: argument \"%.*s\" is %s", b->name,
                             str_shown(a->kw[i].name, 60), a->kw[i].name.p,
                             at == p.n ? "not known" : "given twice");
        a->bound[at] = &a->kw[i].value;
    }
    for (size_t i = 0; i < p.n_required; i++)
        if (!a->bound[i])
            return eval_fail(ev, ERR_FORMAT, "%s: argument \"%.*s\" is missing", b->name,
                             (int)p.lengths[i], p.names[i]);
    return 0;
}

int builtin_call(struct eval *ev, const struct builtin *b, const struct value *self, struct args *a,
                 struct value *out)
{
    *out = value_none();
    int rc = b->params[0] == '*' ? 0 : bind_args(ev, b, a);
    return rc ? rc : b->fn(ev, self, a, out);
}

int builtin_arg_int(struct eval *ev, const struct value *v, int64_t absent, int64_t *out)
{
    *out = absent;
    if (!v)
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
    struct str text;
    int rc = value_to_str(ev, a->bound[0], &text);
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
        if (l->n >= TEMPLATE_MAX_RANGE)
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

/* Python's strftime: as the C library's, but for what a time without a zone has (%z and %Z are
 * empty) and for microseconds. */
static int time_format(struct eval *ev, struct str format, char *out, size_t cap)
{
    size_t n = 0;
    for (size_t i = 0; i < format.n; i++) {
        char next = format.p[i] == '%' && i + 1 < format.n ? format.p[i + 1] : 0;
        if (n + 8 > cap || !format.p[i])
            return eval_fail(ev, ERR_LIMIT, "a time format is longer than %zu bytes", cap - 8);
        if (next == 'z' || next == 'Z' || next == 'f') {
            n += (size_t)(next == 'f' ? snprintf(out + n, 8, "000000") : 0);
            i++;
            continue;
        }
        out[n++] = format.p[i];
        if (next == '%')
            out[n++] = format.p[++i];
    }
    out[n] = 0;
    return 0;
}

static int fn_strftime_now(struct eval *ev, const struct value *self, const struct args *a,
                           struct value *out)
{
    enum { FORMAT_BYTES = 256, TIME_BYTES = 2048 };
    struct str format;
    char fmt[FORMAT_BYTES];
    int rc = builtin_arg_str(ev, a->bound[0], STR(""), &format);
    if (rc == 0)
        rc = time_format(ev, format, fmt, sizeof fmt);
    if (rc)
        return rc;
    time_t now = (time_t)ev->now_s;
    struct tm tm;
    localtime_r(&now, &tm);
    char *text = eval_alloc(ev, TIME_BYTES);
    if (!text)
        return eval_nomem(ev);
    size_t n = *fmt ? strftime(text, TIME_BYTES, fmt, &tm) : 0;
    *out = value_str((struct str){text, n});
    return 0;
}

const struct builtin *function_find(struct str name)
{
    static const struct builtin TABLE[] = {
        {"raise_exception", fn_raise_exception, "message"},
        {"namespace", fn_namespace, "*"},
        {"dict", fn_dict, "*"},
        {"range", fn_range, "/start,?stop,step"},
        {"strftime_now", fn_strftime_now, "format"},
    };
    return builtin_find(TABLE, BUILTIN_COUNT(TABLE), name);
}
