/* acts.h - one row of activations as int8, in blocks of 32: element = scale * q, scale = largest magnitude / 127.
 *
 * A row lies as: q int8[n], then for each block: scale F32, scale * sum of q F32, minus the sum of q int32, minus the sums of
 * its two halves int32[2]; each kind in one array. n is a multiple of 32. A block with a NaN or an infinity has a NaN for its scale.
 */
#ifndef EXA_ENGINE_CPU_ACTS_H
#define EXA_ENGINE_CPU_ACTS_H

#include <stddef.h>
#include <stdint.h>

enum { ACTS_BLOCK = 32 };

/* Where the arrays of a row of n columns begin, in bytes. */
static inline size_t acts_scale_at(uint32_t n)
{
    return n;
}
static inline size_t acts_sum_at(uint32_t n)
{
    return n + (size_t)n / 8;
}
static inline size_t acts_minus_at(uint32_t n)
{
    return n + (size_t)n / 8 * 2;
}
static inline size_t acts_minus16_at(uint32_t n)
{
    return n + (size_t)n / 8 * 3;
}
static inline size_t acts_row_bytes(uint32_t n)
{
    return (n + (size_t)n / 8 * 5 + 63) / 64 * 64;
}

#endif
