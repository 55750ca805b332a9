/* prep.c - see prep.h. */
#include "router/prep.h"

#include "text/grammar.h"
#include "text/prompt.h"

#include <stdlib.h>

enum { TEMPLATE_SLACK_BYTES = 1 << 20 /* what a template may add to the messages' own text */ };

static int fail_text(struct prep *p, const char *param, const struct err *e)
{
    if (e->code == ERR_NOMEM)
        return api_fail(&p->error, 500, API_SERVER_ERROR, NULL, "out_of_memory", "Out of memory.");
    return api_fail(&p->error, 400, API_INVALID, param, "invalid_value",
                    "The prompt cannot be encoded: %s.", e->text);
}

static int fail_memory(struct prep *p)
{
    return api_fail(&p->error, 500, API_SERVER_ERROR, NULL, "out_of_memory", "Out of memory.");
}

/* What the prompt is called in this request. */
static const char *prompt_param(const struct prep *p)
{
    return p->kind == API_CHAT ? "messages" : p->kind == API_COMPLETION ? "prompt" : "input";
}

static int check_id(struct prep *p, const char *param, size_t i, uint32_t id)
{
    uint32_t n_vocab = tokenizer_vocab(p->model->tokenizer);
    if (id < n_vocab)
        return 0;
    return api_fail(&p->error, 400, API_INVALID, param, "invalid_value",
                    "Invalid '%s[%zu]': token id %u is outside the vocabulary of %u.", param, i, id,
                    n_vocab);
}

/* --- prompts ---------------------------------------------------------------------------------- */

static int ids_from_ids(struct prep *p, const uint32_t *ids, size_t n, struct token_vec *out)
{
    for (size_t i = 0; i < n; i++) {
        if (check_id(p, prompt_param(p), i, ids[i]))
            return -1;
        if (token_vec_push(out, ids[i]))
            return fail_memory(p);
    }
    return 0;
}

static int ids_from_prompt(struct prep *p, const struct api_prompt *prompt, struct token_vec *out)
{
    struct err e = ERR_INIT;
    if (!prompt->text)
        return ids_from_ids(p, p->request.ids + prompt->first, prompt->n, out);
    if (p->kind == API_EMBEDDING && !prompt->n)
        return api_fail(&p->error, 400, API_INVALID, "input", "invalid_value",
                        "Invalid 'input': a text is empty.");
    if (prompt_from_text(p->model->tokenizer, prompt->text, prompt->n, SIZE_MAX / 8, out, &e))
        return fail_text(p, prompt_param(p), &e);
    int32_t eos = tokenizer_eos(p->model->tokenizer);
    bool ends = out->n && out->ids[out->n - 1] == (uint32_t)eos;
    if (p->kind == API_EMBEDDING && p->model->add_eos && eos >= 0 && !ends &&
        token_vec_push(out, (uint32_t)eos))
        return fail_memory(p);
    return 0;
}

static int ids_from_messages(struct prep *p, struct token_vec *out)
{
    const struct api_request *r = &p->request;
    struct err e = ERR_INIT;
    if (!p->model->chat)
        return api_fail(&p->error, 400, API_INVALID, "model", "no_chat_template",
                        "The model '%s' has no chat template; use /v1/completions.", r->model);
    if (r->tools && !p->model->chat_has_tools)
        return api_fail(&p->error, 400, API_INVALID, "tools", "unsupported_parameter",
                        "Unsupported parameter: the chat template of '%s' shows no tools to the "
                        "model.",
                        r->model);
    struct chat_inputs in = {.messages = r->messages,
                             .tools = r->hides_tools ? NULL : r->tools,
                             .kwargs = r->template_kwargs,
                             .add_generation_prompt = true};
    if (prompt_from_request(p->model->chat, p->model->tokenizer, &in,
                            2 * p->body_bytes + TEMPLATE_SLACK_BYTES, SIZE_MAX / 8, out, &e))
        return fail_text(p, "messages", &e);
    return 0;
}

/* An engine needs one token to begin after. */
static int fill_empty(struct prep *p, struct token_vec *ids)
{
    int32_t start = tokenizer_bos(p->model->tokenizer);
    if (ids->n)
        return 0;
    if (start < 0)
        start = tokenizer_eos(p->model->tokenizer);
    if (start < 0 || token_vec_push(ids, (uint32_t)start))
        return api_fail(&p->error, 400, API_INVALID, prompt_param(p), "invalid_value",
                        "The prompt is empty.");
    return 0;
}

static int check_context(struct prep *p, struct prep_prompt *prompt)
{
    const struct api_request *r = &p->request;
    const char *param = prompt_param(p);
    uint32_t n_ctx = p->model->n_ctx < MSG_MAX_TOKENS ? p->model->n_ctx : MSG_MAX_TOKENS;
    size_t n = prompt->ids.n;
    if (r->kind == API_EMBEDDING) {
        if (n <= n_ctx)
            return 0;
        return api_fail(&p->error, 400, API_INVALID, param, "context_length_exceeded",
                        "This model's maximum context length is %u tokens. However, one input has "
                        "%zu tokens. Please reduce its length.",
                        n_ctx, n);
    }
    if (n >= n_ctx)
        return api_fail(&p->error, 400, API_INVALID, param, "context_length_exceeded",
                        "This model's maximum context length is %u tokens. However, your %s "
                        "resulted in %zu tokens and at least one is needed for the answer. Please "
                        "reduce the length of the %s.",
                        n_ctx, param, n, param);
    uint32_t left = n_ctx - (uint32_t)n;
    if (r->has_max_tokens && r->max_tokens > left)
        return api_fail(&p->error, 400, API_INVALID, param, "context_length_exceeded",
                        "This model's maximum context length is %u tokens. However, you requested "
                        "%zu tokens (%zu in the %s, %u in the completion). Please reduce the "
                        "length of the %s or the completion.",
                        n_ctx, n + r->max_tokens, n, param, r->max_tokens, param);
    prompt->max_tokens = r->has_max_tokens ? r->max_tokens : left;
    prompt->max_tokens += !prompt->max_tokens; /* an echo alone: one is drawn, none is shown */
    return 0;
}

static int make_prompts(struct prep *p)
{
    const struct api_request *r = &p->request;
    size_t n = p->kind == API_CHAT ? 1 : r->n_prompts;
    p->prompts = calloc(n, sizeof *p->prompts);
    if (!p->prompts)
        return fail_memory(p);
    for (p->n_prompts = 0; p->n_prompts < n;) {
        struct prep_prompt *prompt = &p->prompts[p->n_prompts++];
        int rc = p->kind == API_CHAT
                     ? ids_from_messages(p, &prompt->ids)
                     : ids_from_prompt(p, &r->prompts[p->n_prompts - 1], &prompt->ids);
        if (rc || fill_empty(p, &prompt->ids) || check_context(p, prompt))
            return -1;
    }
    p->n_choices = p->kind == API_EMBEDDING ? n : n * r->best_of;
    return 0;
}

/* --- the rest --------------------------------------------------------------------------------- */

static int check_model(struct prep *p)
{
    const struct api_request *r = &p->request;
    p->model = model_set_find(p->models, r->model, strlen(r->model));
    if (!p->model) {
        p->unknown_model = true;
        return api_fail(&p->error, 404, API_INVALID, "model", "model_not_found",
                        "The model '%.128s' does not exist or you do not have access to it.",
                        r->model);
    }
    if (p->kind == API_EMBEDDING && !p->model->n_embd)
        return api_fail(&p->error, 400, API_INVALID, "model", "unsupported_model",
                        "The model '%.128s' is not an embedding model; use /v1/chat/completions or "
                        "/v1/completions.",
                        r->model);
    if (p->kind != API_EMBEDDING && p->model->n_embd)
        return api_fail(&p->error, 400, API_INVALID, "model", "unsupported_model",
                        "The model '%.128s' is an embedding model; use /v1/embeddings.", r->model);
    if (r->dimensions > p->model->n_embd)
        return api_fail(&p->error, 400, API_INVALID, "dimensions", "invalid_value",
                        "Invalid value for 'dimensions': this model has %u, got %u.",
                        p->model->n_embd, r->dimensions);
    return 0;
}

static int check_ids(struct prep *p)
{
    const struct api_request *r = &p->request;
    for (uint32_t i = 0; i < r->n_stop_ids; i++)
        if (check_id(p, "stop_token_ids", i, r->stop_ids[i]))
            return -1;
    if (r->n_stop_ids + p->model->n_eog > MSG_MAX_STOP_IDS)
        return api_fail(&p->error, 400, API_INVALID, "stop_token_ids", "array_above_max_length",
                        "Invalid 'stop_token_ids': at most %u ids are accepted for this model.",
                        MSG_MAX_STOP_IDS - p->model->n_eog);
    uint32_t n_vocab = tokenizer_vocab(p->model->tokenizer);
    for (uint32_t i = 0; i < r->n_bias; i++)
        if (r->bias[i].id >= n_vocab)
            return api_fail(&p->error, 400, API_INVALID, "logit_bias", "invalid_value",
                            "Invalid key in 'logit_bias': token id %u is outside the vocabulary of "
                            "%u.",
                            r->bias[i].id, n_vocab);
    return 0;
}

static int make_stops(struct prep *p)
{
    const struct api_request *r = &p->request;
    struct err e = ERR_INIT;
    p->stops = calloc(p->n_choices, sizeof *p->stops);
    if (!p->stops)
        return fail_memory(p);
    for (size_t i = 0; i < p->n_choices; i++)
        if (stops_create(&p->stops[i], r->stops, r->stop_bytes, r->n_stops, &e))
            return api_fail(&p->error, 400, API_INVALID, "stop", "invalid_value",
                            "Invalid 'stop': %s.", e.text);
    return 0;
}

void prep_run(struct prep *p)
{
    if (!api_request_parse(&p->request, p->kind, p->body, p->body_bytes, &p->error) &&
        !check_model(p) && !check_ids(p) && !make_prompts(p))
        make_stops(p);
    api_request_drop_texts(
        &p->request); /* freeing a large tree takes time too: here, not on the loop */
    free(p->body);
    p->body = NULL;
}

bool prep_has_constraint(const struct prep *p)
{
    return !p->error.status && p->request.constraint != CONSTRAINT_NONE;
}

void prep_compile(struct prep *p)
{
    const struct api_request *r = &p->request;
    struct grammar *g = NULL;
    struct err e = ERR_INIT;
    int rc = grammar_create(&g, (enum grammar_kind)(r->constraint - 1), r->constraint_source,
                            r->constraint_bytes, NULL, &e);
    grammar_unref(g);
    if (rc == ERR_NOMEM)
        fail_memory(p);
    else if (rc)
        api_fail(&p->error, 400, API_INVALID, r->constraint_param, "invalid_value",
                 "Invalid '%s': %s.", r->constraint_param, e.text);
}

void prep_fini(struct prep *p)
{
    api_request_fini(&p->request);
    for (size_t i = 0; p->stops && i < p->n_choices; i++)
        stops_destroy(p->stops[i]);
    for (size_t i = 0; i < p->n_prompts; i++)
        token_vec_fini(&p->prompts[i].ids);
    free(p->stops);
    free(p->prompts);
    free(p->body);
    p->body = NULL;
    p->stops = NULL;
    p->prompts = NULL;
    p->n_prompts = p->n_choices = 0;
}
