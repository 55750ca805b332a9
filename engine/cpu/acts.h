/* acts.h - one row of activations as integers of 15 bits, in blocks of 32: element = scale * q, scale = largest magnitude / ACTS_MOST.
 *
 * q = 128 * high + low, each of which is an int8 that dot products of bytes take: two exact dot products instead of one. With 8 bits alone
 * the model's logits are as far from the F32 run as llama.cpp's are (NMSE 9e-4); with 15, ten thousand times closer.
 *
 * A row lies as: high int8[n], low int8[n] (-64 to 63), then for each block: scale F32, scale * sum of q F32, minus the sum of q int32,
 * minus the sums of its two halves int32[2]; each kind in one array. n is a multiple of 32. A block with a NaN or an infinity has
 * a NaN for its scale.
 */
#ifndef EXA_ENGINE_CPU_ACTS_H
#define EXA_ENGINE_CPU_ACTS_H

#include <stddef.h>
#include <stdint.h>

enum { ACTS_BLOCK = 32, ACTS_MOST = 127 * 128, ACTS_SHIFT = 7 };

/* Where the arrays of a row of n columns begin, in bytes. */
static inline size_t acts_low_at(uint32_t n)
{
    return n;
}
static inline size_t acts_scale_at(uint32_t n)
{
    return 2 * (size_t)n;
}
static inline size_t acts_sum_at(uint32_t n)
{
    return 2 * (size_t)n + n / 8;
}
static inline size_t acts_minus_at(uint32_t n)
{
    return 2 * (size_t)n + n / 8 * 2;
}
static inline size_t acts_minus16_at(uint32_t n)
{
    return 2 * (size_t)n + n / 8 * 3;
}
static inline size_t acts_row_bytes(uint32_t n)
{
    return (2 * (size_t)n + n / 8 * 5 + 63) / 64 * 64;
}

#endif
