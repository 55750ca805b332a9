/* exec.h - the inside of the CPU's exec: what the files of cpu/ that implement ops.h share. */
#ifndef EXA_ENGINE_CPU_EXEC_H
#define EXA_ENGINE_CPU_EXEC_H

#include "engine/cpu/exec_cpu.h"

enum {
    EXEC_MAX_TILES = 512, /* attention: rows of one slice, each of which may be a tile */
    EXEC_PARTIALS_BYTES =
        8
        << 20, /* attention by parts: a long context's on many threads; pages cost nothing until used */
};

struct exec {
    const struct kernels *k;
    struct pool *pool;
    uint8_t *scratch; /* [n_threads][scratch_stride] */
    size_t scratch_stride;
    uint32_t max_cols;
    uint8_t *acts;   /* [KERNELS_SLICE_ROWS] rows as in acts.h */
    float *partials; /* [EXEC_PARTIALS_BYTES] */
    uint32_t tiles[EXEC_MAX_TILES + 1];
    uint32_t picks[KERNELS_SLICE_ROWS]; /* ops_matmul.c, struct experts_call */
    uint32_t expert_no[KERNELS_SLICE_ROWS], expert_at[KERNELS_SLICE_ROWS + 1];
    uint64_t busy_ns; /* in exec_for since creation */
};

static inline void *exec_scratch(const struct exec *x, uint32_t thread)
{
    return x->scratch + thread * x->scratch_stride;
}

/* pool_for, and its time is counted. */
void exec_for(struct exec *x, uint32_t n_items, uint32_t grain, pool_fn fn, void *ctx);

static inline uint32_t step_block(const struct step *s, uint32_t seq, uint32_t position)
{
    return s->tables[(size_t)seq * s->table_stride + position / KV_BLOCK_TOKENS];
}

/* --- exec_cpu.c --- */
void *cpu_mem_alloc(struct exec *x, enum mem_kind kind, size_t n_bytes);
void cpu_mem_free(struct exec *x, enum mem_kind kind, void *p, size_t n_bytes);
void cpu_copy(struct exec *x, void *to, const void *from, size_t n_bytes);
int cpu_stream_create(struct exec *x, struct stream **out, struct err *e);
void cpu_stream_destroy(struct exec *x, struct stream *s);
int cpu_stream_sync(struct exec *x, struct stream *s, struct err *e);
int cpu_event_create(struct exec *x, struct event **out, struct err *e);
void cpu_event_touch(struct exec *x, struct event *v);
bool cpu_event_done(struct exec *x, struct event *v);
int cpu_weight_bind(struct exec *x, struct weight *w, const char *name, struct err *e);
void cpu_weight_unbind(struct exec *x, struct weight *w);

/* --- ops_matmul.c --- */
void cpu_matmul(struct exec *x, const struct matmul *jobs, uint32_t n_jobs, const float *in,
                size_t in_stride, uint32_t n);
void cpu_matmul_experts(struct exec *x, float *y, size_t y_stride, const struct weight *w,
                        const uint32_t *choice, const float *in, size_t in_stride, uint32_t in_div,
                        uint32_t n);

/* --- ops_attend.c --- */
size_t cpu_kv_block_bytes(int kv_type, uint32_t n_layers, uint32_t n_kv_heads, uint32_t head_dim);
void cpu_kv_store(struct exec *x, const struct kv_cache *kv, uint32_t layer, const float *k,
                  const float *v, const struct step *s);
void cpu_kv_copy(struct exec *x, const struct kv_cache *kv, uint32_t from_block, uint32_t to_block);
void cpu_attend(struct exec *x, float *out, const float *q, uint32_t n_heads,
                const struct kv_cache *kv, uint32_t layer, uint32_t window, const struct step *s);

/* --- ops_output.c --- */
void cpu_route(struct exec *x, uint32_t *choice, float *share, const float *logits,
               uint32_t n_experts, uint32_t n_used, bool renorm, uint32_t n);
void cpu_experts_sum(struct exec *x, float *y, const float *in, const float *share, uint32_t n_used,
                     uint32_t n, uint32_t width);
void cpu_gather(struct exec *x, float *y, const float *in, uint32_t width, const struct step *s);
void cpu_pool_sum(struct exec *x, float *sum, const float *in, uint32_t width,
                  const struct step *s);
void cpu_mark_nonfinite(struct exec *x, uint16_t *bad, uint16_t mark, const float *in, uint32_t n,
                        uint32_t width);
void cpu_argmax(struct exec *x, uint32_t *ids, const float *logits, uint32_t n, uint32_t n_vocab);
void cpu_mask(struct exec *x, float *logits, const uint32_t *const *masks, uint32_t n,
              uint32_t n_vocab);
void cpu_log_sum_exp(struct exec *x, double *out, const float *logits, uint32_t n,
                     uint32_t n_vocab);

#endif
