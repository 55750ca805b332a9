/* fast_matmul.inc.h - matrix products over tiles of sixteen output rows (kernels.h has the order of sums).
 *
 * A tile is unpacked a stretch of columns at a time and meets all activation rows before the next stretch; sums wait in between. How many
 * activation rows share a load of the tile changes which registers are used, never an order.
 */

enum {
    TILE_ROW_BYTES = 2048, /* of one stretch of any format */
    PREFETCH_AHEAD =
        4096, /* bytes beyond the next tile: its beginning must be there when it is wanted */
};
_Static_assert(TILE_COLS / 32 * sizeof(struct block_q8_0) <= TILE_ROW_BYTES &&
                   TILE_COLS_F32 * sizeof(float) <= TILE_ROW_BYTES,
               "the widest formats");

struct matmul_scratch {
    union {
        struct tile q;
        struct tile_f32 f;
    };
    uint8_t rows[16][TILE_ROW_BYTES]; /* of a short last tile */
    float sums[KERNELS_SLICE_ROWS][4]
              [16]; /* between stretches: one vector for int8, four for floats */
};

static bool fast_has_acts(int type)
{
    const struct tensor_type_info *t = tensor_type_info(type);
    return t && t->block_elems > 1 && type != TENSOR_F8_E4M3;
}

/* One tile of one matmul_part. */
struct tile_job {
    const struct matmul_part *p;
    struct matmul_scratch *s;
    uint32_t first, n_rows; /* output rows */
    uint32_t col, n_cols;   /* this stretch of columns */
    bool is_first, is_last;
};

LANES_INLINE uint32_t out_row(const struct matmul_part *p, uint32_t i)
{
    return p->pick ? p->pick[i] : i;
}

/* Sixteen results of one activation row to their places: as matmul_put. */
LANES_INLINE void tile_finish(const struct tile_job *j, uint32_t i, v16f v)
{
    const struct matmul *m = j->p->m;
    float *y = m->y + (size_t)out_row(j->p, i) * m->y_stride + j->first;
    uint32_t n = j->n_rows;
    if (m->bias)
        v = v16f_add(v, part_load(m->bias + j->first, n));
    if (m->accumulate)
        v = v16f_add(part_load(y, n), v);
    part_store(y, v, n);
}

/* --- int8 ------------------------------------------------------------------------------------------------- */

/* Results i … i + R - 1. */
LANES_INLINE void rows_q8(const int R, const enum tile_kind kind, const struct tile_job *j,
                          uint32_t shift, uint32_t i)
{
    const struct matmul_part *p = j->p;
    const struct tile *t = &j->s->q;
    const uint32_t n_all = p->m->w->n_cols, b0 = j->col / ACTS_BLOCK, n = j->n_cols / ACTS_BLOCK;
    const size_t minus_at = kind == TILE_SUB16 ? acts_minus16_at(n_all) + 8 * (size_t)b0
                                               : acts_minus_at(n_all) + 4 * (size_t)b0;
    const size_t scale_at = acts_scale_at(n_all) + 4 * (size_t)b0;
    const size_t sum_at = acts_sum_at(n_all) + 4 * (size_t)b0;
    const uint8_t *a[8];
    v16f sum[8];
    for (int r = 0; r < R; r++) {
        uint32_t o = out_row(p, i + (uint32_t)r);
        a[r] = p->acts + (size_t)(o / p->in_div) * acts_row_bytes(n_all);
        sum[r] = j->is_first ? v16f_zero() : v16f_load(j->s->sums[i + (uint32_t)r][0]);
    }
    for (uint32_t b = 0; b < n; b++) {
        const int groups = kind == TILE_SUB16 ? 2 : 1, lanes = 8 / groups;
        for (int g = 0; g < groups; g++) {
            uint32_t group = b * (uint32_t)groups + (uint32_t)g;
            v16i high[8], dot[8]; /* dot: of low, then of all */
            for (int r = 0; r < R; r++)
                high[r] = v16i_zero();
            for (int r = 0; r < R; r++)
                dot[r] = kind == TILE_MIN
                             ? v16i_zero()
                             : v16i_shl(v16i_spread(a[r] + minus_at + 4 * group), shift);
            for (int k = 0; k < lanes; k++) {
                uint32_t quad = 8 * b + (uint32_t)(g * lanes + k);
                v16i w = v16i_load(t->q[quad]);
                for (int r = 0; r < R; r++) {
                    const uint8_t *q = a[r] + j->col + 4 * quad;
                    high[r] = lanes_dot(high[r], w, v16i_spread(q), kind == TILE_WIDE);
                    dot[r] = lanes_dot(dot[r], w, v16i_spread(q + n_all), kind == TILE_WIDE);
                }
            }
            for (int r = 0; r < R; r++)
                dot[r] = v16i_add(dot[r], v16i_shl(high[r], ACTS_SHIFT));
            v16f scale = v16f_load(t->scale[group]);
            for (int r = 0; r < R; r++) {
                v16f d = v16i_bits(v16i_spread(a[r] + scale_at + 4 * b));
                sum[r] = v16f_fma(v16i_float(dot[r]), v16f_mul(scale, d), sum[r]);
            }
        }
        if (kind == TILE_MIN) {
            v16f min = v16f_load(t->min[b]);
            for (int r = 0; r < R; r++)
                sum[r] = v16f_fma(min, v16i_bits(v16i_spread(a[r] + sum_at + 4 * b)), sum[r]);
        }
    }
    for (int r = 0; r < R; r++) {
        if (j->is_last)
            tile_finish(j, i + (uint32_t)r, sum[r]);
        else
            v16f_store(j->s->sums[i + (uint32_t)r][0], sum[r]);
    }
}

LANES_INLINE void all_rows_q8(const enum tile_kind kind, const struct tile_job *j, uint32_t shift,
                              uint32_t i)
{
    uint32_t n = j->p->n;
    for (; n - i >= LANES_ROWS_Q8; i += LANES_ROWS_Q8)
        rows_q8(LANES_ROWS_Q8, kind, j, shift, i);
    if (LANES_ROWS_Q8 > 4)
        for (; n - i >= 4; i += 4)
            rows_q8(4, kind, j, shift, i);
    if (LANES_ROWS_Q8 > 2)
        for (; n - i >= 2; i += 2)
            rows_q8(2, kind, j, shift, i);
    for (; i < n; i++)
        rows_q8(1, kind, j, shift, i);
}

/* Functions of their own: each holds the inlined rows_q8 of one kind. */
static void stretch_shifted(const struct tile_job *j, uint32_t shift, uint32_t i)
{
    all_rows_q8(TILE_SHIFTED, j, shift, i);
}
static void stretch_wide(const struct tile_job *j, uint32_t shift, uint32_t i)
{
    all_rows_q8(TILE_WIDE, j, shift, i);
}
static void stretch_min(const struct tile_job *j, uint32_t shift, uint32_t i)
{
    all_rows_q8(TILE_MIN, j, shift, i);
}
static void stretch_sub16(const struct tile_job *j, uint32_t shift, uint32_t i)
{
    all_rows_q8(TILE_SUB16, j, shift, i);
}

/* Results from i on. */
static void stretch_q8(const struct tile_job *j, struct tile_format f, uint32_t i)
{
    static void (*const KINDS[])(const struct tile_job *, uint32_t, uint32_t) = {
        [TILE_SHIFTED] = stretch_shifted,
        [TILE_WIDE] = stretch_wide,
        [TILE_MIN] = stretch_min,
        [TILE_SUB16] = stretch_sub16,
    };
    KINDS[f.kind](j, f.shift, i);
}
#ifdef STRETCH_Q8 /* a set may bring its own for most rows (AMX) */
static void STRETCH_Q8(const struct tile_job *j, struct tile_format f);
#define STRETCH STRETCH_Q8(j, tile_format(w->type))
#else
#define STRETCH stretch_q8(j, tile_format(w->type), 0)
#endif

/* --- floats ----------------------------------------------------------------------------------------------- */

LANES_INLINE void rows_f32(const int R, const struct tile_job *j, uint32_t i)
{
    const struct matmul_part *p = j->p;
    const struct tile_f32 *t = &j->s->f;
    const float *x[4];
    v16f sum[4][4];
    for (int r = 0; r < R; r++) {
        uint32_t o = out_row(p, i + (uint32_t)r);
        x[r] = p->x + (size_t)(o / p->in_div) * p->x_stride + j->col;
        for (int k = 0; k < 4; k++)
            sum[r][k] = j->is_first ? v16f_zero() : v16f_load(j->s->sums[i + (uint32_t)r][k]);
    }
    uint32_t c = 0;
    for (; c + 4 <= j->n_cols; c += 4)
        for (int k = 0; k < 4; k++) {
            v16f w = v16f_load(t->w[c + (uint32_t)k]);
            for (int r = 0; r < R; r++)
                sum[r][k] = v16f_fma(w, v16f_set1(x[r][c + (uint32_t)k]), sum[r][k]);
        }
    for (int k = 0; k < 3; k++) /* the last stretch may end anywhere */
        if (c + (uint32_t)k < j->n_cols)
            for (int r = 0; r < R; r++)
                sum[r][k] = v16f_fma(v16f_load(t->w[c + (uint32_t)k]),
                                     v16f_set1(x[r][c + (uint32_t)k]), sum[r][k]);
    for (int r = 0; r < R; r++) {
        if (j->is_last) {
            tile_finish(j, i + (uint32_t)r,
                        v16f_add(v16f_add(sum[r][0], sum[r][1]), v16f_add(sum[r][2], sum[r][3])));
            continue;
        }
        for (int k = 0; k < 4; k++)
            v16f_store(j->s->sums[i + (uint32_t)r][k], sum[r][k]);
    }
}

#ifndef STRETCH_F32 /* a set may bring its own (bf16) */
static void stretch_f32(const struct tile_job *j)
{
    uint32_t i = 0, n = j->p->n;
    for (; n - i >= LANES_ROWS_F32; i += LANES_ROWS_F32)
        rows_f32(LANES_ROWS_F32, j, i);
    for (; i < n; i++)
        rows_f32(1, j, i);
}
#define STRETCH_FLOAT stretch_f32
#else
static void STRETCH_F32(const struct tile_job *j);
#define STRETCH_FLOAT STRETCH_F32
#endif

/* --- tiles ------------------------------------------------------------------------------------------------ */

/* This stretch of sixteen rows. Where the matrix has fewer, a copy: the first row stands for those that lack, and its results are dropped. */
static struct rows tile_rows(const struct tile_job *j, size_t at, size_t n_bytes)
{
    const struct weight *w = j->p->m->w;
    const uint8_t *base = (const uint8_t *)w->data + j->first * w->row_bytes + at;
    if (j->n_rows == 16)
        return (struct rows){base, w->row_bytes};
    for (uint32_t i = 0; i < 16; i++)
        memcpy(j->s->rows[i], base + (i < j->n_rows ? i : 0) * w->row_bytes, n_bytes);
    return (struct rows){j->s->rows[0], TILE_ROW_BYTES};
}

static void tile_compute(struct tile_job *j)
{
    const struct weight *w = j->p->m->w;
    const struct tensor_type_info *t = tensor_type_info(w->type);
    bool has_acts = fast_has_acts(w->type);
    uint32_t most = has_acts ? TILE_COLS : TILE_COLS_F32;
    for (j->col = 0; j->col < w->n_cols; j->col += most) {
        j->n_cols = w->n_cols - j->col < most ? w->n_cols - j->col : most;
        j->is_first = j->col == 0;
        j->is_last = j->col + j->n_cols == w->n_cols;
        size_t at = (size_t)j->col / t->block_elems * t->block_bytes;
        struct rows r = tile_rows(j, at, (size_t)j->n_cols / t->block_elems * t->block_bytes);
        const uint8_t *next =
            (const uint8_t *)w->data + (j->first + 16) * w->row_bytes + 16 * at + PREFETCH_AHEAD;
        if (has_acts) {
            tile_unpack(&j->s->q, w->type, &r, j->n_cols, next);
            STRETCH;
        } else {
            tile_unpack_f32(&j->s->f, w->type, &r, j->n_cols, next);
            STRETCH_FLOAT(j);
        }
    }
}

static void fast_matmul(const struct matmul_part *p)
{
    for (uint32_t i = p->begin; i < p->end; i += 16) {
        struct tile_job j = {
            .p = p,
            .s = p->scratch,
            .first = i,
            .n_rows = p->end - i < 16 ? p->end - i : 16,
        };
        tile_compute(&j);
    }
}
