/* draw.h - the sampler of each of an engine's requests, by the number of its entry. Draws go by position: a request that was preempted, or
 * that had tokens speculated, draws the same as one that was not.
 */
#ifndef EXA_ENGINE_DRAW_H
#define EXA_ENGINE_DRAW_H

#include "base/err.h"
#include "engine/sampler.h"

struct draws;

int draws_create(struct draws **out, const struct model_meta *meta, uint32_t n_requests,
                 uint32_t n_ctx, struct err *e);
void draws_destroy(struct draws *d);
uint64_t draws_bytes(const struct model_meta *meta, uint32_t n_requests, uint32_t n_ctx);

/* Is it drawable at all? As sampling_check of sampler.h. */
int draws_check(const struct draws *d, const struct msg_submit *s, struct err *e);
/* Request i begins. As sampler_start. */
int draws_start(struct draws *d, uint32_t i, const struct msg_submit *s, struct err *e);
/* It is over. As sampler_end. */
void draws_end(struct draws *d, uint32_t i);
/* As sampler_draw: the logits are changed. */
int draws_next(struct draws *d, uint32_t i, uint32_t position, float *logits, struct drawn *out,
               struct err *e);
/* As sampler_score: log-probability of a prompt's token. */
void draws_score(struct draws *d, uint32_t i, const float *logits, uint32_t token,
                 struct drawn *out);

#endif
