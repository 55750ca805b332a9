/* template_print.c - values as text: Python's str() and repr(), and json.dumps() as
 * transformers' tojson calls it. */
#include "text/template_internal.h"

#include "text/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- builder ---- */

static char *build_room(struct builder *b, size_t n)
{
    if (b->rc)
        return NULL;
    if (n > b->ev->arena.max_bytes) { /* so that the doubling below cannot overflow */
        b->ev->arena.over = true;
        b->rc = eval_nomem(b->ev);
        return NULL;
    }
    if (n > b->cap - b->n) {
        size_t cap = b->cap ? b->cap * 2 : 64;
        while (cap - b->n < n)
            cap *= 2;
        char *p = arena_grow(&b->ev->arena, b->p, b->cap, cap);
        if (!p) {
            b->rc = eval_nomem(b->ev);
            return NULL;
        }
        b->p = p;
        b->cap = cap;
    }
    b->rc = eval_bytes(b->ev, n);
    return b->rc ? NULL : b->p + b->n;
}

void build_put(struct builder *b, struct str s)
{
    char *p = s.n ? build_room(b, s.n) : NULL;
    if (!p)
        return;
    memcpy(p, s.p, s.n);
    b->n += s.n;
}

void build_repeat(struct builder *b, char c, size_t n)
{
    char *p = n ? build_room(b, n) : NULL;
    if (!p)
        return;
    memset(p, c, n);
    b->n += n;
}

int build_done(struct builder *b, struct str *out)
{
    *out = (struct str){b->n ? b->p : "", b->n};
    return b->rc;
}

static void put_text(struct builder *b, const char *text)
{
    build_put(b, (struct str){text, strlen(text)});
}

/* ---- numbers ---- */

/* The shortest digits that read back as v, laid out as Python's repr(float) does. */
static void float_text(double v, char *out, size_t cap)
{
    if (isnan(v) || isinf(v)) {
        snprintf(out, cap, "%s", isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
        return;
    }
    char sci[40];
    int digits = 1;
    do {
        snprintf(sci, sizeof sci, "%.*e", digits - 1, v);
    } while (strtod(sci, NULL) != v && ++digits <= 17);
    int exp = (int)strtol(strchr(sci, 'e') + 1, NULL, 10);
    if (exp >= -4 && exp < 16) {
        int after = digits - 1 - exp;
        snprintf(out, cap, "%.*f", after > 1 ? after : 1, v);
        return;
    }
    *strchr(sci, 'e') = 0;
    snprintf(out, cap, "%se%c%02d", sci, exp < 0 ? '-' : '+', abs(exp));
}

static void put_number(struct builder *b, const struct value *v)
{
    char text[64];
    if (v->type == VALUE_INT)
        snprintf(text, sizeof text, "%" PRId64, v->i);
    else
        float_text(v->f, text, sizeof text);
    put_text(b, text);
}

/* ---- repr ---- */

static void put_escape(struct builder *b, uint32_t cp)
{
    char text[12];
    snprintf(text, sizeof text, cp < 0x100 ? "\\x%02x" : "\\u%04x", cp);
    put_text(b, text);
}

static bool is_unprintable(uint32_t cp)
{
    return cp < 0x20 || (cp >= 0x7F && cp <= 0xA0) || cp == 0xAD ||
           (cp >= 0x2000 && cp <= 0x200F) || (cp >= 0x2028 && cp <= 0x202F) ||
           (cp >= 0x205F && cp <= 0x206F) || cp == 0x3000 || cp == 0xFEFF ||
           (cp >= 0xE000 && cp <= 0xF8FF);
}

static void put_repr_string(struct builder *b, struct str s)
{
    char quote = memchr(s.p, '\'', s.n) && !memchr(s.p, '"', s.n) ? '"' : '\'';
    build_repeat(b, quote, 1);
    for (size_t i = 0; i < s.n && !b->rc;) {
        uint32_t cp;
        size_t len = utf8_next(s.p + i, &cp);
        if (cp == '\n' || cp == '\r' || cp == '\t')
            put_text(b, cp == '\n' ? "\\n" : cp == '\r' ? "\\r" : "\\t");
        else if (is_unprintable(cp))
            put_escape(b, cp);
        else {
            if (cp == '\\' || cp == (uint32_t)quote)
                build_repeat(b, '\\', 1);
            build_put(b, (struct str){s.p + i, len});
        }
        i += len;
    }
    build_repeat(b, quote, 1);
}

static void put_value(struct builder *b, const struct value *v, bool repr, int depth);

static void put_items(struct builder *b, const struct list *l, const char *open, const char *close,
                      int depth)
{
    put_text(b, open);
    for (size_t i = 0; i < l->n && !b->rc; i++) {
        if (i)
            put_text(b, ", ");
        put_value(b, &l->items[i], true, depth + 1);
    }
    put_text(b, close);
}

static void put_list(struct builder *b, const struct list *l, int depth)
{
    static const char *const VIEWS[] = {"dict_items", "dict_keys", "dict_values"};
    char text[96];
    switch (l->kind) {
    case LIST_LIST:
        put_items(b, l, "[", "]", depth);
        break;
    case LIST_TUPLE:
        put_items(b, l, "(", l->n == 1 ? ",)" : ")", depth);
        break;
    case LIST_VIEW:
        put_text(b, VIEWS[l->first]);
        put_items(b, l, "([", "])", depth);
        break;
    case LIST_RANGE:
        snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64, l->first, l->stop);
        put_text(b, text);
        snprintf(text, sizeof text, ", %" PRId64, l->step);
        put_text(b, l->step == 1 ? ")" : text);
        if (l->step != 1)
            put_text(b, ")");
        break;
    case LIST_GENERATOR:
        put_text(b, "<generator>");
        break;
    }
}

static void put_dict(struct builder *b, const struct dict *d, int depth)
{
    put_text(b, "{");
    for (size_t i = 0; i < d->n && !b->rc; i++) {
        if (i)
            put_text(b, ", ");
        put_value(b, &d->keys[i], true, depth + 1);
        put_text(b, ": ");
        put_value(b, &d->values[i], true, depth + 1);
    }
    put_text(b, "}");
}

static bool too_deep(struct builder *b, int depth)
{
    if (b->rc)
        return true;
    if (depth <= TEMPLATE_MAX_VALUE_DEPTH)
        return (b->rc = eval_steps(b->ev, 1)) != 0;
    b->rc =
        eval_fail(b->ev, ERR_LIMIT, "a value is nested deeper than %d", TEMPLATE_MAX_VALUE_DEPTH);
    return true;
}

static void put_value(struct builder *b, const struct value *v, bool repr, int depth)
{
    char text[64];
    if (too_deep(b, depth))
        return;
    switch (v->type) {
    case VALUE_UNDEFINED:
        put_text(b, repr ? "Undefined" : "");
        break;
    case VALUE_NONE:
        put_text(b, "None");
        break;
    case VALUE_BOOL:
        put_text(b, v->b ? "True" : "False");
        break;
    case VALUE_INT:
    case VALUE_FLOAT:
        put_number(b, v);
        break;
    case VALUE_STRING:
        if (repr)
            put_repr_string(b, v->s);
        else
            build_put(b, v->s);
        break;
    case VALUE_LIST:
        put_list(b, v->list, depth);
        break;
    case VALUE_DICT:
        put_dict(b, v->dict, depth);
        break;
    case VALUE_NAMESPACE:
        put_text(b, "<Namespace ");
        put_dict(b, v->dict, depth);
        put_text(b, ">");
        break;
    case VALUE_LOOP:
        snprintf(text, sizeof text, "<LoopContext %zu/%zu>", v->loop->at + 1, v->loop->items->n);
        put_text(b, text);
        break;
    case VALUE_CALLABLE:
        put_text(b, v->callable->builtin ? "<function>" : "<Macro>");
        break;
    }
}

void build_value(struct builder *b, const struct value *v, bool repr)
{
    put_value(b, v, repr, 0);
}

int value_to_str(struct eval *ev, const struct value *v, struct str *out)
{
    if (v->type == VALUE_STRING) {
        *out = v->s;
        return 0;
    }
    struct builder b = {.ev = ev};
    put_value(&b, v, false, 0);
    return build_done(&b, out);
}

/* ---- JSON ---- */

static void put_json_escape(struct builder *b, uint32_t cp)
{
    char text[16];
    if (cp < 0x10000) {
        snprintf(text, sizeof text, "\\u%04x", cp);
    } else {
        cp -= 0x10000;
        snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xD800 + (cp >> 10), 0xDC00 + (cp & 0x3FF));
    }
    put_text(b, text);
}

static void put_json_string(struct builder *b, struct str s, bool ascii)
{
    static const char FROM[] = "\"\\\n\r\t\b\f", TO[] = "\"\\nrtbf";
    put_text(b, "\"");
    size_t plain = 0;
    for (size_t i = 0; i < s.n && !b->rc;) {
        uint32_t cp;
        size_t len = utf8_next(s.p + i, &cp);
        const char *short_form = cp < 0x80 ? memchr(FROM, (int)cp, sizeof FROM - 1) : NULL;
        if (short_form || cp < 0x20 || (ascii && cp >= 0x7F + 1)) {
            build_put(b, (struct str){s.p + plain, i - plain});
            plain = i + len;
            if (short_form)
                build_put(b, (struct str){(char[]){'\\', TO[short_form - FROM]}, 2});
            else
                put_json_escape(b, cp);
        }
        i += len;
    }
    build_put(b, (struct str){s.p + plain, s.n - plain});
    put_text(b, "\"");
}

struct json_writer {
    struct builder b;
    const struct json_style *style;
};

static void put_json(struct json_writer *w, const struct value *v, int depth);

static void json_break(struct json_writer *w, int depth)
{
    if (!w->style->has_indent)
        return;
    put_text(&w->b, "\n");
    for (int i = 0; i < depth; i++)
        build_put(&w->b, w->style->indent);
}

static void put_json_list(struct json_writer *w, const struct list *l, int depth)
{
    put_text(&w->b, "[");
    for (size_t i = 0; i < l->n && !w->b.rc; i++) {
        if (i)
            build_put(&w->b, w->style->item_separator);
        json_break(w, depth + 1);
        put_json(w, &l->items[i], depth + 1);
    }
    if (l->n)
        json_break(w, depth);
    put_text(&w->b, "]");
}

static void put_json_key(struct json_writer *w, const struct value *key)
{
    struct builder *b = &w->b;
    switch (key->type) {
    case VALUE_STRING:
        put_json_string(b, key->s, w->style->ascii);
        return;
    case VALUE_NONE:
        put_text(b, "\"null\"");
        return;
    case VALUE_BOOL:
        put_text(b, key->b ? "\"true\"" : "\"false\"");
        return;
    case VALUE_INT:
    case VALUE_FLOAT:
        put_text(b, "\"");
        put_number(b, key);
        put_text(b, "\"");
        return;
    default:
        b->rc = eval_fail(b->ev, ERR_FORMAT, "a %s cannot be a JSON key", value_type_name(key));
    }
}

/* Order of keys: as they are, or sorted (they must then all be of one kind). Selection sort:
 * objects are small, and every comparison counts as a step. */
static int json_order(struct json_writer *w, const struct dict *d, size_t *order)
{
    for (size_t i = 0; i < d->n; i++)
        order[i] = i;
    for (size_t i = 0; w->style->sort_keys && i < d->n; i++)
        for (size_t k = i + 1; k < d->n; k++) {
            int c, rc = value_compare(w->b.ev, &d->keys[order[k]], &d->keys[order[i]], &c);
            if (rc == 0)
                rc = eval_steps(w->b.ev, 1);
            if (rc)
                return rc;
            if (c < 0) {
                size_t t = order[i];
                order[i] = order[k];
                order[k] = t;
            }
        }
    return 0;
}

static void put_json_dict(struct json_writer *w, const struct dict *d, int depth)
{
    struct builder *b = &w->b;
    size_t *order = eval_alloc(b->ev, (d->n + 1) * sizeof *order);
    b->rc = order ? json_order(w, d, order) : eval_nomem(b->ev);
    put_text(b, "{");
    for (size_t i = 0; !b->rc && i < d->n; i++) {
        if (i)
            build_put(b, w->style->item_separator);
        json_break(w, depth + 1);
        put_json_key(w, &d->keys[order[i]]);
        build_put(b, w->style->key_separator);
        put_json(w, &d->values[order[i]], depth + 1);
    }
    if (d->n)
        json_break(w, depth);
    put_text(b, "}");
}

static void put_json(struct json_writer *w, const struct value *v, int depth)
{
    struct builder *b = &w->b;
    if (too_deep(b, depth))
        return;
    switch (v->type) {
    case VALUE_NONE:
        put_text(b, "null");
        return;
    case VALUE_BOOL:
        put_text(b, v->b ? "true" : "false");
        return;
    case VALUE_FLOAT:
        if (isnan(v->f) || isinf(v->f)) {
            put_text(b, isnan(v->f) ? "NaN" : v->f > 0 ? "Infinity" : "-Infinity");
            return;
        }
        put_number(b, v);
        return;
    case VALUE_INT:
        put_number(b, v);
        return;
    case VALUE_STRING:
        put_json_string(b, v->s, w->style->ascii);
        return;
    case VALUE_LIST:
        if (v->list->kind <= LIST_TUPLE) {
            put_json_list(w, v->list, depth);
            return;
        }
        break;
    case VALUE_DICT:
        put_json_dict(w, v->dict, depth);
        return;
    default:
        break;
    }
    b->rc = eval_fail(b->ev, ERR_FORMAT, "a %s cannot be written as JSON", value_type_name(v));
}

int value_to_json(struct eval *ev, const struct value *v, const struct json_style *style,
                  struct str *out)
{
    struct json_writer w = {.b = {.ev = ev}, .style = style};
    put_json(&w, v, 0);
    return build_done(&w.b, out);
}
