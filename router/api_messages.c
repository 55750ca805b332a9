/* api_messages.c - the prompt of a chat: messages with text or text parts, calls of tools and their
 * answers, the tools, and what the template takes besides. */
#include "router/api_fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail_at(struct api_error *a, const char *code, const char *where, const char *what)
{
    return api_fail(a, 400, API_INVALID, where, code, "Invalid '%s': %s", where, what);
}

/* Templates know no developer. */
static const char *role_of(const char *role)
{
    if (!strcmp(role, "developer"))
        return "system";
    if (!strcmp(role, "system") || !strcmp(role, "user") || !strcmp(role, "assistant") ||
        !strcmp(role, "tool"))
        return role;
    return NULL;
}

static bool is_empty(const json_t *v)
{
    return json_is_null(v) || (json_is_array(v) && !json_array_size(v));
}

static int fail_memory(struct api_error *a)
{
    return api_fail(a, 500, API_SERVER_ERROR, NULL, "out_of_memory", "Out of memory.");
}

/* Calls of an earlier answer: each a function's name and its arguments as a text. */
static int check_calls(const json_t *calls, const char *where, struct api_error *a)
{
    size_t i;
    json_t *call;
    if (!json_is_array(calls))
        return fail_at(a, "invalid_type", where, "expected an array.");
    json_array_foreach(calls, i, call)
    {
        char at[API_PARAM_BYTES + 24];
        json_t *f = json_object_get(call, "function");
        const char *type = json_string_value(json_object_get(call, "type"));
        snprintf(at, sizeof at, "%s[%zu]", where, i);
        if (type && strcmp(type, "function"))
            return fail_at(a, "invalid_value", at, "only calls of type 'function' are known.");
        if (!json_is_string(json_object_get(f, "name")) ||
            !json_is_string(json_object_get(f, "arguments")))
            return fail_at(a, "invalid_type", at,
                           "expected 'function' with 'name' and 'arguments', both strings.");
    }
    return 0;
}

/* One key beside role and content. What a client sends back from an earlier answer (refusal,
 * annotations, …) is fine while it says nothing. */
static int take_key(json_t *out, const char *role, const char *key, json_t *value,
                    const char *where, struct api_error *a)
{
    static const char *const MUST_BE_EMPTY[] = {"refusal", "annotations", "audio", "function_call"};
    bool is_calls = !strcmp(key, "tool_calls"), known = is_calls;
    bool is_assistant = !strcmp(role, "assistant");
    bool is_text = !strcmp(key, "name") ||
                   (!strcmp(key, "tool_call_id") && !strcmp(role, "tool")) ||
                   (!strcmp(key, "reasoning_content") && is_assistant);
    known |= !strcmp(key, "tool_call_id") || !strcmp(key, "reasoning_content");
    for (size_t i = 0; i < sizeof MUST_BE_EMPTY / sizeof MUST_BE_EMPTY[0]; i++)
        known |= !strcmp(key, MUST_BE_EMPTY[i]);
    if (!known && !is_text)
        return api_fail(a, 400, API_INVALID, where, "unknown_parameter",
                        "Unrecognized request argument supplied: %s", where);
    if (is_empty(value))
        return 0;
    if (is_text && !json_is_string(value))
        return fail_at(a, "invalid_type", where, "expected a string.");
    if (is_calls && is_assistant) {
        if (check_calls(value, where, a))
            return -1;
    } else if (!is_text) {
        return fail_at(a, "unsupported_parameter", where,
                       "not supported by this service in a message of this role.");
    }
    return json_object_set(out, key, value) ? fail_memory(a) : 0;
}

static int take_keys(json_t *out, const char *role, json_t *message, const char *at,
                     struct api_error *a)
{
    char where[API_PARAM_BYTES];
    const char *key;
    json_t *value;
    json_object_foreach(message, key, value)
    {
        snprintf(where, sizeof where, "%s.%s", at, key);
        if (strcmp(key, "role") && strcmp(key, "content") &&
            take_key(out, role, key, value, where, a))
            return -1;
    }
    snprintf(where, sizeof where, "%s.tool_call_id", at);
    if (!strcmp(role, "tool") && !json_object_get(out, "tool_call_id"))
        return fail_at(a, "missing_required_parameter", where,
                       "a tool's message says which call it answers.");
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
static int join_parts(json_t *out, json_t *parts, const char *at, struct api_error *a)
{
    char where[API_PARAM_BYTES];
    size_t i;
    json_t *part;
    struct buf text;
    snprintf(where, sizeof where, "%s.content", at);
    if (!json_array_size(parts))
        return fail_at(a, "invalid_value", where, "the list of parts is empty.");
    buf_init(&text, SIZE_MAX / 2);
    json_array_foreach(parts, i, part)
    {
        snprintf(where, sizeof where, "%s.content[%zu]", at, i);
        if (check_part(part, where, a)) {
            buf_fini(&text);
            return -1;
        }
        json_t *t = json_object_get(part, "text");
        buf_put(&text, json_string_value(t), json_string_length(t));
    }
    /* each part was checked to be UTF-8 with the body */
    json_t *joined = json_stringn_nocheck(text.len ? (char *)text.data : "", text.len);
    int rc = !buf_ok(&text) || json_object_set_new(out, "content", joined) ? fail_memory(a) : 0;
    buf_fini(&text);
    return rc;
}

static int take_content(json_t *out, json_t *message, const char *at, struct api_error *a)
{
    json_t *content = json_object_get(message, "content");
    char where[API_PARAM_BYTES];
    if (json_is_array(content))
        return join_parts(out, content, at, a);
    snprintf(where, sizeof where, "%s.content", at);
    bool none = !content || json_is_null(content);
    if (none && json_object_get(out, "tool_calls"))
        return json_object_set_new(out, "content", json_null()) ? fail_memory(a) : 0;
    if (!json_is_string(content))
        return fail_at(a, none ? "missing_required_parameter" : "invalid_type", where,
                       "expected a string or a list of text parts.");
    return json_object_set(out, "content", content) ? fail_memory(a) : 0;
}

static int take_message(json_t *out, json_t *v, size_t index, struct api_error *a)
{
    char at[API_PARAM_BYTES / 2], where[API_PARAM_BYTES];
    snprintf(at, sizeof at, "messages[%zu]", index);
    if (!json_is_object(v))
        return fail_at(a, "invalid_type", at, "expected an object with 'role' and 'content'.");
    snprintf(where, sizeof where, "%s.role", at);
    const char *given = json_string_value(json_object_get(v, "role"));
    if (!given)
        return fail_at(a, "missing_required_parameter", where, "a role is required.");
    const char *role = role_of(given);
    if (!role)
        return api_fail(a, 400, API_INVALID, where, "invalid_value",
                        "Invalid '%s': '%.32s'; supported are 'system', 'developer', 'user', "
                        "'assistant' and 'tool'.",
                        where, given);
    if (json_object_set_new(out, "role", json_string(role)))
        return fail_memory(a);
    return take_keys(out, role, v, at, a) || take_content(out, v, at, a) ? -1 : 0;
}

TAKE_FIELD(api_take_messages)
{
    size_t n = json_array_size(value), i;
    json_t *v;
    if (!json_is_array(value))
        return fail_at(a, "invalid_type", f->name, "expected an array of messages.");
    if (!n)
        return fail_at(a, "empty_array", f->name, "at least one message is required.");
    if (n > API_MAX_MESSAGES)
        return fail_at(a, "array_above_max_length", f->name, "too many messages.");
    r->messages = json_array();
    json_array_foreach(value, i, v)
    {
        json_t *out = json_object();
        if (json_array_append_new(r->messages, out))
            return fail_memory(a);
        if (take_message(out, v, i, a))
            return -1;
    }
    return 0;
}

/* --- tools ------------------------------------------------------------------------------------ */

TAKE_FIELD(api_take_tools)
{
    size_t i;
    json_t *tool;
    if (!json_is_array(value))
        return api_fail_type(f, "an array of tools", a);
    json_array_foreach(value, i, tool)
    {
        char at[API_PARAM_BYTES];
        const char *type = json_string_value(json_object_get(tool, "type"));
        json_t *function = json_object_get(tool, "function");
        json_t *parameters = json_object_get(function, "parameters");
        snprintf(at, sizeof at, "tools[%zu]", i);
        if (!json_is_object(tool) || !type)
            return fail_at(a, "invalid_type", at, "expected an object with 'type' and 'function'.");
        if (strcmp(type, "function"))
            return fail_at(a, "invalid_value", at, "only tools of type 'function' are known.");
        if (!json_is_string(json_object_get(function, "name")))
            return fail_at(a, "missing_required_parameter", at, "'function.name' is required.");
        if (parameters && !json_is_null(parameters) && !json_is_object(parameters))
            return fail_at(a, "invalid_type", at, "'function.parameters' must be an object.");
    }
    r->tools = json_array_size(value) ? json_incref(value) : NULL;
    return 0;
}

TAKE_FIELD(api_take_tool_choice)
{
    const char *s = json_string_value(value);
    if (!s || (strcmp(s, "none") && strcmp(s, "auto")))
        return api_fail_unsupported(f, a);
    r->hides_tools = !strcmp(s, "none");
    return 0;
}

TAKE_FIELD(api_take_template_kwargs)
{
    static const char *const TAKEN[] = {"messages", "tools", "documents", "add_generation_prompt"};
    if (!json_is_object(value))
        return api_fail_type(f, "an object", a);
    for (size_t i = 0; i < sizeof TAKEN / sizeof TAKEN[0]; i++)
        if (json_object_get(value, TAKEN[i]))
            return api_fail(a, 400, API_INVALID, f->name, "invalid_value",
                            "Invalid '%s': '%s' is not its to set.", f->name, TAKEN[i]);
    r->template_kwargs = json_incref(value);
    return 0;
}
