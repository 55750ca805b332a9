/* template_test.c - what may follow "is". */
#include "text/template_internal.h"

#define TEST(name)                                                                                 \
    static int name(struct eval *ev, const struct value *v, const struct args *a, struct value *out)

static int answer(struct value *out, bool yes)
{
    *out = value_bool(yes);
    return 0;
}

TEST(is_defined)
{
    return answer(out, v->type != VALUE_UNDEFINED);
}

TEST(is_undefined)
{
    return answer(out, v->type == VALUE_UNDEFINED);
}

TEST(is_none)
{
    return answer(out, v->type == VALUE_NONE);
}

TEST(is_string)
{
    return answer(out, v->type == VALUE_STRING);
}

TEST(is_mapping)
{
    return answer(out, v->type == VALUE_DICT);
}

TEST(is_iterable)
{
    return answer(out, v->type == VALUE_STRING || v->type == VALUE_LIST || v->type == VALUE_DICT ||
                           v->type == VALUE_UNDEFINED || v->type == VALUE_LOOP);
}

TEST(is_sequence)
{
    bool sequence = v->type == VALUE_LIST && v->list->kind <= LIST_RANGE;
    return answer(out, sequence || v->type == VALUE_STRING || v->type == VALUE_DICT ||
                           v->type == VALUE_UNDEFINED);
}

TEST(is_number)
{
    return answer(out, value_is_number(v));
}

TEST(is_integer)
{
    return answer(out, v->type == VALUE_INT);
}

TEST(is_float)
{
    return answer(out, v->type == VALUE_FLOAT);
}

TEST(is_boolean)
{
    return answer(out, v->type == VALUE_BOOL);
}

TEST(is_true)
{
    return answer(out, v->type == VALUE_BOOL && v->b);
}

TEST(is_false)
{
    return answer(out, v->type == VALUE_BOOL && !v->b);
}

TEST(is_callable)
{
    return answer(out, v->type == VALUE_CALLABLE || v->type == VALUE_LOOP ||
                           v->type == VALUE_UNDEFINED); /* as Jinja */
}

/* "is a filter": the name of one */
TEST(is_filter)
{
    int rc = value_check_key(ev, v);
    return rc ? rc : answer(out, v->type == VALUE_STRING && filter_find(v->s));
}

TEST(is_test)
{
    int rc = value_check_key(ev, v);
    return rc ? rc : answer(out, v->type == VALUE_STRING && test_find(v->s));
}

TEST(is_escaped)
{
    return answer(out, false); /* there is no markup here */
}

static int is_case(struct eval *ev, const struct value *v, const char *method, struct value *out)
{
    struct value text = value_str(STR(""));
    struct args none = {0};
    int rc = value_to_str(ev, v, &text.s);
    const struct builtin *b = method_find(VALUE_STRING, (struct str){method, strlen(method)});
    return rc ? rc : builtin_call(ev, b, &text, &none, out);
}

TEST(is_lower)
{
    return is_case(ev, v, "islower", out);
}

TEST(is_upper)
{
    return is_case(ev, v, "isupper", out);
}

static int remainder_is(struct eval *ev, const struct value *v, const struct value *by,
                        int64_t want, struct value *out)
{
    struct value rest, wanted = value_int(want);
    out->type = VALUE_BOOL;
    if (v->type == VALUE_UNDEFINED || by->type == VALUE_UNDEFINED)
        return eval_undefined(ev, v->type == VALUE_UNDEFINED ? v : by);
    int rc = eval_binary(ev, '%', v, by, &rest);
    return rc ? rc : value_equal(ev, &rest, &wanted, &out->b);
}

TEST(is_odd)
{
    struct value two = value_int(2);
    return remainder_is(ev, v, &two, 1, out);
}

TEST(is_even)
{
    struct value two = value_int(2);
    return remainder_is(ev, v, &two, 0, out);
}

TEST(is_divisibleby)
{
    return remainder_is(ev, v, a->bound[0], 0, out);
}

TEST(is_equal)
{
    out->type = VALUE_BOOL;
    return value_equal(ev, v, a->bound[0], &out->b);
}

TEST(is_unequal)
{
    int rc = is_equal(ev, v, a, out);
    out->b = !out->b;
    return rc;
}

TEST(is_in)
{
    out->type = VALUE_BOOL;
    return value_contains(ev, a->bound[0], v, &out->b);
}

/* "is same object": values are copied here, so it means same type and equal, or the same list. */
TEST(is_sameas)
{
    const struct value *other = a->bound[0];
    if (v->type != other->type)
        return answer(out, false);
    if (v->type == VALUE_LIST || v->type == VALUE_DICT)
        return answer(out, v->list == other->list);
    return is_equal(ev, v, a, out);
}

static int ordered(struct eval *ev, const struct value *v, const struct args *a, int *order)
{
    return value_compare(ev, v, a->bound[0], order);
}

TEST(is_less)
{
    int order = 0, rc = ordered(ev, v, a, &order);
    *out = value_bool(order < 0);
    return rc;
}

TEST(is_at_most)
{
    int order = 0, rc = ordered(ev, v, a, &order);
    *out = value_bool(order <= 0);
    return rc;
}

TEST(is_greater)
{
    int order = 0, rc = ordered(ev, v, a, &order);
    *out = value_bool(order > 0);
    return rc;
}

TEST(is_at_least)
{
    int order = 0, rc = ordered(ev, v, a, &order);
    *out = value_bool(order >= 0);
    return rc;
}

const struct builtin *test_find(struct str name)
{
    static const struct builtin TABLE[] = {
        {"defined", is_defined, ""},
        {"undefined", is_undefined, ""},
        {"none", is_none, ""},
        {"string", is_string, ""},
        {"mapping", is_mapping, ""},
        {"iterable", is_iterable, ""},
        {"sequence", is_sequence, ""},
        {"number", is_number, ""},
        {"integer", is_integer, ""},
        {"float", is_float, ""},
        {"boolean", is_boolean, ""},
        {"true", is_true, ""},
        {"false", is_false, ""},
        {"callable", is_callable, ""},
        {"lower", is_lower, ""},
        {"upper", is_upper, ""},
        {"odd", is_odd, ""},
        {"even", is_even, ""},
        {"divisibleby", is_divisibleby, "num"},
        {"filter", is_filter, ""},
        {"test", is_test, ""},
        {"escaped", is_escaped, ""},
        {"in", is_in, "seq"},
        {"sameas", is_sameas, "other"},
        {"eq", is_equal, "other"},
        {"equalto", is_equal, "other"},
        {"==", is_equal, "other"},
        {"ne", is_unequal, "other"},
        {"!=", is_unequal, "other"},
        {"lt", is_less, "other"},
        {"lessthan", is_less, "other"},
        {"<", is_less, "other"},
        {"le", is_at_most, "other"},
        {"<=", is_at_most, "other"},
        {"gt", is_greater, "other"},
        {"greaterthan", is_greater, "other"},
        {">", is_greater, "other"},
        {"ge", is_at_least, "other"},
        {">=", is_at_least, "other"},
    };
    return builtin_find(TABLE, BUILTIN_COUNT(TABLE), name);
}
