/* kernels.h - one set of CPU kernels: what one thread computes on its share of an operation.
 *
 * KERNELS_REF is plain C that sums in double: the truth the others are tested against. The fast sets are one source (fast_*.inc.h, over
 * sixteen lanes: lanes_*.h) compiled for several instruction sets, and give the same bits as each other, so that machines of
 * different kinds can serve one model (`numerics`). Their two rules:
 *   - A lane is an output (weight row, position, element); what it sums, it sums in index order. Nothing is summed across
 *     lanes but in norms, softmax sums and log_sum_exp, in one fixed tree (v16f_sum).
 *   - Weights in blocks meet activations as integers (acts.h): the products of a block are summed exactly; then
 *     block after block, acc = fma((float)dot, w_scale * a_scale, acc), and for formats with a minimum acc = fma(w_min,
 *     a_scale * sum of a, acc). Float weights meet F32 activations: four sums of every fourth column, (s0 + s1) + (s2 + s3).
 * kernels_find picks at run time.
 */
#ifndef EXA_ENGINE_CPU_KERNELS_H
#define EXA_ENGINE_CPU_KERNELS_H

#include "base/err.h"
#include "engine/ops.h"

enum {
    KERNELS_TILE_ROWS = 16, /* output rows that are computed together */
    KERNELS_MAX_HEAD_DIM = 256,
    KERNELS_MAX_GROUP = 64,   /* query heads of one kv head */
    KERNELS_MAX_QUERIES = 64, /* rows * group of one attend_part */
    KERNELS_ATTEND_ROWS =
        48, /* of them wanted: what one conversion of keys and values is shared by */
    KERNELS_PART_TOKENS =
        128, /* attention is summed in parts of so many positions, then over parts in order */
    KERNELS_SLICE_ROWS = 256, /* activation rows of one matmul_part */
};

/* Rows of activations times output rows [begin, end) of m->w; begin is a multiple of KERNELS_TILE_ROWS. */
struct matmul_part {
    const struct matmul *m;
    uint32_t begin, end;
    const float *x; /* row r at x + r * x_stride */
    size_t x_stride;
    const uint8_t *acts; /* the same rows as acts.h has them, if has_acts */
    uint32_t
        n; /* results: result i goes to row o = pick ? pick[i] : i of m->y and takes activations o / in_div */
    const uint32_t *pick;
    uint32_t in_div;
    void *scratch;
};

/* Rows first_position … + n_rows - 1 of one sequence, the query heads of one kv head. */
struct attend_part {
    const struct kv_cache *kv;
    const uint32_t *table; /* the sequence's blocks */
    uint32_t layer, head;  /* kv head */
    uint32_t group, n_rows, first_position, window;
    const float *q; /* row r, head h: q + r * stride + h * head_dim */
    float *out;     /* likewise */
    size_t stride;
    void *scratch;
};

struct kernels {
    const char *name;
    const char *numerics; /* sets of the same one give the same bits */
    uint32_t revision;    /* raised whenever any result bit may change: part of the numerics id */
    bool (*usable)(void);
    size_t (*scratch_bytes)(uint32_t max_cols, uint32_t max_kv); /* of one thread */

    /* Does matmul take weights of this type with activations as in acts.h? */
    bool (*has_acts)(int tensor_type);
    void (*acts_make)(uint8_t *acts, const float *x, uint32_t n_cols);
    void (*matmul)(const struct matmul_part *p);

    void (*norm)(float *y, const float *x, const float *scale, uint32_t n, float eps);
    /* angles: [rope_dim / 2][cos, sin] */
    void (*rope)(float *head, const float *angles, uint32_t rope_dim, enum rope_style style);
    void (*silu_mul)(float *gate, const float *up, uint32_t n);
    void (*add)(float *y, const float *x, uint32_t n);
    void (*scale_add)(float *y, const float *x, float by, uint32_t n); /* y += by * x */

    /* One token's key and value of one head, to their places. */
    void (*kv_store)(const struct kv_cache *kv, uint32_t block, uint32_t layer, uint32_t head,
                     uint32_t at, const float *k, const float *v);
    void (*attend)(const struct attend_part *p);
    /* The same in pieces that several threads compute, NULL: none. Parts are numbered by position / KERNELS_PART_TOKENS;
     * partial: [attend_partial_floats] for each part; merge takes those of parts [first, last] that lie one after the other. */
    void (*attend_one)(const struct attend_part *p, uint32_t part, float *partial);
    void (*attend_merge)(const struct attend_part *p, uint32_t first, uint32_t last,
                         const float *partials);

    bool (*all_finite)(const float *x, uint32_t n);
    uint32_t (*argmax)(const float *x, uint32_t n);
    double (*log_sum_exp)(const float *x, uint32_t n);
};

static inline size_t attend_partial_floats(uint32_t n_queries, uint32_t head_dim)
{
    return (size_t)n_queries * (16 + (head_dim + 15) / 16 * 16); /* maximum, sum, padding; values */
}

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
/* Fuzz targets are linked by clang from all sources but the sets' own: there they may be missing. */
#ifdef __clang__
#define KERNELS_MAYBE __attribute__((weak))
#else
#define KERNELS_MAYBE
#endif
extern const struct kernels KERNELS_AVX2 KERNELS_MAYBE;
extern const struct kernels KERNELS_AVXVNNI KERNELS_MAYBE;
extern const struct kernels KERNELS_AVX512 KERNELS_MAYBE;
extern const struct kernels KERNELS_AMX KERNELS_MAYBE;
extern const struct kernels KERNELS_AMX_BF16 KERNELS_MAYBE;
extern const struct kernels KERNELS_AMX_EMULATED KERNELS_MAYBE; /* for tests */
extern const struct kernels KERNELS_AMX_BF16_EMULATED KERNELS_MAYBE;
#endif

/* name NULL: EXASERVE_KERNELS, else the best this CPU runs. ERR_CONFIG: unknown, or not for this CPU. */
int kernels_find(const struct kernels **out, const char *name, struct err *e);
/* Set i of all, best first; NULL: no more. For tests. */
const struct kernels *kernels_nth(uint32_t i);

#endif
