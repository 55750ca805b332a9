/* fast_tile_f32.inc.h - the same of float formats: F32 [column][16 rows]. */

struct tile_f32 {
    float w[TILE_COLS_F32][16];
    float scale[TILE_COLS_F32 / BLOCK_WEIGHTS][16]; /* F8_E4M3 */
};

/* Sixteen e4m3 numbers in the low bytes of lanes. As a binary32's exponent and fraction they are 2^120 too small. */
LANES_INLINE v16f lanes_e4m3(v16i q)
{
    v16i rest = v16i_and(q, v16i_set1(0x7f));
    v16i sign = v16i_shl(v16i_and(q, v16i_set1(0x80)), 24);
    v16f v = v16f_mul(v16i_bits(v16i_shl(rest, 20)), v16f_set1(0x1p120f));
    v = v16f_where_less(v16f_set1(126), v16i_float(rest), v16f_set1(NAN), v);
    return v16i_bits(v16i_or(v16f_bits(v), sign));
}

/* 16 bytes of each row to 4, 8 or 16 columns. */
LANES_INLINE void floats_unpack(float (*w)[16], int type, const v16i v[4], const float *scale)
{
    const v16i high = v16i_set1((int32_t)0xffff0000);
    for (uint32_t k = 0; k < 4; k++) {
        if (type == TENSOR_F32) {
            v16f_store(w[k], v16i_bits(v[k]));
        } else if (type == TENSOR_F16) {
            v16f_store(w[2 * k], v16i_low_halves(v[k]));
            v16f_store(w[2 * k + 1], v16i_low_halves(v16i_shr(v[k], 16)));
        } else if (type == TENSOR_BF16) {
            v16f_store(w[2 * k], v16i_bits(v16i_shl(v[k], 16)));
            v16f_store(w[2 * k + 1], v16i_bits(v16i_and(v[k], high)));
        } else {
            v16f by = v16f_load(scale);
            for (uint32_t i = 0; i < 4; i++)
                v16f_store(w[4 * k + i], v16f_mul(by, lanes_e4m3(v16i_shr(v[k], 8 * i))));
        }
    }
}

/* Columns after the last whole 16 bytes: rows end anywhere, and nothing behind them may be read. */
static void floats_unpack_rest(float (*w)[16], int type, const struct rows *r, size_t at,
                               size_t n_bytes)
{
    uint8_t copy[16][16] = {{0}};
    v16i v[4];
    for (uint32_t i = 0; i < 16; i++)
        memcpy(copy[i], r->base + i * r->stride + at, n_bytes);
    lanes_rows(v, copy[0], sizeof copy[0]);
    floats_unpack(w, type, v, NULL);
}

LANES_INLINE void floats_unpack_all(struct tile_f32 *t, int type, const struct rows *r,
                                    uint32_t n_cols, uint32_t elem_bytes, const uint8_t *next)
{
    uint32_t step = 16 / elem_bytes, n = n_cols / step * step;
    v16i v[4];
    for (uint32_t c = 0; c < n; c += step) {
        lanes_rows(v, r->base + (size_t)c * elem_bytes, r->stride);
        tile_prefetch(next + (size_t)c * elem_bytes * 16, 256);
        floats_unpack(t->w + c, type, v, NULL);
    }
    if (n < n_cols)
        floats_unpack_rest(t->w + n, type, r, (size_t)n * elem_bytes,
                           (size_t)(n_cols - n) * elem_bytes);
}

static void tile_unpack_f32(struct tile_f32 *t, int type, const struct rows *r, uint32_t n_cols,
                            const uint8_t *next)
{
    if (type == TENSOR_F32)
        floats_unpack_all(t, TENSOR_F32, r, n_cols, 4, next);
    else if (type == TENSOR_F16)
        floats_unpack_all(t, TENSOR_F16, r, n_cols, 2, next);
    else if (type == TENSOR_BF16)
        floats_unpack_all(t, TENSOR_BF16, r, n_cols, 2, next);
    else {
        const size_t block_bytes = sizeof(struct block_f8_e4m3);
        uint32_t n_blocks = n_cols / BLOCK_WEIGHTS;
        v16i v[4];
        raw_collect((uint32_t(*)[16])(void *)t->scale, r, 0, block_bytes, n_blocks, 4);
        for (uint32_t b = 0; b < n_blocks; b++)
            for (uint32_t half = 0; half < 2; half++) {
                lanes_rows(v, r->base + b * block_bytes + 4 + 16 * half, r->stride);
                tile_prefetch(next + b * block_bytes * 16 + 288 * half, 288);
                floats_unpack(t->w + 32 * b + 16 * half, type, v, t->scale[b]);
            }
    }
}
