/* flow.h - the state of a running round: which segment is where on its way through this node.
 *
 * Missing segments have places k = 0, 1, … in ascending order; the leader of rack k mod n_racks
 * reads place k. In each group the transfers begin in the order of k, by everyone. Nobody begins
 * place k before it knows the trailer of place k - BCAST_BUFFERS; so, when a reader gives up at
 * place g, all agree without a further message that its places from g + BCAST_BUFFERS on are
 * left out.
 */
#ifndef EXA_MPI_FLOW_H
#define EXA_MPI_FLOW_H

#include "mpi/bcast.h"
#include "mpi/comms.h"
#include "mpi/lane.h"
#include "mpi/segbuf.h"

struct flow {
    struct world *w;
    const struct bcast_round *r;
    const struct groups *g;
    struct bcast_stats *stats;
    struct lane *source;                /* owned; NULL: not a leader, or left behind */
    struct lane *sink;                  /* owned; NULL: this node needs nothing */
    struct segbuf *bufs[BCAST_BUFFERS]; /* owned; NULL: lost to MPI or to a hanging read */
    uint32_t n_places;
    uint32_t *segment_of; /* owned [n_places] */
    uint8_t *needed;      /* owned bits [n_segments]: this node has not got it */
    uint8_t *known;       /* owned [n_places]: its trailer is known, or it is left out */
    uint32_t *gave_up_at; /* owned [n_racks]: place, or UINT32_MAX */
    uint32_t next_own;    /* next place to read */
    uint32_t next_lead;   /* next place to begin among the leaders */
    uint32_t next_rack;   /* next place to begin in the rack */
    uint32_t first_unknown;
    uint64_t read_since_us;            /* the source lane has been busy with one job since */
    struct leg_end end_lead, end_rack; /* nobody stops driving MPI before all have everything */
    bool ending;
    uint32_t failed_at; /* lowest place that could not be read; UINT32_MAX: none */
    struct err failed;  /* its error, the same on every participant */
    struct err own;     /* first error of this node's own image */
    bool read_failed;   /* a place of this rank's own could not be read */
};

int flow_init(struct flow *f, struct world *w, const struct groups *g, const struct bcast_round *r,
              struct image_writer *writer, struct bcast_stats *stats, struct err *e);
/* Move on whatever can move. *moved: something completed or began. *done: this node's part is
 * over. */
int flow_step(struct flow *f, bool *moved, bool *done, struct err *e);
/* Where it is stuck, for people. */
void flow_describe(const struct flow *f, char *text, size_t cap);
/* Keep what has come, give what MPI may still write to the quarantine, end the lanes. */
void flow_fini(struct flow *f);

#endif
