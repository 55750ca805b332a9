/* index.h - a pack's tensors and 8 MiB segments with their hashes: the unit of reading, broadcast,
 * repair and have-bits.
 *
 * The index is canonical. Its bytes (index_encode) hold, in the pack's order: tensor name, type,
 * shape, segment hashes; then SHA-256 of the meta bytes. The pack's **digest** is SHA-256 of these
 * bytes. Where a tensor lies in a pack file is not part of it (hdf5io/pack.h,
 * file_offset). Where it lies in a node image follows from it: tensors in order, each
 * 4096-aligned, after IMAGE_DATA_OFFSET (model/image.h).
 */
#ifndef EXA_MODEL_INDEX_H
#define EXA_MODEL_INDEX_H

#include "base/buf.h"
#include "base/digest.h"
#include "base/err.h"

#include <stdint.h>

enum {
    SEGMENT_BYTES = 8 << 20,
    TENSOR_ALIGN = 4096,
    TENSOR_NAME_BYTES = 96,
    TENSOR_MAX_DIMS = 4,
    INDEX_MAX_TENSORS = 65536,
    INDEX_MAX_BYTES = 64 << 20,
};

/* Numbers as in GGUF (ggml_type), from 1000 on our own: stable, never reused. Layouts: model/blocks.h.
 *
 * F8_E4M3 keeps 8-bit floats as safetensors files bring them: 32 weights of e4m3fn (sign, 4 exponent bits of bias 7, 3 of
 * fraction, no infinity) behind their scale as a binary32, 36 bytes. The file's scales, one a tensor, one a row (channel) or
 * one for 128 x 128 weights, are repeated in every block, so that a row means the same wherever it is cut. */
enum tensor_type {
    TENSOR_F32 = 0,
    TENSOR_F16 = 1,
    TENSOR_Q4_0 = 2,
    TENSOR_Q4_1 = 3,
    TENSOR_Q5_0 = 6,
    TENSOR_Q5_1 = 7,
    TENSOR_Q8_0 = 8,
    TENSOR_Q4_K = 12,
    TENSOR_Q5_K = 13,
    TENSOR_Q6_K = 14,
    TENSOR_BF16 = 30,
    TENSOR_F8_E4M3 = 1000,
};
struct tensor_type_info {
    int type;
    const char *name;     /* "Q4_1" */
    uint32_t block_elems; /* weights in a block: 1 or 32 or 256 */
    uint32_t block_bytes;
};
/* NULL: a type this build does not know. */
const struct tensor_type_info *tensor_type_info(int type);

struct tensor_info {
    char name[TENSOR_NAME_BYTES];
    int type; /* enum tensor_type */
    uint32_t n_dims;
    /* GGUF order: dims[0] is the contiguous one (row length), unused are 1 */
    uint64_t dims[TENSOR_MAX_DIMS];
    uint64_t n_bytes;
    uint64_t image_offset;  /* in the node image */
    uint32_t first_segment; /* global number of its first segment */
    uint32_t n_segments;    /* ceil(n_bytes / SEGMENT_BYTES) */
};

struct model_index {
    uint32_t n_tensors;
    struct tensor_info *tensors; /* owned [n_tensors] */
    uint32_t n_segments;
    uint8_t (*hashes)[SHA256_BYTES]; /* owned [n_segments] */
    uint8_t meta_hash[SHA256_BYTES];
    uint8_t digest[SHA256_BYTES];
    /* node image up to the end of its tensors; index and meta bytes follow there */
    uint64_t image_bytes;
    uint64_t data_bytes; /* sum of n_bytes */
};

struct segment {
    uint32_t tensor;
    uint64_t offset;       /* inside the tensor */
    uint32_t n_bytes;      /* 1 … SEGMENT_BYTES */
    uint64_t image_offset; /* in the node image */
};

void index_fini(struct model_index *x);
/* Lay out n tensors (names, types, dims given; the rest is computed). Refuses duplicate names,
 * unknown types, rows that are no whole number of blocks, sizes that overflow. Hashes are zero
 * until filled. */
int index_build(struct model_index *x, const struct tensor_info *tensors, uint32_t n,
                struct err *e);
/* Set digest from everything else. Call after hashes and meta_hash are filled. */
int index_seal(struct model_index *x, struct err *e);
int index_encode(const struct model_index *x, struct buf *out, struct err *e);
/* Decode, re-compute layout and digest. */
int index_decode(struct model_index *x, const void *data, size_t n, struct err *e);
struct segment index_segment(const struct model_index *x, uint32_t segment);
const struct tensor_info *index_find(const struct model_index *x,
                                     const char *name); /* NULL: none */

#endif
