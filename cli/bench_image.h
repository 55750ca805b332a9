/* bench_image.h - a node image of a pack, in the cache: what an engine maps. */
#ifndef EXA_CLI_BENCH_IMAGE_H
#define EXA_CLI_BENCH_IMAGE_H

#include "base/err.h"

#include <stddef.h>

/* The image of this pack, made in the cache if it is not there; path: of the image. A file that is an image already is taken as it is.
 * ERR_FORMAT: neither. */
int bench_image(const char *pack, char *path, size_t path_cap, struct err *e);

#endif
