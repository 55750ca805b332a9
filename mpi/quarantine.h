/* quarantine.h - memory that MPI may still write: requests that were given up at a deadline,
 * with the buffers they name.
 *
 * A receive that was given up may complete much later, when a slow peer goes on. Its memory is
 * therefore kept until MPI itself says that it is done, and for ever when MPI says that it
 * failed. Mover thread only.
 */
#ifndef EXA_MPI_QUARANTINE_H
#define EXA_MPI_QUARANTINE_H

#include "base/err.h"
#include "mpi/world_priv.h"

#include <stddef.h>

/* Bytes held before new rounds are refused: 16 rounds lost with all their buffers. */
#define QUARANTINE_MAX_BYTES ((size_t)512 << 20)

/* Take over mem (from malloc or aligned_alloc) of n_bytes and its open requests (copied). Requests
 * that are NULL count as done; if all are, mem is freed at once, unless for_ever: an operation on
 * it failed, and a collective that fails in one rank may go on sending from it. Never fails:
 * without memory for the record, mem leaks, which is the safe side. */
void quarantine_add(struct world *w, void *mem, size_t n_bytes, const MPI_Request *requests,
                    uint32_t n, bool for_ever);
/* Free what has completed. ERR_LIMIT when more than QUARANTINE_MAX_BYTES remain. */
int quarantine_sweep(struct world *w, struct err *e);

#endif
