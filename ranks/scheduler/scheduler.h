/* scheduler.h - the scheduler: from registered workers and a pack to a READY service. Pure: events and a clock in, actions out.
 *
 * It knows no socket, no thread, no file and no wall clock; the same code will run in the simulator. The caller carries out
 * the actions in order and clears the list.
 */
#ifndef EXA_RANKS_SCHEDULER_SCHEDULER_H
#define EXA_RANKS_SCHEDULER_SCHEDULER_H

#include "base/buf.h"
#include "base/err.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    SCHED_MAX_REPLICAS = 65536,
    SCHED_MAX_ON_NODE = 64,
    PLANE_BODY_SMALL = 64 << 10, /* cap of the bodies of control messages made here */
};

struct sched_wish {         /* one deployment; strings are borrowed and outlive the scheduler */
    const char *model_name; /* NULL: the pack's own */
    const char *pack_path;
    const char *engine;
    uint32_t replicas;     /* 0: one on every worker */
    uint32_t min_replicas; /* 0: all but 5 % */
    uint32_t n_ctx, n_slots, n_threads;
    char settings[MSG_SETTINGS_BYTES]; /* engine/settings.h */
    uint32_t tp, pp;                   /* shards that share each layer, stages; 0: 1 */
    uint32_t shards_per_node;          /* of one replica, at most; 0: all */
    uint64_t start_deadline_us;        /* after sched_begin */
    uint64_t suspect_us;               /* a worker silent for so long is suspect */
    uint64_t job_end_wall_s;           /* told to routers; 0: unknown */
};

enum sched_action_kind {
    SCHED_SEND,    /* send (type, body) to a member */
    SCHED_PUBLISH, /* the service's state or progress changed: sched_service() */
    SCHED_FAIL,    /* the service cannot be: end it; sched_service() says why */
};
struct sched_action {
    enum sched_action_kind kind;
    uint32_t member;
    uint16_t type;
    size_t at, n; /* body inside actions.bodies */
};
struct sched_actions {
    struct sched_action *list; /* owned */
    uint32_t n, cap;
    struct buf bodies;
};

struct sched;
int sched_create(struct sched **out, const struct sched_wish *wish, struct err *e);
void sched_destroy(struct sched *s);
struct sched_actions *sched_actions(struct sched *s);
void sched_actions_clear(struct sched_actions *a);

/* --- events ---------------------------------------------------------------------------------------------- */
void sched_register(struct sched *s, const struct msg_register *m, uint32_t rack, uint64_t now_us);
void sched_begin(struct sched *s, uint64_t now_us); /* every rank is registered, the world is up */
/* The pack was opened: bytes as of index_encode and meta_encode; offsets [n_tensors] u64 little-endian. */
void sched_pack(struct sched *s, const void *index, size_t index_bytes, const void *meta,
                size_t meta_bytes, const void *offsets, uint32_t n_tensors, uint64_t now_us);
void sched_pack_failed(struct sched *s, const struct err *why, uint64_t now_us);
void sched_have(struct sched *s, const struct msg_have *h, uint64_t now_us);
void sched_heartbeat(struct sched *s, const struct msg_heartbeat *h, bool full, uint64_t now_us);
/* Its worker says why a replica does not serve. */
void sched_trouble(struct sched *s, uint32_t member, uint32_t replica, const char *text,
                   uint64_t now_us);
void sched_lost(struct sched *s, uint32_t member, uint64_t now_us);
/* A lost member is linked again, the same process: it is told what it may have missed. */
void sched_router_returned(struct sched *s, uint32_t member, uint64_t now_us);
void sched_returned(struct sched *s, uint32_t member, uint64_t incarnation, uint64_t now_us);
void sched_tick(struct sched *s, uint64_t now_us);
void sched_drain(struct sched *s, uint64_t now_us);

/* --- state ----------------------------------------------------------------------------------------------- */
/* The service as routers and endpoint.json see it. */
void sched_service(const struct sched *s, struct msg_service *out);
const char *sched_model_name(const struct sched *s); /* "" until the pack is open */

#endif
