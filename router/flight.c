/* flight.c - see flight.h. Here: how a request begins and how it ends. Ends are flight_flush (good,
 * or as its frame says), flight_fail (typed error) and flight_abandon (the client left); all go
 * through flight_destroy.
 */
#include "router/flight_parts.h"

#include "base/clock.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* --- ends ------------------------------------------------------------------------------------- */

static void choice_fini(struct choice *c)
{
    choice_attempt_cancel(c);
    if (c->state == CHOICE_WAITING)
        choice_waiting_remove(c);
    answer_fini(&c->answer);
}

static void flight_destroy(struct flight *f)
{
    struct router *r = f->router;
    for (uint32_t i = 0; i < f->n_choices; i++)
        choice_fini(&f->choices[i]);
    free(f->choices);
    flight_dirty_remove(f);
    if (f->prev)
        f->prev->next = f->next;
    else
        r->flights = f->next;
    if (f->next)
        f->next->prev = f->prev;
    r->n_flights--;
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

/* --- output ----------------------------------------------------------------------------------- */

static void send_whole(struct flight *f)
{
    struct buf b;
    char extra[ROUTER_REQUEST_ID_BYTES + 32];
    buf_init(&b, FLIGHT_OUT_MAX_BYTES);
    flight_put_whole(f, &b);
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

static void send_events(struct flight *f)
{
    struct buf b;
    buf_init(&b, FLIGHT_OUT_MAX_BYTES);
    flight_put_events(f, &b);
    if (!f->stream_begun && b.len) {
        char extra[ROUTER_REQUEST_ID_BYTES + 32];
        snprintf(extra, sizeof extra, "x-request-id: %s\r\n", f->request_id);
        http_conn_stream_begin(f->conn, extra);
        f->stream_begun = true;
    }
    if (b.len)
        http_conn_stream_put(f->conn, b.data, b.len);
    buf_fini(&b);
}

/* All of a frame's entries for f are in its answers: one write, and the end if it has come. */
void flight_flush(struct flight *f)
{
    bool stream = f->prep.request.stream, ends = f->n_done == f->n_choices;
    if (f->has_failed) {
        struct api_error a = f->error;
        if (stream && f->stream_begun)
            send_events(f);
        flight_fail(f, &a);
        return;
    }
    if (stream)
        send_events(f);
    if (!ends) {
        if (stream && f->stream_begun)
            http_conn_flush(f->conn);
        flight_begin_choices(f);
        return;
    }
    if (stream)
        http_conn_stream_end(f->conn, false);
    else
        send_whole(f);
    f->router->counters.n_finished++;
    log_debug("router: request done id=%s choices=%u", f->reply.id, f->n_choices);
    flight_destroy(f);
}

/* --- preparing -------------------------------------------------------------------------------- */

/* The seed of the number-th choice of a prompt: the first has the request's own. */
static uint64_t choice_seed(uint64_t seed, uint32_t number)
{
    uint64_t z = seed + number * 0x9e3779b97f4a7c15u; /* splitmix64, as in sampler_choose.c */
    if (!number)
        return seed;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Mean log-probabilities choose between more answers than are given (best_of). */
static bool needs_scores(const struct api_request *q)
{
    return q->want_logprobs || q->best_of > q->n;
}

static int choice_init(struct flight *f, uint32_t index)
{
    struct prep *p = &f->prep;
    const struct api_request *q = &p->request;
    struct choice *c = &f->choices[index];
    uint32_t per_prompt = f->reply.kind == API_EMBEDDING ? 1 : q->best_of;
    *c = (struct choice){.flight = f,
                         .slot = ATTEMPT_NONE,
                         .index = index,
                         .number = index % per_prompt,
                         .prompt = &p->prompts[index / per_prompt]};
    c->seed = choice_seed(q->sampling.seed, c->number);
    answer_init(&c->answer, f->model, p->stops[index], q->ignore_eos, c->prompt->max_tokens);
    p->stops[index] = NULL;
    c->answer.stop_ids = q->stop_ids;
    c->answer.n_stop_ids = q->n_stop_ids;
    c->answer.want_scores = needs_scores(q);
    if (!q->echo || !q->want_logprobs)
        return 0;
    return answer_expect_prompt(&c->answer, c->prompt->ids.ids, c->prompt->ids.n);
}

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
    if (p->error.status || !flight_queue_has_room(r, &p->error)) {
        a = p->error;
        flight_fail(f, &a);
        return;
    }
    f->model = model_ref(p->model);
    f->reply.model = f->model;
    f->reply.include_usage = p->request.include_usage;
    if (!p->request.has_seed)
        p->request.sampling.seed = router_random(r);
    f->choices = calloc(p->n_choices, sizeof *f->choices);
    int rc = f->choices ? 0 : -1;
    while (!rc && f->n_choices < p->n_choices)
        rc = choice_init(f, f->n_choices++);
    if (rc) {
        api_fail(&a, 500, API_SERVER_ERROR, NULL, "out_of_memory", "Out of memory.");
        flight_fail(f, &a);
        return;
    }
    flight_begin_choices(f);
    flights_dispatch(r);
}

static void on_prepare(uv_work_t *w)
{
    struct flight *f = w->data;
    if (f->prep.body)
        prep_run(&f->prep);
    if (prep_has_constraint(&f->prep))
        prep_compile(&f->prep);
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

/* false: the pool does not take it. */
static bool prepare_on_pool(struct flight *f)
{
    f->work.data = f;
    if (uv_queue_work(f->router->loop, &f->work, on_prepare, on_prepared)) {
        f->work.data = NULL;
        return false;
    }
    f->router->n_jobs++;
    return true;
}

static void prepare(struct flight *f)
{
    if (f->prep.body_bytes > PREP_INLINE_BYTES && prepare_on_pool(f))
        return;
    prep_run(&f->prep);
    if (prep_has_constraint(&f->prep)) {
        if (prepare_on_pool(f))
            return;
        api_fail(&f->prep.error, 503, API_SERVER_ERROR, NULL, "overloaded",
                 "The request cannot be prepared now. Try again shortly.");
    }
    flight_prepared(f);
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
    prepare(f);
}
