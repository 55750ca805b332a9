/* logits.h - passes over one row of logits: highest, softmax sums, candidates. Inside of the sampler.
 *
 * Every weight is exp((logit - highest) / temperature), computed here in double with one polynomial in one order: it depends on no C
 * library and on no instruction set. A weight below exp(-LOGITS_REACH) counts as 0: 2^20 of them are less than 1e-11 of the best one.
 * Sums run over blocks of LOGITS_BLOCK ids in order of ids.
 */
#ifndef EXA_ENGINE_LOGITS_H
#define EXA_ENGINE_LOGITS_H

#include "base/err.h"

#include <stdint.h>

enum { LOGITS_BLOCK = 64, LOGITS_REACH = 40 };

struct logits {
    const float *x; /* [n] */
    uint32_t n, n_blocks;
    float max;         /* logits_scan */
    double total;      /* logits_sum; of weights at inv_t */
    double inv_t;      /* 1 / temperature of the sums */
    float *block_max;  /* [n_blocks] */
    double *block_sum; /* [n_blocks] */
};
static inline uint32_t logits_n_blocks(uint32_t n)
{
    return (n + LOGITS_BLOCK - 1) / LOGITS_BLOCK;
}

/* The highest of the row and of each block. ERR_FORMAT: a logit is no number or plus infinity, or all are minus infinity. */
int logits_scan(struct logits *l, const float *x, uint32_t n, struct err *e);
/* Behind logits_scan: the lowest id of the highest logit. */
uint32_t logits_best(const struct logits *l);
/* The sum of all weights, and of each block. */
void logits_sum(struct logits *l, double inv_t);
/* Behind logits_sum: the first id at which the running sum of weights exceeds u * total. */
uint32_t logits_draw(const struct logits *l, double u);
/* How many come before id: those with a higher logit, and of equal ones those with a lower id. */
uint32_t logits_rank(const struct logits *l, uint32_t id);
/* ids of all logits that are at least `least` and not minus infinity, in order; returns how many. ids: [n] */
uint32_t logits_collect(const struct logits *l, float least, uint32_t *ids);
/* Weights of the logits of these ids: w[i] = exp((x[ids[i]] - max) * inv_t). */
void logits_weigh(const struct logits *l, double inv_t, const uint32_t *ids, uint32_t n, double *w);
/* The n_best ids (at most 64) that come before all others, in order; returns how many there are. */
uint32_t logits_top(const struct logits *l, uint32_t n_best, uint32_t *best);

#endif
