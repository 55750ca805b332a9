/* blocks_pack.c - 32 weights as blocks of 4 and 5 bits. */
#include "model/blocks_format.h"

#include <math.h>

static void half_put(uint8_t p[2], float stored)
{
    float_half(p, stored);
}

/* The search wants finite weights; others leave a block that unpacks to NaN. */
static bool finite_all(const float *x)
{
    return isfinite(blocks_abs_max(x, BLOCK_WEIGHTS));
}

static void nibbles_put(uint8_t nibbles[16], const float q[BLOCK_WEIGHTS], int offset)
{
    for (int i = 0; i < 16; i++)
        nibbles[i] = (uint8_t)((((int)q[i] + offset) & 15) | (((int)q[i + 16] + offset) & 15) << 4);
}

static void high_put(uint8_t high[4], const float q[BLOCK_WEIGHTS], int offset)
{
    memset(high, 0, 4);
    for (int i = 0; i < BLOCK_WEIGHTS; i++)
        high[i / 8] |= (uint8_t)((((int)q[i] + offset) >> 4 & 1) << i % 8);
}

/* Symmetric: q of [-2^bits/2, 2^bits/2 - 1]. */
static struct fit fit_block(const float *x, int half, float q[BLOCK_WEIGHTS])
{
    struct fit f = {NAN, 0};
    memset(q, 0, BLOCK_WEIGHTS * sizeof *q);
    if (finite_all(x)) {
        f = fit_scale(x, BLOCK_WEIGHTS, -half, half - 1, fit_store_half);
        if (isfinite(f.scale))
            fit_error(x, BLOCK_WEIGHTS, f, -half, half - 1, q);
    }
    return f;
}

void q4_0_pack(void *blocks, const float *x)
{
    struct block_q4_0 *b = blocks;
    float q[BLOCK_WEIGHTS];
    half_put(b->d, fit_block(x, 8, q).scale);
    nibbles_put(b->nibbles, q, 8);
}

void q5_0_pack(void *blocks, const float *x)
{
    struct block_q5_0 *b = blocks;
    float q[BLOCK_WEIGHTS];
    half_put(b->d, fit_block(x, 16, q).scale);
    nibbles_put(b->nibbles, q, 16);
    high_put(b->high, q, 16);
}

/* With a min: q of [0, levels]. */
static struct fit fit_block_min(const float *x, int levels, float q[BLOCK_WEIGHTS])
{
    struct fit f = {NAN, NAN};
    memset(q, 0, BLOCK_WEIGHTS * sizeof *q);
    if (finite_all(x)) {
        f = fit_scale_min(x, BLOCK_WEIGHTS, levels, false, fit_store_half);
        if (isfinite(f.scale) && isfinite(f.min))
            fit_error(x, BLOCK_WEIGHTS, f, 0, levels, q);
    }
    return f;
}

void q4_1_pack(void *blocks, const float *x)
{
    struct block_q4_1 *b = blocks;
    float q[BLOCK_WEIGHTS];
    struct fit f = fit_block_min(x, 15, q);
    half_put(b->d, f.scale);
    half_put(b->m, f.min);
    nibbles_put(b->nibbles, q, 0);
}

void q5_1_pack(void *blocks, const float *x)
{
    struct block_q5_1 *b = blocks;
    float q[BLOCK_WEIGHTS];
    struct fit f = fit_block_min(x, 31, q);
    half_put(b->d, f.scale);
    half_put(b->m, f.min);
    nibbles_put(b->nibbles, q, 0);
    high_put(b->high, q, 0);
}
