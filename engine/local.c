/* local.c - see local.h: an engine is made, described, and handed requests. */
#include "engine/local.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "engine/shards.h"

enum {
    MAX_CHUNK = 4096,
    /* Raised when what the engine or the graph's families do to the numbers changes: part of the numerics id. */
    NUMERICS_REVISION = 2,
};

static const struct engine_ops LOCAL_OPS;

static struct engine_local *self(struct engine *g)
{
    return (struct engine_local *)g;
}
static const struct engine_local *self_const(const struct engine *g)
{
    return (const struct engine_local *)g;
}

/* --- creation -------------------------------------------------------------------------------------------- */

static int shards_check(const struct engine_config *c, struct err *e)
{
    uint32_t n = c->n_shards ? c->n_shards : 1, tp = c->tp ? c->tp : 1;
    if (c->shard >= n || n % tp)
        return err_set(e, ERR_CONFIG, "shard %u of %u, %u for each layer: no such shard", c->shard,
                       n, tp);
    if (n > 1 && !c->all)
        return err_set(e, ERR_CONFIG, "shard %u of %u: no group to talk to the others", c->shard,
                       n);
    if (n > 1 && c->speculation == SPECULATE_DRAFT)
        return err_set(e, ERR_CONFIG, "a draft model beside %u shards is not possible", n);
    return 0;
}

static int config_check(const struct engine_local *g, const struct engine_config *c, struct err *e)
{
    if (c->n_slots < 1 || c->n_slots > BATCH_MAX_SLOTS)
        return err_set(e, ERR_CONFIG, "slots: %u, expected 1 to %d", c->n_slots, BATCH_MAX_SLOTS);
    if (c->n_queue > BATCH_MAX_QUEUE)
        return err_set(e, ERR_CONFIG, "queue: %u, at most %d", c->n_queue, BATCH_MAX_QUEUE);
    if (c->chunk > MAX_CHUNK)
        return err_set(e, ERR_CONFIG, "chunk: %u, at most %d", c->chunk, MAX_CHUNK);
    if (c->kv_type < 0 || c->kv_type > KV_Q8)
        return err_set(e, ERR_CONFIG, "KV format %d: expected f32, f16 or q8", c->kv_type);
    if (c->memory_permille > 1000)
        return err_set(e, ERR_CONFIG, "memory: %u permille, at most 1000", c->memory_permille);
    if (c->speculation > SPECULATE_DRAFT)
        return err_set(e, ERR_CONFIG, "speculation %u: expected off, lookup or draft",
                       c->speculation);
    if (c->max_drafts > SPEC_MAX)
        return err_set(e, ERR_CONFIG, "drafts: %u, at most %d", c->max_drafts, SPEC_MAX);
    if ((c->speculation == SPECULATE_DRAFT) != (c->draft_path != NULL))
        return err_set(e, ERR_CONFIG, "a draft model %s",
                       c->draft_path ? "is named, but speculation does not use one"
                                     : "is to speculate, but none is named");
    int rc = shards_check(c, e);
    return rc ? rc : g->backend->check(c, e);
}

static int context_check(const struct engine_local *g, const struct engine_config *c, struct err *e)
{
    const struct model_params *p = &g->img.meta.params;
    uint32_t most = p->n_ctx < MSG_MAX_TOKENS ? p->n_ctx : MSG_MAX_TOKENS;
    uint32_t n = c->n_ctx ? c->n_ctx : meta_context_default(p);
    if (n < 2 || n > most)
        return err_set(e, ERR_CONFIG, "context: %u tokens, the model was made for 2 to %u", n,
                       most);
    return 0;
}

/* What is to be found out before memory is taken. */
static int prepare(struct engine_local *g, const struct engine_config *c, struct err *e)
{
    int rc = config_check(g, c, e);
    if (!rc)
        rc = image_open(&g->img, c->image_path, false, e);
    if (rc)
        return rc;
    g->img_is_open = true;
    g->n_threads = c->n_threads ? c->n_threads : 1;
    g->shard = c->shard;
    g->kernels = g->backend->kernels(c);
    rc = meta_check(&g->img.meta, e);
    if (!rc)
        rc = graph_check(&g->img.meta.params, e);
    if (!rc && c->shards)
        rc = shards_columns(
            c->shards,
            &(struct shards_config){.shard = c->shard, .n_shards = c->n_shards, .tp = c->tp},
            &g->img, c->image_path, e);
    if (!rc)
        rc = context_check(g, c, e);
    if (!rc && c->draft_path)
        rc = draft_open(&g->draft, c->draft_path, &g->img.meta, e);
    return rc ? rc : local_memory_plan(g, c, e);
}

static int build(struct engine_local *g, const struct engine_config *c, struct err *e)
{
    const struct model_params *p = &g->img.meta.params;
    struct exec_need need = {g->n_threads, graph_max_cols(p), g->size.n_ctx};
    if (g->draft && graph_max_cols(draft_params(g->draft)) > need.max_cols)
        need.max_cols = graph_max_cols(draft_params(g->draft));
    int rc = g->backend->exec_open(&g->exec, c, &need, e);
    if (!rc)
        rc = graph_create(&g->graph, &g->img, &g->size, g->backend->ops, g->exec, e);
    if (!rc && g->draft)
        rc = draft_start(g->draft, g->backend->ops, g->exec, &g->size, &g->plan, e);
    if (!rc)
        rc = batch_init(&g->batch, &g->plan, e);
    if (!rc)
        rc = draws_create(&g->draws, &g->img.meta, g->size.n_seqs, g->size.n_ctx, e);
    if (rc)
        return rc;
    uint32_t row = p->n_vocab > p->n_embd ? p->n_vocab : p->n_embd;
    g->logits_index = malloc(g->size.n_seqs * sizeof *g->logits_index);
    g->host_row = calloc(row, sizeof *g->host_row);
    g->drawn = calloc(g->plan.max_out, sizeof *g->drawn);
    if (!g->logits_index || !g->host_row || !g->drawn)
        return err_set(e, ERR_NOMEM, "engine: out of memory");
    memset(g->logits_index, 0xff, g->size.n_seqs * sizeof *g->logits_index);
    return 0;
}

static void local_destroy(struct engine *base)
{
    struct engine_local *g = self(base);
    if (g->graph && !g->shard && !g->ended)
        graph_end(g->graph);
    batch_fini(&g->batch);
    draws_destroy(g->draws);
    draft_close(g->draft, g->backend);
    graph_destroy(g->graph);
    if (g->exec)
        g->backend->exec_close(g->exec);
    if (g->img_is_open)
        image_close(&g->img);
    free(g->logits_index);
    free(g->host_row);
    free(g->drawn);
    free(g);
}

int engine_local_create(struct engine **out, const struct backend *backend,
                        const struct engine_config *c, struct err *e)
{
    struct engine_local *g = calloc(1, sizeof *g);
    if (!g)
        return err_set(e, ERR_NOMEM, "engine: out of memory");
    g->base.ops = &LOCAL_OPS;
    g->backend = backend;
    int rc = prepare(g, c, e);
    if (!rc)
        rc = build(g, c, e);
    if (rc) {
        local_destroy(&g->base);
        return rc;
    }
    *out = &g->base;
    return 0;
}

/* --- what it is and how busy ----------------------------------------------------------------------------- */

/* What decides the bits, and nothing else: threads, chunks, slots, cache and speculation do not. */
static void numerics_id(const struct engine_local *g, uint8_t out[SHA256_BYTES])
{
    char id[256];
    int n =
        snprintf(id, sizeof id, "%s %s %d kernels=%s/%u kv=%s tp=%u pp=%u", g->img.meta.params.arch,
                 g->backend->kind, NUMERICS_REVISION, g->kernels.numerics, g->kernels.revision,
                 kv_type_name(g->size.kv_type), g->size.tp_size, g->size.pp_size);
    sha256_of(id, (size_t)n, out);
}

static void local_info(const struct engine *base, struct engine_info *info)
{
    const struct engine_local *g = self_const(base);
    *info = (struct engine_info){
        .n_ctx = g->plan.n_ctx,
        .n_slots = g->plan.n_slots,
        .n_queue = g->plan.n_queue,
        .n_threads = g->n_threads,
        .n_vocab = g->plan.n_vocab,
        .kv_total_tokens = g->plan.n_blocks * KV_BLOCK_TOKENS,
        .memory_bytes = g->memory_bytes,
        .embeds = g->img.meta.params.pooling != POOLING_NONE,
    };
    snprintf(info->kernels, sizeof info->kernels, "%s", g->kernels.name);
    numerics_id(g, info->numerics);
}

static void local_load(const struct engine *base, struct engine_load *load)
{
    const struct engine_local *g = self_const(base);
    const struct batch_stats *s = &g->batch.stats;
    struct kv_stats kv;
    kv_blocks_stats(g->batch.kv, &kv);
    *load = (struct engine_load){
        .n_active = batch_active(&g->batch),
        .n_queued = batch_waiting(&g->batch),
        .kv_free_tokens = batch_free_blocks(&g->batch) * KV_BLOCK_TOKENS,
        .n_steps = g->n_steps,
        .n_tokens = g->n_tokens,
        .n_prefill_rows = s->n_prefill_rows,
        .n_decode_rows = s->n_decode_rows,
        .n_reused_tokens = s->n_reused,
        .n_preempted = s->n_preempted,
        .n_evicted = kv.n_evicted,
        .kernel_us = g->backend->busy_us(g->exec),
        .n_drafted = s->n_draft_rows,
        .n_draft_held = s->n_accepted,
    };
    memcpy(load->step_times, g->step_times, sizeof load->step_times);
}

/* --- requests -------------------------------------------------------------------------------------------- */

/* A model either writes or makes vectors: what makes vectors has no output layer. */
static int kind_check(const struct engine_local *g, const struct msg_submit *s, struct err *e)
{
    bool pools = g->img.meta.params.pooling != POOLING_NONE;
    if (s->kind == SUBMIT_EMBED && !pools)
        return err_set(e, ERR_FORMAT, "model %s makes no embeddings: it has no pooling",
                       g->img.meta.name);
    if (s->kind == SUBMIT_GENERATE && pools)
        return err_set(e, ERR_FORMAT, "model %s makes embeddings, it writes no text",
                       g->img.meta.name);
    if (s->kind != SUBMIT_EMBED && s->kind != SUBMIT_GENERATE)
        return err_set(e, ERR_FORMAT, "request of kind %u: expected text or embedding", s->kind);
    return 0;
}

static int local_submit(struct engine *base, const struct msg_submit *s, uint64_t now_us,
                        struct err *e)
{
    struct engine_local *g = self(base);
    struct request *r;
    int rc = kind_check(g, s, e);
    if (!rc)
        rc = draws_check(g->draws, s, e);
    if (!rc)
        rc = batch_submit(&g->batch, s, now_us, &r, e);
    if (rc)
        return rc;
    uint32_t i = (uint32_t)(r - g->batch.requests);
    rc = draws_start(g->draws, i, s, e);
    if (rc)
        local_drop(g, r);
    return rc;
}

static void local_cancel(struct engine *base, const struct attempt *a)
{
    batch_cancel(&self(base)->batch, a);
}

static const float *local_logits(const struct engine *base, const struct attempt *a)
{
    const struct engine_local *g = self_const(base);
    const struct request *r = batch_find(&g->batch, a);
    uint32_t i = r ? g->logits_index[r - g->batch.requests] : NO_LOGITS;
    return i == NO_LOGITS ? NULL : graph_logits(g->graph, i);
}

static int local_step_op(struct engine *base, uint64_t now_us, step_result_fn fn, void *ctx,
                         struct err *e)
{
    return local_step(self(base), now_us, fn, ctx, e);
}

static const struct engine_ops LOCAL_OPS = {
    .kind = "local",
    .destroy = local_destroy,
    .info = local_info,
    .load = local_load,
    .submit = local_submit,
    .cancel = local_cancel,
    .step = local_step_op,
    .logits = local_logits,
};
