/* sample.h - drawing one token from logits. A pure function of logits, parameters, seed and position: a replay draws the same.
 *
 * Order: temperature, then top_k, then top_p over what is left (as vLLM does). Ties go to the lower id. Sums are in double and
 * in one order.
 */
#ifndef EXA_ENGINE_SAMPLE_H
#define EXA_ENGINE_SAMPLE_H

#include "base/err.h"
#include "wire/msg.h"

#include <stdint.h>

/* ERR_FORMAT: a parameter that is no number or out of range (named). */
int sample_check(const struct sampling *s, struct err *e);
/* Highest logit; the lowest id of equals. */
uint32_t sample_greedy(const float *logits, uint32_t n_vocab);
/* logits must be finite; order: scratch [n_vocab]. position: tokens generated before this one. */
uint32_t sample_token(const struct sampling *s, uint32_t position, const float *logits,
                      uint32_t n_vocab, uint32_t *order);
/* Uniform in [0, 1), a function of (seed, position) alone. */
double sample_uniform(uint64_t seed, uint32_t position);

#endif
