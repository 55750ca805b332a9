/* flight.h - one request from its body to its last byte.
 *
 * A flight has one choice or several (n, best_of, several prompts or inputs); each is an attempt of its
 * own at a replica, with its own slot, generation and seed. Life of a choice: IDLE → WAITING (for a
 * replica) → RUNNING (an attempt is out) → DONE. A refused attempt goes back to WAITING and begins
 * again behind what it has of its answer. At most FLIGHT_WINDOW choices of a flight wait or run at
 * once. The first choice that fails fails the flight.
 *
 * The loop thread owns flights; a flight whose client left while its body is prepared stays until
 * its job ends.
 */
#ifndef EXA_ROUTER_FLIGHT_H
#define EXA_ROUTER_FLIGHT_H

#include "router/answer.h"
#include "router/api_response.h"
#include "router/prep.h"
#include "router/state.h"

enum { FLIGHT_WINDOW = 256 };
enum choice_state { CHOICE_IDLE, CHOICE_WAITING, CHOICE_RUNNING, CHOICE_DONE };

struct choice {
    struct flight *flight;
    struct choice *wait_prev, *wait_next;
    struct choice *run_prev, *run_next; /* of those that run */
    enum choice_state state;
    uint32_t index;             /* in the flight: prompt * best_of + number */
    uint32_t number;            /* among those of its prompt */
    struct prep_prompt *prompt; /* the flight's */
    struct answer answer;
    uint64_t seed;
    uint64_t wait_until_ms;
    bool is_new;      /* has what the client has not seen */
    bool role_sent;   /* its stream has begun */
    bool is_told_end; /* its finish_reason was sent */
    size_t n_scores_sent;
    uint32_t n_prompt_chars; /* of an echo */
    /* the current attempt */
    uint32_t slot, generation;
    struct table_pick pick;
    uint32_t committed;
};

struct flight {
    struct router *router;
    struct flight *prev, *next;
    struct flight *next_dirty;
    struct http_conn *conn; /* NULL: the client left */
    uv_work_t work;
    bool is_dirty, stream_begun, has_failed;
    struct prep prep;
    struct model *model;
    struct choice *choices; /* [n_choices] once prepared */
    uint32_t n_choices, n_begun, n_done;
    struct reply reply;
    char request_id[ROUTER_REQUEST_ID_BYTES];
    uint64_t deadline_ms;
    struct api_error error;
};

/* Take over c's request; body is taken from it. */
void flight_start(struct router *r, struct http_conn *c, const struct http_head *h,
                  enum api_kind kind);
/* Its client left: cancel. */
void flight_abandon(struct flight *f);
/* Give the waiting ones to replicas, oldest of the highest priority first. */
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
