/* engine.c - finds the kind of an engine by name and passes calls on. */
#include "engine/engine.h"

#include <string.h>

#include "engine/backend.h"

static const struct backend *const BACKENDS[] = {&BACKEND_CPU};

int engine_create(struct engine **out, const struct engine_config *c, struct err *e)
{
    for (size_t i = 0; i < sizeof BACKENDS / sizeof BACKENDS[0]; i++)
        if (c->kind && !strcmp(BACKENDS[i]->kind, c->kind))
            return engine_local_create(out, BACKENDS[i], c, e);
    return err_set(e, ERR_CONFIG, "engine %s: unknown kind, expected cpu",
                   c->kind ? c->kind : "(none)");
}

void engine_destroy(struct engine *g)
{
    if (g)
        g->ops->destroy(g);
}

void engine_info(const struct engine *g, struct engine_info *info)
{
    g->ops->info(g, info);
}

void engine_load(const struct engine *g, struct engine_load *load)
{
    g->ops->load(g, load);
}

int engine_submit(struct engine *g, const struct msg_submit *s, uint64_t now_us, struct err *e)
{
    return g->ops->submit(g, s, now_us, e);
}

void engine_cancel(struct engine *g, const struct attempt *a)
{
    g->ops->cancel(g, a);
}

int engine_step(struct engine *g, uint64_t now_us, step_result_fn fn, void *ctx, struct err *e)
{
    return g->ops->step(g, now_us, fn, ctx, e);
}

const float *engine_logits(const struct engine *g, const struct attempt *a)
{
    return g->ops->logits(g, a);
}

uint64_t engine_step_quantile_us(const struct engine_load *load, uint32_t permille)
{
    uint64_t all = 0, seen = 0;
    for (uint32_t i = 0; i < ENGINE_STEP_BUCKETS; i++)
        all += load->step_times[i];
    for (uint32_t i = 0; i < ENGINE_STEP_BUCKETS && all; i++) {
        seen += load->step_times[i];
        if (seen * 1000 >= all * permille)
            return (uint64_t)ENGINE_STEP_UNIT_US << i;
    }
    return 0;
}
