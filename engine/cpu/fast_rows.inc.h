/* fast_rows.inc.h - operations on one row, over lanes. Rows of any length: the last, partial vector is loaded with zeros. */
#include <math.h>

#include "engine/cpu/acts.h"
#include "engine/cpu/kernels.h"

/* --- exp -------------------------------------------------------------------------------------------------- */

/* e^x, relative error below 2e-7; 0 below -87.3, at most e^88; a NaN stays one. x = n ln 2 + r; e^r by the Taylor series up to r^7 / 7!,
 * |r| < 0.35. */
LANES_INLINE v16f lanes_exp(v16f x)
{
    const v16f least = v16f_set1(-87.3f), one = v16f_set1(1);
    v16f y = v16f_min(v16f_set1(88), v16f_max(least, x));
    v16i n = v16f_round(v16f_mul(y, v16f_set1(1.44269504f)));
    v16f nf = v16i_float(n);
    v16f r = v16f_fma(nf, v16f_set1(-0.693359375f), y); /* ln 2 in two pieces */
    r = v16f_fma(nf, v16f_set1(2.12194440e-4f), r);
    v16f p = v16f_set1(1.0f / 5040);
    p = v16f_fma(p, r, v16f_set1(1.0f / 720));
    p = v16f_fma(p, r, v16f_set1(1.0f / 120));
    p = v16f_fma(p, r, v16f_set1(1.0f / 24));
    p = v16f_fma(p, r, v16f_set1(1.0f / 6));
    p = v16f_fma(p, r, v16f_set1(0.5f));
    p = v16f_fma(p, r, one);
    p = v16f_fma(p, r, one);
    v16f two_n = v16i_bits(v16i_shl(v16i_add(n, v16i_set1(127)), 23));
    return v16f_where_less(x, least, v16f_zero(), v16f_mul(p, two_n));
}

/* --- rows ------------------------------------------------------------------------------------------------- */

/* For each vector of a row: i is its first element, `n` how many it has (16 or the rest). */
#define FOR_VECTORS(i, len, total)                                                                 \
    for (uint32_t i = 0, len; len = (total)-i < 16 ? (total)-i : 16, i < (total); i += 16)

LANES_INLINE v16f part_load(const float *p, uint32_t n)
{
    return n == 16 ? v16f_load(p) : v16f_load_n(p, n);
}
LANES_INLINE void part_store(float *p, v16f v, uint32_t n)
{
    if (n == 16)
        v16f_store(p, v);
    else
        v16f_store_n(p, v, n);
}

static void fast_norm(float *y, const float *x, const float *scale, uint32_t n, float eps)
{
    v16f sum = v16f_zero();
    FOR_VECTORS(i, len, n)
    {
        v16f v = part_load(x + i, len);
        sum = v16f_fma(v, v, sum);
    }
    v16f r = v16f_set1((float)(1 / sqrt((double)v16f_sum(sum) / n + (double)eps)));
    FOR_VECTORS(i, len, n)
    part_store(y + i, v16f_mul(v16f_mul(part_load(x + i, len), r), part_load(scale + i, len)), len);
}

static void rope_pairs(float *head, const float *angles, uint32_t rope_dim)
{
    FOR_VECTORS(i, len, rope_dim)
    {
        v16f x = part_load(head + i, len), a = part_load(angles + i, len);
        v16f turned = v16f_mul(v16f_swap_pairs(x), v16f_dup_odd(a));
        part_store(head + i, v16f_fma_alternate(x, v16f_dup_even(a), turned), len);
    }
}

static void rope_halves(float *head, const float *angles, uint32_t rope_dim)
{
    uint32_t half = rope_dim / 2;
    FOR_VECTORS(i, len, half)
    {
        v16f u = part_load(head + i, len), v = part_load(head + half + i, len), c, s;
        v16f low = part_load(angles + 2 * i, len < 8 ? 2 * len : 16);
        v16f high = len > 8 ? part_load(angles + 2 * i + 16, 2 * len - 16) : v16f_zero();
        v16f_deinterleave(&c, &s, low, high);
        part_store(head + i, v16f_fms(u, c, v16f_mul(v, s)), len);
        part_store(head + half + i, v16f_fma(v, c, v16f_mul(u, s)), len);
    }
}

static void fast_rope(float *head, const float *angles, uint32_t rope_dim, enum rope_style style)
{
    if (style == ROPE_PAIRS)
        rope_pairs(head, angles, rope_dim);
    else
        rope_halves(head, angles, rope_dim);
}

static void fast_silu_mul(float *gate, const float *up, uint32_t n)
{
    const v16f one = v16f_set1(1);
    FOR_VECTORS(i, len, n)
    {
        v16f g = part_load(gate + i, len);
        v16f e = lanes_exp(v16f_sub(v16f_zero(), g));
        v16f silu = v16f_div(g, v16f_add(one, e));
        part_store(gate + i, v16f_mul(silu, part_load(up + i, len)), len);
    }
}

static void fast_add(float *y, const float *x, uint32_t n)
{
    FOR_VECTORS(i, len, n)
    part_store(y + i, v16f_add(part_load(y + i, len), part_load(x + i, len)), len);
}

static void fast_scale_add(float *y, const float *x, float by, uint32_t n)
{
    FOR_VECTORS(i, len, n)
    part_store(y + i, v16f_fma(v16f_set1(by), part_load(x + i, len), part_load(y + i, len)), len);
}

/* --- activations as integers (acts.h) ------------------------------------------------------------------------- */

static const uint32_t FLOAT_ABS = 0x7fffffff, FLOAT_INF = 0x7f800000;

/* Scale of values whose largest magnitude has these bits, and its inverse. Too small to divide by: zero. */
LANES_INLINE float int_scale(uint32_t most_bits, float limit, float *inverse)
{
    float most;
    memcpy(&most, &most_bits, 4);
    *inverse = 0;
    if (most_bits >= FLOAT_INF)
        return NAN;
    if (most < 1e-30f)
        return 0;
    *inverse = limit / most;
    return most / limit;
}

LANES_INLINE void acts_store(uint8_t *to, uint32_t n_cols, v16i q)
{
    v16i half = v16i_set1(1 << (ACTS_SHIFT - 1));
    v16i high = v16i_shr_signed(v16i_add(q, half), ACTS_SHIFT);
    v16i_store_bytes(to, high);
    v16i_store_bytes(to + acts_low_at(n_cols), v16i_sub(q, v16i_shl(high, ACTS_SHIFT)));
}

static void fast_acts_make(uint8_t *acts, const float *x, uint32_t n_cols)
{
    float *scales = (float *)(void *)(acts + acts_scale_at(n_cols));
    float *sums = (float *)(void *)(acts + acts_sum_at(n_cols));
    int32_t *minus = (int32_t *)(void *)(acts + acts_minus_at(n_cols));
    int32_t *minus16 = (int32_t *)(void *)(acts + acts_minus16_at(n_cols));
    const v16i abs = v16i_set1((int32_t)FLOAT_ABS);
    for (uint32_t b = 0; b < n_cols / ACTS_BLOCK; b++) {
        v16f u = v16f_load(x + 32 * b), v = v16f_load(x + 32 * b + 16);
        uint32_t most =
            v16i_max_of_u(v16i_max_u(v16i_and(v16f_bits(u), abs), v16i_and(v16f_bits(v), abs)));
        float inverse;
        scales[b] = int_scale(most, ACTS_MOST, &inverse);
        v16i p = v16i_zero(), q = v16i_zero();
        if (inverse > 0) {
            p = v16f_round(v16f_mul(u, v16f_set1(inverse)));
            q = v16f_round(v16f_mul(v, v16f_set1(inverse)));
        }
        acts_store(acts + 32 * b, n_cols, p);
        acts_store(acts + 32 * b + 16, n_cols, q);
        minus16[2 * b] = -v16i_sum(p);
        minus16[2 * b + 1] = -v16i_sum(q);
        minus[b] = minus16[2 * b] + minus16[2 * b + 1];
        sums[b] = scales[b] * (float)-minus[b];
    }
}

/* --- outputs ---------------------------------------------------------------------------------------------- */

static bool fast_all_finite(const float *x, uint32_t n)
{
    const v16i abs = v16i_set1((int32_t)FLOAT_ABS);
    v16i most = v16i_zero();
    FOR_VECTORS(i, len, n)
    most = v16i_max_u(most, v16i_and(v16f_bits(part_load(x + i, len)), abs));
    return v16i_max_of_u(most) < FLOAT_INF;
}

/* The highest of all first, then where it first is. */
static uint32_t fast_argmax(const float *x, uint32_t n)
{
    v16f top = v16f_set1(-INFINITY);
    FOR_VECTORS(i, len, n)
    if (len == 16)
        top = v16f_max(v16f_load(x + i), top); /* NaN: `top` stays */
    float best = v16f_max_of(top);
    for (uint32_t i = n / 16 * 16; i < n; i++)
        best = x[i] > best ? x[i] : best;
    for (uint32_t i = 0; i < n; i++)
        if (x[i] == best)
            return i;
    return 0;
}

/* Sixteen F32 sums of 64 terms each go on in double. */
static double fast_log_sum_exp(const float *x, uint32_t n)
{
    enum { RUN = 1024 };
    float top = x[fast_argmax(x, n)];
    double sum = 0;
    for (uint32_t first = 0; first < n; first += RUN) {
        v16f s = v16f_zero();
        uint32_t run = n - first < RUN ? n - first : RUN;
        FOR_VECTORS(i, len, run)
        {
            v16f e = lanes_exp(v16f_sub(part_load(x + first + i, len), v16f_set1(top)));
            s = v16f_add(s, v16f_where_range(0, len, e, v16f_zero()));
        }
        sum += (double)v16f_sum(s);
    }
    return (double)top + log(sum);
}
