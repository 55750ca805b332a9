/* pack_make.h - `exaserve pack IN OUT.h5`: from a GGUF file or a Hugging Face folder, as it is or quantised. */
#ifndef EXA_CLI_PACK_MAKE_H
#define EXA_CLI_PACK_MAKE_H

#include <stdbool.h>

/* `quantize` is a format's name or NULL. Prints the report of errors and the digest; the exit code. */
int pack_make(const char *name, const char *in, const char *out, const char *quantize, bool quiet);

#endif
