/* comms.h - the groups of a round (racks, and their leaders), and the communicators that the
 * world's full round has for them.
 *
 * A communicator can only be made by a call that blocks, and a death in that call would hang the
 * others for ever. So communicators are made once, before the detach, when a death ends the step
 * anyway; a round of other members works without any (leg.h).
 */
#ifndef EXA_MPI_COMMS_H
#define EXA_MPI_COMMS_H

#include "mpi/bcast.h"
#include "mpi/world_priv.h"

/* Who sends to whom at one level: the leaders among themselves, or a rack. */
struct group {
    uint32_t n, self; /* members; my place among them, UINT32_MAX when I am none */
    uint32_t *ranks;  /* owned [n] world ranks */
    MPI_Comm comm;    /* rank in it = place; NULL: relay */
    int tag;          /* of relayed segments */
    int end_tag;      /* of the end's tokens */
};
struct groups {
    uint32_t n_racks, rack; /* racks are numbered by first appearance; mine */
    bool collective;        /* this round uses the world's communicators */
    bool leader;            /* I lead my rack: its lowest rank */
    struct group leaders;   /* place = number of the rack */
    struct group mine;      /* my rack; place 0 is its leader */
};

struct round_comms {
    uint32_t n_members;
    struct bcast_member *members; /* owned copy */
    MPI_Comm leaders, mine;       /* NULL where there is nobody else */
};

/* Meet all other members, and fill g. ERR_PEER names who did not come; ERR_PROTO: this is no
 * round. */
int groups_meet(struct groups *g, struct world *w, const struct bcast_round *r,
                const _Atomic uint32_t *stop, struct err *e);
void groups_fini(struct groups *g);
/* After a stuck collective: never used again and never freed, MPI may still work in them. */
void comms_abandon(struct world *w);

#endif
