/* kernels_ref.c - the reference kernels: plain C, every sum in double, in index order. */
#include "engine/cpu/kernels.h"

#include <math.h>

#include "model/blocks.h"
#include "model/index.h"

static bool ref_usable(void)
{
    return true;
}

static bool ref_has_type(int type)
{
    return tensor_type_info(type) != NULL;
}

static void ref_unpack(float *y, const void *row, int type, uint32_t n)
{
    block_unpack(type, y, row, n);
}

/* Four weight rows against one x: the four sums are independent, so the processor overlaps them; each one
 * is still added in index order. */
static void dot_tile(double sum[4], const float *w, uint32_t n_cols, const float *x)
{
    const float *w0 = w, *w1 = w + n_cols, *w2 = w1 + n_cols, *w3 = w2 + n_cols;
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    for (uint32_t j = 0; j < n_cols; j++) {
        double xj = x[j];
        s0 += (double)w0[j] * xj;
        s1 += (double)w1[j] * xj;
        s2 += (double)w2[j] * xj;
        s3 += (double)w3[j] * xj;
    }
    sum[0] = s0;
    sum[1] = s1;
    sum[2] = s2;
    sum[3] = s3;
}

static void ref_matmul(const struct matmul *job, uint32_t begin, uint32_t end, const float *x,
                       size_t x_stride, uint32_t n, float *scratch)
{
    const struct weight *w = job->w;
    for (uint32_t i = begin; i < end; i += KERNELS_TILE_ROWS) {
        uint32_t m = end - i < KERNELS_TILE_ROWS ? end - i : KERNELS_TILE_ROWS;
        for (uint32_t k = 0; k < m; k++)
            ref_unpack(scratch + (size_t)k * w->n_cols,
                       (const uint8_t *)w->data + (i + k) * w->row_bytes, w->type, w->n_cols);
        /* a short last tile computes on what the scratch holds and drops it */
        for (uint32_t r = 0; r < n; r++) {
            double sum[KERNELS_TILE_ROWS];
            dot_tile(sum, scratch, w->n_cols, x + r * x_stride);
            for (uint32_t k = 0; k < m; k++)
                matmul_put(job, r, i + k, (float)sum[k]);
        }
    }
}

static void ref_norm(float *y, const float *x, const float *scale, uint32_t n, float eps)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    double r = 1 / sqrt(sum / n + (double)eps);
    for (uint32_t i = 0; i < n; i++)
        y[i] = (float)(x[i] * r * scale[i]);
}

static void ref_rope(float *head, const float *angles, uint32_t rope_dim, enum rope_style style)
{
    for (uint32_t i = 0; i < rope_dim / 2; i++) {
        float *u = head + (style == ROPE_PAIRS ? 2 * i : i);
        float *v = head + (style == ROPE_PAIRS ? 2 * i + 1 : i + rope_dim / 2);
        double c = angles[2 * i], s = angles[2 * i + 1], a = *u, b = *v;
        *u = (float)(a * c - b * s);
        *v = (float)(a * s + b * c);
    }
}

static void attend_head(float *out, const float *q, const float *k, const float *v, uint32_t n_kv,
                        uint32_t head_dim, float *scores)
{
    double scale = 1 / sqrt((double)head_dim), top = -INFINITY, total = 0;
    for (uint32_t t = 0; t < n_kv; t++) {
        double s = 0;
        for (uint32_t j = 0; j < head_dim; j++)
            s += (double)q[j] * k[(size_t)t * head_dim + j];
        scores[t] = (float)(s * scale);
        if (scores[t] > top)
            top = scores[t];
    }
    double acc[KERNELS_MAX_HEAD_DIM] = {0};
    for (uint32_t t = 0; t < n_kv; t++) {
        double p = exp(scores[t] - top);
        total += p;
        for (uint32_t j = 0; j < head_dim; j++)
            acc[j] += p * v[(size_t)t * head_dim + j];
    }
    for (uint32_t j = 0; j < head_dim; j++)
        out[j] = (float)(acc[j] / total);
}

static void ref_attend(float *out, const float *q, uint32_t group, const float *k, const float *v,
                       uint32_t n_kv, uint32_t head_dim, float *scores)
{
    for (uint32_t h = 0; h < group; h++)
        attend_head(out + (size_t)h * head_dim, q + (size_t)h * head_dim, k, v, n_kv, head_dim,
                    scores);
}

static void ref_silu_mul(float *gate, const float *up, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        double g = gate[i];
        gate[i] = (float)(g / (1 + exp(-g)) * up[i]);
    }
}

static void ref_add(float *y, const float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] += x[i];
}

const struct kernels KERNELS_REF = {
    .name = "ref",
    .revision = 1,
    .usable = ref_usable,
    .has_type = ref_has_type,
    .unpack = ref_unpack,
    .matmul = ref_matmul,
    .norm = ref_norm,
    .rope = ref_rope,
    .attend = ref_attend,
    .silu_mul = ref_silu_mul,
    .add = ref_add,
};
