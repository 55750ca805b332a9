/* sampler.c - see sampler.h. Here: the memory of all samplers, how a request begins, and what its parameters do to a row of logits.
 * Which of the tokens that are left is drawn: sampler_choose.c. */
#include "engine/sampler_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/meta.h"

/* Some more different tokens than a context has: the drawn ones that a speculation takes back are not taken out. */
enum { SPARE_TOKENS = 64 };
/* What a log-probability of minus infinity is written as, so that JSON can carry it (as vLLM does). */
static const float LOGPROB_LEAST = -9999.0f;

struct sampler_pool {
    uint32_t n_samplers, n_ctx, n_vocab;
    struct sampler *samplers;
    uint8_t *sets; /* [n_samplers][token_set_bytes] */
    struct scratch scratch;
    struct constraints *constraints;
};

/* --- memory ----------------------------------------------------------------------------------------------- */

static int scratch_init(struct scratch *c, uint32_t n_vocab)
{
    uint32_t n_blocks = logits_n_blocks(n_vocab);
    for (int i = 0; i < 2; i++) {
        struct logits *l = i ? &c->now : &c->raw;
        l->block_max = malloc(n_blocks * sizeof *l->block_max);
        l->block_sum = malloc(n_blocks * sizeof *l->block_sum);
        if (!l->block_max || !l->block_sum)
            return -1;
    }
    c->copy = malloc(n_vocab * sizeof *c->copy);
    c->ids = malloc(n_vocab * sizeof *c->ids);
    c->rest = malloc(n_vocab * sizeof *c->rest);
    c->keys = malloc(n_vocab * sizeof *c->keys);
    c->weights = malloc(n_vocab * sizeof *c->weights);
    return c->copy && c->ids && c->rest && c->keys && c->weights ? 0 : -1;
}

static uint64_t scratch_bytes(uint32_t n_vocab)
{
    const struct scratch *c = NULL;
    uint64_t each =
        sizeof *c->copy + sizeof *c->ids + sizeof *c->rest + sizeof *c->keys + sizeof *c->weights;
    return each * n_vocab + 2 * (sizeof(float) + sizeof(double)) * logits_n_blocks(n_vocab);
}

static void scratch_fini(struct scratch *c)
{
    free(c->raw.block_max);
    free(c->raw.block_sum);
    free(c->now.block_max);
    free(c->now.block_sum);
    free(c->copy);
    free(c->ids);
    free(c->rest);
    free(c->keys);
    free(c->weights);
}

uint64_t sampler_pool_bytes(const struct model_meta *meta, uint32_t n_samplers, uint32_t n_ctx)
{
    return n_samplers * (sizeof(struct sampler) + (uint64_t)token_set_bytes(n_ctx + SPARE_TOKENS)) +
           scratch_bytes(meta->params.n_vocab) + constraints_max_bytes(meta);
}

int sampler_pool_create(struct sampler_pool **out, const struct model_meta *meta,
                        uint32_t n_samplers, uint32_t n_ctx, struct err *e)
{
    struct sampler_pool *p = calloc(1, sizeof *p);
    size_t set_bytes = token_set_bytes(n_ctx + SPARE_TOKENS);
    if (p) {
        *p = (struct sampler_pool){
            .n_samplers = n_samplers, .n_ctx = n_ctx, .n_vocab = meta->params.n_vocab};
        p->samplers = calloc(n_samplers, sizeof *p->samplers);
        p->sets = calloc(n_samplers, set_bytes);
    }
    if (!p || !p->samplers || !p->sets || scratch_init(&p->scratch, p->n_vocab)) {
        sampler_pool_destroy(p);
        return err_set(e, ERR_NOMEM, "out of memory for %u samplers", n_samplers);
    }
    int rc = constraints_create(&p->constraints, meta, e);
    if (rc) {
        sampler_pool_destroy(p);
        return rc;
    }
    for (uint32_t i = 0; i < n_samplers; i++) {
        p->samplers[i].scratch = &p->scratch;
        p->samplers[i].n_vocab = p->n_vocab;
        p->samplers[i].constraints = p->constraints;
        token_set_init(&p->samplers[i].seen, n_ctx + SPARE_TOKENS, p->sets + i * set_bytes);
    }
    *out = p;
    return 0;
}

void sampler_pool_destroy(struct sampler_pool *p)
{
    if (!p)
        return;
    scratch_fini(&p->scratch);
    constraints_destroy(p->constraints);
    free(p->samplers);
    free(p->sets);
    free(p);
}

/* --- a request begins ------------------------------------------------------------------------------------- */

static bool has_penalties(const struct sampling *s)
{
    return (s->repetition_penalty != 0 && s->repetition_penalty != 1) ||
           s->frequency_penalty != 0 || s->presence_penalty != 0;
}

/* The state of the constraint after the log. */
static int constraint_start(struct sampler *s, const struct msg_submit *m, struct err *e)
{
    if (m->constraint == CONSTRAINT_NONE)
        return 0;
    int rc = constraints_take(s->constraints, m->constraint, m->constraint_source,
                              m->constraint_bytes, &s->constraint, e);
    if (rc)
        return rc;
    constraint_begin(s->constraint, &s->state);
    uint32_t n_prompt = m->n_tokens - m->start;
    for (uint32_t i = 0; i < m->start; i++) {
        rc = constraint_accept(s->constraints, &s->state, u32_at(m->tokens, n_prompt + i), e);
        if (rc)
            return err_prefix(e, "position %u of the log: ", i);
    }
    return 0;
}

static void copy_parameters(struct sampler *s, const struct msg_submit *m)
{
    s->p = m->sampling;
    s->ignore_eos = m->ignore_eos;
    s->n_stop_ids = m->n_stop_ids;
    for (uint32_t i = 0; i < m->n_stop_ids; i++)
        s->stop_ids[i] = u32_at(m->stop_ids, i);
    s->n_bias = m->n_bias;
    for (size_t i = 0; i < m->n_bias; i++)
        s->bias[i] = (struct bias){u32_at(m->bias, 2 * i), f32_at(m->bias, 2 * i + 1)};
}

int sampler_start(struct sampler_pool *p, uint32_t i, const struct msg_submit *m,
                  struct sampler **out, struct err *e)
{
    int rc = sampling_check(m, p->n_vocab, e);
    if (rc)
        return rc;
    if (m->n_tokens > p->n_ctx || m->start > m->n_tokens)
        return err_set(e, ERR_LIMIT, "%u tokens with a log of %u: the context has %u", m->n_tokens,
                       m->start, p->n_ctx);
    for (uint32_t k = 0; k < m->n_tokens; k++)
        if (u32_at(m->tokens, k) >= p->n_vocab)
            return err_set(e, ERR_FORMAT, "token %u at %u is outside the vocabulary of %u",
                           u32_at(m->tokens, k), k, p->n_vocab);
    CHECK(i < p->n_samplers);
    struct sampler *s = &p->samplers[i];
    sampler_end(s);
    rc = constraint_start(s, m, e);
    if (rc) {
        sampler_end(s);
        return rc;
    }
    copy_parameters(s, m);
    s->has_penalties = has_penalties(&s->p);
    for (uint32_t k = 0; s->has_penalties && k < m->n_tokens; k++)
        token_set_add(&s->seen, u32_at(m->tokens, k), k >= m->n_tokens - m->start);
    *out = s;
    return 0;
}

void sampler_end(struct sampler *s)
{
    if (!s)
        return;
    constraints_give(s->constraints, s->constraint);
    s->constraint = NULL;
    token_set_clear(&s->seen);
}

/* --- what parameters do to logits ------------------------------------------------------------------------- */

static void apply_penalties(const struct sampler *s, float *logits)
{
    const struct sampling *p = &s->p;
    float repetition = p->repetition_penalty != 0 ? p->repetition_penalty : 1;
    for (uint32_t i = 0; i < s->seen.n; i++) {
        const struct token_seen *t = &s->seen.seen[i];
        float x = logits[t->id];
        x = x > 0 ? x / repetition : x * repetition;
        x -= p->frequency_penalty * (float)t->n_answer;
        x -= t->n_answer ? p->presence_penalty : 0;
        logits[t->id] = x;
    }
}

static bool ends_are_forbidden(const struct sampler *s, uint32_t position)
{
    if (position >= s->p.min_tokens || !s->n_stop_ids || s->ignore_eos)
        return false;
    return !s->constraint || !grammar_is_finished(&s->state); /* then there is nothing but an end */
}

/* Does anything change the logits at this position? */
static bool changes(const struct sampler *s, uint32_t position)
{
    return s->n_bias || s->has_penalties || s->constraint || ends_are_forbidden(s, position);
}

static int apply(const struct sampler *s, uint32_t position, float *logits, struct err *e)
{
    for (uint32_t i = 0; i < s->n_bias; i++)
        logits[s->bias[i].id] += s->bias[i].value;
    if (s->has_penalties)
        apply_penalties(s, logits);
    for (uint32_t i = 0; ends_are_forbidden(s, position) && i < s->n_stop_ids; i++)
        logits[s->stop_ids[i]] = -INFINITY;
    return s->constraint
               ? constraint_apply(s->constraints, s->constraint, &s->state, logits, s->n_vocab, e)
               : 0;
}

/* --- log-probabilities ------------------------------------------------------------------------------------ */

static float logprob_of(const struct logits *l, double log_total, uint32_t id)
{
    float v = (float)((double)l->x[id] - l->max - log_total);
    return v > 0 ? 0 : v > LOGPROB_LEAST ? v : LOGPROB_LEAST;
}

/* l: scanned and summed at temperature 1. */
static void score(const struct logits *l, uint32_t token, uint32_t n_top, struct drawn *d)
{
    uint32_t best[MSG_MAX_TOP_LOGPROBS];
    double log_total = log(l->total);
    d->token = token;
    d->logprob = logprob_of(l, log_total, token);
    d->rank = logits_rank(l, token);
    d->n_top = logits_top(l, n_top, best);
    for (uint32_t i = 0; i < d->n_top; i++)
        d->top[i] = (struct token_logprob){best[i], logprob_of(l, log_total, best[i])};
}

void sampler_score(struct sampler *s, const float *logits, uint32_t token, struct drawn *d)
{
    struct logits *l = &s->scratch->raw;
    *d = (struct drawn){.token = token, .logprob = LOGPROB_LEAST};
    if (token >= s->n_vocab || logits_scan(l, logits, s->n_vocab, NULL))
        return;
    logits_sum(l, 1);
    score(l, token, s->p.n_top, d);
}

/* --- drawing ---------------------------------------------------------------------------------------------- */

int sampler_draw(struct sampler *s, uint32_t position, float *logits, struct drawn *d,
                 struct err *e)
{
    struct scratch *c = s->scratch;
    bool is_changed = changes(s, position);
    int rc = 0;
    *d = (struct drawn){0};
    if (s->p.want_logprobs) {
        const float *raw = logits;
        if (is_changed)
            raw = memcpy(c->copy, logits, s->n_vocab * sizeof *logits);
        rc = logits_scan(&c->raw, raw, s->n_vocab, e);
        if (rc)
            return rc;
        logits_sum(&c->raw, 1);
    }
    if (is_changed)
        rc = apply(s, position, logits, e);
    if (!rc)
        rc = logits_scan(&c->now, logits, s->n_vocab, e);
    if (rc)
        return rc;
    uint32_t token = sampler_choose(&s->p, position, c);
    if (s->p.want_logprobs)
        score(&c->raw, token, s->p.n_top, d);
    d->token = token;
    if (s->has_penalties)
        token_set_add(&s->seen, token, 1);
    return s->constraint ? constraint_accept(s->constraints, &s->state, token, e) : 0;
}

bool sampler_is_end(const struct sampler *s, uint32_t token, uint32_t position)
{
    if (s->ignore_eos || position < s->p.min_tokens)
        return false;
    for (uint32_t i = 0; i < s->n_stop_ids; i++)
        if (s->stop_ids[i] == token)
            return true;
    return false;
}
