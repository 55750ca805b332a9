/* json_grammar.c - see json_grammar.h. Source: RFC 8259. */
#include "text/json_grammar.h"

#include <string.h>

static struct ir *one_of(struct ir_builder *b, const char *chars)
{
    struct cp_range r[64];
    size_t n = 0;
    for (; chars[n] && n < 64; n++)
        r[n] = (struct cp_range){(unsigned char)chars[n], (unsigned char)chars[n]};
    return ir_set(b, cp_set_of(b, r, n));
}

static struct ir *digits(struct ir_builder *b)
{
    return ir_repeat(b, ir_set(b, CP_SET(b, {'0', '9'})), 1, IR_INF);
}

static struct ir *hex(struct ir_builder *b, uint32_t n)
{
    struct cp_set set = CP_SET(b, {'0', '9'}, {'a', 'f'}, {'A', 'F'});
    return ir_repeat(b, ir_set(b, set), n, n);
}

/* *rule + 1 names the rule; body is made when it is new. Returns a call, or NULL. */
static struct ir *shared(struct json_rules *j, uint32_t *rule, const char *name,
                         struct ir *(*body)(struct json_rules *))
{
    if (!*rule) {
        uint32_t r = ir_rule_new(j->b, name, strlen(name));
        if (j->b->rc)
            return NULL;
        *rule = r + 1; /* before the body, which may need it */
        struct ir *x = body(j);
        j->b->rules[r].body = x;
        j->b->rules[r].apart = true;
    }
    return j->b->rc ? NULL : ir_call(j->b, *rule - 1);
}

static struct ir *space_body(struct json_rules *j)
{
    struct ir *indent = ir_repeat(j->b, one_of(j->b, " \t"), 0, JSON_INDENT);
    return ir_optional(j->b,
                       ir_alt(j->b, ir_text(j->b, " "), ir_seq(j->b, ir_text(j->b, "\n"), indent)));
}

struct ir *json_space(struct json_rules *j)
{
    return shared(j, &j->space, "white space", space_body);
}

struct ir *json_char(struct json_rules *j)
{
    struct ir_builder *b = j->b;
    struct cp_set plain = cp_set_not(b, CP_SET(b, {0, 0x1F}, {'"', '"'}, {'\\', '\\'}));
    struct cp_set not_d = CP_SET(b, {'0', '9'}, {'a', 'c'}, {'A', 'C'}, {'e', 'f'}, {'E', 'F'});
    struct ir *d = one_of(b, "dD");
    struct ir *unit = ir_alt(b, ir_seq(b, ir_set(b, not_d), hex(b, 3)),
                             ir_seq(b, d, one_of(b, "01234567"), hex(b, 2)));
    struct ir *high = ir_seq(b, one_of(b, "dD"), one_of(b, "89abAB"), hex(b, 2));
    struct ir *low = ir_seq(b, one_of(b, "dD"), one_of(b, "cdefCDEF"), hex(b, 2));
    struct ir *pair = ir_seq(b, high, ir_text(b, "\\u"), low); /* half a pair is no character */
    struct ir *coded = ir_seq(b, ir_text(b, "u"), ir_alt(b, unit, pair));
    return ir_alt(b, ir_set(b, plain),
                  ir_seq(b, ir_text(b, "\\"), ir_alt(b, one_of(b, "\"\\/bfnrt"), coded)));
}

static struct ir *string_body(struct json_rules *j)
{
    return ir_seq(j->b, ir_text(j->b, "\""), ir_repeat(j->b, json_char(j), 0, IR_INF),
                  ir_text(j->b, "\""));
}

struct ir *json_string(struct json_rules *j)
{
    return shared(j, &j->string, "string", string_body);
}

static struct ir *number_body(struct json_rules *j)
{
    struct ir_builder *b = j->b;
    struct ir *zero = ir_text(b, "0");
    struct ir *more = ir_repeat(b, ir_set(b, CP_SET(b, {'0', '9'})), 0, IR_INF);
    struct ir *whole = ir_alt(b, zero, ir_seq(b, ir_set(b, CP_SET(b, {'1', '9'})), more));
    struct ir *fraction = ir_optional(b, ir_seq(b, ir_text(b, "."), digits(b)));
    struct ir *sign = ir_optional(b, one_of(b, "+-"));
    struct ir *power = ir_optional(b, ir_seq(b, one_of(b, "eE"), sign, digits(b)));
    return ir_seq(b, ir_optional(b, ir_text(b, "-")), whole, fraction, power);
}

struct ir *json_number(struct json_rules *j)
{
    return shared(j, &j->number, "number", number_body);
}

struct ir *json_comma(struct json_rules *j)
{
    return ir_seq(j->b, ir_text(j->b, ","), json_space(j));
}

struct ir *json_member(struct json_rules *j, struct ir *key, struct ir *value)
{
    return ir_seq(j->b, key, ir_text(j->b, ":"), json_space(j), value);
}

struct ir *json_braces(struct json_rules *j, const char *open, struct ir *inside, bool empty,
                       const char *close)
{
    struct ir *filled = ir_seq(j->b, inside, json_space(j));
    return ir_seq(j->b, ir_text(j->b, open), json_space(j),
                  empty ? ir_optional(j->b, filled) : filled, ir_text(j->b, close));
}

static struct ir *list_of(struct json_rules *j, struct ir *first, struct ir *again)
{
    return ir_seq(j->b, first, ir_repeat(j->b, ir_seq(j->b, json_comma(j), again), 0, IR_INF));
}

struct ir *json_any_object(struct json_rules *j)
{
    struct ir *first = json_member(j, json_string(j), json_value(j));
    struct ir *again = json_member(j, json_string(j), json_value(j));
    return json_braces(j, "{", list_of(j, first, again), true, "}");
}

struct ir *json_any_array(struct json_rules *j)
{
    return json_braces(j, "[", list_of(j, json_value(j), json_value(j)), true, "]");
}

static struct ir *value_body(struct json_rules *j)
{
    struct ir_builder *b = j->b;
    return ir_alt(b, json_string(j), json_number(j), ir_text(b, "true"), ir_text(b, "false"),
                  ir_text(b, "null"), json_any_object(j), json_any_array(j));
}

struct ir *json_value(struct json_rules *j)
{
    return shared(j, &j->value, "value", value_body);
}

struct ir *json_object_build(struct ir_builder *b)
{
    struct json_rules j = {.b = b};
    return json_any_object(&j);
}
