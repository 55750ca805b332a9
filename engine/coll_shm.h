/* coll_shm.h - collectives of processes (or threads) of one node over one shared memory segment.
 *
 * The segment is made once a gang by the parent of all (coll_shm_create gives a sealed memfd), passed on as a descriptor, and
 * mapped by each shard. It holds room for every group that the shards of one replica use (coll.h). A process that has gone mad can
 * spoil sums, but not more: sizes and counters are checked, waits have deadlines.
 *
 * Data moves in pieces through two areas a rank, used in turn: a rank writes piece k only after all have arrived at piece k - 1, thus have
 * read piece k - 2 out of the same area. So one meeting a piece is enough. Meetings spin a little, then sleep on a futex.
 */
#ifndef EXA_ENGINE_COLL_SHM_H
#define EXA_ENGINE_COLL_SHM_H

#include "engine/coll.h"

enum { COLL_MAX_SHARDS = 16 };

/* A segment for tp * pp shards; the caller owns *fd. Pages cost nothing until they are used. ERR_CONFIG: more than COLL_MAX_SHARDS. */
int coll_shm_segment(int *fd, uint32_t tp, uint32_t pp, struct err *e);

/* The groups of one shard, mapped from fd (which stays the caller's). *all: rank = shard of tp * pp; *tp_group: its stage's, NULL if tp is 1.
 * Destroy both. ERR_PROTO: no segment of that shape. */
int coll_shm_attach(struct coll **all, struct coll **tp_group, int fd, uint32_t tp, uint32_t pp,
                    uint32_t shard, uint64_t deadline_us, struct err *e);

#endif
