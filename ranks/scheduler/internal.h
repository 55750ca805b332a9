/* internal.h - the scheduler's own structs, shared by scheduler.c (events), deploy.c (what members are told of the
 * deployment) and service.c (what the service's state is). */
#ifndef EXA_RANKS_SCHEDULER_INTERNAL_H
#define EXA_RANKS_SCHEDULER_INTERNAL_H

#include "model/index.h"
#include "ranks/scheduler/placement.h"
#include "ranks/scheduler/scheduler.h"
#include "ranks/scheduler/weights.h"

struct sched_node { /* a worker */
    uint32_t member;
    uint64_t incarnation;
    uint32_t rack;
    char host[MSG_HOST_BYTES];
    bool live, unlinked;        /* unlinked: the link to it was lost and has not come back */
    uint64_t heard_us, gone_us; /* gone_us: since when it is not live */
    bool weights;               /* holds the image */
    char why[MSG_TEXT_BYTES];   /* what keeps it from serving; "" */
};

struct sched_replica {
    uint32_t node; /* of shard 0, index into nodes */
    uint64_t epoch;
    uint8_t state; /* enum replica_state; 0: not heard of */
    char *trouble; /* owned: why it does not serve, as its worker said last; NULL: nothing */
};

struct sched {
    struct sched_wish wish;
    struct sched_actions actions;
    struct sched_node *nodes; /* owned, ascending members */
    uint32_t n_nodes, nodes_cap;
    uint32_t *routers; /* owned member ids */
    uint32_t n_routers, routers_cap;
    uint32_t n_routers_wanted; /* registered at the start */
    uint64_t routers_gone_us;  /* no router at all, but workers, since */
    uint64_t useless_us;       /* no worker at all, or no router, since */
    bool begun, packed, placed;
    uint64_t begun_us, ticked_us;
    /* the pack */
    struct model_index index;
    uint8_t *index_bytes, *meta_bytes, *offsets; /* owned */
    size_t index_n, meta_n;
    uint32_t n_offsets;
    char model_name[MSG_MODEL_NAME_BYTES];
    struct weights weights;
    /* the deployment */
    struct sched_replica *replicas; /* owned */
    uint32_t *shard_nodes;          /* owned [n_replicas * n_shards]: index into nodes */
    uint32_t n_shards;
    uint32_t n_replicas, n_min;
    /* the service */
    uint8_t state; /* enum service_state */
    bool reached;  /* READY or DEGRADED was reached once */
    char failed[MSG_TEXT_BYTES];
    struct msg_service told; /* last published */
};

/* A body that several messages share is put once: metadata of MiB goes to thousands of members. */
size_t sched_body(struct sched *s, const struct buf *body);
void sched_send_body(struct sched *s, uint32_t member, uint16_t type, size_t at, size_t n);
void sched_send(struct sched *s, uint32_t member, uint16_t type, const struct buf *body);
void sched_act(struct sched *s, enum sched_action_kind kind);
struct sched_node *sched_find_node(struct sched *s, uint32_t member);
void sched_tell_model(struct sched *s); /* all routers and workers */
/* Tell a node (index into nodes) which replicas it runs. */
void sched_assign_node(struct sched *s, uint32_t node);
void sched_tell_model_to(struct sched *s, uint32_t member);
/* Do what weights_next asks for, until it waits. */
void sched_run_weights(struct sched *s, uint64_t now_us);
/* Recompute the state; publish and tell the routers when it changed. */
void sched_judge(struct sched *s, uint64_t now_us);
void sched_tell_service(struct sched *s, uint32_t router);
void sched_fail(struct sched *s, const char *why);

#endif
