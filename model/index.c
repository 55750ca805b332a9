/* index.c - see index.h.
 *
 * Bytes: "EXAIDX01", u32 n_tensors, then for each tensor str name, u32 type, u32 n_dims, u64
 * dims[n_dims], SHA-256 of each segment; at the end SHA-256 of the meta bytes. Sizes and places are
 * computed, never stored, so two indexes with equal bytes have equal layouts.
 */
#include "model/index.h"

#include "model/image.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char MAGIC[8] = {'E', 'X', 'A', 'I', 'D', 'X', '0', '1'};

/* No single model comes near; it keeps every later sum of sizes far from overflow. */
#define DATA_MAX_BYTES (UINT64_C(1) << 60)

enum {
    TENSOR_MIN_BYTES =
        4 + 1 + 4 + 4 + 8 + SHA256_BYTES /* encoded: name of one letter, one dimension */
};

static const struct tensor_type_info TYPES[] = {
    {TENSOR_F32, "F32", 1, 4},       {TENSOR_F16, "F16", 1, 2},
    {TENSOR_Q4_0, "Q4_0", 32, 18},   {TENSOR_Q4_1, "Q4_1", 32, 20},
    {TENSOR_Q5_0, "Q5_0", 32, 22},   {TENSOR_Q5_1, "Q5_1", 32, 24},
    {TENSOR_Q8_0, "Q8_0", 32, 34},   {TENSOR_Q4_K, "Q4_K", 256, 144},
    {TENSOR_Q5_K, "Q5_K", 256, 176}, {TENSOR_Q6_K, "Q6_K", 256, 210},
    {TENSOR_BF16, "BF16", 1, 2},     {TENSOR_F8_E4M3, "F8_E4M3", 32, 36},
};

const struct tensor_type_info *tensor_type_info(int type)
{
    for (size_t i = 0; i < sizeof TYPES / sizeof TYPES[0]; i++)
        if (TYPES[i].type == type)
            return &TYPES[i];
    return NULL;
}

/* Names of ggml's other types, for errors. */
static const char *foreign_type_name(int type)
{
    static const char *const names[] = {
        [9] = "Q8_1",    [10] = "Q2_K",    [11] = "Q3_K",  [15] = "Q8_K",   [16] = "IQ2_XXS",
        [17] = "IQ2_XS", [18] = "IQ3_XXS", [19] = "IQ1_S", [20] = "IQ4_NL", [21] = "IQ3_S",
        [22] = "IQ2_S",  [23] = "IQ4_XS",  [24] = "I8",    [25] = "I16",    [26] = "I32",
        [27] = "I64",    [28] = "F64",     [29] = "IQ1_M", [34] = "TQ1_0",  [35] = "TQ2_0",
        [39] = "MXFP4",
    };
    const char *name =
        type >= 0 && (size_t)type < sizeof names / sizeof names[0] ? names[type] : NULL;
    return name ? name : "no known name";
}

void index_fini(struct model_index *x)
{
    free(x->tensors);
    free(x->hashes);
    *x = (struct model_index){0};
}

/* A name becomes the name of an HDF5 dataset and appears in log lines: no '/', no blank, plain
 * ASCII. */
static int name_check(const char *name, struct err *e)
{
    size_t n = strnlen(name, TENSOR_NAME_BYTES);
    if (n == 0 || n == TENSOR_NAME_BYTES)
        return err_set(e, ERR_FORMAT, "tensor name: expected 1 to %d bytes, found %s",
                       TENSOR_NAME_BYTES - 1, n ? "more" : "none");
    for (size_t i = 0; i < n; i++)
        if (name[i] <= ' ' || name[i] > '~' || name[i] == '/')
            return err_set(e, ERR_FORMAT,
                           "tensor name: expected plain ASCII without blanks and '/', found byte "
                           "0x%02x at position %zu",
                           (unsigned char)name[i], i);
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return err_set(e, ERR_FORMAT, "tensor name: \"%s\" is reserved", name);
    return 0;
}

/* Bytes of one tensor, checked: known type, no zero dimension, whole blocks, no overflow. */
static int tensor_size(struct tensor_info *t, struct err *e)
{
    const struct tensor_type_info *type = tensor_type_info(t->type);
    if (!type)
        return err_set(e, ERR_FORMAT, "tensor %s: unsupported type %d (%s)", t->name, t->type,
                       foreign_type_name(t->type));
    if (t->n_dims < 1 || t->n_dims > TENSOR_MAX_DIMS)
        return err_set(e, ERR_FORMAT, "tensor %s: expected 1 to %d dimensions, found %" PRIu32,
                       t->name, TENSOR_MAX_DIMS, t->n_dims);
    for (uint32_t i = t->n_dims; i < TENSOR_MAX_DIMS; i++)
        t->dims[i] = 1;
    if (t->dims[0] % type->block_elems)
        return err_set(e, ERR_FORMAT,
                       "tensor %s: expected rows of whole %s blocks of %" PRIu32
                       " weights, found rows of %" PRIu64,
                       t->name, type->name, type->block_elems, t->dims[0]);
    uint64_t n = 1;
    for (uint32_t i = 0; i < t->n_dims; i++) {
        if (t->dims[i] == 0)
            return err_set(e, ERR_FORMAT, "tensor %s: dimension %" PRIu32 " is 0", t->name, i);
        if (__builtin_mul_overflow(n, t->dims[i], &n))
            return err_set(e, ERR_FORMAT, "tensor %s: number of weights overflows", t->name);
    }
    n /= type->block_elems;
    if (__builtin_mul_overflow(n, (uint64_t)type->block_bytes, &n) || n > DATA_MAX_BYTES)
        return err_set(e, ERR_FORMAT, "tensor %s: size in bytes overflows", t->name);
    t->n_bytes = n;
    return 0;
}

static int name_order(const void *a, const void *b)
{
    return strcmp((*(const struct tensor_info *const *)a)->name,
                  (*(const struct tensor_info *const *)b)->name);
}

static int names_unique(const struct model_index *x, struct err *e)
{
    const struct tensor_info **by_name = malloc((x->n_tensors + 1) * sizeof *by_name);
    if (!by_name)
        return err_set(e, ERR_NOMEM, "out of memory for %" PRIu32 " tensors", x->n_tensors);
    for (uint32_t i = 0; i < x->n_tensors; i++)
        by_name[i] = &x->tensors[i];
    qsort(by_name, x->n_tensors, sizeof *by_name, name_order);
    int rc = 0;
    for (uint32_t i = 1; i < x->n_tensors && !rc; i++)
        if (strcmp(by_name[i - 1]->name, by_name[i]->name) == 0)
            rc = err_set(e, ERR_FORMAT, "tensor %s is there twice", by_name[i]->name);
    free(by_name);
    return rc;
}

static int layout(struct model_index *x, struct err *e)
{
    uint64_t at = IMAGE_DATA_OFFSET, segments = 0;
    for (uint32_t i = 0; i < x->n_tensors; i++) {
        struct tensor_info *t = &x->tensors[i];
        int rc = name_check(t->name, e);
        if (!rc)
            rc = tensor_size(t, e);
        if (rc)
            return rc;
        t->image_offset = at;
        t->first_segment = (uint32_t)segments;
        uint64_t n = (t->n_bytes + SEGMENT_BYTES - 1) / SEGMENT_BYTES;
        segments += n;
        x->data_bytes += t->n_bytes;
        if (x->data_bytes > DATA_MAX_BYTES || segments > INDEX_MAX_BYTES / SHA256_BYTES / 2)
            return err_set(e, ERR_LIMIT,
                           "tensor %s: the model is larger than a pack can be (%d segments)",
                           t->name, INDEX_MAX_BYTES / SHA256_BYTES / 2);
        t->n_segments = (uint32_t)n;
        at += (t->n_bytes + TENSOR_ALIGN - 1) / TENSOR_ALIGN * TENSOR_ALIGN;
    }
    x->n_segments = (uint32_t)segments;
    x->image_bytes = at;
    return names_unique(x, e);
}

int index_build(struct model_index *x, const struct tensor_info *tensors, uint32_t n, struct err *e)
{
    if (n == 0 || n > INDEX_MAX_TENSORS)
        return err_set(e, ERR_FORMAT, "expected 1 to %d tensors, found %" PRIu32, INDEX_MAX_TENSORS,
                       n);
    struct model_index new = {.n_tensors = n};
    int rc;
    new.tensors = malloc(n * sizeof *tensors);
    if (!new.tensors) {
        rc = err_set(e, ERR_NOMEM, "out of memory for %" PRIu32 " tensors", n);
        goto fail;
    }
    memcpy(new.tensors, tensors, n * sizeof *tensors);
    rc = layout(&new, e);
    if (rc)
        goto fail;
    new.hashes = calloc(new.n_segments, SHA256_BYTES);
    if (!new.hashes) {
        rc = err_set(e, ERR_NOMEM, "out of memory for %" PRIu32 " segment hashes", new.n_segments);
        goto fail;
    }
    *x = new;
    return 0;
fail:
    index_fini(&new);
    return rc;
}

int index_encode(const struct model_index *x, struct buf *out, struct err *e)
{
    buf_put(out, MAGIC, sizeof MAGIC);
    buf_u32(out, x->n_tensors);
    for (uint32_t i = 0; i < x->n_tensors; i++) {
        const struct tensor_info *t = &x->tensors[i];
        buf_str(out, t->name);
        buf_u32(out, (uint32_t)t->type);
        buf_u32(out, t->n_dims);
        for (uint32_t d = 0; d < t->n_dims; d++)
            buf_u64(out, t->dims[d]);
        buf_put(out, x->hashes[t->first_segment], (size_t)t->n_segments * SHA256_BYTES);
    }
    buf_put(out, x->meta_hash, SHA256_BYTES);
    if (!buf_ok(out))
        return err_set(e, ERR_LIMIT, "index: %" PRIu32 " tensors do not fit in %zu bytes",
                       x->n_tensors, out->max);
    return 0;
}

int index_seal(struct model_index *x, struct err *e)
{
    struct buf b;
    buf_init(&b, INDEX_MAX_BYTES);
    int rc = index_encode(x, &b, e);
    if (!rc)
        sha256_of(b.data, b.len, x->digest);
    buf_fini(&b);
    return rc;
}

/* First pass over the bytes: the tensors and where their hashes lie. */
static int decode_tensors(struct rd *r, struct tensor_info *tensors, const uint8_t **hashes,
                          uint32_t n, struct err *e)
{
    for (uint32_t i = 0; i < n; i++) {
        struct tensor_info *t = &tensors[i];
        rd_str(r, t->name, sizeof t->name);
        t->type = (int)rd_u32(r);
        t->n_dims = rd_u32(r);
        if (rd_ok(r) && t->n_dims > TENSOR_MAX_DIMS)
            return err_set(e, ERR_FORMAT,
                           "index: tensor %" PRIu32 ": expected 1 to %d dimensions, found %" PRIu32,
                           i, TENSOR_MAX_DIMS, t->n_dims);
        for (uint32_t d = 0; rd_ok(r) && d < t->n_dims; d++)
            t->dims[d] = rd_u64(r);
        if (!rd_ok(r))
            return err_set(e, ERR_FORMAT, "index: ends inside tensor %" PRIu32 " of %" PRIu32, i,
                           n);
        int rc = name_check(t->name, e);
        if (!rc)
            rc = tensor_size(t, e);
        if (rc)
            return e ? err_prefix(e, "index: ") : rc;
        uint64_t segments = (t->n_bytes + SEGMENT_BYTES - 1) / SEGMENT_BYTES;
        if (segments > rd_left(r) / SHA256_BYTES)
            return err_set(e, ERR_FORMAT, "index: ends inside the hashes of tensor %s", t->name);
        hashes[i] = rd_bytes(r, segments * SHA256_BYTES);
    }
    return 0;
}

int index_decode(struct model_index *x, const void *data, size_t n, struct err *e)
{
    if (n > INDEX_MAX_BYTES)
        return err_set(e, ERR_LIMIT, "index: expected at most %d bytes, found %zu", INDEX_MAX_BYTES,
                       n);
    struct rd r = rd_make(data, n);
    const void *magic = rd_bytes(&r, sizeof MAGIC);
    if (!magic || memcmp(magic, MAGIC, sizeof MAGIC) != 0)
        return err_set(e, ERR_FORMAT, "index: does not begin with %.8s", MAGIC);
    uint32_t n_tensors = rd_u32(&r);
    if (!rd_ok(&r) || n_tensors == 0 || n_tensors > INDEX_MAX_TENSORS ||
        n_tensors > rd_left(&r) / TENSOR_MIN_BYTES)
        return err_set(e, ERR_FORMAT, "index: %" PRIu32 " tensors cannot be in %zu bytes",
                       n_tensors, n);

    struct model_index new = {0};
    struct tensor_info *tensors = calloc(n_tensors, sizeof *tensors);
    const uint8_t **hashes = calloc(n_tensors, sizeof *hashes);
    int rc = tensors && hashes
                 ? decode_tensors(&r, tensors, hashes, n_tensors, e)
                 : err_set(e, ERR_NOMEM, "out of memory for %" PRIu32 " tensors", n_tensors);
    if (rc)
        goto out;
    const void *meta_hash = rd_bytes(&r, SHA256_BYTES);
    if (!meta_hash || !rd_done(&r)) {
        rc = err_set(e, ERR_FORMAT,
                     "index: expected to end with one hash after %" PRIu32 " tensors, %s",
                     n_tensors, meta_hash ? "more follows" : "found too few bytes");
        goto out;
    }
    rc = index_build(&new, tensors, n_tensors, e);
    if (rc) {
        if (e)
            err_prefix(e, "index: ");
        goto out;
    }
    for (uint32_t i = 0; i < n_tensors; i++)
        memcpy(new.hashes[new.tensors[i].first_segment], hashes[i],
               (size_t) new.tensors[i].n_segments *SHA256_BYTES);
    memcpy(new.meta_hash, meta_hash, SHA256_BYTES);
    sha256_of(data, n,
              new.digest); /* decoding is one to one: these are the bytes index_encode gives */
    *x = new;
out:
    free(tensors);
    free(hashes);
    return rc;
}

struct segment index_segment(const struct model_index *x, uint32_t segment)
{
    CHECK(segment < x->n_segments);
    uint32_t lo = 0, hi = x->n_tensors - 1; /* the last tensor with first_segment <= segment */
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo + 1) / 2;
        if (x->tensors[mid].first_segment <= segment)
            lo = mid;
        else
            hi = mid - 1;
    }
    const struct tensor_info *t = &x->tensors[lo];
    uint64_t offset = (uint64_t)(segment - t->first_segment) * SEGMENT_BYTES;
    uint64_t left = t->n_bytes - offset;
    return (struct segment){
        .tensor = lo,
        .offset = offset,
        .n_bytes = left < SEGMENT_BYTES ? (uint32_t)left : SEGMENT_BYTES,
        .image_offset = t->image_offset + offset,
    };
}

const struct tensor_info *index_find(const struct model_index *x, const char *name)
{
    for (uint32_t i = 0; i < x->n_tensors; i++)
        if (strcmp(x->tensors[i].name, name) == 0)
            return &x->tensors[i];
    return NULL;
}
