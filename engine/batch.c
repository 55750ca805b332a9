/* batch.c - see batch.h. */
#include "engine/batch.h"

#include <stdlib.h>
#include <string.h>

#include "engine/sampler.h"

uint32_t batch_max_rows(uint32_t n_slots, uint32_t chunk)
{
    return n_slots + chunk;
}

uint64_t batch_memory(uint32_t n_slots, uint32_t n_ctx, uint32_t chunk)
{
    return (uint64_t)n_slots * (sizeof(struct request) + sizeof(uint32_t) * ((uint64_t)n_ctx + 1) +
                                BATCH_NOTICES_PER_SLOT * sizeof(struct notice)) +
           (uint64_t)batch_max_rows(n_slots, chunk) * sizeof(struct batch_row);
}

int batch_init(struct batch *b, uint32_t n_slots, uint32_t n_ctx, uint32_t n_vocab, uint32_t chunk,
               struct err *e)
{
    *b = (struct batch){.n_slots = n_slots, .n_ctx = n_ctx, .n_vocab = n_vocab, .chunk = chunk};
    b->requests = calloc(n_slots, sizeof *b->requests);
    b->tokens = calloc((size_t)n_slots * n_ctx, sizeof *b->tokens);
    b->by_age = calloc(n_slots, sizeof *b->by_age);
    b->share = calloc(n_slots, sizeof *b->share);
    b->notices = calloc((size_t)n_slots * BATCH_NOTICES_PER_SLOT, sizeof *b->notices);
    b->rows = calloc(batch_max_rows(n_slots, chunk), sizeof *b->rows);
    if (!b->requests || !b->tokens || !b->by_age || !b->share || !b->notices || !b->rows) {
        batch_fini(b);
        return err_set(e, ERR_NOMEM, "request table of %u slots: out of memory", n_slots);
    }
    for (uint32_t i = 0; i < n_slots; i++)
        b->requests[i].tokens = b->tokens + (size_t)i * n_ctx;
    return 0;
}

void batch_fini(struct batch *b)
{
    free(b->requests);
    free(b->tokens);
    free(b->by_age);
    free(b->share);
    free(b->notices);
    free(b->rows);
    *b = (struct batch){0};
}

/* --- requests come and go -------------------------------------------------------------------------------- */

static bool same_place(const struct attempt *a, const struct attempt *b)
{
    return a->router == b->router && a->router_inc == b->router_inc && a->slot == b->slot;
}

struct request *batch_find(const struct batch *b, const struct attempt *a)
{
    for (uint32_t i = 0; i < b->n_slots; i++) {
        struct request *r = &b->requests[i];
        if (r->used && same_place(&r->attempt, a) && r->attempt.generation == a->generation)
            return r;
    }
    return NULL;
}

static int submit_check(const struct batch *b, const struct msg_submit *s, struct err *e)
{
    if (s->n_tokens > b->n_ctx)
        return err_set(e, ERR_LIMIT, "prompt of %u tokens is longer than the context of %u",
                       s->n_tokens, b->n_ctx);
    if (s->start >= s->n_tokens)
        return err_set(e, ERR_FORMAT, "%u tokens with a log of %u leave no prompt", s->n_tokens,
                       s->start);
    if (s->n_stop_ids > MSG_MAX_STOP_IDS)
        return err_set(e, ERR_LIMIT, "%u stop ids, at most %d", s->n_stop_ids, MSG_MAX_STOP_IDS);
    for (uint32_t i = 0; i < s->n_tokens; i++)
        if (u32_at(s->tokens, i) >= b->n_vocab)
            return err_set(e, ERR_FORMAT, "token %u at %u is outside the vocabulary of %u",
                           u32_at(s->tokens, i), i, b->n_vocab);
    return sampling_check(s, b->n_vocab, e);
}

/* The slot for a new attempt: that of the attempt it replaces, else a free one. */
static int slot_choose(struct batch *b, const struct attempt *a, struct request **out,
                       struct err *e)
{
    struct request *free_one = NULL;
    for (uint32_t i = 0; i < b->n_slots; i++) {
        struct request *r = &b->requests[i];
        if (!r->used) {
            free_one = free_one ? free_one : r;
            continue;
        }
        if (!same_place(&r->attempt, a))
            continue;
        if (r->attempt.generation == a->generation)
            return err_set(e, ERR_PROTO, "attempt %u of slot %u of router %u was submitted twice",
                           a->generation, a->slot, a->router);
        if (b->n_notices == b->n_slots * BATCH_NOTICES_PER_SLOT)
            return err_set(e, ERR_AGAIN, "%u replaced attempts wait to be reported", b->n_notices);
        b->notices[b->n_notices++] = (struct notice){r->attempt, request_position(r)};
        r->used = false;
        *out = r;
        return 0;
    }
    if (!free_one)
        return err_set(e, ERR_AGAIN, "all %u request slots are taken", b->n_slots);
    *out = free_one;
    return 0;
}

static uint64_t deadline(uint64_t now_us, uint32_t ms)
{
    return ms ? now_us + (uint64_t)ms * 1000 : 0;
}

int batch_submit(struct batch *b, const struct msg_submit *s, uint64_t now_us, struct err *e)
{
    struct request *r = NULL;
    int rc = submit_check(b, s, e);
    if (!rc)
        rc = slot_choose(b, &s->attempt, &r, e);
    if (rc)
        return rc;
    uint32_t *tokens = r->tokens;
    *r = (struct request){
        .used = true,
        .attempt = s->attempt,
        .sampling = s->sampling,
        .ignore_eos = s->ignore_eos,
        .n_stop_ids = s->n_stop_ids,
        .max_tokens = s->max_tokens,
        .n_prompt = s->n_tokens - s->start,
        .n_known = s->n_tokens,
        .seq = b->next_seq++,
        .first_by_us = deadline(now_us, s->ttft_ms),
        .done_by_us = deadline(now_us, s->total_ms),
        .tokens = tokens,
    };
    for (uint32_t i = 0; i < s->n_stop_ids; i++)
        r->stop_ids[i] = u32_at(s->stop_ids, i);
    for (uint32_t i = 0; i < s->n_tokens; i++)
        tokens[i] = u32_at(s->tokens, i);
    return 0;
}

void batch_cancel(struct batch *b, const struct attempt *a)
{
    struct request *r = batch_find(b, a);
    if (r)
        r->cancel = true;
}

/* --- ends ------------------------------------------------------------------------------------------------ */

static bool is_stop_id(const struct request *r, uint32_t token)
{
    for (uint32_t i = 0; i < r->n_stop_ids && !r->ignore_eos; i++)
        if (r->stop_ids[i] == token)
            return true;
    return false;
}

/* The end that the tokens so far imply: the same after a draw and at the start of a replay. */
static int end_by_tokens(const struct batch *b, const struct request *r)
{
    uint32_t position = request_position(r);
    if (position > r->sampling.min_tokens && is_stop_id(r, r->tokens[r->n_known - 1]))
        return FINISH_STOP;
    if (position >= r->max_tokens || r->n_known >= b->n_ctx)
        return FINISH_LENGTH;
    return FINISH_NONE;
}

int batch_end_now(const struct batch *b, const struct request *r, uint64_t now_us)
{
    if (r->cancel)
        return FINISH_CANCELED;
    if (r->done_by_us && now_us >= r->done_by_us)
        return FINISH_DEADLINE;
    if (r->first_by_us && !r->n_drawn && now_us >= r->first_by_us)
        return FINISH_DEADLINE;
    return end_by_tokens(b, r);
}

int batch_accept(const struct batch *b, struct request *r, uint32_t token)
{
    CHECK(r->n_known < b->n_ctx);
    r->tokens[r->n_known++] = token;
    r->n_drawn++;
    return end_by_tokens(b, r);
}

uint32_t batch_active(const struct batch *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_slots; i++)
        n += b->requests[i].used;
    return n;
}

uint32_t batch_waiting(const struct batch *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_slots; i++)
        n += b->requests[i].used && !b->requests[i].n_computed;
    return n;
}

/* --- the next step --------------------------------------------------------------------------------------- */

static uint32_t pending(const struct request *r)
{
    return r->n_known - r->n_computed;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t put_rows(struct batch *b, uint32_t n_rows, uint32_t slot, uint32_t count)
{
    struct request *r = &b->requests[slot];
    for (uint32_t i = 0; i < count; i++, r->n_computed++)
        b->rows[n_rows++] = (struct batch_row){
            .seq = slot,
            .position = r->n_computed,
            .token = r->tokens[r->n_computed],
            .out = r->n_computed + 1 == r->n_known ? b->n_out++ : ROW_NO_OUT,
        };
    return n_rows;
}

uint32_t batch_plan(struct batch *b)
{
    uint32_t n_rows = 0, n_prefill = 0;
    b->n_out = 0;
    for (uint32_t i = 0; i < b->n_slots; i++) {
        const struct request *r = &b->requests[i];
        if (!r->used)
            continue;
        if (pending(r) == 1) {
            n_rows = put_rows(b, n_rows, i, 1);
            continue;
        }
        uint32_t at = n_prefill++; /* insertion sort by arrival */
        for (; at && b->requests[b->by_age[at - 1]].seq > r->seq; at--)
            b->by_age[at] = b->by_age[at - 1];
        b->by_age[at] = i;
    }
    /* Shares first, rows after: the rows of one sequence stand together. */
    uint32_t left = b->chunk, *share = b->share;
    for (uint32_t i = 0; i < n_prefill; i++) {
        /* an equal part of what is left, rounded up: the oldest get the odd ones */
        uint32_t sharers = n_prefill - i, part = (left + sharers - 1) / sharers;
        share[i] = least(pending(&b->requests[b->by_age[i]]), part);
        left -= share[i];
    }
    for (uint32_t i = 0; i < n_prefill; i++) { /* what short prompts left over */
        uint32_t more = least(pending(&b->requests[b->by_age[i]]) - share[i], left);
        left -= more;
        n_rows = put_rows(b, n_rows, b->by_age[i], share[i] + more);
    }
    return n_rows;
}
