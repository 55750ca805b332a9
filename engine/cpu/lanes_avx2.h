/* lanes_avx2.h - sixteen lanes of 32 bits in two AVX2 registers (with FMA and F16C; lanes_dot also by AVX-VNNI). The same functions as
 * lanes_avx512.h, bit for bit; what each does is said there. */
#ifndef EXA_ENGINE_CPU_LANES_H
#define EXA_ENGINE_CPU_LANES_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define LANES_INLINE static inline __attribute__((always_inline))

typedef struct {
    __m256 a, b; /* lanes 0-7, 8-15 */
} v16f;
typedef struct {
    __m256i a, b;
} v16i;

enum { /* sixteen registers, two a vector */
       LANES_ROWS_Q8 = 2,
       LANES_ROWS_F32 = 1,
       LANES_ROWS_SCORE = 4,
       LANES_ROWS_VALUE = 1,
};

#define V16F(x, y) ((v16f){(x), (y)})
#define V16I(x, y) ((v16i){(x), (y)})

/* --- floats --- */
LANES_INLINE v16f v16f_zero(void)
{
    return V16F(_mm256_setzero_ps(), _mm256_setzero_ps());
}
LANES_INLINE v16f v16f_set1(float x)
{
    return V16F(_mm256_set1_ps(x), _mm256_set1_ps(x));
}
LANES_INLINE v16f v16f_load(const float *p)
{
    return V16F(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8));
}
LANES_INLINE void v16f_store(float *p, v16f v)
{
    _mm256_storeu_ps(p, v.a);
    _mm256_storeu_ps(p + 8, v.b);
}
/* All ones in lanes below n, from lane `first` on. */
LANES_INLINE __m256i lanes_below(int first, int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n - first),
                              _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0));
}
LANES_INLINE v16f v16f_load_n(const float *p, uint32_t n)
{
    __m256 high = _mm256_setzero_ps();
    if (n > 8)
        high = _mm256_maskload_ps(p + 8, lanes_below(8, (int)n));
    return V16F(_mm256_maskload_ps(p, lanes_below(0, (int)n)), high);
}
LANES_INLINE void v16f_store_n(float *p, v16f v, uint32_t n)
{
    _mm256_maskstore_ps(p, lanes_below(0, (int)n), v.a);
    if (n > 8)
        _mm256_maskstore_ps(p + 8, lanes_below(8, (int)n), v.b);
}
LANES_INLINE v16f v16f_add(v16f x, v16f y)
{
    return V16F(_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b));
}
LANES_INLINE v16f v16f_sub(v16f x, v16f y)
{
    return V16F(_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b));
}
LANES_INLINE v16f v16f_mul(v16f x, v16f y)
{
    return V16F(_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b));
}
LANES_INLINE v16f v16f_div(v16f x, v16f y)
{
    return V16F(_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b));
}
LANES_INLINE v16f v16f_fma(v16f x, v16f y, v16f z)
{
    return V16F(_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b));
}
LANES_INLINE v16f v16f_fma_alternate(v16f x, v16f y, v16f z)
{
    return V16F(_mm256_fmaddsub_ps(x.a, y.a, z.a), _mm256_fmaddsub_ps(x.b, y.b, z.b));
}
LANES_INLINE v16f v16f_fms(v16f x, v16f y, v16f z)
{
    return V16F(_mm256_fmsub_ps(x.a, y.a, z.a), _mm256_fmsub_ps(x.b, y.b, z.b));
}
LANES_INLINE v16f v16f_max(v16f x, v16f y)
{
    return V16F(_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b));
}
LANES_INLINE v16f v16f_min(v16f x, v16f y)
{
    return V16F(_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b));
}
LANES_INLINE v16f v16f_dup_even(v16f x)
{
    return V16F(_mm256_moveldup_ps(x.a), _mm256_moveldup_ps(x.b));
}
LANES_INLINE v16f v16f_dup_odd(v16f x)
{
    return V16F(_mm256_movehdup_ps(x.a), _mm256_movehdup_ps(x.b));
}
LANES_INLINE v16f v16f_swap_pairs(v16f x)
{
    return V16F(_mm256_permute_ps(x.a, 0xb1), _mm256_permute_ps(x.b, 0xb1));
}
/* 64-bit pairs back in order after a shuffle within halves */
LANES_INLINE __m256 lanes_in_order(__m256 v)
{
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8));
}
LANES_INLINE void v16f_deinterleave(v16f *even, v16f *odd, v16f x, v16f y)
{
    *even = V16F(lanes_in_order(_mm256_shuffle_ps(x.a, x.b, 0x88)),
                 lanes_in_order(_mm256_shuffle_ps(y.a, y.b, 0x88)));
    *odd = V16F(lanes_in_order(_mm256_shuffle_ps(x.a, x.b, 0xdd)),
                lanes_in_order(_mm256_shuffle_ps(y.a, y.b, 0xdd)));
}
LANES_INLINE float v16f_first(v16f v)
{
    return _mm256_cvtss_f32(v.a);
}
LANES_INLINE float v16f_sum(v16f v)
{
    __m256 h = _mm256_add_ps(v.a, v.b);
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    s = _mm_add_ss(s, _mm_movehdup_ps(s));
    return _mm_cvtss_f32(s);
}
LANES_INLINE float v16f_max_of(v16f v)
{
    __m256 h = _mm256_max_ps(v.a, v.b);
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    s = _mm_max_ss(s, _mm_movehdup_ps(s));
    return _mm_cvtss_f32(s);
}
LANES_INLINE v16f v16f_where_less(v16f p, v16f q, v16f x, v16f y)
{
    return V16F(_mm256_blendv_ps(y.a, x.a, _mm256_cmp_ps(p.a, q.a, _CMP_LT_OQ)),
                _mm256_blendv_ps(y.b, x.b, _mm256_cmp_ps(p.b, q.b, _CMP_LT_OQ)));
}
LANES_INLINE v16f v16f_where_range(uint32_t from, uint32_t to, v16f x, v16f y)
{
    __m256i a = _mm256_andnot_si256(lanes_below(0, (int)from), lanes_below(0, (int)to));
    __m256i b = _mm256_andnot_si256(lanes_below(8, (int)from), lanes_below(8, (int)to));
    return V16F(_mm256_blendv_ps(y.a, x.a, _mm256_castsi256_ps(a)),
                _mm256_blendv_ps(y.b, x.b, _mm256_castsi256_ps(b)));
}

/* --- integers --- */
LANES_INLINE v16i v16i_zero(void)
{
    return V16I(_mm256_setzero_si256(), _mm256_setzero_si256());
}
LANES_INLINE v16i v16i_set1(int32_t x)
{
    return V16I(_mm256_set1_epi32(x), _mm256_set1_epi32(x));
}
LANES_INLINE v16i v16i_spread(const void *p)
{
    int32_t x;
    memcpy(&x, p, 4);
    return v16i_set1(x);
}
LANES_INLINE v16i v16i_load(const void *p)
{
    const __m256i *v = p;
    return V16I(_mm256_loadu_si256(v), _mm256_loadu_si256(v + 1));
}
LANES_INLINE void v16i_store(void *p, v16i v)
{
    __m256i *to = p;
    _mm256_storeu_si256(to, v.a);
    _mm256_storeu_si256(to + 1, v.b);
}
LANES_INLINE v16i v16i_add(v16i x, v16i y)
{
    return V16I(_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b));
}
LANES_INLINE v16i v16i_sub(v16i x, v16i y)
{
    return V16I(_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b));
}
LANES_INLINE v16i v16i_mul(v16i x, v16i y)
{
    return V16I(_mm256_mullo_epi32(x.a, y.a), _mm256_mullo_epi32(x.b, y.b));
}
LANES_INLINE v16i v16i_and(v16i x, v16i y)
{
    return V16I(_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b));
}
LANES_INLINE v16i v16i_or(v16i x, v16i y)
{
    return V16I(_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b));
}
LANES_INLINE v16i v16i_xor(v16i x, v16i y)
{
    return V16I(_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b));
}
LANES_INLINE v16i v16i_max_u(v16i x, v16i y)
{
    return V16I(_mm256_max_epu32(x.a, y.a), _mm256_max_epu32(x.b, y.b));
}
LANES_INLINE v16i v16i_shl(v16i x, uint32_t n)
{
    return V16I((__m256i)((__v8su)x.a << n), (__m256i)((__v8su)x.b << n));
}
LANES_INLINE v16i v16i_shr(v16i x, uint32_t n)
{
    return V16I((__m256i)((__v8su)x.a >> n), (__m256i)((__v8su)x.b >> n));
}
LANES_INLINE v16i v16i_shr_signed(v16i x, uint32_t n)
{
    return V16I((__m256i)((__v8si)x.a >> n), (__m256i)((__v8si)x.b >> n));
}
LANES_INLINE v16i v16f_bits(v16f v)
{
    return V16I(_mm256_castps_si256(v.a), _mm256_castps_si256(v.b));
}
LANES_INLINE v16f v16i_bits(v16i v)
{
    return V16F(_mm256_castsi256_ps(v.a), _mm256_castsi256_ps(v.b));
}
LANES_INLINE v16f v16i_float(v16i v)
{
    return V16F(_mm256_cvtepi32_ps(v.a), _mm256_cvtepi32_ps(v.b));
}
LANES_INLINE v16i v16f_round(v16f v)
{
    return V16I(_mm256_cvtps_epi32(v.a), _mm256_cvtps_epi32(v.b));
}
LANES_INLINE uint32_t v16i_max_of_u(v16i v)
{
    uint32_t lanes[16], most = 0;
    v16i_store(lanes, v);
    for (int i = 0; i < 16; i++)
        most = lanes[i] > most ? lanes[i] : most;
    return most;
}
LANES_INLINE int32_t v16i_sum(v16i v)
{
    __m256i h = _mm256_add_epi32(v.a, v.b);
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    return _mm_cvtsi128_si32(s);
}

/* --- small types in memory --- */
LANES_INLINE v16f v16f_load_halves(const void *p)
{
    const __m128i *h = p;
    return V16F(_mm256_cvtph_ps(_mm_loadu_si128(h)), _mm256_cvtph_ps(_mm_loadu_si128(h + 1)));
}
LANES_INLINE void v16f_store_halves(void *p, v16f v)
{
    __m128i *h = p;
    _mm_storeu_si128(h, _mm256_cvtps_ph(v.a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(h + 1, _mm256_cvtps_ph(v.b, _MM_FROUND_TO_NEAREST_INT));
}
LANES_INLINE v16f v16f_load_bytes(const void *p)
{
    const uint8_t *b = p;
    return V16F(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)b))),
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(b + 8)))));
}
/* Four quarters of 16-bit lanes: the low halves of both registers' lanes, in order */
LANES_INLINE __m256i lanes_low_halves(v16i v)
{
    const __m256i low = _mm256_set1_epi32(0xffff);
    __m256i h = _mm256_packus_epi32(_mm256_and_si256(v.a, low), _mm256_and_si256(v.b, low));
    return _mm256_permute4x64_epi64(h, 0xd8);
}
LANES_INLINE void v16i_store_bytes(void *p, v16i v)
{
    __m256i h = _mm256_and_si256(lanes_low_halves(v), _mm256_set1_epi16(0xff));
    _mm_storeu_si128(p,
                     _mm_packus_epi16(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1)));
}
LANES_INLINE v16f v16i_low_halves(v16i v)
{
    __m256i h = lanes_low_halves(v);
    return V16F(_mm256_cvtph_ps(_mm256_castsi256_si128(h)),
                _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1)));
}

/* --- weights --- */
LANES_INLINE void lanes_rows8(__m256i t[4], const uint8_t *p, size_t stride)
{
    __m256i z[4];
    for (int j = 0; j < 4; j++, p += stride)
        z[j] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const void *)p)),
                                       _mm_loadu_si128((const void *)(p + 4 * stride)), 1);
    __m256i a = _mm256_unpacklo_epi32(z[0], z[1]), b = _mm256_unpacklo_epi32(z[2], z[3]);
    __m256i c = _mm256_unpackhi_epi32(z[0], z[1]), d = _mm256_unpackhi_epi32(z[2], z[3]);
    t[0] = _mm256_unpacklo_epi64(a, b);
    t[1] = _mm256_unpackhi_epi64(a, b);
    t[2] = _mm256_unpacklo_epi64(c, d);
    t[3] = _mm256_unpackhi_epi64(c, d);
}
LANES_INLINE void lanes_rows(v16i t[4], const uint8_t *p, size_t stride)
{
    __m256i a[4], b[4];
    lanes_rows8(a, p, stride);
    lanes_rows8(b, p + 8 * stride, stride);
    for (int j = 0; j < 4; j++)
        t[j] = V16I(a[j], b[j]);
}
/* maddubs adds two products in 16 bits, which saturates: 7-bit weights stay below (63 * 127 * 2). 8-bit ones come as w + 128; as
 * |w| times a with w's sign, two products are at most 128 * 127 * 2 = 32512. */
LANES_INLINE __m256i lanes_dot8(__m256i sum, __m256i w, __m256i a, int wide)
{
#ifdef __AVXVNNI__
    return _mm256_dpbusd_avx_epi32(sum, w, a);
#else
    __m256i pairs;
    if (wide) {
        __m256i sw = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
        __m256i products = _mm256_maddubs_epi16(_mm256_abs_epi8(sw), _mm256_sign_epi8(a, sw));
        pairs = _mm256_madd_epi16(products, _mm256_set1_epi16(1));
        /* and the 128 times a that the caller will take off again */
        __m256i ones = _mm256_maddubs_epi16(_mm256_set1_epi8(1), a);
        ones = _mm256_madd_epi16(ones, _mm256_set1_epi16(128));
        pairs = _mm256_add_epi32(pairs, ones);
    } else {
        pairs = _mm256_madd_epi16(_mm256_maddubs_epi16(w, a), _mm256_set1_epi16(1));
    }
    return _mm256_add_epi32(sum, pairs);
#endif
}
LANES_INLINE v16i lanes_dot(v16i sum, v16i w, v16i a, int wide)
{
    return V16I(lanes_dot8(sum.a, w.a, a.a, wide), lanes_dot8(sum.b, w.b, a.b, wide));
}

#endif
