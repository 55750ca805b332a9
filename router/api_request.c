/* api_request.c - see api_request.h. One table of fields: name, endpoints, and the function that
 * takes the value. */
#include "router/api_request.h"

#include "router/api_fields.h"
#include "router/json_text.h"

#include <stdlib.h>

/* Depth is checked before jansson, whose own limit (2,048) is deeper than any request and costs
 * stack. */
static int check_depth(const char *s, size_t n, struct api_error *a)
{
    int depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > API_MAX_DEPTH)
                return api_fail(a, 400, API_INVALID, NULL, "invalid_json",
                                "The JSON body is nested deeper than %d levels at byte %zu.",
                                API_MAX_DEPTH, i);
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return 0;
}

static int check_utf8(const char *s, size_t n, struct api_error *a)
{
    size_t at = utf8_valid_prefix(s, n);
    if (at == n)
        return 0;
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at; i++) {
        column = s[i] == '\n' ? 1 : column + 1;
        line += s[i] == '\n';
    }
    return api_fail(a, 400, API_INVALID, NULL, "invalid_utf8",
                    "The body is not valid UTF-8: byte 0x%02x at line %zu column %zu (byte %zu).",
                    (uint8_t)s[at], line, column, at);
}

static int parse_json(struct api_request *r, const char *body, size_t n, struct api_error *a)
{
    if (!n)
        return api_fail(a, 400, API_INVALID, NULL, "invalid_json",
                        "The body is empty; a JSON object is expected.");
    if (check_utf8(body, n, a) || check_depth(body, n, a))
        return -1;
    json_error_t je;
    r->root = json_loadb(body, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
    if (!r->root)
        return api_fail(a, 400, API_INVALID, NULL, "invalid_json",
                        "We could not parse the JSON body of your request: %s at line %d column %d "
                        "(byte %d).",
                        je.text, je.line, je.column, je.position);
    if (!json_is_object(r->root))
        return api_fail(a, 400, API_INVALID, NULL, "invalid_json",
                        "The body must be a JSON object.");
    return 0;
}

static int check_required(const struct api_request *r, struct api_error *a)
{
    if (!r->model)
        return api_fail(a, 400, API_INVALID, "model", "missing_required_parameter",
                        "Missing required parameter: 'model'.");
    if (r->kind == API_CHAT && !r->messages)
        return api_fail(a, 400, API_INVALID, "messages", "missing_required_parameter",
                        "Missing required parameter: 'messages'.");
    if (r->kind == API_COMPLETION && !r->n_prompts)
        return api_fail(a, 400, API_INVALID, "prompt", "missing_required_parameter",
                        "Missing required parameter: 'prompt'.");
    if (r->kind == API_EMBEDDING && !r->n_prompts)
        return api_fail(a, 400, API_INVALID, "input", "missing_required_parameter",
                        "Missing required parameter: 'input'.");
    return 0;
}

int api_request_parse(struct api_request *r, enum api_kind kind, const char *body, size_t n,
                      struct api_error *a)
{
    *r = (struct api_request){.kind = kind,
                              .n = 1,
                              .priority = API_PRIORITY_USUAL,
                              .sampling = {.temperature = 1, .top_p = 1}};
    *a = (struct api_error){0};
    if (parse_json(r, body, n, a))
        return -1;
    const char *key;
    json_t *value;
    json_object_foreach(r->root, key, value)
    {
        const struct api_field *f = api_field_find(key, kind);
        if (!f)
            return api_fail(a, 400, API_INVALID, key, "unknown_parameter",
                            "Unrecognized request argument supplied: %s", key);
        if (!json_is_null(value) && f->take(r, f, value, a))
            return -1;
    }
    return check_required(r, a) || api_fields_check(r, a) ? -1 : 0;
}

void api_request_drop_texts(struct api_request *r)
{
    json_decref(r->messages);
    json_decref(r->tools);
    json_decref(r->template_kwargs);
    free(r->prompts);
    free(r->ids);
    json_decref(r->root);
    r->root = NULL;
    r->messages = r->tools = r->template_kwargs = NULL;
    r->prompts = NULL;
    r->ids = NULL;
    r->model = NULL;
    r->n_prompts = r->n_ids = r->n_stops = 0;
}

void api_request_fini(struct api_request *r)
{
    api_request_drop_texts(r);
    free(r->bias);
    free(r->constraint_source);
    *r = (struct api_request){0};
}
