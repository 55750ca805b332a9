/* ops.h - the operations that model graphs are made of, over a batch of rows; what stands between a graph and a back end.
 *
 * A row is one token of one sequence at one position. Graphs (graph.h, family_*.c) call these and know no threads, no instruction
 * sets and no device. OPS_CPU (cpu/ops_cpu.c) runs them on a thread pool with one set of kernels (cpu/kernels.h); a device back end
 * brings its own table and nothing above it changes:
 *   - Pointers to activations, weights and KV are addresses of the back end's memory (`mem_alloc` MEM_DEVICE). Only operations touch them.
 *     The host reads and writes MEM_HOST memory (pinned on a device) and moves bytes by `copy`.
 *   - Operations are enqueued on the exec's current stream, in order; results are there after `stream_sync`, or behind an event. On the
 *     CPU a stream is the calling thread: everything is done when the call returns.
 *   - Nothing allocates after creation.
 *
 * The rule that all keep (batch invariance): what a row gets depends on that row's own input only, with one fixed order of additions,
 * whatever the number of rows, of threads, or the place of the row in the batch, and whether its positions come in one step or several.
 * Error bounds against the truth (KERNELS_REF, double sums), with reasons: ops_bounds.h; tests/unit/engine_ops_test.c holds every variant to them.
 */
#ifndef EXA_ENGINE_OPS_H
#define EXA_ENGINE_OPS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A matrix as it lies in the image: n_rows rows of n_cols weights in blocks of `type` (model/index.h). A mixture's experts are one matrix
 * of n_experts * n_rows rows. */
struct weight {
    const void *data;
    int type;
    uint32_t n_rows, n_cols; /* of one expert where there are several */
    uint32_t n_experts;      /* 0: no mixture */
    size_t row_bytes;
    size_t
        expert_bytes; /* from one expert to the next; 0: they follow one another. A shard's are rows out of larger ones */
    void *bound; /* the back end's own: a device copy, a descriptor; NULL on the CPU */
};

/* The first row of an expert. */
static inline const void *weight_expert(const struct weight *w, uint32_t expert)
{
    size_t step = w->expert_bytes ? w->expert_bytes : w->n_rows * w->row_bytes;
    return (const uint8_t *)w->data + expert * step;
}

enum { ROW_NO_OUT = UINT32_MAX };

struct batch_row {
    uint32_t seq;      /* row of step.tables */
    uint32_t position; /* place in the sequence */
    uint32_t token;
    uint32_t
        out; /* its number among the step's outputs, ROW_NO_OUT: only its keys and values are wanted */
};

/* What one forward pass computes. Rows of one sequence stand together, in order of position, without a gap. */
struct step {
    const struct batch_row *rows; /* [n_rows] */
    uint32_t n_rows, n_out;
    const uint32_t *
        tables; /* [n_seqs][table_stride]: KV block numbers; position p lies in block p / KV_BLOCK_TOKENS */
    uint32_t table_stride;
};

enum { KV_BLOCK_TOKENS = 16 };
enum kv_type {
    KV_F32 = 1,
    KV_F16 = 2,
    KV_Q8 = 3 /* int8, one F32 scale for each head of each token */
};
const char *kv_type_name(int type); /* "f32", "f16", "q8" */

/* Keys and values of all layers: n_blocks blocks of block_bytes; what lies where in a block is the back end's own. */
struct kv_cache {
    void *data;
    int type; /* enum kv_type */
    uint32_t n_blocks, n_layers, n_kv_heads, head_dim;
    size_t block_bytes; /* all layers of KV_BLOCK_TOKENS tokens: kv_block_bytes */
};

/* y[r][i] = sum over j of w[i][j] * x[r][j], + bias[i], + what y[r][i] was if `accumulate`; jobs of one call share x. */
struct matmul {
    float *y; /* [n][y_stride] */
    size_t y_stride;
    const struct weight *w;
    const float *bias; /* [w->n_rows] F32, NULL: none */
    bool accumulate;
};

enum rope_style {
    ROPE_PAIRS, /* (2i, 2i + 1): llama as GGUF files hold it */
    ROPE_HALVES /* (i, i + rope_dim / 2): qwen */
};

enum mem_kind { MEM_DEVICE, MEM_HOST };

struct exec; /* where operations run: a pool and its kernels, or a device and its current stream */
struct stream; /* NULL: the exec's first */
struct event;

struct ops {
    const char *kind; /* "cpu" */

    /* --- memory, streams, events -------------------------------------------------------------------------- */
    void *(*mem_alloc)(struct exec *x, enum mem_kind kind,
                       size_t n_bytes); /* zeroed; NULL: none left */
    void (*mem_free)(struct exec *x, enum mem_kind kind, void *p, size_t n_bytes);
    void (*copy)(struct exec *x, void *to, const void *from,
                 size_t n_bytes); /* any kind to any kind */
    int (*stream_create)(struct exec *x, struct stream **out, struct err *e);
    void (*stream_destroy)(struct exec *x, struct stream *s);
    void (*stream_use)(struct exec *x, struct stream *s); /* later operations go there */
    /* Wait until all that was enqueued is done. ERR_DEVICE: the device failed; the exec is unusable. */
    int (*stream_sync)(struct exec *x, struct stream *s, struct err *e);
    int (*event_create)(struct exec *x, struct event **out, struct err *e);
    void (*event_destroy)(struct exec *x, struct event *v);
    void (*event_record)(struct exec *x, struct event *v);
    void (*event_wait)(struct exec *x,
                       struct event *v); /* the current stream waits, not the host */
    bool (*event_done)(struct exec *x, struct event *v);

    /* --- weights ------------------------------------------------------------------------------------------ */
    /* Make w usable here. ERR_FORMAT: no kernel for its block format (named). */
    int (*weight_bind)(struct exec *x, struct weight *w, const char *name, struct err *e);
    void (*weight_unbind)(struct exec *x, struct weight *w);

    /* --- a layer ------------------------------------------------------------------------------------------ */
    /* y[n][w->n_cols]: rows of the embedding */
    void (*embed)(struct exec *x, float *y, const struct weight *w, const struct batch_row *rows,
                  uint32_t n);
    /* y[n][width] = RMS norm of in[n][width], times scale[width] (arXiv:1910.07467); y may be in. With width = head_dim and n = rows *
     * heads it normalises heads (qwen3). */
    void (*norm)(struct exec *x, float *y, const float *in, const float *scale, uint32_t n,
                 uint32_t width, float eps);
    void (*matmul)(struct exec *x, const struct matmul *jobs, uint32_t n_jobs, const float *in,
                   size_t in_stride, uint32_t n);
    /* Turn the first rope_dim of each head by the position's angles (arXiv:2104.09864); heads: [n][n_heads][head_dim];
     * table: [position][rope_dim / 2][cos, sin] */
    void (*rope)(struct exec *x, float *heads, uint32_t n_heads, uint32_t head_dim,
                 uint32_t rope_dim, enum rope_style style, const float *table,
                 const struct batch_row *rows, uint32_t n);
    size_t (*kv_block_bytes)(int kv_type, uint32_t n_layers, uint32_t n_kv_heads,
                             uint32_t head_dim);
    /* k, v: [n][n_kv_heads * head_dim] to each row's place */
    void (*kv_store)(struct exec *x, const struct kv_cache *kv, uint32_t layer, const float *k,
                     const float *v, const struct step *s);
    void (*kv_copy)(struct exec *x, const struct kv_cache *kv, uint32_t from_block,
                    uint32_t to_block);
    /* out, q: [n][n_heads * head_dim]; a row sees the last `window` positions up to and with its own (0: all) of its sequence;
     * scores are scaled by 1 / sqrt(head_dim) (arXiv:1706.03762, grouped heads arXiv:2305.13245) */
    void (*attend)(struct exec *x, float *out, const float *q, uint32_t n_heads,
                   const struct kv_cache *kv, uint32_t layer, uint32_t window,
                   const struct step *s);
    /* gate[n][width] = silu(gate) * up (arXiv:2002.05202) */
    void (*silu_mul)(struct exec *x, float *gate, const float *up, uint32_t n, uint32_t width);
    /* y[n][width] += in */
    void (*add)(struct exec *x, float *y, const float *in, uint32_t n, uint32_t width);
    /* y[row.out] = in[r] for rows with an output */
    void (*gather)(struct exec *x, float *y, const float *in, uint32_t width, const struct step *s);

    /* --- mixtures of experts (arXiv:2401.04088) ----------------------------------------------------------- */
    /* choice, share: [n][n_used]: the n_used highest of softmax(logits[n][n_experts]), best first, ties to the lower number; with
     * renorm the shares are scaled to sum to 1 */
    void (*route)(struct exec *x, uint32_t *choice, float *share, const float *logits,
                  uint32_t n_experts, uint32_t n_used, bool renorm, uint32_t n);
    /* y[i][w->n_rows] = expert choice[i] of w times in[i / in_div]; i < n; in: [n / in_div][in_stride] */
    void (*matmul_experts)(struct exec *x, float *y, size_t y_stride, const struct weight *w,
                           const uint32_t *choice, const float *in, size_t in_stride,
                           uint32_t in_div, uint32_t n);
    /* y[r][width] += sum over j < n_used, in order, of share[r][j] * in[r * n_used + j][width] */
    void (*experts_sum)(struct exec *x, float *y, const float *in, const float *share,
                        uint32_t n_used, uint32_t n, uint32_t width);

    /* --- outputs ------------------------------------------------------------------------------------------ */
    /* sum[row.seq][width] += in[r][width], in order of position: mean pooling */
    void (*pool_sum)(struct exec *x, float *sum, const float *in, uint32_t width,
                     const struct step *s);
    /* bad[r] = mark where in[r] holds a NaN or an infinity and bad[r] is still 0 */
    void (*mark_nonfinite)(struct exec *x, uint16_t *bad, uint16_t mark, const float *in,
                           uint32_t n, uint32_t width);
    /* ids[n]: highest logit, the lowest id of equals */
    void (*argmax)(struct exec *x, uint32_t *ids, const float *logits, uint32_t n,
                   uint32_t n_vocab);
    /* logits[n][n_vocab] = minus infinity where bit i % 32 of masks[r][i / 32] is 0; a row whose masks[r] is NULL is left alone */
    void (*mask)(struct exec *x, float *logits, const uint32_t *const *masks, uint32_t n,
                 uint32_t n_vocab);
    /* out[n] = log of the sum of exp(logits) */
    void (*log_sum_exp)(struct exec *x, double *out, const float *logits, uint32_t n,
                        uint32_t n_vocab);
};

#endif
