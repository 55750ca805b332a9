/* sampler.h - from logits to a token, for one request: penalties, bias, constraint, and the draw. Everything is a function of
 * (parameters, prompt, tokens so far, logits, seed, position): a sampler started from prompt + token log at any position goes on exactly.
 *
 * Order at each position: log-probabilities are taken from the raw logits; then logit_bias; repetition penalty over prompt and answer
 * (arXiv:1909.05858: divide positive, multiply negative logits), frequency and presence penalties over the answer (OpenAI API reference);
 * end-of-generation ids forbidden before min_tokens; the constraint's mask; temperature; then top_k, top_p (arXiv:1904.09751),
 * min_p (arXiv:2407.01082), typical_p (arXiv:2202.00666), each over what is left. Ties go to the lower id. Sums are in double, in one order.
 *
 * A sampler_pool holds all memory of all requests' samplers, taken at creation: nothing is allocated later, except that compiling a
 * constraint not yet in the cache allocates within the cache's bound. One thread.
 */
#ifndef EXA_ENGINE_SAMPLER_H
#define EXA_ENGINE_SAMPLER_H

#include "base/err.h"
#include "wire/msg.h"

struct sampler_pool;
struct sampler; /* of one request; belongs to the pool */
struct model_meta;

/* meta gives the constraint's token bytes (through text/) and may go after. n_samplers: requests at once. */
int sampler_pool_create(struct sampler_pool **out, const struct model_meta *meta,
                        uint32_t n_samplers, uint32_t n_ctx, struct err *e);
void sampler_pool_destroy(struct sampler_pool *p);
uint64_t sampler_pool_bytes(const struct model_meta *meta, uint32_t n_samplers, uint32_t n_ctx);

/* ERR_FORMAT, ERR_LIMIT: a parameter that is no number or out of range (named), a bias outside the vocabulary. */
int sampling_check(const struct msg_submit *s, uint32_t n_vocab, struct err *e);
/* Begin request i (any earlier one of that number ends): state is rebuilt from s->tokens, of which the last s->start are the log.
 * ERR_LIMIT, ERR_FORMAT, ERR_CONFIG: the constraint cannot be compiled, or the log breaks it (position named). ERR_AGAIN: too many
 * different constraints are in use. */
int sampler_start(struct sampler_pool *p, uint32_t i, const struct msg_submit *s,
                  struct sampler **out, struct err *e);

/* The request is over: what it shares with others (its constraint) is given back. A later start of its number does the same. NULL is allowed. */
void sampler_end(struct sampler *s);

struct drawn {
    uint32_t token;
    float logprob; /* valid if asked for */
    uint32_t rank;
    uint32_t n_top;
    struct token_logprob top[MSG_MAX_TOP_LOGPROBS];
};
/* Draw the token of `position` (tokens generated before it). logits [n_vocab] are changed. ERR_FORMAT: the constraint leaves no token
 * (or all logits are minus infinity). The token is part of the state afterwards: a speculated successor is drawn by the next call. */
int sampler_draw(struct sampler *s, uint32_t position, float *logits, struct drawn *d,
                 struct err *e);
/* Log-probability of `token` and of the n_top best under logits (prompt log-probabilities). */
void sampler_score(struct sampler *s, const float *logits, uint32_t token, struct drawn *d);
/* Is `token` an end here: a stop id at or after min_tokens, unless ignore_eos. */
bool sampler_is_end(const struct sampler *s, uint32_t token, uint32_t position);

/* Uniform in [0, 1), a function of (seed, position) alone. */
double sample_uniform(uint64_t seed, uint32_t position);

#endif
