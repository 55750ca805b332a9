/* file_map.h - a model's file, whole and read-only in memory. Inside the room only. Blocking. */
#ifndef EXA_MODEL_FILE_MAP_H
#define EXA_MODEL_FILE_MAP_H

#include "base/err.h"

#include <stddef.h>

/* ERR_FORMAT: no regular file (a pipe is not waited for), or shorter than least_bytes; kind ("GGUF") names in the error what it is not. munmap it. */
int file_map(void **map, size_t *n_bytes, const char *path, size_t least_bytes, const char *kind,
             struct err *e);

#endif
