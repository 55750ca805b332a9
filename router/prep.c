/* prep.c - see prep.h. */
#include "router/prep.h"

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

static int ids_from_ids(struct prep *p)
{
    const struct api_request *r = &p->request;
    uint32_t n_vocab = tokenizer_vocab(p->model->tokenizer);
    for (size_t i = 0; i < r->n_prompt_ids; i++) {
        if (r->prompt_ids[i] >= n_vocab)
            return api_fail(&p->error, 400, API_INVALID, "prompt", "invalid_value",
                            "Invalid 'prompt[%zu]': token id %u is outside the vocabulary of %u.",
                            i, r->prompt_ids[i], n_vocab);
        if (token_vec_push(&p->prompt, r->prompt_ids[i]))
            return api_fail(&p->error, 500, API_SERVER_ERROR, NULL, "out_of_memory",
                            "Out of memory.");
    }
    return 0;
}

static int make_prompt(struct prep *p)
{
    const struct api_request *r = &p->request;
    struct err e = ERR_INIT;
    if (r->kind == API_CHAT) {
        if (!p->model->chat)
            return api_fail(&p->error, 400, API_INVALID, "model", "no_chat_template",
                            "The model '%s' has no chat template; use /v1/completions.", r->model);
        if (prompt_from_chat(p->model->chat, p->model->tokenizer, r->messages, r->n_messages, true,
                             2 * p->body_bytes + TEMPLATE_SLACK_BYTES, SIZE_MAX / 8, &p->prompt,
                             &e))
            return fail_text(p, "messages", &e);
    } else if (r->prompt_ids) {
        if (ids_from_ids(p))
            return -1;
    } else if (prompt_from_text(p->model->tokenizer, r->prompt, r->prompt_bytes, SIZE_MAX / 8,
                                &p->prompt, &e)) {
        return fail_text(p, "prompt", &e);
    }
    if (!p->prompt.n) { /* an engine needs one token to begin after */
        int32_t start = tokenizer_bos(p->model->tokenizer);
        if (start < 0)
            start = tokenizer_eos(p->model->tokenizer);
        if (start < 0 || token_vec_push(&p->prompt, (uint32_t)start))
            return api_fail(&p->error, 400, API_INVALID, "prompt", "invalid_value",
                            "The prompt is empty.");
    }
    return 0;
}

static int check_context(struct prep *p)
{
    const struct api_request *r = &p->request;
    const char *param = r->kind == API_CHAT ? "messages" : "prompt";
    uint32_t n_ctx = p->model->n_ctx < MSG_MAX_TOKENS ? p->model->n_ctx : MSG_MAX_TOKENS;
    size_t n = p->prompt.n;
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
    p->max_tokens = r->has_max_tokens ? r->max_tokens : left;
    return 0;
}

static void run(struct prep *p)
{
    const struct api_request *r = &p->request;
    struct err e = ERR_INIT;
    if (api_request_parse(&p->request, p->kind, p->body, p->body_bytes, &p->error))
        return;
    p->model = model_set_find(p->models, r->model, strlen(r->model));
    if (!p->model) {
        p->unknown_model = true;
        api_fail(&p->error, 404, API_INVALID, "model", "model_not_found",
                 "The model '%.128s' does not exist or you do not have access to it.", r->model);
        return;
    }
    if (make_prompt(p) || check_context(p))
        return;
    if (stops_create(&p->stops, r->stops, r->stop_bytes, r->n_stops, &e))
        api_fail(&p->error, 400, API_INVALID, "stop", "invalid_value", "Invalid 'stop': %s.",
                 e.text);
}

void prep_run(struct prep *p)
{
    run(p);
    api_request_drop_texts(
        &p->request); /* freeing a large tree takes time too: here, not on the loop */
    free(p->body);
    p->body = NULL;
}

void prep_fini(struct prep *p)
{
    api_request_fini(&p->request);
    stops_destroy(p->stops);
    token_vec_fini(&p->prompt);
    free(p->body);
    p->body = NULL;
    p->stops = NULL;
}
