/* json_schema_merge.c - two schemas that must both hold become one.
 *
 * Only the top is combined: where both have a schema for the same place, the two are joined by allOf and folded when that place
 * is built. So merging never recurses, and the number of steps bounds what a hostile schema can multiply.
 */
#include "text/json_schema.h"

#include <string.h>

/* Steps for an entry of an object that is copied: about 100 bytes, which stay in the pool. */
enum { ENTRY_STEPS = 64 };

static bool pay_entries(struct schema *c, const json_t *s)
{
    return ir_work(c->b, (uint64_t)ENTRY_STEPS * json_object_size(s));
}

/* Each of one list is sought in the other, or among both. */
static bool pay_lists(struct schema *c, const json_t *x, const json_t *y)
{
    uint64_t n = json_array_size(x), m = json_array_size(y);
    return ir_work(c->b, m * (n + m));
}

json_t *schema_without(struct schema *c, json_t *s, const char *key)
{
    if (!pay_entries(c, s))
        return NULL;
    json_t *copy = json_copy(s);
    if (copy)
        json_object_del(copy, key);
    return schema_keep(c, copy);
}

/* x allOf y, as one schema; both are borrowed, the result is new. */
static json_t *both(json_t *x, json_t *y)
{
    if (!x || json_is_true(x) || json_is_false(y) || json_equal(x, y))
        return json_incref(y);
    if (!y || json_is_true(y) || json_is_false(x))
        return json_incref(x);
    return json_pack("{s:[O,O]}", "allOf", x, y);
}

static json_t *as_list(json_t *x)
{
    return json_is_array(x) ? json_incref(x) : json_pack("[O]", x);
}

static bool list_has(json_t *list, json_t *x)
{
    json_t *item;
    size_t i;
    json_array_foreach(list, i, item)
    {
        if (json_equal(item, x))
            return true;
    }
    return false;
}

/* "type": what is in both; an integer is a number. */
static json_t *common_types(json_t *x, json_t *y)
{
    json_t *a = as_list(x), *b = as_list(y), *out = json_array(), *item;
    json_t *integer = json_string("integer"), *number = json_string("number");
    size_t i;
    json_array_foreach(a, i, item)
    {
        bool narrow = json_equal(item, number) && !list_has(b, number) && list_has(b, integer);
        if (narrow)
            json_array_append(out, integer);
        else if (list_has(b, item) || (json_equal(item, integer) && list_has(b, number)))
            json_array_append(out, item);
    }
    json_decref(a);
    json_decref(b);
    json_decref(integer);
    json_decref(number);
    return out;
}

static json_t *common_items(json_t *x, json_t *y)
{
    json_t *out = json_array(), *item;
    size_t i;
    json_array_foreach(x, i, item)
    {
        if (list_has(y, item))
            json_array_append(out, item);
    }
    return out;
}

static json_t *united(json_t *x, json_t *y)
{
    json_t *out = json_copy(x), *item;
    size_t i;
    json_array_foreach(y, i, item)
    {
        if (!list_has(out, item))
            json_array_append(out, item);
    }
    return out;
}

/* "properties" of x and y, and what additionalProperties of the other says about those that only one has. */
static json_t *merge_properties(json_t *x, json_t *y)
{
    json_t *px = json_object_get(x, "properties"), *py = json_object_get(y, "properties");
    json_t *ax = json_object_get(x, "additionalProperties"),
           *ay = json_object_get(y, "additionalProperties");
    json_t *out = json_object(), *value;
    const char *key;
    json_object_foreach(px, key, value)
    {
        json_t *other = json_object_get(py, key);
        json_object_set_new(out, key, both(value, other ? other : ay));
    }
    json_object_foreach(py, key, value)
    {
        if (!json_object_get(px, key))
            json_object_set_new(out, key, both(ax, value));
    }
    return out;
}

enum rule { KEEP_EQUAL, HIGHER, LOWER, BOTH, TYPES, COMMON, UNITED, EITHER, EACH, LISTED };
static const struct {
    const char *key;
    enum rule rule;
} RULES[] = {
    {"type", TYPES},
    {"enum", COMMON},
    {"required", UNITED},
    {"minimum", HIGHER},
    {"exclusiveMinimum", HIGHER},
    {"minLength", HIGHER},
    {"minItems", HIGHER},
    {"minProperties", HIGHER},
    {"maximum", LOWER},
    {"exclusiveMaximum", LOWER},
    {"maxLength", LOWER},
    {"maxItems", LOWER},
    {"maxProperties", LOWER},
    {"items", BOTH},
    {"additionalItems", BOTH},
    {"additionalProperties", BOTH},
    {"propertyNames", BOTH},
    {"uniqueItems", EITHER},
    {"nullable", EACH},
    {"pattern", LISTED},
};

static enum rule rule_of(const char *key)
{
    for (size_t i = 0; i < sizeof RULES / sizeof *RULES; i++)
        if (strcmp(RULES[i].key, key) == 0)
            return RULES[i].rule;
    return KEEP_EQUAL;
}

/* New, or NULL: cannot be combined. */
static json_t *merge_values(struct schema *c, const char *key, json_t *x, json_t *y)
{
    if (json_equal(x, y))
        return json_incref(x);
    if (!pay_lists(c, x, y))
        return NULL;
    switch (rule_of(key)) {
    case TYPES:
        return common_types(x, y);
    case COMMON:
        return common_items(x, y);
    case UNITED:
        return json_is_array(x) && json_is_array(y) ? united(x, y) : NULL;
    case HIGHER:
    case LOWER:
        if (!json_is_number(x) || !json_is_number(y))
            return NULL;
        return json_incref(
            (json_number_value(x) > json_number_value(y)) == (rule_of(key) == HIGHER) ? x : y);
    case BOTH:
        return both(x, y);
    case EITHER:
        return json_boolean(json_is_true(x) || json_is_true(y));
    case EACH:
        return json_boolean(json_is_true(x) && json_is_true(y));
    case LISTED: {
        json_t *a = as_list(x), *b = as_list(y), *out = united(a, b);
        json_decref(a);
        json_decref(b);
        return out;
    }
    default:
        return NULL;
    }
}

/* Every value is one or the other. */
static json_t *never_or(struct schema *c, json_t *x, json_t *y)
{
    if (json_is_false(x) || json_is_false(y))
        return schema_keep(c, json_false());
    return json_is_true(x) ? y : x;
}

static bool merge_key(struct schema *c, json_t *out, const char *key, json_t *value)
{
    json_t *mine = json_object_get(out, key);
    json_t *made = mine ? merge_values(c, key, mine, value) : json_incref(value);
    if (!made && strcmp(key, "const") == 0) { /* two values at once */
        json_object_del(out, "const");
        return json_object_set_new(out, "enum", json_array()) == 0;
    }
    if (!made) {
        schema_fail(c, ERR_CONFIG, "two different \"%.60s\" that must both hold are not supported",
                    key);
        return false;
    }
    return json_object_set_new(out, key, made) == 0;
}

static json_t *merge_objects(struct schema *c, json_t *x, json_t *y)
{
    if (!pay_entries(c, x) || !pay_entries(c, y) ||
        !pay_entries(c, json_object_get(x, "properties")) ||
        !pay_entries(c, json_object_get(y, "properties")) || !schema_check_keywords(c, x) ||
        !schema_check_keywords(c, y))
        return NULL;
    json_t *out = schema_keep(c, json_copy(x)), *value;
    const char *key;
    json_object_foreach(y, key, value)
    {
        if (!out || (strcmp(key, "properties") != 0 && schema_constrains(key) &&
                     !merge_key(c, out, key, value)))
            return NULL;
    }
    if (out && (json_object_get(x, "properties") || json_object_get(y, "properties")))
        json_object_set_new(out, "properties", merge_properties(x, y));
    return out;
}

/* References and allOf at the top are followed until there are none. */
static json_t *flat(struct schema *c, json_t *s)
{
    for (int hop = 0; hop < 64 && json_is_object(s); hop++) {
        if (json_object_get(s, "$ref"))
            s = schema_resolve(c, s);
        else if (json_object_get(s, "allOf"))
            s = schema_fold(c, s);
        else
            return s;
    }
    if (s && json_is_object(s))
        return schema_fail(c, ERR_CONFIG, "\"$ref\" leads back to itself");
    return s;
}

json_t *schema_merge(struct schema *c, json_t *x, json_t *y)
{
    json_t *out = NULL;
    /* comparing and copying takes as long as the schema is large */
    if (c->b->rc || !schema_step(c) || !ir_work(c->b, c->source_bytes / 16 + 16))
        return NULL;
    if (++c->depth > c->b->limits->max_nesting)
        return schema_fail(c, ERR_LIMIT, "nested deeper than %u, or \"$ref\" leads back to itself",
                           c->b->limits->max_nesting);
    x = flat(c, x);
    y = flat(c, y);
    if (x && y && (json_is_boolean(x) || json_is_boolean(y)))
        out = never_or(c, x, y);
    else if (x && y && (!json_is_object(x) || !json_is_object(y)))
        schema_fail(c, ERR_FORMAT, "a schema is an object, true or false");
    else if (x && y)
        out = merge_objects(c, x, y);
    c->depth--;
    return out;
}

json_t *schema_fold(struct schema *c, json_t *s)
{
    json_t *list = json_is_object(s) ? json_object_get(s, "allOf") : NULL, *item;
    size_t i;
    if (!s || !list)
        return s;
    if (!json_is_array(list) || json_array_size(list) == 0)
        return schema_fail(c, ERR_FORMAT, "\"allOf\" is not a list of schemas");
    if (++c->depth > c->b->limits->max_nesting)
        return schema_fail(c, ERR_LIMIT, "nested deeper than %u", c->b->limits->max_nesting);
    json_t *out = schema_without(c, s, "allOf");
    json_array_foreach(list, i, item)
    {
        out = schema_merge(c, out, schema_resolve(c, item));
    }
    c->depth--;
    return out;
}
