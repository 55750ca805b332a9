/* owner.h - whose run directory of `exaserve run` it is: pid, start time and boot, so that a reused pid is never taken for it.
 */
#ifndef EXA_SLURM_OWNER_H
#define EXA_SLURM_OWNER_H

#include "base/err.h"

#include <sys/types.h>

/* Record this process in run_dir/owner (0600). */
int owner_write(const char *run_dir, struct err *e);
/* The living owner. ERR_AGAIN: nothing recorded, or that process is gone. */
int owner_find(const char *run_dir, pid_t *pid, struct err *e);

#endif
