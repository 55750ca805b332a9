/* api_sampling.c - fields that change the choice of tokens, and what is told of it. */
#include "router/api_fields.h"

#include "base/digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

TAKE_FIELD(api_take_number)
{
    char expected[64];
    if (!json_is_number(value))
        return api_fail_type(f, "a number", a);
    double v = json_number_value(value);
    if (!(v >= f->least && v <= f->most)) {
        snprintf(expected, sizeof expected, "a number from %g to %g", f->least, f->most);
        return api_fail_value(f, expected, a);
    }
    *(float *)((char *)r + f->at) = (float)v;
    return 0;
}

TAKE_FIELD(api_take_count)
{
    int64_t v = 0;
    if (api_get_int(f, value, (int64_t)f->least, (int64_t)f->most, &v, a))
        return -1;
    *(uint32_t *)((char *)r + f->at) = (uint32_t)v;
    return 0;
}

TAKE_FIELD(api_take_top_k)
{
    int64_t v = 0;
    if (api_get_int(f, value, -1, INT32_MAX, &v, a))
        return -1;
    r->sampling.top_k = v > 0 ? (uint32_t)v : 0; /* vLLM: -1 and 0 are off */
    return 0;
}

TAKE_FIELD(api_take_seed)
{
    int64_t v = 0;
    if (api_get_int(f, value, INT64_MIN, INT64_MAX, &v, a))
        return -1;
    r->sampling.seed = (uint64_t)v;
    r->has_seed = true;
    return 0;
}

/* A key of logit_bias: a token id in decimal. */
static int bias_id(const struct api_field *f, const char *key, uint32_t *id, struct api_error *a)
{
    char *end;
    unsigned long v = key[0] >= '0' && key[0] <= '9' ? strtoul(key, &end, 10) : 0;
    if (!(key[0] >= '0' && key[0] <= '9') || *end || v > INT32_MAX)
        return api_fail(a, 400, API_INVALID, f->name, "invalid_value",
                        "Invalid key in '%s': '%.40s' is not a token id.", f->name, key);
    *id = (uint32_t)v;
    return 0;
}

TAKE_FIELD(api_take_logit_bias)
{
    if (!json_is_object(value))
        return api_fail_type(f, "an object of token ids and numbers", a);
    size_t n = json_object_size(value);
    if (n > MSG_MAX_BIAS)
        return api_fail(a, 400, API_INVALID, f->name, "invalid_value",
                        "Invalid '%s': at most %d tokens are accepted, got %zu.", f->name,
                        MSG_MAX_BIAS, n);
    r->bias = calloc(n + 1, sizeof *r->bias);
    if (!r->bias)
        return api_fail(a, 500, API_SERVER_ERROR, NULL, "out_of_memory", "Out of memory.");
    const char *key;
    json_t *item;
    json_object_foreach(value, key, item)
    {
        struct api_bias *b = &r->bias[r->n_bias];
        if (bias_id(f, key, &b->id, a))
            return -1;
        if (!json_is_number(item))
            return api_fail(a, 400, API_INVALID, f->name, "invalid_type",
                            "Invalid type for '%s.%s': expected a number.", f->name, key);
        double v = json_number_value(item);
        if (!(v >= -100 && v <= 100))
            return api_fail(a, 400, API_INVALID, f->name, "invalid_value",
                            "Invalid value for '%s.%s': expected a number from -100 to 100.",
                            f->name, key);
        b->value = (float)v;
        r->n_bias++;
    }
    return 0;
}

TAKE_FIELD(api_take_stop_token_ids)
{
    size_t i;
    json_t *item;
    if (!json_is_array(value))
        return api_fail_type(f, "an array of token ids", a);
    if (json_array_size(value) > MSG_MAX_STOP_IDS)
        return api_fail(a, 400, API_INVALID, f->name, "array_above_max_length",
                        "Invalid '%s': at most %d ids are accepted, got %zu.", f->name,
                        MSG_MAX_STOP_IDS, json_array_size(value));
    json_array_foreach(value, i, item)
    {
        if (!json_is_integer(item))
            return api_fail_type(f, "an array of token ids", a);
        json_int_t id = json_integer_value(item);
        if (id < 0 || id > INT32_MAX)
            return api_fail(a, 400, API_INVALID, f->name, "invalid_value",
                            "Invalid '%s[%zu]': expected a token id.", f->name, i);
        r->stop_ids[r->n_stop_ids++] = (uint32_t)id;
    }
    return 0;
}

/* chat */
TAKE_FIELD(api_take_logprobs_flag)
{
    return api_get_bool(f, value, &r->want_logprobs, a);
}

TAKE_FIELD(api_take_top_logprobs)
{
    int64_t v = 0;
    if (api_get_int(f, value, 0, MSG_MAX_TOP_LOGPROBS, &v, a))
        return -1;
    r->sampling.n_top = (uint8_t)v;
    return 0;
}

/* completion */
TAKE_FIELD(api_take_logprobs_count)
{
    r->want_logprobs = true;
    return api_take_top_logprobs(r, f, value, a);
}

TAKE_FIELD(api_take_priority)
{
    int64_t v = 0; /* vLLM: lower is earlier, 0 the usual */
    if (api_get_int(f, value, API_PRIORITY_USUAL - UINT8_MAX, API_PRIORITY_USUAL, &v, a))
        return -1;
    r->priority = (uint8_t)(API_PRIORITY_USUAL - v);
    return 0;
}

TAKE_FIELD(api_take_user)
{
    if (!json_is_string(value))
        return api_fail_type(f, "a string", a);
    uint8_t hash[SHA256_BYTES];
    sha256_of(json_string_value(value), json_string_length(value), hash);
    r->tenant = u32_at(hash, 0);
    r->tenant += !r->tenant; /* 0 is the common one */
    return 0;
}

static int fail_pair(struct api_error *a, const char *param, const char *text)
{
    return api_fail(a, 400, API_INVALID, param, "invalid_parameter_combination", "%s", text);
}

int api_sampling_check(struct api_request *r, struct api_error *a)
{
    if (r->kind == API_CHAT && r->sampling.n_top && !r->want_logprobs)
        return fail_pair(a, "top_logprobs",
                         "The 'top_logprobs' parameter is only allowed when 'logprobs' is "
                         "enabled.");
    if (r->has_max_tokens && r->sampling.min_tokens > r->max_tokens)
        return api_fail(a, 400, API_INVALID, "min_tokens", "invalid_value",
                        "Invalid value for 'min_tokens': %u is more than 'max_tokens', %u.",
                        r->sampling.min_tokens, r->max_tokens);
    if (r->constraint && r->ignore_eos)
        return fail_pair(a, "ignore_eos",
                         "'ignore_eos' cannot be combined with an output that must end where its "
                         "format does.");
    if (r->best_of && r->best_of < r->n)
        return api_fail(a, 400, API_INVALID, "best_of", "invalid_value",
                        "Invalid value for 'best_of': %u is less than 'n', %u.", r->best_of, r->n);
    if (!r->best_of)
        r->best_of = r->n;
    if (r->stream && r->best_of > r->n)
        return fail_pair(a, "best_of",
                         "Results cannot be streamed while 'best_of' is greater than 'n'.");
    if (r->n_prompts * r->best_of > API_MAX_CHOICES)
        return api_fail(a, 400, API_INVALID, r->n > 1 || r->best_of > 1 ? "n" : "prompt",
                        "invalid_value",
                        "%zu prompts with %u answers each are more than %d in one request.",
                        r->n_prompts, r->best_of, API_MAX_CHOICES);
    return 0;
}
