/* local_step.c - see local.h. A step: report what ended since the last one, plan, compute, and draw from every row with logits. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/local.h"

/* A step that took so long may have outrun a deadline that still held when it began. */
enum { LONG_STEP_US = 50000 };

void local_drop(struct engine_local *g, struct request *r)
{
    draws_end(g->draws, (uint32_t)(r - g->batch.requests));
    batch_drop(&g->batch, r);
}

struct taker { /* who gets the results of this step */
    struct engine_local *g;
    step_result_fn fn;
    void *ctx;
    uint64_t late_us; /* the clock after the forward pass, if it took long; else 0 */
};

/* --- ends ------------------------------------------------------------------------------------------------ */

static void report_end(const struct taker *t, struct request *r, int finish, const struct err *why)
{
    struct step_result result = {
        .attempt = r->attempt,
        .position = request_position(r),
        .finish = (uint8_t)finish,
        .error = why,
    };
    t->fn(t->ctx, &result);
    local_drop(t->g, r);
}

static void report_ended(const struct taker *t, uint64_t now_us)
{
    struct batch *b = &t->g->batch;
    for (uint32_t i = 0; i < b->n_notices; i++)
        t->fn(t->ctx, &(struct step_result){
                          .attempt = b->notices[i].attempt,
                          .position = b->notices[i].position,
                          .finish = FINISH_CANCELED,
                      });
    b->n_notices = 0;
    for (uint32_t i = 0; i < b->n_entries; i++) {
        struct request *r = &b->requests[i];
        int finish = r->state != REQUEST_FREE ? batch_end_now(b, r, now_us) : FINISH_NONE;
        if (finish != FINISH_NONE)
            report_end(t, r, finish, NULL);
    }
}

static void report_bad_numbers(const struct taker *t, struct request *r, uint32_t mark)
{
    struct err error = ERR_INIT;
    uint32_t n_layers = t->g->img.meta.params.n_layers;
    if (mark <= n_layers)
        err_set(&error, ERR_FORMAT, "layer %u of %u computed numbers that are not finite", mark - 1,
                n_layers);
    else
        err_set(&error, ERR_FORMAT, "the output layer computed logits that are not finite");
    log_warn("engine: a request ended: %s", error.text);
    report_end(t, r, FINISH_ERROR, &error);
}

/* --- outputs --------------------------------------------------------------------------------------------- */

/* n floats of the back end's memory, where the host can read and change them until the next call. */
static float *to_host(struct engine_local *g, const float *p, uint32_t n)
{
    if (g->backend->host_memory)
        return (float *)(uintptr_t)p;
    g->backend->ops->copy(g->exec, g->host_row, p, n * sizeof *p);
    return g->host_row;
}

static float *logits_of(struct engine_local *g, uint32_t out)
{
    return to_host(g, graph_logits(g->graph, out), g->plan.n_vocab);
}

/* Log-probabilities of the prompt's tokens that its rows of this step bring. */
static void take_scores(const struct taker *t, struct request *r)
{
    struct engine_local *g = t->g;
    uint32_t n = 0, first = 0;
    for (uint32_t i = 0; i < r->n_rows; i++) {
        const struct batch_row *row = &g->batch.rows[r->first_row + i];
        if (row->position < r->n_scored || row->position + 1 >= r->n_prompt)
            continue;
        if (!n)
            first = row->position + 1;
        uint32_t at = (uint32_t)(r - g->batch.requests);
        draws_score(g->draws, at, logits_of(g, row->out), r->tokens[row->position + 1],
                    &g->drawn[n++]);
        r->n_scored = row->position + 1;
    }
    if (n)
        t->fn(t->ctx, &(struct step_result){
                          .attempt = r->attempt,
                          .position = request_position(r),
                          .prompt_first = first,
                          .n_prompt_drawn = n,
                          .prompt_drawn = g->drawn,
                      });
}

/* The text's vector: unit length, summed in double. */
static void take_embedding(const struct taker *t, struct request *r, uint32_t out)
{
    struct engine_local *g = t->g;
    uint32_t n = g->img.meta.params.n_embd, seq = (uint32_t)(r - g->batch.requests);
    const float *from = g->plan.pool_sums ? graph_pool(g->graph, seq) : graph_hidden(g->graph, out);
    double sum = 0;
    g->backend->ops->copy(g->exec, g->host_row, from, n * sizeof *from);
    for (uint32_t i = 0; i < n; i++)
        sum += (double)g->host_row[i] * g->host_row[i];
    if (!(sum > 0) || !isfinite(sum)) {
        struct err error = ERR_INIT;
        err_set(&error, ERR_FORMAT, "the text's vector has length %g", sqrt(sum));
        report_end(t, r, FINISH_ERROR, &error);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        g->host_row[i] = (float)(g->host_row[i] / sqrt(sum));
    t->fn(t->ctx, &(struct step_result){
                      .attempt = r->attempt,
                      .finish = FINISH_STOP,
                      .n_embedding = n,
                      .embedding = g->host_row,
                  });
    local_drop(g, r);
}

/* --- draws ----------------------------------------------------------------------------------------------- */

struct answer { /* of one request in one step */
    uint32_t n, n_held;
    int finish;
    uint32_t bad; /* graph_bad_layer of the row that ended it */
    struct err error;
    uint32_t tokens[1 + SPEC_MAX];
    struct drawn drawn[1 + SPEC_MAX];
};

/* Draw the token behind row i of r's outputs; false: it cannot go on. */
static bool draw_one(const struct taker *t, struct request *r, uint32_t row_at, struct answer *a)
{
    struct engine_local *g = t->g;
    struct batch *b = &g->batch;
    uint32_t at = (uint32_t)(r - b->requests), out = b->rows[row_at].out;
    a->bad = graph_bad_layer(g->graph, row_at);
    if (a->bad)
        return false;
    if (draws_next(g->draws, at, request_position(r), logits_of(g, out), &a->drawn[a->n],
                   &a->error))
        return false;
    g->logits_index[at] = out;
    a->tokens[a->n] = a->drawn[a->n].token;
    a->finish = batch_accept(b, r, a->tokens[a->n]);
    a->n++;
    g->n_tokens++;
    if (a->finish == FINISH_NONE && t->late_us && r->done_by_us && t->late_us >= r->done_by_us)
        a->finish = FINISH_DEADLINE;
    return a->finish == FINISH_NONE;
}

/* As long as the guess is what was drawn, the next row is of a known token, and its logits are the next ones. */
static void draw_all(const struct taker *t, struct request *r, struct answer *a)
{
    struct batch *b = &t->g->batch;
    uint32_t last = r->first_row + r->n_rows - 1;
    for (uint32_t i = 0; draw_one(t, r, last + i, a); i++) {
        if (i == r->n_drafts || r->drafts[i] != a->tokens[i])
            break;
        batch_computed(b, r, 1);
        a->n_held++;
    }
    b->stats.n_accepted += a->n_held;
    if (a->finish == FINISH_NONE)
        spec_learn(&r->spec, r->n_drafts, a->n_held);
    if (t->g->draft && r->n_drafts)
        draft_learn(t->g->draft, b, r, a->n_held);
}

static void take_draws(const struct taker *t, struct request *r)
{
    struct answer a = {.n = 0};
    uint32_t position = request_position(r);
    draw_all(t, r, &a);
    if (a.n)
        t->fn(t->ctx, &(struct step_result){
                          .attempt = r->attempt,
                          .position = position,
                          .n_tokens = (uint16_t)a.n,
                          .finish = (uint8_t)a.finish,
                          .tokens = a.tokens,
                          .drawn = r->wants_logprobs ? a.drawn : NULL,
                      });
    if (a.finish != FINISH_NONE)
        local_drop(t->g, r);
    else if (a.bad)
        report_bad_numbers(t, r, a.bad);
    else if (a.error.code)
        report_end(t, r, FINISH_ERROR, &a.error);
}

static void take_rows(const struct taker *t, struct request *r)
{
    struct batch *b = &t->g->batch;
    for (uint32_t i = 0; i < r->n_rows; i++) {
        uint32_t bad = graph_bad_layer(t->g->graph, r->first_row + i);
        if (bad) {
            report_bad_numbers(t, r, bad);
            return;
        }
    }
    if (r->scores)
        take_scores(t, r);
    batch_computed(b, r, r->n_rows);
    if (request_pending(r))
        return;
    if (r->kind == SUBMIT_EMBED) {
        take_embedding(t, r, b->rows[r->first_row + r->n_rows - 1].out);
        return;
    }
    int finish =
        batch_end_now(b, r, 0); /* a prompt whose log-probabilities were all that was wanted */
    if (finish != FINISH_NONE)
        report_end(t, r, finish, NULL);
    else
        take_draws(t, r);
}

/* --- the step -------------------------------------------------------------------------------------------- */

static int compute(struct engine_local *g, struct err *e)
{
    struct batch *b = &g->batch;
    int rc = 0;
    for (uint32_t i = 0; i < b->n_copies; i++) {
        graph_kv_copy(g->graph, b->copies[i].from, b->copies[i].to);
        if (g->draft)
            draft_kv_copy(g->draft, b->copies[i].from, b->copies[i].to);
    }
    if (g->draft)
        rc = draft_propose(g->draft, b, e);
    if (rc)
        return rc;
    batch_rows(b);
    for (uint32_t i = 0; i < b->n_entries && g->plan.pool_sums; i++) {
        const struct request *r = &b->requests[i];
        if (r->n_rows && !r->n_computed)
            graph_pool_reset(g->graph, i);
    }
    struct step step = {b->rows, b->n_rows, b->n_out, b->tables, b->table_stride};
    rc = graph_forward(g->graph, &step, e);
    if (!rc && g->draft)
        rc = draft_follow(g->draft, b, e);
    return rc;
}

static void count_time(struct engine_local *g, uint64_t us)
{
    uint32_t i = 0;
    while (i + 1 < ENGINE_STEP_BUCKETS && us >= (uint64_t)ENGINE_STEP_UNIT_US << i)
        i++;
    g->step_times[i]++;
}

static int follow(struct engine_local *g, struct err *e)
{
    int rc = g->ended ? 0 : graph_follow(g->graph, e);
    g->ended = g->ended || rc == 0;
    g->n_steps += rc > 0;
    return rc;
}

int local_step(struct engine_local *g, uint64_t now_us, step_result_fn fn, void *ctx, struct err *e)
{
    struct batch *b = &g->batch;
    struct taker t = {g, fn, ctx, 0};
    if (g->shard)
        return follow(g, e);
    uint64_t begin = clock_now_us();
    report_ended(&t, now_us);
    memset(g->logits_index, 0xff, b->n_entries * sizeof *g->logits_index);
    if (!batch_plan(b)) {
        int rc = graph_idle(g->graph, e);
        return rc ? rc : (int)batch_active(b);
    }
    int rc = compute(g, e);
    if (rc)
        return rc;
    g->n_steps++;
    uint64_t took = clock_now_us() - begin;
    t.late_us = took >= LONG_STEP_US ? now_us + took : 0;
    for (uint32_t i = 0; i < b->n_entries; i++)
        if (b->requests[i].state == REQUEST_RUNNING && b->requests[i].n_rows)
            take_rows(&t, &b->requests[i]);
    count_time(g, clock_now_us() - begin);
    return (int)batch_active(b);
}
