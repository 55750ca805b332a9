/* fast_tile.inc.h - sixteen weight rows, a stretch of their columns, as a tile with one row in each lane.
 *
 * Blocks of integers become unsigned bytes, four columns in a lane [column / 4][16 rows][4], which is what dot-product
 * instructions read, and a scale (and a minimum) for each group of columns. Floats become F32 [column][16 rows].
 */
#include "model/blocks.h"
#include "model/index.h"

enum {
    TILE_COLS =
        1536, /* of one stretch: 24 KB of bytes stay in the first cache; a multiple of 256 */
    TILE_COLS_F32 = 512,
    TILE_GROUPS = TILE_COLS / 32,
};

struct tile {
    uint8_t q[TILE_COLS / 4][16][4];
    float scale[TILE_GROUPS * 2][16]; /* [group]: 32 columns, or 16 (Q6_K) */
    float min[TILE_GROUPS][16];
    uint32_t raw[TILE_GROUPS][16],
        raw2[TILE_GROUPS][16]; /* fields of blocks on their way to be vectors */
};

/* Sixteen rows in memory. */
struct rows {
    const uint8_t *base;
    size_t stride;
};

/* What a format's dot products need beside the bytes. */
enum tile_kind {
    TILE_SHIFTED, /* weight = scale * (q - (1 << shift)) */
    TILE_WIDE,    /* the same with q of 8 bits, shift 7 */
    TILE_MIN,     /* weight = scale * q + min */
    TILE_SUB16,   /* as TILE_SHIFTED, a scale for each 16 columns */
};
struct tile_format {
    enum tile_kind kind;
    uint32_t shift;
};

static struct tile_format tile_format(int type)
{
    switch (type) {
    case TENSOR_Q4_0:
        return (struct tile_format){TILE_SHIFTED, 3};
    case TENSOR_Q5_0:
        return (struct tile_format){TILE_SHIFTED, 4};
    case TENSOR_Q8_0:
        return (struct tile_format){TILE_WIDE, 7};
    case TENSOR_Q6_K:
        return (struct tile_format){TILE_SUB16, 5};
    default:
        return (struct tile_format){TILE_MIN, 0};
    }
}

/* Bytes ahead of time: this tile's place in the next one, which lies right behind it. */
LANES_INLINE void tile_prefetch(const uint8_t *p, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i += 64)
        __builtin_prefetch(p + i, 0, 3);
}

/* 2 or 4 bytes at `at` of each block of each row. */
LANES_INLINE void raw_collect(uint32_t (*raw)[16], const struct rows *r, size_t at,
                              size_t block_bytes, uint32_t n_blocks, size_t width)
{
    for (uint32_t i = 0; i < 16; i++) {
        const uint8_t *p = r->base + i * r->stride + at;
#pragma GCC unroll 4
        for (uint32_t b = 0; b < n_blocks; b++, p += block_bytes) {
            uint32_t v = 0;
            memcpy(&v, p, width);
            raw[b][i] = v;
        }
    }
}

/* raw: a half; or two, d and m. */
LANES_INLINE void tile_scales(struct tile *t, uint32_t n_blocks, int with_min)
{
    for (size_t b = 0; b < n_blocks; b++) {
        v16i raw = v16i_load(t->raw[b]);
        v16f_store(t->scale[b], v16i_low_halves(raw));
        if (with_min)
            v16f_store(t->min[b], v16i_low_halves(v16i_shr(raw, 16)));
    }
}

LANES_INLINE void tile_put(struct tile *t, size_t quad, v16i v)
{
    v16i_store(t->q[quad], v);
}

/* Columns 0-15 are low nibbles of 16 bytes, 16-31 high ones. */
LANES_INLINE void nibbles_split(v16i low[4], v16i high[4], const v16i v[4])
{
    const v16i four = v16i_set1(0x0f0f0f0f);
    for (int k = 0; k < 4; k++) {
        low[k] = v16i_and(v[k], four);
        high[k] = v16i_and(v16i_shr(v[k], 4), four);
    }
}

/* Q4_0, Q4_1: `at` is where the nibbles lie. */
LANES_INLINE void unpack_nibbles(struct tile *t, const struct rows *r, size_t at,
                                 size_t block_bytes, uint32_t n_blocks, const uint8_t *next)
{
    for (size_t b = 0; b < n_blocks; b++) {
        v16i v[4], low[4], high[4];
        lanes_rows(v, r->base + b * block_bytes + at, r->stride);
        tile_prefetch(next + b * 16 * block_bytes, 16 * block_bytes);
        nibbles_split(low, high, v);
        for (uint32_t k = 0; k < 4; k++) {
            tile_put(t, 8 * b + k, low[k]);
            tile_put(t, 8 * b + 4 + k, high[k]);
        }
    }
}

/* Q4_1: four blocks are twenty dwords, so d and m come by the same loads as the nibbles. */
LANES_INLINE void unpack_q4_1x4(struct tile *t, const struct rows *r, size_t b, const uint8_t *next)
{
    const size_t block_bytes = sizeof(struct block_q4_1);
    const v16i four = v16i_set1(0x0f0f0f0f);
    v16i v[20];
#pragma GCC unroll 5
    for (size_t k = 0; k < 5; k++)
        lanes_rows(v + 4 * k, r->base + b * block_bytes + 16 * k, r->stride);
    tile_prefetch(next + b * 16 * block_bytes, 64 * block_bytes);
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) {
        const v16i *d = v + 5 * i;
        v16f_store(t->scale[b + i], v16i_low_halves(d[0]));
        v16f_store(t->min[b + i], v16i_low_halves(v16i_shr(d[0], 16)));
#pragma GCC unroll 4
        for (size_t k = 0; k < 4; k++) {
            tile_put(t, 8 * (b + i) + k, v16i_and(d[1 + k], four));
            tile_put(t, 8 * (b + i) + 4 + k, v16i_and(v16i_shr(d[1 + k], 4), four));
        }
    }
}

/* A rest of one to three is done with its neighbours once more. */
static void unpack_q4_1(struct tile *t, const struct rows *r, uint32_t n_blocks,
                        const uint8_t *next)
{
    if (n_blocks < 4) {
        raw_collect(t->raw, r, 0, sizeof(struct block_q4_1), n_blocks, 4);
        tile_scales(t, n_blocks, 1);
        unpack_nibbles(t, r, 4, sizeof(struct block_q4_1), n_blocks, next);
        return;
    }
    size_t b = 0;
    for (; b + 4 <= n_blocks; b += 4)
        unpack_q4_1x4(t, r, b, next);
    if (b < n_blocks)
        unpack_q4_1x4(t, r, n_blocks - 4, next);
}

/* Four bits to bit 4 of four bytes: the factor spreads them 7 bits apart. */
LANES_INLINE v16i fifth_bits(v16i bits)
{
    v16i spread = v16i_mul(v16i_and(bits, v16i_set1(15)), v16i_set1(0x00204081));
    return v16i_shl(v16i_and(spread, v16i_set1(0x01010101)), 4);
}

/* Q5_0, Q5_1: raw2 holds the blocks' `high`. */
LANES_INLINE void unpack_nibbles5(struct tile *t, const struct rows *r, size_t at,
                                  size_t block_bytes, uint32_t n_blocks, const uint8_t *next)
{
    for (size_t b = 0; b < n_blocks; b++) {
        v16i v[4], low[4], high[4], bits = v16i_load(t->raw2[b]);
        lanes_rows(v, r->base + b * block_bytes + at, r->stride);
        tile_prefetch(next + b * 16 * block_bytes, 16 * block_bytes);
        nibbles_split(low, high, v);
        for (uint32_t k = 0; k < 4; k++) {
            tile_put(t, 8 * b + k, v16i_or(low[k], fifth_bits(v16i_shr(bits, 4 * k))));
            tile_put(t, 8 * b + 4 + k, v16i_or(high[k], fifth_bits(v16i_shr(bits, 16 + 4 * k))));
        }
    }
}

LANES_INLINE void unpack_bytes(struct tile *t, const struct rows *r, uint32_t n_blocks,
                               const uint8_t *next)
{
    const size_t block_bytes = sizeof(struct block_q8_0);
    const v16i flip = v16i_set1((int32_t)0x80808080); /* + 128 */
    for (size_t b = 0; b < n_blocks; b++) {
        v16i v[4];
        tile_prefetch(next + b * 16 * block_bytes, 16 * block_bytes);
        for (uint32_t half = 0; half < 2; half++) {
            lanes_rows(v, r->base + b * block_bytes + 2 + 16 * half, r->stride);
            for (uint32_t k = 0; k < 4; k++)
                tile_put(t, 8 * b + 4 * half + k, v16i_xor(v[k], flip));
        }
    }
}

/* --- blocks of 256 ---------------------------------------------------------------------------------------- */

/* Scales and mins of the eight sub-blocks of sixteen rows' Q4_K or Q5_K blocks; `dd`: d and dmin as halves. */
LANES_INLINE void kblock_scales(struct tile *t, uint32_t group, const struct rows *r, size_t at,
                                v16i dd)
{
    v16f d = v16i_low_halves(dd), dmin = v16i_low_halves(v16i_shr(dd, 16));
    const v16i six = v16i_set1(63), four = v16i_set1(15), two = v16i_set1(3);
    v16i v[4];
    lanes_rows(v, r->base + at, r->stride);
    for (uint32_t j = 0; j < 8; j++) { /* kblock_scale_min */
        uint32_t by = 8 * (j % 4);
        v16i a = v16i_shr(v[0], by), b = v16i_shr(v[1], by), c = v16i_shr(v[2], by), scale, min;
        if (j < 4) {
            scale = v16i_and(a, six);
            min = v16i_and(b, six);
        } else {
            scale = v16i_or(v16i_and(c, four), v16i_shl(v16i_and(v16i_shr(a, 6), two), 4));
            min =
                v16i_or(v16i_and(v16i_shr(c, 4), four), v16i_shl(v16i_and(v16i_shr(b, 6), two), 4));
        }
        v16f_store(t->scale[group + j], v16f_mul(d, v16i_float(scale)));
        v16f_store(t->min[group + j], v16f_sub(v16f_zero(), v16f_mul(dmin, v16i_float(min))));
    }
}

LANES_INLINE void unpack_q45_k(struct tile *t, const struct rows *r, size_t block_bytes, int five,
                               uint32_t n_blocks, const uint8_t *next)
{
    const size_t nibbles_at = five ? 48 : 16;
    raw_collect(t->raw, r, 0, block_bytes, n_blocks, 4);
    for (size_t b = 0; b < n_blocks; b++) {
        size_t base = b * block_bytes;
        v16i high[8] = {0}, v[4], lo[4], hi[4];
        kblock_scales(t, 8 * b, r, base + 4, v16i_load(t->raw[b]));
        tile_prefetch(next + 16 * base, 16 * block_bytes);
        if (five) {
            lanes_rows(high, r->base + base + 16, r->stride);
            lanes_rows(high + 4, r->base + base + 32, r->stride);
        }
        for (uint32_t c = 0; c < 8; c++) { /* 16 bytes of nibbles: columns of two sub-blocks */
            uint32_t sub = c / 2 * 2;
            size_t quad = 64 * b + 8 * sub + 4 * (c % 2);
            lanes_rows(v, r->base + base + nibbles_at + 16 * c, r->stride);
            nibbles_split(lo, hi, v);
            for (uint32_t k = 0; k < 4; k++) {
                if (five) {
                    const v16i one = v16i_set1(0x01010101);
                    v16i bits = v16i_shr(high[4 * (c % 2) + k], sub);
                    lo[k] = v16i_or(lo[k], v16i_shl(v16i_and(bits, one), 4));
                    hi[k] = v16i_or(hi[k], v16i_shl(v16i_and(v16i_shr(bits, 1), one), 4));
                }
                tile_put(t, quad + k, lo[k]);
                tile_put(t, quad + 8 + k, hi[k]);
            }
        }
    }
}

LANES_INLINE void unpack_q6_k(struct tile *t, const struct rows *r, uint32_t n_blocks,
                              const uint8_t *next)
{
    const size_t block_bytes = sizeof(struct block_q6_k);
    const v16i two = v16i_set1(0x03030303);
    raw_collect(t->raw, r, 208, block_bytes, n_blocks, 2);
    for (size_t b = 0; b < n_blocks; b++) {
        size_t base = b * block_bytes;
        v16i s[4], low[4], high[4], lo[4], hi[4];
        v16f d = v16i_low_halves(v16i_load(t->raw[b]));
        lanes_rows(s, r->base + base + 192, r->stride);
        tile_prefetch(next + 16 * base, 16 * block_bytes);
        for (uint32_t j = 0; j < 16; j++) {
            v16i scale = v16i_shr_signed(v16i_shl(s[j / 4], 24 - 8 * (j % 4)), 24);
            v16f_store(t->scale[16 * b + j], v16f_mul(d, v16i_float(scale)));
        }
        for (uint32_t c = 0; c < 8; c++) { /* 16 bytes of `low`: half h, k = odd and odd + 2 */
            uint32_t h = c / 4, odd = c / 2 % 2, part = c % 2;
            size_t quad = 64 * b + 32 * h + 8 * odd + 4 * part;
            lanes_rows(low, r->base + base + 16 * c, r->stride);
            lanes_rows(high, r->base + base + 128 + 32 * h + 16 * part, r->stride);
            nibbles_split(lo, hi, low);
            for (uint32_t k = 0; k < 4; k++) {
                v16i bits = v16i_shr(high[k], 2 * odd);
                v16i more = v16i_and(v16i_shr(bits, 4), two);
                tile_put(t, quad + k, v16i_or(lo[k], v16i_shl(v16i_and(bits, two), 4)));
                tile_put(t, quad + 16 + k, v16i_or(hi[k], v16i_shl(more, 4)));
            }
        }
    }
}

/* --- a stretch of a tile ---------------------------------------------------------------------------------- */

/* n_cols columns from where `r` points; next: memory that will be needed soon. */
static void tile_unpack(struct tile *t, int type, const struct rows *r, uint32_t n_cols,
                        const uint8_t *next)
{
    uint32_t n = n_cols / BLOCK_WEIGHTS, n_k = n_cols / KBLOCK_WEIGHTS;
    switch (type) {
    case TENSOR_Q4_0:
        raw_collect(t->raw, r, 0, sizeof(struct block_q4_0), n, 2);
        tile_scales(t, n, 0);
        unpack_nibbles(t, r, 2, sizeof(struct block_q4_0), n, next);
        break;
    case TENSOR_Q4_1:
        unpack_q4_1(t, r, n, next);
        break;
    case TENSOR_Q5_0:
        raw_collect(t->raw, r, 0, sizeof(struct block_q5_0), n, 2);
        raw_collect(t->raw2, r, 2, sizeof(struct block_q5_0), n, 4);
        tile_scales(t, n, 0);
        unpack_nibbles5(t, r, 6, sizeof(struct block_q5_0), n, next);
        break;
    case TENSOR_Q5_1:
        raw_collect(t->raw, r, 0, sizeof(struct block_q5_1), n, 4);
        raw_collect(t->raw2, r, 4, sizeof(struct block_q5_1), n, 4);
        tile_scales(t, n, 1);
        unpack_nibbles5(t, r, 8, sizeof(struct block_q5_1), n, next);
        break;
    case TENSOR_Q8_0:
        raw_collect(t->raw, r, 0, sizeof(struct block_q8_0), n, 2);
        tile_scales(t, n, 0);
        unpack_bytes(t, r, n, next);
        break;
    case TENSOR_Q4_K:
        unpack_q45_k(t, r, sizeof(struct block_q4_k), 0, n_k, next);
        break;
    case TENSOR_Q5_K:
        unpack_q45_k(t, r, sizeof(struct block_q5_k), 1, n_k, next);
        break;
    case TENSOR_Q6_K:
        unpack_q6_k(t, r, n_k, next);
        break;
    }
}
