/* router.c - see router.h. Puts the parts together: HTTP server, replica table, models, flights. */
#include "router/flight.h"

#include "base/clock.h"
#include "base/digest.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    DEFAULT_BODY_BYTES = 8 << 20,
    DEFAULT_BODIES_BYTES = 1 << 30,
    MORE_ATTEMPTS = 1 << 16, /* of requests with several choices */
    DEFAULT_CONNECTIONS = 4096,
    DEFAULT_HEADER_MS = 15000,
    DEFAULT_IDLE_MS = 75000,
    DEFAULT_REQUEST_MS = 600000,
    DEFAULT_SUSPECT_MS = 3000,
    RETRY_AFTER_START_S = 5,
    RETRY_AFTER_DRAIN_S = 30, /* a successor has to come up */
};

uint64_t router_random(struct router *r)
{
    uint64_t x = r->random += 0x9E3779B97F4A7C15u; /* splitmix64 */
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

/* --- readiness -------------------------------------------------------------------------------- */

bool router_refuses(struct router *r, struct api_error *a)
{
    uint8_t state = r->service.state;
    const char *code = NULL;
    bool leaving = r->draining || state == SERVICE_DRAINING || state == SERVICE_STOPPED;
    if (leaving) {
        code = "draining";
        api_fail(a, 503, API_SERVER_ERROR, NULL, code,
                 "The service is shutting down and takes no new requests.");
    } else if (!r->reached || (!r->models->n && r->n_building)) {
        code = "not_ready";
        api_fail(a, 503, API_SERVER_ERROR, NULL, code, "The service is not ready yet: %s",
                 r->service.progress[0] ? r->service.progress : "starting.");
    }
    if (!code)
        return false;
    a->retry_after_s = leaving ? RETRY_AFTER_DRAIN_S : RETRY_AFTER_START_S;
    a->state = service_state_name(r->draining ? SERVICE_DRAINING : state);
    a->progress = r->service.progress;
    return true;
}

void router_on_service(struct router *r, const struct msg_service *s)
{
    if (s->state != r->service.state)
        log_info("router: service is %s ready=%u wanted=%u", service_state_name(s->state),
                 s->n_ready, s->n_wanted);
    r->service = *s;
    r->service.progress[sizeof r->service.progress - 1] = 0;
    if (s->state == SERVICE_READY || s->state == SERVICE_DEGRADED)
        r->reached = true;
}

void router_on_scheduler(struct router *r, bool present)
{
    r->scheduler = present;
}

/* --- models ----------------------------------------------------------------------------------- */

struct build_job {
    uv_work_t work;
    struct router *router;
    struct msg_model msg; /* index and meta point into `bytes` */
    uint8_t *bytes;
    struct model *model;
    struct err err;
    uint64_t created_s;
};

static void on_build(uv_work_t *w)
{
    struct build_job *j = w->data;
    if (model_build(&j->model, &j->msg, j->created_s, &j->err))
        j->model = NULL;
}

static void install_model(struct router *r, struct build_job *j)
{
    struct model_set *set = j->model ? model_set_with(r->models, j->model) : NULL;
    if (!set) {
        log_error("router: model %s cannot be used: %s", j->msg.name,
                  j->model ? "too many models" : j->err.text);
        return;
    }
    model_set_unref(r->models);
    r->models = set;
    log_info("router: model %s is known deployment=%u context=%u", j->model->name,
             j->model->deployment, j->model->n_ctx);
}

static void on_built(uv_work_t *w, int status)
{
    struct build_job *j = w->data;
    struct router *r = j->router;
    r->n_building--;
    r->n_jobs--;
    if (!status && !r->closing)
        install_model(r, j);
    model_unref(j->model);
    free(j->bytes);
    free(j);
    router_check_closed(r);
}

static bool model_is_known(const struct router *r, const struct msg_model *m)
{
    uint8_t digest[SHA256_BYTES];
    const struct model *old = model_set_find(r->models, m->name, strlen(m->name));
    if (!old || old->deployment != m->deployment || old->version != m->version ||
        (m->n_ctx && old->n_ctx != m->n_ctx))
        return false;
    sha256_of(m->index, m->index_bytes, digest);
    return !memcmp(digest, old->digest, sizeof digest);
}

void router_on_model(struct router *r, const struct msg_model *m)
{
    if (r->closing || model_is_known(r, m))
        return;
    struct build_job *j = calloc(1, sizeof *j);
    size_t n = (size_t)m->index_bytes + m->meta_bytes;
    if (j)
        j->bytes = malloc(n ? n : 1);
    if (!j || !j->bytes) {
        log_error("router: out of memory for model %s", m->name);
        free(j);
        return;
    }
    j->router = r;
    j->msg = *m;
    j->created_s = clock_wall_us() / 1000000;
    if (m->index_bytes)
        memcpy(j->bytes, m->index, m->index_bytes);
    if (m->meta_bytes)
        memcpy(j->bytes + m->index_bytes, m->meta, m->meta_bytes);
    j->msg.index = j->bytes;
    j->msg.meta = j->bytes + m->index_bytes;
    j->work.data = j;
    r->n_building++;
    r->n_jobs++;
    if (uv_queue_work(r->loop, &j->work, on_build, on_built))
        on_built(&j->work, UV_ENOMEM);
}

/* --- replicas --------------------------------------------------------------------------------- */

static void on_replica_lost(void *ctx, const struct table_lost *l)
{
    flights_on_replica_lost(ctx, l);
}

void router_on_heartbeat(struct router *r, const struct msg_heartbeat *h, bool full,
                         uint64_t now_us)
{
    table_on_heartbeat(r->table, h, full, now_us, on_replica_lost, r);
    flights_dispatch(r);
}

void router_on_worker_host(struct router *r, uint32_t worker, const char *host, const char *rack)
{
    table_on_host(r->table, worker, host, rack);
}

void router_on_worker_lost(struct router *r, uint32_t worker, const char *why)
{
    const struct table_worker *w = table_worker(r->table, worker);
    log_warn("router: worker %u (%s) is lost: %s", worker,
             w && w->host[0] ? w->host : "unknown host", why);
    table_on_worker_lost(r->table, worker);
    flights_on_worker_lost(r, worker, why);
}

void router_on_steps(struct router *r, uint32_t worker, const void *body, size_t n)
{
    flights_on_steps(r, worker, body, n);
}

/* --- life ------------------------------------------------------------------------------------- */

static void on_gone(void *ctx, struct http_conn *c)
{
    struct flight *f = http_conn_user(c);
    if (f)
        flight_abandon(f);
}

static void check_drained(struct router *r, uint64_t now_ms)
{
    if (!r->drained)
        return;
    if (r->n_flights && now_ms >= r->drain_until_ms) {
        struct api_error a;
        api_fail(&a, 503, API_SERVER_ERROR, NULL, "shutting_down",
                 "The service is shutting down; the request did not finish in time.");
        a.retry_after_s = RETRY_AFTER_DRAIN_S;
        log_warn("router: %u requests did not finish within the grace time", r->n_flights);
        flights_fail_all(r, &a);
    }
    if (r->n_flights || (now_ms < r->drain_until_ms && http_server_n_unsent(r->http)))
        return;
    void (*done)(void *ctx) = r->drained;
    r->drained = NULL;
    done(r->drained_ctx);
}

static void on_tick(void *ctx, uint64_t now_ms)
{
    struct router *r = ctx;
    flights_on_tick(r, now_ms);
    check_drained(r, now_ms);
}

static void or_default(uint32_t *v, uint32_t otherwise)
{
    if (!*v)
        *v = otherwise;
}

static void router_free(struct router *r)
{
    table_destroy(r->table);
    attempts_destroy(r->attempts);
    model_set_unref(r->models);
    free(r);
}

int router_create(struct router **out, uv_loop_t *loop, const struct router_config *c,
                  const struct router_link *link, struct err *e)
{
    if (!c->key || !c->key[0])
        return err_set(e, ERR_CONFIG, "the router needs an API key");
    struct router *r = calloc(1, sizeof *r);
    if (!r)
        return err_set(e, ERR_NOMEM, "out of memory for the router");
    r->loop = loop;
    r->config = *c;
    r->config.key = r->config.listen = NULL; /* not kept */
    r->link = *link;
    r->service.state = SERVICE_STARTING;
    sha256_of(c->key, strlen(c->key), r->key_hash);
    random_bytes(&r->random, sizeof r->random);
    or_default(&r->config.max_body_bytes, DEFAULT_BODY_BYTES);
    or_default(&r->config.max_connections, DEFAULT_CONNECTIONS);
    if (!r->config.max_bodies_bytes)
        r->config.max_bodies_bytes = DEFAULT_BODIES_BYTES;
    if (r->config.max_bodies_bytes < r->config.max_body_bytes)
        r->config.max_bodies_bytes = r->config.max_body_bytes;
    or_default(&r->config.header_timeout_ms, DEFAULT_HEADER_MS);
    or_default(&r->config.idle_timeout_ms, DEFAULT_IDLE_MS);
    or_default(&r->config.request_timeout_ms, DEFAULT_REQUEST_MS);
    or_default(&r->config.suspect_ms, DEFAULT_SUSPECT_MS);
    struct http_config hc = {
        .listen = c->listen ? c->listen : "0.0.0.0",
        .port = c->port,
        .max_body_bytes = r->config.max_body_bytes,
        .max_bodies_bytes = r->config.max_bodies_bytes,
        .max_connections = r->config.max_connections,
        .header_timeout_ms = r->config.header_timeout_ms,
        .idle_timeout_ms = r->config.idle_timeout_ms,
        .body_timeout_ms = r->config.request_timeout_ms,
    };
    struct http_handler hh = {
        .ctx = r,
        .on_head = routes_on_head,
        .on_request = routes_on_request,
        .on_gone = on_gone,
        .put_error = routes_put_error,
        .on_tick = on_tick,
    };
    /* One request of a connection at a time has attempts, most of them one; more wait. */
    int rc = table_create(&r->table, router_random(r), r->config.suspect_ms, e);
    if (!rc)
        rc = attempts_create(&r->attempts, r->config.max_connections + MORE_ATTEMPTS, e);
    if (!rc && !(r->models = model_set_create()))
        rc = err_set(e, ERR_NOMEM, "out of memory for the router");
    if (!rc)
        rc = http_server_create(&r->http, loop, &hc, &hh, e);
    if (rc) {
        router_free(r);
        return rc;
    }
    *out = r;
    return 0;
}

uint16_t router_port(const struct router *r)
{
    return http_server_port(r->http);
}

bool router_serve_unled(struct router *r, struct msg_service *out)
{
    struct msg_service s = r->service;
    s.n_ready = table_n_live(r->table, UINT32_MAX, clock_now_us());
    if (!s.n_min || s.n_ready < s.n_min)
        return false;
    s.state = SERVICE_DEGRADED;
    snprintf(s.progress, sizeof s.progress, "%u of %u replicas answer; there is no scheduler",
             s.n_ready, s.n_wanted);
    router_on_service(r, &s);
    *out = s;
    return true;
}

bool router_has_served(const struct router *r)
{
    return r->reached;
}

uint32_t router_n_running(const struct router *r)
{
    return r->n_flights;
}

void router_drain(struct router *r, uint32_t grace_ms, void (*done)(void *ctx), void *ctx)
{
    log_info("router: draining running=%u grace_ms=%u", r->n_flights, grace_ms);
    r->draining = true;
    r->drained = done;
    r->drained_ctx = ctx;
    r->drain_until_ms = uv_now(r->loop) + grace_ms;
    http_server_drain(r->http);
}

void router_check_closed(struct router *r)
{
    if (!r->http_closed || r->n_jobs)
        return;
    void (*closed)(void *ctx) = r->closed;
    void *ctx = r->closed_ctx;
    router_free(r);
    if (closed)
        closed(ctx);
}

static void on_http_closed(void *ctx)
{
    struct router *r = ctx;
    r->http_closed = true;
    router_check_closed(r);
}

void router_close(struct router *r, void (*done)(void *ctx), void *ctx)
{
    r->closing = r->draining = true;
    r->drained = NULL;
    r->closed = done;
    r->closed_ctx = ctx;
    http_server_close(r->http, on_http_closed, r);
}
