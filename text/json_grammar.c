/* json_grammar.c - see json_grammar.h. Source: RFC 8259. */
#include "text/json_grammar.h"

#include "base/buf.h"

#include <stdio.h>
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

struct ir *json_ir_space(struct json_rules *j)
{
    return shared(j, &j->space, "white space", space_body);
}

struct ir *json_ir_char(struct json_rules *j)
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

static struct cp_set set_minus(struct ir_builder *b, struct cp_set x, struct cp_set y)
{
    return cp_set_not(b, cp_set_union(b, cp_set_not(b, x), y));
}

/* The escape that a character must have; 0: none. */
static size_t must_escape(uint32_t cp, char out[8])
{
    static const char CHARS[] = "\"\\\b\f\n\r\t", LETTERS[] = "\"\\bfnrt";
    const char *at = cp < 0x80 && cp ? strchr(CHARS, (int)cp) : NULL;
    if (at)
        return (size_t)snprintf(out, 8, "\\%c", LETTERS[at - CHARS]);
    return cp < 0x20 ? (size_t)snprintf(out, 8, "\\u%04x", cp) : 0;
}

struct ir *json_ir_spell(struct ir_builder *b, struct cp_set set)
{
    struct cp_set special = CP_SET(b, {0, 0x1F}, {'"', '"'}, {'\\', '\\'});
    struct ir_vec parts = {0};
    ir_push(b, &parts, ir_set(b, set_minus(b, set, special)));
    for (uint32_t cp = 0; cp <= '\\'; cp++) {
        char escape[8];
        size_t n = cp_set_has(set, cp) ? must_escape(cp, escape) : 0;
        if (n)
            ir_push(b, &parts, ir_bytes(b, escape, n));
    }
    return b->rc ? NULL : ir_list(b, IR_ALT, parts.kids, parts.n);
}

struct ir *json_ir_literal(struct ir_builder *b, const char *text, size_t n)
{
    struct buf out;
    buf_init(&out, n * 6 + 2);
    buf_u8(&out, '"');
    for (size_t i = 0; i < n; i++) {
        char escape[8];
        size_t len = must_escape((unsigned char)text[i], escape);
        buf_put(&out, len ? escape : text + i, len ? len : 1);
    }
    buf_u8(&out, '"');
    struct ir *x = buf_ok(&out) ? ir_bytes(b, out.data, out.len)
                                : ir_fail(b, ERR_NOMEM, "json schema: no memory");
    buf_fini(&out);
    return x;
}

static struct ir *string_body(struct json_rules *j)
{
    return ir_seq(j->b, ir_text(j->b, "\""), ir_repeat(j->b, json_ir_char(j), 0, IR_INF),
                  ir_text(j->b, "\""));
}

struct ir *json_ir_string(struct json_rules *j)
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

struct ir *json_ir_number(struct json_rules *j)
{
    return shared(j, &j->number, "number", number_body);
}

struct ir *json_ir_comma(struct json_rules *j)
{
    return ir_seq(j->b, ir_text(j->b, ","), json_ir_space(j));
}

struct ir *json_ir_member(struct json_rules *j, struct ir *key, struct ir *value)
{
    return ir_seq(j->b, key, ir_text(j->b, ":"), json_ir_space(j), value);
}

struct ir *json_ir_braces(struct json_rules *j, const char *open, struct ir *inside, bool empty,
                          const char *close)
{
    struct ir *filled = ir_seq(j->b, inside, json_ir_space(j));
    return ir_seq(j->b, ir_text(j->b, open), json_ir_space(j),
                  empty ? ir_optional(j->b, filled) : filled, ir_text(j->b, close));
}

static struct ir *list_of(struct json_rules *j, struct ir *first, struct ir *again)
{
    return ir_seq(j->b, first, ir_repeat(j->b, ir_seq(j->b, json_ir_comma(j), again), 0, IR_INF));
}

struct ir *json_ir_any_object(struct json_rules *j)
{
    struct ir *first = json_ir_member(j, json_ir_string(j), json_ir_value(j));
    struct ir *again = json_ir_member(j, json_ir_string(j), json_ir_value(j));
    return json_ir_braces(j, "{", list_of(j, first, again), true, "}");
}

struct ir *json_ir_any_array(struct json_rules *j)
{
    return json_ir_braces(j, "[", list_of(j, json_ir_value(j), json_ir_value(j)), true, "]");
}

static struct ir *value_body(struct json_rules *j)
{
    struct ir_builder *b = j->b;
    return ir_alt(b, json_ir_string(j), json_ir_number(j), ir_text(b, "true"), ir_text(b, "false"),
                  ir_text(b, "null"), json_ir_any_object(j), json_ir_any_array(j));
}

struct ir *json_ir_value(struct json_rules *j)
{
    return shared(j, &j->value, "value", value_body);
}

struct ir *json_object_build(struct ir_builder *b)
{
    struct json_rules j = {.b = b};
    return json_ir_any_object(&j);
}
