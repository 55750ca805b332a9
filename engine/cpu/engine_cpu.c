/* engine_cpu.c - the engine kind "cpu": one image, one model graph on CPU kernels, one table of requests.
 *
 * A step: report what ended since the last one, plan the rows, compute them, draw one token for each row with logits.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/log.h"
#include "engine/batch.h"
#include "engine/cpu/exec_cpu.h"
#include "engine/engine.h"
#include "engine/memory.h"
#include "engine/graph.h"
#include "engine/sampler.h"
#include "model/image.h"

enum {
    /* A step's prefill share: large enough that unpacking a weight row is paid once for many rows, small enough that streams
     * beside a long prompt wait about a tenth of a second for their next token. */
    DEFAULT_CHUNK = 32,
    MAX_CHUNK = 4096,
    MIB = 1 << 20,
};

struct engine_cpu {
    struct engine base;
    struct image img;
    bool img_is_open;
    const struct kernels *kernels;
    struct exec *exec;
    struct graph *model;
    struct batch batch;
    uint32_t n_threads;
    uint64_t memory_bytes;
    struct sampler_pool *pool;
    struct sampler **samplers; /* [n_slots] */
    uint32_t *logits_index;    /* [n_slots]: row of the last step's logits, NO_LOGITS */
    uint64_t n_steps, n_tokens;
    uint32_t *tables, table_stride;
};
enum { NO_LOGITS = UINT32_MAX };

static struct engine_cpu *self(struct engine *g)
{
    return (struct engine_cpu *)g;
}
static const struct engine_cpu *self_const(const struct engine *g)
{
    return (const struct engine_cpu *)g;
}

/* --- creation -------------------------------------------------------------------------------------------- */

static int config_check(const struct engine_config *c, struct err *e)
{
    if (c->n_slots < 1 || c->n_slots > BATCH_MAX_SLOTS)
        return err_set(e, ERR_CONFIG, "slots: %u, expected 1 to %d", c->n_slots, BATCH_MAX_SLOTS);
    if (c->chunk > MAX_CHUNK)
        return err_set(e, ERR_CONFIG, "chunk: %u, at most %d", c->chunk, MAX_CHUNK);
    if (c->n_threads > POOL_MAX_THREADS)
        return err_set(e, ERR_CONFIG, "threads: %u, at most %d", c->n_threads, POOL_MAX_THREADS);
    if (c->shard || c->n_shards > 1)
        return err_set(e, ERR_CONFIG, "shard %u of %u: the cpu engine runs whole models", c->shard,
                       c->n_shards);
    return 0;
}

static int context_choose(const struct engine_config *c, const struct model_params *p, uint32_t *n,
                          struct err *e)
{
    uint32_t most = p->n_ctx < MSG_MAX_TOKENS ? p->n_ctx : MSG_MAX_TOKENS;
    *n = c->n_ctx ? c->n_ctx : meta_context_default(p);
    if (*n < 2 || *n > most)
        return err_set(e, ERR_CONFIG, "context: %u tokens, the model was made for 2 to %u", *n,
                       most);
    return 0;
}

/* Ask before taking: a node that runs out of memory kills somebody at random. */
static int memory_check(struct engine_cpu *g, const struct graph_size *size, uint32_t chunk,
                        struct err *e)
{
    const struct model_params *p = &g->img.meta.params;
    struct graph_memory need;
    int rc = graph_memory(&need, &g->img, size, &OPS_CPU, e);
    if (rc)
        return rc;
    uint64_t other = need.scratch_bytes +
                     exec_cpu_scratch_bytes(g->n_threads, graph_max_cols(p), size->n_ctx) +
                     batch_memory(size->n_seqs, size->n_ctx, chunk) + 12 * (uint64_t)size->n_seqs +
                     sampler_pool_bytes(&g->img.meta, size->n_seqs, size->n_ctx);
    uint64_t available = memory_available();
    g->memory_bytes = need.kv_bytes + other;
    if (g->memory_bytes <= available)
        return 0;
    return err_set(e, ERR_LIMIT,
                   "%u requests of %u tokens need %" PRIu64 " MiB of KV and %" PRIu64
                   " MiB of scratch, %" PRIu64 " MiB are available",
                   size->n_seqs, size->n_ctx, need.kv_bytes / MIB + 1, other / MIB + 1,
                   available / MIB);
}

/* Each request's region is a fixed run of blocks. */
static int tables_make(struct engine_cpu *g, struct graph_size *size, struct err *e)
{
    g->table_stride = (size->n_ctx + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    size->n_blocks = size->n_seqs * g->table_stride;
    g->tables = malloc(size->n_blocks * sizeof *g->tables);
    if (!g->tables)
        return err_set(e, ERR_NOMEM, "block tables: out of memory");
    for (uint32_t i = 0; i < size->n_blocks; i++)
        g->tables[i] = i;
    return 0;
}

static int build(struct engine_cpu *g, const struct engine_config *c, struct err *e)
{
    int rc = config_check(c, e);
    if (!rc)
        rc = kernels_find(&g->kernels, c->kernels, e);
    if (!rc)
        rc = image_open(&g->img, c->image_path, false, e);
    g->img_is_open = !rc;
    const struct model_params *p = &g->img.meta.params;
    struct graph_size size = {.n_seqs = c->n_slots, .max_out = c->n_slots, .kv_type = KV_F16};
    uint32_t chunk = c->chunk ? c->chunk : DEFAULT_CHUNK;
    size.max_rows = batch_max_rows(c->n_slots, chunk);
    g->n_threads = c->n_threads ? c->n_threads : 1;
    if (!rc)
        rc = meta_check(&g->img.meta, e);
    if (!rc)
        rc = graph_check(p, e);
    if (!rc)
        rc = context_choose(c, p, &size.n_ctx, e);
    if (!rc)
        rc = tables_make(g, &size, e);
    if (!rc)
        rc = memory_check(g, &size, chunk, e);
    if (!rc)
        rc = exec_cpu_create(&g->exec, g->kernels, g->n_threads, graph_max_cols(p), size.n_ctx, e);
    if (!rc)
        rc = graph_create(&g->model, &g->img, &size, &OPS_CPU, g->exec, e);
    if (!rc)
        rc = batch_init(&g->batch, c->n_slots, size.n_ctx, p->n_vocab, chunk, e);
    if (rc)
        return rc;
    rc = sampler_pool_create(&g->pool, &g->img.meta, c->n_slots, size.n_ctx, e);
    if (rc)
        return rc;
    g->samplers = calloc(c->n_slots, sizeof *g->samplers);
    g->logits_index = malloc(c->n_slots * sizeof *g->logits_index);
    if (!g->samplers || !g->logits_index)
        return err_set(e, ERR_NOMEM, "engine: out of memory");
    memset(g->logits_index, 0xff, c->n_slots * sizeof *g->logits_index);
    return 0;
}

static void cpu_destroy(struct engine *base)
{
    struct engine_cpu *g = self(base);
    batch_fini(&g->batch);
    graph_destroy(g->model);
    exec_cpu_destroy(g->exec);
    sampler_pool_destroy(g->pool);
    if (g->img_is_open)
        image_close(&g->img);
    free(g->samplers);
    free(g->tables);
    free(g->logits_index);
    free(g);
}

static int cpu_create(struct engine **out, const struct engine_config *c, struct err *e)
{
    struct engine_cpu *g = calloc(1, sizeof *g);
    if (!g)
        return err_set(e, ERR_NOMEM, "engine: out of memory");
    g->base.ops = &ENGINE_CPU;
    int rc = build(g, c, e);
    if (rc) {
        cpu_destroy(&g->base);
        return rc;
    }
    *out = &g->base;
    return 0;
}

/* --- what it is and how busy ----------------------------------------------------------------------------- */

static void cpu_info(const struct engine *base, struct engine_info *info)
{
    const struct engine_cpu *g = self_const(base);
    *info = (struct engine_info){
        .n_ctx = g->batch.n_ctx,
        .n_slots = g->batch.n_slots,
        .n_threads = g->n_threads,
        .n_vocab = g->batch.n_vocab,
        .kv_total_tokens = g->batch.n_slots * g->batch.n_ctx,
        .memory_bytes = g->memory_bytes,
    };
    snprintf(info->kernels, sizeof info->kernels, "%s", g->kernels->name);
    /* what decides the bits, and nothing else: threads, chunks and slots do not */
    char id[128];
    int n = snprintf(id, sizeof id, "llama cpu %s %u kv=f16 tp=1 pp=1", g->kernels->numerics,
                     g->kernels->revision);
    sha256_of(id, (size_t)n, info->numerics);
}

static void cpu_load(const struct engine *base, struct engine_load *load)
{
    const struct engine_cpu *g = self_const(base);
    uint32_t active = batch_active(&g->batch);
    *load = (struct engine_load){
        .n_active = active,
        .n_queued = batch_waiting(&g->batch),
        /* a request holds its region whole, however short it is */
        .kv_free_tokens = (g->batch.n_slots - active) * g->batch.n_ctx,
        .n_steps = g->n_steps,
        .n_tokens = g->n_tokens,
    };
}

/* --- requests -------------------------------------------------------------------------------------------- */

static int cpu_submit(struct engine *base, const struct msg_submit *s, uint64_t now_us,
                      struct err *e)
{
    struct engine_cpu *g = self(base);
    if (s->kind != SUBMIT_GENERATE)
        return err_set(e, ERR_CONFIG, "this engine computes no embeddings");
    int rc = batch_submit(&g->batch, s, now_us, e);
    if (rc)
        return rc;
    struct request *r = batch_find(&g->batch, &s->attempt);
    uint32_t slot = (uint32_t)(r - g->batch.requests);
    rc = sampler_start(g->pool, slot, s, &g->samplers[slot], e);
    if (rc)
        r->used = false;
    return rc;
}

static void cpu_cancel(struct engine *g, const struct attempt *a)
{
    batch_cancel(&self(g)->batch, a);
}

static const float *cpu_logits(const struct engine *base, const struct attempt *a)
{
    const struct engine_cpu *g = self_const(base);
    const struct request *r = batch_find(&g->batch, a);
    uint32_t i = r ? g->logits_index[r - g->batch.requests] : NO_LOGITS;
    return i == NO_LOGITS ? NULL : graph_logits(g->model, i);
}

static void report_end(struct request *r, int finish, const struct err *error, step_result_fn fn,
                       void *ctx)
{
    struct step_result result = {
        .attempt = r->attempt,
        .position = request_position(r),
        .finish = (uint8_t)finish,
        .error = error,
    };
    fn(ctx, &result);
    r->used = false;
}

static void report_ended(struct engine_cpu *g, uint64_t now_us, step_result_fn fn, void *ctx)
{
    struct batch *b = &g->batch;
    for (uint32_t i = 0; i < b->n_notices; i++)
        fn(ctx, &(struct step_result){
                    .attempt = b->notices[i].attempt,
                    .position = b->notices[i].position,
                    .finish = FINISH_CANCELED,
                });
    b->n_notices = 0;
    for (uint32_t i = 0; i < b->n_slots; i++) {
        struct request *r = &b->requests[i];
        int finish = r->used ? batch_end_now(b, r, now_us) : FINISH_NONE;
        if (finish != FINISH_NONE)
            report_end(r, finish, NULL, fn, ctx);
    }
}

static void report_bad_numbers(struct engine_cpu *g, struct request *r, uint32_t mark,
                               step_result_fn fn, void *ctx)
{
    struct err error = ERR_INIT;
    uint32_t n_layers = g->img.meta.params.n_layers;
    if (mark <= n_layers)
        err_set(&error, ERR_FORMAT, "layer %u of %u computed numbers that are not finite", mark - 1,
                n_layers);
    else
        err_set(&error, ERR_FORMAT, "the output layer computed logits that are not finite");
    log_warn("engine: a request ended: %s", error.text);
    report_end(r, FINISH_ERROR, &error, fn, ctx);
}

static void draw(struct engine_cpu *g, struct request *r, float *logits, step_result_fn fn,
                 void *ctx)
{
    struct drawn drawn;
    struct err error = ERR_INIT;
    struct step_result result = {
        .attempt = r->attempt,
        .position = request_position(r),
        .n_tokens = 1,
    };
    if (sampler_draw(g->samplers[r - g->batch.requests], result.position, logits, &drawn, &error)) {
        report_end(r, FINISH_ERROR, &error, fn, ctx);
        return;
    }
    result.tokens = &drawn.token;
    result.drawn = r->sampling.want_logprobs ? &drawn : NULL;
    result.finish = (uint8_t)batch_accept(&g->batch, r, drawn.token);
    fn(ctx, &result);
    g->n_tokens++;
    if (result.finish != FINISH_NONE)
        r->used = false;
}

static int cpu_step(struct engine *base, uint64_t now_us, step_result_fn fn, void *ctx,
                    struct err *e)
{
    struct engine_cpu *g = self(base);
    struct batch *b = &g->batch;
    report_ended(g, now_us, fn, ctx);
    memset(g->logits_index, 0xff, b->n_slots * sizeof *g->logits_index);
    uint32_t n_rows = batch_plan(b);
    if (!n_rows)
        return 0;
    int rc = graph_forward(
        g->model, &(struct step){b->rows, n_rows, b->n_out, g->tables, g->table_stride}, e);
    if (rc)
        return rc;
    g->n_steps++;
    for (uint32_t i = 0; i < n_rows; i++) {
        const struct batch_row *row = &b->rows[i];
        struct request *r = &b->requests[row->seq];
        uint32_t bad = graph_bad_layer(g->model, i);
        if (!r->used) /* an earlier row of it was bad */
            continue;
        if (bad) {
            report_bad_numbers(g, r, bad, fn, ctx);
        } else if (row->out != ROW_NO_OUT) {
            g->logits_index[row->seq] = row->out;
            draw(g, r, (float *)graph_logits(g->model, row->out), fn, ctx);
        }
    }
    return (int)batch_active(b);
}

const struct engine_ops ENGINE_CPU = {
    .kind = "cpu",
    .create = cpu_create,
    .destroy = cpu_destroy,
    .info = cpu_info,
    .load = cpu_load,
    .submit = cpu_submit,
    .cancel = cpu_cancel,
    .step = cpu_step,
    .logits = cpu_logits,
};
