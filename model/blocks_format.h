/* blocks_format.h - one block of each format, unpacked and packed. Inside the room only: blocks.c has
 * the table. */
#ifndef EXA_MODEL_BLOCKS_FORMAT_H
#define EXA_MODEL_BLOCKS_FORMAT_H

#include "base/err.h"
#include "model/blocks.h"

#include <stdbool.h>

void q4_0_unpack(float *y, const void *blocks);
void q4_1_unpack(float *y, const void *blocks);
void q5_0_unpack(float *y, const void *blocks);
void q5_1_unpack(float *y, const void *blocks);
void q8_0_unpack(float *y, const void *blocks);
void q4_k_unpack(float *y, const void *blocks);
void q5_k_unpack(float *y, const void *blocks);
void q6_k_unpack(float *y, const void *blocks);
void f8_e4m3_unpack(float *y, const void *blocks);

void q4_0_pack(void *blocks, const float *x);
void q4_1_pack(void *blocks, const float *x);
void q5_0_pack(void *blocks, const float *x);
void q5_1_pack(void *blocks, const float *x);
void q4_k_pack(void *blocks, const float *x);
void q5_k_pack(void *blocks, const float *x);
void q6_k_pack(void *blocks, const float *x);

/* Largest magnitude; NaN when there is one. */
float blocks_abs_max(const float *x, int n);

/* --- the search for scales (blocks_fit.c) ------------------------------------------------------- */

/* x[i] ~ scale * q[i] + min, q between 0 and levels. */
struct fit {
    float scale, min;
};
/* How a scale or min is kept: rounded to what the block's field holds. */
typedef float (*fit_store_fn)(float v);
float fit_store_half(float v);
float fit_store_float(float v); /* as it is: it gets a second level of quantisation */

/* Squared error of x[n], n a multiple of 8 up to 64, with the nearest q of [lo, hi]; q may be NULL. Values are finite. */
float fit_error(const float *x, int n, struct fit f, int lo, int hi, float *q);
/* The best found scale for q of [lo, hi] without a min; may be negative. */
struct fit fit_scale(const float *x, int n, int lo, int hi, fit_store_fn store);
/* The best found scale (not negative) and min for q of [0, levels]; `below`: min must not be above 0. */
struct fit fit_scale_min(const float *x, int n, int levels, bool below, fit_store_fn store);

#endif
