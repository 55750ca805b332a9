/* flow_priv.h - shared by flow.c and flow_read.c alone. */
#ifndef EXA_MPI_FLOW_PRIV_H
#define EXA_MPI_FLOW_PRIV_H

#include "mpi/flow.h"

/* Number of the rack whose leader reads place k. */
uint32_t flow_reader_of(const struct flow *f, uint32_t k);
bool flow_is_own(const struct flow *f, uint32_t k);
/* Its reader gave up, and everyone knows it. */
bool flow_left_out(const struct flow *f, uint32_t k);
struct segbuf *flow_find_state(const struct flow *f, enum buf_state state);
struct segbuf *flow_find_place(const struct flow *f, uint32_t k);
void flow_claim(struct flow *f, struct segbuf *b, uint32_t k, enum buf_state state);

bool flow_start_reads(struct flow *f);
bool flow_take_reads(struct flow *f);
/* The buffer with own place k, read or told to be unreadable; NULL: not yet. */
struct segbuf *flow_own_ready(struct flow *f, uint32_t k);
void flow_end_source(struct flow *f);

#endif
