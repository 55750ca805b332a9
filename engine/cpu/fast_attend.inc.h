/* fast_attend.inc.h - attention over blocks of keys and values (kv_layout.h).
 *
 * Positions are taken in parts of KERNELS_PART_TOKENS, whose borders are the sequence's own: whatever is computed together, a part
 * of a query has its own maximum, sum and values, in order of position, and parts are merged in order. A block is converted to
 * F32 once for all queries (rows of a chunk, heads of the group) that see it; what a query does not see is never in its sums.
 */
#include "engine/cpu/kv_layout.h"

enum { PART_BLOCKS = KERNELS_PART_TOKENS / KV_BLOCK_TOKENS };

struct attend_scratch {
    float q[KERNELS_MAX_QUERIES * KERNELS_MAX_HEAD_DIM];    /* [query][head_dim], scaled */
    float block[KV_BLOCK_TOKENS * KERNELS_MAX_HEAD_DIM];    /* keys or values of one block */
    float scores[KERNELS_MAX_QUERIES][KERNELS_PART_TOKENS]; /* then their exponentials */
    float partial[KERNELS_MAX_QUERIES * (16 + KERNELS_MAX_HEAD_DIM)];
    float total[KERNELS_MAX_QUERIES * (16 + KERNELS_MAX_HEAD_DIM)];
};

/* One part, seen by the queries of an attend_part. */
struct part {
    const struct attend_part *p;
    struct attend_scratch *s;
    uint32_t start;                  /* its first position */
    uint32_t n_queries, dim, padded; /* padded: of values */
    uint16_t from[KERNELS_MAX_QUERIES],
        to[KERNELS_MAX_QUERIES]; /* what each query sees, from start */
    float *partial;              /* [query]: maximum, sum, 14 unused; values [padded] */
};

LANES_INLINE float *partial_at(float *partial, uint32_t padded, uint32_t i)
{
    return partial + (size_t)i * (16 + padded);
}

static void queries_scale(const struct attend_part *p)
{
    struct attend_scratch *s = p->scratch;
    uint32_t dim = p->kv->head_dim;
    const v16f scale = v16f_set1((float)(1 / sqrt((double)dim)));
    for (uint32_t r = 0; r < p->n_rows; r++)
        for (uint32_t h = 0; h < p->group; h++) {
            const float *from = p->q + r * p->stride + (size_t)h * dim;
            float *to = s->q + (size_t)(r * p->group + h) * dim;
            FOR_VECTORS(i, len, dim)
            part_store(to + i, v16f_mul(part_load(from + i, len), scale), len);
        }
}

/* First position that row r sees. */
static uint32_t row_first(const struct attend_part *p, uint32_t r)
{
    uint32_t n = p->first_position + r + 1;
    return p->window && n > p->window ? n - p->window : 0;
}

static void part_init(struct part *t, const struct attend_part *p, uint32_t number, float *partial)
{
    t->p = p;
    t->s = p->scratch;
    t->start = number * KERNELS_PART_TOKENS;
    t->n_queries = p->n_rows * p->group;
    t->dim = p->kv->head_dim;
    t->padded = kv_dim_padded(t->dim);
    t->partial = partial;
    for (uint32_t r = 0; r < p->n_rows; r++) {
        uint32_t first = row_first(p, r), end = p->first_position + r + 1;
        first = first > t->start ? first - t->start : 0;
        end = end > t->start ? end - t->start : 0;
        end = end < KERNELS_PART_TOKENS ? end : KERNELS_PART_TOKENS;
        for (uint32_t h = 0; h < p->group; h++) {
            t->from[r * p->group + h] = (uint16_t)(first < end ? first : 0);
            t->to[r * p->group + h] = (uint16_t)(first < end ? end : 0);
        }
    }
}

/* --- scores ----------------------------------------------------------------------------------------------- */

LANES_INLINE v16f kv_vector(int type, const uint8_t *p, size_t at)
{
    if (type == KV_F32)
        return v16f_load((const float *)(const void *)p + at);
    return type == KV_F16 ? v16f_load_halves(p + 2 * at) : v16f_load_bytes(p + at);
}

static void keys_convert(float *to, const struct kv_slab *slab, int type, uint32_t dim)
{
    if (type == KV_Q8) {
        v16f scale = v16f_load(slab->k_scale);
        for (uint32_t c = 0; c < dim; c++)
            v16f_store(to + 16 * c, v16f_mul(kv_vector(KV_Q8, slab->k, 16 * c), scale));
    } else {
        for (uint32_t c = 0; c < dim; c++)
            v16f_store(to + 16 * c, kv_vector(type, slab->k, 16 * c));
    }
}

LANES_INLINE void scores_block(const int R, const struct part *t, uint32_t block, uint32_t i)
{
    const float *k = t->s->block, *q = t->s->q + (size_t)i * t->dim;
    const v16f none = v16f_set1(-INFINITY);
    uint32_t at = block * KV_BLOCK_TOKENS;
    v16f sum[8];
    for (int r = 0; r < R; r++)
        sum[r] = v16f_zero();
    for (uint32_t c = 0; c < t->dim; c++) {
        v16f key = v16f_load(k + 16 * c);
        for (int r = 0; r < R; r++)
            sum[r] = v16f_fma(key, v16f_set1(q[(uint32_t)r * t->dim + c]), sum[r]);
    }
    for (int r = 0; r < R; r++) {
        uint32_t from = t->from[i + (uint32_t)r], to = t->to[i + (uint32_t)r];
        from = from > at ? from - at : 0;
        to = to > at ? to - at : 0;
        to = to < 16 ? to : 16;
        v16f v = from < to ? v16f_where_range(from, to, sum[r], none) : none;
        v16f_store(t->s->scores[i + (uint32_t)r] + at, v);
    }
}

static void scores_of_block(const struct part *t, uint32_t block)
{
    uint32_t i = 0, n = t->n_queries;
    for (; n - i >= LANES_ROWS_SCORE; i += LANES_ROWS_SCORE)
        scores_block(LANES_ROWS_SCORE, t, block, i);
    if (LANES_ROWS_SCORE > 4)
        for (; n - i >= 4; i += 4)
            scores_block(4, t, block, i);
    if (n - i >= 3) {
        scores_block(3, t, block, i);
        i += 3;
    }
    if (n - i >= 2) {
        scores_block(2, t, block, i);
        i += 2;
    }
    for (; i < n; i++)
        scores_block(1, t, block, i);
}

/* Scores of query i to exponentials; its maximum and their sum to its partial. Only its own blocks count. */
static void scores_exp(const struct part *t, uint32_t i)
{
    uint32_t first = t->from[i] / 16 * 16, end = (t->to[i] + 15u) / 16 * 16;
    float *scores = t->s->scores[i], *partial = partial_at(t->partial, t->padded, i);
    v16f top = v16f_set1(-INFINITY), sum = v16f_zero();
    for (uint32_t c = first; c < end; c += 16)
        top = v16f_max(v16f_load(scores + c), top);
    float most = v16f_max_of(top);
    for (uint32_t c = first; c < end; c += 16) {
        v16f e = lanes_exp(v16f_sub(v16f_load(scores + c), v16f_set1(most)));
        v16f_store(scores + c, e);
        sum = v16f_add(sum, e);
    }
    partial[0] = most;
    partial[1] = v16f_sum(sum);
}

/* --- values ----------------------------------------------------------------------------------------------- */

static void values_convert(float *to, const struct kv_slab *slab, int type, uint32_t padded)
{
    for (uint32_t p = 0; p < KV_BLOCK_TOKENS; p++) {
        size_t row = (size_t)p * padded;
        v16f scale = v16f_set1(type == KV_Q8 ? slab->v_scale[p] : 1);
        for (uint32_t c = 0; c < padded; c += 16) {
            v16f v = kv_vector(type, slab->v, row + c);
            v16f_store(to + row + c, type == KV_Q8 ? v16f_mul(v, scale) : v);
        }
    }
}

/* Queries i … i + R - 1: D vectors of values from column c on, positions [from, to) of the block. */
LANES_INLINE void values_add(const int R, const int D, const struct part *t, uint32_t block,
                             uint32_t i, uint32_t c, uint32_t from, uint32_t to)
{
    const float *v = t->s->block + c;
    v16f sum[4][4];
    for (int r = 0; r < R; r++)
        for (int d = 0; d < D; d++)
            sum[r][d] =
                v16f_load(partial_at(t->partial, t->padded, i + (uint32_t)r) + 16 + c + 16 * d);
    for (uint32_t p = from; p < to; p++) {
        v16f row[4];
        for (int d = 0; d < D; d++)
            row[d] = v16f_load(v + (size_t)p * t->padded + 16 * d);
        for (int r = 0; r < R; r++) {
            v16f e = v16f_set1(t->s->scores[i + (uint32_t)r][block * KV_BLOCK_TOKENS + p]);
            for (int d = 0; d < D; d++)
                sum[r][d] = v16f_fma(row[d], e, sum[r][d]);
        }
    }
    for (int r = 0; r < R; r++)
        for (int d = 0; d < D; d++)
            v16f_store(partial_at(t->partial, t->padded, i + (uint32_t)r) + 16 + c + 16 * d,
                       sum[r][d]);
}

/* All columns of R queries. */
LANES_INLINE void values_columns(const int R, const struct part *t, uint32_t block, uint32_t i,
                                 uint32_t from, uint32_t to)
{
    uint32_t c = 0;
    if (from >= to)
        return;
    for (; c + 64 <= t->padded; c += 64)
        values_add(R, 4, t, block, i, c, from, to);
    for (; c < t->padded; c += 16)
        values_add(R, 1, t, block, i, c, from, to);
}

static uint32_t in_block(uint32_t at, uint32_t block)
{
    uint32_t start = block * KV_BLOCK_TOKENS;
    at = at > start ? at - start : 0;
    return at < KV_BLOCK_TOKENS ? at : KV_BLOCK_TOKENS;
}

/* What all R queries see they take together, what is before and behind it each alone. */
LANES_INLINE void values_block(const int R, const struct part *t, uint32_t block, uint32_t i)
{
    uint32_t from = 0, to = KV_BLOCK_TOKENS;
    for (uint32_t r = 0; r < (uint32_t)R; r++) {
        uint32_t f = in_block(t->from[i + r], block), e = in_block(t->to[i + r], block);
        from = f > from ? f : from;
        to = e < to ? e : to;
    }
    to = to > from ? to : from;
    for (uint32_t r = 0; r < (uint32_t)R; r++) {
        uint32_t f = in_block(t->from[i + r], block), e = in_block(t->to[i + r], block);
        values_columns(1, t, block, i + r, f, e < from ? e : from);
    }
    values_columns(R, t, block, i, from, to);
    for (uint32_t r = 0; r < (uint32_t)R; r++) {
        uint32_t f = in_block(t->from[i + r], block), e = in_block(t->to[i + r], block);
        values_columns(1, t, block, i + r, f > to ? f : to, e);
    }
}

static void values_of_block(const struct part *t, uint32_t block)
{
    uint32_t i = 0, n = t->n_queries;
    for (; n - i >= LANES_ROWS_VALUE; i += LANES_ROWS_VALUE)
        values_block(LANES_ROWS_VALUE, t, block, i);
    if (LANES_ROWS_VALUE > 2 && n - i >= 3) {
        values_block(3, t, block, i);
        i += 3;
    }
    for (; i < n; i++)
        values_block(1, t, block, i);
}

/* --- a part, and parts together --------------------------------------------------------------------------- */

static void part_compute(const struct part *t)
{
    const struct attend_part *p = t->p;
    uint32_t from = KERNELS_PART_TOKENS, to = 0;
    for (uint32_t i = 0; i < t->n_queries; i++) {
        if (t->to[i] && t->from[i] < from)
            from = t->from[i];
        to = t->to[i] > to ? t->to[i] : to;
    }
    uint32_t first = from / KV_BLOCK_TOKENS, last = (to - 1) / KV_BLOCK_TOKENS;
    const uint32_t *table = p->table + t->start / KV_BLOCK_TOKENS;
    for (uint32_t b = first; b <= last; b++) {
        struct kv_slab slab = kv_slab(p->kv, table[b], p->layer, p->head);
        keys_convert(t->s->block, &slab, p->kv->type, t->dim);
        scores_of_block(t, b);
    }
    for (uint32_t i = 0; i < t->n_queries; i++) {
        memset(partial_at(t->partial, t->padded, i), 0, (16 + t->padded) * sizeof(float));
        if (t->to[i])
            scores_exp(t, i);
    }
    for (uint32_t b = first; b <= last; b++) {
        struct kv_slab slab = kv_slab(p->kv, table[b], p->layer, p->head);
        values_convert(t->s->block, &slab, p->kv->type, t->padded);
        values_of_block(t, b);
    }
}

/* The next part of a query onto what came before it. */
static void partial_merge(float *total, const float *part, uint32_t padded)
{
    v16f m = v16f_set1(total[0]), n = v16f_set1(part[0]), top = v16f_max(m, n);
    v16f a = lanes_exp(v16f_sub(m, top)), b = lanes_exp(v16f_sub(n, top));
    total[0] = v16f_first(top);
    total[1] = v16f_first(v16f_fma(v16f_set1(total[1]), a, v16f_mul(v16f_set1(part[1]), b)));
    for (uint32_t c = 16; c < 16 + padded; c += 16)
        v16f_store(total + c, v16f_fma(v16f_load(total + c), a, v16f_mul(v16f_load(part + c), b)));
}

/* Parts in order: the first one is copied. `seen`: is there one already? */
static void parts_add(float *totals, bool *seen, const struct part *t)
{
    for (uint32_t i = 0; i < t->n_queries; i++) {
        float *total = partial_at(totals, t->padded, i);
        const float *part = partial_at(t->partial, t->padded, i);
        if (!t->to[i])
            continue;
        if (seen[i])
            partial_merge(total, part, t->padded);
        else
            memcpy(total, part, (16 + t->padded) * sizeof(float));
        seen[i] = true;
    }
}

static void totals_out(const struct attend_part *p, float *totals)
{
    uint32_t dim = p->kv->head_dim, padded = kv_dim_padded(dim);
    for (uint32_t r = 0; r < p->n_rows; r++)
        for (uint32_t h = 0; h < p->group; h++) {
            const float *total = partial_at(totals, padded, r * p->group + h);
            float *out = p->out + r * p->stride + (size_t)h * dim;
            v16f sum = v16f_set1(total[1]);
            FOR_VECTORS(i, len, dim)
            part_store(out + i, v16f_div(part_load(total + 16 + i, len), sum), len);
        }
}

static void fast_attend_one(const struct attend_part *p, uint32_t number, float *partial)
{
    struct part t;
    queries_scale(p);
    part_init(&t, p, number, partial);
    part_compute(&t);
}

static void fast_attend_merge(const struct attend_part *p, uint32_t first, uint32_t last,
                              const float *partials)
{
    struct attend_scratch *s = p->scratch;
    size_t step = attend_partial_floats(p->n_rows * p->group, p->kv->head_dim);
    bool seen[KERNELS_MAX_QUERIES] = {false};
    struct part t;
    for (uint32_t n = first; n <= last; n++) {
        part_init(&t, p, n, s->partial);
        memcpy(s->partial, partials + (n - first) * step, step * sizeof(float));
        parts_add(s->total, seen, &t);
    }
    totals_out(p, s->total);
}

static void fast_attend(const struct attend_part *p)
{
    struct attend_scratch *s = p->scratch;
    bool seen[KERNELS_MAX_QUERIES] = {false};
    struct part t;
    queries_scale(p);
    uint32_t first = row_first(p, 0) / KERNELS_PART_TOKENS;
    uint32_t last = (p->first_position + p->n_rows - 1) / KERNELS_PART_TOKENS;
    for (uint32_t n = first; n <= last; n++) {
        part_init(&t, p, n, s->partial);
        part_compute(&t);
        parts_add(s->total, seen, &t);
    }
    totals_out(p, s->total);
}

/* --- storing ---------------------------------------------------------------------------------------------- */

/* Values as they lie (padded with zeros), and their scale. */
static float elems_pack(uint8_t *to, int type, const float *x, uint32_t n)
{
    uint32_t padded = kv_dim_padded(n);
    float scale = 1, inverse = 1;
    if (type == KV_Q8) {
        const v16i abs = v16i_set1((int32_t)FLOAT_ABS);
        v16i most = v16i_zero();
        FOR_VECTORS(i, len, n)
        most = v16i_max_u(most, v16i_and(v16f_bits(part_load(x + i, len)), abs));
        scale = int_scale(v16i_max_of_u(most), 127, &inverse);
    }
    for (uint32_t i = 0; i < padded; i += 16) {
        v16f v = i + 16 <= n ? v16f_load(x + i) : v16f_load_n(x + i, n - i);
        if (type == KV_F32)
            v16f_store((float *)(void *)to + i, v);
        else if (type == KV_F16)
            v16f_store_halves(to + 2 * i, v);
        else
            v16i_store_bytes(to + i, inverse > 0 ? v16f_round(v16f_mul(v, v16f_set1(inverse)))
                                                 : v16i_zero());
    }
    return scale;
}

static void fast_kv_store(const struct kv_cache *kv, uint32_t block, uint32_t layer, uint32_t head,
                          uint32_t at, const float *k, const float *v)
{
    struct kv_slab slab = kv_slab(kv, block, layer, head);
    size_t elem = kv_elem_bytes(kv->type);
    uint32_t dim = kv->head_dim;
    uint8_t keys[KERNELS_MAX_HEAD_DIM * sizeof(float)] __attribute__((aligned(64)));
    float k_scale = elems_pack(keys, kv->type, k, dim);
    float v_scale = elems_pack(slab.v + (size_t)at * kv_dim_padded(dim) * elem, kv->type, v, dim);
    for (uint32_t c = 0; c < dim; c++)
        memcpy(slab.k + (c * KV_BLOCK_TOKENS + at) * elem, keys + c * elem, elem);
    if (kv->type == KV_Q8) {
        slab.k_scale[at] = k_scale;
        slab.v_scale[at] = v_scale;
    }
}
