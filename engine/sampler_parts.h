/* sampler_parts.h - what sampler.c and sampler_choose.c share. Inside of the sampler only. */
#ifndef EXA_ENGINE_SAMPLER_PARTS_H
#define EXA_ENGINE_SAMPLER_PARTS_H

#include "engine/constraint.h"
#include "engine/logits.h"
#include "engine/sampler.h"
#include "engine/select.h"
#include "engine/token_set.h"

/* Of one draw; one for all samplers of a pool. */
struct scratch {
    struct logits raw, now; /* before and after the parameters have changed the row */
    float *copy;            /* [n_vocab] the row before */
    uint32_t *ids, *rest;   /* [n_vocab] candidates; scratch of select_cut */
    uint64_t *keys;         /* [n_vocab] */
    double *weights;        /* [n_vocab] */
};

struct bias {
    uint32_t id;
    float value;
};

struct sampler {
    struct scratch *scratch;
    uint32_t n_vocab;
    struct sampling p;
    bool ignore_eos, has_penalties;
    uint32_t n_stop_ids, stop_ids[MSG_MAX_STOP_IDS];
    uint32_t n_bias;
    struct bias bias[MSG_MAX_BIAS];
    struct token_set seen;
    struct constraints *constraints;     /* of the pool */
    struct constraint_entry *constraint; /* NULL: none */
    struct grammar_state state;          /* how far the answer has come in it */
};

/* The token of `position` from c->now, which is scanned. */
uint32_t sampler_choose(const struct sampling *p, uint32_t position, struct scratch *c);

#endif
