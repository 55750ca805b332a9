/* template_filter.c - filters on one value; those that walk lists are in template_filter_list.c. */
#include "text/template_filter.h"

#include "text/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

int filter_text(struct eval *ev, const struct value *v, struct value *out)
{
    out->type = VALUE_STRING;
    return value_to_str(ev, v, &out->s);
}

FILTER(f_string)
{
    return filter_text(ev, v, out);
}

static int cased(struct eval *ev, const struct value *v, enum str_case how, struct value *out)
{
    int rc = filter_text(ev, v, out);
    return rc ? rc : str_case(ev, out->s, how, &out->s);
}

FILTER(f_upper)
{
    return cased(ev, v, CASE_UPPER, out);
}

FILTER(f_lower)
{
    return cased(ev, v, CASE_LOWER, out);
}

FILTER(f_title)
{
    return cased(ev, v, CASE_TITLE_FILTER, out);
}

FILTER(f_capitalize)
{
    return cased(ev, v, CASE_CAPITAL, out);
}

FILTER(f_trim)
{
    struct value text;
    int rc = filter_text(ev, v, &text);
    struct args strip = {.pos = a->bound[0], .n_pos = a->bound[0] != NULL};
    return rc ? rc : builtin_call(ev, method_find(VALUE_STRING, STR("strip")), &text, &strip, out);
}

FILTER(f_replace)
{
    struct str from, to;
    int64_t count = -1;
    int rc = filter_text(ev, v, out);
    if (rc == 0)
        rc = value_to_str(ev, a->bound[0], &from);
    if (rc == 0)
        rc = value_to_str(ev, a->bound[1], &to);
    if (rc == 0 && a->bound[2] && a->bound[2]->type != VALUE_NONE)
        rc = builtin_arg_int(ev, a->bound[2], -1, &count);
    return rc ? rc : str_replace(ev, out->s, from, to, count, &out->s);
}

FILTER(f_default)
{
    bool also_false = a->bound[1] && value_truth(a->bound[1]);
    bool missing = v->type == VALUE_UNDEFINED || (also_false && !value_truth(v));
    *out = !missing ? *v : a->bound[0] ? *a->bound[0] : value_str(STR(""));
    return 0;
}

FILTER(f_length)
{
    size_t n = 0;
    int rc = value_length(ev, v, &n);
    *out = value_int((int64_t)n);
    return rc;
}

/* Width as a number of spaces or as the text itself. */
static int indent_text(struct eval *ev, const struct value *v, struct str *out)
{
    int64_t n;
    if (v && v->type == VALUE_STRING) {
        *out = v->s;
        return 0;
    }
    int rc = builtin_arg_int(ev, v, 4, &n);
    if (rc)
        return rc;
    struct builder b = {.ev = ev};
    build_repeat(&b, ' ', n > 0 ? (size_t)n : 0);
    return build_done(&b, out);
}

FILTER(f_indent)
{
    struct str indent;
    struct list *lines;
    bool first = a->bound[1] && value_truth(a->bound[1]);
    bool blank = a->bound[2] && value_truth(a->bound[2]);
    int rc = builtin_arg_str(ev, v, STR(""), &out->s);
    out->type = VALUE_STRING;
    if (rc == 0)
        rc = indent_text(ev, a->bound[0], &indent);
    if (rc)
        return rc;
    struct builder with_newline = {.ev = ev}, b = {.ev = ev};
    build_put(&with_newline, out->s);
    build_put(&with_newline, STR("\n")); /* so that a last empty line counts */
    rc = build_done(&with_newline, &out->s);
    if (rc == 0)
        rc = str_lines(ev, out->s, false, &lines);
    if (rc)
        return rc;
    for (size_t i = 0; i < lines->n; i++) {
        struct str line = lines->items[i].s;
        if (i)
            build_put(&b, STR("\n"));
        if (i ? blank || line.n : first)
            build_put(&b, indent);
        build_put(&b, line);
    }
    return build_done(&b, &out->s);
}

static int json_indent(struct eval *ev, const struct value *v, struct json_style *style)
{
    style->has_indent = v && v->type != VALUE_NONE;
    if (!style->has_indent)
        return 0;
    style->item_separator = STR(",");
    return indent_text(ev, v, &style->indent);
}

/* separators=(",", ":") */
static int json_separators(struct eval *ev, const struct value *v, struct json_style *style)
{
    if (!v || v->type == VALUE_NONE)
        return 0;
    if (v->type != VALUE_LIST || v->list->n != 2 || v->list->items[0].type != VALUE_STRING ||
        v->list->items[1].type != VALUE_STRING)
        return eval_fail(ev, ERR_FORMAT, "tojson: separators must be two strings");
    style->item_separator = v->list->items[0].s;
    style->key_separator = v->list->items[1].s;
    return 0;
}

/* tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False), as transformers
 * defines it (Jinja's own escapes HTML and takes the indent first). */
FILTER(f_tojson)
{
    struct json_style style = {
        .ascii = a->bound[0] && value_truth(a->bound[0]),
        .sort_keys = a->bound[3] && value_truth(a->bound[3]),
        .item_separator = STR(", "),
        .key_separator = STR(": "),
    };
    int rc = json_indent(ev, a->bound[1], &style);
    if (rc == 0)
        rc = json_separators(ev, a->bound[2], &style);
    out->type = VALUE_STRING;
    return rc ? rc : value_to_json(ev, v, &style, &out->s);
}

/* ---- numbers ---- */

static int float_to_int(struct eval *ev, double f, struct value *out)
{
    if (!(f > -9.2e18 && f < 9.2e18))
        return eval_fail(ev, ERR_LIMIT, "an integer leaves 64 bits");
    *out = value_int((int64_t)f);
    return 0;
}

static int no_number(struct eval *ev, const struct value *v)
{
    return eval_fail(ev, ERR_FORMAT, "\"%.*s\" is undefined", str_shown(v->s, 60), v->s.p);
}

/* int(text, base): -1 when it is no such number, ERR_LIMIT when it leaves 64 bits */
static int text_to_int(struct eval *ev, struct str s, int64_t base, struct value *out)
{
    char text[128];
    char *end;
    bool prefixed = false;
    s = str_strip(s, NULL, true, true);
    if (s.n == 0 || s.n >= sizeof text || memchr(s.p, '_', s.n) || memchr(s.p, 0, s.n))
        return -1;
    memcpy(text, s.p, s.n);
    text[s.n] = 0;
    char *digits = text + (text[0] == '-' || text[0] == '+');
    char letter = digits[0] == '0' ? (char)(digits[1] | 32) : 0;
    prefixed = (letter == 'x' && (base == 16 || base == 0)) ||
               ((letter == 'o' || letter == 'b') && (base == 0 || base == (letter == 'o' ? 8 : 2)));
    if (prefixed && letter != 'x') {
        base = letter == 'o' ? 8 : 2;
        memmove(digits, digits + 2, strlen(digits + 2) + 1);
    } else if (base == 0 && !prefixed) {
        base = 10;
        if (digits[0] == '0' && strspn(digits, "0") != strlen(digits))
            return -1;
    }
    if (*digits == '-' || *digits == '+' || *digits == ' ')
        return -1;
    errno = 0;
    *out = value_int(strtoll(text, &end, (int)base));
    if (*end || end == text)
        return -1;
    return errno == ERANGE ? eval_fail(ev, ERR_LIMIT, "an integer leaves 64 bits") : 0;
}

FILTER(f_int)
{
    bool is_int;
    int64_t i, base;
    double f;
    int rc = builtin_arg_int(ev, a->bound[1], 10, &base);
    *out = a->bound[0] ? *a->bound[0] : value_int(0);
    if (rc)
        return rc;
    if (v->type == VALUE_UNDEFINED)
        return no_number(ev, v);
    if (value_is_integer(v))
        *out = value_int(value_as_int(v));
    else if (v->type == VALUE_FLOAT)
        return float_to_int(ev, v->f, out);
    else if (v->type == VALUE_STRING && base != 10 && base >= 0 && base <= 36 && base != 1) {
        struct value n;
        rc = text_to_int(ev, v->s, base, &n);
        if (rc == 0)
            *out = n;
        if (rc != -1)
            return rc;
    }
    if (v->type == VALUE_STRING && out->type != VALUE_UNDEFINED &&
        str_number(v->s, &is_int, &i, &f) == 0) {
        if (!is_int && !isfinite(f)) /* int(float("inf")): the default, too */
            return isnan(f) ? 0
                            : eval_fail(ev, ERR_FORMAT, "cannot convert infinity to an integer");
        if (!is_int)
            return float_to_int(ev, f, out);
        *out = value_int(i);
    }
    return 0;
}

FILTER(f_float)
{
    bool is_int;
    int64_t i;
    double f;
    *out = a->bound[0] ? *a->bound[0] : (struct value){.type = VALUE_FLOAT, .f = 0};
    if (v->type == VALUE_UNDEFINED)
        return no_number(ev, v);
    if (value_is_number(v))
        *out = (struct value){.type = VALUE_FLOAT, .f = value_as_float(v)};
    else if (v->type == VALUE_STRING && str_number(v->s, &is_int, &i, &f) == 0)
        *out = (struct value){.type = VALUE_FLOAT, .f = f};
    return 0;
}

FILTER(f_abs)
{
    if (!value_is_number(v))
        return eval_fail(ev, ERR_FORMAT, "abs of a %s", value_type_name(v));
    *out = v->type == VALUE_BOOL ? value_int(v->b) : *v;
    bool negative = v->type == VALUE_FLOAT ? signbit(v->f) : value_as_int(v) < 0;
    return negative ? eval_negative(ev, v, out) : 0;
}

/* Python's round(): the decimal digits of the exact value, halves to even. */
static int round_common(struct eval *ev, const struct value *v, int64_t digits, struct value *out)
{
    if (value_is_integer(v) && digits >= 0) {
        *out = value_int(value_as_int(v));
        return 0;
    }
    double scale = pow(10, (double)-digits);
    if (value_is_integer(v)) {
        int64_t i = value_as_int(v), unit = digits > -19 ? (int64_t)scale : 0;
        if (!unit || i > INT64_MAX / 4 || i < INT64_MIN / 4) {
            *out = value_int(0);
            return unit ? eval_fail(ev, ERR_LIMIT, "an integer leaves 64 bits") : 0;
        }
        int64_t down = i - ((i % unit) + unit) % unit, rest = i - down;
        bool up = rest > unit - rest || (rest == unit - rest && (down / unit) % 2 != 0);
        *out = value_int(up ? down + unit : down);
        return 0;
    }
    char text[800];
    double f = v->f;
    if (isfinite(f) && digits >= 0) {
        snprintf(text, sizeof text, "%.*f", (int)digits, f);
        f = strtod(text, NULL);
    } else if (isfinite(f)) {
        f = nearbyint(f / scale) * scale;
    }
    *out = (struct value){.type = VALUE_FLOAT, .f = f};
    return 0;
}

FILTER(f_round)
{
    int64_t digits;
    struct str how;
    int rc = builtin_arg_int(ev, a->bound[0], 0, &digits);
    if (rc == 0)
        rc = builtin_arg_str(ev, a->bound[1], STR("common"), &how);
    if (rc)
        return rc;
    bool ceiling = str_is(how, "ceil"), down = str_is(how, "floor");
    if (!value_is_number(v) || digits < -300 || digits > 300)
        return eval_fail(ev, ERR_FORMAT, "round of a %s", value_type_name(v));
    if (!ceiling && !down && !str_is(how, "common"))
        return eval_fail(ev, ERR_FORMAT, "round: method must be common, ceil or floor");
    if (!ceiling && !down)
        return round_common(ev, v, digits, out);
    double scale = digits < 0 ? 1 / pow(10, (double)-digits) : pow(10, (double)digits);
    double f = value_as_float(v) * scale;
    if (!isfinite(f))
        return eval_fail(ev, ERR_FORMAT, "cannot round a number that is not finite");
    f = (ceiling ? ceil(f) : floor(f)) / scale;
    *out = (struct value){.type = VALUE_FLOAT, .f = f == 0 ? 0 : f};
    return 0;
}

FILTER(f_items)
{
    if (v->type == VALUE_UNDEFINED) {
        struct list *none = list_new(ev, LIST_GENERATOR);
        *out = value_list(none);
        return none ? 0 : eval_nomem(ev);
    }
    if (v->type != VALUE_DICT)
        return eval_fail(ev, ERR_FORMAT, "items of a %s", value_type_name(v));
    struct args no_args = {0};
    int rc = builtin_call(ev, method_find(VALUE_DICT, STR("items")), v, &no_args, out);
    if (rc == 0)
        out->list->kind = LIST_GENERATOR;
    return rc;
}

const struct builtin *filter_find(struct str name)
{
    static const struct builtin TABLE[] = {
        {"abs", f_abs, ""},
        {"capitalize", f_capitalize, ""},
        {"count", f_length, ""},
        {"d", f_default, "?default_value,boolean"},
        {"default", f_default, "?default_value,boolean"},
        {"float", f_float, "?default"},
        {"indent", f_indent, "?width,first,blank"},
        {"int", f_int, "?default,base"},
        {"items", f_items, ""},
        {"length", f_length, ""},
        {"lower", f_lower, ""},
        {"replace", f_replace, "old,new,?count"},
        {"round", f_round, "?precision,method"},
        {"safe", f_string, ""},
        {"string", f_string, ""},
        {"title", f_title, ""},
        {"tojson", f_tojson, "?ensure_ascii,indent,separators,sort_keys"},
        {"trim", f_trim, "?chars"},
        {"upper", f_upper, ""},
    };
    const struct builtin *b = builtin_find(TABLE, BUILTIN_COUNT(TABLE), name);
    b = b ? b : filter_find_list(name);
    b = b ? b : filter_find_more(name);
    return b ? b : filter_find_library(name);
}
