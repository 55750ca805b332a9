/* blocks_unpack.c - what the bytes of a block mean (blocks.h draws the layouts). Products and sums
 * round one by one: the compiler may not fuse them (-ffp-contract=off). */
#include "model/blocks_format.h"

void q4_0_unpack(float *y, const void *blocks)
{
    const struct block_q4_0 *b = blocks;
    float d = half_float(b->d);
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)((b->nibbles[i] & 15) - 8);
        y[i + 16] = d * (float)((b->nibbles[i] >> 4) - 8);
    }
}

void q4_1_unpack(float *y, const void *blocks)
{
    const struct block_q4_1 *b = blocks;
    float d = half_float(b->d), m = half_float(b->m);
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)(b->nibbles[i] & 15) + m;
        y[i + 16] = d * (float)(b->nibbles[i] >> 4) + m;
    }
}

/* Weight i of 32 with its fifth bit: 0 to 31. */
static int five_bits(const uint8_t nibbles[16], const uint8_t high[4], int i)
{
    int low = i < 16 ? nibbles[i] & 15 : nibbles[i - 16] >> 4;
    return low | (high[i / 8] >> i % 8 & 1) << 4;
}

void q5_0_unpack(float *y, const void *blocks)
{
    const struct block_q5_0 *b = blocks;
    float d = half_float(b->d);
    for (int i = 0; i < BLOCK_WEIGHTS; i++)
        y[i] = d * (float)(five_bits(b->nibbles, b->high, i) - 16);
}

void q5_1_unpack(float *y, const void *blocks)
{
    const struct block_q5_1 *b = blocks;
    float d = half_float(b->d), m = half_float(b->m);
    for (int i = 0; i < BLOCK_WEIGHTS; i++)
        y[i] = d * (float)five_bits(b->nibbles, b->high, i) + m;
}

void q8_0_unpack(float *y, const void *blocks)
{
    const struct block_q8_0 *b = blocks;
    float d = half_float(b->d);
    for (int i = 0; i < BLOCK_WEIGHTS; i++)
        y[i] = d * (float)b->q[i];
}

void q4_k_unpack(float *y, const void *blocks)
{
    const struct block_q4_k *b = blocks;
    float d = half_float(b->d), dmin = half_float(b->dmin);
    for (int j = 0; j < 8; j++, y += 32) {
        uint8_t scale, min;
        kblock_scale_min(b->scales, j, &scale, &min);
        float s = d * (float)scale, m = dmin * (float)min;
        for (int i = 0; i < 32; i++)
            y[i] = s * (float)(b->nibbles[j / 2 * 32 + i] >> j % 2 * 4 & 15) - m;
    }
}

void q5_k_unpack(float *y, const void *blocks)
{
    const struct block_q5_k *b = blocks;
    float d = half_float(b->d), dmin = half_float(b->dmin);
    for (int j = 0; j < 8; j++, y += 32) {
        uint8_t scale, min;
        kblock_scale_min(b->scales, j, &scale, &min);
        float s = d * (float)scale, m = dmin * (float)min;
        for (int i = 0; i < 32; i++) {
            int low = b->nibbles[j / 2 * 32 + i] >> j % 2 * 4 & 15;
            y[i] = s * (float)(low | (b->high[i] >> j & 1) << 4) - m;
        }
    }
}

void q6_k_unpack(float *y, const void *blocks)
{
    const struct block_q6_k *b = blocks;
    float d = half_float(b->d);
    for (int i = 0; i < KBLOCK_WEIGHTS; i++) {
        int half = i / 128, k = i / 32 % 4, at = i % 32;
        int low = b->low[half * 64 + k % 2 * 32 + at] >> k / 2 * 4 & 15;
        int high = b->high[half * 32 + at] >> 2 * k & 3;
        y[i] = d * (float)b->scales[i / 16] * (float)((low | high << 4) - 32);
    }
}

void f8_e4m3_unpack(float *y, const void *blocks)
{
    const struct block_f8_e4m3 *b = blocks;
    float scale;
    memcpy(&scale, b->scale, 4);
    for (int i = 0; i < BLOCK_WEIGHTS; i++)
        y[i] = scale * e4m3_float(b->q[i]);
}
