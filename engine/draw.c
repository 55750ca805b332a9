/* draw.c - see draw.h. */
#include "engine/draw.h"

#include <math.h>
#include <stdlib.h>

#include "engine/sample.h"
#include "model/meta.h"

struct one {
    struct sampling sampling;
};

struct draws {
    uint32_t n_vocab;
    uint32_t *order; /* [n_vocab] scratch */
    struct one *all; /* [n_requests] */
};

uint64_t draws_bytes(const struct model_meta *meta, uint32_t n_requests, uint32_t n_ctx)
{
    return 4ull * meta->params.n_vocab + (uint64_t)n_requests * sizeof(struct one);
}

int draws_create(struct draws **out, const struct model_meta *meta, uint32_t n_requests,
                 uint32_t n_ctx, struct err *e)
{
    struct draws *d = calloc(1, sizeof *d);
    if (d) {
        d->n_vocab = meta->params.n_vocab;
        d->order = calloc(d->n_vocab, sizeof *d->order);
        d->all = calloc(n_requests, sizeof *d->all);
    }
    if (!d || !d->order || !d->all) {
        draws_destroy(d);
        return err_set(e, ERR_NOMEM, "samplers of %u requests: out of memory", n_requests);
    }
    *out = d;
    return 0;
}

void draws_destroy(struct draws *d)
{
    if (!d)
        return;
    free(d->order);
    free(d->all);
    free(d);
}

int draws_check(const struct draws *d, const struct msg_submit *s, struct err *e)
{
    return sample_check(&s->sampling, e);
}

int draws_start(struct draws *d, uint32_t i, const struct msg_submit *s, struct err *e)
{
    d->all[i].sampling = s->sampling;
    return 0;
}

void draws_score(struct draws *d, uint32_t i, const float *logits, uint32_t token,
                 struct drawn *out)
{
    double sum = 0, top = logits[sample_greedy(logits, d->n_vocab)];
    uint32_t rank = 0;
    for (uint32_t t = 0; t < d->n_vocab; t++) {
        sum += exp(logits[t] - top);
        rank += logits[t] > logits[token];
    }
    *out = (struct drawn){
        .token = token, .logprob = (float)(logits[token] - top - log(sum)), .rank = rank};
}

int draws_next(struct draws *d, uint32_t i, uint32_t position, float *logits, struct drawn *out,
               struct err *e)
{
    const struct sampling *s = &d->all[i].sampling;
    uint32_t token = sample_token(s, position, logits, d->n_vocab, d->order);
    *out = (struct drawn){.token = token};
    if (s->want_logprobs)
        draws_score(d, i, logits, token, out);
    return 0;
}
