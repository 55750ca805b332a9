/* router.h - the HTTP front of one lane: OpenAI API in, token ids out to a replica, step frames in, SSE out.
 *
 * One loop thread owns a router; it never blocks and knows neither MPI nor UCX nor files. What carries submissions to workers is handed in as
 * `struct router_link` (ranks/ ties it to the message plane; tests tie it to an engine in the same process).
 * Templates and tokenizing of prompts over 16 KiB run on libuv's thread pool.
 */
#ifndef EXA_ROUTER_ROUTER_H
#define EXA_ROUTER_ROUTER_H

#include "base/err.h"
#include "wire/msg.h"

#include <uv.h>

struct router;

struct router_config {
    const char *listen; /* "0.0.0.0" */
    uint16_t port;      /* 0: any free one */
    const char *key;    /* API key; required on /v1/... */
    uint32_t member;    /* this router's member id and incarnation: names its attempts */
    uint64_t incarnation;
    uint32_t max_body_bytes, max_connections;
    uint64_t max_bodies_bytes; /* of all requests that are under way */
    uint32_t header_timeout_ms, idle_timeout_ms, request_timeout_ms;
    uint32_t suspect_ms; /* a worker silent for so long gets no new requests */
};

struct router_link {
    void *ctx;
    /* body: msg_submit bytes / msg_cancel bytes. ERR_PEER, ERR_LIMIT: this worker cannot take it. */
    int (*submit)(void *ctx, uint32_t worker, const void *body, size_t n, struct err *e);
    int (*cancel)(void *ctx, uint32_t worker, const void *body, size_t n, struct err *e);
};

int router_create(struct router **out, uv_loop_t *loop, const struct router_config *c,
                  const struct router_link *link, struct err *e);
uint16_t router_port(const struct router *r); /* really bound */
/* Feed: what arrives from the plane. Bad bytes are dropped, counted and logged; they never hurt a client. */
void router_on_model(struct router *r,
                     const struct msg_model *m); /* tokenizer and template by digest */
void router_on_service(struct router *r,
                       const struct msg_service *s); /* READY, DEGRADED, progress */
void router_on_heartbeat(struct router *r, const struct msg_heartbeat *h, bool full,
                         uint64_t now_us);
void router_on_steps(struct router *r, uint32_t worker, const void *body, size_t n);
void router_on_worker_host(struct router *r, uint32_t worker, const char *host, const char *rack);
void router_on_worker_lost(struct router *r, uint32_t worker,
                           const char *why); /* its requests end with a typed error */
void router_on_scheduler(struct router *r,
                         bool present); /* false: serving goes on, /health says "no scheduler" */
/* No new requests (503 with Retry-After); running ones go on. done is called when none is left or at the deadline (then the rest end with a
 * typed error). */
void router_drain(struct router *r, uint32_t grace_ms, void (*done)(void *ctx), void *ctx);
/* No scheduler will say it any more: with n_min replicas in reach the service is DEGRADED, as *out says. false: with fewer it is what it
 * was. */
bool router_serve_unled(struct router *r, struct msg_service *out);
bool router_has_served(const struct router *r); /* the service was READY or DEGRADED once */
uint32_t router_n_running(const struct router *r);
/* Close listener and connections; frees when every handle is closed, then calls done. */
void router_close(struct router *r, void (*done)(void *ctx), void *ctx);

#endif
