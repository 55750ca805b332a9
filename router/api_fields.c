/* api_fields.c - see api_fields.h. */
#include "router/api_fields.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define BOTH (API_CHAT | API_COMPLETION)

#define TAKE(fn)                                                                                   \
    static int fn(struct api_request *r, const struct api_field *f, json_t *value,                 \
                  struct api_error *a)

static int fail_type(const struct api_field *f, const char *expected, struct api_error *a)
{
    return api_fail(a, 400, API_INVALID, f->name, "invalid_type",
                    "Invalid type for '%s': expected %s.", f->name, expected);
}

static int fail_value(const struct api_field *f, const char *expected, struct api_error *a)
{
    return api_fail(a, 400, API_INVALID, f->name, "invalid_value",
                    "Invalid value for '%s': expected %s.", f->name, expected);
}

static int fail_unsupported(const struct api_field *f, struct api_error *a)
{
    return api_fail(a, 400, API_INVALID, f->name, "unsupported_parameter",
                    "Unsupported parameter: '%s' is not supported by this service in that value.",
                    f->name);
}

static int get_int(const struct api_field *f, json_t *value, int64_t min, int64_t max, int64_t *out,
                   struct api_error *a)
{
    if (!json_is_integer(value))
        return fail_type(f, "an integer", a);
    int64_t v = json_integer_value(value);
    if (v < min || v > max)
        return api_fail(a, 400, API_INVALID, f->name, "invalid_value",
                        "Invalid value for '%s': expected %" PRId64 " to %" PRId64 ", got %" PRId64
                        ".",
                        f->name, min, max, v);
    *out = v;
    return 0;
}

static int get_bool(const struct api_field *f, json_t *value, bool *out, struct api_error *a)
{
    if (!json_is_boolean(value))
        return fail_type(f, "a boolean", a);
    *out = json_is_true(value);
    return 0;
}

/* --- fields that are used --------------------------------------------------------------------- */

TAKE(take_model)
{
    if (!json_is_string(value))
        return fail_type(f, "a string", a);
    r->model = json_string_value(value);
    if (!r->model[0] || strlen(r->model) != json_string_length(value))
        return fail_value(f, "a model name", a);
    return 0;
}

TAKE(take_max_tokens)
{
    int64_t v = 0;
    if (r->has_max_tokens)
        return api_fail(a, 400, API_INVALID, f->name, "invalid_parameter_combination",
                        "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not "
                        "supported.");
    if (get_int(f, value, 1, INT32_MAX, &v, a))
        return -1;
    r->max_tokens = (uint32_t)v;
    r->has_max_tokens = true;
    return 0;
}

TAKE(take_temperature)
{
    if (!json_is_number(value))
        return fail_type(f, "a number", a);
    double v = json_number_value(value);
    if (!(v >= 0 && v <= 2))
        return fail_value(f, "a number from 0 to 2", a);
    r->temperature = (float)v;
    return 0;
}

TAKE(take_top_p)
{
    if (!json_is_number(value))
        return fail_type(f, "a number", a);
    double v = json_number_value(value);
    if (!(v >= 0 && v <= 1)) /* 0: the likeliest token alone, as OpenAI has it */
        return fail_value(f, "a number from 0 to 1", a);
    r->top_p = (float)v;
    return 0;
}

TAKE(take_top_k)
{
    int64_t v = 0;
    if (get_int(f, value, -1, INT32_MAX, &v, a))
        return -1;
    r->top_k = v > 0 ? (uint32_t)v : 0; /* vLLM: -1 and 0 are off */
    return 0;
}

TAKE(take_seed)
{
    int64_t v = 0;
    if (get_int(f, value, INT64_MIN, INT64_MAX, &v, a))
        return -1;
    r->seed = (uint64_t)v;
    r->has_seed = true;
    return 0;
}

static int add_stop(struct api_request *r, const struct api_field *f, json_t *value,
                    struct api_error *a)
{
    if (!json_is_string(value))
        return fail_type(f, "a string or an array of strings", a);
    size_t n = json_string_length(value);
    if (!n || n > STOPS_MAX_BYTES)
        return api_fail(a, 400, API_INVALID, f->name, "invalid_value",
                        "Invalid value for 'stop': a stop string must have 1 to %d bytes, got %zu.",
                        STOPS_MAX_BYTES, n);
    r->stops[r->n_stops] = json_string_value(value);
    r->stop_bytes[r->n_stops++] = n;
    return 0;
}

TAKE(take_stop)
{
    if (!json_is_array(value))
        return add_stop(r, f, value, a);
    if (json_array_size(value) > STOPS_MAX)
        return api_fail(a, 400, API_INVALID, f->name, "array_above_max_length",
                        "Invalid 'stop': at most %d strings are accepted, got %zu.", STOPS_MAX,
                        json_array_size(value));
    size_t i;
    json_t *item;
    json_array_foreach(value, i, item) if (add_stop(r, f, item, a)) return -1;
    return 0;
}

TAKE(take_stream)
{
    return get_bool(f, value, &r->stream, a);
}

TAKE(take_ignore_eos)
{
    return get_bool(f, value, &r->ignore_eos, a);
}

TAKE(take_stream_options)
{
    if (!json_is_object(value))
        return fail_type(f, "an object", a);
    const char *key;
    json_t *item;
    json_object_foreach(value, key, item)
    {
        if (json_is_null(item))
            continue;
        if (!strcmp(key, "include_usage")) {
            if (!json_is_boolean(item))
                return api_fail(a, 400, API_INVALID, "stream_options.include_usage", "invalid_type",
                                "Invalid type for 'stream_options.include_usage': expected a "
                                "boolean.");
            r->include_usage = json_is_true(item);
        } else if (!strcmp(key, "include_obfuscation") || !strcmp(key, "continuous_usage_stats")) {
            if (!json_is_false(item))
                return api_fail(a, 400, API_INVALID, f->name, "unsupported_parameter",
                                "Unsupported parameter: 'stream_options.%s'.", key);
        } else {
            return api_fail(a, 400, API_INVALID, f->name, "unknown_parameter",
                            "Unrecognized request argument supplied: stream_options.%s", key);
        }
    }
    return 0;
}

TAKE(take_n)
{
    int64_t v = 0;
    if (get_int(f, value, 1, 128, &v, a))
        return -1;
    if (v > 1)
        return api_fail(a, 400, API_INVALID, "n", "unsupported_parameter",
                        "Unsupported value: 'n' must be 1; several choices of one request are not "
                        "supported, send the request several times.");
    return 0;
}

/* --- fields accepted in their neutral form only ----------------------------------------------- */

TAKE(take_harmless)
{
    return 0;
}

TAKE(take_unsupported)
{
    return fail_unsupported(f, a);
}

TAKE(take_false)
{
    return json_is_boolean(value) ? json_is_true(value) ? fail_unsupported(f, a) : 0
                                  : fail_type(f, "a boolean", a);
}

TAKE(take_true)
{
    return json_is_boolean(value) ? json_is_true(value) ? 0 : fail_unsupported(f, a)
                                  : fail_type(f, "a boolean", a);
}

TAKE(take_neutral)
{
    if (!json_is_number(value))
        return fail_type(f, "a number", a);
    return json_number_value(value) == f->neutral ? 0 : fail_unsupported(f, a);
}

TAKE(take_empty)
{
    bool empty = (json_is_array(value) && !json_array_size(value)) ||
                 (json_is_object(value) && !json_object_size(value));
    return empty ? 0 : fail_unsupported(f, a);
}

TAKE(take_tool_choice)
{
    const char *s = json_string_value(value);
    return s && (!strcmp(s, "none") || !strcmp(s, "auto")) ? 0 : fail_unsupported(f, a);
}

TAKE(take_response_format)
{
    const char *type = json_string_value(json_object_get(value, "type"));
    return type && !strcmp(type, "text") ? 0 : fail_unsupported(f, a);
}

TAKE(take_modalities)
{
    if (!json_is_array(value))
        return fail_type(f, "an array of strings", a);
    size_t i;
    json_t *item;
    json_array_foreach(value, i, item)
    {
        const char *s = json_string_value(item);
        if (!s || strcmp(s, "text"))
            return fail_unsupported(f, a);
    }
    return 0;
}

static const struct api_field FIELDS[] = {
    {"model", BOTH, take_model, 0},
    {"messages", API_CHAT, api_take_messages, 0},
    {"prompt", API_COMPLETION, api_take_prompt, 0},
    {"max_tokens", BOTH, take_max_tokens, 0},
    {"max_completion_tokens", API_CHAT, take_max_tokens, 0},
    {"temperature", BOTH, take_temperature, 0},
    {"top_p", BOTH, take_top_p, 0},
    {"top_k", BOTH, take_top_k, 0},
    {"seed", BOTH, take_seed, 0},
    {"stop", BOTH, take_stop, 0},
    {"stream", BOTH, take_stream, 0},
    {"stream_options", BOTH, take_stream_options, 0},
    {"n", BOTH, take_n, 0},
    {"ignore_eos", BOTH, take_ignore_eos, 0},
    /* change nothing in the answer */
    {"user", BOTH, take_harmless, 0},
    {"metadata", BOTH, take_harmless, 0},
    {"store", BOTH, take_harmless, 0},
    {"service_tier", BOTH, take_harmless, 0},
    {"safety_identifier", BOTH, take_harmless, 0},
    {"prompt_cache_key", BOTH, take_harmless, 0},
    {"prompt_cache_retention", BOTH, take_harmless, 0},
    {"parallel_tool_calls", API_CHAT, take_harmless, 0},
    {"prediction", API_CHAT, take_harmless, 0},
    /* would change it: neutral values only */
    {"tools", API_CHAT, take_empty, 0},
    {"tool_choice", API_CHAT, take_tool_choice, 0},
    {"functions", API_CHAT, take_empty, 0},
    {"function_call", API_CHAT, take_tool_choice, 0},
    {"response_format", API_CHAT, take_response_format, 0},
    {"logprobs", API_CHAT, take_false, 0},
    {"top_logprobs", API_CHAT, take_neutral, 0},
    {"logprobs", API_COMPLETION, take_unsupported, 0},
    {"logit_bias", BOTH, take_empty, 0},
    {"presence_penalty", BOTH, take_neutral, 0},
    {"frequency_penalty", BOTH, take_neutral, 0},
    {"repetition_penalty", BOTH, take_neutral, 1},
    {"min_p", BOTH, take_neutral, 0},
    {"min_tokens", BOTH, take_neutral, 0},
    {"skip_special_tokens", BOTH, take_true, 0},
    {"audio", API_CHAT, take_unsupported, 0},
    {"modalities", API_CHAT, take_modalities, 0},
    {"reasoning_effort", API_CHAT, take_unsupported, 0},
    {"verbosity", API_CHAT, take_unsupported, 0},
    {"web_search_options", API_CHAT, take_unsupported, 0},
    {"best_of", API_COMPLETION, take_neutral, 1},
    {"echo", API_COMPLETION, take_false, 0},
    {"suffix", API_COMPLETION, take_unsupported, 0},
};

const struct api_field *api_field_find(const char *name, enum api_kind kind)
{
    for (size_t i = 0; i < sizeof FIELDS / sizeof FIELDS[0]; i++)
        if ((FIELDS[i].kinds & (int)kind) && !strcmp(FIELDS[i].name, name))
            return &FIELDS[i];
    return NULL;
}

int api_fields_check(const struct api_request *r, struct api_error *a)
{
    json_t *options = json_object_get(r->root, "stream_options");
    if (options && !json_is_null(options) && !r->stream)
        return api_fail(a, 400, API_INVALID, "stream_options", "invalid_parameter_combination",
                        "The 'stream_options' parameter is only allowed when 'stream' is enabled.");
    return 0;
}
