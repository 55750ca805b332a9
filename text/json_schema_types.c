/* json_schema_types.c - which types a schema speaks of, whether a value keeps it, and whether two schemas exclude each other. */
#include "text/json_schema.h"

#include <string.h>

static unsigned type_named(const char *name)
{
    static const char *const NAMES[] = {"null",   "boolean", "integer", "number",
                                        "string", "array",   "object"};
    for (int i = 0; name && i < 7; i++)
        if (strcmp(name, NAMES[i]) == 0)
            return 1u << i;
    return 0;
}

unsigned schema_type_of(const json_t *value)
{
    double d = json_number_value(value);
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return TYPE_OBJECT;
    case JSON_ARRAY:
        return TYPE_ARRAY;
    case JSON_STRING:
        return TYPE_STRING;
    case JSON_INTEGER:
        return TYPE_INTEGER;
    case JSON_REAL:
        return d > -1e18 && d < 1e18 && d == (double)(json_int_t)d ? TYPE_INTEGER : TYPE_NUMBER;
    case JSON_NULL:
        return TYPE_NULL;
    default:
        return TYPE_BOOLEAN;
    }
}

/* A keyword that speaks of some types only: without "type", those are meant. */
static unsigned types_meant(json_t *s)
{
    static const struct {
        const char *key;
        unsigned types;
    } MEANT[] = {{"properties", TYPE_OBJECT},
                 {"required", TYPE_OBJECT},
                 {"additionalProperties", TYPE_OBJECT},
                 {"patternProperties", TYPE_OBJECT},
                 {"propertyNames", TYPE_OBJECT},
                 {"minProperties", TYPE_OBJECT},
                 {"maxProperties", TYPE_OBJECT},
                 {"items", TYPE_ARRAY},
                 {"prefixItems", TYPE_ARRAY},
                 {"additionalItems", TYPE_ARRAY},
                 {"minItems", TYPE_ARRAY},
                 {"maxItems", TYPE_ARRAY},
                 {"uniqueItems", TYPE_ARRAY},
                 {"minLength", TYPE_STRING},
                 {"maxLength", TYPE_STRING},
                 {"pattern", TYPE_STRING},
                 {"format", TYPE_STRING},
                 {"minimum", TYPE_NUMBER},
                 {"maximum", TYPE_NUMBER},
                 {"exclusiveMinimum", TYPE_NUMBER},
                 {"exclusiveMaximum", TYPE_NUMBER},
                 {"multipleOf", TYPE_NUMBER}};
    unsigned types = 0;
    for (size_t i = 0; i < sizeof MEANT / sizeof *MEANT; i++)
        if (json_object_get(s, MEANT[i].key))
            types |= MEANT[i].types;
    return types ? types : TYPE_ANY;
}

unsigned schema_types(struct schema *c, json_t *s)
{
    json_t *type = json_object_get(s, "type"), *item;
    unsigned types = 0;
    size_t i;
    if (!type)
        return types_meant(s);
    json_t *list = json_is_array(type) ? json_incref(type) : json_pack("[O]", type);
    json_array_foreach(list, i, item)
    {
        unsigned one = type_named(json_string_value(item));
        if (!one)
            schema_fail(c, ERR_FORMAT, "\"type\": %.40s is no type",
                        json_is_string(item) ? json_string_value(item) : "this");
        types |= one;
    }
    json_decref(list);
    return json_is_true(json_object_get(s, "nullable")) && types ? types | TYPE_NULL : types;
}

/* ---- values under a schema ---- */

static bool within(json_t *s, const json_t *value)
{
    double d = json_number_value(value);
    json_t *lo = json_object_get(s, "minimum"), *hi = json_object_get(s, "maximum"),
           *above = json_object_get(s, "exclusiveMinimum"),
           *below = json_object_get(s, "exclusiveMaximum");
    if (lo && (d < json_number_value(lo) || (json_is_true(above) && d <= json_number_value(lo))))
        return false;
    if (hi && (d > json_number_value(hi) || (json_is_true(below) && d >= json_number_value(hi))))
        return false;
    return !(json_is_number(above) && d <= json_number_value(above)) &&
           !(json_is_number(below) && d >= json_number_value(below));
}

static size_t characters(const json_t *value)
{
    const char *p = json_string_value(value);
    size_t n = 0;
    for (size_t i = 0; i < json_string_length(value); i++)
        n += ((unsigned char)p[i] & 0xC0) != 0x80;
    return n;
}

/* Keywords beside an enum that do not matter to a value of that type. */
static bool irrelevant(const char *key, unsigned type)
{
    static const char *const NUMBERS = " minimum maximum exclusiveMinimum exclusiveMaximum ";
    static const char *const TEXTS = " minLength maxLength ";
    static const char *const FREE = " type enum const nullable ";
    static const char *const OF_NUMBERS = " multipleOf ";
    static const char *const OF_TEXTS = " pattern format ";
    char word[64];
    size_t n = strlen(key);
    if (n > 50)
        return false;
    memcpy(word + 1, key, n);
    word[0] = word[n + 1] = ' ';
    word[n + 2] = 0;
    if (strstr(FREE, word) || strstr(NUMBERS, word) || strstr(TEXTS, word))
        return true; /* checked, or of another type */
    if (strstr(OF_NUMBERS, word))
        return !(type & (TYPE_INTEGER | TYPE_NUMBER));
    if (strstr(OF_TEXTS, word))
        return type != TYPE_STRING;
    return type != TYPE_ARRAY && type != TYPE_OBJECT;
}

bool schema_admits(struct schema *c, json_t *s, const json_t *value)
{
    unsigned type = schema_type_of(value);
    unsigned types = json_object_get(s, "type") ? schema_types(c, s) : TYPE_ANY;
    if (types & TYPE_NUMBER)
        types |= TYPE_INTEGER;
    const char *key;
    json_t *x;
    json_object_foreach(s, key, x)
    {
        if (schema_constrains(key) && !irrelevant(key, type)) {
            schema_fail(c, ERR_CONFIG, "\"%.60s\" beside \"enum\" or \"const\" is not supported",
                        key);
            return false;
        }
    }
    uint32_t least = 0, most = UINT32_MAX;
    schema_count(c, s, "minLength", &least);
    schema_count(c, s, "maxLength", &most);
    if (c->b->rc || !(types & type))
        return false;
    if (json_is_number(value))
        return within(s, value);
    if (json_is_string(value))
        return characters(value) >= least && characters(value) <= most;
    return true;
}

/* ---- oneOf ---- */

/* The finite list of values, as a new reference; NULL: not finite. */
static json_t *values_of(json_t *s)
{
    json_t *one = json_object_get(s, "const"), *list = json_object_get(s, "enum");
    if (one)
        return json_pack("[O]", one);
    return json_is_array(list) ? json_incref(list) : NULL;
}

static bool any_common(json_t *x, json_t *y)
{
    json_t *a, *b;
    size_t i, k;
    json_array_foreach(x, i, a)
    {
        json_array_foreach(y, k, b)
        {
            bool numbers = json_is_number(a) && json_is_number(b);
            if (json_equal(a, b) || (numbers && json_number_value(a) == json_number_value(b)))
                return true;
        }
    }
    return false;
}

static unsigned types_of_values(json_t *values)
{
    unsigned types = 0;
    json_t *v;
    size_t i;
    json_array_foreach(values, i, v)
    {
        types |= schema_type_of(v);
    }
    return types;
}

static bool requires(json_t *s, const char *name)
{
    json_t *item;
    size_t i;
    json_array_foreach(json_object_get(s, "required"), i, item)
    {
        if (json_is_string(item) && strcmp(json_string_value(item), name) == 0)
            return true;
    }
    return false;
}

/* Objects made from x (no more than its properties) lack something that y requires. */
static bool never_valid(json_t *x, json_t *y)
{
    json_t *item, *more = json_object_get(x, "additionalProperties");
    size_t i;
    if (!json_object_get(x, "properties") || (more && !json_is_false(more)) ||
        json_object_get(x, "patternProperties"))
        return false;
    json_array_foreach(json_object_get(y, "required"), i, item)
    {
        const char *name = json_string_value(item);
        if (name && !json_object_get(json_object_get(x, "properties"), name) && !requires(x, name))
            return true;
    }
    return false;
}

/* y refuses all that has a property which x requires. */
static bool refuses(json_t *x, json_t *y)
{
    json_t *item;
    size_t i;
    if (!json_is_false(json_object_get(y, "additionalProperties")) ||
        json_object_get(y, "patternProperties"))
        return false;
    json_array_foreach(json_object_get(x, "required"), i, item)
    {
        const char *name = json_string_value(item);
        if (name && !json_object_get(json_object_get(y, "properties"), name))
            return true;
    }
    return false;
}

static bool objects_disjoint(struct schema *c, json_t *x, json_t *y)
{
    json_t *px = json_object_get(x, "properties"), *py = json_object_get(y, "properties"), *value;
    const char *key;
    uint64_t names = json_array_size(json_object_get(x, "required")) +
                     json_array_size(json_object_get(y, "required"));
    if (!ir_work(c->b, (json_object_size(px) + names) * names / 8))
        return false;
    json_object_foreach(px, key, value)
    {
        json_t *other = json_object_get(py, key);
        if (other && requires(x, key) && requires(y, key) && schema_disjoint(c, value, other))
            return true;
    }
    return (never_valid(x, y) || refuses(x, y)) && (never_valid(y, x) || refuses(y, x));
}

static bool plain_disjoint(struct schema *c, json_t *x, json_t *y)
{
    json_t *vx = values_of(x), *vy = values_of(y);
    unsigned tx = vx ? types_of_values(vx) : schema_types(c, x);
    unsigned ty = vy ? types_of_values(vy) : schema_types(c, y);
    tx |= tx & TYPE_NUMBER ? TYPE_INTEGER : 0u;
    ty |= ty & TYPE_NUMBER ? TYPE_INTEGER : 0u;
    bool apart = !(tx & ty);
    if (!apart && vx && vy)
        apart = ir_work(c->b, (uint64_t)json_array_size(vx) * json_array_size(vy)) &&
                !any_common(vx, vy);
    else if (!apart && (tx & ty) == TYPE_OBJECT)
        apart = objects_disjoint(c, x, y);
    json_decref(vx);
    json_decref(vy);
    return apart;
}

bool schema_disjoint(struct schema *c, json_t *x, json_t *y)
{
    if (!x || !y || c->b->rc || !schema_step(c) || !ir_work(c->b, c->source_bytes / 256 + 4))
        return false;
    if (++c->depth > c->b->limits->max_nesting) {
        c->depth--;
        return false; /* not shown */
    }
    x = schema_fold(c, schema_resolve(c, x));
    y = schema_fold(c, schema_resolve(c, y));
    bool apart = false;
    if (json_is_false(x) || json_is_false(y))
        apart = true;
    else if (json_is_object(x) && json_is_object(y))
        apart = plain_disjoint(c, x, y);
    c->depth--;
    return apart;
}
