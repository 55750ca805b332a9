/* fake_engine.c - see fake_engine.h. */
#include "tests/tools/fake_engine.h"

#include "engine/sampler.h"

#include <stdlib.h>
#include <string.h>

struct fake_request {
    bool used, canceled;
    struct attempt attempt;
    uint32_t *script; /* the tokens it says, owned */
    uint32_t n_script, at, n_done, max_tokens, eos, n_prompt;
    bool ignore_eos, is_embedding, prompt_said;
    struct sampling sampling;
    uint32_t *prompt; /* owned */
    uint64_t seed;
};

struct fake_engine {
    uint32_t n_slots, n_ctx, first_token;
    uint64_t n_steps, n_tokens;
    struct fake_request requests[];
};

struct fake_engine *fake_engine_create(uint32_t n_slots, uint32_t n_ctx, uint32_t first_token)
{
    struct fake_engine *g = calloc(1, sizeof *g + n_slots * sizeof g->requests[0]);
    g->n_slots = n_slots;
    g->n_ctx = n_ctx;
    g->first_token = first_token;
    return g;
}

static void request_fini(struct fake_request *q)
{
    free(q->script);
    free(q->prompt);
    *q = (struct fake_request){0};
}

void fake_engine_destroy(struct fake_engine *g)
{
    for (uint32_t i = 0; g && i < g->n_slots; i++)
        request_fini(&g->requests[i]);
    free(g);
}

int fake_engine_submit(struct fake_engine *g, const struct msg_submit *s, struct err *e)
{
    struct fake_request *q = NULL;
    for (uint32_t i = 0; i < g->n_slots && !q; i++)
        if (!g->requests[i].used)
            q = &g->requests[i];
    if (!q)
        return err_set(e, ERR_AGAIN, "no slot free");
    if (s->n_tokens >= g->n_ctx)
        return err_set(e, ERR_LIMIT, "%u tokens, context %u", s->n_tokens, g->n_ctx);
    *q = (struct fake_request){.used = true,
                               .attempt = s->attempt,
                               .max_tokens = s->max_tokens,
                               .ignore_eos = s->ignore_eos,
                               .n_prompt = s->n_tokens,
                               .eos = s->n_stop_ids ? u32_at(s->stop_ids, 0) : 0,
                               .is_embedding = s->kind == SUBMIT_EMBED,
                               .sampling = s->sampling,
                               .seed = s->sampling.seed};
    q->script = malloc(4 * (s->n_tokens + 1));
    q->prompt = malloc(4 * (s->n_tokens + 1));
    for (uint32_t i = 0; i < s->n_tokens; i++)
        q->prompt[i] = u32_at(s->tokens, i);
    for (uint32_t i = 0; i < s->n_tokens; i++) {
        uint32_t id = u32_at(s->tokens, i);
        if (id >= g->first_token)
            q->script[q->n_script++] = id;
    }
    if (s->sampling.temperature > 0 && q->n_script)
        q->at = (uint32_t)(q->seed % q->n_script);
    return 0;
}

void fake_engine_cancel(struct fake_engine *g, const struct attempt *a)
{
    for (uint32_t i = 0; i < g->n_slots; i++)
        if (g->requests[i].used && !memcmp(&g->requests[i].attempt, a, sizeof *a))
            g->requests[i].canceled = true;
}

/* One token for q; the finish it has with it. */
static uint8_t next_token(struct fake_request *q, uint32_t *id)
{
    bool over = q->n_done >= q->n_script;
    if (q->seed == FAKE_BAD_TOKEN)
        *id = UINT32_MAX;
    else if (over && !q->ignore_eos)
        *id = q->eos;
    else
        *id = q->n_script ? q->script[q->at++ % q->n_script] : q->eos;
    q->n_done++;
    if (over && !q->ignore_eos)
        return FINISH_STOP;
    return q->n_done >= q->max_tokens ? FINISH_LENGTH : FINISH_NONE;
}

static struct drawn fake_drawn(const struct fake_request *q, uint32_t id)
{
    struct drawn d = {
        .token = id, .logprob = -(float)(id % 8) / 4, .rank = id % 8, .n_top = q->sampling.n_top};
    for (uint32_t i = 0; i < d.n_top; i++)
        d.top[i] = (struct token_logprob){i, -(float)i / 4};
    return d;
}

/* A result of its own, before the first token. */
static void say_prompt(struct fake_request *q, step_result_fn fn, void *ctx)
{
    struct drawn *drawn = calloc(q->n_prompt, sizeof *drawn);
    for (uint32_t i = 1; i < q->n_prompt; i++)
        drawn[i - 1] = fake_drawn(q, q->prompt[i]);
    fn(ctx, &(struct step_result){.attempt = q->attempt,
                                  .prompt_first = 1,
                                  .n_prompt_drawn = q->n_prompt - 1,
                                  .prompt_drawn = drawn});
    free(drawn);
    q->prompt_said = true;
}

int fake_engine_step(struct fake_engine *g, step_result_fn fn, void *ctx)
{
    static const struct err broken = {ERR_DEVICE, "the fake engine was asked to fail"};
    int n_active = 0;
    g->n_steps++;
    for (uint32_t i = 0; i < g->n_slots; i++) {
        struct fake_request *q = &g->requests[i];
        struct drawn drawn;
        uint32_t id;
        float v[FAKE_EMBEDDING] = {0.6f};
        if (!q->used)
            continue;
        if (q->sampling.want_prompt_logprobs && !q->prompt_said && !q->canceled)
            say_prompt(q, fn, ctx);
        struct step_result r = {.attempt = q->attempt, .position = q->n_done};
        if (q->canceled) {
            r.finish = FINISH_CANCELED;
        } else if (q->is_embedding) {
            v[1 + q->n_prompt % (FAKE_EMBEDDING - 1)] = 0.8f;
            r.finish = FINISH_STOP;
            r.n_embedding = FAKE_EMBEDDING;
            r.embedding = v;
        } else if (q->seed == FAKE_ERROR && q->n_done == 3) {
            r.finish = FINISH_ERROR;
            r.error = &broken;
        } else if (q->seed != FAKE_SILENT) {
            r.finish = next_token(q, &id);
            r.n_tokens = 1;
            r.tokens = &id;
            drawn = fake_drawn(q, id);
            r.drawn = q->sampling.want_logprobs ? &drawn : NULL;
            g->n_tokens++;
        }
        if (r.finish || r.n_tokens)
            fn(ctx, &r);
        if (r.finish) {
            request_fini(q);
        } else {
            n_active++;
        }
    }
    return n_active;
}

void fake_engine_load(const struct fake_engine *g, struct engine_load *load)
{
    *load = (struct engine_load){.n_steps = g->n_steps, .n_tokens = g->n_tokens};
    for (uint32_t i = 0; i < g->n_slots; i++)
        load->n_active += g->requests[i].used;
    load->kv_free_tokens = (g->n_slots - load->n_active) * g->n_ctx;
}
