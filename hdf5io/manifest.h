/* manifest.h - the JSON text of a pack's `manifest` attribute. Inside the room only.
 *
 * It follows from index and meta, so a reader makes it again and compares the bytes: there is
 * nothing in it to trust. */
#ifndef EXA_HDF5IO_MANIFEST_H
#define EXA_HDF5IO_MANIFEST_H

#include "base/err.h"
#include "model/index.h"

#include <stddef.h>

enum { MANIFEST_BYTES = 1024, PACK_VERSION = 1 };

void manifest_make(char text[MANIFEST_BYTES], const struct model_index *x, size_t index_bytes,
                   size_t meta_bytes);
/* ERR_FORMAT says what differs: no manifest of ours, another version, digest, other contents. */
int manifest_check(const char *found, const char *expected, struct err *e);

#endif
