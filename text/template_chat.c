/* template_chat.c - between what clients send and what a template knows: contents as texts or as
 * lists of parts, arguments of tool calls as texts or as objects. */
#include "text/template_internal.h"

/* ---- what a template knows ---- */

static const char NEEDLE[] = "exaserve-probe";

/* Does a message with this content come out as it should? A list that is printed as a value shows its
 * keys. */
static bool shows(const struct chat_template *t, json_t *content)
{
    enum { PROBE_BYTES = 1 << 16 };
    json_t *messages = json_pack("[{s:s, s:o}]", "role", "user", "content", content);
    if (!messages)
        return false;
    struct chat_inputs in = {
        .messages = messages, .bos = "", .eos = "", .add_generation_prompt = true, .now_s = 1};
    struct buf out;
    buf_init(&out, PROBE_BYTES);
    const char *text = template_try(t, &in, TEMPLATE_STEPS_PROBE, &out) ? "" : buf_cstr(&out);
    bool shown = strstr(text, NEEDLE) && !strstr(text, "'type'") && !strstr(text, "\"type\"");
    buf_fini(&out);
    json_decref(messages);
    return shown;
}

void template_probe(struct chat_template *t)
{
    t->takes_parts = shows(t, json_pack("[{s:s, s:s}]", "type", "text", "text", NEEDLE));
    t->takes_texts = !t->takes_parts || shows(t, json_string(NEEDLE));
}

/* ---- contents ---- */

static int part_text(const json_t *part, size_t message, const json_t **text, struct err *e)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    *text = json_is_string(part) ? part : json_object_get(part, "text");
    if (json_is_string(*text) && (!type || strcmp(type, "text") == 0))
        return 0;
    return err_set(e, ERR_CONFIG, "message %zu: this model's template takes text only, found %.40s",
                   message, type ? type : "a part of no type");
}

static int join_parts(const json_t *parts, size_t message, json_t **out, struct err *e)
{
    struct buf b;
    buf_init(&b, SIZE_MAX / 2);
    size_t i;
    json_t *part;
    int rc = 0;
    json_array_foreach(parts, i, part)
    {
        const json_t *text;
        rc = part_text(part, message, &text, e);
        if (rc)
            break;
        if (i)
            buf_puts(&b, "\n");
        buf_put(&b, json_string_value(text), json_string_length(text));
    }
    *out = rc == 0 ? json_stringn_nocheck(buf_cstr(&b), b.len) : NULL;
    if (rc == 0 && (!*out || !buf_ok(&b)))
        rc = err_set(e, ERR_NOMEM, "chat template: out of memory");
    buf_fini(&b);
    return rc;
}

/* *out NULL: the content stays. */
static int adapt_content(const struct chat_template *t, const json_t *content, size_t message,
                         json_t **out, struct err *e)
{
    *out = NULL;
    if (json_is_array(content) && !t->takes_parts)
        return join_parts(content, message, out, e);
    if (!content || json_is_null(content))
        *out = t->takes_texts ? json_string("") : json_array();
    else if (json_is_string(content) && !t->takes_texts)
        *out = json_pack("[{s:s, s:O}]", "type", "text", "text", content);
    else
        return 0;
    return *out ? 0 : err_set(e, ERR_NOMEM, "chat template: out of memory");
}

/* ---- tool calls ---- */

/* The object that `arguments` is the text of, or NULL. */
static json_t *parsed_arguments(const json_t *function)
{
    const json_t *text = json_object_get(function, "arguments");
    if (!json_is_string(text))
        return NULL;
    json_t *parsed =
        json_loadb(json_string_value(text), json_string_length(text), JSON_ALLOW_NUL, NULL);
    if (json_is_object(parsed))
        return parsed;
    json_decref(parsed);
    return NULL;
}

/* A copy with the arguments as an object; a new reference to the call itself when they are not
 * the text of one. */
static json_t *adapt_call(json_t *call)
{
    const json_t *function = json_object_get(call, "function");
    json_t *parsed = parsed_arguments(function ? function : call);
    if (!parsed)
        return json_incref(call);
    json_t *copy = json_copy(call), *inner = function ? json_copy((json_t *)function) : copy;
    bool ok = copy && inner && json_object_set_new(inner, "arguments", parsed) == 0;
    if (ok && function)
        ok = json_object_set_new(copy, "function", inner) == 0;
    else if (function)
        json_decref(inner);
    if (!ok) {
        json_decref(copy);
        return NULL;
    }
    return copy;
}

static json_t *adapt_calls(const json_t *calls)
{
    json_t *list = json_array(), *call;
    size_t i;
    json_array_foreach(calls, i, call)
    {
        if (!list || json_array_append_new(list, adapt_call(call)) == 0)
            continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

/* ---- messages ---- */

static int adapt_message(const struct chat_template *t, json_t *m, size_t i, bool as_objects,
                         json_t **out, struct err *e)
{
    if (!json_is_object(m))
        return err_set(e, ERR_FORMAT, "message %zu: expected an object", i);
    json_t *content;
    const json_t *calls = json_object_get(m, "tool_calls");
    bool with_calls = as_objects && json_is_array(calls) && json_array_size(calls);
    int rc = adapt_content(t, json_object_get(m, "content"), i, &content, e);
    if (rc)
        return rc;
    if (!content && !with_calls) {
        *out = json_incref(m);
        return 0;
    }
    json_t *copy = json_copy(m);
    bool ok = copy && (!content || json_object_set_new(copy, "content", content) == 0);
    if (ok && with_calls)
        ok = json_object_set_new(copy, "tool_calls", adapt_calls(calls)) == 0;
    *out = copy;
    if (ok)
        return 0;
    json_decref(copy);
    return err_set(e, ERR_NOMEM, "chat template: out of memory");
}

int chat_template_adapt(const struct chat_template *t, const json_t *messages, bool as_objects,
                        json_t **out, struct err *e)
{
    if (!json_is_array(messages))
        return err_set(e, ERR_FORMAT, "messages: expected an array");
    json_t *list = json_array(), *m, *adapted = NULL;
    size_t i;
    int rc = list ? 0 : err_set(e, ERR_NOMEM, "chat template: out of memory");
    json_array_foreach(messages, i, m)
    {
        if (rc == 0)
            rc = adapt_message(t, m, i, as_objects, &adapted, e);
        if (rc == 0 && json_array_append_new(list, adapted) != 0)
            rc = err_set(e, ERR_NOMEM, "chat template: out of memory");
        if (rc)
            break;
    }
    if (rc)
        json_decref(list);
    else
        *out = list;
    return rc;
}
