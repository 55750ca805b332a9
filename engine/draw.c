/* draw.c - see draw.h. */
#include "engine/draw.h"

#include <stdlib.h>

#include "model/meta.h"

struct draws {
    struct sampler_pool *pool;
    struct sampler **all; /* [n_requests]; NULL: none begun */
    uint32_t n_vocab;
};

uint64_t draws_bytes(const struct model_meta *meta, uint32_t n_requests, uint32_t n_ctx)
{
    return sampler_pool_bytes(meta, n_requests, n_ctx) + n_requests * sizeof(struct sampler *);
}

int draws_create(struct draws **out, const struct model_meta *meta, uint32_t n_requests,
                 uint32_t n_ctx, struct err *e)
{
    struct draws *d = calloc(1, sizeof *d);
    if (d)
        d->all = calloc(n_requests, sizeof *d->all);
    if (!d || !d->all) {
        draws_destroy(d);
        return err_set(e, ERR_NOMEM, "samplers of %u requests: out of memory", n_requests);
    }
    d->n_vocab = meta->params.n_vocab;
    int rc = sampler_pool_create(&d->pool, meta, n_requests, n_ctx, e);
    if (rc) {
        draws_destroy(d);
        return rc;
    }
    *out = d;
    return 0;
}

void draws_destroy(struct draws *d)
{
    if (!d)
        return;
    sampler_pool_destroy(d->pool);
    free(d->all);
    free(d);
}

int draws_check(const struct draws *d, const struct msg_submit *s, struct err *e)
{
    return sampling_check(s, d->n_vocab, e);
}

int draws_start(struct draws *d, uint32_t i, const struct msg_submit *s, struct err *e)
{
    return sampler_start(d->pool, i, s, &d->all[i], e);
}

void draws_end(struct draws *d, uint32_t i)
{
    sampler_end(d->all[i]);
    d->all[i] = NULL;
}

int draws_next(struct draws *d, uint32_t i, uint32_t position, float *logits, struct drawn *out,
               struct err *e)
{
    return sampler_draw(d->all[i], position, logits, out, e);
}

void draws_score(struct draws *d, uint32_t i, const float *logits, uint32_t token,
                 struct drawn *out)
{
    sampler_score(d->all[i], logits, token, out);
}
