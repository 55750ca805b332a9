/* watchdog.h - a thread that acts when the mover is stuck inside one blocking call: MPI_Init,
 * MPI_Comm_create_group and PMIx_Finalize have no other form. */
#ifndef EXA_MPI_WATCHDOG_H
#define EXA_MPI_WATCHDOG_H

#include "mpi/world_priv.h"

struct watchdog;
/* Unless stopped within after_us, the world's stuck function is called, once, from the
 * watchdog's thread. doing: for people, kept by the caller. */
int watchdog_start(struct watchdog **out, const struct world *w, const char *doing,
                   uint64_t after_us, struct err *e);
void watchdog_stop(struct watchdog *d);

#endif
