/* kernels_ref.c - the reference kernels: plain C, every sum in double, in index order. */
#include <math.h>

#include "engine/cpu/kernels.h"
#include "engine/cpu/kv_layout.h"
#include "model/blocks.h"

enum { REF_ROWS = 4 }; /* weight rows that are unpacked at once */

static bool ref_usable(void)
{
    return true;
}

static size_t ref_scratch_bytes(uint32_t max_cols, uint32_t max_kv)
{
    size_t tile = (size_t)REF_ROWS * max_cols * sizeof(float), scores = max_kv * sizeof(double);
    return tile > scores ? tile : scores;
}

static bool ref_has_acts(int type)
{
    return false;
}

static void ref_acts_make(uint8_t *acts, const float *x, uint32_t n_cols)
{
}

/* Four weight rows against one x: the four sums are independent, so the processor overlaps them; each one
 * is still added in index order. */
static void dot_tile(double sum[REF_ROWS], const float *w, uint32_t n_cols, const float *x)
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

static void ref_matmul(const struct matmul_part *p)
{
    const struct weight *w = p->m->w;
    float *rows = p->scratch;
    for (uint32_t i = p->begin; i < p->end; i += REF_ROWS) {
        uint32_t m = p->end - i < REF_ROWS ? p->end - i : REF_ROWS;
        for (uint32_t k = 0; k < REF_ROWS; k++) /* of a short last tile, the last row again */
            block_unpack(w->type, rows + (size_t)k * w->n_cols,
                         (const uint8_t *)w->data + (i + (k < m ? k : m - 1)) * w->row_bytes,
                         w->n_cols);
        for (uint32_t r = 0; r < p->n; r++) {
            double sum[REF_ROWS];
            uint32_t o = p->pick ? p->pick[r] : r;
            dot_tile(sum, rows, w->n_cols, p->x + (size_t)(o / p->in_div) * p->x_stride);
            for (uint32_t k = 0; k < m; k++)
                matmul_put(p->m, o, i + k, (float)sum[k]);
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

static void ref_scale_add(float *y, const float *x, float by, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = (float)((double)y[i] + (double)by * x[i]);
}

/* --- keys and values -------------------------------------------------------------------------------------- */

static void elem_put(uint8_t *base, int type, size_t at, float value, float scale)
{
    if (type == KV_F32)
        memcpy(base + 4 * at, &value, 4);
    else if (type == KV_F16)
        float_half(base + 2 * at, value);
    else
        base[at] = scale > 0 ? (uint8_t)(int8_t)lrint((double)value / (double)scale) : 0;
}

static double elem_get(const uint8_t *base, int type, size_t at, float scale)
{
    float v;
    if (type == KV_Q8)
        return (double)scale * (int8_t)base[at];
    if (type == KV_F16)
        return half_float(base + 2 * at);
    memcpy(&v, base + 4 * at, 4);
    return v;
}

/* Of one token's head: largest magnitude / 127; 0 for a head of (almost) zeros, NaN if anything is not finite. */
static float q8_scale(const float *in, uint32_t n)
{
    float most = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!isfinite(in[i]))
            return NAN;
        most = fabsf(in[i]) > most ? fabsf(in[i]) : most;
    }
    return most < 1e-30f ? 0 : most / 127;
}

static void ref_kv_store(const struct kv_cache *kv, uint32_t block, uint32_t layer, uint32_t head,
                         uint32_t at, const float *k, const float *v)
{
    struct kv_slab slab = kv_slab(kv, block, layer, head);
    uint32_t dim = kv->head_dim, padded = kv_dim_padded(dim);
    float k_scale = 1, v_scale = 1;
    if (kv->type == KV_Q8) {
        slab.k_scale[at] = k_scale = q8_scale(k, dim);
        slab.v_scale[at] = v_scale = q8_scale(v, dim);
    }
    for (uint32_t c = 0; c < dim; c++)
        elem_put(slab.k, kv->type, c * KV_BLOCK_TOKENS + at, k[c], k_scale);
    for (uint32_t c = 0; c < padded; c++)
        elem_put(slab.v, kv->type, (size_t)at * padded + c, c < dim ? v[c] : 0, v_scale);
}

static struct kv_slab slab_of(const struct attend_part *p, uint32_t position)
{
    return kv_slab(p->kv, p->table[position / KV_BLOCK_TOKENS], p->layer, p->head);
}

static double score(const struct attend_part *p, const float *q, uint32_t position)
{
    struct kv_slab slab = slab_of(p, position);
    uint32_t at = position % KV_BLOCK_TOKENS;
    float scale = p->kv->type == KV_Q8 ? slab.k_scale[at] : 1;
    double s = 0;
    for (uint32_t c = 0; c < p->kv->head_dim; c++)
        s += q[c] * elem_get(slab.k, p->kv->type, (size_t)c * KV_BLOCK_TOKENS + at, scale);
    return s / sqrt((double)p->kv->head_dim);
}

static void attend_head(const struct attend_part *p, float *out, const float *q, uint32_t first,
                        uint32_t last)
{
    double *scores = p->scratch, top = -INFINITY, total = 0, acc[KERNELS_MAX_HEAD_DIM] = {0};
    uint32_t dim = p->kv->head_dim, padded = kv_dim_padded(dim);
    for (uint32_t t = first; t < last; t++) {
        scores[t - first] = score(p, q, t);
        if (scores[t - first] > top)
            top = scores[t - first];
    }
    for (uint32_t t = first; t < last; t++) {
        struct kv_slab slab = slab_of(p, t);
        uint32_t at = t % KV_BLOCK_TOKENS;
        float scale = p->kv->type == KV_Q8 ? slab.v_scale[at] : 1;
        double e = exp(scores[t - first] - top);
        total += e;
        for (uint32_t c = 0; c < dim; c++)
            acc[c] += e * elem_get(slab.v, p->kv->type, (size_t)at * padded + c, scale);
    }
    for (uint32_t c = 0; c < dim; c++)
        out[c] = (float)(acc[c] / total);
}

static void ref_attend(const struct attend_part *p)
{
    for (uint32_t r = 0; r < p->n_rows; r++) {
        uint32_t last = p->first_position + r + 1;
        uint32_t first = p->window && last > p->window ? last - p->window : 0;
        for (uint32_t h = 0; h < p->group; h++) {
            size_t at = r * p->stride + (size_t)h * p->kv->head_dim;
            attend_head(p, p->out + at, p->q + at, first, last);
        }
    }
}

/* --- outputs ---------------------------------------------------------------------------------------------- */

static bool ref_all_finite(const float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

static uint32_t ref_argmax(const float *x, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (x[i] > x[best] || (isnan(x[best]) && !isnan(x[i])))
            best = i;
    return best;
}

static double ref_log_sum_exp(const float *x, uint32_t n)
{
    double top = x[ref_argmax(x, n)], sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += exp(x[i] - top);
    return top + log(sum);
}

const struct kernels KERNELS_REF = {
    .name = "ref",
    .numerics = "ref",
    .revision = 2,
    .usable = ref_usable,
    .scratch_bytes = ref_scratch_bytes,
    .has_acts = ref_has_acts,
    .acts_make = ref_acts_make,
    .matmul = ref_matmul,
    .norm = ref_norm,
    .rope = ref_rope,
    .silu_mul = ref_silu_mul,
    .add = ref_add,
    .scale_add = ref_scale_add,
    .kv_store = ref_kv_store,
    .attend = ref_attend,
    .all_finite = ref_all_finite,
    .argmax = ref_argmax,
    .log_sum_exp = ref_log_sum_exp,
};
