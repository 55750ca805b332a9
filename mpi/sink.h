/* sink.h - the hashing and writing lane: received segments go through it into the node's image. */
#ifndef EXA_MPI_SINK_H
#define EXA_MPI_SINK_H

#include "model/image.h"
#include "mpi/lane.h"
#include "mpi/segbuf.h"

/* Jobs are received struct segbuf; done ones hold us, store_code and store_err. The writer stays
 * the caller's. */
int sink_start(struct lane **out, struct image_writer *writer, size_t capacity, struct err *e);

#endif
