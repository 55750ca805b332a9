/* lanes_avx512.h - sixteen lanes of 32 bits in one AVX-512 register (F, BW, DQ, VL, VNNI). The same functions as lanes_avx2.h, bit for bit.
 *
 * Kernels (fast_*.inc.h) are written over these once; a set's file includes one lanes header and then the kernels.
 */
#ifndef EXA_ENGINE_CPU_LANES_H
#define EXA_ENGINE_CPU_LANES_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define LANES_INLINE static inline __attribute__((always_inline))

typedef __m512 v16f;
typedef __m512i v16i;

enum {
    LANES_ROWS_Q8 =
        8, /* activation rows at once against an int8 tile: 2 x 8 sums, 8 others of 32 registers */
    LANES_ROWS_F32 = 4,   /* against a float tile, four sums each */
    LANES_ROWS_SCORE = 8, /* queries at once against a block of keys */
    LANES_ROWS_VALUE = 4, /* queries at once against values, four vectors each */
};

/* --- floats --- */
LANES_INLINE v16f v16f_zero(void)
{
    return _mm512_setzero_ps();
}
LANES_INLINE v16f v16f_set1(float x)
{
    return _mm512_set1_ps(x);
}
LANES_INLINE v16f v16f_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
LANES_INLINE void v16f_store(float *p, v16f v)
{
    _mm512_storeu_ps(p, v);
}
/* n < 16: the other lanes are zero, and nothing is read or written beside the n. */
LANES_INLINE v16f v16f_load_n(const float *p, uint32_t n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
LANES_INLINE void v16f_store_n(float *p, v16f v, uint32_t n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), v);
}
LANES_INLINE v16f v16f_add(v16f a, v16f b)
{
    return _mm512_add_ps(a, b);
}
LANES_INLINE v16f v16f_sub(v16f a, v16f b)
{
    return _mm512_sub_ps(a, b);
}
LANES_INLINE v16f v16f_mul(v16f a, v16f b)
{
    return _mm512_mul_ps(a, b);
}
LANES_INLINE v16f v16f_div(v16f a, v16f b)
{
    return _mm512_div_ps(a, b);
}
/* a * b + c, rounded once */
LANES_INLINE v16f v16f_fma(v16f a, v16f b, v16f c)
{
    return _mm512_fmadd_ps(a, b, c);
}
/* a * b - c in even lanes, a * b + c in odd ones */
LANES_INLINE v16f v16f_fma_alternate(v16f a, v16f b, v16f c)
{
    return _mm512_fmaddsub_ps(a, b, c);
}
LANES_INLINE v16f v16f_fms(v16f a, v16f b, v16f c)
{
    return _mm512_fmsub_ps(a, b, c);
}
/* A NaN in b is the result. */
LANES_INLINE v16f v16f_max(v16f a, v16f b)
{
    return _mm512_max_ps(a, b);
}
LANES_INLINE v16f v16f_min(v16f a, v16f b)
{
    return _mm512_min_ps(a, b);
}
LANES_INLINE v16f v16f_dup_even(v16f a)
{
    return _mm512_moveldup_ps(a);
}
LANES_INLINE v16f v16f_dup_odd(v16f a)
{
    return _mm512_movehdup_ps(a);
}
LANES_INLINE v16f v16f_swap_pairs(v16f a)
{
    return _mm512_permute_ps(a, 0xb1);
}
LANES_INLINE void v16f_deinterleave(v16f *even, v16f *odd, v16f a, v16f b)
{
    const __m512i e = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    *even = _mm512_permutex2var_ps(a, e, b);
    *odd = _mm512_permutex2var_ps(a, _mm512_add_epi32(e, _mm512_set1_epi32(1)), b);
}
LANES_INLINE float v16f_first(v16f v)
{
    return _mm512_cvtss_f32(v);
}
/* Over all lanes, in one fixed tree: halves, quarters, eighths, pairs. */
LANES_INLINE float v16f_sum(v16f v)
{
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    s = _mm_add_ss(s, _mm_movehdup_ps(s));
    return _mm_cvtss_f32(s);
}
/* No lane may be a NaN. */
LANES_INLINE float v16f_max_of(v16f v)
{
    return _mm512_reduce_max_ps(v);
}
/* Lanes where a < b get x, the others y. */
LANES_INLINE v16f v16f_where_less(v16f a, v16f b, v16f x, v16f y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
/* Lanes [from, to) get x, the others y. */
LANES_INLINE v16f v16f_where_range(uint32_t from, uint32_t to, v16f x, v16f y)
{
    return _mm512_mask_blend_ps((__mmask16)((1u << to) - (1u << from)), y, x);
}

/* --- integers --- */
LANES_INLINE v16i v16i_zero(void)
{
    return _mm512_setzero_si512();
}
LANES_INLINE v16i v16i_set1(int32_t x)
{
    return _mm512_set1_epi32(x);
}
/* 32 bits from memory to all lanes */
LANES_INLINE v16i v16i_spread(const void *p)
{
    int32_t x;
    memcpy(&x, p, 4);
    return _mm512_set1_epi32(x);
}
LANES_INLINE v16i v16i_load(const void *p)
{
    return _mm512_loadu_si512(p);
}
LANES_INLINE void v16i_store(void *p, v16i v)
{
    _mm512_storeu_si512(p, v);
}
LANES_INLINE v16i v16i_add(v16i a, v16i b)
{
    return _mm512_add_epi32(a, b);
}
LANES_INLINE v16i v16i_sub(v16i a, v16i b)
{
    return _mm512_sub_epi32(a, b);
}
LANES_INLINE v16i v16i_mul(v16i a, v16i b)
{
    return _mm512_mullo_epi32(a, b);
}
LANES_INLINE v16i v16i_and(v16i a, v16i b)
{
    return _mm512_and_si512(a, b);
}
LANES_INLINE v16i v16i_or(v16i a, v16i b)
{
    return _mm512_or_si512(a, b);
}
LANES_INLINE v16i v16i_xor(v16i a, v16i b)
{
    return _mm512_xor_si512(a, b);
}
LANES_INLINE v16i v16i_max_u(v16i a, v16i b)
{
    return _mm512_max_epu32(a, b);
}
LANES_INLINE v16i v16i_shl(v16i a, uint32_t n)
{
    return (v16i)((__v16su)a << n);
}
LANES_INLINE v16i v16i_shr(v16i a, uint32_t n)
{
    return (v16i)((__v16su)a >> n);
}
LANES_INLINE v16i v16i_shr_signed(v16i a, uint32_t n)
{
    return (v16i)((__v16si)a >> n);
}
LANES_INLINE v16i v16f_bits(v16f v)
{
    return _mm512_castps_si512(v);
}
LANES_INLINE v16f v16i_bits(v16i v)
{
    return _mm512_castsi512_ps(v);
}
LANES_INLINE v16f v16i_float(v16i v)
{
    return _mm512_cvtepi32_ps(v);
}
/* To the nearest, ties to even. */
LANES_INLINE v16i v16f_round(v16f v)
{
    return _mm512_cvtps_epi32(v);
}
LANES_INLINE uint32_t v16i_max_of_u(v16i v)
{
    return _mm512_reduce_max_epu32(v);
}
LANES_INLINE int32_t v16i_sum(v16i v)
{
    return _mm512_reduce_add_epi32(v);
}

/* --- small types in memory --- */
LANES_INLINE v16f v16f_load_halves(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}
LANES_INLINE void v16f_store_halves(void *p, v16f v)
{
    _mm256_storeu_si256(p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
LANES_INLINE v16f v16f_load_bytes(const void *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p)));
}
LANES_INLINE void v16i_store_bytes(void *p, v16i v)
{
    _mm_storeu_si128(p, _mm512_cvtepi32_epi8(v));
}
/* The low half of each lane as an IEEE half. */
LANES_INLINE v16f v16i_low_halves(v16i v)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
}

/* --- weights --- */
/* 16 bytes of each of sixteen rows that are `stride` apart; t[k]: the rows' dwords k. */
LANES_INLINE __m512i lanes_rows4(const uint8_t *p, size_t four)
{
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const void *)p));
    v = _mm512_mask_broadcast_i32x4(v, 0x00f0, _mm_loadu_si128((const void *)(p + four)));
    v = _mm512_mask_broadcast_i32x4(v, 0x0f00, _mm_loadu_si128((const void *)(p + 2 * four)));
    return _mm512_mask_broadcast_i32x4(v, 0xf000, _mm_loadu_si128((const void *)(p + 3 * four)));
}
LANES_INLINE void lanes_rows(v16i t[4], const uint8_t *p, size_t stride)
{
    size_t four = 4 * stride;
    __m512i z0 = lanes_rows4(p, four), z1 = lanes_rows4(p + stride, four);
    __m512i z2 = lanes_rows4(p + 2 * stride, four), z3 = lanes_rows4(p + 3 * stride, four);
    __m512i a = _mm512_unpacklo_epi32(z0, z1), b = _mm512_unpacklo_epi32(z2, z3);
    __m512i c = _mm512_unpackhi_epi32(z0, z1), d = _mm512_unpackhi_epi32(z2, z3);
    t[0] = _mm512_unpacklo_epi64(a, b);
    t[1] = _mm512_unpackhi_epi64(a, b);
    t[2] = _mm512_unpacklo_epi64(c, d);
    t[3] = _mm512_unpackhi_epi64(c, d);
}
/* sum[lane] += the four products of unsigned w and signed a in each lane; exact. `wide`: w may exceed 7 bits. */
LANES_INLINE v16i lanes_dot(v16i sum, v16i w, v16i a, int wide)
{
    return _mm512_dpbusd_epi32(sum, w, a);
}

#endif
