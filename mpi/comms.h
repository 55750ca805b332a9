/* comms.h - the communicators of a round: one for each rack, one for the rack leaders.
 *
 * They are kept while the participants stay the same and every round ended well. Making a communicator blocks in MPI, so it starts
 * only after a meeting of all participants that has a deadline; the first participant collects a hello from each and tells all what it
 * found. A death in the milliseconds between that and the new communicator is caught by a watchdog (world_on_stuck).
 */
#ifndef EXA_MPI_COMMS_H
#define EXA_MPI_COMMS_H

#include "mpi/bcast.h"
#include "mpi/world_priv.h"

struct round_comms {
    uint64_t id; /* fingerprint of the round that made them */
    uint32_t n_members;
    struct bcast_member *members; /* owned copy */
    uint32_t n_racks, rack;       /* racks are numbered by first appearance; mine */
    uint32_t *leaders;            /* owned [n_racks]: world rank of each rack's leader */
    uint32_t rack_size;           /* members of my rack */
    bool leader;                  /* I lead my rack */
    MPI_Comm rack_comm;           /* root 0 is the leader; NULL when I am alone in it */
    MPI_Comm
        leaders_comm; /* rank = number of the rack; NULL unless I lead and there are several racks */
};

/* Check the round, meet the others, and leave w->comms fit for it. ERR_PEER names who did not come; ERR_PROTO: participants disagree. */
int comms_prepare(struct world *w, const struct bcast_round *r, const volatile int *stop,
                  struct err *e);
/* After a stuck collective: never used and never freed, MPI may still work in them. */
void comms_abandon(struct world *w);

#endif
