/* meet.h - all participants of a round find each other before anything of MPI that could block.
 *
 * Each sends a hello (fingerprint of the round, id of the communicators it still has) to the first member. That one waits until all
 * have come or the deadline passes, and tells everyone who came the same verdict. Messages of an older attempt are told by their fingerprint.
 */
#ifndef EXA_MPI_MEET_H
#define EXA_MPI_MEET_H

#include "mpi/bcast.h"
#include "mpi/world_priv.h"

enum { TAG_HELLO, TAG_VERDICT, TAG_CREATE_RACK, TAG_CREATE_LEADERS };
static inline int round_tag(uint32_t round, int what)
{
    return TAG_ROUND + TAGS_PER_ROUND * (int)(round % TAG_ROUNDS) + what;
}

/* Never 0. Equal fingerprints: the same round number, pack, members and missing segments. */
uint64_t meet_fingerprint(const struct bcast_round *r);
/* comms_id: 0 for none. *reuse: every member has communicators of this same id. ERR_PEER names who is missing. */
int meet(struct world *w, const struct bcast_round *r, uint64_t comms_id, const volatile int *stop,
         bool *reuse, struct err *e);

#endif
