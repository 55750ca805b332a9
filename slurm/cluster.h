/* cluster.h - the name of the Slurm cluster we are on. */
#ifndef EXA_SLURM_CLUSTER_H
#define EXA_SLURM_CLUSTER_H

#include <stddef.h>

/* SLURM_CLUSTER_NAME inside a job, else what the controller says, else "cluster". Always usable as a folder's name. */
void cluster_name(char *out, size_t cap);

#endif
