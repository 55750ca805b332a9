/* batch.c - see batch.h: requests come, wait, and end. What a step computes is batch_plan.c's. */
#include "engine/batch.h"

#include <stdlib.h>
#include <string.h>

uint32_t batch_max_rows(const struct batch_config *c)
{
    return c->n_slots + c->chunk;
}

static uint32_t blocks_of(uint32_t n_tokens)
{
    return (n_tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
}

/* One more than its tokens fill: a shared block that it writes to is copied first. */
uint32_t batch_min_blocks(uint32_t n_ctx)
{
    return blocks_of(n_ctx) + 1;
}

uint64_t batch_memory(const struct batch_config *c)
{
    uint64_t n = (uint64_t)c->n_slots + c->n_queue;
    return n * (sizeof(struct request) + sizeof(struct tenant) + sizeof(uint32_t) +
                sizeof(struct block_copy) + BATCH_NOTICES_PER_SLOT * sizeof(struct notice) +
                sizeof(uint32_t) * ((uint64_t)c->n_ctx + blocks_of(c->n_ctx))) +
           (uint64_t)batch_max_rows(c) * sizeof(struct batch_row) + kv_blocks_memory(c->n_blocks);
}

int batch_init(struct batch *b, const struct batch_config *c, struct err *e)
{
    uint32_t n = c->n_slots + c->n_queue;
    *b = (struct batch){.c = *c, .n_entries = n, .table_stride = blocks_of(c->n_ctx)};
    b->requests = calloc(n, sizeof *b->requests);
    b->tokens = calloc((size_t)n * c->n_ctx, sizeof *b->tokens);
    b->tables = calloc((size_t)n * b->table_stride, sizeof *b->tables);
    b->tenants = calloc(n, sizeof *b->tenants);
    b->order = calloc(n, sizeof *b->order);
    b->notices = calloc((size_t)n * BATCH_NOTICES_PER_SLOT, sizeof *b->notices);
    b->rows = calloc(batch_max_rows(c), sizeof *b->rows);
    b->copies = calloc(n, sizeof *b->copies);
    int rc = kv_blocks_create(&b->kv, c->n_blocks, c->prefix_cache, e);
    if (!rc && (!b->requests || !b->tokens || !b->tables || !b->tenants || !b->order ||
                !b->notices || !b->rows || !b->copies))
        rc = err_set(e, ERR_NOMEM, "request table of %u entries: out of memory", n);
    if (rc) {
        batch_fini(b);
        return rc;
    }
    for (uint32_t i = 0; i < n; i++) {
        b->requests[i].tokens = b->tokens + (size_t)i * c->n_ctx;
        b->requests[i].blocks = b->tables + (size_t)i * b->table_stride;
    }
    return 0;
}

void batch_fini(struct batch *b)
{
    kv_blocks_destroy(b->kv);
    free(b->requests);
    free(b->tokens);
    free(b->tables);
    free(b->tenants);
    free(b->order);
    free(b->notices);
    free(b->rows);
    free(b->copies);
    *b = (struct batch){0};
}

/* --- tenants --------------------------------------------------------------------------------------------- */

/* The tenant's entry, made if it has none: there are as many as requests, so one is always free. */
static uint32_t tenant_join(struct batch *b, uint32_t id)
{
    uint32_t at = UINT32_MAX;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < b->n_entries; i++) {
        struct tenant *t = &b->tenants[i];
        if (!t->n_live) {
            at = at == UINT32_MAX ? i : at;
        } else if (t->id == id) {
            t->n_live++;
            return i;
        } else if (t->served < least) {
            least = t->served;
        }
    }
    CHECK(at != UINT32_MAX);
    /* no credit for the time before: a newcomer must not push the others aside */
    b->tenants[at] =
        (struct tenant){.id = id, .n_live = 1, .served = least == UINT64_MAX ? 0 : least};
    return at;
}

/* --- requests come and go -------------------------------------------------------------------------------- */

static bool same_place(const struct attempt *a, const struct attempt *b)
{
    return a->router == b->router && a->router_inc == b->router_inc && a->slot == b->slot;
}

struct request *batch_find(const struct batch *b, const struct attempt *a)
{
    for (uint32_t i = 0; i < b->n_entries; i++) {
        struct request *r = &b->requests[i];
        if (r->state != REQUEST_FREE && same_place(&r->attempt, a) &&
            r->attempt.generation == a->generation)
            return r;
    }
    return NULL;
}

void batch_drop(struct batch *b, struct request *r)
{
    struct tenant *t = &b->tenants[r->tenant];
    t->n_live--;
    t->n_running -= r->state == REQUEST_RUNNING;
    while (r->n_blocks)
        kv_release(b->kv, r->blocks[--r->n_blocks]);
    r->n_rows = 0;
    r->state = REQUEST_FREE;
}

static int submit_check(const struct batch *b, const struct msg_submit *s, struct err *e)
{
    if (s->n_tokens > b->c.n_ctx)
        return err_set(e, ERR_LIMIT, "prompt of %u tokens is longer than the context of %u",
                       s->n_tokens, b->c.n_ctx);
    if (s->start >= s->n_tokens)
        return err_set(e, ERR_FORMAT, "%u tokens with a log of %u leave no prompt", s->n_tokens,
                       s->start);
    if (s->kind == SUBMIT_EMBED && s->start)
        return err_set(e, ERR_FORMAT, "a text to embed has no log, found %u tokens", s->start);
    if (s->n_stop_ids > MSG_MAX_STOP_IDS)
        return err_set(e, ERR_LIMIT, "%u stop ids, at most %d", s->n_stop_ids, MSG_MAX_STOP_IDS);
    for (uint32_t i = 0; i < s->n_tokens; i++)
        if (u32_at(s->tokens, i) >= b->c.n_vocab)
            return err_set(e, ERR_FORMAT, "token %u at %u is outside the vocabulary of %u",
                           u32_at(s->tokens, i), i, b->c.n_vocab);
    return 0;
}

/* The entry for a new attempt: that of the attempt it replaces, else a free one. */
static int entry_choose(struct batch *b, const struct attempt *a, struct request **out,
                        struct err *e)
{
    struct request *free_one = NULL;
    for (uint32_t i = 0; i < b->n_entries; i++) {
        struct request *r = &b->requests[i];
        if (r->state == REQUEST_FREE) {
            free_one = free_one ? free_one : r;
            continue;
        }
        if (!same_place(&r->attempt, a))
            continue;
        if (r->attempt.generation == a->generation)
            return err_set(e, ERR_PROTO, "attempt %u of slot %u of router %u was submitted twice",
                           a->generation, a->slot, a->router);
        if (b->n_notices == b->n_entries * BATCH_NOTICES_PER_SLOT)
            return err_set(e, ERR_AGAIN, "%u replaced attempts wait to be reported", b->n_notices);
        b->notices[b->n_notices++] = (struct notice){r->attempt, request_position(r)};
        batch_drop(b, r);
        *out = r;
        return 0;
    }
    if (!free_one)
        return err_set(e, ERR_AGAIN, "all %u request slots are taken and %u more wait",
                       b->c.n_slots, b->c.n_queue);
    *out = free_one;
    return 0;
}

static uint64_t deadline(uint64_t now_us, uint32_t ms)
{
    return ms ? now_us + (uint64_t)ms * 1000 : 0;
}

int batch_submit(struct batch *b, const struct msg_submit *s, uint64_t now_us, struct request **out,
                 struct err *e)
{
    struct request *r = NULL;
    int rc = submit_check(b, s, e);
    if (!rc)
        rc = entry_choose(b, &s->attempt, &r, e);
    if (rc)
        return rc;
    uint32_t *tokens = r->tokens, *blocks = r->blocks;
    *r = (struct request){
        .state = REQUEST_WAITING,
        .kind = s->kind,
        .priority = s->priority,
        .tenant = tenant_join(b, s->tenant),
        .attempt = s->attempt,
        .ignore_eos = s->ignore_eos,
        .n_stop_ids = s->n_stop_ids,
        .min_tokens = s->sampling.min_tokens,
        .max_tokens = s->max_tokens,
        .n_prompt = s->n_tokens - s->start,
        .n_known = s->n_tokens,
        .scores = s->kind == SUBMIT_GENERATE && s->sampling.want_prompt_logprobs && !s->start,
        .wants_logprobs = s->sampling.want_logprobs,
        .every_row = s->kind == SUBMIT_EMBED && b->c.pool_sums,
        .seq = b->next_seq++,
        .first_by_us = deadline(now_us, s->ttft_ms),
        .done_by_us = deadline(now_us, s->total_ms),
        .tokens = tokens,
        .blocks = blocks,
        .leader = UINT32_MAX,
    };
    spec_init(&r->spec, b->c.max_drafts);
    for (uint32_t i = 0; i < s->n_stop_ids; i++)
        r->stop_ids[i] = u32_at(s->stop_ids, i);
    for (uint32_t i = 0; i < s->n_tokens; i++)
        tokens[i] = u32_at(s->tokens, i);
    *out = r;
    return 0;
}

void batch_cancel(struct batch *b, const struct attempt *a)
{
    struct request *r = batch_find(b, a);
    if (r)
        r->cancel = true;
}

/* --- ends ------------------------------------------------------------------------------------------------ */

/* position: of the token, tokens generated before it */
static bool is_end_id(const struct request *r, uint32_t token, uint32_t position)
{
    if (r->ignore_eos || position < r->min_tokens)
        return false;
    for (uint32_t i = 0; i < r->n_stop_ids; i++)
        if (r->stop_ids[i] == token)
            return true;
    return false;
}

/* The end that the tokens so far imply: the same after a draw and at the start of a replay. */
static int end_by_tokens(const struct batch *b, const struct request *r)
{
    uint32_t position = request_position(r);
    if (r->kind == SUBMIT_EMBED)
        return FINISH_NONE;
    if (position && is_end_id(r, r->tokens[r->n_known - 1], position - 1))
        return FINISH_STOP;
    if (position >= r->max_tokens || r->n_known >= b->c.n_ctx)
        return FINISH_LENGTH;
    return FINISH_NONE;
}

/* A request that wants no token, but its prompt's log-probabilities, is computed all the same. */
static bool still_scores(const struct request *r)
{
    return r->scores && r->n_scored + 1 < r->n_prompt;
}

int batch_end_now(const struct batch *b, const struct request *r, uint64_t now_us)
{
    if (r->cancel)
        return FINISH_CANCELED;
    if (r->done_by_us && now_us >= r->done_by_us)
        return FINISH_DEADLINE;
    if (r->first_by_us && !r->n_drawn && now_us >= r->first_by_us)
        return FINISH_DEADLINE;
    return still_scores(r) ? FINISH_NONE : end_by_tokens(b, r);
}

int batch_accept(const struct batch *b, struct request *r, uint32_t token)
{
    CHECK(r->n_known < b->c.n_ctx);
    r->tokens[r->n_known++] = token;
    r->n_drawn++;
    return end_by_tokens(b, r);
}

/* --- counts ---------------------------------------------------------------------------------------------- */

uint32_t batch_active(const struct batch *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_entries; i++)
        n += b->requests[i].state != REQUEST_FREE;
    return n;
}

uint32_t batch_waiting(const struct batch *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_entries; i++)
        n += b->requests[i].state == REQUEST_WAITING;
    return n;
}

uint32_t batch_free_blocks(const struct batch *b)
{
    uint32_t free_ones = kv_available(b->kv), promised = 0;
    for (uint32_t i = 0; i < b->n_entries; i++) {
        const struct request *r = &b->requests[i];
        uint32_t need = blocks_of(r->n_known);
        if (r->state != REQUEST_FREE && need > r->n_blocks)
            promised += need - r->n_blocks;
    }
    return free_ones > promised ? free_ones - promised : 0;
}
