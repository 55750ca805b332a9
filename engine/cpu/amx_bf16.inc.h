/* amx_bf16.inc.h - float weights times activations, both rounded to bfloat16, in AMX tiles: faster and less exact than the other sets, so
 * a set of its own numerics, chosen by name only.
 *
 * A tile of weights is [column / 2][16 rows][2]. Products of 32 columns are summed by one instruction, one such after the other; any
 * number of rows goes through the same instructions (missing ones are zero), so a row's bits do not depend on its company.
 */

enum { BF16_ROWS = 16, BF16_COLS = 32 };

static const struct tile_shapes BF16_SHAPES = {
    .palette = 1,
    .row_bytes = {64, 64, 64},
    .rows = {BF16_ROWS, BF16_COLS / 2, BF16_ROWS}, /* 0 activations, 1 weights, 2 sums */
};

struct bf16_scratch {
    struct matmul_scratch base;
    uint32_t w[TILE_COLS_F32 / 2][16];
    uint16_t x[BF16_ROWS][TILE_COLS_F32];
    float sums[BF16_ROWS][16];
};

/* To bfloat16 in the low half of lanes: nearest, ties to even; a NaN stays one. */
LANES_INLINE v16i lanes_bf16(v16f v)
{
    v16i bits = v16f_bits(v), odd = v16i_and(v16i_shr(bits, 16), v16i_set1(1));
    v16i rounded = v16i_shr(v16i_add(bits, v16i_add(odd, v16i_set1(0x7fff))), 16);
    return _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q),
                                 v16i_set1(0x7fc0));
}

static uint32_t bf16_padded(uint32_t n_cols)
{
    return (n_cols + BF16_COLS - 1) / BF16_COLS * BF16_COLS;
}

static void bf16_weights(struct bf16_scratch *s, uint32_t n_cols)
{
    struct tile_f32 *t = &s->base.f;
    for (uint32_t c = n_cols; c < bf16_padded(n_cols); c++)
        v16f_store(t->w[c], v16f_zero());
    for (uint32_t c = 0; c < bf16_padded(n_cols); c += 2)
        v16i_store(s->w[c / 2], v16i_or(lanes_bf16(v16f_load(t->w[c])),
                                        v16i_shl(lanes_bf16(v16f_load(t->w[c + 1])), 16)));
}

/* Activations of results i … i + n - 1, this stretch. */
static void bf16_activations(struct bf16_scratch *s, const struct tile_job *j, uint32_t i,
                             uint32_t n)
{
    const struct matmul_part *p = j->p;
    uint32_t padded = bf16_padded(j->n_cols);
    for (uint32_t r = 0; r < BF16_ROWS; r++) {
        memset(s->x[r], 0, padded * sizeof s->x[r][0]);
        if (r >= n)
            continue;
        const float *x = p->x + (size_t)(out_row(p, i + r) / p->in_div) * p->x_stride + j->col;
        FOR_VECTORS(c, len, j->n_cols)
        _mm256_storeu_si256((void *)&s->x[r][c],
                            _mm512_cvtepi32_epi16(lanes_bf16(part_load(x + c, len))));
    }
}

static void bf16_rows(struct bf16_scratch *s, const struct tile_job *j, uint32_t i)
{
    uint32_t n = j->p->n - i < BF16_ROWS ? j->p->n - i : BF16_ROWS;
    bf16_activations(s, j, i, n);
    for (uint32_t r = 0; r < BF16_ROWS; r++)
        v16f_store(s->sums[r],
                   j->is_first || r >= n ? v16f_zero() : v16f_load(s->base.sums[i + r][0]));
    tile_load(2, s->sums, sizeof s->sums[0]);
    for (uint32_t c = 0; c < bf16_padded(j->n_cols); c += BF16_COLS) {
        tile_load(0, &s->x[0][c], sizeof s->x[0]);
        tile_load(1, s->w[c / 2], sizeof s->w[0]);
        tile_dot_bf16(2, 0, 1);
    }
    tile_store(2, s->sums, sizeof s->sums[0]);
    for (uint32_t r = 0; r < n; r++) {
        if (j->is_last)
            tile_finish(j, i + r, v16f_load(s->sums[r]));
        else
            v16f_store(s->base.sums[i + r][0], v16f_load(s->sums[r]));
    }
}

static void stretch_bf16(const struct tile_job *j)
{
    struct bf16_scratch *s = (struct bf16_scratch *)(void *)j->s;
    bf16_weights(s, j->n_cols);
    tile_configure(&BF16_SHAPES);
    for (uint32_t i = 0; i < j->p->n; i += BF16_ROWS)
        bf16_rows(s, j, i);
    tile_release();
}
