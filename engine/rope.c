/* rope.c - see rope.h. */
#include "engine/rope.h"

#include <math.h>
#include <string.h>

/* Defaults of the method where a model gives none. */
static const double YARN_BETA_FAST = 32, YARN_BETA_SLOW = 1;
static const double PI = 3.14159265358979323846;

bool rope_is_long(const struct model_params *p, uint32_t n_ctx)
{
    return p->rope_scaling == ROPE_LONGROPE && n_ctx > p->rope_orig_ctx;
}

/* The dimension that makes so many turns over the trained context, as a real number. */
static double yarn_dimension(const struct model_params *p, double turns)
{
    return p->rope_dim * log(p->rope_orig_ctx / (turns * 2 * PI)) / (2 * log((double)p->rope_base));
}

/* Dimensions that turn fast stay, slow ones are interpolated, those between are mixed along a ramp. */
static void yarn_turns(struct rope *r, const struct model_params *p)
{
    double fast = p->yarn_beta_fast > 0 ? (double)p->yarn_beta_fast : YARN_BETA_FAST;
    double slow = p->yarn_beta_slow > 0 ? (double)p->yarn_beta_slow : YARN_BETA_SLOW;
    double low = fmax(floor(yarn_dimension(p, fast)), 0);
    double high = fmin(ceil(yarn_dimension(p, slow)), (double)p->rope_dim - 1);
    if (low == high)
        high += 0.001; /* a ramp of no width: as the reference has it */
    for (uint32_t i = 0; i < r->half; i++) {
        double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
        r->turn[i] = r->turn[i] / (double)p->rope_factor * ramp + r->turn[i] * (1 - ramp);
    }
}

static double amplitude_of(const struct model_params *p)
{
    double factor = p->rope_factor > 0 ? (double)p->rope_factor
                    : p->rope_orig_ctx ? (double)p->n_ctx / p->rope_orig_ctx
                                       : 1;
    if (p->rope_attn_factor > 0 && p->rope_scaling != ROPE_PLAIN)
        return (double)p->rope_attn_factor;
    if (factor <= 1)
        return 1;
    if (p->rope_scaling == ROPE_YARN)
        return 0.1 * log(factor) + 1;
    if (p->rope_scaling == ROPE_LONGROPE)
        return sqrt(1 + log(factor) / log(p->rope_orig_ctx));
    return 1;
}

static int scaling_check(const struct model_params *p, uint32_t n_ctx, struct err *e)
{
    bool by_factor = p->rope_scaling == ROPE_LINEAR || p->rope_scaling == ROPE_YARN;
    if (p->rope_scaling > ROPE_DYNAMIC || p->rope_dim / 2 > ROPE_MAX_HALF)
        return err_set(e, ERR_FORMAT, "RoPE scaling %u of %u dimensions: expected at most %d of %d",
                       p->rope_scaling, p->rope_dim, ROPE_DYNAMIC, 2 * ROPE_MAX_HALF);
    if (by_factor && !(p->rope_factor >= 1))
        return err_set(e, ERR_FORMAT, "RoPE scaling factor: expected at least 1, found %g",
                       (double)p->rope_factor);
    if (p->rope_scaling >= ROPE_YARN && p->rope_scaling != ROPE_LLAMA3 && p->rope_orig_ctx < 2)
        return err_set(e, ERR_FORMAT, "RoPE scaling: expected the trained context, found %u",
                       p->rope_orig_ctx);
    if (p->rope_scaling == ROPE_DYNAMIC && n_ctx > p->rope_orig_ctx)
        return err_set(e, ERR_CONFIG,
                       "dynamic RoPE scaling: expected a context of at most %u tokens, found %u "
                       "(beyond it the past would have to be computed anew for every token)",
                       p->rope_orig_ctx, n_ctx);
    return 0;
}

int rope_init(struct rope *r, const struct model_params *p, uint32_t n_ctx, const float *divisors,
              struct err *e)
{
    int rc = scaling_check(p, n_ctx, e);
    if (rc)
        return rc;
    *r = (struct rope){.half = p->rope_dim / 2, .amplitude = amplitude_of(p)};
    for (uint32_t i = 0; i < r->half; i++) {
        r->turn[i] = pow((double)p->rope_base, -2.0 * i / p->rope_dim);
        if (!divisors)
            continue;
        if (!(divisors[i] > 0) || !isfinite(divisors[i]))
            return err_set(e, ERR_FORMAT,
                           "rotary divisor of dimension %u: expected a positive number, found %g",
                           i, (double)divisors[i]);
        r->turn[i] /= (double)divisors[i];
    }
    if (p->rope_scaling == ROPE_LINEAR)
        for (uint32_t i = 0; i < r->half; i++)
            r->turn[i] /= (double)p->rope_factor;
    if (p->rope_scaling == ROPE_YARN)
        yarn_turns(r, p);
    return 0;
}

void rope_angles(const struct rope *r, float *out, uint32_t first, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t i = 0; i < r->half; i++) {
            double a = ((double)first + k) * r->turn[i];
            *out++ = (float)(r->amplitude * cos(a));
            *out++ = (float)(r->amplitude * sin(a));
        }
}
