/* ops.h - the operations a model graph is made of, over a batch of rows; what stands between a graph and a back end.
 *
 * A row is one token of one request at one position. Graphs (model_llama.c) call these and know no threads, no instruction
 * sets and no device. OPS_CPU (cpu/ops_cpu.c) splits each call over a thread pool and calls one set of kernels (cpu/kernels.h:
 * ref or avx2); a device back end brings its own table.
 *
 * The rule that all of them keep: what a row gets depends on that row's own input only, with one fixed order of
 * additions, whatever the number of rows, of threads, or the place of the row in the batch.
 */
#ifndef EXA_ENGINE_OPS_H
#define EXA_ENGINE_OPS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A matrix as it lies in the image: n_rows rows of n_cols weights in blocks of `type` (model/index.h). */
struct weight {
    const void *data;
    int type;
    uint32_t n_rows, n_cols;
    size_t row_bytes;
};

struct batch_row {
    uint32_t slot;
    uint32_t position; /* place in the request's context */
    uint32_t token;
    bool wants_logits;
};

/* Keys and values of all slots: [slot][layer][k, v][kv head][position][head_dim], F32. */
struct kv_cache {
    float *data;
    uint32_t n_slots, n_layers, n_kv_heads, n_ctx, head_dim;
};

/* y[r][i] = sum over j of w[i][j] * x[r][j]; jobs of one call share x. */
struct matmul {
    float *y; /* [n][y_stride] */
    size_t y_stride;
    const struct weight *w;
};

struct exec; /* where operations run: a pool and its kernels, or a device and its stream */

struct ops {
    const char *kind; /* "cpu" */
    /* Zeroed memory that operations and the host both touch (managed memory on a device); NULL: none left. */
    void *(*buffer_alloc)(struct exec *x, size_t n_bytes);
    void (*buffer_free)(struct exec *x, void *p, size_t n_bytes);
    /* Make w usable here. ERR_FORMAT: no kernel for its block format (named). */
    int (*weight_bind)(struct exec *x, struct weight *w, const char *name, struct err *e);

    /* y[n][w->n_cols]: rows of the embedding */
    void (*embed)(struct exec *x, float *y, const struct weight *w, const struct batch_row *rows,
                  uint32_t n);
    /* y[n][width] = RMS norm of in[n][width], times scale[width] (arXiv:1910.07467) */
    void (*norm)(struct exec *x, float *y, const float *in, const float *scale, uint32_t n,
                 uint32_t width, float eps);
    void (*matmul)(struct exec *x, const struct matmul *jobs, uint32_t n_jobs, const float *in,
                   size_t in_stride, uint32_t n);
    /* Turn pairs (2i, 2i+1) of the first rope_dim of each head by the position's angles (arXiv:2104.09864);
     * table: [position][rope_dim / 2][cos, sin] */
    void (*rope)(struct exec *x, float *heads, uint32_t n_heads, uint32_t head_dim,
                 uint32_t rope_dim, const float *table, const struct batch_row *rows, uint32_t n);
    /* k, v: [n][n_kv_heads * head_dim] to each row's place */
    void (*kv_store)(struct exec *x, const struct kv_cache *kv, uint32_t layer, const float *k,
                     const float *v, const struct batch_row *rows, uint32_t n);
    /* out, q: [n][n_heads * head_dim]; each row sees positions 0 … its own of its slot */
    void (*attend)(struct exec *x, float *out, const float *q, uint32_t n_heads,
                   const struct kv_cache *kv, uint32_t layer, const struct batch_row *rows,
                   uint32_t n);
    /* gate[n][width] = silu(gate) * up (arXiv:2002.05202) */
    void (*silu_mul)(struct exec *x, float *gate, const float *up, uint32_t n, uint32_t width);
    /* y[n][width] += in */
    void (*add)(struct exec *x, float *y, const float *in, uint32_t n, uint32_t width);
    /* bad[r] = mark where in[r] holds a NaN or an infinity and bad[r] is still 0 */
    void (*mark_nonfinite)(struct exec *x, uint16_t *bad, uint16_t mark, const float *in,
                           uint32_t n, uint32_t width);
};

#endif
