/* launch.h - how an engine process is started: the stub.
 *
 * `exaserve-engine --stub PARENT_PID N_FDS -- COMMAND ARG…` closes every descriptor from N_FDS on (UCX, libuv and epoll leave theirs open across
 * exec: an orphan would hold a dead worker's connections open and hide its death), sets PR_SET_PDEATHSIG=SIGKILL, leaves if the parent is
 * not PARENT_PID any more, drops PMIX_*, OMPI_*, UCX_*, SLURM_* from the environment (device binding variables stay), lowers its priority a little
 * (shared cores serve the ranks' loops first), and execs.
 * The caller must spawn from its loop thread: PDEATHSIG fires when the spawning *thread* ends.
 */
#ifndef EXA_ENGINE_LAUNCH_H
#define EXA_ENGINE_LAUNCH_H

#include "base/err.h"

/* The stub's own work, in the child: returns only on failure. argv is NULL-terminated, argv[0] the program. */
int launch_stub(int parent_pid, int n_fds, char *const argv[], struct err *e);

#endif
