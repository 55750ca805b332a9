/* template_arith.c - operators with Python's meaning; integers that leave 64 bits are an error,
 * not a wrap. */
#include "text/template_internal.h"

#include <math.h>

static struct value value_float(double f)
{
    return (struct value){.type = VALUE_FLOAT, .f = f};
}

static int too_large(struct eval *ev)
{
    return eval_fail(ev, ERR_LIMIT, "an integer leaves 64 bits");
}

static int float_power(struct eval *ev, double a, double b, struct value *out)
{
    double v = pow(a, b);
    *out = value_float(v);
    if (a == 0 && b < 0)
        return eval_fail(ev, ERR_FORMAT, "division by zero");
    if (isfinite(a) && isfinite(b) && isnan(v))
        return eval_fail(ev, ERR_LIMIT, "a power is no real number");
    return isfinite(a) && isfinite(b) && isinf(v)
               ? eval_fail(ev, ERR_FORMAT, "a power is too large for a float")
               : 0;
}

static int int_power(struct eval *ev, int64_t base, int64_t exp, struct value *out)
{
    int64_t v = 1;
    if (base == 0 || base == 1) {
        *out = value_int(exp == 0 ? 1 : base);
        return 0;
    }
    if (base == -1) {
        *out = value_int(exp % 2 ? -1 : 1);
        return 0;
    }
    for (; exp > 0; exp--) /* at most 63 rounds before it overflows */
        if (__builtin_mul_overflow(v, base, &v))
            return too_large(ev);
    *out = value_int(v);
    return 0;
}

static int int_divide(struct eval *ev, int op, int64_t a, int64_t b, struct value *out)
{
    if (b == 0)
        return eval_fail(ev, ERR_FORMAT, "division by zero");
    if (op == '/') {
        *out = value_float((double)a / (double)b);
        return 0;
    }
    if (a == INT64_MIN && b == -1) {
        if (op == '%')
            *out = value_int(0);
        return op == '%' ? 0 : too_large(ev);
    }
    int64_t q = a / b, r = a % b;
    if (r != 0 && (r < 0) != (b < 0)) { /* Python rounds down, C towards zero */
        q--;
        r += b;
    }
    *out = value_int(op == '%' ? r : q);
    return 0;
}

static int int_binary(struct eval *ev, int op, int64_t a, int64_t b, struct value *out)
{
    int64_t v = 0;
    bool over = false;
    switch (op) {
    case '+':
        over = __builtin_add_overflow(a, b, &v);
        break;
    case '-':
        over = __builtin_sub_overflow(a, b, &v);
        break;
    case '*':
        over = __builtin_mul_overflow(a, b, &v);
        break;
    case OP2('*', '*'):
        if (b >= 0)
            return int_power(ev, a, b, out);
        return float_power(ev, (double)a, (double)b, out);
    default:
        return int_divide(ev, op, a, b, out);
    }
    *out = value_int(v);
    return over ? too_large(ev) : 0;
}

static double float_mod(double a, double b)
{
    double r = fmod(a, b);
    if (r == 0)
        return copysign(0, b);
    return (r < 0) != (b < 0) ? r + b : r;
}

/* As CPython: the quotient of what the remainder leaves is nearly whole. */
static double float_floor_divide(double a, double b)
{
    double r = fmod(a, b), q = (a - r) / b;
    if (r != 0 && (r < 0) != (b < 0))
        q -= 1;
    if (q == 0)
        return copysign(0, a / b);
    double whole = floor(q);
    return q - whole > 0.5 ? whole + 1 : whole;
}

static int float_binary(struct eval *ev, int op, double a, double b, struct value *out)
{
    if (b == 0 && (op == '/' || op == '%' || op == OP2('/', '/')))
        return eval_fail(ev, ERR_FORMAT, "division by zero");
    double v;
    switch (op) {
    case '+':
        v = a + b;
        break;
    case '-':
        v = a - b;
        break;
    case '*':
        v = a * b;
        break;
    case '/':
        v = a / b;
        break;
    case '%':
        v = float_mod(a, b);
        break;
    case OP2('/', '/'):
        v = float_floor_divide(a, b);
        break;
    default:
        return float_power(ev, a, b, out);
    }
    *out = value_float(v);
    return 0;
}

static int repeat_string(struct eval *ev, struct str s, int64_t times, struct value *out)
{
    struct builder b = {.ev = ev};
    for (int64_t i = 0; s.n && i < times && !b.rc; i++) {
        build_put(&b, s);
        if (!b.rc)
            b.rc = eval_steps(ev, 1);
    }
    struct str text;
    int rc = build_done(&b, &text);
    *out = value_str(text);
    return rc;
}

static int append_items(struct eval *ev, struct list *to, const struct list *from)
{
    int rc = eval_steps(ev, from->n);
    for (size_t i = 0; rc == 0 && i < from->n; i++)
        rc = list_push(ev, to, &from->items[i]);
    return rc;
}

static int repeat_list(struct eval *ev, const struct list *l, int64_t times, struct value *out)
{
    struct list *made = list_new(ev, l->kind);
    int rc = made ? 0 : eval_nomem(ev);
    for (int64_t i = 0; rc == 0 && l->n && i < times; i++)
        rc = append_items(ev, made, l);
    *out = value_list(made);
    return rc;
}

static bool is_sequence(const struct value *v)
{
    return v->type == VALUE_STRING || (v->type == VALUE_LIST && v->list->kind <= LIST_TUPLE);
}

static int add_sequences(struct eval *ev, const struct value *a, const struct value *b,
                         struct value *out)
{
    if (a->type == VALUE_STRING) {
        struct builder join = {.ev = ev};
        build_put(&join, a->s);
        build_put(&join, b->s);
        struct str text;
        int rc = build_done(&join, &text);
        *out = value_str(text);
        return rc;
    }
    struct list *made = list_new(ev, a->list->kind);
    if (!made)
        return eval_nomem(ev);
    int rc = append_items(ev, made, a->list);
    if (rc == 0)
        rc = append_items(ev, made, b->list);
    *out = value_list(made);
    return rc;
}

int eval_binary(struct eval *ev, int op, const struct value *a, const struct value *b,
                struct value *out)
{
    if (value_is_number(a) && value_is_number(b)) {
        if (a->type == VALUE_FLOAT || b->type == VALUE_FLOAT)
            return float_binary(ev, op, value_as_float(a), value_as_float(b), out);
        return int_binary(ev, op, value_as_int(a), value_as_int(b), out);
    }
    if (op == '%' && a->type == VALUE_STRING)
        return format_percent(ev, a->s, b, out);
    if (op == '+' && a->type == b->type && is_sequence(a) && is_sequence(b) &&
        (a->type == VALUE_STRING || a->list->kind == b->list->kind))
        return add_sequences(ev, a, b, out);
    if (op == '*' &&
        ((is_sequence(a) && value_is_integer(b)) || (is_sequence(b) && value_is_integer(a)))) {
        const struct value *seq = is_sequence(a) ? a : b;
        int64_t times = value_as_int(is_sequence(a) ? b : a);
        return seq->type == VALUE_STRING ? repeat_string(ev, seq->s, times, out)
                                         : repeat_list(ev, seq->list, times, out);
    }
    char shown[3] = {(char)(op > 255 ? op >> 8 : op), (char)(op > 255 ? op & 255 : 0), 0};
    return eval_fail(ev, ERR_FORMAT, "cannot apply %s to %s and %s", shown, value_type_name(a),
                     value_type_name(b));
}

int eval_negative(struct eval *ev, const struct value *v, struct value *out)
{
    if (v->type == VALUE_FLOAT) {
        *out = value_float(-v->f);
        return 0;
    }
    if (!value_is_integer(v))
        return eval_fail(ev, ERR_FORMAT, "a %s has no sign", value_type_name(v));
    if (value_as_int(v) == INT64_MIN)
        return too_large(ev);
    *out = value_int(-value_as_int(v));
    return 0;
}
