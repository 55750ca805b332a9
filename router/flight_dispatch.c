/* flight_dispatch.c - which replica a request goes to, and when: submit, cancel, the queue of those
 * that wait. */
#include "router/flight_parts.h"

#include "base/clock.h"
#include "base/log.h"

enum {
    SUBMIT_TRIES = 8, /* workers asked in one dispatch of one request */
    MAX_FULL_DEPLOYMENTS = 8,
};

static uint64_t now_us(const struct router *r)
{
    return clock_now_us();
}

/* --- the queue -------------------------------------------------------------------------------- */

static void waiting_insert(struct choice *c, struct choice *prev, struct choice *next)
{
    struct router *r = c->flight->router;
    c->state = CHOICE_WAITING;
    c->wait_prev = prev;
    c->wait_next = next;
    *(prev ? &prev->wait_next : &r->waiting) = c;
    *(next ? &next->wait_prev : &r->waiting_last) = c;
    r->n_waiting++;
}

static uint8_t priority_of(const struct choice *c)
{
    return c->flight->prep.request.priority;
}

/* Behind those of its priority, or (first) before them. */
static void waiting_add(struct choice *c, bool first)
{
    struct router *r = c->flight->router;
    struct choice *prev = r->waiting_last;
    while (prev &&
           (first ? priority_of(prev) <= priority_of(c) : priority_of(prev) < priority_of(c)))
        prev = prev->wait_prev;
    waiting_insert(c, prev, prev ? prev->wait_next : r->waiting);
}

void choice_waiting_remove(struct choice *c)
{
    struct router *r = c->flight->router;
    *(c->wait_prev ? &c->wait_prev->wait_next : &r->waiting) = c->wait_next;
    *(c->wait_next ? &c->wait_next->wait_prev : &r->waiting_last) = c->wait_prev;
    c->wait_prev = c->wait_next = NULL;
    c->state = CHOICE_IDLE;
    r->n_waiting--;
}

/* --- attempts --------------------------------------------------------------------------------- */

void choice_attempt_end(struct choice *c)
{
    struct router *r = c->flight->router;
    if (c->state != CHOICE_RUNNING)
        return;
    attempts_give(r->attempts, c->slot);
    table_release(r->table, &c->pick, c->committed);
    c->slot = ATTEMPT_NONE;
    c->state = CHOICE_IDLE;
}

void choice_attempt_cancel(struct choice *c)
{
    struct router *r = c->flight->router;
    if (c->state != CHOICE_RUNNING)
        return;
    struct msg_cancel m = {
        .attempt = {r->config.member, (uint32_t)r->config.incarnation, c->slot, c->generation},
        .deployment = c->pick.deployment,
        .replica = c->pick.replica,
    };
    struct buf b;
    struct err e = ERR_INIT;
    buf_init(&b, 256);
    msg_cancel_put(&b, &m);
    if (buf_ok(&b) && r->link.cancel(r->link.ctx, c->pick.worker, b.data, b.len, &e))
        log_debug("router: cancel did not leave worker=%u: %s", c->pick.worker, e.text);
    buf_fini(&b);
    choice_attempt_end(c);
}

/* --- dispatch --------------------------------------------------------------------------------- */

/* Lists of a submit: stop ids, bias, prompt and log, one behind the other. */
struct lists {
    struct buf bytes;
    size_t bias_at, tokens_at;
};

static void lists_fill(struct lists *l, const struct choice *c)
{
    const struct flight *f = c->flight;
    const struct api_request *q = &f->prep.request;
    const struct token_vec *prompt = &c->prompt->ids, *log = &c->answer.log;
    buf_init(&l->bytes, 4 * (size_t)MSG_MAX_TOKENS + 4 * MSG_MAX_STOP_IDS + 8 * MSG_MAX_BIAS);
    for (uint32_t i = 0; i < f->model->n_eog && !q->ignore_eos; i++)
        buf_u32(&l->bytes, f->model->eog[i]);
    for (uint32_t i = 0; i < q->n_stop_ids; i++)
        buf_u32(&l->bytes, q->stop_ids[i]);
    l->bias_at = l->bytes.len;
    for (uint32_t i = 0; i < q->n_bias; i++) {
        buf_u32(&l->bytes, q->bias[i].id);
        buf_f32(&l->bytes, q->bias[i].value);
    }
    l->tokens_at = l->bytes.len;
    for (size_t i = 0; i < prompt->n; i++)
        buf_u32(&l->bytes, prompt->ids[i]);
    for (size_t i = 0; i < log->n; i++)
        buf_u32(&l->bytes, log->ids[i]);
}

static struct sampling sampling_of(const struct choice *c)
{
    const struct api_request *q = &c->flight->prep.request;
    struct sampling s = q->sampling;
    s.seed = c->seed;
    s.want_logprobs = c->answer.want_scores;
    s.want_prompt_logprobs = !answer_knows_prompt(&c->answer);
    if (s.top_p == 0) { /* the likeliest token alone; on the wire 0 is off */
        s.temperature = 0;
        s.top_p = 1;
    }
    return s;
}

/* Everything that decides the answer is the request's and the log's: any attempt says the same. */
static void put_submit(struct choice *c, struct buf *b)
{
    struct flight *f = c->flight;
    struct router *r = f->router;
    const struct api_request *q = &f->prep.request;
    struct lists l;
    lists_fill(&l, c);
    uint64_t now = uv_now(r->loop);
    struct msg_submit m = {
        .attempt = {r->config.member, (uint32_t)r->config.incarnation, c->slot, c->generation},
        .deployment = c->pick.deployment,
        .replica = c->pick.replica,
        .epoch = c->pick.epoch,
        .kind = f->reply.kind == API_EMBEDDING ? SUBMIT_EMBED : SUBMIT_GENERATE,
        .priority = q->priority,
        .tenant = q->tenant,
        .sampling = sampling_of(c),
        .max_tokens = c->prompt->max_tokens,
        .start = (uint32_t)c->answer.log.n,
        .total_ms = f->deadline_ms > now ? (uint32_t)(f->deadline_ms - now) : 1,
        .ignore_eos = q->ignore_eos && !q->n_stop_ids, /* else the ids say it */
        .n_stop_ids = (uint32_t)(l.bias_at / 4),
        .stop_ids = l.bytes.data,
        .n_bias = q->n_bias,
        .bias = l.bytes.data + l.bias_at,
        .constraint = (uint8_t)q->constraint,
        .constraint_bytes = (uint32_t)q->constraint_bytes,
        .constraint_source = q->constraint_source,
        .n_tokens = (uint32_t)(c->prompt->ids.n + c->answer.log.n),
        .tokens = l.bytes.data + l.tokens_at,
    };
    if (buf_ok(&l.bytes))
        msg_submit_put(b, &m);
    else
        b->failed = true;
    buf_fini(&l.bytes);
}

/* Send it to the picked replica. 0, or why it did not leave. */
static int submit(struct choice *c, struct err *e)
{
    struct router *r = c->flight->router;
    int rc = attempts_take(r->attempts, c, &c->slot, &c->generation, e);
    if (rc)
        return rc;
    struct buf b;
    buf_init(&b, 4 * (size_t)MSG_MAX_TOKENS + 4 * MSG_MAX_STOP_IDS + 8 * MSG_MAX_BIAS +
                     MSG_MAX_CONSTRAINT_BYTES + MSG_SUBMIT_FIXED_BYTES);
    put_submit(c, &b);
    c->state = CHOICE_RUNNING;
    c->committed = (uint32_t)c->prompt->ids.n + c->prompt->max_tokens;
    table_commit(r->table, &c->pick, c->committed);
    if (buf_ok(&b))
        rc = r->link.submit(r->link.ctx, c->pick.worker, b.data, b.len, e);
    else
        rc = err_set(e, ERR_NOMEM, "out of memory for a submit");
    buf_fini(&b);
    if (rc)
        choice_attempt_end(c);
    return rc;
}

/* true: it runs now. c is not in the waiting list. */
static bool dispatch(struct choice *c)
{
    struct router *r = c->flight->router;
    for (int i = 0; i < SUBMIT_TRIES; i++) {
        struct err e = ERR_INIT;
        if (!table_pick(r->table, c->flight->model->deployment, now_us(r), &c->pick))
            return false;
        int rc = submit(c, &e);
        if (!rc)
            return true;
        if (rc == ERR_PEER)
            table_on_unreachable(r->table, c->pick.worker, now_us(r));
        else
            table_on_refused(r->table, &c->pick);
        log_debug("router: submit did not leave worker=%u replica=%u: %s", c->pick.worker,
                  c->pick.replica, e.text);
    }
    return false;
}

void flights_dispatch(struct router *r)
{
    uint32_t full[MAX_FULL_DEPLOYMENTS], n_full = 0;
    struct choice *next;
    for (struct choice *c = r->waiting; c && n_full < MAX_FULL_DEPLOYMENTS; c = next) {
        next = c->wait_next;
        bool is_full = false;
        for (uint32_t i = 0; i < n_full; i++)
            is_full |= full[i] == c->flight->model->deployment;
        if (is_full)
            continue;
        struct choice *prev = c->wait_prev;
        choice_waiting_remove(c);
        if (dispatch(c))
            continue;
        waiting_insert(c, prev, next); /* back to its place */
        full[n_full++] = c->flight->model->deployment;
    }
}

bool flight_queue_has_room(struct router *r, struct api_error *a)
{
    if (r->n_waiting < ROUTER_MAX_WAITING)
        return true;
    api_fail(a, 503, API_SERVER_ERROR, NULL, "queue_full",
             "All replicas are busy and %u requests wait already. Try again shortly.",
             r->n_waiting);
    a->retry_after_s = RETRY_AFTER_S;
    return false;
}

void flight_begin_choices(struct flight *f)
{
    while (f->n_begun < f->n_choices && f->n_begun - f->n_done < FLIGHT_WINDOW) {
        struct choice *c = &f->choices[f->n_begun++];
        c->wait_until_ms = uv_now(f->router->loop) + WAIT_FULL_MS;
        waiting_add(c, false);
    }
}

/* The replica did not start it (another router was faster, or it drains): another may, or the same
 * one once it has reported again or ended one of ours. How long it tries is wait_until_ms. */
void choice_refused(struct choice *c)
{
    struct router *r = c->flight->router;
    choice_attempt_end(c);
    table_on_refused(r->table, &c->pick);
    r->counters.n_resubmitted++;
    waiting_add(c, true); /* it was the oldest once; dispatched after the frame */
}
