/* flight.h - one completion request from its body to its last byte.
 *
 * Life: PREPARING (body → ids, maybe on the thread pool) → WAITING (for a replica) → RUNNING (an
 * attempt is out) → gone. A refused attempt goes back to WAITING. The loop thread owns flights; a
 * flight whose client left while it is PREPARING stays until its job ends.
 */
#ifndef EXA_ROUTER_FLIGHT_H
#define EXA_ROUTER_FLIGHT_H

#include "router/answer.h"
#include "router/api_response.h"
#include "router/prep.h"
#include "router/state.h"

enum flight_state { FLIGHT_PREPARING, FLIGHT_WAITING, FLIGHT_RUNNING };

struct flight {
    struct router *router;
    struct flight *prev, *next;
    struct flight *wait_prev, *wait_next;
    struct flight *next_dirty;
    struct http_conn *conn; /* NULL: the client left */
    uv_work_t work;
    enum flight_state state;
    bool is_dirty, stream_begun, ending, has_failed;
    struct prep prep;
    struct model *model;
    struct answer answer;
    bool has_answer;
    struct reply reply;
    char request_id[ROUTER_REQUEST_ID_BYTES];
    uint64_t seed;
    uint64_t deadline_ms, wait_until_ms;
    /* the current attempt */
    uint32_t slot, generation;
    struct table_pick pick;
    uint32_t committed;
    struct api_error error;
};

/* Take over c's request; body is taken from it. */
void flight_start(struct router *r, struct http_conn *c, const struct http_head *h,
                  enum api_kind kind);
/* Its client left: cancel. */
void flight_abandon(struct flight *f);
/* Give the waiting ones to replicas, oldest first. */
void flights_dispatch(struct router *r);
/* Step entries of the worker's frames. */
void flights_on_steps(struct router *r, uint32_t worker, const void *body, size_t n);
/* Everything that ran there ends with a typed error. worker, or one replica's old life. */
void flights_on_worker_lost(struct router *r, uint32_t worker, const char *why);
void flights_on_replica_lost(struct router *r, const struct table_lost *l);
void flights_on_tick(struct router *r, uint64_t now_ms);
/* End all with this error. */
void flights_fail_all(struct router *r, const struct api_error *a);

#endif
