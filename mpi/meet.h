/* meet.h - all participants of a round find each other before the first segment moves.
 *
 * Each sends a hello (fingerprint of the round, whether it still has their communicators) to the
 * first member. That one waits until all have come or the deadline passes, and tells everyone
 * who came the same verdict. Messages of an older attempt are told by their fingerprint.
 */
#ifndef EXA_MPI_MEET_H
#define EXA_MPI_MEET_H

#include "mpi/bcast.h"
#include "mpi/world_priv.h"

enum { TAG_HELLO, TAG_VERDICT, TAG_END_LEADERS, TAG_END_RACK };
static inline int round_tag(uint32_t round, int what)
{
    return TAG_ROUND + TAGS_PER_ROUND * (int)(round % TAG_ROUNDS) + what;
}
/* A relayed segment's tag is relay_tag + relay_offset: no two segments under way share one, nor
 * do rounds near each other. */
static inline int relay_tag(uint32_t round, int level)
{
    return TAG_RELAY + (int)(round % RELAY_ROUNDS) * RELAY_TAGS + level * (RELAY_TAGS / 2);
}
static inline int relay_offset(uint32_t k)
{
    return (int)(k % (RELAY_TAGS / 2));
}

/* Never 0. Equal fingerprints: the same round number, pack, members and missing segments. */
uint64_t meet_fingerprint(const struct bcast_round *r);
/* has_comms: this rank has communicators of just these members; *reuse: all have. ERR_PEER names
 * who is missing. */
int meet(struct world *w, const struct bcast_round *r, bool has_comms, const _Atomic uint32_t *stop,
         bool *reuse, struct err *e);

#endif
