/* flight.c - see flight.h. Here: how a request begins, what it writes, how it ends. Ends are
 * flight_flush (good, or as its frame says), flight_fail (typed error) and flight_abandon (the
 * client left); all go through flight_destroy.
 */
#include "router/flight_parts.h"

#include "base/clock.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    /* A whole answer or one step's events; six bytes for one is the worst that escaping does to the
     * text's own cap. */
    OUT_MAX_BYTES = 400 << 20,
};

/* --- ends ------------------------------------------------------------------------------------- */

static void flight_destroy(struct flight *f)
{
    struct router *r = f->router;
    flight_attempt_cancel(f);
    if (f->state == FLIGHT_WAITING)
        flight_waiting_remove(f);
    flight_dirty_remove(f);
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

void flight_fail(struct flight *f, const struct api_error *a)
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
    buf_init(&b, OUT_MAX_BYTES);
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

/* --- output of a step ------------------------------------------------------------------------- */

static void stream_step(struct flight *f)
{
    struct buf b;
    struct answer *an = &f->answer;
    buf_init(&b, OUT_MAX_BYTES);
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
void flight_flush(struct flight *f)
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

/* --- preparing -------------------------------------------------------------------------------- */

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
    flight_enqueue(f);
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
