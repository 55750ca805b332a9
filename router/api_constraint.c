/* api_constraint.c - fields that say what the answer must be: OpenAI's response_format, vLLM's
 * guided_* and structured_outputs. Here they become one kind and one source; whether the source is
 * good, its compilation says (prep.c). */
#include "router/api_fields.h"

#include <stdlib.h>
#include <string.h>

static int fail_again(const struct api_request *r, const struct api_field *f, struct api_error *a)
{
    return api_fail(a, 400, API_INVALID, f->name, "invalid_parameter_combination",
                    "Only one of response_format, guided_json, guided_regex, guided_choice, "
                    "guided_grammar and structured_outputs can be given; '%s' and '%s' are.",
                    r->constraint_param, f->name);
}

/* source is copied. */
static int set_text(struct api_request *r, const struct api_field *f, enum constraint_kind kind,
                    const char *source, size_t n, struct api_error *a)
{
    if (r->constraint)
        return fail_again(r, f, a);
    if (n > MSG_MAX_CONSTRAINT_BYTES)
        return api_fail(a, 400, API_INVALID, f->name, "invalid_value",
                        "Invalid value for '%s': %zu bytes are more than %d.", f->name, n,
                        MSG_MAX_CONSTRAINT_BYTES);
    r->constraint_source = malloc(n + 1);
    if (!r->constraint_source)
        return api_fail(a, 500, API_SERVER_ERROR, NULL, "out_of_memory", "Out of memory.");
    memcpy(r->constraint_source, source, n);
    r->constraint_source[n] = 0;
    r->constraint_bytes = n;
    r->constraint = kind;
    r->constraint_param = f->name;
    return 0;
}

/* The JSON text of value, as the client ordered it. */
static int set_json(struct api_request *r, const struct api_field *f, enum constraint_kind kind,
                    const json_t *value, struct api_error *a)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!text)
        return api_fail(a, 500, API_SERVER_ERROR, NULL, "out_of_memory", "Out of memory.");
    int rc = set_text(r, f, kind, text, strlen(text), a);
    free(text);
    return rc;
}

static int set_string(struct api_request *r, const struct api_field *f, enum constraint_kind kind,
                      const json_t *value, struct api_error *a)
{
    if (!json_is_string(value))
        return api_fail_type(f, "a string", a);
    return set_text(r, f, kind, json_string_value(value), json_string_length(value), a);
}

TAKE_FIELD(api_take_guided_json)
{
    if (json_is_string(value)) /* the schema's text */
        return set_string(r, f, CONSTRAINT_JSON_SCHEMA, value, a);
    if (!json_is_object(value))
        return api_fail_type(f, "a JSON schema", a);
    return set_json(r, f, CONSTRAINT_JSON_SCHEMA, value, a);
}

TAKE_FIELD(api_take_guided_regex)
{
    return set_string(r, f, CONSTRAINT_REGEX, value, a);
}

TAKE_FIELD(api_take_guided_grammar)
{
    return set_string(r, f, CONSTRAINT_GBNF, value, a);
}

TAKE_FIELD(api_take_guided_choice)
{
    size_t i;
    json_t *item;
    if (!json_is_array(value))
        return api_fail_type(f, "an array of strings", a);
    if (!json_array_size(value))
        return api_fail_value(f, "at least one string", a);
    json_array_foreach(value, i, item) if (!json_is_string(item)) return api_fail_type(
        f, "an array of strings", a);
    return set_json(r, f, CONSTRAINT_CHOICE, value, a);
}

/* What follows "json_schema": name, description and strict say nothing about the text; strict false
 * would allow others, which a schema that is kept does not hurt. */
static int take_schema(struct api_request *r, const struct api_field *f, json_t *value,
                       struct api_error *a)
{
    json_t *schema = json_object_get(value, "schema");
    const char *key;
    json_t *item;
    if (!json_is_object(value))
        return api_fail(a, 400, API_INVALID, "response_format.json_schema",
                        value ? "invalid_type" : "missing_required_parameter",
                        "Missing required parameter: 'response_format.json_schema', an object.");
    json_object_foreach(value, key, item)
    {
        bool is_text = !strcmp(key, "name") || !strcmp(key, "description");
        bool known = is_text || !strcmp(key, "strict") || !strcmp(key, "schema");
        if (!known)
            return api_fail(a, 400, API_INVALID, "response_format.json_schema", "unknown_parameter",
                            "Unrecognized request argument supplied: "
                            "response_format.json_schema.%.40s",
                            key);
        if ((is_text && !json_is_string(item) && !json_is_null(item)) ||
            (!strcmp(key, "strict") && !json_is_boolean(item) && !json_is_null(item)))
            return api_fail(a, 400, API_INVALID, "response_format.json_schema", "invalid_type",
                            "Invalid type for 'response_format.json_schema.%s'.", key);
    }
    if (!json_is_object(schema))
        return api_fail(a, 400, API_INVALID, "response_format.json_schema.schema",
                        schema ? "invalid_type" : "missing_required_parameter",
                        "Missing required parameter: 'response_format.json_schema.schema', an "
                        "object.");
    return set_json(r, f, CONSTRAINT_JSON_SCHEMA, schema, a);
}

TAKE_FIELD(api_take_response_format)
{
    const char *type = json_string_value(json_object_get(value, "type"));
    const char *key;
    json_t *item;
    if (!json_is_object(value))
        return api_fail_type(f, "an object", a);
    if (!type)
        return api_fail(a, 400, API_INVALID, "response_format.type", "missing_required_parameter",
                        "Missing required parameter: 'response_format.type'.");
    bool is_schema = !strcmp(type, "json_schema");
    json_object_foreach(
        value, key,
        item) if (strcmp(key, "type") &&
                  !(is_schema &&
                    !strcmp(key, "json_schema"))) return api_fail(a, 400, API_INVALID, f->name,
                                                                  "unknown_parameter",
                                                                  "Unrecognized request argument "
                                                                  "supplied: response_format.%.40s",
                                                                  key);
    if (!strcmp(type, "text"))
        return 0;
    if (!strcmp(type, "json_object"))
        return set_text(r, f, CONSTRAINT_JSON_OBJECT, "", 0, a);
    if (is_schema)
        return take_schema(r, f, json_object_get(value, "json_schema"), a);
    return api_fail(a, 400, API_INVALID, "response_format.type", "invalid_value",
                    "Invalid value for 'response_format.type': expected 'text', 'json_object' or "
                    "'json_schema', got '%.40s'.",
                    type);
}

TAKE_FIELD(api_take_structured_outputs)
{
    static const struct {
        const char *name;
        int (*take)(struct api_request *r, const struct api_field *f, json_t *value,
                    struct api_error *a);
    } KINDS[] = {{"json", api_take_guided_json},
                 {"regex", api_take_guided_regex},
                 {"choice", api_take_guided_choice},
                 {"grammar", api_take_guided_grammar}};
    const char *key;
    json_t *item;
    if (!json_is_object(value))
        return api_fail_type(f, "an object", a);
    json_object_foreach(value, key, item)
    {
        size_t i = 0;
        bool json_object = !strcmp(key, "json_object");
        while (i < 4 && strcmp(key, KINDS[i].name))
            i++;
        if (i == 4 && !json_object)
            return api_fail(a, 400, API_INVALID, f->name, "unknown_parameter",
                            "Unrecognized request argument supplied: structured_outputs.%.40s",
                            key);
        if (json_is_null(item) || (json_object && json_is_false(item)))
            continue;
        if (json_object && !json_is_true(item))
            return api_fail_type(f, "a boolean 'json_object'", a);
        int rc = json_object ? set_text(r, f, CONSTRAINT_JSON_OBJECT, "", 0, a)
                             : KINDS[i].take(r, f, item, a);
        if (rc)
            return rc;
    }
    return 0;
}
