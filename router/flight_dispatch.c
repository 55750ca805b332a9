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

static void waiting_add(struct flight *f, bool first)
{
    struct router *r = f->router;
    f->state = FLIGHT_WAITING;
    f->wait_prev = first ? NULL : r->waiting_last;
    f->wait_next = first ? r->waiting : NULL;
    if (f->wait_prev)
        f->wait_prev->wait_next = f;
    else
        r->waiting = f;
    if (f->wait_next)
        f->wait_next->wait_prev = f;
    else
        r->waiting_last = f;
    r->n_waiting++;
}

void flight_waiting_remove(struct flight *f)
{
    struct router *r = f->router;
    if (f->wait_prev)
        f->wait_prev->wait_next = f->wait_next;
    else
        r->waiting = f->wait_next;
    if (f->wait_next)
        f->wait_next->wait_prev = f->wait_prev;
    else
        r->waiting_last = f->wait_prev;
    f->wait_prev = f->wait_next = NULL;
    r->n_waiting--;
}

/* --- attempts --------------------------------------------------------------------------------- */

/* The current attempt is over as far as this router is concerned: late frames find nobody. */
void flight_attempt_end(struct flight *f)
{
    struct router *r = f->router;
    if (f->state != FLIGHT_RUNNING)
        return;
    attempts_give(r->attempts, f->slot);
    table_release(r->table, &f->pick, f->committed);
    f->slot = ATTEMPT_NONE;
    f->state = FLIGHT_PREPARING;
}

void flight_attempt_cancel(struct flight *f)
{
    struct router *r = f->router;
    if (f->state != FLIGHT_RUNNING)
        return;
    struct msg_cancel m = {
        .attempt = {r->config.member, (uint32_t)r->config.incarnation, f->slot, f->generation},
        .deployment = f->pick.deployment,
        .replica = f->pick.replica,
    };
    struct buf b;
    struct err e = ERR_INIT;
    buf_init(&b, 256);
    msg_cancel_put(&b, &m);
    if (buf_ok(&b) && r->link.cancel(r->link.ctx, f->pick.worker, b.data, b.len, &e))
        log_debug("router: cancel did not leave worker=%u: %s", f->pick.worker, e.text);
    buf_fini(&b);
    flight_attempt_end(f);
}

/* --- dispatch --------------------------------------------------------------------------------- */

static void put_submit(struct flight *f, struct buf *b)
{
    struct router *r = f->router;
    const struct api_request *q = &f->prep.request;
    struct buf ids;
    buf_init(&ids, 4 * (size_t)MSG_MAX_TOKENS + 4 * MSG_MAX_STOP_IDS);
    for (uint32_t i = 0; i < f->model->n_eog && !q->ignore_eos; i++)
        buf_u32(&ids, f->model->eog[i]);
    size_t stop_bytes = ids.len;
    for (size_t i = 0; i < f->prep.prompt.n; i++)
        buf_u32(&ids, f->prep.prompt.ids[i]);
    uint64_t now = uv_now(r->loop);
    struct msg_submit m = {
        .attempt = {r->config.member, (uint32_t)r->config.incarnation, f->slot, f->generation},
        .deployment = f->pick.deployment,
        .replica = f->pick.replica,
        .epoch = f->pick.epoch,
        .sampling = {q->temperature, q->top_p, q->top_k, f->seed},
        .max_tokens = f->prep.max_tokens,
        .total_ms = f->deadline_ms > now ? (uint32_t)(f->deadline_ms - now) : 1,
        .ignore_eos = q->ignore_eos,
        .n_stop_ids = (uint32_t)(stop_bytes / 4),
        .stop_ids = ids.data,
        .n_tokens = (uint32_t)f->prep.prompt.n,
        .tokens = ids.data + stop_bytes,
    };
    if (buf_ok(&ids))
        msg_submit_put(b, &m);
    else
        b->failed = true;
    buf_fini(&ids);
}

/* Send it to the picked replica. 0, or why it did not leave. */
static int submit(struct flight *f, struct err *e)
{
    struct router *r = f->router;
    int rc = attempts_take(r->attempts, f, &f->slot, &f->generation, e);
    if (rc)
        return rc;
    struct buf b;
    buf_init(&b, 4 * (size_t)MSG_MAX_TOKENS + 4096);
    put_submit(f, &b);
    f->state = FLIGHT_RUNNING;
    f->committed = (uint32_t)f->prep.prompt.n + f->prep.max_tokens;
    table_commit(r->table, &f->pick, f->committed);
    if (buf_ok(&b))
        rc = r->link.submit(r->link.ctx, f->pick.worker, b.data, b.len, e);
    else
        rc = err_set(e, ERR_NOMEM, "out of memory for a submit");
    buf_fini(&b);
    if (rc)
        flight_attempt_end(f);
    return rc;
}

/* true: it runs now. f is not in the waiting list. */
static bool dispatch(struct flight *f)
{
    struct router *r = f->router;
    for (int i = 0; i < SUBMIT_TRIES; i++) {
        struct err e = ERR_INIT;
        if (!table_pick(r->table, f->model->deployment, now_us(r), &f->pick))
            return false;
        int rc = submit(f, &e);
        if (!rc)
            return true;
        if (rc == ERR_PEER)
            table_on_unreachable(r->table, f->pick.worker, now_us(r));
        else
            table_on_refused(r->table, &f->pick);
        log_debug("router: submit did not leave worker=%u replica=%u: %s", f->pick.worker,
                  f->pick.replica, e.text);
    }
    return false;
}

void flights_dispatch(struct router *r)
{
    uint32_t full[MAX_FULL_DEPLOYMENTS], n_full = 0;
    struct flight *next;
    for (struct flight *f = r->waiting; f && n_full < MAX_FULL_DEPLOYMENTS; f = next) {
        next = f->wait_next;
        bool is_full = false;
        for (uint32_t i = 0; i < n_full; i++)
            is_full |= full[i] == f->model->deployment;
        if (is_full)
            continue;
        flight_waiting_remove(f);
        if (dispatch(f))
            continue;
        /* back to its place: before `next` */
        f->state = FLIGHT_WAITING;
        f->wait_next = next;
        f->wait_prev = next ? next->wait_prev : r->waiting_last;
        if (f->wait_prev)
            f->wait_prev->wait_next = f;
        else
            r->waiting = f;
        if (next)
            next->wait_prev = f;
        else
            r->waiting_last = f;
        r->n_waiting++;
        full[n_full++] = f->model->deployment;
    }
}

void flight_enqueue(struct flight *f)
{
    struct router *r = f->router;
    if (r->n_waiting >= ROUTER_MAX_WAITING) {
        struct api_error a;
        api_fail(&a, 503, API_SERVER_ERROR, NULL, "queue_full",
                 "All replicas are busy and %u requests wait already. Try again shortly.",
                 r->n_waiting);
        a.retry_after_s = RETRY_AFTER_S;
        flight_fail(f, &a);
        return;
    }
    f->wait_until_ms = uv_now(r->loop) + WAIT_FULL_MS;
    waiting_add(f, false);
    flights_dispatch(r);
}

/* The replica did not start it (another router was faster, or it drains): another may, or the same
 * one once it has reported again or ended one of ours. How long it tries is wait_until_ms. */
void flight_refused(struct flight *f)
{
    struct router *r = f->router;
    flight_attempt_end(f);
    table_on_refused(r->table, &f->pick);
    r->counters.n_resubmitted++;
    waiting_add(f, true); /* it was the oldest once; dispatched after the frame */
}
