/* manifest.c - see manifest.h. */
#include "hdf5io/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char FORMAT[] = "{\"format\": \"exaserve-pack\", \"version\": ";
static const char DIGEST[] = "\"digest\": \"";

void manifest_make(char text[MANIFEST_BYTES], const struct model_index *x, size_t index_bytes,
                   size_t meta_bytes)
{
    char hex[SHA256_HEX];
    hex_encode(x->digest, SHA256_BYTES, hex);
    snprintf(text, MANIFEST_BYTES,
             "%s%d, %s%s\", \"n_tensors\": %" PRIu32 ", \"n_segments\": %" PRIu32
             ", \"segment_bytes\": %d, \"data_bytes\": %" PRIu64
             ", \"index_bytes\": %zu, \"meta_bytes\": %zu}",
             FORMAT, PACK_VERSION, DIGEST, hex, x->n_tensors, x->n_segments, SEGMENT_BYTES,
             x->data_bytes, index_bytes, meta_bytes);
}

int manifest_check(const char *found, const char *expected, struct err *e)
{
    if (strcmp(found, expected) == 0)
        return 0;
    if (strncmp(found, FORMAT, strlen(FORMAT)) != 0)
        return err_set(e, ERR_FORMAT, "not a pack: the manifest is not one of exaserve-pack");
    long version = strtol(found + strlen(FORMAT), NULL, 10);
    if (version != PACK_VERSION)
        return err_set(e, ERR_FORMAT, "expected pack version %d, found %ld", PACK_VERSION, version);
    const char *a = strstr(found, DIGEST), *b = strstr(expected, DIGEST);
    if (!a || !b || strncmp(a, b, strlen(DIGEST) + SHA256_HEX) != 0)
        return err_set(e, ERR_FORMAT, "the manifest's digest is not that of /index");
    return err_set(e, ERR_FORMAT, "the manifest's sizes are not those of /index and /meta");
}
