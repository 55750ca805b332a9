/* answer.c - see answer.h. */
#include "router/answer.h"

enum {
    /* One token's bytes are bounded by the vocabulary; a whole answer by this. */
    ANSWER_MAX_BYTES = 64 << 20,
};

void answer_init(struct answer *a, const struct model *m, struct stops *stops, bool ignore_eos,
                 uint32_t max_tokens)
{
    *a = (struct answer){
        .model = m, .stops = stops, .max_tokens = max_tokens, .ignore_eos = ignore_eos};
    detok_init(&a->detok);
    buf_init(&a->bytes, ANSWER_MAX_BYTES);
    buf_init(&a->text, ANSWER_MAX_BYTES);
}

void answer_fini(struct answer *a)
{
    stops_destroy(a->stops);
    token_vec_fini(&a->log);
    buf_fini(&a->bytes);
    buf_fini(&a->text);
    *a = (struct answer){0};
}

static enum answer_event fail(struct answer *a, struct api_error *error, int status,
                              const char *code, const char *text)
{
    a->done = true;
    api_fail(error, status, API_SERVER_ERROR, NULL, code, "%s", text);
    return ANSWER_FAILED;
}

static enum answer_event finish(struct answer *a, const char *reason)
{
    a->done = true;
    a->finish_reason = reason;
    return ANSWER_DONE;
}

/* Feed a->bytes to the stop strings. true: one was met. */
static bool show(struct answer *a)
{
    bool stopped =
        a->bytes.len && stops_push(a->stops, (const char *)a->bytes.data, a->bytes.len, &a->text);
    buf_reset(&a->bytes);
    return stopped;
}

/* true: a stop string was met. */
static bool take_token(struct answer *a, uint32_t id)
{
    size_t n;
    a->n_counted++;
    if (tokenizer_is_eog(a->model->tokenizer, id) && !a->ignore_eos)
        return false;
    const char *bytes = tokenizer_bytes(a->model->tokenizer, id, false, &n);
    if (n)
        detok_push(&a->detok, bytes, n, &a->bytes);
    return show(a);
}

/* The engine has ended it: what was held back is decided now. true: a stop string was met after
 * all. */
static bool flush(struct answer *a)
{
    detok_finish(&a->detok, &a->bytes);
    if (show(a))
        return true;
    stops_finish(a->stops, &a->text);
    return false;
}

static enum answer_event end(struct answer *a, const struct step_entry *entry,
                             struct api_error *error)
{
    struct msg_text text;
    switch (entry->finish) {
    case FINISH_STOP:
    case FINISH_LENGTH:
        return finish(a, flush(a) || entry->finish == FINISH_STOP ? "stop" : "length");
    case FINISH_REFUSED:
        if (!a->log.n) {
            a->done = false;
            return ANSWER_REFUSED;
        }
        return fail(a, error, 502, "engine_error", "The replica gave the request back half done.");
    case FINISH_DEADLINE:
        return fail(a, error, 504, "request_timeout",
                    "The request did not finish within its time limit.");
    case FINISH_CANCELED:
        return fail(a, error, 503, "replica_lost", "The replica was stopped during the request.");
    default:
        if (entry->ext_type == EXT_ERROR &&
            !msg_text_get(&text, entry->ext, entry->ext_bytes, NULL))
            return fail(a, error, text.code == ERR_PEER ? 502 : 500,
                        text.code == ERR_PEER ? "replica_lost" : "engine_error", text.text);
        return fail(a, error, 500, "engine_error", "The engine failed during the request.");
    }
}

enum answer_event answer_push(struct answer *a, const struct step_entry *entry,
                              struct api_error *error)
{
    if (a->done)
        return ANSWER_DROPPED;
    if (entry->position != a->log.n || entry->n_tokens > a->max_tokens - (uint32_t)a->log.n) {
        if (entry->finish == FINISH_NONE)
            return ANSWER_DROPPED;
        if (entry->finish == FINISH_STOP || entry->finish == FINISH_LENGTH ||
            entry->finish == FINISH_REFUSED)
            return fail(a, error, 502, "engine_error", "Tokens of the answer were lost.");
        return end(a, entry, error);
    }
    uint32_t n_vocab = tokenizer_vocab(a->model->tokenizer);
    for (uint32_t i = 0; i < entry->n_tokens; i++)
        if (u32_at(entry->tokens, i) >= n_vocab)
            return fail(a, error, 502, "engine_error", "The engine sent a token that is none.");
    for (uint32_t i = 0; i < entry->n_tokens; i++) {
        uint32_t id = u32_at(entry->tokens, i);
        if (token_vec_push(&a->log, id))
            return fail(a, error, 500, "out_of_memory", "Out of memory.");
        if (take_token(a, id)) {
            finish(a, "stop");
            return entry->finish == FINISH_NONE ? ANSWER_STOPPED : ANSWER_DONE;
        }
    }
    if (!buf_ok(&a->text) || !buf_ok(&a->bytes))
        return fail(a, error, 500, "out_of_memory", "The answer is too large.");
    return entry->finish == FINISH_NONE ? ANSWER_MORE : end(a, entry, error);
}
