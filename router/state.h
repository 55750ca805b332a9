/* state.h - what the parts of a router share. Inside of router/ only. */
#ifndef EXA_ROUTER_STATE_H
#define EXA_ROUTER_STATE_H

#include "router/api_error.h"
#include "router/attempts.h"
#include "router/http_conn.h"
#include "router/models.h"
#include "router/router.h"
#include "router/table.h"

struct flight;
struct choice;

enum {
    ROUTER_MAX_WAITING = 1024, /* that many wait for a free replica: no new requests */
    ROUTER_REQUEST_ID_BYTES = HTTP_MAX_REQUEST_ID_BYTES + 1,
};

struct router_counters {
    uint64_t n_requests, n_finished, n_failed, n_canceled; /* completions */
    uint64_t n_resubmitted;
    uint64_t n_frames_bad;      /* bytes that are no step frames */
    uint64_t n_entries_stale;   /* of an attempt, epoch or replica that is not the current one */
    uint64_t n_entries_dropped; /* right attempt, wrong position */
};

struct router {
    uv_loop_t *loop;
    struct router_config config; /* strings below */
    uint8_t key_hash
        [SHA256_BYTES]; /* keys are compared by hash: in constant time, whatever their length */
    struct router_link link;
    struct http_server *http;
    struct table *table;
    struct attempts *attempts;
    struct model_set *models;
    uint32_t n_building;                   /* models on their way through the thread pool */
    struct flight *flights;                /* all */
    struct choice *waiting, *waiting_last; /* those without a replica: by priority, oldest first */
    struct flight *dirty;                  /* have output from the current frame */
    uint32_t n_flights, n_waiting, n_jobs;
    struct msg_service service;
    bool reached; /* READY or DEGRADED was seen once */
    bool scheduler, draining, closing;
    uint64_t random;
    uint64_t drain_until_ms;
    void (*drained)(void *ctx);
    void *drained_ctx;
    void (*closed)(void *ctx);
    void *closed_ctx;
    bool http_closed;
    struct router_counters counters;
};

uint64_t router_random(struct router *r);
/* After a pool job ended: closing may be complete. May free r. */
void router_check_closed(struct router *r);
/* The service takes no new work now: fill a (503) and return true. */
bool router_refuses(struct router *r, struct api_error *a);

/* routes.c: keys, paths, health, models; hands completions to flight.c. */
void routes_on_head(void *ctx, struct http_conn *c, const struct http_head *h);
void routes_on_request(void *ctx, struct http_conn *c, const struct http_head *h);
void routes_put_error(void *ctx, struct buf *b, int status, const char *reason);
/* The id that goes back: the client's own when it is sane, else a new one. */
void routes_request_id(struct router *r, const struct http_head *h,
                       char out[ROUTER_REQUEST_ID_BYTES]);
void routes_respond_error(struct http_conn *c, const struct api_error *a, const char *request_id);

#endif
