/* json_schema.c - from a schema to an expression: references, combinations, types, literals. See json_schema.h. */
#include "text/json_schema.h"

#include <stdio.h>
#include <string.h>

/* ---- places and faults ---- */

void *schema_fail(struct schema *c, int code, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return ir_fail(c->b, code, "json schema, at #%.120s: %s", buf_cstr(&c->path), text);
}

bool schema_step(struct schema *c)
{
    if (++c->steps > SCHEMA_MAX_STEPS)
        schema_fail(c, ERR_LIMIT, "more than %d sub-schemas come of it", SCHEMA_MAX_STEPS);
    return !c->b->rc;
}

size_t schema_enter(struct schema *c, const char *key)
{
    size_t mark = c->path.len;
    buf_puts(&c->path, "/");
    buf_puts(&c->path, key);
    return mark;
}

void schema_leave(struct schema *c, size_t mark)
{
    c->path.len = mark;
}

json_t *schema_keep(struct schema *c, json_t *made)
{
    if (!made || json_array_append_new(c->pool, made))
        return ir_fail(c->b, ERR_NOMEM, "json schema: no memory");
    return made;
}

/* ---- keywords ---- */

static bool is_in(const char *key, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(key, *list) == 0)
            return true;
    return false;
}

static const char *const SUPPORTED[] = {"type",
                                        "enum",
                                        "const",
                                        "$ref",
                                        "allOf",
                                        "anyOf",
                                        "oneOf",
                                        "nullable",
                                        "properties",
                                        "required",
                                        "items",
                                        "minLength",
                                        "maxLength",
                                        "pattern",
                                        "format",
                                        "minimum",
                                        "maximum",
                                        "multipleOf",
                                        "prefixItems",
                                        "additionalItems",
                                        "minItems",
                                        "maxItems",
                                        "uniqueItems",
                                        "propertyNames",
                                        "additionalProperties",
                                        "minProperties",
                                        "maxProperties",
                                        "patternProperties",
                                        "exclusiveMinimum",
                                        "exclusiveMaximum",
                                        NULL};
static const char *const ANNOTATIONS[] = {"title",
                                          "description",
                                          "default",
                                          "examples",
                                          "example",
                                          "$comment",
                                          "$schema",
                                          "$id",
                                          "id",
                                          "$defs",
                                          "definitions",
                                          "deprecated",
                                          "readOnly",
                                          "writeOnly",
                                          "contentEncoding",
                                          "contentMediaType",
                                          "contentSchema",
                                          "$anchor",
                                          "$vocabulary",
                                          "discriminator",
                                          "xml",
                                          "externalDocs",
                                          NULL};

bool schema_constrains(const char *key)
{
    return !is_in(key, ANNOTATIONS) && strncmp(key, "x-", 2) != 0;
}

bool schema_check_keywords(struct schema *c, json_t *s)
{
    const char *key;
    json_t *value;
    json_object_foreach(s, key, value)
    {
        if (schema_constrains(key) && !is_in(key, SUPPORTED)) {
            schema_fail(c, ERR_CONFIG, "the keyword \"%.60s\" is not supported", key);
            return false;
        }
    }
    return true;
}

bool schema_has_constraints(json_t *s)
{
    const char *key;
    json_t *value;
    json_object_foreach(s, key, value)
    {
        if (schema_constrains(key))
            return true;
    }
    return false;
}

bool schema_count(struct schema *c, json_t *s, const char *key, uint32_t *value)
{
    json_t *x = json_object_get(s, key);
    if (!x)
        return false;
    double d = json_number_value(x);
    if (!json_is_number(x) || d < 0 || d != (double)(json_int_t)d) {
        schema_fail(c, ERR_FORMAT, "\"%s\" is not a number of things", key);
        return false;
    }
    if (d > c->b->limits->max_repeat) {
        schema_fail(c, ERR_LIMIT, "\"%s\" is %.0f, at most %u", key, d, c->b->limits->max_repeat);
        return false;
    }
    *value = (uint32_t)d;
    return true;
}

/* ---- combinations ---- */

static struct ir *build_alternatives(struct schema *c, json_t *s, const char *key)
{
    json_t *list = json_object_get(s, key), *rest = schema_without(c, s, key);
    bool one = strcmp(key, "oneOf") == 0, beside = rest && schema_has_constraints(rest);
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n == 0)
        return schema_fail(c, ERR_FORMAT, "\"%s\" is not a list of schemas", key);
    json_t **made = ir_alloc(c->b, n * sizeof *made);
    struct ir_vec parts = {0};
    for (size_t i = 0; i < n && !c->b->rc; i++) {
        json_t *x = json_array_get(list, i);
        made[i] = beside ? schema_merge(c, rest, schema_resolve(c, x)) : x;
        for (size_t k = 0; one && k < i && !c->b->rc; k++)
            if (!schema_disjoint(c, made[k], made[i]))
                return schema_fail(c, ERR_CONFIG,
                                   "\"oneOf\": alternatives %zu and %zu may both hold, which cannot"
                                   " be ruled out here; use \"anyOf\"",
                                   k + 1, i + 1);
        ir_push(c->b, &parts, schema_build_at(c, key, made[i]));
    }
    return c->b->rc ? NULL : ir_list(c->b, IR_ALT, parts.kids, parts.n);
}

/* ---- literals ---- */

static struct ir *literal_object(struct schema *c, const json_t *value)
{
    struct json_rules *j = &c->json;
    struct ir_vec parts = {0};
    const char *key;
    json_t *item;
    json_object_foreach((json_t *)value, key, item)
    {
        if (parts.n)
            ir_push(c->b, &parts, json_ir_comma(j));
        ir_push(
            c->b, &parts,
            json_ir_member(j, json_ir_literal(c->b, key, strlen(key)), schema_literal(c, item)));
    }
    struct ir *inside = c->b->rc ? NULL : ir_list(c->b, IR_SEQ, parts.kids, parts.n);
    return parts.n ? json_ir_braces(j, "{", inside, false, "}") : ir_text(c->b, "{}");
}

static struct ir *literal_array(struct schema *c, const json_t *value)
{
    struct ir_vec parts = {0};
    json_t *item;
    size_t i;
    json_array_foreach(value, i, item)
    {
        if (i)
            ir_push(c->b, &parts, json_ir_comma(&c->json));
        ir_push(c->b, &parts, schema_literal(c, item));
    }
    struct ir *inside = c->b->rc ? NULL : ir_list(c->b, IR_SEQ, parts.kids, parts.n);
    return parts.n ? json_ir_braces(&c->json, "[", inside, false, "]") : ir_text(c->b, "[]");
}

struct ir *schema_literal(struct schema *c, const json_t *value)
{
    char number[64];
    if (c->b->rc || !schema_step(c))
        return NULL;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return literal_object(c, value);
    case JSON_ARRAY:
        return literal_array(c, value);
    case JSON_STRING:
        return json_ir_literal(c->b, json_string_value(value), json_string_length(value));
    case JSON_INTEGER:
    case JSON_REAL:
        decimal_print(value, number, sizeof number);
        return ir_text(c->b, number);
    case JSON_TRUE:
        return ir_text(c->b, "true");
    case JSON_FALSE:
        return ir_text(c->b, "false");
    default:
        return ir_text(c->b, "null");
    }
}

static struct ir *build_values(struct schema *c, json_t *s)
{
    json_t *list = json_object_get(s, "enum"), *one = json_object_get(s, "const"), *item;
    struct ir_vec parts = {0};
    size_t i;
    if (list && !json_is_array(list))
        return schema_fail(c, ERR_FORMAT, "\"enum\" is not a list");
    if (!list && schema_admits(c, s, one))
        return schema_literal(c, one);
    json_array_foreach(list, i, item)
    {
        bool chosen = !one || json_equal(one, item);
        if (chosen && schema_admits(c, s, item))
            ir_push(c->b, &parts, schema_literal(c, item));
    }
    return c->b->rc ? NULL : ir_list(c->b, IR_ALT, parts.kids, parts.n);
}

/* ---- one schema ---- */

static struct ir *build_types(struct schema *c, json_t *s)
{
    struct ir_vec parts = {0};
    unsigned types = schema_types(c, s);
    struct ir_builder *b = c->b;
    if (b->rc)
        return NULL;
    if (types == TYPE_ANY && !schema_has_constraints(s))
        return json_ir_value(&c->json);
    if (types & TYPE_NULL)
        ir_push(b, &parts, ir_text(b, "null"));
    if (types & TYPE_BOOLEAN)
        ir_push(b, &parts, ir_alt(b, ir_text(b, "true"), ir_text(b, "false")));
    if (types & (TYPE_INTEGER | TYPE_NUMBER))
        ir_push(b, &parts, schema_number(c, s, !(types & TYPE_NUMBER)));
    if (types & TYPE_STRING)
        ir_push(b, &parts, schema_string(c, s));
    if (types & TYPE_ARRAY)
        ir_push(b, &parts, schema_array(c, s));
    if (types & TYPE_OBJECT)
        ir_push(b, &parts, schema_object(c, s));
    return b->rc ? NULL : ir_list(b, IR_ALT, parts.kids, parts.n);
}

static struct ir *build_one(struct schema *c, json_t *s)
{
    if (json_is_true(s))
        return json_ir_value(&c->json);
    if (json_is_false(s))
        return ir_none(c->b);
    if (!json_is_object(s))
        return schema_fail(c, ERR_FORMAT, "a schema is an object, true or false");
    if (!schema_check_keywords(c, s))
        return NULL;
    if (json_object_get(s, "$ref")) {
        json_t *rest = schema_without(c, s, "$ref");
        if (rest && !schema_has_constraints(rest))
            return schema_call(c, s);
        s = schema_resolve(c, s);
        return s ? schema_build(c, s) : NULL;
    }
    if (json_object_get(s, "allOf")) {
        s = schema_fold(c, s);
        return s ? schema_build(c, s) : NULL;
    }
    if (json_object_get(s, "anyOf"))
        return build_alternatives(c, s, "anyOf");
    if (json_object_get(s, "oneOf"))
        return build_alternatives(c, s, "oneOf");
    if (json_object_get(s, "enum") || json_object_get(s, "const"))
        return build_values(c, s);
    return build_types(c, s);
}

struct ir *schema_build(struct schema *c, json_t *s)
{
    if (c->b->rc || !s || !schema_step(c))
        return NULL;
    if (++c->depth > c->b->limits->max_nesting)
        return schema_fail(c, ERR_LIMIT, "nested deeper than %u", c->b->limits->max_nesting);
    struct ir *x = build_one(c, s);
    c->depth--;
    return x;
}

struct ir *schema_build_at(struct schema *c, const char *key, json_t *s)
{
    size_t mark = schema_enter(c, key);
    struct ir *x = schema_build(c, s);
    schema_leave(c, mark);
    return x;
}

struct ir *json_schema_parse(struct ir_builder *b, const char *text, size_t n)
{
    json_error_t error;
    json_t *root =
        json_loadb(text, n, JSON_ALLOW_NUL | JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return ir_fail(b, ERR_FORMAT, "json schema: %s (line %d)", error.text, error.line);
    struct schema c = {
        .b = b, .json = {.b = b}, .root = root, .pool = json_array(), .source_bytes = n};
    buf_init(&c.path, 1 << 16);
    struct ir *x =
        c.pool ? schema_build(&c, root) : ir_fail(b, ERR_NOMEM, "json schema: no memory");
    json_decref(c.pool);
    json_decref(root);
    buf_fini(&c.path);
    return x;
}
