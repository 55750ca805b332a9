/* endpoint.h - what rundir.c and endpoint.c share beside rundir.h. */
#ifndef EXA_SLURM_ENDPOINT_H
#define EXA_SLURM_ENDPOINT_H

#include "slurm/rundir.h"

#include <stdbool.h>

/* The service said that it is over (STOPPED or FAILED). */
bool endpoint_ended(const struct endpoint *p);
/* Read a small file of ours into text[cap] with a NUL. ERR_AGAIN: none; ERR_CONFIG: a link, somebody else's, or open to others. */
int private_read(const char *path, char *text, size_t cap, size_t *n, struct err *e);

#endif
