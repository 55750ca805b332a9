/* select.h - the shortest run of the first candidates whose weight or number reaches a limit, without sorting them. Pure.
 *
 * Candidates are ordered by key, which is different for each. A radix selection: work is linear in n whatever the keys.
 */
#ifndef EXA_ENGINE_SELECT_H
#define EXA_ENGINE_SELECT_H

#include <stdint.h>

/* The key of a logit: higher logits first, of equals (0 and -0 are) the lower id. */
uint64_t select_key_logit(float logit, uint32_t id);
/* The key of a distance >= 0: nearer first, of equals the lower id; distances are compared to 32 bits of mantissa. id < 2^20. */
uint64_t select_key_distance(double distance, uint32_t id);

/* The key of the last candidate of the shortest run, from the lowest key on, that has n_max candidates or whose weights' sum reaches
 * `weight`; UINT64_MAX: none does. rest: scratch [n]. */
uint64_t select_cut(const uint64_t *keys, const double *weights, uint32_t n, uint32_t n_max,
                    double weight, uint32_t *rest);

#endif
