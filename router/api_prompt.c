/* api_prompt.c - `prompt` of a completion and `input` of an embedding: a text, a list of texts, token
 * ids, or a list of lists of them. */
#include "router/api_fields.h"

#include <stdio.h>
#include <stdlib.h>

static int fail_at(struct api_error *a, const char *code, const char *where, const char *what)
{
    return api_fail(a, 400, API_INVALID, where, code, "Invalid '%s': %s", where, what);
}

static int fail_memory(struct api_error *a)
{
    return api_fail(a, 500, API_SERVER_ERROR, NULL, "out_of_memory", "Out of memory.");
}

static size_t count_ids(const json_t *value)
{
    size_t i, n = 0;
    json_t *item;
    if (json_is_integer(json_array_get(value, 0)))
        return json_array_size(value);
    json_array_foreach(value, i, item) if (json_is_array(item)) n += json_array_size(item);
    return n;
}

/* where: "prompt" or "prompt[3]". */
static int add_ids(struct api_request *r, const char *name, const char *where, json_t *value,
                   struct api_error *a)
{
    size_t i;
    json_t *v;
    r->prompts[r->n_prompts++] =
        (struct api_prompt){.n = json_array_size(value), .first = r->n_ids};
    json_array_foreach(value, i, v)
    {
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || id > INT32_MAX)
            return api_fail(a, 400, API_INVALID, name, "invalid_value",
                            "Invalid '%s[%zu]': expected a token id.", where, i);
        r->ids[r->n_ids++] = (uint32_t)id;
    }
    return 0;
}

static void add_text(struct api_request *r, json_t *value)
{
    r->prompts[r->n_prompts++] =
        (struct api_prompt){.text = json_string_value(value), .n = json_string_length(value)};
}

/* A list of prompts, all texts or all ids. */
static int add_list(struct api_request *r, const char *name, json_t *list, struct api_error *a)
{
    size_t i;
    json_t *item;
    bool texts = json_is_string(json_array_get(list, 0));
    json_array_foreach(list, i, item)
    {
        char where[API_PARAM_BYTES];
        snprintf(where, sizeof where, "%s[%zu]", name, i);
        bool fits = texts ? json_is_string(item) : json_is_array(item) && json_array_size(item);
        if (!fits)
            return api_fail(a, 400, API_INVALID, name, "invalid_type", "Invalid '%s': expected %s.",
                            where, texts ? "a string, like the first" : "a list of token ids");
        if (texts)
            add_text(r, item);
        else if (add_ids(r, name, where, item, a))
            return -1;
    }
    return 0;
}

TAKE_FIELD(api_take_prompt)
{
    json_t *first = json_array_get(value, 0);
    bool is_list = json_is_string(first) || json_is_array(first);
    if (!json_is_string(value) && !is_list && !json_is_integer(first))
        return fail_at(a, "invalid_type", f->name,
                       "expected a string, a list of strings, a list of token ids, or a list of "
                       "such lists.");
    if (is_list && json_array_size(value) > API_MAX_PROMPTS)
        return api_fail(a, 400, API_INVALID, f->name, "array_above_max_length",
                        "Invalid '%s': at most %d are accepted in one request, got %zu.", f->name,
                        API_MAX_PROMPTS, json_array_size(value));
    r->prompts = calloc(is_list ? json_array_size(value) : 1, sizeof *r->prompts);
    r->ids = malloc((count_ids(value) + 1) * sizeof *r->ids);
    if (!r->prompts || !r->ids)
        return fail_memory(a);
    if (is_list)
        return add_list(r, f->name, value, a);
    if (json_is_string(value)) {
        add_text(r, value);
        return 0;
    }
    return add_ids(r, f->name, f->name, value, a);
}
