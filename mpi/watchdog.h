/* watchdog.h - a thread that acts when the mover is stuck inside one blocking MPI call
 * (MPI_Comm_create_group has no other form). */
#ifndef EXA_MPI_WATCHDOG_H
#define EXA_MPI_WATCHDOG_H

#include "mpi/world_priv.h"

struct watchdog;
/* Unless stopped within after_us, the world's stuck function is called, once, from the
 * watchdog's thread. */
int watchdog_start(struct watchdog **out, const struct world *w, uint64_t after_us, struct err *e);
void watchdog_stop(struct watchdog *d);

#endif
