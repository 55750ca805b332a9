/* replica.h - one replica shard on a worker: its engine process, its channel, its restarts, the attempts it runs.
 *
 * Life: LOADING (process started) → READY (a real completion came out) → FAILED (process gone; restarted after back-off) …
 *       → BROKEN (REPLICA_MAX_DEATHS deaths within REPLICA_DEATHS_US: given up) ; killed at the end. Held ones stay FAILED.
 * Loop thread only.
 */
#ifndef EXA_RANKS_REPLICA_H
#define EXA_RANKS_REPLICA_H

#include "base/buf.h"
#include "engine/ring.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <uv.h>

enum {
    REPLICA_MAX_DEATHS = 5,
    REPLICA_DEATHS_US = 120 * 1000000,
    REPLICA_BACKOFF_MS = 200, /* doubled at each death, up to REPLICA_BACKOFF_MAX_MS */
    REPLICA_BACKOFF_MAX_MS = 10000,
    REPLICA_MAX_ATTEMPTS = 1024, /* of its engine: in slots and waiting */
};

struct replica;

struct replica_host { /* what a replica needs of its worker */
    void *ctx;
    uv_loop_t *loop;
    const char *engine_path; /* exaserve-engine */
    /* This one's number among the engines of the node, which share its memory and cores; 0 of 0: unknown. */
    uint32_t node_index, node_count;
    /* An engine is killed when it takes longer: from its start to READY; one step, or the way to the next. */
    uint64_t load_timeout_us, step_timeout_us;
    /* Step entries, one section, to split by router; in the buffer of the channel, valid during the call. */
    void (*steps)(void *ctx, struct replica *r, const uint8_t *body, size_t n);
    void (*changed)(void *ctx, struct replica *r); /* state changed: tell the world at once */
    /* To the worker of another shard of the gang (our own, too): MSG_GANG, MSG_SHARD. */
    void (*tell)(void *ctx, struct replica *r, uint32_t member, uint16_t type, const struct buf *b);
    /* The descriptor of the gang's shared memory, which the leader on this node holds; -1: none (yet). */
    int (*segment)(void *ctx, const struct replica *r);
    /* An attempt ends here without the engine's word. code, text: for a typed error. */
    void (*refuse)(void *ctx, struct replica *r, const struct attempt *a, uint32_t position,
                   uint8_t finish, int code, const char *text);
};

int replica_create(struct replica **out, const struct replica_host *host,
                   const struct msg_assign *a, const char *image_path, uint32_t n_threads,
                   struct err *e);
/* Kill the process; free when it is reaped. The pointer is invalid afterwards. */
void replica_destroy(struct replica *r);
void replica_tick(struct replica *r, uint64_t now_us);
void replica_submit(struct replica *r, const struct msg_submit *m, const uint8_t *body, size_t n);
void replica_cancel(struct replica *r, const struct msg_cancel *m, const uint8_t *body, size_t n);
void replica_router_lost(struct replica *r, uint32_t router);
void replica_load(const struct replica *r, struct replica_load *out);
void replica_kill(struct replica *r); /* the end: no restart */
/* A dead engine, a BROKEN one too, is not restarted until released: what it needs is being mended. why: for those who ask. */
void replica_hold(struct replica *r, const char *why);
void replica_release(struct replica *r); /* start afresh: the deaths before do not count */
/* What the dead engine said, or what was said of it; "" while nothing is wrong. */
const char *replica_trouble(const struct replica *r);
bool replica_is_gone(const struct replica *r);
uint32_t replica_deployment(const struct replica *r);
uint32_t replica_number(const struct replica *r);
uint32_t replica_node_index(const struct replica *r); /* as in replica_host */
uint64_t replica_epoch(const struct replica *r);
uint32_t replica_shard(const struct replica *r);

/* --- gangs (ranks/shard.h): replicas of several shards ------------------------------------------------------ */
void replica_gang_word(struct replica *r, uint32_t from_member, const struct msg_gang *m);
/* Bytes for this shard's engine, whole as they came. */
void replica_shard_bytes(struct replica *r, uint32_t from_member, const struct msg_shard *m,
                         const uint8_t *body, size_t n);
void replica_member_lost(struct replica *r, uint32_t member);
int replica_segment(const struct replica *r); /* of a leader: the descriptor, -1: none */

#endif
