/* bcast.h - weights from the pack to every node: one round of reading, pipelined MPI_Ibcast,
 * hashing and writing.
 *
 * A round is agreed beforehand through the message plane (MSG_ROUND): who takes part, which
 * segments are missing. Rack leaders `pread` disjoint shares of the missing segments from the
 * pack (each byte leaves the shared file system once), exchange them among leaders by
 * MPI_Ibcast, then each broadcasts inside its rack; read, send, receive, hash and write overlap
 * in BCAST_BUFFERS buffers of SEGMENT_BYTES. No MPI wait is without a deadline: a stuck
 * collective is given up, its buffers are quarantined (MPI may still write there), the round
 * ends with ERR_PEER and what was received is kept; the scheduler then agrees on a new round
 * among the survivors, who relay. Mover thread only. Every participant calls bcast_round_run with
 * the same round.
 */
#ifndef EXA_MPI_BCAST_H
#define EXA_MPI_BCAST_H

#include "base/err.h"
#include "model/image.h"
#include "model/index.h"
#include "mpi/world.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { BCAST_BUFFERS = 4 };

struct bcast_member {
    uint32_t rank;
    uint32_t rack;
};
struct bcast_round {
    uint32_t round; /* 1, 2, …: not used twice in a world */
    const struct model_index *index;
    const char *pack_path;
    const uint64_t *file_offset;        /* [n_tensors] */
    const struct bcast_member *members; /* ascending ranks */
    uint32_t n_members;
    const uint8_t *missing; /* bits of segments to send */
    uint64_t stall_us;      /* no progress for so long: give up (default 20 s) */
};
/* stop (NULL: never) is the last round that another thread has given up. The word may come when that round is over: later ones are not
 * touched by it. */
static inline bool round_is_stopped(const struct bcast_round *r, const _Atomic uint32_t *stop)
{
    return stop && *stop >= r->round;
}

struct bcast_stats {
    uint64_t bytes_read, bytes_received, us_total, us_read, us_wait, us_hash_write;
    bool mine; /* what went wrong is this rank's own: its image, or what it should have read */
};
/* Boot, after world_warm_up and before world_detach, called by all of the members and nobody
 * else: make the communicators for rounds of just these members. Rounds of other members (after
 * a death), and all rounds without this call, relay segments from rank to rank instead. */
int bcast_prepare(struct world *w, const struct bcast_member *members, uint32_t n_members,
                  uint64_t timeout_us, struct err *e);
/* writer (NULL: forward only): where this node keeps the image (segments it holds already are
 * not written again). stop: see round_is_stopped. */
int bcast_round_run(struct world *w, const struct bcast_round *r, struct image_writer *writer,
                    const _Atomic uint32_t *stop, struct bcast_stats *stats, struct err *e);

#endif
