/* logits.c - see logits.h. The two passes over the whole row are written once over vectors of fixed width (GCC's vector extension) and
 * compiled for each instruction set: lanes, order and rounding are the same in all. */
#include "engine/logits.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { LANES = 8, MAX_TOP = 64 };
typedef float vec_f __attribute__((vector_size(LANES * 4)));
typedef double vec_d __attribute__((vector_size(LANES * 8)));
typedef int64_t vec_i __attribute__((vector_size(LANES * 8)));
#define FORCE static inline __attribute__((always_inline))

/* --- weights ---------------------------------------------------------------------------------------------- */

/* *at, x, becomes exp(x), for x <= 0, lane by lane; 0 below -LOGITS_REACH. x = k ln 2 + r with |r| <= ln 2 / 2; the series to r^11 / 11! is within 2e-15. */
FORCE void weights(vec_d *at)
{
    static const double COEFFICIENTS[] = {1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
                                          1.0 / 5040,     1.0 / 720,     1.0 / 120,    1.0 / 24,
                                          1.0 / 6,        1.0 / 2,       1.0,          1.0};
    const double magic = 0x1.8p52; /* adding it leaves the nearest integer in the low bits */
    vec_d x = *at;
    vec_i keep = x >= (double)-LOGITS_REACH;
    vec_d shifted = x * 0x1.71547652b82fep0 + magic;
    vec_d k = shifted - magic;
    vec_d r = x - k * 0x1.62e42fee00000p-1; /* ln 2 in two parts: k times the first is exact */
    r = r - k * 0x1.a39ef35793c76p-33;
    vec_d p = r * 0 + COEFFICIENTS[0];
    for (unsigned i = 1; i < sizeof COEFFICIENTS / sizeof COEFFICIENTS[0]; i++)
        p = p * r + COEFFICIENTS[i];
    vec_i scale = ((vec_i)shifted + 1023) << 52; /* the low bits of `shifted` are k */
    *at = (vec_d)((vec_i)(p * (vec_d)scale) & keep);
}

FORCE double lanes_sum(const vec_d *v)
{
    vec_d d = *v;
    return ((d[0] + d[1]) + (d[2] + d[3])) + ((d[4] + d[5]) + (d[6] + d[7]));
}

/* Block b of the row, padded with minus infinity behind the last id. */
FORCE const float *block_at(const float *x, uint32_t n, uint32_t b, float padded[LOGITS_BLOCK])
{
    uint32_t from = b * LOGITS_BLOCK;
    if (n - from >= LOGITS_BLOCK)
        return x + from;
    for (uint32_t i = 0; i < LOGITS_BLOCK; i++)
        padded[i] = from + i < n ? x[from + i] : -INFINITY;
    return padded;
}

FORCE void sum_blocks(struct logits *l, double inv_t)
{
    float padded[LOGITS_BLOCK];
    vec_d max = (vec_d){0} + (double)l->max;
    double total = 0;
    for (uint32_t b = 0; b < l->n_blocks; b++) {
        double sum = 0;
        if (((double)l->block_max[b] - l->max) * inv_t >= -LOGITS_REACH) {
            const float *x = block_at(l->x, l->n, b, padded);
            vec_d v, sums = {0};
            vec_f f;
            for (unsigned i = 0; i < LOGITS_BLOCK; i += LANES) {
                memcpy(&f, x + i, sizeof f);
                v = (__builtin_convertvector(f, vec_d) - max) * inv_t;
                weights(&v);
                sums += v;
            }
            sum = lanes_sum(&sums);
        }
        l->block_sum[b] = sum;
        total += sum;
    }
    l->total = total;
}

FORCE void weigh_ids(const struct logits *l, double inv_t, const uint32_t *ids, uint32_t n,
                     double *w)
{
    vec_d max = (vec_d){0} + (double)l->max;
    for (uint32_t i = 0; i < n; i += LANES) {
        uint32_t n_lanes = n - i < LANES ? n - i : LANES;
        float x[LANES];
        vec_f f;
        for (uint32_t k = 0; k < LANES; k++)
            x[k] = l->x[ids[i + (k < n_lanes ? k : 0)]];
        memcpy(&f, x, sizeof f);
        vec_d v = (__builtin_convertvector(f, vec_d) - max) * inv_t;
        weights(&v);
        memcpy(w + i, &v, n_lanes * sizeof *w);
    }
}

/* --- highest ---------------------------------------------------------------------------------------------- */

/* Returns whether some logit is no number. The inner loops are written for the compiler to turn into vectors. */
FORCE bool scan_blocks(struct logits *l)
{
    enum { N = 16 };
    float padded[LOGITS_BLOCK], best[N], max = -INFINITY;
    uint32_t bad[N] = {0}, any = 0;
    for (uint32_t b = 0; b < l->n_blocks; b++) {
        const float *x = block_at(l->x, l->n, b, padded);
        for (unsigned k = 0; k < N; k++)
            best[k] = -INFINITY;
        for (unsigned i = 0; i < LOGITS_BLOCK; i += N)
            for (unsigned k = 0; k < N; k++) {
                best[k] = x[i + k] > best[k] ? x[i + k] : best[k];
                bad[k] |= x[i + k] != x[i + k];
            }
        for (unsigned half = N / 2; half; half /= 2)
            for (unsigned k = 0; k < half; k++)
                best[k] = best[k + half] > best[k] ? best[k + half] : best[k];
        l->block_max[b] = best[0];
        max = best[0] > max ? best[0] : max;
    }
    l->max = max;
    for (unsigned k = 0; k < N; k++)
        any |= bad[k];
    return any;
}

/* --- one copy for each instruction set -------------------------------------------------------------------- */

static bool scan_plain(struct logits *l)
{
    return scan_blocks(l);
}
static void sum_plain(struct logits *l, double inv_t)
{
    sum_blocks(l, inv_t);
}
static void weigh_plain(const struct logits *l, double inv_t, const uint32_t *ids, uint32_t n,
                        double *w)
{
    weigh_ids(l, inv_t, ids, n, w);
}
#ifdef __x86_64__
__attribute__((target("avx2"))) static void weigh_avx2(const struct logits *l, double inv_t,
                                                       const uint32_t *ids, uint32_t n, double *w)
{
    weigh_ids(l, inv_t, ids, n, w);
}
__attribute__((target("avx2"))) static bool scan_avx2(struct logits *l)
{
    return scan_blocks(l);
}
__attribute__((target("avx2"))) static void sum_avx2(struct logits *l, double inv_t)
{
    sum_blocks(l, inv_t);
}
__attribute__((target("avx512f,avx512dq"))) static void sum_avx512(struct logits *l, double inv_t)
{
    sum_blocks(l, inv_t);
}
#endif

static bool scan(struct logits *l)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2"))
        return scan_avx2(l);
#endif
    return scan_plain(l);
}

void logits_sum(struct logits *l, double inv_t)
{
    l->inv_t = inv_t;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) {
        sum_avx512(l, inv_t);
        return;
    }
    if (__builtin_cpu_supports("avx2")) {
        sum_avx2(l, inv_t);
        return;
    }
#endif
    sum_plain(l, inv_t);
}

void logits_weigh(const struct logits *l, double inv_t, const uint32_t *ids, uint32_t n, double *w)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2")) {
        weigh_avx2(l, inv_t, ids, n, w);
        return;
    }
#endif
    weigh_plain(l, inv_t, ids, n, w);
}

/* --- the rest looks into few blocks ----------------------------------------------------------------------- */

int logits_scan(struct logits *l, const float *x, uint32_t n, struct err *e)
{
    l->x = x;
    l->n = n;
    l->n_blocks = logits_n_blocks(n);
    if (scan(l)) {
        uint32_t i = 0;
        while (!isnan(x[i]))
            i++;
        return err_set(e, ERR_FORMAT, "the logit of token %u is not a number", i);
    }
    if (!isfinite(l->max))
        return err_set(e, ERR_FORMAT, "the highest logit is %s infinity: no token can be drawn",
                       l->max > 0 ? "plus" : "minus");
    return 0;
}

static uint32_t block_end(const struct logits *l, uint32_t b)
{
    uint32_t end = (b + 1) * LOGITS_BLOCK;
    return end < l->n ? end : l->n;
}

uint32_t logits_best(const struct logits *l)
{
    uint32_t b = 0;
    while (l->block_max[b] != l->max)
        b++;
    uint32_t i = b * LOGITS_BLOCK;
    while (l->x[i] != l->max)
        i++;
    return i;
}

uint32_t logits_draw(const struct logits *l, double u)
{
    uint32_t ids[LOGITS_BLOCK], last = logits_best(l);
    double w[LOGITS_BLOCK], sum = 0, limit = u * l->total;
    for (uint32_t b = 0; b < l->n_blocks; b++) {
        if (sum + l->block_sum[b] <= limit) {
            sum += l->block_sum[b];
            continue;
        }
        uint32_t from = b * LOGITS_BLOCK, n = block_end(l, b) - from;
        for (uint32_t i = 0; i < n; i++)
            ids[i] = from + i;
        logits_weigh(l, l->inv_t, ids, n, w);
        for (uint32_t i = 0; i < n; i++) {
            if (w[i] > 0)
                last = from + i;
            if ((sum += w[i]) > limit)
                return last;
        }
        return last; /* the block's own sum, in another order, was higher by a rounding */
    }
    return last;
}

uint32_t logits_rank(const struct logits *l, uint32_t id)
{
    uint32_t n_before = 0;
    float x = l->x[id];
    for (uint32_t b = 0; b < l->n_blocks; b++) {
        if (l->block_max[b] < x)
            continue;
        uint32_t end = block_end(l, b);
        for (uint32_t i = b * LOGITS_BLOCK; i < end; i++)
            n_before += l->x[i] > x || (l->x[i] == x && i < id);
    }
    return n_before;
}

uint32_t logits_collect(const struct logits *l, float least, uint32_t *ids)
{
    uint32_t n = 0;
    for (uint32_t b = 0; b < l->n_blocks; b++) {
        if (l->block_max[b] < least)
            continue;
        uint32_t end = block_end(l, b);
        for (uint32_t i = b * LOGITS_BLOCK; i < end; i++) {
            ids[n] = i;
            n += l->x[i] >= least && l->x[i] > -INFINITY;
        }
    }
    return n;
}

/* Insert into best[*n], ordered, of at most n_best. */
static void top_insert(const struct logits *l, uint32_t id, uint32_t *best, uint32_t *n,
                       uint32_t n_best)
{
    float x = l->x[id];
    uint32_t at = *n;
    while (at && l->x[best[at - 1]] < x)
        at--;
    if (at == n_best)
        return;
    *n += *n < n_best;
    memmove(best + at + 1, best + at, (*n - at - 1) * sizeof *best);
    best[at] = id;
}

uint32_t logits_top(const struct logits *l, uint32_t n_best, uint32_t *best)
{
    uint32_t n = 0;
    CHECK(n_best <= MAX_TOP);
    for (uint32_t b = 0; n_best && b < l->n_blocks; b++) {
        if (n == n_best && l->block_max[b] <= l->x[best[n - 1]])
            continue; /* an equal one of a higher id comes behind */
        uint32_t end = block_end(l, b);
        for (uint32_t i = b * LOGITS_BLOCK; i < end; i++)
            if (l->x[i] > -INFINITY && (n < n_best || l->x[i] > l->x[best[n - 1]]))
                top_insert(l, i, best, &n, n_best);
    }
    return n;
}
