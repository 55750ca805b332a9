/* blocks.h - block formats of weights: their layouts, exact unpacking, and packing.
 *
 * Layouts are those of GGUF files (ggml/src/ggml-common.h names them so), so that quantised files
 * are kept byte for byte; F8_E4M3 is our own (index.h). All fields are bytes: rows begin anywhere,
 * nothing is aligned. Halves are IEEE 754 binary16, everything is little-endian.
 *
 * block_unpack is the definition of each format: kernels are measured against it.
 */
#ifndef EXA_MODEL_BLOCKS_H
#define EXA_MODEL_BLOCKS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    BLOCK_WEIGHTS = 32,  /* of Q4_0 … Q8_0 and F8_E4M3 */
    KBLOCK_WEIGHTS = 256 /* of Q4_K, Q5_K, Q6_K */
};

/* w = d * (q - 8); low nibbles are weights 0-15, high nibbles 16-31 */
struct block_q4_0 {
    uint8_t d[2];
    uint8_t nibbles[16];
};
/* w = d * q + m */
struct block_q4_1 {
    uint8_t d[2], m[2];
    uint8_t nibbles[16];
};
/* w = d * (q - 16); bit i of `high` (u32) is bit 4 of weight i */
struct block_q5_0 {
    uint8_t d[2];
    uint8_t high[4];
    uint8_t nibbles[16];
};
/* w = d * q + m; as above */
struct block_q5_1 {
    uint8_t d[2], m[2];
    uint8_t high[4];
    uint8_t nibbles[16];
};
/* w = d * q */
struct block_q8_0 {
    uint8_t d[2];
    int8_t q[32];
};
/* 8 sub-blocks of 32: w = (d * scale[j]) * q - (dmin * min[j]). Scales and mins have 6 bits: kblock_scale_min. Nibbles of
 * 64 weights lie in 32 bytes: low ones are weights 0-31, high ones 32-63. */
struct block_q4_k {
    uint8_t d[2], dmin[2];
    uint8_t scales[12];
    uint8_t nibbles[128];
};
/* The same with 5 bits: bit j of high[i] is bit 4 of weight 32 * j + i. */
struct block_q5_k {
    uint8_t d[2], dmin[2];
    uint8_t scales[12];
    uint8_t high[32];
    uint8_t nibbles[128];
};
/* 16 sub-blocks of 16: w = (d * scale[j]) * (q - 32). Of 128 weights (half h of the block), weight 32 * k + i has its low 4 bits
 * in low[64 * h + 32 * (k & 1) + i], low nibble for k < 2, and its high 2 bits in high[32 * h + i] >> 2 * k. */
struct block_q6_k {
    uint8_t low[128];
    uint8_t high[64];
    int8_t scales[16];
    uint8_t d[2];
};
/* w = scale * q; scale is a binary32, q an e4m3fn (no infinity, 0x7f and 0xff are NaN) */
struct block_f8_e4m3 {
    uint8_t scale[4];
    uint8_t q[32];
};
_Static_assert(sizeof(struct block_q4_0) == 18 && sizeof(struct block_q4_1) == 20 &&
                   sizeof(struct block_q5_0) == 22 && sizeof(struct block_q5_1) == 24 &&
                   sizeof(struct block_q8_0) == 34 && sizeof(struct block_q4_k) == 144 &&
                   sizeof(struct block_q5_k) == 176 && sizeof(struct block_q6_k) == 210 &&
                   sizeof(struct block_f8_e4m3) == 36,
               "file layout");

/* n weights, a whole number of blocks, of enum tensor_type `type`; every type of tensor_type_info. Products round to binary32
 * in the order of the formulas above, as ggml's own unpacking does: bit-exact. y is aligned as floats are, blocks need not be. */
void block_unpack(int type, float *y, const void *blocks, size_t n);
/* The same weights as blocks: scales (and mins) are searched for the least squared error (weights count alike); deterministic.
 * A block with a value that its format cannot hold (infinite, NaN, too large for its half scale) becomes one whose unpacking
 * is not finite either: errors stay visible. */
void block_pack(int type, void *blocks, const float *x, size_t n);

/* Sub-block j (0-7) of a Q4_K or Q5_K. The 12 bytes hold 8 scales and 8 mins of 6 bits: 0-3 in the low bits of bytes 0-3
 * and 4-7, the others' low 4 bits in bytes 8-11, their high 2 bits above the first ones. */
static inline void kblock_scale_min(const uint8_t scales[12], int j, uint8_t *scale, uint8_t *min)
{
    if (j < 4) {
        *scale = scales[j] & 63;
        *min = scales[j + 4] & 63;
    } else {
        *scale = (uint8_t)((scales[j + 4] & 15) | (scales[j - 4] >> 6) << 4);
        *min = (uint8_t)(scales[j + 4] >> 4 | (scales[j] >> 6) << 4);
    }
}

/* --- small floats ------------------------------------------------------------------------------ */

/* IEEE 754 binary16 to float; exact. */
static inline float half_float(const uint8_t p[2])
{
    uint32_t h = (uint32_t)p[0] | (uint32_t)p[1] << 8;
    uint32_t sign = (h & 0x8000u) << 16, exp = h >> 10 & 31, frac = h & 0x3ff;
    uint32_t bits;
    float f;
    if (exp == 31) {
        bits = sign | 0x7f800000u | frac << 13;
    } else if (exp) {
        bits = sign | (exp + 112) << 23 | frac << 13;
    } else { /* zero or subnormal: frac * 2^-24 */
        f = (float)frac * 0x1p-24f;
        memcpy(&bits, &f, 4);
        bits |= sign;
    }
    memcpy(&f, &bits, 4);
    return f;
}

/* bfloat16 (the upper half of a binary32) to float; exact. */
static inline float bfloat_float(const uint8_t p[2])
{
    uint32_t bits = ((uint32_t)p[0] | (uint32_t)p[1] << 8) << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

/* e4m3fn (1 sign, 4 exponent bits with bias 7, 3 fraction bits) to float; exact. */
static inline float e4m3_float(uint8_t q)
{
    uint32_t sign = (uint32_t)(q & 0x80) << 24, exp = q >> 3 & 15, frac = q & 7, bits;
    float f;
    if ((q & 0x7f) == 0x7f) {
        bits = sign | 0x7fc00000u;
    } else if (exp) {
        bits = sign | (exp + 120) << 23 | frac << 20;
    } else { /* zero or subnormal: frac * 2^-9 */
        f = (float)frac * 0x1p-9f;
        memcpy(&bits, &f, 4);
        bits |= sign;
    }
    memcpy(&f, &bits, 4);
    return f;
}

/* Nearest, ties to even; too large becomes infinity (half, bfloat), NaN stays NaN. */
void float_half(uint8_t p[2], float f);
void float_bfloat(uint8_t p[2], float f);
/* Nearest, ties to even; beyond 448 saturates (what e4m3fn has no infinity for), NaN stays NaN. */
uint8_t float_e4m3(float f);

#endif
