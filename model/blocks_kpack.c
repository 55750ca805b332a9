/* blocks_kpack.c - 256 weights as blocks of Q4_K, Q5_K and Q6_K: scales of sub-blocks, themselves quantised.
 *
 * Each sub-block gets its best scale (and min) as floats; the largest sets d (dmin). Then each
 * quantised scale and its neighbours are tried with the d that is stored, and last d (and dmin) are
 * solved again for all weights at once, which is kept if it errs less.
 */
#include "model/blocks_format.h"

#include <math.h>

static int clamp_int(int v, int lo, int hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

/* Whole number nearest to v / unit, inside [lo, hi]; unit 0: 0. */
static int in_units(float v, float unit, int lo, int hi)
{
    float q = unit != 0 ? v / unit : 0;
    return q > (float)lo ? q < (float)hi ? (int)lrintf(q) : hi : lo;
}

/* --- Q4_K and Q5_K ------------------------------------------------------------------------------ */

enum { K_SUBS = 8, K_SUB = 32, K_SIX_BITS = 63 };

struct kpair {
    float d, dmin; /* as stored */
    int scale[K_SUBS], min[K_SUBS];
};

static struct fit kpair_fit(const struct kpair *k, int j)
{
    return (struct fit){k->d * (float)k->scale[j], -(k->dmin * (float)k->min[j])};
}

/* The best of the nine neighbours of sub-block j's numbers. */
static float kpair_refine(struct kpair *k, const float *x, int j, int levels)
{
    int s0 = k->scale[j], m0 = k->min[j], s_best = s0, m_best = m0;
    float best = INFINITY;
    for (int s = s0 - 1; s <= s0 + 1; s++)
        for (int m = m0 - 1; m <= m0 + 1; m++) {
            if (s < 0 || s > K_SIX_BITS || m < 0 || m > K_SIX_BITS)
                continue;
            k->scale[j] = s;
            k->min[j] = m;
            float error = fit_error(x, K_SUB, kpair_fit(k, j), 0, levels, NULL);
            if (error < best) {
                best = error;
                s_best = s;
                m_best = m;
            }
        }
    k->scale[j] = s_best;
    k->min[j] = m_best;
    return best;
}

static float kpair_refine_all(struct kpair *k, const float *x, int levels)
{
    float error = 0;
    for (int j = 0; j < K_SUBS; j++)
        error += kpair_refine(k, x + j * K_SUB, j, levels);
    return error;
}

/* d and dmin of least error for the q there are: x ~ d * a - dmin * b with a = scale * q, b = min. */
static bool kpair_solve(struct kpair *k, const float *x, int levels)
{
    double aa = 0, ab = 0, bb = 0, xa = 0, xb = 0;
    for (int j = 0; j < K_SUBS; j++) {
        float q[K_SUB];
        fit_error(x + j * K_SUB, K_SUB, kpair_fit(k, j), 0, levels, q);
        for (int i = 0; i < K_SUB; i++) {
            double a = (double)k->scale[j] * (double)q[i], b = k->min[j];
            double v = (double)x[j * K_SUB + i];
            aa += a * a;
            ab += a * b;
            bb += b * b;
            xa += v * a;
            xb += v * b;
        }
    }
    double det = aa * bb - ab * ab;
    double d = det > 0 ? (xa * bb - xb * ab) / det : aa > 0 ? xa / aa : 0;
    double dmin = det > 0 ? (xa * ab - xb * aa) / det : 0;
    if (!(d > 0) || dmin < 0)
        return false;
    k->d = fit_store_half((float)d);
    k->dmin = fit_store_half((float)dmin);
    return isfinite(k->d) && isfinite(k->dmin);
}

static struct kpair kpair_make(const float *x, int levels)
{
    struct fit fits[K_SUBS];
    float max_scale = 0, max_min = 0;
    for (int j = 0; j < K_SUBS; j++) {
        fits[j] = fit_scale_min(x + j * K_SUB, K_SUB, levels, true, fit_store_float);
        max_scale = fits[j].scale > max_scale ? fits[j].scale : max_scale;
        max_min = -fits[j].min > max_min ? -fits[j].min : max_min;
    }
    struct kpair k = {.d = fit_store_half(max_scale / K_SIX_BITS),
                      .dmin = fit_store_half(max_min / K_SIX_BITS)};
    if (!isfinite(k.d) || !isfinite(k.dmin))
        return k;
    for (int j = 0; j < K_SUBS; j++) {
        k.scale[j] = in_units(fits[j].scale, k.d, 0, K_SIX_BITS);
        k.min[j] = in_units(-fits[j].min, k.dmin, 0, K_SIX_BITS);
    }
    float error = kpair_refine_all(&k, x, levels);
    struct kpair again = k;
    if (kpair_solve(&again, x, levels) && kpair_refine_all(&again, x, levels) < error)
        k = again;
    return k;
}

/* The inverse of kblock_scale_min. */
static void scales_put(uint8_t scales[12], const struct kpair *k)
{
    memset(scales, 0, 12);
    for (int j = 0; j < 4; j++) {
        scales[j] = (uint8_t)(k->scale[j] | k->scale[j + 4] >> 4 << 6);
        scales[j + 4] = (uint8_t)(k->min[j] | k->min[j + 4] >> 4 << 6);
        scales[j + 8] = (uint8_t)((k->scale[j + 4] & 15) | (k->min[j + 4] & 15) << 4);
    }
}

/* What both formats share: d, dmin, scales, and q of all weights. */
static void kpair_pack(const float *x, int levels, uint8_t d[2], uint8_t dmin[2],
                       uint8_t scales[12], float q[KBLOCK_WEIGHTS])
{
    struct kpair k = {.d = NAN, .dmin = NAN};
    memset(q, 0, KBLOCK_WEIGHTS * sizeof *q);
    if (isfinite(blocks_abs_max(x, KBLOCK_WEIGHTS)))
        k = kpair_make(x, levels);
    if (isfinite(k.d) && isfinite(k.dmin))
        for (int j = 0; j < K_SUBS; j++)
            fit_error(x + j * K_SUB, K_SUB, kpair_fit(&k, j), 0, levels, q + j * K_SUB);
    float_half(d, k.d);
    float_half(dmin, k.dmin);
    scales_put(scales, &k);
}

static void knibbles_put(uint8_t nibbles[128], const float q[KBLOCK_WEIGHTS])
{
    for (int i = 0; i < 128; i++) {
        const float *pair = q + i / 32 * 64 + i % 32;
        nibbles[i] = (uint8_t)(((int)pair[0] & 15) | ((int)pair[32] & 15) << 4);
    }
}

void q4_k_pack(void *blocks, const float *x)
{
    struct block_q4_k *b = blocks;
    float q[KBLOCK_WEIGHTS];
    kpair_pack(x, 15, b->d, b->dmin, b->scales, q);
    knibbles_put(b->nibbles, q);
}

void q5_k_pack(void *blocks, const float *x)
{
    struct block_q5_k *b = blocks;
    float q[KBLOCK_WEIGHTS];
    kpair_pack(x, 31, b->d, b->dmin, b->scales, q);
    knibbles_put(b->nibbles, q);
    memset(b->high, 0, sizeof b->high);
    for (int i = 0; i < KBLOCK_WEIGHTS; i++)
        b->high[i % 32] |= (uint8_t)(((int)q[i] >> 4 & 1) << i / 32);
}

/* --- Q6_K --------------------------------------------------------------------------------------- */

enum { Q6_SUBS = 16, Q6_SUB = 16, Q6_LO = -32, Q6_HI = 31 };

struct ksigned {
    float d; /* as stored */
    int scale[Q6_SUBS];
};

static float ksigned_refine(struct ksigned *k, const float *x)
{
    float total = 0;
    for (int j = 0; j < Q6_SUBS; j++) {
        int at = k->scale[j], s_best = at;
        float best = INFINITY;
        for (int s = at - 1; s <= at + 1; s++) {
            struct fit f = {k->d * (float)clamp_int(s, -128, 127), 0};
            float error = fit_error(x + j * Q6_SUB, Q6_SUB, f, Q6_LO, Q6_HI, NULL);
            if (error < best) {
                best = error;
                s_best = clamp_int(s, -128, 127);
            }
        }
        k->scale[j] = s_best;
        total += best;
    }
    return total;
}

static bool ksigned_solve(struct ksigned *k, const float *x)
{
    double aa = 0, xa = 0;
    for (int j = 0; j < Q6_SUBS; j++) {
        float q[Q6_SUB];
        struct fit f = {k->d * (float)k->scale[j], 0};
        fit_error(x + j * Q6_SUB, Q6_SUB, f, Q6_LO, Q6_HI, q);
        for (int i = 0; i < Q6_SUB; i++) {
            double a = (double)k->scale[j] * (double)q[i];
            aa += a * a;
            xa += (double)x[j * Q6_SUB + i] * a;
        }
    }
    if (!(aa > 0))
        return false;
    k->d = fit_store_half((float)(xa / aa));
    return isfinite(k->d);
}

static struct ksigned ksigned_make(const float *x)
{
    struct fit fits[Q6_SUBS];
    float extreme = 0;
    for (int j = 0; j < Q6_SUBS; j++) {
        fits[j] = fit_scale(x + j * Q6_SUB, Q6_SUB, Q6_LO, Q6_HI, fit_store_float);
        if (fabsf(fits[j].scale) > fabsf(extreme))
            extreme = fits[j].scale;
    }
    struct ksigned k = {.d = fit_store_half(extreme / -128)};
    if (!isfinite(k.d))
        return k;
    for (int j = 0; j < Q6_SUBS; j++)
        k.scale[j] = in_units(fits[j].scale, k.d, -128, 127);
    float error = ksigned_refine(&k, x);
    struct ksigned again = k;
    if (ksigned_solve(&again, x) && ksigned_refine(&again, x) < error)
        k = again;
    return k;
}

void q6_k_pack(void *blocks, const float *x)
{
    struct block_q6_k *b = blocks;
    struct ksigned k = {.d = NAN};
    memset(b, 0, sizeof *b);
    if (isfinite(blocks_abs_max(x, KBLOCK_WEIGHTS)))
        k = ksigned_make(x);
    float_half(b->d, k.d);
    if (!isfinite(k.d))
        return;
    float q[KBLOCK_WEIGHTS];
    for (int j = 0; j < Q6_SUBS; j++) {
        struct fit f = {k.d * (float)k.scale[j], 0};
        fit_error(x + j * Q6_SUB, Q6_SUB, f, Q6_LO, Q6_HI, q + j * Q6_SUB);
        b->scales[j] = (int8_t)k.scale[j];
    }
    for (int i = 0; i < KBLOCK_WEIGHTS; i++) {
        int v = (int)q[i] + 32, half = i / 128, kk = i / 32 % 4, at = i % 32;
        b->low[half * 64 + kk % 2 * 32 + at] |= (uint8_t)((v & 15) << kk / 2 * 4);
        b->high[half * 32 + at] |= (uint8_t)(v >> 4 << 2 * kk);
    }
}
