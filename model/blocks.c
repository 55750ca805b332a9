/* blocks.c - see blocks.h: the small floats, and the formats without a search. */
#include "model/blocks.h"

#include "model/blocks_format.h"
#include "model/index.h"

#include <math.h>

/* --- small floats ------------------------------------------------------------------------------ */

static uint32_t float_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

/* v >> shift (1 to 31), to nearest, ties to even. */
static uint32_t shift_round(uint32_t v, unsigned shift)
{
    uint32_t half = 1u << (shift - 1), rest = v & ((half << 1) - 1), q = v >> shift;
    return q + (rest > half || (rest == half && (q & 1)));
}

void float_half(uint8_t p[2], float f)
{
    uint32_t bits = float_bits(f), sign = bits >> 16 & 0x8000, abs = bits & 0x7fffffff, h;
    if (abs > 0x7f800000)
        h = 0x7e00;
    else if (abs >= 0x47800000) /* 65536 */
        h = 0x7c00;
    else if (abs >= 0x38800000) /* 2^-14: normal; a carry goes on into the exponent */
        h = shift_round(abs - 0x38000000, 13);
    else if (abs >= 0x33000000) /* 2^-25: subnormal, in units of 2^-24 */
        h = shift_round((abs & 0x7fffff) | 0x800000, 126 - (abs >> 23));
    else
        h = 0;
    h |= sign;
    p[0] = (uint8_t)h;
    p[1] = (uint8_t)(h >> 8);
}

void float_bfloat(uint8_t p[2], float f)
{
    uint32_t bits = float_bits(f);
    uint32_t h = (bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : shift_round(bits, 16);
    p[0] = (uint8_t)h;
    p[1] = (uint8_t)(h >> 8);
}

uint8_t float_e4m3(float f)
{
    uint32_t bits = float_bits(f), sign = bits >> 24 & 0x80, abs = bits & 0x7fffffff, q;
    if (abs > 0x7f800000)
        q = 0x7f;
    else if (abs >= 0x43e00000) /* 448, the largest */
        q = 0x7e;
    else if (abs >= 0x3c800000) /* 2^-6: normal */
        q = shift_round(abs - 0x3c000000, 20);
    else if (abs >= 0x3a800000) /* 2^-10: subnormal, in units of 2^-9 */
        q = shift_round((abs & 0x7fffff) | 0x800000, 141 - (abs >> 23));
    else
        q = 0;
    return (uint8_t)(sign | q);
}

/* --- plain numbers ------------------------------------------------------------------------------ */

static void f32_unpack(float *y, const void *blocks)
{
    memcpy(y, blocks, 4);
}
static void f32_pack(void *blocks, const float *x)
{
    memcpy(blocks, x, 4);
}
static void f16_unpack(float *y, const void *blocks)
{
    *y = half_float(blocks);
}
static void f16_pack(void *blocks, const float *x)
{
    float_half(blocks, *x);
}
static void bf16_unpack(float *y, const void *blocks)
{
    *y = bfloat_float(blocks);
}
static void bf16_pack(void *blocks, const float *x)
{
    float_bfloat(blocks, *x);
}

/* --- 8 bits a weight: the largest sets the scale ------------------------------------------------- */

float blocks_abs_max(const float *x, int n)
{
    float max = 0;
    for (int i = 0; i < n; i++) {
        float a = fabsf(x[i]);
        if (!(a <= max)) /* also when a is NaN: the block shows it */
            max = a;
        if (max != max)
            break;
    }
    return max;
}

static void q8_0_pack(void *blocks, const float *x)
{
    struct block_q8_0 *b = blocks;
    float_half(b->d, blocks_abs_max(x, BLOCK_WEIGHTS) / 127);
    float d = half_float(b->d);
    for (int i = 0; i < BLOCK_WEIGHTS; i++) {
        float q = d > 0 && isfinite(d) ? rintf(x[i] / d) : 0;
        b->q[i] = (int8_t)(q > 127 ? 127 : q < -127 ? -127 : q);
    }
}

static void f8_e4m3_pack(void *blocks, const float *x)
{
    struct block_f8_e4m3 *b = blocks;
    float scale = blocks_abs_max(x, BLOCK_WEIGHTS) / 448;
    memcpy(b->scale, &scale, 4);
    for (int i = 0; i < BLOCK_WEIGHTS; i++)
        b->q[i] = scale > 0 ? float_e4m3(x[i] / scale) : 0;
}

/* --- the table ---------------------------------------------------------------------------------- */

struct format {
    int type;
    uint32_t elems, bytes;
    void (*unpack)(float *y, const void *blocks); /* one block */
    void (*pack)(void *blocks, const float *x);
};

static const struct format FORMATS[] = {
    {TENSOR_F32, 1, 4, f32_unpack, f32_pack},
    {TENSOR_F16, 1, 2, f16_unpack, f16_pack},
    {TENSOR_BF16, 1, 2, bf16_unpack, bf16_pack},
    {TENSOR_Q4_0, BLOCK_WEIGHTS, sizeof(struct block_q4_0), q4_0_unpack, q4_0_pack},
    {TENSOR_Q4_1, BLOCK_WEIGHTS, sizeof(struct block_q4_1), q4_1_unpack, q4_1_pack},
    {TENSOR_Q5_0, BLOCK_WEIGHTS, sizeof(struct block_q5_0), q5_0_unpack, q5_0_pack},
    {TENSOR_Q5_1, BLOCK_WEIGHTS, sizeof(struct block_q5_1), q5_1_unpack, q5_1_pack},
    {TENSOR_Q8_0, BLOCK_WEIGHTS, sizeof(struct block_q8_0), q8_0_unpack, q8_0_pack},
    {TENSOR_Q4_K, KBLOCK_WEIGHTS, sizeof(struct block_q4_k), q4_k_unpack, q4_k_pack},
    {TENSOR_Q5_K, KBLOCK_WEIGHTS, sizeof(struct block_q5_k), q5_k_unpack, q5_k_pack},
    {TENSOR_Q6_K, KBLOCK_WEIGHTS, sizeof(struct block_q6_k), q6_k_unpack, q6_k_pack},
    {TENSOR_F8_E4M3, BLOCK_WEIGHTS, sizeof(struct block_f8_e4m3), f8_e4m3_unpack, f8_e4m3_pack},
};

static const struct format *format_of(int type, size_t n)
{
    for (size_t i = 0; i < sizeof FORMATS / sizeof FORMATS[0]; i++)
        if (FORMATS[i].type == type) {
            CHECK(n % FORMATS[i].elems == 0);
            return &FORMATS[i];
        }
    CHECK(!"a type of tensor_type_info");
    return NULL;
}

void block_unpack(int type, float *y, const void *blocks, size_t n)
{
    const struct format *f = format_of(type, n);
    const uint8_t *p = blocks;
    for (size_t i = 0; i < n; i += f->elems, p += f->bytes)
        f->unpack(y + i, p);
}

void block_pack(int type, void *blocks, const float *x, size_t n)
{
    const struct format *f = format_of(type, n);
    uint8_t *p = blocks;
    for (size_t i = 0; i < n; i += f->elems, p += f->bytes)
        f->pack(p, x + i);
}
