/* coll.h - collectives between the shards of one replica: what tensor and pipeline parallel graphs need.
 *
 * Implementations: coll_shm (threads or processes of one node over shared memory), coll_relay (several nodes, bytes through the
 * workers), later coll_nccl. Buffers are addresses of the back end's memory; calls are made in the same order by all ranks.
 *
 * A replica of tp_size * pp_size shards has one group of all (rank = pp_rank * tp_size + tp_rank) for its pipeline and its steps, and, where tp_size is
 * more than 1, one group for each stage's shards, in which a shard's rank is its tp_rank.
 *
 * Every call has the group's deadline: when a member is gone or does not come in time it returns ERR_PEER or ERR_TIMEOUT naming the rank, never
 * hangs, and the group is broken from then on (every later call fails at once). Sums are made in the order of ranks for every element, so all
 * ranks get the same bits, whatever the timing.
 */
#ifndef EXA_ENGINE_COLL_H
#define EXA_ENGINE_COLL_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct coll;
struct coll_ops {
    const char *kind; /* "shm", "relay" */
    int (*all_reduce)(struct coll *c, float *x, size_t n,
                      struct err *e); /* x = sum over ranks, in place */
    /* out: [size][n], rank r's part at r */
    int (*all_gather)(struct coll *c, float *out, const float *in, size_t n, struct err *e);
    int (*broadcast)(struct coll *c, void *p, size_t n_bytes, uint32_t root, struct err *e);
    int (*send)(struct coll *c, const void *p, size_t n_bytes, uint32_t to,
                struct err *e); /* pipelines */
    int (*recv)(struct coll *c, void *p, size_t n_bytes, uint32_t from, struct err *e);
    void (*abort)(struct coll *c); /* from any thread: every rank's pending and later calls fail */
    void (*destroy)(struct coll *c);
};
struct coll { /* first member of every kind's own struct */
    const struct coll_ops *ops;
    uint32_t rank, size;
};

/* The least of every rank's number, on all of them. */
int coll_least(struct coll *c, uint32_t mine, uint32_t *least, struct err *e);

#endif
