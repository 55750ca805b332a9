/* start.h - the life of a rank on its main thread: start of the world in its order, then the mover. */
#ifndef EXA_RANKS_START_H
#define EXA_RANKS_START_H

#include <stdint.h>

enum { EXIT_WORLD_LOST = 75 /* died before the detach: the job script starts the world again */ };

struct daemon;

/* The start was given up and the main thread does not come back from MPI: leave without it. Loop thread. */
_Noreturn void start_leave(struct daemon *d);
/* Never returns: leaves by _exit with the rank's status. */
_Noreturn void rank_run(const char *run_dir, uint32_t attempt, int *argc, char ***argv);

#endif
