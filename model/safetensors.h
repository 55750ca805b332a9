/* safetensors.h - reader of safetensors files, hardened against hostile input.
 *
 * Source: https://github.com/huggingface/safetensors (README, "Format"): u64 length of the header, a JSON object of that
 * many bytes (name → dtype, shape, data_offsets from the header's end; "__metadata__" is skipped), then the tensors' bytes.
 * The file is mapped read-only; nothing in it is trusted: sizes follow from dtype and shape, must agree with the
 * offsets, and the tensors must fill the file without overlap and without holes, as the reference reader demands.
 * A refusal names the file and the tensor.
 */
#ifndef EXA_MODEL_SAFETENSORS_H
#define EXA_MODEL_SAFETENSORS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SAFETENSORS_HEADER_BYTES = 16 << 20, /* longest header; some 100 bytes a tensor */
    SAFETENSORS_MAX_TENSORS = 1 << 18,   /* experts are tensors of their own in these files */
    SAFETENSORS_MAX_DIMS = 8,
    SAFETENSORS_NAME_BYTES = 512,
};

enum st_dtype {
    ST_BOOL,
    ST_U8,
    ST_I8,
    ST_F8_E4M3,
    ST_F8_E5M2,
    ST_I16,
    ST_U16,
    ST_F16,
    ST_BF16,
    ST_I32,
    ST_U32,
    ST_F32,
    ST_F64,
    ST_I64,
    ST_U64,
    ST_N_DTYPES
};

struct st_tensor {
    const char *name; /* of the header, UTF-8 without control characters */
    enum st_dtype dtype;
    uint32_t n_dims;
    uint64_t
        dims[SAFETENSORS_MAX_DIMS]; /* the file's order: the last one is contiguous; unused are 1 */
    uint64_t n_weights;
    uint64_t n_bytes;
    const uint8_t *data; /* n_bytes in the mapping; not aligned */
};

struct safetensors {
    char *label;               /* owned: names the file in errors */
    struct st_tensor *tensors; /* owned [n_tensors], by name */
    uint32_t n_tensors;
    void *header; /* owned: the parsed JSON; the names point into it */
    void *map;    /* NULL when parsed from memory */
    size_t map_bytes;
};

int safetensors_open(struct safetensors *s, const char *path, struct err *e);
/* Parse bytes in memory, which must outlive s (tests, fuzzing). */
int safetensors_parse(struct safetensors *s, const void *data, size_t n, const char *label,
                      struct err *e);
void safetensors_close(struct safetensors *s);

const struct st_tensor *safetensors_find(const struct safetensors *s,
                                         const char *name); /* NULL: none */
const char *st_dtype_name(enum st_dtype t);                 /* "BF16" */
uint32_t st_dtype_bytes(enum st_dtype t);

#endif
