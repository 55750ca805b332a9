/* local_memory.c - see local.h: the plan of an engine's memory, made before anything large is read or taken.
 *
 * Three parts: weights (mapped, shared by the engines of a node), scratch (activations, logits, tables), KV. Weights and scratch follow from
 * the model and the configuration; KV gets what it is given, or what is left of the fraction.
 */
#include "engine/coll.h"
#include "engine/local.h"

#include <inttypes.h>

#include "base/log.h"

enum {
    MIB = 1 << 20,
    /* Rows of a step: a stream beside a long prompt waits for so many rows at most, and a weight that is unpacked for so many is
     * paid for (tests/bench/engine.sh). */
    DEFAULT_CHUNK = 128,
    /* Outputs beside one for each slot: prompt log-probabilities are computed so many rows a step. */
    SPARE_OUTS = 16,
    SPARE_OUTS_SPECULATING = 64,
    DEFAULT_DRAFTS = 7,
};

struct needs {
    uint64_t weights, scratch, block; /* bytes; block: of one KV block */
};

static void sizes_choose(struct engine_local *g, const struct engine_config *c)
{
    const struct model_params *p = &g->img.meta.params;
    struct batch_config *b = &g->plan;
    *b = (struct batch_config){
        .n_slots = c->n_slots,
        .n_queue = c->n_queue,
        .n_ctx = c->n_ctx ? c->n_ctx : meta_context_default(p),
        .n_vocab = p->n_vocab,
        .chunk = c->chunk ? c->chunk : DEFAULT_CHUNK,
        .look_up = c->speculation == SPECULATE_LOOK_UP,
        .prefix_cache = !c->no_prefix_cache,
        .pool_sums = p->pooling == POOLING_MEAN,
    };
    if (c->speculation != SPECULATE_OFF)
        b->max_drafts = c->max_drafts ? c->max_drafts : DEFAULT_DRAFTS;
    b->max_out = c->n_slots + (b->max_drafts ? SPARE_OUTS_SPECULATING : SPARE_OUTS);
    uint32_t tp = c->tp ? c->tp : 1, n_shards = c->n_shards ? c->n_shards : 1;
    g->size = (struct graph_size){
        .n_ctx = b->n_ctx,
        .n_seqs = c->n_slots + c->n_queue,
        .max_rows = batch_max_rows(b),
        .max_out = b->max_out,
        .kv_type = c->kv_type ? c->kv_type : KV_F16,
        .tp_rank = c->shard % tp,
        .tp_size = tp,
        .pp_rank = c->shard / tp,
        .pp_size = n_shards / tp,
        .all = c->all,
        .tp = c->tp_group,
    };
}

/* All but the blocks themselves, and what one block costs: the graph's answer for one block less its answer for none. */
static int needs_find(struct needs *n, const struct engine_local *g, struct err *e)
{
    const struct model_params *p = &g->img.meta.params;
    struct graph_size size = g->size;
    struct graph_memory m;
    struct exec_need x = {g->n_threads, graph_max_cols(p), size.n_ctx};
    size.n_blocks = 1;
    int rc = graph_memory(&m, &g->img, &size, g->backend->ops, e);
    if (rc)
        return rc;
    *n = (struct needs){m.weight_bytes, m.scratch_bytes, m.kv_bytes};
    if (g->draft) {
        uint64_t block;
        rc = draft_memory(g->draft, g->backend->ops, &size, &m, &block, e);
        if (rc)
            return rc;
        uint32_t cols = graph_max_cols(draft_params(g->draft));
        x.max_cols = cols > x.max_cols ? cols : x.max_cols;
        n->weights += m.weight_bytes;
        n->scratch += m.scratch_bytes;
        n->block += block;
    }
    uint64_t row = p->n_vocab > p->n_embd ? p->n_vocab : p->n_embd;
    n->scratch += g->backend->exec_bytes(&x) + batch_memory(&g->plan) +
                  draws_bytes(&g->img.meta, size.n_seqs, size.n_ctx) + 4 * row +
                  4 * (uint64_t)size.n_seqs + g->plan.max_out * sizeof(struct drawn);
    return 0;
}

static int too_little(const struct needs *n, uint64_t kv, uint64_t budget, const char *what,
                      struct err *e)
{
    return err_set(e, ERR_LIMIT,
                   "weights of %" PRIu64 " MiB, KV of %" PRIu64 " MiB and scratch of %" PRIu64
                   " MiB do not fit: %" PRIu64 " MiB are %s",
                   n->weights / MIB + 1, kv / MIB + 1, n->scratch / MIB + 1, budget / MIB, what);
}

/* What a block takes with its entry in the table of blocks, at most. */
static uint64_t block_cost(const struct needs *n)
{
    enum { MANY = 1 << 16, ROUNDING = 4 };
    return n->block + kv_blocks_memory(MANY) / MANY + ROUNDING;
}

/* The blocks that KV gets. */
static uint64_t blocks_choose(const struct engine_local *g, const struct engine_config *c,
                              const struct needs *n, uint64_t available)
{
    uint64_t wanted =
        (uint64_t)c->n_slots * ((g->plan.n_ctx + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS);
    uint32_t least = batch_min_blocks(g->plan.n_ctx);
    if (wanted < least)
        wanted = least;
    if (c->kv_bytes)
        return c->kv_bytes / n->block;
    uint64_t permille = c->memory_permille ? c->memory_permille : ENGINE_MEMORY_DEFAULT;
    if (available == UINT64_MAX)
        return wanted;
    /* of what the engines of this node share, its part; the weights lie in the same memory, once for all */
    uint64_t n_engines = c->node_count ? c->node_count : 1;
    uint64_t part = available / 1000 * permille / n_engines;
    uint64_t room = available > n->weights ? (available - n->weights) / n_engines : 0;
    part = part < room ? part : room;
    uint64_t most = part > n->scratch ? (part - n->scratch) / block_cost(n) : 0;
    return c->memory_permille || most < wanted ? most : wanted;
}

int local_memory_plan(struct engine_local *g, const struct engine_config *c, struct err *e)
{
    struct needs n;
    sizes_choose(g, c);
    g->plan.n_blocks = 0;
    int rc = needs_find(&n, g, e);
    if (rc)
        return rc;
    uint64_t available = g->backend->memory_available();
    uint64_t blocks = blocks_choose(g, c, &n, available);
    uint32_t least = batch_min_blocks(g->plan.n_ctx);
    if (blocks > UINT32_MAX / 2)
        blocks = UINT32_MAX / 2;
    n.scratch += kv_blocks_memory((uint32_t)blocks);
    uint64_t total = n.weights + n.scratch + blocks * n.block;
    if (blocks < least) {
        bool given = c->kv_bytes != 0;
        return too_little(&n, (uint64_t)least * n.block, given ? c->kv_bytes : available,
                          given ? "given for KV, which is too little for one request"
                                : "available, and the part of this engine is less",
                          e);
    }
    if (total > available)
        return too_little(&n, blocks * n.block, available, "available", e);
    uint32_t agreed = (uint32_t)blocks;
    if (c->all)
        rc = coll_least(c->all, agreed, &agreed, e);
    if (rc)
        return rc;
    if (agreed < least)
        return err_set(e, ERR_LIMIT, "a shard has room for %u KV blocks, a request needs %u",
                       agreed, least);
    g->size.n_blocks = g->plan.n_blocks = agreed;
    g->memory_bytes = n.scratch + agreed * n.block;
    log_info("engine: memory weights_mib=%" PRIu64 " kv_mib=%" PRIu64 " scratch_mib=%" PRIu64
             " kv_blocks=%u rows=%u",
             n.weights / MIB, agreed * n.block / MIB, n.scratch / MIB, agreed, g->plan.chunk);
    return 0;
}
