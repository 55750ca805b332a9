/* template_format.c - Python's "…" % args.
 *
 * Source: Python library reference, "printf-style String Formatting".
 */
#include "text/template_format.h"

#include "text/utf8.h"

#include <stdio.h>

static const struct format_spec SPEC_NONE = {.fill = {" ", 1}, .width = -1, .precision = -1};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Digits at s[*at]; -1: none. */
static int read_number(struct eval *ev, struct str s, size_t *at, int64_t *out)
{
    *out = -1;
    for (; *at < s.n && is_digit(s.p[*at]); ++*at) {
        *out = (*out < 0 ? 0 : *out) * 10 + (s.p[*at] - '0');
        if (*out > FORMAT_MAX_WIDTH)
            return eval_fail(ev, ERR_LIMIT, "a width above %d", FORMAT_MAX_WIDTH);
    }
    return 0;
}

int format_converted(struct eval *ev, const struct value *v, char how, struct str *out)
{
    struct builder b = {.ev = ev};
    if (how != 'r' && how != 'a')
        return value_to_str(ev, v, out);
    build_value(&b, v, true);
    int rc = build_done(&b, out);
    struct builder ascii = {.ev = ev};
    for (size_t i = 0; how == 'a' && rc == 0 && i < out->n && !ascii.rc;) {
        uint32_t cp;
        size_t len = utf8_next(out->p + i, &cp);
        char text[16];
        int n = snprintf(text, sizeof text,
                         cp < 0x100     ? "\\x%02x"
                         : cp < 0x10000 ? "\\u%04x"
                                        : "\\U%08x",
                         cp);
        build_put(&ascii,
                  cp < 0x80 ? (struct str){out->p + i, len} : (struct str){text, (size_t)n});
        i += len;
    }
    return how == 'a' && rc == 0 ? build_done(&ascii, out) : rc;
}

static struct str cut_to(struct str s, int64_t characters)
{
    size_t n = 0;
    for (uint32_t cp; characters > 0 && n < s.n; characters--)
        n += utf8_next(s.p + n, &cp);
    return (struct str){s.p, n};
}

/* ---- "…" % args ---- */

struct percent {
    struct eval *ev;
    struct builder b;
    struct str format;
    size_t at;
    const struct value *args;
    const struct value *items; /* what is taken one by one */
    size_t n_items, taken;
};

static int next_arg(struct percent *p, const struct value **out)
{
    if (p->taken >= p->n_items)
        return eval_fail(p->ev, ERR_FORMAT, "not enough arguments for the format string");
    *out = &p->items[p->taken++];
    return 0;
}

/* "(name)" after the percent sign: the value of that key. */
static int keyed_arg(struct percent *p, struct value *out)
{
    size_t from = ++p->at, open = 1;
    for (; p->at < p->format.n && open; p->at++)
        open += (p->format.p[p->at] == '(') - (p->format.p[p->at] == ')');
    if (open)
        return eval_fail(p->ev, ERR_FORMAT, "a key of the format string has no end");
    struct value key = value_str((struct str){p->format.p + from, p->at - 1 - from});
    const struct value *found = NULL;
    if (p->args->type != VALUE_DICT)
        return eval_fail(p->ev, ERR_FORMAT, "the format string requires a mapping");
    int rc = dict_get(p->ev, p->args->dict, &key, &found);
    if (rc == 0 && !found)
        return eval_fail(p->ev, ERR_FORMAT, "the format string names a key that is not there");
    if (rc == 0)
        *out = *found;
    return rc;
}

/* A number, or '*' for the next argument. */
static int percent_number(struct percent *p, int64_t *out)
{
    if (p->at >= p->format.n || p->format.p[p->at] != '*')
        return read_number(p->ev, p->format, &p->at, out);
    const struct value *v = NULL;
    int rc = next_arg(p, &v);
    p->at++;
    if (rc == 0 && !value_is_integer(v))
        return eval_fail(p->ev, ERR_FORMAT, "* wants an integer");
    if (rc == 0)
        *out = value_as_int(v);
    return rc == 0 && *out > FORMAT_MAX_WIDTH
               ? eval_fail(p->ev, ERR_LIMIT, "a width above %d", FORMAT_MAX_WIDTH)
               : rc;
}

static int percent_spec(struct percent *p, struct format_spec *s)
{
    bool left = false;
    for (; p->at < p->format.n && strchr("-+ #0", p->format.p[p->at]) && p->format.p[p->at];
         p->at++) {
        char c = p->format.p[p->at];
        left = left || c == '-';
        s->alternate = s->alternate || c == '#';
        s->zero = s->zero || c == '0';
        if (c == '+' || (c == ' ' && !s->sign))
            s->sign = c;
    }
    int rc = percent_number(p, &s->width);
    if (rc == 0 && s->width < -1) {
        s->width = s->width < -FORMAT_MAX_WIDTH ? FORMAT_MAX_WIDTH : -s->width;
        left = true;
    }
    if (rc == 0 && p->at < p->format.n && p->format.p[p->at] == '.') {
        p->at++;
        rc = percent_number(p, &s->precision);
        s->precision = s->precision < 0 ? 0 : s->precision;
    }
    while (p->at < p->format.n && strchr("hlL", p->format.p[p->at]) && p->format.p[p->at])
        p->at++;
    if (left) {
        s->align = '<';
        s->zero = false;
    }
    return rc;
}

static int percent_int(struct percent *p, const struct value *v, struct format_spec *s)
{
    struct value whole = *v;
    bool decimal = s->type == 'd' || s->type == 'i' || s->type == 'u';
    if (v->type == VALUE_FLOAT && decimal) {
        if (!(v->f > -9.2e18 && v->f < 9.2e18))
            return eval_fail(p->ev, ERR_LIMIT, "an integer leaves 64 bits");
        whole = value_int((int64_t)v->f);
    }
    if (!value_is_integer(&whole))
        return eval_fail(p->ev, ERR_FORMAT, "%%%c format: a number is required, not %s", s->type,
                         value_type_name(v));
    if (decimal)
        s->type = 'd';
    if (s->precision > 60)
        return eval_fail(p->ev, ERR_LIMIT, "a number with %lld digits", (long long)s->precision);
    if (s->precision > 0) { /* at least so many digits: zeros in front of them, then the width */
        struct builder digits = {.ev = p->ev};
        struct format_spec plain = SPEC_NONE;
        struct str text;
        plain.type = s->type;
        plain.sign = s->sign;
        plain.alternate = s->alternate;
        plain.zero = true;
        bool has_sign = value_as_int(&whole) < 0 || s->sign;
        plain.width = s->precision + has_sign + (s->alternate && s->type != 'd' ? 2 : 0);
        int rc = format_number(p->ev, &whole, &plain, &digits);
        if (rc == 0)
            rc = build_done(&digits, &text);
        if (rc == 0 && s->zero && s->width > (int64_t)text.n) {
            plain.width = s->width;
            return format_number(p->ev, &whole, &plain, &p->b);
        }
        return rc ? rc : format_padded(p->ev, text, s, '>', &p->b);
    }
    return format_number(p->ev, &whole, s, &p->b);
}

static int percent_char(struct percent *p, const struct value *v, const struct format_spec *s)
{
    char text[4];
    struct str one = {text, 0};
    if (v->type == VALUE_STRING && utf8_length(v->s.p, v->s.n) == 1)
        one = v->s;
    else if (value_is_integer(v) && value_as_int(v) >= 0 && value_as_int(v) <= 0x10FFFF &&
             (value_as_int(v) & ~0x7FFLL) != 0xD800)
        one.n = utf8_encode((uint32_t)value_as_int(v), text);
    else
        return eval_fail(p->ev, ERR_FORMAT, "%%c requires an integer or a character");
    return format_padded(p->ev, one, s, '>', &p->b);
}

static int percent_one(struct percent *p, const struct value *v, struct format_spec *s)
{
    struct str text;
    int rc;
    switch (s->type) {
    case 's':
    case 'r':
    case 'a':
        rc = format_converted(p->ev, v, s->type, &text);
        if (rc == 0 && s->precision >= 0)
            text = cut_to(text, s->precision);
        return rc ? rc : format_padded(p->ev, text, s, '>', &p->b);
    case 'c':
        return percent_char(p, v, s);
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
        return percent_int(p, v, s);
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        if (!value_is_number(v))
            return eval_fail(p->ev, ERR_FORMAT, "must be a real number, not %s",
                             value_type_name(v));
        return format_number(p->ev, v, s, &p->b);
    default:
        return eval_fail(p->ev, ERR_FORMAT, "unsupported format character");
    }
}

static int percent_field(struct percent *p)
{
    struct format_spec s = SPEC_NONE;
    struct value keyed;
    const struct value *v = NULL;
    int rc = 0;
    if (p->at < p->format.n && p->format.p[p->at] == '%') {
        p->at++;
        build_repeat(&p->b, '%', 1);
        return 0;
    }
    if (p->at < p->format.n && p->format.p[p->at] == '(') {
        rc = keyed_arg(p, &keyed);
        v = &keyed;
    }
    if (rc == 0)
        rc = percent_spec(p, &s);
    if (rc)
        return rc;
    if (p->at >= p->format.n)
        return eval_fail(p->ev, ERR_FORMAT, "incomplete format");
    s.type = p->format.p[p->at++];
    if (!v)
        rc = next_arg(p, &v);
    return rc ? rc : percent_one(p, v, &s);
}

int format_percent(struct eval *ev, struct str format, const struct value *args, struct value *out)
{
    bool tuple = args->type == VALUE_LIST && args->list->kind == LIST_TUPLE;
    struct percent p = {.ev = ev,
                        .b = {.ev = ev},
                        .format = format,
                        .args = args,
                        .items = tuple ? args->list->items : args,
                        .n_items = tuple ? args->list->n : 1};
    bool subscripted = !tuple && (args->type == VALUE_LIST || args->type == VALUE_DICT ||
                                  args->type == VALUE_UNDEFINED);
    int rc = 0;
    while (p.at < format.n && rc == 0 && !p.b.rc) {
        const char *sign = memchr(format.p + p.at, '%', format.n - p.at);
        size_t to = sign ? (size_t)(sign - format.p) : format.n;
        build_put(&p.b, (struct str){format.p + p.at, to - p.at});
        p.at = to + (sign != NULL);
        if (sign)
            rc = percent_field(&p);
        if (rc == 0)
            rc = eval_steps(ev, 1);
    }
    if (rc == 0 && p.taken < p.n_items && !subscripted)
        rc = eval_fail(ev, ERR_FORMAT, "not all arguments converted by the format string");
    out->type = VALUE_STRING;
    return rc ? rc : build_done(&p.b, &out->s);
}
