/* kernels_avx2.c - kernels for AVX2, FMA and F16C with F32 activations and F32 sums.
 *
 * One rule gives batch invariance: every dot product is eight lanes, lane l adding elements l, l+8, l+16 … by
 * fused multiply-add in that order, then one fixed tree over the lanes (lanes_sum). How many weight rows and activation rows
 * a tile works on at once changes which registers are used, never that order.
 */
#include "engine/cpu/kernels.h"

#include <cpuid.h>
#include <immintrin.h>
#include <math.h>

#include "model/blocks.h"
#include "model/index.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum {
    LANES = 8,
    TILE_X = 3, /* activation rows of a tile: 4 × 3 sums + 1 + 3 operands fill the 16 registers */
};

static bool avx2_usable(void)
{
    /* clang's __builtin_cpu_supports does not know f16c */
    unsigned a, b, c = 0, d;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
}

static bool avx2_has_type(int type)
{
    return KERNELS_REF.has_type(type);
}

ALWAYS_INLINE float lanes_sum(__m256 v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    s = _mm_add_ss(s, _mm_movehdup_ps(s));
    return _mm_cvtss_f32(s);
}

ALWAYS_INLINE float lanes_max(__m256 v)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    s = _mm_max_ss(s, _mm_movehdup_ps(s));
    return _mm_cvtss_f32(s);
}

/* --- unpacking rows -------------------------------------------------------------------------------------- */

ALWAYS_INLINE __m256 half_wide(const uint8_t p[2])
{
    uint16_t h;
    memcpy(&h, p, 2);
    return _mm256_set1_ps(_cvtsh_ss(h));
}

/* y[0..15] = d * bytes + m */
ALWAYS_INLINE void store_16(float *y, __m128i bytes, __m256 d, __m256 m)
{
    __m256 a = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
    __m256 b = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)));
    _mm256_storeu_ps(y, _mm256_fmadd_ps(a, d, m));
    _mm256_storeu_ps(y + 8, _mm256_fmadd_ps(b, d, m));
}

ALWAYS_INLINE void store_nibbles(float *y, const uint8_t *nibbles, __m256 d, __m256 m)
{
    const __m128i low = _mm_set1_epi8(15);
    __m128i q = _mm_loadu_si128((const __m128i *)nibbles);
    store_16(y, _mm_and_si128(q, low), d, m);
    store_16(y + 16, _mm_and_si128(_mm_srli_epi16(q, 4), low), d, m);
}

static void unpack_q4_0(float *y, const struct block_q4_0 *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += BLOCK_WEIGHTS, b++) {
        __m256 d = half_wide(b->d);
        store_nibbles(y + i, b->nibbles, d, _mm256_mul_ps(d, _mm256_set1_ps(-8)));
    }
}

static void unpack_q4_1(float *y, const struct block_q4_1 *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += BLOCK_WEIGHTS, b++)
        store_nibbles(y + i, b->nibbles, half_wide(b->d), half_wide(b->m));
}

static void unpack_q8_0(float *y, const struct block_q8_0 *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += BLOCK_WEIGHTS, b++) {
        __m256 d = half_wide(b->d);
        for (uint32_t j = 0; j < BLOCK_WEIGHTS; j += LANES) {
            __m128i q = _mm_loadl_epi64((const __m128i *)(b->q + j));
            __m256 f = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q));
            _mm256_storeu_ps(y + i + j, _mm256_mul_ps(f, d));
        }
    }
}

static void unpack_16bit(float *y, const uint8_t *p, bool is_bf16, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += LANES) {
        __m128i h = _mm_loadu_si128((const __m128i *)(p + 2 * i));
        __m256 f = is_bf16 ? _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16))
                           : _mm256_cvtph_ps(h);
        _mm256_storeu_ps(y + i, f);
    }
}

static void avx2_unpack(float *y, const void *row, int type, uint32_t n)
{
    switch (type) {
    case TENSOR_F32:
        memcpy(y, row, 4 * (size_t)n);
        break;
    case TENSOR_F16:
    case TENSOR_BF16:
        unpack_16bit(y, row, type == TENSOR_BF16, n);
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
    default:
        block_unpack(type, y, row, n);
    }
}

/* --- matrix products ------------------------------------------------------------------------------------- */

/* MW weight rows (w: [MW][n_cols]) times MX activation rows; both are constants where this is inlined. */
ALWAYS_INLINE void tile(const int MW, const int MX, const struct matmul *m, uint32_t r0,
                        uint32_t i0, const float *w, const float *x, size_t x_stride,
                        uint32_t n_cols)
{
    __m256 acc[KERNELS_TILE_ROWS][TILE_X];
#pragma GCC unroll 4
    for (int i = 0; i < MW; i++)
#pragma GCC unroll 3
        for (int r = 0; r < MX; r++)
            acc[i][r] = _mm256_setzero_ps();
    for (uint32_t j = 0; j < n_cols; j += LANES) {
        __m256 xv[TILE_X];
#pragma GCC unroll 3
        for (int r = 0; r < MX; r++)
            xv[r] = _mm256_loadu_ps(x + (size_t)r * x_stride + j);
#pragma GCC unroll 4
        for (int i = 0; i < MW; i++) {
            __m256 wv = _mm256_loadu_ps(w + (size_t)i * n_cols + j);
#pragma GCC unroll 3
            for (int r = 0; r < MX; r++)
                acc[i][r] = _mm256_fmadd_ps(wv, xv[r], acc[i][r]);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < MW; i++)
#pragma GCC unroll 3
        for (int r = 0; r < MX; r++)
            matmul_put(m, r0 + (uint32_t)r, i0 + (uint32_t)i, lanes_sum(acc[i][r]));
}

ALWAYS_INLINE void tiles_over_rows(const int MW, const struct matmul *m, uint32_t i0,
                                   const float *w, const float *x, size_t x_stride, uint32_t n,
                                   uint32_t n_cols)
{
    uint32_t r = 0;
    for (; r + 3 <= n; r += 3)
        tile(MW, 3, m, r, i0, w, x + r * x_stride, x_stride, n_cols);
    if (n - r == 2)
        tile(MW, 2, m, r, i0, w, x + r * x_stride, x_stride, n_cols);
    else if (n - r == 1)
        tile(MW, 1, m, r, i0, w, x + r * x_stride, x_stride, n_cols);
}

static void avx2_matmul(const struct matmul *job, uint32_t begin, uint32_t end, const float *x,
                        size_t x_stride, uint32_t n, float *scratch)
{
    const struct weight *w = job->w;
    uint32_t n_cols = w->n_cols;
    for (uint32_t i = begin; i < end; i += KERNELS_TILE_ROWS) {
        uint32_t m = end - i < KERNELS_TILE_ROWS ? end - i : KERNELS_TILE_ROWS;
        for (uint32_t k = 0; k < m; k++)
            avx2_unpack(scratch + (size_t)k * n_cols,
                        (const uint8_t *)w->data + (i + k) * w->row_bytes, w->type, n_cols);
        if (m == KERNELS_TILE_ROWS)
            tiles_over_rows(4, job, i, scratch, x, x_stride, n, n_cols);
        else
            for (uint32_t k = 0; k < m; k++)
                tiles_over_rows(1, job, i + k, scratch + (size_t)k * n_cols, x, x_stride, n,
                                n_cols);
    }
}

/* --- the rest of a layer --------------------------------------------------------------------------------- */

static void avx2_norm(float *y, const float *x, const float *scale, uint32_t n, float eps)
{
    __m256 acc = _mm256_setzero_ps();
    for (uint32_t i = 0; i < n; i += LANES) {
        __m256 v = _mm256_loadu_ps(x + i);
        acc = _mm256_fmadd_ps(v, v, acc);
    }
    __m256 r = _mm256_set1_ps(1 / sqrtf(lanes_sum(acc) / (float)n + eps));
    for (uint32_t i = 0; i < n; i += LANES) {
        __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x + i), r);
        _mm256_storeu_ps(y + i, _mm256_mul_ps(v, _mm256_loadu_ps(scale + i)));
    }
}

static void avx2_rope(float *head, const float *angles, uint32_t rope_dim, enum rope_style style)
{
    for (uint32_t i = 0; i < rope_dim / 2; i++) {
        float *u = head + (style == ROPE_PAIRS ? 2 * i : i);
        float *v = head + (style == ROPE_PAIRS ? 2 * i + 1 : i + rope_dim / 2);
        float c = angles[2 * i], s = angles[2 * i + 1], a = *u, b = *v;
        *u = a * c - b * s;
        *v = a * s + b * c;
    }
}

/* exp for x <= 88: 2^n * e^r with |r| <= ln 2 / 2, r reduced in two steps, e^r by its Taylor polynomial of degree 7 (remainder
 * below 3e-9, less than half a unit in the last place). Own code, not the C library's: the bits are part of the numerics id. */
ALWAYS_INLINE __m256 exp_lanes(__m256 x)
{
    /* NaN is the second operand of min and max, which is what they then return */
    x = _mm256_max_ps(_mm256_set1_ps(-87), _mm256_min_ps(_mm256_set1_ps(88), x));
    __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
    static const float COEF[] = {1.f / 720, 1.f / 120, 1.f / 24, 1.f / 6, 0.5f, 1, 1};
    __m256 p = _mm256_set1_ps(1.f / 5040);
#pragma GCC unroll 7
    for (int i = 0; i < 7; i++)
        p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(COEF[i]));
    __m256i e = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(e, 23)));
}

/* scores[t] = exp(score - highest); returns 1 / their sum. The tail up to a whole vector is minus infinity, thus e^-87: it
 * is set to zero before summing. */
static float softmax(float *scores, uint32_t n_kv)
{
    uint32_t padded = (n_kv + LANES - 1) & ~(uint32_t)(LANES - 1);
    for (uint32_t t = n_kv; t < padded; t++)
        scores[t] = -INFINITY;
    __m256 top = _mm256_set1_ps(-INFINITY), sum = _mm256_setzero_ps();
    for (uint32_t t = 0; t < padded; t += LANES)
        top = _mm256_max_ps(top, _mm256_loadu_ps(scores + t));
    top = _mm256_set1_ps(lanes_max(top));
    for (uint32_t t = 0; t < padded; t += LANES)
        _mm256_storeu_ps(scores + t, exp_lanes(_mm256_sub_ps(_mm256_loadu_ps(scores + t), top)));
    for (uint32_t t = n_kv; t < padded; t++)
        scores[t] = 0;
    for (uint32_t t = 0; t < padded; t += LANES)
        sum = _mm256_add_ps(sum, _mm256_loadu_ps(scores + t));
    return 1 / lanes_sum(sum);
}

/* out[j .. j+8*W) = scale * sum over t of p[t] * v[t][j ..] */
ALWAYS_INLINE void weigh(const int W, float *out, const float *p, const float *v, uint32_t n_kv,
                         uint32_t head_dim, float scale)
{
    __m256 acc[8];
#pragma GCC unroll 8
    for (int i = 0; i < W; i++)
        acc[i] = _mm256_setzero_ps();
    for (uint32_t t = 0; t < n_kv; t++) {
        __m256 pt = _mm256_set1_ps(p[t]);
#pragma GCC unroll 8
        for (int i = 0; i < W; i++)
            acc[i] = _mm256_fmadd_ps(pt, _mm256_loadu_ps(v + (size_t)t * head_dim + 8 * i), acc[i]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < W; i++)
        _mm256_storeu_ps(out + 8 * i, _mm256_mul_ps(acc[i], _mm256_set1_ps(scale)));
}

static void attend_head(float *out, const float *q, const float *k, const float *v, uint32_t n_kv,
                        uint32_t head_dim, float *scores)
{
    float scale = 1 / sqrtf((float)head_dim);
    for (uint32_t t = 0; t < n_kv; t++) {
        __m256 acc = _mm256_setzero_ps();
        for (uint32_t j = 0; j < head_dim; j += LANES)
            acc = _mm256_fmadd_ps(_mm256_loadu_ps(q + j),
                                  _mm256_loadu_ps(k + (size_t)t * head_dim + j), acc);
        scores[t] = lanes_sum(acc) * scale;
    }
    float inverse = softmax(scores, n_kv);
    uint32_t j = 0;
    for (; j + 64 <= head_dim; j += 64)
        weigh(8, out + j, scores, v + j, n_kv, head_dim, inverse);
    for (; j < head_dim; j += LANES)
        weigh(1, out + j, scores, v + j, n_kv, head_dim, inverse);
}

static void avx2_attend(float *out, const float *q, uint32_t group, const float *k, const float *v,
                        uint32_t n_kv, uint32_t head_dim, float *scores)
{
    for (uint32_t h = 0; h < group; h++)
        attend_head(out + (size_t)h * head_dim, q + (size_t)h * head_dim, k, v, n_kv, head_dim,
                    scores);
}

static void avx2_silu_mul(float *gate, const float *up, uint32_t n)
{
    const __m256 one = _mm256_set1_ps(1);
    for (uint32_t i = 0; i < n; i += LANES) {
        __m256 g = _mm256_loadu_ps(gate + i);
        __m256 d = _mm256_add_ps(one, exp_lanes(_mm256_sub_ps(_mm256_setzero_ps(), g)));
        __m256 s = _mm256_mul_ps(_mm256_div_ps(g, d), _mm256_loadu_ps(up + i));
        _mm256_storeu_ps(gate + i, s);
    }
}

static void avx2_add(float *y, const float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += LANES)
        _mm256_storeu_ps(y + i, _mm256_add_ps(_mm256_loadu_ps(y + i), _mm256_loadu_ps(x + i)));
}

const struct kernels KERNELS_AVX2 = {
    .name = "avx2",
    .revision = 1,
    .usable = avx2_usable,
    .has_type = avx2_has_type,
    .unpack = avx2_unpack,
    .matmul = avx2_matmul,
    .norm = avx2_norm,
    .rope = avx2_rope,
    .attend = avx2_attend,
    .silu_mul = avx2_silu_mul,
    .add = avx2_add,
};
