/* json_schema_object.c - objects and arrays.
 *
 * Properties come in the order in which they are declared. The commas depend on whether one was written before: the members up
 * to the first required one are alternatives for the beginning, and what follows each of them is a rule of its own, so that the
 * expression grows with the number of properties and not with its square.
 */
#include "text/json_schema.h"
#include "text/regex_grammar.h"

#include <string.h>

struct property {
    struct ir *member;
    bool required;
};
struct object {
    struct property *list;
    size_t n, first; /* first: index of the first required one; n: none is */
    struct ir *more; /* a further member; NULL: none may be */
    uint32_t more_min, more_max;
};

/* ---- members ---- */

static bool is_required(json_t *s, const char *name)
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

static bool check_object(struct schema *c, json_t *s)
{
    json_t *required = json_object_get(s, "required"), *item;
    size_t i;
    static const char *const OBJECTS[] = {"properties", "patternProperties"};
    for (int k = 0; k < 2; k++)
        if (json_object_get(s, OBJECTS[k]) && !json_is_object(json_object_get(s, OBJECTS[k])))
            return schema_fail(c, ERR_FORMAT, "\"%s\" is not an object", OBJECTS[k]) != NULL;
    if (required && !json_is_array(required))
        return schema_fail(c, ERR_FORMAT, "\"required\" is not a list") != NULL;
    json_array_foreach(required, i, item)
    {
        if (!json_is_string(item))
            return schema_fail(c, ERR_FORMAT, "\"required\" is not a list of names") != NULL;
    }
    uint64_t n = json_array_size(required); /* those that are not declared become properties, too */
    return ir_work(c->b, n * (json_object_size(json_object_get(s, "properties")) + n + 1) / 8);
}

/* The declared properties, and after them required ones that are not declared: these are as additionalProperties says. */
static json_t *declared(struct schema *c, json_t *s)
{
    json_t *given = json_object_get(s, "properties"), *required = json_object_get(s, "required");
    json_t *more = json_object_get(s, "additionalProperties"), *item;
    json_t *out = schema_keep(c, given ? json_copy(given) : json_object());
    size_t i;
    if (json_array_size(required) && json_object_get(s, "patternProperties"))
        return schema_fail(c, ERR_CONFIG,
                           "\"required\" beside \"patternProperties\" is not supported");
    json_array_foreach(required, i, item)
    {
        const char *name = json_string_value(item);
        if (out && !json_object_get(out, name))
            json_object_set_new(out, name, more ? json_incref(more) : json_true());
    }
    return out;
}

static bool add_property(struct schema *c, struct object *o, json_t *s, const char *name, json_t *x)
{
    struct ir_builder *b = c->b;
    struct ir *value = schema_build_at(c, name, x);
    bool required = is_required(s, name);
    if (!value || (value->kind == IR_NONE && !required))
        return value != NULL;
    /* Before the first required property a member stands in two places. */
    if (o->first == SIZE_MAX)
        value = ir_share(b, value, name);
    struct ir *key = json_ir_literal(b, name, strlen(name));
    o->list[o->n++] = (struct property){json_ir_member(&c->json, key, value), required};
    if (required && o->first == SIZE_MAX)
        o->first = o->n - 1;
    return !b->rc;
}

static bool read_properties(struct schema *c, struct object *o, json_t *s, json_t *names)
{
    const char *name;
    json_t *x;
    o->list = ir_alloc(c->b, (json_object_size(names) + 1) * sizeof *o->list);
    o->first = SIZE_MAX;
    if (!o->list)
        return false;
    size_t mark = schema_enter(c, "properties");
    json_object_foreach(names, name, x)
    {
        if (!add_property(c, o, s, name, x))
            return false;
    }
    schema_leave(c, mark);
    if (o->first == SIZE_MAX)
        o->first = o->n;
    return true;
}

/* ---- further members ---- */

static struct ir *plain_string(struct schema *c)
{
    struct ir_builder *b = c->b;
    struct ir *chars = ir_repeat(b, json_ir_spell(b, CP_SET(b, {0, 0x10FFFF})), 0, IR_INF);
    return ir_seq(b, ir_text(b, "\""), chars, ir_text(b, "\""));
}

static struct ir *key_pattern(struct schema *c, const char *text)
{
    struct regex_form form = {
        .what = "json schema: patternProperties", .search = true, .spell = json_ir_spell};
    struct ir *inside = regex_build(c->b, &form, text, strlen(text));
    return ir_seq(c->b, ir_text(c->b, "\""), inside, ir_text(c->b, "\""));
}

/* Keys that may be, but for those that are declared. */
static struct ir *free_key(struct schema *c, json_t *s, json_t *names)
{
    struct ir_builder *b = c->b;
    json_t *form = json_object_get(s, "propertyNames"), *x;
    struct ir *key = NULL;
    if (form && !json_is_true(form)) {
        json_t *text = json_pack("{s:s}", "type", "string");
        json_t *merged = schema_merge(c, form, schema_keep(c, text));
        key = merged ? schema_build_at(c, "propertyNames", merged) : NULL;
        if (!key)
            return NULL;
    }
    if (!key && json_object_size(names) == 0)
        return json_ir_string(&c->json);
    if (key && key->kind == IR_RULE)
        key = plain_string(c);
    struct ir_vec taken = {0};
    const char *name;
    json_object_foreach(names, name, x)
    {
        ir_push(b, &taken, json_ir_literal(b, name, strlen(name)));
    }
    struct ir *out = key ? key : plain_string(c);
    return taken.n ? ir_minus(b, out, ir_list(b, IR_ALT, taken.kids, taken.n)) : out;
}

/* Members whose keys match one of the patterns (and no other), then those that match none. */
static struct ir *pattern_members(struct schema *c, json_t *s, json_t *patterns)
{
    struct ir_builder *b = c->b;
    json_t *more = json_object_get(s, "additionalProperties"), *x, *y;
    struct ir_vec members = {0}, all = {0};
    const char *text, *other;
    size_t mark = schema_enter(c, "patternProperties");
    if (json_object_size(json_object_get(s, "properties")) || json_object_get(s, "propertyNames"))
        return schema_fail(c, ERR_CONFIG,
                           "beside \"properties\" or \"propertyNames\" it is not supported");
    json_object_foreach(patterns, text, x)
    {
        struct ir *key = ir_and(b, plain_string(c), key_pattern(c, text));
        json_object_foreach(patterns, other, y)
        {
            if (other != text)
                key = ir_minus(b, key, key_pattern(c, other));
        }
        ir_push(b, &members, json_ir_member(&c->json, key, schema_build_at(c, text, x)));
        ir_push(b, &all, key_pattern(c, text));
    }
    schema_leave(c, mark);
    if (b->rc)
        return NULL;
    if (more && !json_is_false(more)) {
        struct ir *key = ir_minus(b, plain_string(c), ir_list(b, IR_ALT, all.kids, all.n));
        ir_push(b, &members,
                json_ir_member(&c->json, key, schema_build_at(c, "additionalProperties", more)));
    }
    return b->rc ? NULL : ir_list(b, IR_ALT, members.kids, members.n);
}

static bool read_more(struct schema *c, struct object *o, json_t *s, json_t *names)
{
    json_t *more = json_object_get(s, "additionalProperties");
    json_t *patterns = json_object_get(s, "patternProperties");
    bool closed = !more && json_object_size(names); /* what is declared is what is meant */
    if (json_object_size(patterns)) {
        o->more = pattern_members(c, s, patterns);
    } else if (!closed && !json_is_false(more)) {
        struct ir *value =
            more ? schema_build_at(c, "additionalProperties", more) : json_ir_value(&c->json);
        struct ir *key = value ? free_key(c, s, names) : NULL;
        o->more = key ? json_ir_member(&c->json, key, value) : NULL;
    }
    if (o->more && o->more->kind == IR_NONE)
        o->more = NULL;
    o->more = ir_share(c->b, o->more, "further member");
    return !c->b->rc;
}

/* minProperties and maxProperties, as bounds on the further members. */
static bool read_counts(struct schema *c, struct object *o, json_t *s)
{
    uint32_t least = 0, most = UINT32_MAX, n_required = 0;
    schema_count(c, s, "minProperties", &least);
    schema_count(c, s, "maxProperties", &most);
    for (size_t i = 0; i < o->n; i++)
        n_required += o->list[i].required;
    o->more_max = o->more ? IR_INF : 0;
    bool fixed = n_required == o->n;
    bool told = least <= n_required && (most == UINT32_MAX || (!o->more && most >= o->n));
    if (c->b->rc || told)
        return !c->b->rc;
    if (!fixed)
        return schema_fail(c, ERR_CONFIG,
                           "\"minProperties\" or \"maxProperties\" beside optional"
                           " properties is not supported") != NULL;
    if (most < n_required || (!o->more && least > n_required)) {
        o->more_min = 1; /* cannot be */
        o->more_max = 0;
        return true;
    }
    o->more_min = least > n_required ? least - n_required : 0;
    if (o->more && most != UINT32_MAX)
        o->more_max = most - n_required;
    return true;
}

/* ---- the object ---- */

/* After at least one member: properties from i on, further ones, the brace. */
static struct ir *tail_from(struct schema *c, struct object *o, size_t i)
{
    struct ir_builder *b = c->b;
    struct ir_vec parts = {0};
    for (; i < o->n; i++) {
        struct ir *x = ir_seq(b, json_ir_comma(&c->json), o->list[i].member);
        ir_push(b, &parts, o->list[i].required ? x : ir_optional(b, x));
    }
    if (o->more)
        ir_push(
            b, &parts,
            ir_repeat(b, ir_seq(b, json_ir_comma(&c->json), o->more), o->more_min, o->more_max));
    ir_push(b, &parts, json_ir_space(&c->json));
    ir_push(b, &parts, ir_text(b, "}"));
    return b->rc ? NULL : ir_list(b, IR_SEQ, parts.kids, parts.n);
}

/* Nothing but further members. */
static struct ir *only_more(struct schema *c, struct object *o)
{
    struct ir_builder *b = c->b;
    struct ir *end = ir_text(b, "}");
    if (!o->more || o->more_max == 0)
        return end;
    uint32_t min = o->more_min ? o->more_min - 1 : 0;
    uint32_t max = o->more_max == IR_INF ? IR_INF : o->more_max - 1;
    struct ir *again = ir_repeat(b, ir_seq(b, json_ir_comma(&c->json), o->more), min, max);
    struct ir *some = ir_seq(b, o->more, again, json_ir_space(&c->json), end);
    return o->more_min ? some : ir_alt(b, end, some);
}

struct ir *schema_object(struct schema *c, json_t *s)
{
    struct ir_builder *b = c->b;
    struct object o = {0};
    json_t *names = check_object(c, s) ? declared(c, s) : NULL;
    if (!names || !read_properties(c, &o, s, names) || !read_more(c, &o, s, names) ||
        !read_counts(c, &o, s))
        return NULL;
    if (o.more_min > o.more_max)
        return ir_none(b);
    struct ir_vec begins = {0};
    struct ir *tail = NULL; /* after property i: the next of the beginning, or what comes later */
    size_t n = o.first < o.n ? o.first + 1 : o.n;
    for (size_t i = n; i-- > 0 && !b->rc;) {
        if (!tail)
            tail = tail_from(c, &o, i + 1);
        else
            tail = ir_alt(b, ir_seq(b, json_ir_comma(&c->json), o.list[i + 1].member, tail),
                          o.list[i + 1].required ? ir_none(b) : tail);
        tail = n > 1 ? ir_share(b, tail, "rest of an object") : tail;
        ir_push(b, &begins, ir_seq(b, o.list[i].member, tail));
    }
    if (o.first == o.n)
        ir_push(b, &begins, only_more(c, &o));
    struct ir *inside = b->rc ? NULL : ir_list(b, IR_ALT, begins.kids, begins.n);
    return ir_seq(b, ir_text(b, "{"), json_ir_space(&c->json), inside);
}

/* ---- arrays ---- */

struct array {
    struct ir **prefix;
    size_t n;
    struct ir *more; /* IR_NONE: no further items */
    uint32_t least, most;
};

static bool read_array(struct schema *c, struct array *a, json_t *s)
{
    json_t *items = json_object_get(s, "items"), *prefix = json_object_get(s, "prefixItems"), *x;
    size_t i;
    if (json_is_array(items)) { /* as drafts before 2020-12 had it */
        prefix = items;
        items = json_object_get(s, "additionalItems");
    }
    if (json_is_true(json_object_get(s, "uniqueItems")))
        return schema_fail(c, ERR_CONFIG, "\"uniqueItems\" is not supported") != NULL;
    if (prefix && !json_is_array(prefix))
        return schema_fail(c, ERR_FORMAT, "\"prefixItems\" is not a list") != NULL;
    a->most = UINT32_MAX;
    schema_count(c, s, "minItems", &a->least);
    schema_count(c, s, "maxItems", &a->most);
    a->prefix = ir_alloc(c->b, (json_array_size(prefix) + 1) * sizeof *a->prefix);
    json_array_foreach(prefix, i, x)
    {
        if (a->prefix && i < a->most)
            a->prefix[a->n++] = schema_build_at(c, "prefixItems", x);
    }
    /* beyond a prefix there is more only when the schema says what, or demands it */
    bool more = items || !prefix || a->least > a->n;
    struct ir *item = !more   ? ir_none(c->b)
                      : items ? schema_build_at(c, "items", items)
                              : json_ir_value(&c->json);
    a->more = ir_share(c->b, item, "item");
    return !c->b->rc && a->more;
}

/* One item or more. */
static struct ir *some_items(struct schema *c, const struct array *a)
{
    struct ir_builder *b = c->b;
    uint32_t n = (uint32_t)a->n, least = a->least > n ? a->least - n : 0;
    uint32_t most = a->most == UINT32_MAX ? IR_INF : a->most > n ? a->most - n : 0;
    struct ir *comma = json_ir_comma(&c->json);
    if (a->most == 0)
        return ir_none(b);
    if (n == 0) {
        uint32_t again = most == IR_INF ? IR_INF : most - 1;
        struct ir *rest = ir_repeat(b, ir_seq(b, comma, a->more), least ? least - 1 : 0, again);
        return ir_seq(b, a->more, rest);
    }
    struct ir *tail = ir_repeat(b, ir_seq(b, comma, a->more), least, most);
    for (uint32_t k = n; k-- > 1;) {
        struct ir *x = ir_seq(b, comma, a->prefix[k], tail);
        tail = k < a->least ? x : ir_optional(b, x);
    }
    return ir_seq(b, a->prefix[0], tail);
}

struct ir *schema_array(struct schema *c, json_t *s)
{
    struct array a = {0};
    if (!read_array(c, &a, s))
        return NULL;
    return json_ir_braces(&c->json, "[", some_items(c, &a), a.least == 0, "]");
}
