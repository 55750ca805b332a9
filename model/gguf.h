/* gguf.h - reader of GGUF v2/v3 files (little-endian), hardened against hostile input.
 *
 * Source: ggml/docs/gguf.md. The file is mapped read-only; nothing in it is trusted: every count,
 * length and offset is checked against the real size before use, products are checked for overflow,
 * names must be unique. A refusal names the key or tensor.
 */
#ifndef EXA_MODEL_GGUF_H
#define EXA_MODEL_GGUF_H

#include "base/err.h"
#include "model/index.h"
#include "model/meta.h"

struct gguf {
    struct model_meta meta;
    struct model_index index;    /* hashes and digest are not filled */
    const uint8_t **tensor_data; /* owned array [index.n_tensors], pointing into the mapping */
    void *map;                   /* NULL when parsed from memory */
    size_t map_bytes;
};

int gguf_open(struct gguf *g, const char *path, struct err *e);
/* Parse bytes in memory, which must outlive g (tests, fuzzing). */
int gguf_parse(struct gguf *g, const void *data, size_t n, const char *label, struct err *e);
void gguf_close(struct gguf *g);

#endif
