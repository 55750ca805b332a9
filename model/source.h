/* source.h - where tensors' bytes come from while a pack is written: a mapped file, or something that is made piece by
 * piece (converted, permuted, quantised), so that no model need fit in memory.
 */
#ifndef EXA_MODEL_SOURCE_H
#define EXA_MODEL_SOURCE_H

#include "base/err.h"
#include "model/index.h"

struct tensor_source {
    /* n (1 … SEGMENT_BYTES) bytes of tensor number `tensor` of the index from `offset` on. *bytes points to them: into memory
     * of the source, or to buf[n], which it has then filled; valid until the next call. Pieces may be asked for in any order
     * and again: they are the same bytes. Any error but ERR_LIMIT, which means a full disk to the writer. */
    int (*read)(void *ctx, uint32_t tensor, uint64_t offset, uint32_t n, uint8_t *buf,
                const uint8_t **bytes, struct err *e);
    void *ctx;
};

/* Tensors that lie in memory: data[i] has the bytes of tensor i. data outlives the source. */
struct tensor_source source_mapped(const uint8_t *const *data);

#endif
