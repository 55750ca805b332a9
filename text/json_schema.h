/* json_schema.h - a JSON schema as an expression of a grammar. Inside of text/json_schema*.c only.
 *
 * What comes out is a subset of what the schema admits: every text of the grammar is valid under the schema, but properties come
 * in the order in which they are declared, and objects that declare properties have no others unless additionalProperties says
 * so (docs/internals/constrained.md has the list). A keyword that constrains and is not supported is refused by name; nothing is
 * silently ignored.
 */
#ifndef EXA_TEXT_JSON_SCHEMA_H
#define EXA_TEXT_JSON_SCHEMA_H

#include "base/buf.h"
#include "text/json_grammar.h"

#include <jansson.h>

enum { SCHEMA_MAX_STEPS = 50000 /* sub-schemas looked at: merging can multiply them */ };

enum schema_type {
    TYPE_NULL = 1,
    TYPE_BOOLEAN = 2,
    TYPE_INTEGER = 4,
    TYPE_NUMBER = 8,
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
    TYPE_ANY = 127,
};

struct schema_ref {
    const json_t *target;
    uint32_t rule;
};
struct schema {
    struct ir_builder *b;
    struct json_rules json;
    json_t *root;
    json_t *pool; /* schemas made by merging; kept until the end */
    struct schema_ref *refs;
    size_t n_refs, cap_refs;
    struct buf path; /* JSON pointer of the place, for messages */
    uint32_t depth, steps;
    size_t source_bytes;
};

/* Fails with the place. Returns NULL. */
void *schema_fail(struct schema *c, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
bool schema_step(struct schema *c);                     /* one more sub-schema; false: too many */
size_t schema_enter(struct schema *c, const char *key); /* returns what leave wants */
void schema_leave(struct schema *c, size_t mark);
json_t *schema_keep(struct schema *c,
                    json_t *made); /* owned by the pool from here on; borrowed back */

struct ir *schema_build(struct schema *c, json_t *s);
/* The same below one more keyword, for messages. */
struct ir *schema_build_at(struct schema *c, const char *key, json_t *s);

/* s with every "$ref" at its top followed, and nothing else changed; NULL: failed. */
json_t *schema_resolve(struct schema *c, json_t *s);
/* A call to the rule of what s refers to: recursion ends here. */
struct ir *schema_call(struct schema *c, json_t *s);
json_t *schema_target(struct schema *c, const json_t *ref);
/* Both must hold. Sub-schemas are joined by allOf, so that this never recurses. */
json_t *schema_merge(struct schema *c, json_t *x, json_t *y);
/* Fold allOf in; the result has none. */
json_t *schema_fold(struct schema *c, json_t *s);
/* What `key` without `except` is left: a copy in the pool. */
json_t *schema_without(struct schema *c, json_t *s, const char *key);
bool schema_constrains(const char *key); /* no annotation */
bool schema_check_keywords(struct schema *c, json_t *s);
bool schema_has_constraints(json_t *s);

unsigned schema_types(struct schema *c, json_t *s); /* given or inferred; 0: failed or none */
unsigned schema_type_of(const json_t *value);
/* Can no value that x's expression gives be valid under y too, and the other way round? */
bool schema_disjoint(struct schema *c, json_t *x, json_t *y);

struct ir *schema_literal(struct schema *c, const json_t *value);
struct ir *schema_string(struct schema *c, json_t *s);
struct ir *schema_number(struct schema *c, json_t *s, bool integer);
struct ir *schema_object(struct schema *c, json_t *s);
struct ir *schema_array(struct schema *c, json_t *s);
/* A count: minLength and the like. false: absent (value unchanged) or failed. */
bool schema_count(struct schema *c, json_t *s, const char *key, uint32_t *value);
/* Does the value of an enum keep the other keywords? false with rc set: they cannot be checked. */
bool schema_admits(struct schema *c, json_t *s, const json_t *value);

/* The number as decimal digits. false: not finite or too long. */
struct decimal {
    bool negative;
    char whole[400];    /* no leading zeros; "0" */
    char fraction[400]; /* no trailing zeros */
};
bool decimal_of(const json_t *value, struct decimal *d);
int decimal_compare(const struct decimal *x, const struct decimal *y);
void decimal_print(const json_t *number, char *out,
                   size_t cap); /* shortest that reads back the same */

#endif
