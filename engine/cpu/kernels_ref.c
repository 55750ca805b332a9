/* kernels_ref.c - the reference kernels: plain C, every sum in double, in index order. */
#include "engine/cpu/kernels.h"

#include <math.h>

#include "engine/cpu/blocks.h"
#include "model/index.h"

static bool ref_usable(void)
{
    return true;
}

static bool ref_has_type(int type)
{
    switch (type) {
    case TENSOR_F32:
    case TENSOR_F16:
    case TENSOR_BF16:
    case TENSOR_Q4_0:
    case TENSOR_Q4_1:
    case TENSOR_Q8_0:
        return true;
    default:
        return false;
    }
}

static void unpack_q4_0(float *y, const struct block_q4_0 *b, uint32_t n)
{
    for (; n >= BLOCK_WEIGHTS; n -= BLOCK_WEIGHTS, b++, y += BLOCK_WEIGHTS) {
        float d = half_float(b->d);
        for (int i = 0; i < 16; i++) {
            y[i] = d * (float)((b->nibbles[i] & 15) - 8);
            y[i + 16] = d * (float)((b->nibbles[i] >> 4) - 8);
        }
    }
}

static void unpack_q4_1(float *y, const struct block_q4_1 *b, uint32_t n)
{
    for (; n >= BLOCK_WEIGHTS; n -= BLOCK_WEIGHTS, b++, y += BLOCK_WEIGHTS) {
        float d = half_float(b->d), m = half_float(b->m);
        for (int i = 0; i < 16; i++) {
            y[i] = d * (float)(b->nibbles[i] & 15) + m;
            y[i + 16] = d * (float)(b->nibbles[i] >> 4) + m;
        }
    }
}

static void unpack_q8_0(float *y, const struct block_q8_0 *b, uint32_t n)
{
    for (; n >= BLOCK_WEIGHTS; n -= BLOCK_WEIGHTS, b++, y += BLOCK_WEIGHTS) {
        float d = half_float(b->d);
        for (int i = 0; i < BLOCK_WEIGHTS; i++)
            y[i] = d * (float)b->q[i];
    }
}

static void ref_unpack(float *y, const void *row, int type, uint32_t n)
{
    const uint8_t *p = row;
    switch (type) {
    case TENSOR_F32:
        memcpy(y, row, 4 * (size_t)n);
        break;
    case TENSOR_F16:
        for (uint32_t i = 0; i < n; i++)
            y[i] = half_float(p + 2 * i);
        break;
    case TENSOR_BF16:
        for (uint32_t i = 0; i < n; i++) {
            uint32_t bits = (uint32_t)p[2 * i] << 16 | (uint32_t)p[2 * i + 1] << 24;
            memcpy(&y[i], &bits, 4);
        }
        break;
    case TENSOR_Q4_0:
        unpack_q4_0(y, row, n);
        break;
    case TENSOR_Q4_1:
        unpack_q4_1(y, row, n);
        break;
    case TENSOR_Q8_0:
        unpack_q8_0(y, row, n);
        break;
    }
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
