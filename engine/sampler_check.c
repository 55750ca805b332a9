/* sampler_check.c - parameters of a request, before anything is computed for it. */
#include "engine/sampler.h"

#include <math.h>

/* Wider than what an API lets through, narrow enough that no logit of a sane model overflows. */
static const float MAX_TEMPERATURE = 100, MAX_PENALTY = 100, MIN_REPETITION = 0.01f,
                   MAX_BIAS = 1e6f;

/* Written so that NaN fails. */
static int check_range(const char *name, float v, float least, float most, struct err *e)
{
    if (v >= least && v <= most)
        return 0;
    return err_set(e, ERR_FORMAT, "%s %g: expected %g to %g", name, (double)v, (double)least,
                   (double)most);
}

static int check_numbers(const struct sampling *p, struct err *e)
{
    int rc = check_range("temperature", p->temperature, 0, MAX_TEMPERATURE, e);
    if (!rc)
        rc = check_range("top_p", p->top_p, 0, 1, e);
    if (!rc)
        rc = check_range("min_p", p->min_p, 0, 1, e);
    if (!rc)
        rc = check_range("typical_p", p->typical_p, 0, 1, e);
    if (!rc && p->repetition_penalty != 0)
        rc = check_range("repetition_penalty", p->repetition_penalty, MIN_REPETITION, MAX_PENALTY,
                         e);
    if (!rc)
        rc = check_range("frequency_penalty", p->frequency_penalty, -MAX_PENALTY, MAX_PENALTY, e);
    if (!rc)
        rc = check_range("presence_penalty", p->presence_penalty, -MAX_PENALTY, MAX_PENALTY, e);
    if (!rc && p->n_top > MSG_MAX_TOP_LOGPROBS)
        rc = err_set(e, ERR_LIMIT, "%u log-probabilities of others: at most %d", p->n_top,
                     MSG_MAX_TOP_LOGPROBS);
    return rc;
}

static int check_ids(const struct msg_submit *s, uint32_t n_vocab, struct err *e)
{
    if (s->n_stop_ids > MSG_MAX_STOP_IDS)
        return err_set(e, ERR_LIMIT, "%u stop ids: at most %d", s->n_stop_ids, MSG_MAX_STOP_IDS);
    for (uint32_t i = 0; i < s->n_stop_ids; i++)
        if (u32_at(s->stop_ids, i) >= n_vocab)
            return err_set(e, ERR_FORMAT, "stop id %u is outside the vocabulary of %u",
                           u32_at(s->stop_ids, i), n_vocab);
    if (s->n_bias > MSG_MAX_BIAS)
        return err_set(e, ERR_LIMIT, "bias of %u tokens: at most %d", s->n_bias, MSG_MAX_BIAS);
    for (size_t i = 0; i < s->n_bias; i++) {
        uint32_t id = u32_at(s->bias, 2 * i);
        if (id >= n_vocab)
            return err_set(e, ERR_FORMAT, "bias of token %u: outside the vocabulary of %u", id,
                           n_vocab);
        int rc = check_range("bias", f32_at(s->bias, 2 * i + 1), -MAX_BIAS, MAX_BIAS, e);
        if (rc)
            return rc;
    }
    return 0;
}

int sampling_check(const struct msg_submit *s, uint32_t n_vocab, struct err *e)
{
    int rc = check_numbers(&s->sampling, e);
    return rc ? rc : check_ids(s, n_vocab, e);
}
