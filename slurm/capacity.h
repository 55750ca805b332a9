/* capacity.h - how many nodes a job may ask for at all: many sites let sbatch take a job that can never start.
 */
#ifndef EXA_SLURM_CAPACITY_H
#define EXA_SLURM_CAPACITY_H

#include "base/err.h"
#include "config/config.h"

#include <stdint.h>

/* ERR_CONFIG: the partition has fewer nodes than that. What Slurm does not tell is not an error: sbatch has the last word. */
int capacity_check(const struct config *c, uint32_t nodes, struct err *e);

#endif
