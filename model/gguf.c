/* gguf.c - see gguf.h. The syntax is in gguf_doc.c, the keys' meaning in gguf_model.c; here: the
 * tensors' places. */
#include "model/file_map.h"
#include "model/gguf.h"

#include "model/gguf_doc.h"
#include "model/gguf_model.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Where a tensor lies, for the check that none overlap. */
struct span {
    uint64_t start, end;
    uint32_t tensor;
};

static int span_order(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

static int build_index(const struct gguf_doc *d, struct model_index *x, struct err *e)
{
    struct tensor_info *tensors = calloc((size_t)d->n_tensors + 1, sizeof *tensors);
    if (!tensors)
        return err_set(e, ERR_NOMEM, "%s: out of memory for %" PRIu32 " tensors", d->label,
                       d->n_tensors);
    int rc = 0;
    for (uint32_t i = 0; i < d->n_tensors && !rc; i++) {
        const struct gguf_tensor *t = &d->tensors[i];
        if (t->name.n >= TENSOR_NAME_BYTES || memchr(t->name.p, 0, t->name.n))
            rc = err_set(e, ERR_FORMAT,
                         "%s: tensor number %" PRIu32
                         ": expected a name of at most %d bytes without NUL, found %zu bytes",
                         d->label, i, TENSOR_NAME_BYTES - 1, t->name.n);
        else
            memcpy(tensors[i].name, t->name.p, t->name.n);
        /* Our own numbers mean nothing in a GGUF file. */
        tensors[i].type = t->type < TENSOR_F8_E4M3 ? (int)t->type : -1;
        tensors[i].n_dims = t->n_dims;
        memcpy(tensors[i].dims, t->dims, sizeof tensors[i].dims);
    }
    if (!rc) {
        rc = index_build(x, tensors, d->n_tensors, e);
        if (rc && e)
            err_prefix(e, "%s: ", d->label);
    }
    free(tensors);
    return rc;
}

static int check_spans(const struct gguf_doc *d, const struct model_index *x, struct span *spans,
                       struct err *e)
{
    for (uint32_t i = 0; i < x->n_tensors; i++) {
        uint64_t at = d->tensors[i].offset, n = x->tensors[i].n_bytes;
        const char *name = x->tensors[i].name;
        if (at % d->alignment)
            return err_set(e, ERR_FORMAT,
                           "%s: tensor %s: expected an offset that is a multiple of %" PRIu32
                           ", found %" PRIu64,
                           d->label, name, d->alignment, at);
        if (at > d->data_bytes || n > d->data_bytes - at)
            return err_set(e, ERR_FORMAT,
                           "%s: tensor %s: %" PRIu64 " bytes at offset %" PRIu64
                           " are not within the file's %" PRIu64 " bytes of tensor data",
                           d->label, name, n, at, d->data_bytes);
        spans[i] = (struct span){at, at + n, i};
    }
    qsort(spans, x->n_tensors, sizeof *spans, span_order);
    for (uint32_t i = 1; i < x->n_tensors; i++)
        if (spans[i].start < spans[i - 1].end)
            return err_set(e, ERR_FORMAT, "%s: tensors %s and %s overlap at offset %" PRIu64,
                           d->label, x->tensors[spans[i - 1].tensor].name,
                           x->tensors[spans[i].tensor].name, spans[i].start);
    return 0;
}

static int place_tensors(struct gguf *g, const struct gguf_doc *d, struct err *e)
{
    uint32_t n = g->index.n_tensors;
    struct span *spans = malloc(n * sizeof *spans);
    g->tensor_data = malloc(n * sizeof *g->tensor_data);
    int rc = spans && g->tensor_data
                 ? check_spans(d, &g->index, spans, e)
                 : err_set(e, ERR_NOMEM, "%s: out of memory for %" PRIu32 " tensors", d->label, n);
    for (uint32_t i = 0; i < n && !rc; i++)
        g->tensor_data[i] = d->data + d->tensors[i].offset;
    free(spans);
    return rc;
}

/* rope_freqs.weight has the divisors of a llama3 scaling, which no key tells of. The largest is its factor. */
static int read_rope_freqs(struct gguf *g, const char *label, struct err *e)
{
    struct model_params *p = &g->meta.params;
    const struct tensor_info *t = index_find(&g->index, "rope_freqs.weight");
    if (!t)
        return 0;
    if (t->type != TENSOR_F32 || t->n_dims != 1 || t->dims[0] != p->rope_dim / 2)
        return err_set(e, ERR_FORMAT,
                       "%s: tensor rope_freqs.weight: expected %" PRIu32 " numbers in F32", label,
                       p->rope_dim / 2);
    if (p->rope_scaling != ROPE_PLAIN)
        return err_set(e, ERR_FORMAT,
                       "%s: tensor rope_freqs.weight: expected no other scaling beside it, found "
                       "key %s.rope.scaling.type",
                       label, p->arch);
    struct rd r = rd_make(g->tensor_data[t - g->index.tensors], t->n_bytes);
    for (uint64_t i = 0; i < t->dims[0]; i++) {
        float v = rd_f32(&r);
        if (!(v > 0 && v < 1e6f))
            return err_set(e, ERR_FORMAT,
                           "%s: tensor rope_freqs.weight: item %" PRIu64
                           ": expected a number above 0, found %g",
                           label, i, (double)v);
        p->rope_factor = v > p->rope_factor ? v : p->rope_factor;
    }
    p->rope_scaling = ROPE_LLAMA3;
    return 0;
}

int gguf_parse(struct gguf *g, const void *data, size_t n, const char *label, struct err *e)
{
    struct gguf new = {0};
    meta_init(&new.meta);
    struct gguf_doc d;
    int rc = gguf_doc_parse(&d, data, n, label, e);
    if (rc)
        return rc;
    rc = gguf_model_read(&d, &new.meta, e);
    if (!rc)
        rc = build_index(&d, &new.index, e);
    if (!rc)
        rc = place_tensors(&new, &d, e);
    if (!rc)
        rc = read_rope_freqs(&new, label, e);
    if (!rc) {
        new.meta.params.tied_embeddings = !index_find(&new.index, "output.weight");
        rc = meta_check(&new.meta, e);
        if (rc && e)
            err_prefix(e, "%s: ", label);
    }
    gguf_doc_fini(&d);
    if (rc)
        gguf_close(&new);
    else
        *g = new;
    return rc;
}

int gguf_open(struct gguf *g, const char *path, struct err *e)
{
    void *map;
    size_t n;
    int rc = file_map(&map, &n, path, 24, "GGUF", e);
    if (rc)
        return rc;
    rc = gguf_parse(g, map, n, path, e);
    if (rc) {
        munmap(map, n);
        return rc;
    }
    g->map = map;
    g->map_bytes = n;
    return 0;
}

void gguf_close(struct gguf *g)
{
    meta_fini(&g->meta);
    index_fini(&g->index);
    free(g->tensor_data);
    if (g->map)
        munmap(g->map, g->map_bytes);
    *g = (struct gguf){0};
}
