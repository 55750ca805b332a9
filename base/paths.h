/* paths.h - where we are, and where things lie when nothing else is said. */
#ifndef EXA_BASE_PATHS_H
#define EXA_BASE_PATHS_H

#include "base/err.h"

#include <stddef.h>

/* Node-local cache folder: EXASERVE_CACHE, or ${TMPDIR:-/tmp}/exaserve-<uid>. Not created here. */
int path_cache_dir(char *out, size_t cap, struct err *e);
/* This machine's name as Slurm writes it: without its domain. */
int path_host_name(char *out, size_t cap, struct err *e);

#endif
