/* template_number.c - numbers as Python's format specifications lay them out. */
#include "text/template_format.h"

#include "text/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { NUMBER_BYTES = 1024 }; /* 309 digits before the point, 300 after it, a separator a triple */

int format_padded(struct eval *ev, struct str text, const struct format_spec *s, char align,
                  struct builder *b)
{
    int64_t n = (int64_t)utf8_length(text.p, text.n);
    int64_t missing = s->width > n ? s->width - n : 0;
    char how = s->align ? s->align : align;
    int64_t left = how == '<' ? 0 : how == '^' ? missing / 2 : missing;
    for (int64_t i = 0; i < left && !b->rc; i++)
        build_put(b, s->fill);
    build_put(b, text);
    for (int64_t i = left; i < missing && !b->rc; i++)
        build_put(b, s->fill);
    return b->rc ? b->rc : eval_steps(ev, (uint64_t)missing / 4);
}

/* Digits of a whole number without its sign; the letters of its base go in front with '#'. */
static void int_digits(uint64_t u, char type, char *out)
{
    char reversed[72];
    size_t n = 0;
    unsigned base = type == 'b' ? 2 : type == 'o' ? 8 : type == 'x' || type == 'X' ? 16 : 10;
    const char *digits = type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    do {
        reversed[n++] = digits[u % base];
        u /= base;
    } while (u);
    for (size_t i = 0; i < n; i++)
        out[i] = reversed[n - 1 - i];
    out[n] = 0;
}

/* repr's digits at the precision, as 'g' but with a point: "1.0", "1e+16" */
static void float_plain(double v, int precision, char *out)
{
    char sci[FORMAT_MAX_FLOAT_DIGITS + 40];
    precision = precision ? precision : 1;
    snprintf(sci, sizeof sci, "%.*e", precision - 1, v);
    int exp = (int)strtol(strchr(sci, 'e') + 1, NULL, 10);
    snprintf(out, NUMBER_BYTES, "%.*g", precision, v);
    if (exp >= -4 && exp < precision - 1) {
        if (!strchr(out, '.'))
            memcpy(out + strlen(out), ".0", 3);
    } else if (!strchr(out, 'e')) { /* one digit less than 'g' allows before the point */
        char *e = strchr(sci, 'e'), *end = e;
        while (memchr(sci, '.', (size_t)(end - sci)) && (end[-1] == '0' || end[-1] == '.')) {
            end--;
            if (*end == '.')
                break;
        }
        snprintf(out, NUMBER_BYTES, "%.*s%s", (int)(end - sci), sci, e);
    }
}

/* A finite float without its sign. */
static int float_digits(struct eval *ev, double v, const struct format_spec *s, char *out)
{
    char type = s->type == '%' ? 'f' : s->type == 'n' ? 'g' : s->type;
    int precision = s->precision < 0 ? 6 : (int)s->precision;
    if (s->precision > FORMAT_MAX_FLOAT_DIGITS)
        return eval_fail(ev, ERR_LIMIT, "a number with more than %d digits",
                         FORMAT_MAX_FLOAT_DIGITS);
    if (type == 0 && s->precision >= 0) {
        float_plain(v, precision, out);
        return 0;
    }
    if (type == 0) {
        struct value f = {.type = VALUE_FLOAT, .f = v};
        struct str text;
        int rc = value_to_str(ev, &f, &text);
        snprintf(out, NUMBER_BYTES, "%.*s", (int)text.n, text.p);
        return rc;
    }
    char format[8];
    snprintf(format, sizeof format, "%%%s.*%c", s->alternate ? "#" : "", type);
    snprintf(out, NUMBER_BYTES, format, precision, v);
    return 0;
}

/* Separators between groups of the whole part; zeros in front up to `width` characters in all
 * take part in the groups. */
static void grouped(char *digits, const struct format_spec *s, size_t group, size_t zeros)
{
    char out[NUMBER_BYTES * 2];
    size_t whole = strspn(digits, "0123456789abcdefABCDEF"), n = 0;
    if (strchr("eEfFgG%n", s->type ? s->type : 'g'))
        whole = strspn(digits, "0123456789");
    size_t total = whole > zeros ? whole : zeros;
    for (size_t i = 0; i < total; i++) {
        if (i && (total - i) % group == 0)
            out[n++] = s->comma;
        out[n++] = i < total - whole ? '0' : digits[i - (total - whole)];
    }
    snprintf(out + n, sizeof out - n, "%s", digits + whole);
    memcpy(digits, out, strlen(out) + 1);
}

/* Whole digits that fill `room` characters with their separators, as Python counts them. */
static size_t zeros_for(size_t room, size_t group)
{
    size_t n = 1;
    while (n + (n - 1) / group < room)
        n++;
    return n;
}

static int lay_out(struct eval *ev, const struct format_spec *s, const char *sign,
                   const char *prefix, char *digits, struct builder *b)
{
    bool by_zero = s->zero && (!s->align || s->align == '=');
    if (s->comma) {
        size_t group = s->type == 'b' || s->type == 'o' || s->type == 'x' || s->type == 'X' ? 4 : 3;
        size_t whole = strspn(digits, "0123456789abcdefABCDEF");
        size_t rest = strlen(digits) - whole + strlen(sign) + strlen(prefix);
        size_t room = by_zero && s->width > (int64_t)rest && s->width < NUMBER_BYTES
                          ? (size_t)s->width - rest
                          : 0;
        grouped(digits, s, group, room ? zeros_for(room, group) : 0);
    }
    struct str body = {digits, strlen(digits)};
    if (!by_zero && s->align != '=') {
        char text[NUMBER_BYTES * 2 + 8];
        int n = snprintf(text, sizeof text, "%s%s%s", sign, prefix, digits);
        return format_padded(ev, (struct str){text, (size_t)n}, s, '>', b);
    }
    struct format_spec inner = *s;
    inner.width -= (int64_t)(strlen(sign) + strlen(prefix));
    inner.align = '>';
    if (by_zero)
        inner.fill = s->align == '=' ? s->fill : STR("0");
    build_put(b, (struct str){sign, strlen(sign)});
    build_put(b, (struct str){prefix, strlen(prefix)});
    return format_padded(ev, body, &inner, '>', b);
}

int format_number(struct eval *ev, const struct value *v, const struct format_spec *s,
                  struct builder *b)
{
    char digits[NUMBER_BYTES * 2];
    bool is_float = v->type == VALUE_FLOAT || (s->type && strchr("eEfFgG%", s->type));
    bool negative;
    const char *prefix = "";
    if (is_float) {
        double f = value_as_float(v) * (s->type == '%' ? 100 : 1);
        bool upper = s->type == 'E' || s->type == 'F' || s->type == 'G';
        negative = signbit(f) && !isnan(f);
        int rc = 0;
        if (isfinite(f))
            rc = float_digits(ev, fabs(f), s, digits);
        else
            snprintf(digits, sizeof digits, "%s",
                     isnan(f) ? upper ? "NAN" : "nan"
                     : upper  ? "INF"
                              : "inf");
        if (rc)
            return rc;
        if (s->type == '%')
            memcpy(digits + strlen(digits), "%", 2);
    } else {
        int64_t i = value_as_int(v);
        negative = i < 0;
        int_digits(i < 0 ? 0 - (uint64_t)i : (uint64_t)i, s->type, digits);
        if (s->alternate)
            prefix = s->type == 'x'   ? "0x"
                     : s->type == 'X' ? "0X"
                     : s->type == 'o' ? "0o"
                     : s->type == 'b' ? "0b"
                                      : "";
    }
    const char *sign = negative ? "-" : s->sign == '+' ? "+" : s->sign == ' ' ? " " : "";
    return lay_out(ev, s, sign, prefix, digits, b);
}
