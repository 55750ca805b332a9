/* world.h - MPI world: start, warm-up of all pairs, detach from PMIx. The only room with mpi.h
 * and pmix.h. Mover (main) thread only.
 *
 * Order (platform.md says why, and no other works): world_init → [caller: message plane barrier:
 * every rank is out of MPI_Init] → world_warm_up → [bcast_prepare] → [caller: barrier] →
 * world_detach. After that any rank may die and the others go on. Leave by world_leave (_exit),
 * never MPI_Finalize. Every MPI wait polls with a deadline and a sleeping back-off.
 */
#ifndef EXA_MPI_WORLD_H
#define EXA_MPI_WORLD_H

#include "base/err.h"

#include <stdint.h>

struct world; /* one a process */

/* What to do when this rank hangs in a call that cannot be polled, because another rank died or
 * did not come: MPI_Init, making communicators (bcast_prepare), the detach. Called from another
 * thread; the mover never comes back then. Where it returns, the process leaves with exit code 3. */
typedef void world_stuck_fn(void *arg, const char *text);
/* MPI_Init. stuck may be NULL. */
int world_init(struct world **out, int *argc, char ***argv, uint64_t timeout_us,
               world_stuck_fn *stuck, void *arg, struct err *e);
uint32_t world_rank(const struct world *w);
uint32_t world_size(const struct world *w);
/* Talk once with every rank, so that no connection is opened lazily later. ERR_TIMEOUT names the
 * ranks that did not answer. */
int world_warm_up(struct world *w, uint64_t timeout_us, struct err *e);
/* PMIx_Finalize once. */
int world_detach(struct world *w, uint64_t timeout_us, struct err *e);
_Noreturn void world_leave(int status);

#endif
