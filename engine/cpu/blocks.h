/* blocks.h - block formats of quantised weights as they lie in files (ggml-common.h names them so), and half floats. */
#ifndef EXA_ENGINE_CPU_BLOCKS_H
#define EXA_ENGINE_CPU_BLOCKS_H

#include <assert.h>
#include <stdint.h>
#include <string.h>

enum { BLOCK_WEIGHTS = 32 };

/* w = d * (q - 8); low nibbles are weights 0-15, high nibbles 16-31. Halves are read bytewise: rows are not aligned. */
struct block_q4_0 {
    uint8_t d[2];
    uint8_t nibbles[16];
};
/* w = d * q + m */
struct block_q4_1 {
    uint8_t d[2], m[2];
    uint8_t nibbles[16];
};
/* w = d * q */
struct block_q8_0 {
    uint8_t d[2];
    int8_t q[32];
};
_Static_assert(sizeof(struct block_q4_0) == 18 && sizeof(struct block_q4_1) == 20 &&
                   sizeof(struct block_q8_0) == 34,
               "file layout");

/* IEEE 754 binary16, little-endian, to float; exact. */
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

#endif
