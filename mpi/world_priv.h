/* world_priv.h - what the files of this room share: the world's inside, and waiting with a
 * deadline. */
#ifndef EXA_MPI_WORLD_PRIV_H
#define EXA_MPI_WORLD_PRIV_H

#include "mpi/world.h"

#include <mpi.h>
#include <stdbool.h>

struct round_comms; /* mpi/comms.h */
struct quarantine;  /* mpi/quarantine.h */

struct world {
    uint32_t rank, size;
    bool warm, detached;
    struct round_comms
        *comms; /* owned; those of the full round, or NULL: never made, or abandoned */
    struct quarantine *quarantine; /* owned; buffers that MPI may still write, or NULL */
    world_stuck_fn *stuck;         /* or NULL */
    void *stuck_arg;
};

/* MPI_COMM_WORLD tags, all under 2^23 (pml ucx). A round's tags follow from its number, so a
 * late message of an earlier round never matches a receive of this one. */
enum {
    TAG_WARM_UP = 11,
    TAG_PREPARE_RACK = 12,
    TAG_PREPARE_LEADERS = 13,
    TAG_ROUND = 1024,
    TAGS_PER_ROUND = 4,
    TAG_ROUNDS = 65536,
    TAG_RELAY = 1 << 21,
    RELAY_TAGS = 64, /* a round's: half for each level, and far more than segments under way */
    RELAY_ROUNDS = 65536,
};
_Static_assert(TAG_ROUND + TAGS_PER_ROUND * TAG_ROUNDS < TAG_RELAY, "tags overlap");
_Static_assert(TAG_RELAY + RELAY_ROUNDS * RELAY_TAGS < 1 << 23, "tags are too large");

/* Between two polls: first yield, then sleep longer and longer up to max_us. */
struct backoff {
    uint32_t n;
    uint32_t max_us;
};
void backoff_pause(struct backoff *b);
static inline void backoff_reset(struct backoff *b)
{
    b->n = 0;
}

/* ERR_PEER with MPI's own text for rc. */
int mpi_err(struct err *e, int rc, const char *what);

#endif
