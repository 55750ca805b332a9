/* batch_sim.h - steps of a batch with a simulated model: keys and values are hashes of all tokens up to a position, and every row checks that
 * the blocks of its sequence hold just what its tokens before would have made. What a request draws is a function of its tokens alone, so
 * a run can be compared with a run alone.
 */
#ifndef EXA_TESTS_BATCH_SIM_H
#define EXA_TESTS_BATCH_SIM_H

#include "engine_support.h"

#include "engine/batch.h"

struct sim {
    struct batch b;
    uint64_t (*kv)[KV_BLOCK_TOKENS]; /* [n_blocks] */
    uint64_t *outs;                  /* [max_out] */
    uint64_t now_us;
    bool check_all; /* every position of every row, not only the one before */
    /* of the last step */
    uint32_t n_prefill, n_decode, n_draft;
    void (*took)(void *ctx, const struct attempt *a, const uint32_t *tokens, uint32_t n,
                 int finish);
    void *ctx;
};

static inline uint64_t sim_mix(uint64_t h, uint32_t token)
{
    h = (h ^ token) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static inline void sim_init(struct sim *s, const struct batch_config *c)
{
    struct err e = ERR_INIT;
    memset(s, 0, sizeof *s);
    MUST(batch_init(&s->b, c, &e), e);
    s->kv = calloc(c->n_blocks, sizeof *s->kv);
    s->outs = calloc(c->max_out, sizeof *s->outs);
    s->check_all = true;
}

static inline void sim_fini(struct sim *s)
{
    batch_fini(&s->b);
    free(s->kv);
    free(s->outs);
}

/* The token behind a hash and the last token: mostly round and round, so that guesses hold, and now and then another one. */
static inline uint32_t sim_token(uint64_t h, uint32_t last, uint32_t n_vocab)
{
    return (h >> 40) % 16 ? (last + 1) % 5 : (uint32_t)(h >> 45) % n_vocab;
}

static inline uint64_t sim_at(const struct sim *s, const struct batch_row *row, uint32_t position)
{
    uint32_t block = s->b.tables[(size_t)row->seq * s->b.table_stride + position / KV_BLOCK_TOKENS];
    return s->kv[block][position % KV_BLOCK_TOKENS];
}

static inline void sim_row(struct sim *s, const struct batch_row *row)
{
    const struct request *r = &s->b.requests[row->seq];
    uint64_t h = 1;
    for (uint32_t p = 0; p < row->position; p++) {
        uint32_t token = p < r->n_known ? r->tokens[p] : r->drafts[p - r->n_known];
        h = sim_mix(h, token);
        if ((s->check_all || p + 1 == row->position) && sim_at(s, row, p) != h)
            fail_msg("position %u of request %u: position %u holds another text's values",
                     row->position, row->seq, p);
    }
    h = sim_mix(h, row->token);
    uint32_t block =
        s->b.tables[(size_t)row->seq * s->b.table_stride + row->position / KV_BLOCK_TOKENS];
    if (!kv_is_own(s->b.kv, block))
        fail_msg("position %u of request %u is written to a block that others hold", row->position,
                 row->seq);
    s->kv[block][row->position % KV_BLOCK_TOKENS] = h;
    if (row->out != ROW_NO_OUT)
        s->outs[row->out] = h;
}

static inline void sim_take(struct sim *s, struct request *r)
{
    struct batch *b = &s->b;
    struct attempt attempt = r->attempt;
    uint32_t tokens[1 + SPEC_MAX], n = 0, held = 0;
    int finish = FINISH_NONE;
    batch_computed(b, r, r->n_rows);
    if (request_pending(r))
        return;
    for (uint32_t i = 0; finish == FINISH_NONE; i++) {
        const struct batch_row *row = &b->rows[r->first_row + r->n_rows - 1 + i];
        tokens[n] = sim_token(s->outs[row->out], row->token, b->c.n_vocab);
        finish = batch_accept(b, r, tokens[n++]);
        if (finish != FINISH_NONE || i == r->n_drafts || r->drafts[i] != tokens[i])
            break;
        batch_computed(b, r, 1);
        held++;
    }
    b->stats.n_accepted += held;
    spec_learn(&r->spec, r->n_drafts, held);
    if (s->took)
        s->took(s->ctx, &attempt, tokens, n, finish);
    if (finish != FINISH_NONE)
        batch_drop(b, r);
}

/* One step. Returns the number of requests still there. */
static inline uint32_t sim_step(struct sim *s)
{
    struct batch *b = &s->b;
    for (uint32_t i = 0; i < b->n_notices && s->took; i++)
        s->took(s->ctx, &b->notices[i].attempt, NULL, 0, FINISH_CANCELED);
    b->n_notices = 0;
    for (uint32_t i = 0; i < b->n_entries; i++) {
        struct request *r = &b->requests[i];
        int finish = r->state != REQUEST_FREE ? batch_end_now(b, r, s->now_us) : FINISH_NONE;
        if (finish == FINISH_NONE)
            continue;
        if (s->took)
            s->took(s->ctx, &r->attempt, NULL, 0, finish);
        batch_drop(b, r);
    }
    struct batch_stats before = b->stats;
    uint32_t n = batch_plan(b);
    for (uint32_t i = 0; i < b->n_copies; i++)
        memcpy(s->kv[b->copies[i].to], s->kv[b->copies[i].from], sizeof s->kv[0]);
    batch_rows(b);
    if (!n && batch_active(b))
        fail_msg("%u requests, and nobody gets on", batch_active(b));
    for (uint32_t i = 0; i < b->n_rows; i++)
        sim_row(s, &b->rows[i]);
    for (uint32_t i = 0; i < b->n_entries; i++)
        if (b->requests[i].state == REQUEST_RUNNING && b->requests[i].n_rows)
            sim_take(s, &b->requests[i]);
    s->n_prefill = (uint32_t)(b->stats.n_prefill_rows - before.n_prefill_rows);
    s->n_decode = (uint32_t)(b->stats.n_decode_rows - before.n_decode_rows);
    s->n_draft = (uint32_t)(b->stats.n_draft_rows - before.n_draft_rows);
    return batch_active(b);
}

/* What a request draws when nobody else is there. */
static inline void sim_alone(uint32_t *out, uint32_t n_out, const uint32_t *prompt,
                             uint32_t n_prompt, uint32_t n_vocab)
{
    uint64_t h = 1;
    for (uint32_t i = 0; i < n_prompt; i++)
        h = sim_mix(h, prompt[i]);
    for (uint32_t i = 0; i < n_out; i++) {
        out[i] = sim_token(h, i ? out[i - 1] : prompt[n_prompt - 1], n_vocab);
        h = sim_mix(h, out[i]);
    }
}

#endif
