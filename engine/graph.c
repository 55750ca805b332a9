/* graph.c - see graph.h: a graph's life and memory. Its layers are in graph_layers.c, its tensors in graph_bind.c, its shards in
 * graph_shard.c and graph_steps.c. */
#include "engine/graph.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/graph_parts.h"
#include "engine/rope.h"

enum {
    ARRAY_ALIGN = 64, /* each array starts on a cache line */
    STAGING_POSITIONS = 64,
};

int graph_check(const struct model_params *p, struct err *e)
{
    const struct family *f = NULL;
    return family_find(&f, p, e);
}

static uint32_t max_of(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

uint32_t graph_max_cols(const struct model_params *p)
{
    return max_of(max_of(p->n_embd, p->n_experts ? p->n_ff_expert : p->n_ff), family_width(W_Q, p));
}

/* --- memory ---------------------------------------------------------------------------------------------- */

/* Lay arrays out, or with base NULL only measure them. */
struct carve {
    uint8_t *base;
    uint64_t used;
};

static void *carve(struct carve *c, uint64_t n, size_t elem_bytes)
{
    void *p = c->base ? c->base + c->used : NULL;
    c->used += (n * elem_bytes + ARRAY_ALIGN - 1) / ARRAY_ALIGN * ARRAY_ALIGN;
    return p;
}

static void lay_outputs(struct graph *g, struct carve *c)
{
    const struct model_params *p = &g->p;
    uint64_t n = g->size.max_out, tp = g->size.tp_size > 1 ? g->size.tp_size : 0;
    bool logits = !graph_pools(g);
    g->out = carve(c, n * p->n_embd, sizeof *g->out);
    g->logits = logits ? carve(c, n * p->n_vocab, sizeof *g->logits) : NULL;
    g->pool = p->pooling == POOLING_MEAN
                  ? carve(c, (uint64_t)g->size.n_seqs * p->n_embd, sizeof *g->pool)
                  : NULL;
    if (!tp || !logits)
        return;
    g->out_part = carve(c, n * g->part.out_stride, sizeof *g->out_part);
    g->out_parts = carve(c, tp * n * g->part.out_stride, sizeof *g->out_parts);
}

static uint64_t lay_scratch(struct graph *g, void *base)
{
    const struct model_params *p = &g->p;
    const struct part *part = &g->part;
    uint64_t rows = g->size.max_rows, choices = rows * p->n_experts_used;
    uint64_t ff = p->n_experts ? choices * part->n_ff_expert : rows * part->n_ff;
    struct carve c = {base, 0};
    g->angles = carve(&c, (uint64_t)g->size.n_ctx * p->rope_dim, sizeof *g->angles);
    g->resid = carve(&c, rows * p->n_embd, sizeof *g->resid);
    g->normed = carve(&c, rows * p->n_embd, sizeof *g->normed);
    g->q = carve(&c, rows * part->q_dim, sizeof *g->q);
    g->att = carve(&c, rows * part->q_dim, sizeof *g->att);
    g->k = carve(&c, rows * part->kv_dim, sizeof *g->k);
    g->v = carve(&c, rows * part->kv_dim, sizeof *g->v);
    g->gate = carve(&c, ff, sizeof *g->gate);
    g->up = carve(&c, ff, sizeof *g->up);
    if (p->n_experts) {
        g->route = carve(&c, rows * p->n_experts, sizeof *g->route);
        g->choice = carve(&c, choices, sizeof *g->choice);
        g->share = carve(&c, choices, sizeof *g->share);
        g->expert_out = carve(&c, choices * p->n_embd, sizeof *g->expert_out);
    }
    if (g->size.tp_size > 1)
        g->partial = carve(&c, rows * p->n_embd, sizeof *g->partial);
    g->bad = carve(&c, rows + g->size.max_out, sizeof *g->bad);
    lay_outputs(g, &c);
    return c.used;
}

static uint64_t lay_host(struct graph *g, void *base)
{
    uint64_t marks = (uint64_t)g->size.max_rows + g->size.max_out;
    uint64_t zeros = marks * sizeof *g->bad, width = g->p.n_embd * sizeof(float);
    struct carve c = {base, 0};
    g->table_stride = (g->size.n_ctx + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    g->bad_host = carve(&c, marks, sizeof *g->bad_host);
    g->zeros = carve(&c, zeros > width ? zeros : width, 1);
    g->staging = carve(&c, STAGING_POSITIONS * (uint64_t)g->p.rope_dim, sizeof *g->staging);
    if (graph_is_shard(&g->size)) {
        uint64_t blocks = (uint64_t)g->size.n_seqs * g->table_stride;
        g->rows = carve(&c, g->size.max_rows, sizeof *g->rows);
        g->tables = carve(&c, blocks, sizeof *g->tables);
        g->packed = carve(&c, blocks, sizeof *g->packed);
    }
    return c.used;
}

/* Everything but the memory itself: the family, this shard's part, the checked tensors, the sizes. */
static int prepare(struct graph *g, struct binding *b, const struct image *img,
                   const struct graph_size *size, const struct ops *ops, struct err *e)
{
    struct rope rope;
    g->p = img->meta.params;
    g->size = *size;
    g->ops = ops;
    int rc = family_find(&g->family, &g->p, e);
    if (!rc)
        rc = shard_part(&g->part, &g->p, size, e);
    if (!rc) /* the method and this context; divisors are read later */
        rc = rope_init(&rope, &g->p, size->n_ctx, NULL, e);
    if (!rc)
        rc = binding_init(b, g, img, e);
    if (rc)
        return rc;
    g->vector_bytes = b->vector_bytes;
    g->copied_bytes = b->copied_bytes;
    g->kv_bytes = size->n_blocks * (uint64_t)ops->kv_block_bytes(size->kv_type, g->part.layers.n,
                                                                 g->part.n_kv_heads, g->p.head_dim);
    g->scratch_bytes = lay_scratch(g, NULL);
    g->host_bytes = lay_host(g, NULL);
    return 0;
}

int graph_memory(struct graph_memory *out, const struct image *img, const struct graph_size *size,
                 const struct ops *ops, struct err *e)
{
    struct graph g = {0};
    struct binding b;
    int rc = prepare(&g, &b, img, size, ops, e);
    if (rc)
        return rc;
    *out = (struct graph_memory){
        .weight_bytes = b.mapped_bytes,
        .kv_bytes = g.kv_bytes,
        .scratch_bytes = g.scratch_bytes + g.host_bytes + g.vector_bytes + g.copied_bytes,
        .copied_bytes = g.copied_bytes,
    };
    binding_fini(&b);
    return 0;
}

static int memory_take(struct graph *g, struct err *e)
{
    const struct {
        void **p;
        enum mem_kind kind;
        uint64_t n_bytes;
    } all[] = {
        {&g->scratch, MEM_DEVICE, g->scratch_bytes}, {&g->host, MEM_HOST, g->host_bytes},
        {&g->vectors, MEM_DEVICE, g->vector_bytes},  {&g->copied, MEM_HOST, g->copied_bytes},
        {&g->kv.data, MEM_DEVICE, g->kv_bytes},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].n_bytes && !(*all[i].p = g->ops->mem_alloc(g->x, all[i].kind, all[i].n_bytes)))
            return err_set(e, ERR_NOMEM,
                           "taking %" PRIu64 " bytes of KV and %" PRIu64 " of scratch", g->kv_bytes,
                           g->scratch_bytes + g->host_bytes + g->vector_bytes + g->copied_bytes);
    lay_scratch(g, g->scratch);
    lay_host(g, g->host);
    g->kv.type = g->size.kv_type;
    g->kv.n_blocks = g->size.n_blocks;
    g->kv.n_layers = g->part.layers.n;
    g->kv.n_kv_heads = g->part.n_kv_heads;
    g->kv.head_dim = g->p.head_dim;
    g->kv.block_bytes =
        g->ops->kv_block_bytes(g->kv.type, g->kv.n_layers, g->kv.n_kv_heads, g->kv.head_dim);
    return 0;
}

/* --- life ------------------------------------------------------------------------------------------------ */

static int angles_fill(struct graph *g, struct err *e)
{
    float divisors[ROPE_MAX_HALF];
    const float *from = rope_is_long(&g->p, g->size.n_ctx) ? g->top.rope_long
                        : g->top.rope_short                ? g->top.rope_short
                                                           : g->top.rope_freqs;
    struct rope rope;
    if (from)
        g->ops->copy(g->x, divisors, from, g->p.rope_dim / 2 * sizeof *divisors);
    int rc = g->ops->stream_sync(g->x, NULL, e);
    if (!rc)
        rc = rope_init(&rope, &g->p, g->size.n_ctx, from ? divisors : NULL, e);
    for (uint32_t first = 0; first < g->size.n_ctx && !rc; first += STAGING_POSITIONS) {
        uint32_t left = g->size.n_ctx - first;
        uint32_t n = left < STAGING_POSITIONS ? left : STAGING_POSITIONS;
        rope_angles(&rope, g->staging, first, n);
        g->ops->copy(g->x, g->angles + (size_t)first * g->p.rope_dim, g->staging,
                     (size_t)n * g->p.rope_dim * sizeof *g->staging);
        rc = g->ops->stream_sync(g->x, NULL, e);
    }
    return rc;
}

static int colls_check(const struct graph_size *s, struct err *e)
{
    uint32_t tp = s->tp_size > 1 ? s->tp_size : 1, pp = s->pp_size > 1 ? s->pp_size : 1;
    if (tp > 1 && (!s->tp || s->tp->size != tp || s->tp->rank != s->tp_rank))
        return err_set(e, ERR_CONFIG,
                       "shard %u of %u: expected its place in their group, found %u of %u",
                       s->tp_rank, tp, s->tp ? s->tp->rank : 0, s->tp ? s->tp->size : 0);
    if (pp > 1 &&
        (!s->all || s->all->size != tp * pp || s->all->rank != s->pp_rank * tp + s->tp_rank))
        return err_set(e, ERR_CONFIG,
                       "stage %u of %u: expected its place in their group, found %u of %u",
                       s->pp_rank, pp, s->all ? s->all->rank : 0, s->all ? s->all->size : 0);
    return 0;
}

int graph_create(struct graph **out, const struct image *img, const struct graph_size *size,
                 const struct ops *ops, struct exec *x, struct err *e)
{
    struct binding b = {0};
    struct graph *g = calloc(1, sizeof *g);
    if (!g)
        return err_set(e, ERR_NOMEM, "model: out of memory");
    g->x = x;
    g->ops = ops;
    int rc = colls_check(size, e);
    if (!rc)
        rc = prepare(g, &b, img, size, ops, e);
    if (!rc && !(g->layers = calloc(g->part.layers.n, sizeof *g->layers)))
        rc = err_set(e, ERR_NOMEM, "model: out of memory");
    if (!rc)
        rc = memory_take(g, e);
    if (!rc)
        rc = binding_apply(&b, g, img, e);
    if (!rc)
        rc = angles_fill(g, e);
    binding_fini(&b);
    if (rc) {
        graph_destroy(g);
        return rc;
    }
    *out = g;
    return 0;
}

static void unbind(struct graph *g, struct weight *w)
{
    if (w->data)
        g->ops->weight_unbind(g->x, w);
    w->data = NULL;
}

static void weights_unbind(struct graph *g)
{
    struct weight *embd = &g->top.embd, *head = &g->top.head;
    bool shared = head->data == embd->data && head->n_rows == embd->n_rows;
    if (!shared)
        unbind(g, head);
    unbind(g, embd);
    for (uint32_t i = 0; g->layers && i < g->part.layers.n; i++) {
        struct layer *l = &g->layers[i];
        struct weight *all[] = {&l->wq,     &l->wk,     &l->wv,     &l->wo,   &l->w_gate, &l->w_up,
                                &l->w_down, &l->router, &l->x_gate, &l->x_up, &l->x_down};
        for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
            unbind(g, all[k]);
    }
}

void graph_destroy(struct graph *g)
{
    if (!g)
        return;
    weights_unbind(g);
    g->ops->mem_free(g->x, MEM_DEVICE, g->scratch, g->scratch_bytes);
    g->ops->mem_free(g->x, MEM_HOST, g->host, g->host_bytes);
    g->ops->mem_free(g->x, MEM_DEVICE, g->vectors, g->vector_bytes);
    g->ops->mem_free(g->x, MEM_HOST, g->copied, g->copied_bytes);
    g->ops->mem_free(g->x, MEM_DEVICE, g->kv.data, g->kv_bytes);
    free(g->layers);
    free(g);
}

/* --- a step ---------------------------------------------------------------------------------------------- */

int graph_forward(struct graph *g, const struct step *s, struct err *e)
{
    CHECK(s->n_rows <= g->size.max_rows && s->n_out <= g->size.max_out);
    int rc = graph_is_shard(&g->size) ? steps_hand_out(g, s, e) : 0;
    if (!rc)
        rc = layers_compute(g, s, e);
    if (!rc)
        g->ops->copy(g->x, g->bad_host, g->bad, (s->n_rows + s->n_out) * sizeof *g->bad);
    if (!rc)
        rc = g->ops->stream_sync(g->x, NULL, e);
    for (uint32_t r = 0; r < s->n_rows && !rc; r++)
        if (s->rows[r].out != ROW_NO_OUT && !g->bad_host[r])
            g->bad_host[r] = g->bad_host[s->n_rows + s->rows[r].out];
    return rc;
}

float *graph_logits(const struct graph *g, uint32_t i)
{
    return g->logits ? g->logits + (size_t)i * g->p.n_vocab : NULL;
}

uint32_t graph_bad_layer(const struct graph *g, uint32_t r)
{
    return g->bad_host[r];
}

const float *graph_hidden(const struct graph *g, uint32_t i)
{
    return g->out + (size_t)i * g->p.n_embd;
}

const float *graph_pool(const struct graph *g, uint32_t s)
{
    return g->pool ? g->pool + (size_t)s * g->p.n_embd : NULL;
}

void graph_pool_reset(struct graph *g, uint32_t s)
{
    if (g->pool)
        g->ops->copy(g->x, g->pool + (size_t)s * g->p.n_embd, g->zeros,
                     g->p.n_embd * sizeof(float));
}
