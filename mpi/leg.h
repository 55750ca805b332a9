/* leg.h - one segment's way through one group: by MPI_Ibcast where the group has a communicator,
 * else relayed.
 *
 * The relay is a chain that begins at the root and goes round the group's places: each member
 * receives the whole segment from the one before and sends it to the one after. Several segments
 * in flight make it as fast as its slowest link, and nothing in it blocks: members need no
 * agreement but the round's meeting. Leaving it at a deadline leaves at most one open request
 * for each segment.
 */
#ifndef EXA_MPI_LEG_H
#define EXA_MPI_LEG_H

#include "mpi/comms.h"

#include <stddef.h>

struct leg {
    MPI_Request request;
    bool posted;
    bool here;   /* the bytes have arrived (or were here at the start) */
    bool done;   /* and need not stay any longer */
    bool broken; /* MPI reported an error: nobody knows what of it is still under way */
};

void leg_init(struct leg *l);
/* Begin: place number k, root's place in the group. Returns 0 or an error of MPI. */
int leg_post(struct leg *l, const struct group *g, uint32_t root, uint32_t k, void *data, size_t n,
             struct err *e);
/* Move on. Give the same group, root, k, data and n. */
int leg_step(struct leg *l, const struct group *g, uint32_t root, uint32_t k, void *data, size_t n,
             bool *moved, struct err *e);

/* The end of a group's part in a round: done when all have come to it. */
struct leg_end {
    MPI_Request request;
    uint32_t phase;
};
void leg_end_init(struct leg_end *l);
int leg_end_step(struct leg_end *l, const struct group *g, bool *moved, bool *done, struct err *e);

#endif
