/* blocks_fit.c - scales with the least squared error (blocks_format.h).
 *
 * For given q the best scale (and min) is a linear least-squares problem; the best q for a given
 * scale is rounding. So: try a row of scales around the obvious one, solve each, go on from the
 * best by turns of rounding and solving, and keep what, after storing, errs least. The obvious one
 * is among the tried, so a search never makes a block worse than plain rounding does.
 *
 * Sums run over 8 lanes: one fixed order on every machine, and the compiler can vectorise it.
 */
#include "model/blocks_format.h"

#include <math.h>

enum {
    LANES = 8,
    TURNS = 3,  /* of rounding and solving; the error hardly falls after two */
    AROUND = 5, /* scales tried to each side of the obvious one … */
};
#define STEP 0.2f /* … this far apart, in units of q at the largest weight */

/* Of |v| < 2^22: adding it rounds to a whole number, ties to even. */
#define ROUNDER 12582912.0f

float fit_store_half(float v)
{
    uint8_t h[2];
    float_half(h, v);
    return half_float(h);
}
float fit_store_float(float v)
{
    return v;
}

static float lanes_sum(const float s[LANES])
{
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

static float nearest(float v, float lo, float hi)
{
    v = v < lo ? lo : v;
    v = v > hi ? hi : v;
    return (v + ROUNDER) - ROUNDER;
}

float fit_error(const float *x, int n, struct fit f, int lo, int hi, float *q)
{
    float inverse = f.scale != 0 ? 1 / f.scale : 0, sum[LANES] = {0};
    if (!isfinite(inverse)) /* a subnormal scale: everything is as good as 0 */
        inverse = 0;
    for (int i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float v = nearest((x[i + l] - f.min) * inverse, (float)lo, (float)hi);
            float off = x[i + l] - (f.scale * v + f.min);
            sum[l] += off * off;
            if (q)
                q[i + l] = v;
        }
    return lanes_sum(sum);
}

/* Sums over nearest q: of q, q^2 and x * q. */
struct sums {
    float q, qq, xq;
};
static struct sums sums_make(const float *x, int n, float inverse, float min, int lo, int hi)
{
    float q[LANES] = {0}, qq[LANES] = {0}, xq[LANES] = {0};
    for (int i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float v = nearest((x[i + l] - min) * inverse, (float)lo, (float)hi);
            q[l] += v;
            qq[l] += v * v;
            xq[l] += x[i + l] * v;
        }
    return (struct sums){lanes_sum(q), lanes_sum(qq), lanes_sum(xq)};
}

/* --- a scale alone ------------------------------------------------------------------------------ */

/* Store `scale`, keep it if it errs less than the best. */
static void scale_offer(const float *x, int n, int lo, int hi, fit_store_fn store, float scale,
                        struct fit *best, float *best_error)
{
    struct fit f = {store(scale), 0};
    if (!isfinite(f.scale))
        return;
    float error = fit_error(x, n, f, lo, hi, NULL);
    if (error < *best_error) {
        *best_error = error;
        *best = f;
    }
}

struct fit fit_scale(const float *x, int n, int lo, int hi, fit_store_fn store)
{
    float extreme = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(extreme))
            extreme = x[i];
    struct fit best = {store(extreme / (float)lo), 0};
    if (extreme == 0 || !isfinite(best.scale))
        return best;
    float best_error = fit_error(x, n, best, lo, hi, NULL);

    /* With the best scale for its q, a try leaves sum x^2 - gain. The extreme weight may be at either end of the range. */
    float gain = -1, scale = best.scale;
    for (int end = 0; end < 2; end++)
        for (int k = -AROUND; k <= AROUND; k++) {
            float at = (float)(end ? hi : lo) + STEP * (float)k;
            struct sums s = sums_make(x, n, at / extreme, 0, lo, hi);
            if (s.qq > 0 && s.xq * s.xq > gain * s.qq) {
                gain = s.xq * s.xq / s.qq;
                scale = s.xq / s.qq;
            }
        }
    for (int turn = 0; turn < TURNS && scale != 0; turn++) {
        scale_offer(x, n, lo, hi, store, scale, &best, &best_error);
        struct sums s = sums_make(x, n, 1 / scale, 0, lo, hi);
        if (!(s.qq > 0))
            break;
        scale = s.xq / s.qq;
    }
    return best;
}

/* --- a scale and a min -------------------------------------------------------------------------- */

/* The best scale and min for the q behind s: false when they are all the same. */
static bool solve(const struct sums *s, float sum_x, int n, bool below, struct fit *f)
{
    float det = (float)n * s->qq - s->q * s->q;
    if (!(det > 0))
        return false;
    f->scale = ((float)n * s->xq - sum_x * s->q) / det;
    f->min = (s->qq * sum_x - s->q * s->xq) / det;
    if (below && f->min > 0) {
        f->min = 0;
        f->scale = s->xq / s->qq;
    }
    return f->scale > 0;
}

static void pair_offer(const float *x, int n, int levels, bool below, fit_store_fn store,
                       struct fit f, struct fit *best, float *best_error)
{
    f = (struct fit){store(f.scale), store(f.min)};
    if (!isfinite(f.scale) || !isfinite(f.min) || (below && f.min > 0))
        return;
    float error = fit_error(x, n, f, 0, levels, NULL);
    if (error < *best_error) {
        *best_error = error;
        *best = f;
    }
}

struct fit fit_scale_min(const float *x, int n, int levels, bool below, fit_store_fn store)
{
    float min = x[0], max = x[0], lanes[LANES] = {0};
    for (int i = 0; i < n; i++) {
        min = x[i] < min ? x[i] : min;
        max = x[i] > max ? x[i] : max;
        lanes[i % LANES] += x[i];
    }
    float sum_x = lanes_sum(lanes);
    if (below && min > 0)
        min = 0;
    struct fit best = {store((max - min) / (float)levels), store(min)};
    if (!(max > min) || !isfinite(best.scale) || !isfinite(best.min))
        return best;
    float best_error = fit_error(x, n, best, 0, levels, NULL);

    struct fit f = best, try;
    float least = INFINITY;
    for (int k = -AROUND; k <= AROUND; k++) {
        float inverse = ((float)levels + STEP * (float)k) / (max - min);
        struct sums s = sums_make(x, n, inverse, min, 0, levels);
        if (!solve(&s, sum_x, n, below, &try))
            continue;
        float error = fit_error(x, n, try, 0, levels, NULL);
        if (error < least) {
            least = error;
            f = try;
        }
    }
    for (int turn = 0; turn < TURNS; turn++) {
        pair_offer(x, n, levels, below, store, f, &best, &best_error);
        struct sums s = sums_make(x, n, 1 / f.scale, f.min, 0, levels);
        if (!solve(&s, sum_x, n, below, &f))
            break;
    }
    return best;
}
