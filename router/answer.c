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
    buf_init(&a->embedding, 4 * MSG_MAX_EMBEDDING);
}

void answer_fini(struct answer *a)
{
    scores_fini(&a->scores);
    scores_fini(&a->prompt);
    buf_fini(&a->embedding);
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
    size_t before = a->text.len;
    bool stopped =
        a->bytes.len && stops_push(a->stops, (const char *)a->bytes.data, a->bytes.len, &a->text);
    for (size_t i = 0; i < a->bytes.len; i++)
        a->n_chars += (a->bytes.data[i] & 0xC0) != 0x80;
    a->n_bytes += a->bytes.len;
    a->n_shown += a->text.len - before;
    buf_reset(&a->bytes);
    return stopped;
}

/* An id after which the engine draws no more; it has no text. */
static bool is_end(const struct answer *a, uint32_t id)
{
    for (uint32_t i = 0; i < a->n_stop_ids; i++)
        if (a->stop_ids[i] == id)
            return true;
    return tokenizer_is_eog(a->model->tokenizer, id) && !a->ignore_eos;
}

/* One token's turn. ends: the engine ended with it. *stopped: a stop string was met. */
static int take_token(struct answer *a, uint32_t id, bool ends, const struct msg_logprob *m,
                      bool *stopped)
{
    size_t n;
    struct score item = {.id = id, .chars = a->n_chars, .begin = a->n_bytes};
    a->n_counted++;
    item.is_end = ends && is_end(a, id);
    if (!item.is_end) {
        const char *bytes = tokenizer_bytes(a->model->tokenizer, id, false, &n);
        if (n)
            detok_push(&a->detok, bytes, n, &a->bytes);
        *stopped = show(a);
    }
    item.end = a->n_bytes;
    a->logprob_sum += m ? (double)m->logprob : 0;
    return m ? scores_push(&a->scores, &item, m) : 0;
}

/* The engine has ended it: what was held back is decided now. true: a stop string was met after
 * all. */
static bool flush(struct answer *a)
{
    detok_finish(&a->detok, &a->bytes);
    if (show(a))
        return true;
    size_t before = a->text.len;
    stops_finish(a->stops, &a->text);
    a->n_shown += a->text.len - before;
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

/* --- log-probabilities ------------------------------------------------------------------------ */

int answer_expect_prompt(struct answer *a, const uint32_t *ids, size_t n)
{
    struct detok detok;
    struct buf text;
    struct score item = {0};
    int rc = 0;
    detok_init(&detok);
    buf_init(&text, ANSWER_MAX_BYTES);
    for (size_t i = 0; !rc && i < n; i++) {
        size_t n_bytes;
        const char *bytes = tokenizer_bytes(a->model->tokenizer, ids[i], false, &n_bytes);
        item.id = ids[i];
        rc = scores_push(&a->prompt, &item, NULL);
        buf_reset(&text);
        if (n_bytes)
            detok_push(&detok, bytes, n_bytes, &text);
        for (size_t k = 0; k < text.len; k++)
            item.chars += (text.data[k] & 0xC0) != 0x80;
    }
    buf_fini(&text);
    a->n_prompt_known = 1; /* nothing comes before the first */
    return rc;
}

bool answer_knows_prompt(const struct answer *a)
{
    return a->n_prompt_known >= a->prompt.n;
}

/* A replica that began again says the first ones again. 0, or -1. */
static int take_prompt_scores(struct answer *a, const struct step_entry *entry)
{
    struct rd r;
    struct msg_logprob m;
    uint32_t first, n;
    if (msg_logprobs_begin(&r, entry->ext, entry->ext_bytes, &first, &n, NULL))
        return -1;
    if (first > a->n_prompt_known)
        return -1; /* some were lost */
    for (uint32_t i = 0; i < n; i++) {
        size_t at = (size_t)first + i;
        if (msg_logprobs_next(&r, &m, NULL) || at >= a->prompt.n)
            return -1;
        if (at == a->n_prompt_known && scores_set(&a->prompt, a->n_prompt_known++, &m))
            return -1;
    }
    return 0;
}

/* The entry's log-probabilities are there, one for each token. */
static bool has_scores(const struct answer *a, const struct step_entry *entry, struct rd *r)
{
    uint32_t first, n;
    if (!a->want_scores || !entry->n_tokens)
        return true;
    return entry->ext_type == EXT_LOGPROBS &&
           !msg_logprobs_begin(r, entry->ext, entry->ext_bytes, &first, &n, NULL) &&
           first == entry->position && n == entry->n_tokens;
}

/* What an entry carries beside its tokens. 0, or -1 and error is filled. */
static int take_ext(struct answer *a, const struct step_entry *entry, struct rd *r,
                    struct api_error *error)
{
    struct msg_embedding m;
    bool bad = false;
    if (entry->ext_type == EXT_PROMPT_LOGPROBS && a->prompt.n)
        bad = take_prompt_scores(a, entry) != 0;
    if (entry->ext_type == EXT_EMBEDDING) {
        bad = msg_embedding_get(&m, entry->ext, entry->ext_bytes, NULL) != 0;
        buf_reset(&a->embedding);
        if (!bad)
            buf_put(&a->embedding, m.values, 4 * (size_t)m.n);
    }
    if (!bad && has_scores(a, entry, r) && (!entry->n_tokens || answer_knows_prompt(a)))
        return 0;
    fail(a, error, 502, "engine_error", "Log-probabilities of the answer were lost.");
    return -1;
}

/* --- entries ---------------------------------------------------------------------------------- */

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
    struct rd scores;
    if (take_ext(a, entry, &scores, error))
        return ANSWER_FAILED;
    for (uint32_t i = 0; i < entry->n_tokens; i++) {
        uint32_t id = u32_at(entry->tokens, i);
        struct msg_logprob m;
        bool ends = entry->finish == FINISH_STOP && i + 1 == entry->n_tokens, stopped = false;
        if (a->want_scores)
            msg_logprobs_next(&scores, &m, NULL);
        if (token_vec_push(&a->log, id) ||
            take_token(a, id, ends, a->want_scores ? &m : NULL, &stopped))
            return fail(a, error, 500, "out_of_memory", "Out of memory.");
        if (stopped) {
            finish(a, "stop");
            return entry->finish == FINISH_NONE ? ANSWER_STOPPED : ANSWER_DONE;
        }
    }
    if (!buf_ok(&a->text) || !buf_ok(&a->bytes))
        return fail(a, error, 500, "out_of_memory", "The answer is too large.");
    return entry->finish == FINISH_NONE ? ANSWER_MORE : end(a, entry, error);
}
