/* ops_output.c - operations around the layers: routing to experts, outputs, pooling, what sampling needs.
 *
 * All kernel sets share them; sums are in a fixed order that no set changes.
 */
#include <math.h>
#include <string.h>

#include "engine/cpu/exec.h"

/* --- experts ---------------------------------------------------------------------------------------------- */

struct route_job {
    uint32_t *choice;
    float *share;
    const float *logits;
    uint32_t n_experts, n_used;
    bool renorm;
};

/* The n_used highest, by insertion: n_used is small. A NaN compares lower than all. */
static void route_choose(const struct route_job *j, uint32_t *choice, const float *logits)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < j->n_experts; i++) {
        uint32_t at = n;
        while (at && (logits[i] > logits[choice[at - 1]] || isnan(logits[choice[at - 1]])))
            at--;
        if (at == j->n_used)
            continue;
        if (n < j->n_used)
            n++;
        memmove(choice + at + 1, choice + at, (n - 1 - at) * sizeof *choice);
        choice[at] = i;
    }
}

static void route_items(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct route_job *j = ctx;
    for (uint32_t r = begin; r < end; r++) {
        const float *logits = j->logits + (size_t)r * j->n_experts;
        uint32_t *choice = j->choice + (size_t)r * j->n_used;
        float *share = j->share + (size_t)r * j->n_used;
        route_choose(j, choice, logits);
        double top = logits[choice[0]], sum = 0;
        uint32_t n = j->renorm ? j->n_used : j->n_experts;
        for (uint32_t i = 0; i < n; i++)
            sum += exp(logits[j->renorm ? choice[i] : i] - top);
        for (uint32_t i = 0; i < j->n_used; i++)
            share[i] = (float)(exp(logits[choice[i]] - top) / sum);
    }
}

void cpu_route(struct exec *x, uint32_t *choice, float *share, const float *logits,
               uint32_t n_experts, uint32_t n_used, bool renorm, uint32_t n)
{
    exec_for(x, n, 16, route_items,
             &(struct route_job){choice, share, logits, n_experts, n_used, renorm});
}

struct experts_sum_job {
    const struct exec *x;
    float *y;
    const float *in, *share;
    uint32_t n_used, width;
};

static void experts_sum_items(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct experts_sum_job *j = ctx;
    for (uint32_t r = begin; r < end; r++) {
        float *y = j->y + (size_t)r * j->width;
        for (uint32_t u = 0; u < j->n_used; u++) {
            size_t pair = (size_t)r * j->n_used + u;
            j->x->k->scale_add(y, j->in + pair * j->width, j->share[pair], j->width);
        }
    }
}

void cpu_experts_sum(struct exec *x, float *y, const float *in, const float *share, uint32_t n_used,
                     uint32_t n, uint32_t width)
{
    exec_for(x, n, 4, experts_sum_items, &(struct experts_sum_job){x, y, in, share, n_used, width});
}

/* --- rows with outputs ------------------------------------------------------------------------------------ */

struct rows_job {
    float *to;
    const float *in;
    uint32_t width;
    const struct step *s;
};

static void gather_items(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct rows_job *j = ctx;
    for (uint32_t r = begin; r < end; r++)
        if (j->s->rows[r].out != ROW_NO_OUT)
            memcpy(j->to + (size_t)j->s->rows[r].out * j->width, j->in + (size_t)r * j->width,
                   j->width * sizeof(float));
}

void cpu_gather(struct exec *x, float *y, const float *in, uint32_t width, const struct step *s)
{
    exec_for(x, s->n_rows, 64, gather_items, &(struct rows_job){y, in, width, s});
}

/* Items are columns: the rows of a sequence are added in order, whichever thread does it. */
static void pool_sum_items(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct rows_job *j = ctx;
    for (uint32_t r = 0; r < j->s->n_rows; r++) {
        float *sum = j->to + (size_t)j->s->rows[r].seq * j->width;
        const float *in = j->in + (size_t)r * j->width;
        for (uint32_t i = begin; i < end; i++)
            sum[i] += in[i];
    }
}

void cpu_pool_sum(struct exec *x, float *sum, const float *in, uint32_t width, const struct step *s)
{
    exec_for(x, width, 256, pool_sum_items, &(struct rows_job){sum, in, width, s});
}

struct finite_job {
    const struct exec *x;
    uint16_t *bad;
    uint16_t mark;
    const float *in;
    uint32_t width;
};

static void finite_items(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct finite_job *j = ctx;
    for (uint32_t r = begin; r < end; r++) {
        if (!j->bad[r] && !j->x->k->all_finite(j->in + (size_t)r * j->width, j->width))
            j->bad[r] = j->mark;
    }
}

void cpu_mark_nonfinite(struct exec *x, uint16_t *bad, uint16_t mark, const float *in, uint32_t n,
                        uint32_t width)
{
    exec_for(x, n, width > 16384 ? 1 : 16, finite_items,
             &(struct finite_job){x, bad, mark, in, width});
}

/* --- what sampling needs ---------------------------------------------------------------------------------- */

struct logits_job {
    const struct exec *x;
    uint32_t *ids;
    double *sums;
    float *masked;
    const uint32_t *const *masks;
    const float *logits;
    uint32_t n_vocab;
};

static void argmax_items(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct logits_job *j = ctx;
    for (uint32_t r = begin; r < end; r++)
        j->ids[r] = j->x->k->argmax(j->logits + (size_t)r * j->n_vocab, j->n_vocab);
}

void cpu_argmax(struct exec *x, uint32_t *ids, const float *logits, uint32_t n, uint32_t n_vocab)
{
    exec_for(x, n, 1, argmax_items,
             &(struct logits_job){.x = x, .ids = ids, .logits = logits, .n_vocab = n_vocab});
}

static void mask_items(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct logits_job *j = ctx;
    for (uint32_t r = begin; r < end; r++) {
        const uint32_t *mask = j->masks[r];
        float *v = j->masked + (size_t)r * j->n_vocab;
        if (!mask)
            continue;
        for (uint32_t i = 0; i < j->n_vocab; i++)
            if (!(mask[i / 32] >> i % 32 & 1))
                v[i] = -INFINITY;
    }
}

void cpu_mask(struct exec *x, float *logits, const uint32_t *const *masks, uint32_t n,
              uint32_t n_vocab)
{
    exec_for(x, n, 1, mask_items,
             &(struct logits_job){.x = x, .masked = logits, .masks = masks, .n_vocab = n_vocab});
}

static void log_sum_exp_items(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct logits_job *j = ctx;
    for (uint32_t r = begin; r < end; r++)
        j->sums[r] = j->x->k->log_sum_exp(j->logits + (size_t)r * j->n_vocab, j->n_vocab);
}

void cpu_log_sum_exp(struct exec *x, double *out, const float *logits, uint32_t n, uint32_t n_vocab)
{
    exec_for(x, n, 1, log_sum_exp_items,
             &(struct logits_job){.x = x, .sums = out, .logits = logits, .n_vocab = n_vocab});
}
