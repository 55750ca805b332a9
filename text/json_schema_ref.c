/* json_schema_ref.c - references: JSON pointers into the schema (RFC 6901), followed or made into calls of rules. */
#include "text/json_schema.h"

#include <stdlib.h>
#include <string.h>

static int hex_value(char c)
{
    return c >= '0' && c <= '9'                     ? c - '0'
           : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                    : -1;
}

/* One part of a JSON pointer in a fragment: %HH, then ~1 and ~0 (RFC 6901). */
static void pointer_part(const char *p, size_t n, struct buf *out)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '%' && i + 2 < n + 0 && hex_value(p[i + 1]) >= 0 && hex_value(p[i + 2]) >= 0) {
            buf_u8(out, (uint8_t)(hex_value(p[i + 1]) << 4 | hex_value(p[i + 2])));
            i += 2;
        } else if (p[i] == '~' && i + 1 < n && (p[i + 1] == '0' || p[i + 1] == '1')) {
            buf_u8(out, p[++i] == '0' ? '~' : '/');
        } else {
            buf_u8(out, (uint8_t)p[i]);
        }
    }
}

json_t *schema_target(struct schema *c, const json_t *ref)
{
    const char *text = json_string_value(ref);
    if (!text)
        return schema_fail(c, ERR_FORMAT, "\"$ref\" is not a text");
    if (text[0] != '#' || (text[1] && text[1] != '/'))
        return schema_fail(c, ERR_CONFIG,
                           "\"$ref\" \"%.80s\": only references into the schema (\"#/…\") are"
                           " supported",
                           text);
    json_t *at = c->root;
    struct buf part;
    buf_init(&part, strlen(text) + 1);
    for (const char *p = text + 1; at && *p == '/';) {
        size_t n = strcspn(++p, "/");
        buf_reset(&part);
        pointer_part(p, n, &part);
        const char *name = buf_cstr(&part);
        at = json_is_array(at) ? json_array_get(at, (size_t)strtoul(name, NULL, 10))
                               : json_object_get(at, name);
        p += n;
    }
    buf_fini(&part);
    return at ? at : schema_fail(c, ERR_FORMAT, "\"$ref\" \"%.80s\" names nothing", text);
}

json_t *schema_resolve(struct schema *c, json_t *s)
{
    enum { MAX_HOPS = 64 };
    for (int hop = 0; json_is_object(s) && json_object_get(s, "$ref"); hop++) {
        if (hop == MAX_HOPS)
            return schema_fail(c, ERR_CONFIG, "\"$ref\" leads back to itself");
        json_t *target = schema_target(c, json_object_get(s, "$ref"));
        json_t *rest = target ? schema_without(c, s, "$ref") : NULL;
        if (!rest)
            return NULL;
        s = schema_has_constraints(rest) ? schema_merge(c, target, rest) : target;
        if (!s)
            return NULL;
    }
    return s;
}

/* A call to the rule of what is referred to: recursion ends here. */
struct ir *schema_call(struct schema *c, json_t *s)
{
    json_t *target = schema_target(c, json_object_get(s, "$ref"));
    if (!target)
        return NULL;
    for (size_t i = 0; i < c->n_refs; i++)
        if (c->refs[i].target == target)
            return ir_call(c->b, c->refs[i].rule);
    if (c->n_refs == c->cap_refs) {
        size_t cap = c->cap_refs ? c->cap_refs * 2 : 16;
        struct schema_ref *more = ir_alloc(c->b, cap * sizeof *more);
        if (!more)
            return NULL;
        if (c->n_refs)
            memcpy(more, c->refs, c->n_refs * sizeof *more);
        c->refs = more;
        c->cap_refs = cap;
    }
    const char *name = json_string_value(json_object_get(s, "$ref"));
    uint32_t rule = ir_rule_new(c->b, name, strlen(name));
    if (c->b->rc)
        return NULL;
    c->refs[c->n_refs++] = (struct schema_ref){target, rule};
    struct ir *body = schema_build(c, target);
    c->b->rules[rule].body = body;
    return body ? ir_call(c->b, rule) : NULL;
}
