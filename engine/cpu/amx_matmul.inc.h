/* amx_matmul.inc.h - dot products of bytes for sixteen activation rows at once, in AMX tiles; the rest is as in fast_matmul.inc.h.
 *
 * A tile of weights lies as AMX wants its second operand ([column / 4][16 rows][4]). A block's dot products are the same integers as
 * anywhere, so the sums are the same bits. Rows that fill no tile, and those that are picked, go the ordinary way.
 */
#include "engine/cpu/tile.h"

enum { AMX_ROWS = 16 };

/* Registers: 0, 1 high and low bytes of a block of activations, 2 its weights; 6, 7, 3 the same of half a block; 4, 5 sums of
 * high and low. */
static const struct tile_shapes AMX_SHAPES = {
    .palette = 1,
    .row_bytes = {32, 32, 64, 64, 64, 64, 16, 16},
    .rows = {16, 16, 8, 4, 16, 16, 16, 16},
};

struct amx_sums {
    int32_t high[AMX_ROWS][16], low[AMX_ROWS][16];
};

/* Group `group` of 32 columns, or of 16 (TILE_SUB16). a: the first row's activations of this stretch. */
LANES_INLINE void amx_group(const enum tile_kind kind, struct amx_sums *s, const struct tile *t,
                            const uint8_t *a, size_t low_at, size_t stride, uint32_t group)
{
    tile_zero(4);
    tile_zero(5);
    if (kind == TILE_SUB16) {
        tile_load(3, t->q[4 * (size_t)group], 64);
        tile_load(6, a + 16 * (size_t)group, stride);
        tile_load(7, a + 16 * (size_t)group + low_at, stride);
        tile_dot(4, 6, 3);
        tile_dot(5, 7, 3);
    } else {
        tile_load(2, t->q[8 * (size_t)group], 64);
        tile_load(0, a + 32 * (size_t)group, stride);
        tile_load(1, a + 32 * (size_t)group + low_at, stride);
        tile_dot(4, 0, 2);
        tile_dot(5, 1, 2);
    }
    tile_store(4, s->high, 64);
    tile_store(5, s->low, 64);
}

/* Results i … i + 15. */
LANES_INLINE void amx_rows(const enum tile_kind kind, const struct tile_job *j, uint32_t shift,
                           uint32_t i)
{
    const struct matmul_part *p = j->p;
    const struct tile *t = &j->s->q;
    const uint32_t n_all = p->m->w->n_cols, b0 = j->col / ACTS_BLOCK;
    const uint32_t per_block = kind == TILE_SUB16 ? 2 : 1;
    const size_t stride = acts_row_bytes(n_all), scale_at = acts_scale_at(n_all) + 4 * (size_t)b0;
    const size_t minus_at = kind == TILE_SUB16 ? acts_minus16_at(n_all) + 8 * (size_t)b0
                                               : acts_minus_at(n_all) + 4 * (size_t)b0;
    const size_t sum_at = acts_sum_at(n_all) + 4 * (size_t)b0;
    const uint8_t *a = p->acts + i * stride;
    struct amx_sums s;
    v16f sum[AMX_ROWS];
    for (uint32_t r = 0; r < AMX_ROWS; r++)
        sum[r] = j->is_first ? v16f_zero() : v16f_load(j->s->sums[i + r][0]);
    for (uint32_t group = 0; group < j->n_cols / ACTS_BLOCK * per_block; group++) {
        uint32_t b = group / per_block;
        amx_group(kind, &s, t, a + j->col, acts_low_at(n_all), stride, group);
        v16f scale = v16f_load(t->scale[group]);
        v16f min = kind == TILE_MIN ? v16f_load(t->min[b]) : v16f_zero();
#pragma GCC unroll 16
        for (uint32_t r = 0; r < AMX_ROWS; r++) {
            const uint8_t *row = a + r * stride;
            v16i dot = v16i_add(v16i_load(s.low[r]), v16i_shl(v16i_load(s.high[r]), ACTS_SHIFT));
            if (kind != TILE_MIN)
                dot = v16i_add(dot, v16i_shl(v16i_spread(row + minus_at + 4 * group), shift));
            v16f d = v16i_bits(v16i_spread(row + scale_at + 4 * b));
            sum[r] = v16f_fma(v16i_float(dot), v16f_mul(scale, d), sum[r]);
            if (kind == TILE_MIN)
                sum[r] = v16f_fma(min, v16i_bits(v16i_spread(row + sum_at + 4 * b)), sum[r]);
        }
    }
    for (uint32_t r = 0; r < AMX_ROWS; r++) {
        if (j->is_last)
            tile_finish(j, i + r, sum[r]);
        else
            v16f_store(j->s->sums[i + r][0], sum[r]);
    }
}

LANES_INLINE uint32_t amx_all(const enum tile_kind kind, const struct tile_job *j, uint32_t shift)
{
    uint32_t i = 0;
    for (; j->p->n - i >= AMX_ROWS; i += AMX_ROWS)
        amx_rows(kind, j, shift, i);
    return i;
}

static uint32_t amx_kind(const struct tile_job *j, struct tile_format f)
{
    switch (f.kind) {
    case TILE_SHIFTED:
    case TILE_WIDE:
        return amx_all(TILE_SHIFTED, j, f.shift);
    case TILE_MIN:
        return amx_all(TILE_MIN, j, f.shift);
    default:
        return amx_all(TILE_SUB16, j, f.shift);
    }
}

static void stretch_amx(const struct tile_job *j, struct tile_format f)
{
    uint32_t done = 0;
    if (j->p->n >= AMX_ROWS && !j->p->pick && j->p->in_div == 1) {
        tile_configure(&AMX_SHAPES);
        done = amx_kind(j, f);
        tile_release();
    }
    stretch_q8(j, f, done);
}
