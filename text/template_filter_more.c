/* template_filter_more.c - filters that lay out texts and that cut lists into parts. */
#include "text/template_filter.h"

#include "text/unicode.h"
#include "text/utf8.h"

#include <stdio.h>

/* ---- texts ---- */

FILTER(f_center)
{
    static const struct value WIDTH = {.type = VALUE_INT, .i = 80};
    struct value text;
    int rc = filter_text(ev, v, &text);
    struct args width = {.pos = a->bound[0] ? a->bound[0] : &WIDTH, .n_pos = 1};
    return rc ? rc : builtin_call(ev, method_find(VALUE_STRING, STR("center")), &text, &width, out);
}

/* "…"|format(a, b) or "…"|format(name=a) */
FILTER(f_format)
{
    struct value text, args;
    int rc = filter_text(ev, v, &text);
    if (rc == 0 && a->n_pos && a->n_kw)
        rc = eval_fail(ev, ERR_FORMAT, "format takes positional or named arguments, not both");
    if (rc)
        return rc;
    struct list *l = list_new(ev, LIST_TUPLE);
    struct dict *d = dict_new(ev);
    rc = l && d ? 0 : eval_nomem(ev);
    for (size_t i = 0; rc == 0 && i < a->n_pos; i++)
        rc = list_push(ev, l, &a->pos[i]);
    for (size_t i = 0; rc == 0 && i < a->n_kw; i++) {
        struct value key = value_str(a->kw[i].name);
        rc = dict_set(ev, d, &key, &a->kw[i].value);
    }
    args = a->n_kw ? (struct value){.type = VALUE_DICT, .dict = d} : value_list(l);
    return rc ? rc : format_percent(ev, text.s, &args, out);
}

static size_t char_offset(struct str s, int64_t characters)
{
    size_t at = 0;
    for (uint32_t cp; characters > 0 && at < s.n; characters--)
        at += utf8_next(s.p + at, &cp);
    return at;
}

FILTER(f_truncate)
{
    int64_t length, leeway = 5; /* Jinja's policy truncate.leeway */
    struct str end, s;
    bool kill = a->bound[1] && value_truth(a->bound[1]);
    size_t n = 0;
    int rc = value_length(ev, v, &n);
    if (rc == 0)
        rc = builtin_arg_int(ev, a->bound[0], 255, &length);
    if (rc == 0)
        rc = builtin_arg_str(ev, a->bound[2], STR("..."), &end);
    if (rc == 0 && a->bound[3] && a->bound[3]->type != VALUE_NONE)
        rc = builtin_arg_int(ev, a->bound[3], 5, &leeway);
    if (rc)
        return rc;
    int64_t n_end = (int64_t)utf8_length(end.p, end.n);
    if (length < n_end || leeway < 0)
        return eval_fail(ev, ERR_FORMAT, "truncate: expected a length of at least %lld",
                         (long long)n_end);
    *out = *v;
    if ((int64_t)n - leeway <= length)
        return 0;
    rc = builtin_arg_str(ev, v, STR(""), &s);
    if (rc)
        return rc;
    s.n = char_offset(s, length - n_end);
    for (size_t i = s.n; !kill && i > 0; i--)
        if (s.p[i - 1] == ' ') {
            s.n = i - 1;
            break;
        }
    struct builder b = {.ev = ev};
    build_put(&b, s);
    build_put(&b, end);
    return build_done(&b, &out->s);
}

static bool in_word(uint32_t cp) /* \w */
{
    enum unicode_class class = unicode_class(cp);
    return cp == '_' || class == UNICODE_LETTER || class == UNICODE_NUMBER;
}

FILTER(f_wordcount)
{
    struct value text;
    int64_t n = 0;
    bool word = false;
    int rc = filter_text(ev, v, &text);
    for (size_t i = 0; rc == 0 && i < text.s.n;) {
        uint32_t cp;
        i += utf8_next(text.s.p + i, &cp);
        n += !word && in_word(cp);
        word = in_word(cp);
    }
    *out = value_int(n);
    return rc ? rc : eval_bytes(ev, text.s.n);
}

FILTER(f_escape)
{
    static const char FROM[] = "&<>'\"";
    static const char *const TO[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    struct builder b = {.ev = ev};
    int rc = filter_text(ev, v, out);
    for (size_t i = 0, plain = 0; rc == 0 && i <= out->s.n; i++) {
        const char *found = i < out->s.n ? memchr(FROM, out->s.p[i], sizeof FROM - 1) : NULL;
        if (!found && i < out->s.n)
            continue;
        build_put(&b, (struct str){out->s.p + plain, i - plain});
        if (found)
            build_put(&b, (struct str){TO[found - FROM], strlen(TO[found - FROM])});
        plain = i + 1;
    }
    return rc ? rc : build_done(&b, &out->s);
}

FILTER(f_attr)
{
    struct str name;
    int rc = filter_text(ev, a->bound[0], out);
    if (rc)
        return rc;
    name = out->s;
    *out = value_undefined(name);
    return v->type == VALUE_DICT && !method_find(VALUE_DICT, name)
               ? 0
               : eval_get_attr(ev, v, name, out);
}

/* ---- parts of lists ---- */

static int push_list(struct eval *ev, struct list *to, struct list *l)
{
    struct value v = value_list(l);
    return list_push(ev, to, &v);
}

static int push_fill(struct eval *ev, struct list *l, const struct value *fill, int64_t times)
{
    int rc = 0;
    for (int64_t i = 0; rc == 0 && fill && fill->type != VALUE_NONE && i < times; i++) {
        rc = list_push(ev, l, fill);
        if (rc == 0)
            rc = eval_steps(ev, 1);
    }
    return rc;
}

FILTER(f_batch)
{
    int64_t size;
    struct list *items, *made = list_new(ev, LIST_GENERATOR), *part = NULL;
    int rc = made ? value_items(ev, v, &items) : eval_nomem(ev);
    if (rc == 0)
        rc = builtin_arg_int(ev, a->bound[0], 0, &size);
    for (size_t i = 0; rc == 0 && i < items->n; i++) {
        if (!part || (int64_t)part->n == size) {
            if (!part && size == 0) /* Python's first part is empty then */
                rc = (part = list_new(ev, LIST_LIST)) ? push_list(ev, made, part) : eval_nomem(ev);
            part = list_new(ev, LIST_LIST);
            if (rc == 0)
                rc = part ? push_list(ev, made, part) : eval_nomem(ev);
        }
        if (rc == 0)
            rc = list_push(ev, part, &items->items[i]);
        if (rc == 0)
            rc = eval_steps(ev, 1);
    }
    if (rc == 0 && part)
        rc = push_fill(ev, part, a->bound[1], size - (int64_t)part->n);
    *out = value_list(made);
    return rc;
}

FILTER(f_slice)
{
    int64_t slices;
    struct list *items, *made = list_new(ev, LIST_GENERATOR);
    int rc = made ? value_items(ev, v, &items) : eval_nomem(ev);
    if (rc == 0)
        rc = builtin_arg_int(ev, a->bound[0], 0, &slices);
    if (rc == 0 && slices == 0)
        rc = eval_fail(ev, ERR_FORMAT, "slice into 0 parts");
    for (int64_t i = 0, at = 0; rc == 0 && i < slices; i++) {
        int64_t n = (int64_t)items->n / slices, extra = (int64_t)items->n % slices;
        struct list *part = list_new(ev, LIST_LIST);
        rc = part ? push_list(ev, made, part) : eval_nomem(ev);
        for (int64_t k = 0; rc == 0 && k < n + (i < extra); k++)
            rc = list_push(ev, part, &items->items[at++]);
        if (rc == 0)
            rc = push_fill(ev, part, a->bound[1], i >= extra);
        if (rc == 0)
            rc = eval_steps(ev, 1 + (uint64_t)n);
    }
    *out = value_list(made);
    return rc;
}

/* A tuple whose parts are also called grouper and list. */
static int push_group(struct eval *ev, struct list *to, const struct value *key, struct list *items)
{
    struct list *pair = list_new(ev, LIST_TUPLE);
    struct value v = value_list(items);
    int rc = pair ? list_push(ev, pair, key) : eval_nomem(ev);
    if (rc == 0)
        rc = list_push(ev, pair, &v);
    if (rc)
        return rc;
    pair->group = true;
    return push_list(ev, to, pair);
}

FILTER(f_groupby)
{
    struct list *items, *ordered, *made = list_new(ev, LIST_LIST), *group = NULL;
    struct value last = value_none();
    const struct value *path = a->bound[0];
    bool with_case = a->bound[2] && value_truth(a->bound[2]);
    static const struct value NONE = {.type = VALUE_NONE};
    const struct value *absent = a->bound[1] ? a->bound[1] : &NONE;
    int rc = made ? value_items(ev, v, &items) : eval_nomem(ev);
    if (rc == 0)
        rc = filter_sorted(ev, items, path, absent, with_case, false, &ordered);
    for (size_t i = 0; rc == 0 && i < ordered->n; i++) {
        struct value key, shown;
        bool same = false;
        rc = filter_key(ev, &ordered->items[i], path, absent, with_case, &key);
        if (rc == 0 && i)
            rc = value_equal(ev, &key, &last, &same);
        if (rc == 0 && !same) {
            group = list_new(ev, LIST_LIST);
            rc = group ? filter_path(ev, &ordered->items[i], path, absent, &shown) : eval_nomem(ev);
            if (rc == 0)
                rc = push_group(ev, made, &shown, group);
        }
        if (rc == 0)
            rc = list_push(ev, group, &ordered->items[i]);
        last = key;
    }
    *out = value_list(made);
    return rc;
}

const struct builtin *filter_find_more(struct str name)
{
    static const struct builtin TABLE[] = {
        {"attr", f_attr, "name"},
        {"batch", f_batch, "linecount,?fill_with"},
        {"center", f_center, "?width"},
        {"e", f_escape, ""},
        {"escape", f_escape, ""},
        {"forceescape", f_escape, ""},
        {"format", f_format, "*"},
        {"groupby", f_groupby, "attribute,?default,case_sensitive"},
        {"slice", f_slice, "slices,?fill_with"},
        {"truncate", f_truncate, "?length,killwords,end,leeway"},
        {"wordcount", f_wordcount, ""},
    };
    return builtin_find(TABLE, BUILTIN_COUNT(TABLE), name);
}
