/* fake_engine.c - see fake_engine.h. */
#include "tests/tools/fake_engine.h"

#include <stdlib.h>
#include <string.h>

struct fake_request {
    bool used, canceled;
    struct attempt attempt;
    uint32_t *script; /* the tokens it says, owned */
    uint32_t n_script, at, n_done, max_tokens, eos, n_prompt;
    bool ignore_eos;
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

void fake_engine_destroy(struct fake_engine *g)
{
    for (uint32_t i = 0; g && i < g->n_slots; i++)
        free(g->requests[i].script);
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
                               .seed = s->sampling.seed};
    q->script = malloc(4 * (s->n_tokens + 1));
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

int fake_engine_step(struct fake_engine *g, step_result_fn fn, void *ctx)
{
    static const struct err broken = {ERR_DEVICE, "the fake engine was asked to fail"};
    int n_active = 0;
    g->n_steps++;
    for (uint32_t i = 0; i < g->n_slots; i++) {
        struct fake_request *q = &g->requests[i];
        uint32_t id;
        if (!q->used)
            continue;
        struct step_result r = {.attempt = q->attempt, .position = q->n_done};
        if (q->canceled) {
            r.finish = FINISH_CANCELED;
        } else if (q->seed == FAKE_ERROR && q->n_done == 3) {
            r.finish = FINISH_ERROR;
            r.error = &broken;
        } else if (q->seed != FAKE_SILENT) {
            r.finish = next_token(q, &id);
            r.n_tokens = 1;
            r.tokens = &id;
            g->n_tokens++;
        }
        if (r.finish || r.n_tokens)
            fn(ctx, &r);
        if (r.finish) {
            free(q->script);
            *q = (struct fake_request){0};
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
