/* source.h - the reading lane of a rack leader: one pread for each of its segments, checked by
 * hash before it is sent. */
#ifndef EXA_MPI_SOURCE_H
#define EXA_MPI_SOURCE_H

#include "mpi/lane.h"
#include "mpi/segbuf.h"

/* Jobs are struct segbuf with segment, at, file_offset, hash and tensor filled; done ones hold
 * bytes and trailer, us and n_read. The pack is opened by the first job, in the lane: opening
 * may hang as well. */
int source_start(struct lane **out, const char *pack_path, uint32_t rank, size_t capacity,
                 struct err *e);

#endif
