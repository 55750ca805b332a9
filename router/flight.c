/* flight.c - see flight.h. Ends of flights: flight_reply (good), flight_fail (typed error), flight_abandon (client left). */
#include "router/flight.h"

#include "base/log.h"
#include "base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    WAIT_FULL_MS = 60000,   /* for a place while replicas live but are full */
    WAIT_ABSENT_MS = 10000, /* for a replica when none lives */
    RETRY_AFTER_S = 2,
    SUBMIT_TRIES = 8, /* workers asked in one dispatch of one request */
    MAX_FULL_DEPLOYMENTS = 8,
};

static uint64_t now_us(const struct router *r)
{
    return clock_now_us();
}

/* --- lists --------------------------------------------------------------------------------------------- */

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

static void waiting_remove(struct flight *f)
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

static void dirty_add(struct flight *f)
{
    if (f->is_dirty)
        return;
    f->is_dirty = true;
    f->next_dirty = f->router->dirty;
    f->router->dirty = f;
}

static void dirty_remove(struct flight *f)
{
    for (struct flight **at = &f->router->dirty; f->is_dirty && *at; at = &(*at)->next_dirty)
        if (*at == f) {
            *at = f->next_dirty;
            f->is_dirty = false;
            return;
        }
}

/* --- ends ---------------------------------------------------------------------------------------------- */

/* The current attempt is over as far as this router is concerned: late frames find nobody. */
static void attempt_end(struct flight *f)
{
    struct router *r = f->router;
    if (f->state != FLIGHT_RUNNING)
        return;
    attempts_give(r->attempts, f->slot);
    table_release(r->table, &f->pick, f->committed);
    f->slot = ATTEMPT_NONE;
    f->state = FLIGHT_PREPARING;
}

static void attempt_cancel(struct flight *f)
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
    attempt_end(f);
}

static void flight_destroy(struct flight *f)
{
    struct router *r = f->router;
    attempt_cancel(f);
    if (f->state == FLIGHT_WAITING)
        waiting_remove(f);
    dirty_remove(f);
    if (f->prev)
        f->prev->next = f->next;
    else
        r->flights = f->next;
    if (f->next)
        f->next->prev = f->prev;
    r->n_flights--;
    if (f->has_answer)
        answer_fini(&f->answer);
    prep_fini(&f->prep);
    model_unref(f->model);
    model_set_unref(f->prep.models);
    free(f);
}

static void flight_fail(struct flight *f, const struct api_error *a)
{
    struct http_conn *c = f->conn;
    f->router->counters.n_failed += a->status >= 500;
    if (c && f->stream_begun) {
        struct buf b;
        buf_init(&b, 8192);
        reply_put_error(&b, a);
        http_conn_stream_put(c, b.data, b.len);
        http_conn_stream_end(c, true);
        buf_fini(&b);
    } else if (c) {
        routes_respond_error(c, a, f->request_id);
    }
    log_debug("router: request failed id=%s status=%u code=%s", f->reply.id, a->status,
              a->code ? a->code : "-");
    flight_destroy(f);
}

void flight_abandon(struct flight *f)
{
    f->conn = NULL;
    f->router->counters.n_canceled++;
    if (f->work.data) {
        uv_cancel((uv_req_t *)&f->work); /* its end comes to on_prepared in any case */
        return;
    }
    flight_destroy(f);
}

static struct usage usage_of(const struct flight *f)
{
    return (struct usage){(uint32_t)f->prep.prompt.n, f->answer.n_counted};
}

static void reply_whole(struct flight *f)
{
    struct buf b;
    char extra[ROUTER_REQUEST_ID_BYTES + 32];
    struct usage u = usage_of(f);
    buf_init(
        &b,
        400u << 20); /* six bytes for one is the worst that escaping does to the text's own cap */
    reply_put_whole(&b, &f->reply, (const char *)f->answer.text.data, f->answer.text.len,
                    f->answer.finish_reason, &u);
    snprintf(extra, sizeof extra, "x-request-id: %s\r\n", f->request_id);
    if (buf_ok(&b)) {
        http_conn_respond(f->conn, 200, extra, "application/json", b.data, b.len);
    } else {
        struct api_error a;
        api_fail(&a, 500, API_SERVER_ERROR, NULL, "out_of_memory", "The answer is too large.");
        routes_respond_error(f->conn, &a, f->request_id);
    }
    buf_fini(&b);
}

/* --- output of a step ---------------------------------------------------------------------------------- */

static void stream_step(struct flight *f)
{
    struct buf b;
    struct answer *an = &f->answer;
    buf_init(&b, 400u << 20);
    if (!f->stream_begun) {
        char extra[ROUTER_REQUEST_ID_BYTES + 32];
        snprintf(extra, sizeof extra, "x-request-id: %s\r\n", f->request_id);
        http_conn_stream_begin(f->conn, extra);
        f->stream_begun = true;
        reply_put_role(&b, &f->reply);
    }
    if (an->text.len)
        reply_put_text(&b, &f->reply, (const char *)an->text.data, an->text.len);
    buf_reset(&an->text);
    if (an->finish_reason) {
        struct usage u = usage_of(f);
        reply_put_finish(&b, &f->reply, an->finish_reason);
        if (f->reply.include_usage)
            reply_put_usage(&b, &f->reply, &u);
        reply_put_done(&b);
    }
    http_conn_stream_put(f->conn, b.data, b.len);
    buf_fini(&b);
}

/* All of a frame's entries for f are in its answer: one write, and the end if it has come. */
static void flight_flush(struct flight *f)
{
    bool stream = f->prep.request.stream;
    if (f->has_failed) {
        struct api_error a = f->error;
        if (stream && f->stream_begun && f->answer.text.len)
            stream_step(f);
        flight_fail(f, &a);
        return;
    }
    if (stream)
        stream_step(f);
    if (!f->ending) {
        if (stream)
            http_conn_flush(f->conn);
        return;
    }
    if (stream)
        http_conn_stream_end(f->conn, false);
    else
        reply_whole(f);
    f->router->counters.n_finished++;
    log_debug("router: request done id=%s prompt=%zu completion=%u reason=%s", f->reply.id,
              f->prep.prompt.n, f->answer.n_counted, f->answer.finish_reason);
    flight_destroy(f);
}

/* --- dispatch ------------------------------------------------------------------------------------------ */

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
        attempt_end(f);
    return rc;
}

/* true: it runs now. f is not in the waiting list. */
static bool dispatch(struct flight *f)
{
    struct router *r = f->router;
    for (int i = 0; i < SUBMIT_TRIES; i++) {
        struct err e = ERR_INIT;
        if (!table_pick(r->table, f->model->deployment, f->avoid,
                        f->n_refusals < FLIGHT_MAX_REFUSALS ? f->n_refusals : FLIGHT_MAX_REFUSALS,
                        now_us(r), &f->pick))
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
        waiting_remove(f);
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
        if (!f->n_refusals) /* one with a list of refusals may fail where others do not */
            full[n_full++] = f->model->deployment;
    }
}

static void put_in_queue(struct flight *f)
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

/* The replica did not start it: another may. */
static void flight_refused(struct flight *f)
{
    struct router *r = f->router;
    table_on_refused(r->table, &f->pick);
    attempt_end(f);
    if (f->n_refusals < FLIGHT_MAX_REFUSALS)
        f->avoid[f->n_refusals] = f->pick.replica;
    f->n_refusals++;
    r->counters.n_resubmitted++;
    if (f->n_refusals >= FLIGHT_MAX_REFUSALS) {
        api_fail(&f->error, 503, API_SERVER_ERROR, NULL, "overloaded",
                 "%u replicas refused the request. Try again shortly.", f->n_refusals);
        f->error.retry_after_s = RETRY_AFTER_S;
        f->has_failed = true;
        dirty_add(f);
        return;
    }
    waiting_add(f, true); /* it was the oldest once; dispatched after the frame */
}

/* --- preparing ----------------------------------------------------------------------------------------- */

static void flight_prepared(struct flight *f)
{
    struct router *r = f->router;
    struct prep *p = &f->prep;
    struct api_error a;
    if (p->unknown_model && r->n_building) {
        api_fail(&p->error, 503, API_SERVER_ERROR, "model", "model_loading",
                 "A model is being loaded. Try again shortly.");
        p->error.retry_after_s = RETRY_AFTER_S;
    }
    if (p->error.status) {
        a = p->error;
        flight_fail(f, &a);
        return;
    }
    f->model = model_ref(p->model);
    f->reply.model = f->model;
    f->reply.include_usage = p->request.include_usage;
    f->seed = p->request.has_seed ? p->request.seed : router_random(r);
    f->has_answer = true;
    answer_init(&f->answer, f->model, p->stops, p->request.ignore_eos, p->max_tokens);
    p->stops = NULL;
    put_in_queue(f);
}

static void on_prepare(uv_work_t *w)
{
    struct flight *f = w->data;
    prep_run(&f->prep);
}

static void on_prepared(uv_work_t *w, int status)
{
    struct flight *f = w->data;
    struct router *r = f->router;
    f->work.data = NULL;
    r->n_jobs--;
    if (!f->conn || status < 0)
        flight_destroy(f);
    else
        flight_prepared(f);
    router_check_closed(r);
}

static void reply_init(struct flight *f, enum api_kind kind)
{
    struct router *r = f->router;
    f->reply.kind = kind;
    f->reply.created_s = clock_wall_us() / 1000000;
    snprintf(f->reply.id, sizeof f->reply.id, "%s-%016" PRIx64 "%08" PRIx32,
             kind == API_CHAT ? "chatcmpl" : "cmpl", router_random(r), (uint32_t)router_random(r));
}

void flight_start(struct router *r, struct http_conn *c, const struct http_head *h,
                  enum api_kind kind)
{
    struct flight *f = calloc(1, sizeof *f);
    if (!f) {
        struct api_error a;
        api_fail(&a, 500, API_SERVER_ERROR, NULL, "out_of_memory", "Out of memory.");
        routes_respond_error(c, &a, "-");
        return;
    }
    f->router = r;
    f->conn = c;
    f->slot = ATTEMPT_NONE;
    f->deadline_ms = uv_now(r->loop) + r->config.request_timeout_ms;
    routes_request_id(r, h, f->request_id);
    reply_init(f, kind);
    f->prep.kind = kind;
    f->prep.body = (char *)buf_take(http_conn_body(c), &f->prep.body_bytes);
    f->prep.models = model_set_ref(r->models);
    f->next = r->flights;
    if (r->flights)
        r->flights->prev = f;
    r->flights = f;
    r->n_flights++;
    r->counters.n_requests++;
    http_conn_set_user(c, f);
    if (f->prep.body_bytes > PREP_INLINE_BYTES) {
        f->work.data = f;
        if (!uv_queue_work(r->loop, &f->work, on_prepare, on_prepared)) {
            r->n_jobs++;
            return;
        }
        f->work.data = NULL;
    }
    prep_run(&f->prep);
    flight_prepared(f);
}

/* --- frames -------------------------------------------------------------------------------------------- */

static void on_entry(struct router *r, uint32_t worker, const struct step_section *s,
                     const struct step_entry *entry)
{
    struct flight *f = NULL;
    if (entry->attempt.router == r->config.member &&
        entry->attempt.router_inc == (uint32_t)r->config.incarnation)
        f = attempts_find(r->attempts, entry->attempt.slot, entry->attempt.generation);
    if (!f || f->pick.worker != worker || f->pick.deployment != s->deployment ||
        f->pick.replica != s->replica || f->pick.epoch != s->epoch) {
        r->counters.n_entries_stale++;
        return;
    }
    switch (answer_push(&f->answer, entry, &f->error)) {
    case ANSWER_DROPPED:
        r->counters.n_entries_dropped++;
        return;
    case ANSWER_REFUSED:
        flight_refused(f);
        return;
    case ANSWER_STOPPED:
        attempt_cancel(f);
        f->ending = true;
        break;
    case ANSWER_DONE:
        attempt_end(f);
        f->ending = true;
        break;
    case ANSWER_FAILED:
        if (entry->finish == FINISH_NONE)
            attempt_cancel(f);
        else
            attempt_end(f);
        f->has_failed = true;
        break;
    case ANSWER_MORE:
        break;
    }
    dirty_add(f);
}

void flights_on_steps(struct router *r, uint32_t worker, const void *body, size_t n)
{
    struct rd rd = rd_make(body, n);
    struct step_section s;
    struct step_entry entry;
    struct err e = ERR_INIT;
    int rc = 0;
    while (!rc && !rd_done(&rd)) {
        rc = msg_section_get(&rd, &s, &e);
        for (uint32_t i = 0; !rc && i < s.n_entries; i++) {
            rc = msg_entry_get(&rd, &entry, &e);
            if (!rc)
                on_entry(r, worker, &s, &entry);
        }
    }
    if (rc && !r->counters.n_frames_bad++)
        log_warn("router: bad step frame worker=%u: %s (further ones are only counted)", worker,
                 e.text);
    while (r->dirty) {
        struct flight *f = r->dirty;
        r->dirty = f->next_dirty;
        f->is_dirty = false;
        flight_flush(f);
    }
    flights_dispatch(r);
}

/* --- losses and deadlines ------------------------------------------------------------------------------ */

static void fail_lost(struct flight *f, const char *why)
{
    struct api_error a;
    api_fail(&a, 502, API_SERVER_ERROR, NULL, "replica_lost",
             "The replica that worked on this request was lost: %s.", why);
    attempt_end(f);
    flight_fail(f, &a);
}

void flights_on_worker_lost(struct router *r, uint32_t worker, const char *why)
{
    for (struct flight *f = r->flights, *next; f; f = next) {
        next = f->next;
        if (f->state == FLIGHT_RUNNING && f->pick.worker == worker)
            fail_lost(f, why);
    }
}

void flights_on_replica_lost(struct router *r, const struct table_lost *l)
{
    for (struct flight *f = r->flights, *next; f; f = next) {
        next = f->next;
        const struct table_pick *p = &f->pick;
        if (f->state == FLIGHT_RUNNING && p->worker == l->worker &&
            p->deployment == l->deployment && p->replica == l->replica && p->epoch == l->epoch &&
            p->incarnation == l->incarnation) {
            attempt_cancel(f); /* should it run there after all */
            fail_lost(f, l->why);
        }
    }
}

/* Asked for every waiting request, so the last answer is kept for one round. */
struct live_memo {
    bool known, live;
    uint32_t deployment;
};

static bool is_live(struct router *r, uint32_t deployment, struct live_memo *m)
{
    if (!m->known || m->deployment != deployment)
        *m =
            (struct live_memo){true, table_n_live(r->table, deployment, now_us(r)) > 0, deployment};
    return m->live;
}

static bool flight_expired(struct flight *f, uint64_t now_ms, struct live_memo *memo,
                           struct api_error *a)
{
    struct router *r = f->router;
    if (f->state == FLIGHT_WAITING) {
        bool live = is_live(r, f->model->deployment, memo);
        uint64_t until = f->wait_until_ms;
        if (!live && until > WAIT_FULL_MS - WAIT_ABSENT_MS)
            until -= WAIT_FULL_MS - WAIT_ABSENT_MS;
        if (f->deadline_ms < until)
            until = f->deadline_ms;
        if (now_ms < until)
            return false;
        api_fail(a, 503, API_SERVER_ERROR, NULL, live ? "overloaded" : "no_replica",
                 live ? "All replicas are busy. Try again shortly."
                      : "No replica of this model is alive at the moment. Try again shortly.");
        a->retry_after_s = RETRY_AFTER_S;
        return true;
    }
    if (f->state != FLIGHT_RUNNING || now_ms < f->deadline_ms)
        return false;
    api_fail(a, 504, API_SERVER_ERROR, NULL, "request_timeout",
             "The request did not finish within %u ms.", r->config.request_timeout_ms);
    return true;
}

void flights_on_tick(struct router *r, uint64_t now_ms)
{
    struct live_memo memo = {0};
    flights_dispatch(r);
    for (struct flight *f = r->flights, *next; f; f = next) {
        struct api_error a;
        next = f->next;
        if (flight_expired(f, now_ms, &memo, &a))
            flight_fail(f, &a);
    }
}

void flights_fail_all(struct router *r, const struct api_error *a)
{
    for (struct flight *f = r->flights, *next; f; f = next) {
        next = f->next;
        if (f->work.data) {
            if (f->conn)
                routes_respond_error(f->conn, a, f->request_id);
            f->conn = NULL; /* ends with its job */
        } else {
            flight_fail(f, a);
        }
    }
}
