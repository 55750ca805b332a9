/* rope.h - the angles of rotary position embeddings (arXiv:2104.09864) and of their extensions beyond the trained context.
 *
 * Definitions as in transformers' modeling_rope_utils: LINEAR; YARN (arXiv:2309.00071); LONGROPE (arXiv:2402.13753); LLAMA3 by its
 * divisors; DYNAMIC is plain rotation up to the trained context, the only part of it that does not depend on the length of the text.
 * Everything is computed in double and rounded once.
 */
#ifndef EXA_ENGINE_ROPE_H
#define EXA_ENGINE_ROPE_H

#include "base/err.h"
#include "model/meta.h"

enum { ROPE_MAX_HALF = 128 };

struct rope {
    uint32_t half;              /* rope_dim / 2 */
    double turn[ROPE_MAX_HALF]; /* radians a position */
    double amplitude;           /* cosines and sines are multiplied by it */
};

/* LONGROPE: whether sequences of n_ctx need its long divisors. */
bool rope_is_long(const struct model_params *p, uint32_t n_ctx);
/* divisors: [rope_dim / 2] of the frequencies, NULL: none. ERR_FORMAT: a divisor that is not a positive number. ERR_CONFIG: a context that
 * the method is not exact for (both numbers named). */
int rope_init(struct rope *r, const struct model_params *p, uint32_t n_ctx, const float *divisors,
              struct err *e);
/* out: [n][rope_dim / 2][cos, sin] of positions first … first + n - 1 */
void rope_angles(const struct rope *r, float *out, uint32_t first, uint32_t n);

#endif
