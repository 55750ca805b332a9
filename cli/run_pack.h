/* run_pack.h - the pack for `exaserve run`: a pack as it is, or one made of a GGUF file or a Hugging Face folder and kept in the cache.
 */
#ifndef EXA_CLI_RUN_PACK_H
#define EXA_CLI_RUN_PACK_H

#include "base/err.h"

#include <stddef.h>

/* Absolute path of the pack of a model file (.h5, GGUF by its content, or a Hugging Face folder), and the model's name. Progress on standard error. */
int run_pack(const char *model, char *path, size_t cap, char *name, size_t name_cap, struct err *e);

#endif
