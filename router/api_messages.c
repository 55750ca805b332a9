/* api_messages.c - the prompt of a chat: messages with text or text parts. */
#include "router/api_fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail_at(struct api_error *a, const char *code, const char *where, const char *what)
{
    return api_fail(a, 400, API_INVALID, where, code, "Invalid '%s': %s", where, what);
}

/* The template knows system, user and assistant. */
static const char *role_of(const char *role)
{
    if (!strcmp(role, "developer"))
        return "system";
    if (!strcmp(role, "system") || !strcmp(role, "user") || !strcmp(role, "assistant"))
        return role;
    return NULL;
}

static bool is_empty(const json_t *v)
{
    return json_is_null(v) || (json_is_array(v) && !json_array_size(v));
}

/* What a client sends back from an earlier answer (refusal, annotations, …) is fine while it says
 * nothing. */
static int check_keys(json_t *message, const char *at, struct api_error *a)
{
    static const char *const MUST_BE_EMPTY[] = {"refusal",          "annotations", "audio",
                                                "function_call",    "tool_calls",  "tool_call_id",
                                                "reasoning_content"};
    char where[API_PARAM_BYTES];
    const char *key;
    json_t *value;
    json_object_foreach(message, key, value)
    {
        if (!strcmp(key, "role") || !strcmp(key, "content"))
            continue;
        snprintf(where, sizeof where, "%s.%s", at, key);
        if (!strcmp(key, "name")) { /* published templates do not show it to the model either */
            if (!json_is_string(value) && !json_is_null(value))
                return fail_at(a, "invalid_type", where, "expected a string.");
            continue;
        }
        bool known = false;
        for (size_t i = 0; i < sizeof MUST_BE_EMPTY / sizeof MUST_BE_EMPTY[0]; i++)
            known |= !strcmp(key, MUST_BE_EMPTY[i]);
        if (!known)
            return api_fail(a, 400, API_INVALID, where, "unknown_parameter",
                            "Unrecognized request argument supplied: %s", where);
        if (!is_empty(value))
            return fail_at(a, "unsupported_parameter", where,
                           "not supported by this service; only text is.");
    }
    return 0;
}

static int check_part(json_t *part, const char *where, struct api_error *a)
{
    if (!json_is_object(part))
        return fail_at(a, "invalid_type", where, "expected an object with 'type' and 'text'.");
    const char *type = json_string_value(json_object_get(part, "type"));
    if (!type)
        return fail_at(a, "missing_required_parameter", where, "the part has no 'type'.");
    if (strcmp(type, "text"))
        return api_fail(a, 400, API_INVALID, where, "invalid_value",
                        "Invalid '%s': part type '%.32s' is not supported; only 'text' is.", where,
                        type);
    if (!json_is_string(json_object_get(part, "text")))
        return fail_at(a, "invalid_type", where, "'text' must be a string.");
    const char *key;
    json_t *value;
    json_object_foreach(
        part, key,
        value) if (strcmp(key, "type") && strcmp(key, "text") &&
                   !json_is_null(
                       value)) return api_fail(a, 400, API_INVALID, where, "unknown_parameter",
                                               "Unrecognized request argument supplied: %s.%.40s",
                                               where, key);
    return 0;
}

/* Text parts follow each other without anything between them. */
static int join_parts(struct api_request *r, struct chat_message *m, json_t *parts, const char *at,
                      struct api_error *a)
{
    char where[API_PARAM_BYTES];
    size_t i, total = 0;
    json_t *part;
    snprintf(where, sizeof where, "%s.content", at);
    if (!json_array_size(parts))
        return fail_at(a, "invalid_value", where, "the list of parts is empty.");
    json_array_foreach(parts, i, part)
    {
        snprintf(where, sizeof where, "%s.content[%zu]", at, i);
        if (check_part(part, where, a))
            return -1;
        total += json_string_length(json_object_get(part, "text"));
    }
    char *text = malloc(total + 1);
    if (!text)
        return api_fail(a, 500, API_SERVER_ERROR, NULL, "out_of_memory", "Out of memory.");
    r->joined[r->n_joined++] = text;
    size_t len = 0;
    json_array_foreach(parts, i, part)
    {
        json_t *t = json_object_get(part, "text");
        memcpy(text + len, json_string_value(t), json_string_length(t));
        len += json_string_length(t);
    }
    text[len] = 0;
    m->content = text;
    m->content_bytes = len;
    return 0;
}

static int take_message(struct api_request *r, struct chat_message *m, json_t *v, size_t index,
                        struct api_error *a)
{
    char at[API_PARAM_BYTES / 2], where[API_PARAM_BYTES];
    snprintf(at, sizeof at, "messages[%zu]", index);
    if (!json_is_object(v))
        return fail_at(a, "invalid_type", at, "expected an object with 'role' and 'content'.");
    snprintf(where, sizeof where, "%s.role", at);
    const char *role = json_string_value(json_object_get(v, "role"));
    if (!role)
        return fail_at(a, "missing_required_parameter", where, "a role is required.");
    m->role = role_of(role);
    if (!m->role)
        return api_fail(a, 400, API_INVALID, where, "invalid_value",
                        "Invalid '%s': '%.32s'; supported are 'system', 'developer', 'user' and "
                        "'assistant'.",
                        where, role);
    if (check_keys(v, at, a))
        return -1;
    json_t *content = json_object_get(v, "content");
    if (json_is_array(content))
        return join_parts(r, m, content, at, a);
    snprintf(where, sizeof where, "%s.content", at);
    if (!json_is_string(content))
        return fail_at(
            a, content && !json_is_null(content) ? "invalid_type" : "missing_required_parameter",
            where, "expected a string or a list of text parts.");
    m->content = json_string_value(content);
    m->content_bytes = json_string_length(content);
    return 0;
}

int api_take_messages(struct api_request *r, const struct api_field *f, json_t *value,
                      struct api_error *a)
{
    size_t n = json_array_size(value);
    if (!json_is_array(value))
        return fail_at(a, "invalid_type", f->name, "expected an array of messages.");
    if (!n)
        return fail_at(a, "empty_array", f->name, "at least one message is required.");
    if (n > API_MAX_MESSAGES)
        return fail_at(a, "array_above_max_length", f->name, "too many messages.");
    r->messages = calloc(n, sizeof *r->messages);
    r->joined = calloc(n, sizeof *r->joined);
    if (!r->messages || !r->joined)
        return api_fail(a, 500, API_SERVER_ERROR, NULL, "out_of_memory", "Out of memory.");
    size_t i;
    json_t *v;
    json_array_foreach(value, i, v)
    {
        if (take_message(r, &r->messages[i], v, i, a))
            return -1;
        r->n_messages = i + 1;
    }
    return 0;
}
