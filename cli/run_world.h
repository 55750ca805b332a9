/* run_world.h - the MPI world of `exaserve run`: mpirun as our child, watched, drained, and nothing left behind.
 */
#ifndef EXA_CLI_RUN_WORLD_H
#define EXA_CLI_RUN_WORLD_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct world {
    pid_t mpirun; /* 0: not running */
    int status;   /* its exit status once it is gone; 128 + signal */
};

/* What a world needs is there: exaserved beside this program, mpirun in PATH. */
int world_check(struct err *e);
/* Ask exaserved for the layout of a world on this machine: run_dir/attempt-N/layout.json. n_ranks: how many it takes. */
int world_plan(const char *run_dir, uint32_t attempt, uint32_t *n_ranks, struct err *e);
/* Block the signals that end us (INT, TERM, HUP): from here on world_signal takes them, so that we clean up whenever they come. */
void world_block_signals(void);
int world_start(struct world *w, const char *run_dir, uint32_t attempt, uint32_t n_ranks,
                struct err *e);
/* Wait up to timeout_us for a signal that ends us; its number, or 0. Also returns early when mpirun ends. */
int world_signal(struct world *w, uint64_t timeout_us);
/* false: mpirun is gone, status is filled. */
bool world_running(struct world *w);
/* SIGTERM to every rank: the service drains and ends by itself. */
void world_drain(struct world *w);
/* End what is still there: mpirun, ranks, and whatever they left. Always comes to an end. */
void world_kill(struct world *w);

#endif
