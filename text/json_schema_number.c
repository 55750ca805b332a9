/* json_schema_number.c - numbers between bounds and multiples, as languages of decimal digits.
 *
 * Bounded numbers are written without an exponent: then their order is the order of digits. -0 is not written where bounds are.
 */
#include "text/json_schema.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- decimals ---- */

void decimal_print(const json_t *number, char *out, size_t cap)
{
    if (json_is_integer(number)) {
        snprintf(out, cap, "%" JSON_INTEGER_FORMAT, json_integer_value(number));
        return;
    }
    double d = json_real_value(number);
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(out, cap, "%.*g", digits, d);
        if (strtod(out, NULL) == d)
            break;
    }
    if (!strpbrk(out, ".eE") && strlen(out) + 3 < cap)
        strcat(out, ".0"); /* a real stays one */
}

bool decimal_of(const json_t *value, struct decimal *d)
{
    char text[64], digits[64];
    size_t n = 0;
    long point = 0;
    decimal_print(value, text, sizeof text);
    const char *p = text;
    memset(d, 0, sizeof *d);
    d->negative = *p == '-';
    p += d->negative;
    bool fraction = false;
    for (; *p && *p != 'e' && *p != 'E'; p++) {
        if (*p == '.') {
            fraction = true;
            continue;
        }
        digits[n++] = *p;
        point += !fraction;
    }
    if (*p)
        point += strtol(p + 1, NULL, 10);
    if (point > 380 || point < -380)
        return false;
    size_t w = 0, f = 0;
    for (long i = point < 0 ? point : 0; i < point || i < (long)n; i++) {
        char digit = i >= 0 && i < (long)n ? digits[i] : '0';
        if (i < point && (w || digit != '0'))
            d->whole[w++] = digit;
        else if (i >= point)
            d->fraction[f++] = digit;
    }
    while (f && d->fraction[f - 1] == '0')
        d->fraction[--f] = 0;
    if (!w)
        d->whole[0] = '0';
    if (d->whole[0] == '0' && !f)
        d->negative = false;
    return true;
}

static int compare_size(const struct decimal *x, const struct decimal *y)
{
    size_t a = strlen(x->whole), b = strlen(y->whole);
    if (a != b)
        return a < b ? -1 : 1;
    int c = strcmp(x->whole, y->whole);
    return c ? c : strcmp(x->fraction, y->fraction);
}

int decimal_compare(const struct decimal *x, const struct decimal *y)
{
    if (x->negative != y->negative)
        return x->negative ? -1 : 1;
    int c = compare_size(x, y);
    return x->negative ? -c : c;
}

/* ---- languages of digits, without a sign ---- */

static struct ir *digit_range(struct ir_builder *b, char lo, char hi)
{
    return lo > hi ? ir_none(b) : ir_set(b, CP_SET(b, {(unsigned char)lo, (unsigned char)hi}));
}

static struct ir *any_digits(struct ir_builder *b, uint32_t min, uint32_t max)
{
    return ir_repeat(b, digit_range(b, '0', '9'), min, max);
}

static struct ir *any_fraction(struct ir_builder *b, bool integer)
{
    return integer ? ir_empty(b)
                   : ir_optional(b, ir_seq(b, ir_text(b, "."), any_digits(b, 1, IR_INF)));
}

static struct ir *any_whole(struct ir_builder *b)
{
    return ir_alt(b, ir_text(b, "0"),
                  ir_seq(b, digit_range(b, '1', '9'), any_digits(b, 0, IR_INF)));
}

static struct ir *not_all_zero(struct ir_builder *b)
{
    return ir_seq(b, ir_repeat(b, ir_text(b, "0"), 0, IR_INF), digit_range(b, '1', '9'),
                  any_digits(b, 0, IR_INF));
}

/* Whole parts of as many digits that differ from a first at digit i, and are above or below it there. */
static struct ir *differ_at(struct ir_builder *b, const char *a, size_t i, bool above)
{
    size_t n = strlen(a);
    char lo = above ? (char)(a[i] + 1) : (i == 0 && n > 1) ? '1' : '0';
    char hi = above ? '9' : (char)(a[i] - 1);
    uint32_t left = (uint32_t)(n - i - 1);
    return ir_seq(b, ir_bytes(b, a, i), digit_range(b, lo, hi), any_digits(b, left, left));
}

static struct ir *whole_beyond(struct ir_builder *b, const char *a, bool above)
{
    struct ir_vec parts = {0};
    uint32_t n = (uint32_t)strlen(a);
    for (size_t i = 0; i < n; i++)
        ir_push(b, &parts, differ_at(b, a, i, above));
    if (above) {
        ir_push(b, &parts, ir_seq(b, digit_range(b, '1', '9'), any_digits(b, n, IR_INF)));
    } else if (n > 1) {
        ir_push(b, &parts, ir_text(b, "0"));
        ir_push(b, &parts, ir_seq(b, digit_range(b, '1', '9'), any_digits(b, 0, n - 2)));
    }
    return b->rc ? NULL : ir_list(b, IR_ALT, parts.kids, parts.n);
}

/* Fractions (with the point) not below f, or above it. */
static struct ir *fraction_from(struct ir_builder *b, const char *f, bool strict)
{
    struct ir *point = ir_text(b, ".");
    if (!*f)
        return strict ? ir_seq(b, point, not_all_zero(b)) : any_fraction(b, false);
    struct ir_vec parts = {0};
    for (size_t i = 0; f[i]; i++)
        ir_push(b, &parts,
                ir_seq(b, ir_bytes(b, f, i), digit_range(b, (char)(f[i] + 1), '9'),
                       any_digits(b, 0, IR_INF)));
    ir_push(b, &parts,
            ir_seq(b, ir_text(b, f), strict ? not_all_zero(b) : any_digits(b, 0, IR_INF)));
    return b->rc ? NULL : ir_seq(b, point, ir_list(b, IR_ALT, parts.kids, parts.n));
}

static struct ir *fraction_upto(struct ir_builder *b, const char *f, bool strict)
{
    struct ir *point = ir_text(b, "."), *zeros = ir_repeat(b, ir_text(b, "0"), 0, IR_INF);
    if (!*f)
        return strict ? ir_none(b) : ir_optional(b, ir_seq(b, point, ir_text(b, "0"), zeros));
    struct ir_vec parts = {0};
    for (size_t i = 0; f[i]; i++) {
        ir_push(b, &parts,
                ir_seq(b, ir_bytes(b, f, i), digit_range(b, '0', (char)(f[i] - 1)),
                       any_digits(b, 0, IR_INF)));
        if (i)
            ir_push(b, &parts, ir_bytes(b, f, i));
    }
    if (!strict)
        ir_push(b, &parts, ir_seq(b, ir_text(b, f), zeros));
    return b->rc ? NULL : ir_optional(b, ir_seq(b, point, ir_list(b, IR_ALT, parts.kids, parts.n)));
}

static struct ir *size_from(struct ir_builder *b, const struct decimal *d, bool strict,
                            bool integer)
{
    struct ir *more = ir_seq(b, whole_beyond(b, d->whole, true), any_fraction(b, integer));
    struct ir *same = integer ? (*d->fraction || strict ? ir_none(b) : ir_empty(b))
                              : fraction_from(b, d->fraction, strict);
    return ir_alt(b, more, ir_seq(b, ir_text(b, d->whole), same));
}

static struct ir *size_upto(struct ir_builder *b, const struct decimal *d, bool strict,
                            bool integer)
{
    struct ir *less = ir_seq(b, whole_beyond(b, d->whole, false), any_fraction(b, integer));
    struct ir *same = integer ? (!*d->fraction && strict ? ir_none(b) : ir_empty(b))
                              : fraction_upto(b, d->fraction, strict);
    return ir_alt(b, less, ir_seq(b, ir_text(b, d->whole), same));
}

/* ---- bounds ---- */

struct bound {
    bool given, strict;
    struct decimal at;
};
struct number_form {
    bool integer;
    uint32_t multiple; /* 0: any; a whole number */
    uint32_t places;   /* digits after the point; 0: any number */
    struct bound lo, hi;
};

static bool read_bound(struct schema *c, json_t *s, const char *key, const char *exclusive,
                       struct bound *out)
{
    json_t *x = json_object_get(s, key), *y = json_object_get(s, exclusive);
    struct bound plain = {0}, strict = {0};
    bool high = strcmp(key, "maximum") == 0;
    if ((x && !json_is_number(x)) || (y && !json_is_number(y) && !json_is_boolean(y)))
        return schema_fail(c, ERR_FORMAT, "\"%s\" is not a number",
                           x && json_is_number(x) ? exclusive : key) != NULL;
    plain.given = x != NULL;
    plain.strict = json_is_true(y); /* as draft 4 had it */
    strict.given = strict.strict = json_is_number(y);
    if ((plain.given && !decimal_of(x, &plain.at)) || (strict.given && !decimal_of(y, &strict.at)))
        return schema_fail(c, ERR_LIMIT, "\"%s\" is too large", key) != NULL;
    *out = plain;
    if (strict.given) {
        int order = plain.given ? decimal_compare(&strict.at, &plain.at) : 0;
        if (!plain.given || order == 0 || (order < 0) == high)
            *out = strict;
    }
    return true;
}

static bool read_multiple(struct schema *c, json_t *s, struct number_form *f)
{
    enum { MOST = 1000 };
    json_t *x = json_object_get(s, "multipleOf");
    struct decimal d;
    if (!x)
        return true;
    if (!json_is_number(x) || !decimal_of(x, &d) || d.negative ||
        (d.whole[0] == '0' && !*d.fraction))
        return schema_fail(c, ERR_FORMAT, "\"multipleOf\" is not a number above 0") != NULL;
    size_t places = strlen(d.fraction);
    bool power = d.whole[0] == '0' && places && strspn(d.fraction, "0") == places - 1 &&
                 d.fraction[places - 1] == '1';
    if (power && f->integer)
        return true;
    if (power) {
        f->places = (uint32_t)places;
        return true;
    }
    if (places || strlen(d.whole) > 4 || atoi(d.whole) > MOST)
        return schema_fail(c, ERR_CONFIG,
                           "\"multipleOf\": whole numbers up to %d and 0.1, 0.01, … are supported",
                           MOST) != NULL;
    f->multiple = (uint32_t)atoi(d.whole);
    f->integer = true;
    return true;
}

/* Digits without a sign from lo to hi; either may be NULL. */
static struct ir *sizes(struct schema *c, const struct number_form *f, const struct bound *lo,
                        const struct bound *hi)
{
    struct ir_builder *b = c->b;
    struct ir *x = NULL;
    if (lo)
        x = size_from(b, &lo->at, lo->strict, f->integer);
    if (hi) {
        struct ir *y = size_upto(b, &hi->at, hi->strict, f->integer);
        x = x ? ir_and(b, x, y) : y;
    }
    if (!x)
        x = ir_seq(b, any_whole(b), any_fraction(b, f->integer));
    if (f->multiple > 1)
        x = ir_and(b, x, ir_multiple(b, f->multiple));
    if (f->places && !f->integer) {
        struct ir *few = ir_seq(b, ir_text(b, "."), any_digits(b, 1, f->places));
        x = ir_and(b, x, ir_seq(b, any_whole(b), ir_optional(b, few)));
    }
    return x;
}

static struct ir *numbers(struct schema *c, const struct number_form *f)
{
    struct ir_builder *b = c->b;
    static const struct bound ABOVE_ZERO = {true, true, {false, "0", ""}};
    const struct bound *lo = f->lo.given ? &f->lo : NULL, *hi = f->hi.given ? &f->hi : NULL;
    struct ir *positive = ir_none(b), *negative = ir_none(b);
    bool only_negative = hi && hi->at.negative;
    bool reaches_zero = !lo || lo->at.negative;
    if (!only_negative)
        positive = sizes(c, f, reaches_zero ? NULL : lo, hi);
    if (reaches_zero)
        negative = ir_seq(b, ir_text(b, "-"), sizes(c, f, only_negative ? hi : &ABOVE_ZERO, lo));
    return ir_alt(b, positive, negative);
}

struct ir *schema_number(struct schema *c, json_t *s, bool integer)
{
    struct number_form f = {.integer = integer};
    if (!read_bound(c, s, "minimum", "exclusiveMinimum", &f.lo) ||
        !read_bound(c, s, "maximum", "exclusiveMaximum", &f.hi) || !read_multiple(c, s, &f))
        return NULL;
    if (!f.lo.given && !f.hi.given && !f.multiple && !f.places && !integer)
        return json_ir_number(&c->json);
    return numbers(c, &f);
}
