/* engine.c - finds the kind of an engine by name and passes calls on. */
#include "engine/engine.h"

#include <string.h>

static const struct engine_ops *const KINDS[] = {&ENGINE_CPU};

int engine_create(struct engine **out, const struct engine_config *c, struct err *e)
{
    for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++)
        if (c->kind && !strcmp(KINDS[i]->kind, c->kind))
            return KINDS[i]->create(out, c, e);
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
