/* mpi_pack.c - see mpi_pack.h. */
#include "tests/tools/mpi_pack.h"

#include "base/buf.h"
#include "base/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { DATA_AT = 4096 };
const char PACK_META[PACK_META_BYTES] = "no meta";

_Noreturn void die(const char *what, const struct err *e)
{
    fprintf(stderr, "%s: %s\n", what, e ? e->text : "");
    _exit(1);
}

/* Tensors of uneven sizes, one far smaller and one exactly as large as a segment, until there
 * are about n segments. */
static uint32_t plan_tensors(struct tensor_info *t, uint32_t max, uint32_t n_segments)
{
    static const uint64_t sizes[] = {
        2 * SEGMENT_BYTES + 4000, 64, SEGMENT_BYTES, 3 * SEGMENT_BYTES, SEGMENT_BYTES / 2 + 36,
        SEGMENT_BYTES + 4};
    uint32_t n = 0;
    for (uint32_t segments = 0; segments < n_segments && n < max; n++) {
        uint64_t bytes = sizes[n % (sizeof sizes / sizeof sizes[0])];
        snprintf(t[n].name, sizeof t[n].name, "blk.%u.weight", n);
        t[n].type = TENSOR_F32;
        t[n].n_dims = 1;
        t[n].dims[0] = bytes / 4;
        t[n].dims[1] = t[n].dims[2] = t[n].dims[3] = 1;
        segments += (uint32_t)((bytes + SEGMENT_BYTES - 1) / SEGMENT_BYTES);
    }
    return n;
}

void pack_fill(uint8_t *p, uint32_t n, uint32_t segment)
{
    uint64_t x = 0x9e3779b97f4a7c15u * (segment + 1);
    for (uint32_t i = 0; i < n; i++) {
        if (i % 8 == 0) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
        }
        p[i] = (uint8_t)(x >> (8 * (i % 8)));
    }
}

int pack_make(const char *dir, uint32_t n_segments)
{
    enum { MAX_TENSORS = 4096 };
    static struct tensor_info tensors[MAX_TENSORS];
    struct model_index x = {0};
    struct err e = ERR_INIT;
    struct buf b;
    char path[512];
    uint8_t *data = malloc(SEGMENT_BYTES);
    if (index_build(&x, tensors, plan_tensors(tensors, MAX_TENSORS, n_segments), &e))
        die("index_build", &e);
    snprintf(path, sizeof path, "%s/pack", dir);
    FILE *f = fopen(path, "wb");
    if (!data || !f || fseek(f, DATA_AT, SEEK_SET) != 0)
        die(path, NULL);
    for (uint32_t s = 0; s < x.n_segments; s++) {
        struct segment seg = index_segment(&x, s);
        pack_fill(data, seg.n_bytes, s);
        sha256_of(data, seg.n_bytes, x.hashes[s]);
        if (fwrite(data, 1, seg.n_bytes, f) != seg.n_bytes)
            die(path, NULL);
    }
    fclose(f);
    free(data);
    sha256_of(PACK_META, sizeof PACK_META, x.meta_hash);
    buf_init(&b, INDEX_MAX_BYTES);
    snprintf(path, sizeof path, "%s/index", dir);
    if (index_seal(&x, &e) || index_encode(&x, &b, &e) ||
        file_publish(path, b.data, b.len, 0600, &e))
        die("index", &e);
    printf("segments %u bytes %" PRIu64 "\n", x.n_segments, x.data_bytes);
    buf_fini(&b);
    index_fini(&x);
    return 0;
}

uint64_t *pack_load(const char *dir, struct model_index *x)
{
    struct err e = ERR_INIT;
    struct buf b;
    char path[512];
    snprintf(path, sizeof path, "%s/index", dir);
    buf_init(&b, INDEX_MAX_BYTES);
    if (file_read(path, &b, &e) || index_decode(x, b.data, b.len, &e))
        die("index", &e);
    buf_fini(&b);
    uint64_t *offset = calloc(x->n_tensors, sizeof *offset), at = DATA_AT;
    for (uint32_t i = 0; i < x->n_tensors; i++) {
        offset[i] = at;
        at += x->tensors[i].n_bytes;
    }
    return offset;
}
