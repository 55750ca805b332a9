/* kernels.h - one set of CPU kernels: what one thread computes on its share of an operation.
 *
 * KERNELS_REF is plain C that sums in double: the truth the others are tested against. KERNELS_AVX2 has F32 sums in a fixed
 * order of eight lanes. Each file is compiled for its own instruction set (mk/rules.mk); kernels_find picks at run time.
 * Widths (n, n_cols, head_dim) are multiples of 8 and at most KERNELS_MAX_HEAD_DIM for a head: the graph checks.
 */
#ifndef EXA_ENGINE_CPU_KERNELS_H
#define EXA_ENGINE_CPU_KERNELS_H

#include "base/err.h"
#include "engine/ops.h"

enum {
    KERNELS_TILE_ROWS = 4, /* weight rows that are unpacked at once */
    KERNELS_MAX_HEAD_DIM = 256,
    KERNELS_MAX_GROUP = 64, /* query heads of one kv head */
};

struct kernels {
    const char *name;
    uint32_t revision; /* raised whenever any result bit may change: part of the numerics id */
    bool (*usable)(void);

    bool (*has_type)(int tensor_type);
    void (*unpack)(float *y, const void *row, int tensor_type, uint32_t n);
    /* m->y[r][i] for weight rows i in [begin, end) and all r < n; scratch: [KERNELS_TILE_ROWS * n_cols] */
    void (*matmul)(const struct matmul *m, uint32_t begin, uint32_t end, const float *x,
                   size_t x_stride, uint32_t n, float *scratch);
    void (*norm)(float *y, const float *x, const float *scale, uint32_t n, float eps);
    /* angles: [rope_dim / 2][cos, sin] */
    void (*rope)(float *head, const float *angles, uint32_t rope_dim, enum rope_style style);
    /* The query heads of one kv head: out, q: [group][head_dim]; k, v: [n_kv][head_dim]; scores: [n_kv rounded up to 8] */
    void (*attend)(float *out, const float *q, uint32_t group, const float *k, const float *v,
                   uint32_t n_kv, uint32_t head_dim, float *scores);
    void (*silu_mul)(float *gate, const float *up, uint32_t n);
    void (*add)(float *y, const float *x, uint32_t n);
};

/* One result into its place: bias and accumulation in one order everywhere. */
static inline void matmul_put(const struct matmul *m, uint32_t r, uint32_t i, float v)
{
    float *y = m->y + (size_t)r * m->y_stride + i;
    if (m->bias)
        v += m->bias[i];
    *y = m->accumulate ? *y + v : v;
}

extern const struct kernels KERNELS_REF;
#if defined(__x86_64__)
/* Fuzz targets are linked by clang from all sources but the *_avx2.c ones: there it may be missing. */
#ifdef __clang__
extern const struct kernels KERNELS_AVX2 __attribute__((weak));
#else
extern const struct kernels KERNELS_AVX2;
#endif
#endif

/* name NULL: EXASERVE_KERNELS, else the best this CPU runs. ERR_CONFIG: unknown, or not for this CPU. */
int kernels_find(const struct kernels **out, const char *name, struct err *e);

#endif
