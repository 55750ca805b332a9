/* api_fields.c - see api_fields.h. */
#include "router/api_fields.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define BOTH     (API_CHAT | API_COMPLETION)
#define TAKE(fn) static TAKE_FIELD(fn)

int api_fail_type(const struct api_field *f, const char *expected, struct api_error *a)
{
    return api_fail(a, 400, API_INVALID, f->name, "invalid_type",
                    "Invalid type for '%s': expected %s.", f->name, expected);
}

int api_fail_value(const struct api_field *f, const char *expected, struct api_error *a)
{
    return api_fail(a, 400, API_INVALID, f->name, "invalid_value",
                    "Invalid value for '%s': expected %s.", f->name, expected);
}

int api_fail_unsupported(const struct api_field *f, struct api_error *a)
{
    return api_fail(a, 400, API_INVALID, f->name, "unsupported_parameter",
                    "Unsupported parameter: '%s' is not supported by this service in that value.",
                    f->name);
}

int api_get_int(const struct api_field *f, json_t *value, int64_t min, int64_t max, int64_t *out,
                struct api_error *a)
{
    if (!json_is_integer(value))
        return api_fail_type(f, "an integer", a);
    int64_t v = json_integer_value(value);
    if (v < min || v > max)
        return api_fail(a, 400, API_INVALID, f->name, "invalid_value",
                        "Invalid value for '%s': expected %" PRId64 " to %" PRId64 ", got %" PRId64
                        ".",
                        f->name, min, max, v);
    *out = v;
    return 0;
}

int api_get_bool(const struct api_field *f, json_t *value, bool *out, struct api_error *a)
{
    if (!json_is_boolean(value))
        return api_fail_type(f, "a boolean", a);
    *out = json_is_true(value);
    return 0;
}

/* --- fields that are used --------------------------------------------------------------------- */

TAKE(take_model)
{
    if (!json_is_string(value))
        return api_fail_type(f, "a string", a);
    r->model = json_string_value(value);
    if (!r->model[0] || strlen(r->model) != json_string_length(value))
        return api_fail_value(f, "a model name", a);
    return 0;
}

TAKE(take_max_tokens)
{
    int64_t v = 0;
    if (r->has_max_tokens)
        return api_fail(a, 400, API_INVALID, f->name, "invalid_parameter_combination",
                        "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not "
                        "supported.");
    if (api_get_int(f, value, 0, INT32_MAX, &v, a)) /* 0 for an echo alone: api_fields_check */
        return -1;
    r->max_tokens = (uint32_t)v;
    r->has_max_tokens = true;
    return 0;
}

static int add_stop(struct api_request *r, const struct api_field *f, json_t *value,
                    struct api_error *a)
{
    if (!json_is_string(value))
        return api_fail_type(f, "a string or an array of strings", a);
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
    return api_get_bool(f, value, &r->stream, a);
}

TAKE(take_ignore_eos)
{
    return api_get_bool(f, value, &r->ignore_eos, a);
}

TAKE(take_echo)
{
    return api_get_bool(f, value, &r->echo, a);
}

TAKE(take_encoding_format)
{
    const char *s = json_string_value(value);
    if (!s)
        return api_fail_type(f, "a string", a);
    r->base64 = !strcmp(s, "base64");
    return r->base64 || !strcmp(s, "float") ? 0 : api_fail_value(f, "'float' or 'base64'", a);
}

TAKE(take_stream_options)
{
    if (!json_is_object(value))
        return api_fail_type(f, "an object", a);
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

/* --- fields accepted in their neutral form only ----------------------------------------------- */

TAKE(take_harmless)
{
    return 0;
}

TAKE(take_unsupported)
{
    return api_fail_unsupported(f, a);
}

TAKE(take_true)
{
    return json_is_boolean(value) ? json_is_true(value) ? 0 : api_fail_unsupported(f, a)
                                  : api_fail_type(f, "a boolean", a);
}

TAKE(take_empty)
{
    bool empty = (json_is_array(value) && !json_array_size(value)) ||
                 (json_is_object(value) && !json_object_size(value));
    return empty ? 0 : api_fail_unsupported(f, a);
}

TAKE(take_function_call)
{
    const char *s = json_string_value(value);
    return s && (!strcmp(s, "none") || !strcmp(s, "auto")) ? 0 : api_fail_unsupported(f, a);
}

TAKE(take_modalities)
{
    if (!json_is_array(value))
        return api_fail_type(f, "an array of strings", a);
    size_t i;
    json_t *item;
    json_array_foreach(value, i, item)
    {
        const char *s = json_string_value(item);
        if (!s || strcmp(s, "text"))
            return api_fail_unsupported(f, a);
    }
    return 0;
}

#define NUMBER(member, least, most)                                                                \
    api_take_number, least, most, offsetof(struct api_request, member)
#define COUNT(member, least, most) api_take_count, least, most, offsetof(struct api_request, member)

static const struct api_field FIELDS[] = {
    {"model", BOTH | API_EMBEDDING, take_model, 0, 0, 0},
    {"messages", API_CHAT, api_take_messages, 0, 0, 0},
    {"tools", API_CHAT, api_take_tools, 0, 0, 0},
    {"tool_choice", API_CHAT, api_take_tool_choice, 0, 0, 0},
    {"chat_template_kwargs", API_CHAT, api_take_template_kwargs, 0, 0, 0},
    {"prompt", API_COMPLETION, api_take_prompt, 0, 0, 0},
    {"input", API_EMBEDDING, api_take_prompt, 0, 0, 0},
    {"encoding_format", API_EMBEDDING, take_encoding_format, 0, 0, 0},
    {"dimensions", API_EMBEDDING, COUNT(dimensions, 1, INT32_MAX)},
    {"max_tokens", BOTH, take_max_tokens, 0, 0, 0},
    {"max_completion_tokens", API_CHAT, take_max_tokens, 0, 0, 0},
    {"min_tokens", BOTH, COUNT(sampling.min_tokens, 0, INT32_MAX)},
    {"n", BOTH, COUNT(n, 1, API_MAX_N)},
    {"best_of", API_COMPLETION, COUNT(best_of, 1, API_MAX_N)},
    {"echo", API_COMPLETION, take_echo, 0, 0, 0},
    /* which token comes next */
    {"temperature", BOTH, NUMBER(sampling.temperature, 0, 2)},
    {"top_p", BOTH, NUMBER(sampling.top_p, 0, 1)},
    {"top_k", BOTH, api_take_top_k, 0, 0, 0},
    {"min_p", BOTH, NUMBER(sampling.min_p, 0, 1)},
    {"typical_p", BOTH, NUMBER(sampling.typical_p, 0, 1)},
    {"repetition_penalty", BOTH, NUMBER(sampling.repetition_penalty, 0.01, 100)},
    {"frequency_penalty", BOTH, NUMBER(sampling.frequency_penalty, -2, 2)},
    {"presence_penalty", BOTH, NUMBER(sampling.presence_penalty, -2, 2)},
    {"logit_bias", BOTH, api_take_logit_bias, 0, 0, 0},
    {"seed", BOTH, api_take_seed, 0, 0, 0},
    /* where it ends */
    {"stop", BOTH, take_stop, 0, 0, 0},
    {"stop_token_ids", BOTH, api_take_stop_token_ids, 0, 0, 0},
    {"ignore_eos", BOTH, take_ignore_eos, 0, 0, 0},
    /* what it must be */
    {"response_format", BOTH, api_take_response_format, 0, 0, 0},
    {"guided_json", BOTH, api_take_guided_json, 0, 0, 0},
    {"guided_regex", BOTH, api_take_guided_regex, 0, 0, 0},
    {"guided_choice", BOTH, api_take_guided_choice, 0, 0, 0},
    {"guided_grammar", BOTH, api_take_guided_grammar, 0, 0, 0},
    {"structured_outputs", BOTH, api_take_structured_outputs, 0, 0, 0},
    /* how it is told */
    {"stream", BOTH, take_stream, 0, 0, 0},
    {"stream_options", BOTH, take_stream_options, 0, 0, 0},
    {"logprobs", API_CHAT, api_take_logprobs_flag, 0, 0, 0},
    {"top_logprobs", API_CHAT, api_take_top_logprobs, 0, 0, 0},
    {"logprobs", API_COMPLETION, api_take_logprobs_count, 0, 0, 0},
    /* whose turn it is */
    {"priority", BOTH | API_EMBEDDING, api_take_priority, 0, 0, 0},
    {"user", BOTH | API_EMBEDDING, api_take_user, 0, 0, 0},
    /* change nothing in the answer */
    {"metadata", BOTH, take_harmless, 0, 0, 0},
    {"store", BOTH, take_harmless, 0, 0, 0},
    {"service_tier", BOTH, take_harmless, 0, 0, 0},
    {"safety_identifier", BOTH, take_harmless, 0, 0, 0},
    {"prompt_cache_key", BOTH, take_harmless, 0, 0, 0},
    {"prompt_cache_retention", BOTH, take_harmless, 0, 0, 0},
    {"parallel_tool_calls", API_CHAT, take_harmless, 0, 0, 0},
    {"prediction", API_CHAT, take_harmless, 0, 0, 0},
    /* would change it: neutral values only */
    {"functions", API_CHAT, take_empty, 0, 0, 0},
    {"function_call", API_CHAT, take_function_call, 0, 0, 0},
    {"skip_special_tokens", BOTH, take_true, 0, 0, 0},
    {"audio", API_CHAT, take_unsupported, 0, 0, 0},
    {"modalities", API_CHAT, take_modalities, 0, 0, 0},
    {"reasoning_effort", API_CHAT, take_unsupported, 0, 0, 0},
    {"verbosity", API_CHAT, take_unsupported, 0, 0, 0},
    {"web_search_options", API_CHAT, take_unsupported, 0, 0, 0},
    {"suffix", API_COMPLETION, take_unsupported, 0, 0, 0},
};

const struct api_field *api_field_find(const char *name, enum api_kind kind)
{
    for (size_t i = 0; i < sizeof FIELDS / sizeof FIELDS[0]; i++)
        if ((FIELDS[i].kinds & (int)kind) && !strcmp(FIELDS[i].name, name))
            return &FIELDS[i];
    return NULL;
}

int api_fields_check(struct api_request *r, struct api_error *a)
{
    json_t *options = json_object_get(r->root, "stream_options");
    if (options && !json_is_null(options) && !r->stream)
        return api_fail(a, 400, API_INVALID, "stream_options", "invalid_parameter_combination",
                        "The 'stream_options' parameter is only allowed when 'stream' is enabled.");
    if (r->has_max_tokens && !r->max_tokens && !r->echo)
        return api_fail(a, 400, API_INVALID,
                        json_object_get(r->root, "max_completion_tokens") ? "max_completion_tokens"
                                                                          : "max_tokens",
                        "invalid_value",
                        "Invalid value for 'max_tokens': expected 1 to %d, got 0 (which is for "
                        "'echo' alone).",
                        INT32_MAX);
    return r->kind == API_EMBEDDING ? 0 : api_sampling_check(r, a);
}
