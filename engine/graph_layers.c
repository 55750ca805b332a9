/* graph_layers.c - the decoder that all families share, as operations: norm, rotary attention over paged keys and values, norm, gated
 * feed-forward or experts, and what comes out at the end.
 *
 * A shard of several has its heads and its feed-forward rows; each of the two sums that lead back to the model's width is made over the shards
 * (arXiv:1909.08053). Stages of a pipeline pass the residual stream on. Neither depends on which rows are together in a step.
 */
#include "engine/graph_parts.h"

#include <string.h>

static bool is_tp(const struct graph *g)
{
    return g->size.tp_size > 1;
}

/* Where a product that leads back to the model's width goes: onto the residual stream, or first into this shard's summand. The bias is
 * added once. */
static struct matmul back_to_width(struct graph *g, const struct weight *w, const float *bias)
{
    bool first = !is_tp(g) || g->size.tp_rank == 0;
    return (struct matmul){
        .y = is_tp(g) ? g->partial : g->resid,
        .y_stride = g->p.n_embd,
        .w = w,
        .bias = first ? bias : NULL,
        .accumulate = !is_tp(g),
    };
}

static int reduce(struct graph *g, uint32_t n, struct err *e)
{
    if (!is_tp(g))
        return 0;
    struct coll *c = g->size.tp;
    int rc = c->ops->all_reduce(c, g->partial, (size_t)n * g->p.n_embd, e);
    if (!rc)
        g->ops->add(g->x, g->resid, g->partial, n, g->p.n_embd);
    return rc;
}

/* --- a layer --------------------------------------------------------------------------------------------- */

static void rotate(struct graph *g, uint32_t layer, const struct step *s)
{
    const struct model_params *p = &g->p;
    if (p->nope_every && (layer + 1) % p->nope_every == 0)
        return;
    enum rope_style style = g->family->rope_style;
    g->ops->rope(g->x, g->q, g->part.n_heads, p->head_dim, p->rope_dim, style, g->angles, s->rows,
                 s->n_rows);
    g->ops->rope(g->x, g->k, g->part.n_kv_heads, p->head_dim, p->rope_dim, style, g->angles,
                 s->rows, s->n_rows);
}

/* local: the layer's number in this stage; the model counts from part.layers.first. */
static int attention(struct graph *g, uint32_t local, const struct step *s, struct err *e)
{
    const struct model_params *p = &g->p;
    const struct part *part = &g->part;
    const struct ops *o = g->ops;
    const struct layer *l = &g->layers[local];
    uint32_t n = s->n_rows, layer = part->layers.first + local;
    uint32_t window = p->window && layer >= p->window_from ? p->window : 0;
    const struct matmul qkv[] = {
        {.y = g->q, .y_stride = part->q_dim, .w = &l->wq, .bias = l->bq},
        {.y = g->k, .y_stride = part->kv_dim, .w = &l->wk, .bias = l->bk},
        {.y = g->v, .y_stride = part->kv_dim, .w = &l->wv, .bias = l->bv},
    };
    const struct matmul project = back_to_width(g, &l->wo, l->bo);

    o->norm(g->x, g->normed, g->resid, l->attn_norm, n, p->n_embd, p->norm_eps);
    o->matmul(g->x, qkv, 3, g->normed, p->n_embd, n);
    if (l->q_norm)
        o->norm(g->x, g->q, g->q, l->q_norm, n * part->n_heads, p->head_dim, p->norm_eps);
    if (l->k_norm)
        o->norm(g->x, g->k, g->k, l->k_norm, n * part->n_kv_heads, p->head_dim, p->norm_eps);
    rotate(g, layer, s);
    o->kv_store(g->x, &g->kv, local, g->k, g->v, s);
    o->attend(g->x, g->att, g->q, part->n_heads, &g->kv, local, window, s);
    o->matmul(g->x, &project, 1, g->att, part->q_dim, n);
    return reduce(g, n, e);
}

static void dense(struct graph *g, const struct layer *l, uint32_t n)
{
    uint32_t width = g->part.n_ff;
    const struct matmul gate_up[] = {
        {.y = g->gate, .y_stride = width, .w = &l->w_gate, .bias = l->b_gate},
        {.y = g->up, .y_stride = width, .w = &l->w_up, .bias = l->b_up},
    };
    const struct matmul down = back_to_width(g, &l->w_down, l->b_down);
    g->ops->matmul(g->x, gate_up, 2, g->normed, g->p.n_embd, n);
    g->ops->silu_mul(g->x, g->gate, g->up, n, width);
    g->ops->matmul(g->x, &down, 1, g->gate, width, n);
}

/* Every row goes to its experts' own copies of the row's place: n_used results a row, summed by share. */
static void experts(struct graph *g, const struct layer *l, uint32_t n)
{
    const struct model_params *p = &g->p;
    const struct ops *o = g->ops;
    uint32_t used = p->n_experts_used, width = g->part.n_ff_expert;
    const struct matmul route = {.y = g->route, .y_stride = p->n_experts, .w = &l->router};
    o->matmul(g->x, &route, 1, g->normed, p->n_embd, n);
    o->route(g->x, g->choice, g->share, g->route, p->n_experts, used, p->experts_renorm, n);
    o->matmul_experts(g->x, g->gate, width, &l->x_gate, g->choice, g->normed, p->n_embd, used,
                      n * used);
    o->matmul_experts(g->x, g->up, width, &l->x_up, g->choice, g->normed, p->n_embd, used,
                      n * used);
    o->silu_mul(g->x, g->gate, g->up, n * used, width);
    o->matmul_experts(g->x, g->expert_out, p->n_embd, &l->x_down, g->choice, g->gate, width, 1,
                      n * used);
    if (is_tp(g)) /* experts_sum adds */
        for (uint32_t r = 0; r < n; r++)
            o->copy(g->x, g->partial + (size_t)r * p->n_embd, g->zeros, p->n_embd * sizeof(float));
    o->experts_sum(g->x, is_tp(g) ? g->partial : g->resid, g->expert_out, g->share, used, n,
                   p->n_embd);
}

static int feed_forward(struct graph *g, uint32_t local, uint32_t n, struct err *e)
{
    const struct layer *l = &g->layers[local];
    g->ops->norm(g->x, g->normed, g->resid, l->ffn_norm, n, g->p.n_embd, g->p.norm_eps);
    if (g->p.n_experts)
        experts(g, l, n);
    else
        dense(g, l, n);
    return reduce(g, n, e);
}

/* --- outputs --------------------------------------------------------------------------------------------- */

/* Each shard has its rows of the output matrix; all get all logits. */
static int logits_gather(struct graph *g, uint32_t n, struct err *e)
{
    struct coll *c = g->size.tp;
    uint32_t stride = g->part.out_stride;
    int rc = c->ops->all_gather(c, g->out_parts, g->out_part, (size_t)n * stride, e);
    for (uint32_t rank = 0; rank < g->size.tp_size && !rc; rank++) {
        struct graph_size s = {.tp_rank = rank, .tp_size = g->size.tp_size};
        struct span rows = shard_span(W_OUT, &g->p, &s);
        for (uint32_t i = 0; i < n; i++)
            g->ops->copy(g->x, g->logits + (size_t)i * g->p.n_vocab + rows.first,
                         g->out_parts + ((size_t)rank * n + i) * stride, rows.n * sizeof(float));
    }
    return rc;
}

static int logits_compute(struct graph *g, const struct step *s, struct err *e)
{
    const struct model_params *p = &g->p;
    const struct matmul logits = {
        .y = is_tp(g) ? g->out_part : g->logits,
        .y_stride = is_tp(g) ? g->part.out_stride : p->n_vocab,
        .w = &g->top.head,
    };
    g->ops->matmul(g->x, &logits, 1, g->out, p->n_embd, s->n_out);
    int rc = is_tp(g) && s->n_out ? logits_gather(g, s->n_out, e) : 0;
    if (!rc)
        g->ops->mark_nonfinite(g->x, g->bad + s->n_rows, (uint16_t)(1 + p->n_layers), g->logits,
                               s->n_out, p->n_vocab);
    return rc;
}

/* Norm and output matrix on the rows with outputs only; for a mean every row counts. */
static int outputs(struct graph *g, const struct step *s, struct err *e)
{
    const struct model_params *p = &g->p;
    const struct ops *o = g->ops;
    o->gather(g->x, g->out, g->resid, p->n_embd, s);
    o->norm(g->x, g->out, g->out, g->top.out_norm, s->n_out, p->n_embd, p->norm_eps);
    if (!graph_pools(g))
        return logits_compute(g, s, e);
    o->mark_nonfinite(g->x, g->bad + s->n_rows, (uint16_t)(1 + p->n_layers), g->out, s->n_out,
                      p->n_embd);
    if (p->pooling == POOLING_MEAN)
        o->norm(g->x, g->normed, g->resid, g->top.out_norm, s->n_rows, p->n_embd, p->norm_eps);
    return 0;
}

/* --- the pipeline ---------------------------------------------------------------------------------------- */

struct piece {
    void *p;
    size_t n_bytes;
};
enum { MAX_PIECES = 4 };

static int pieces_move(struct graph *g, const struct piece *list, bool send, uint32_t other,
                       struct err *e)
{
    struct coll *c = g->size.all;
    int rc = 0;
    for (int i = 0; i < MAX_PIECES && !rc; i++)
        if (list[i].n_bytes)
            rc = send ? c->ops->send(c, list[i].p, list[i].n_bytes, other, e)
                      : c->ops->recv(c, list[i].p, list[i].n_bytes, other, e);
    return rc;
}

/* The residual stream to or from the neighbour stage's shard of the same rank. */
static int pass_on(struct graph *g, const struct step *s, bool send, struct err *e)
{
    uint32_t stage = g->size.pp_rank + (send ? 1 : -1u);
    const struct piece list[MAX_PIECES] = {
        {g->resid, (size_t)s->n_rows * g->p.n_embd * sizeof(float)},
        {g->bad, s->n_rows * sizeof *g->bad},
    };
    uint32_t tp = is_tp(g) ? g->size.tp_size : 1;
    return pieces_move(g, list, send, stage * tp + g->size.tp_rank, e);
}

/* What the last stage computed, to shard 0, who asked. */
static int bring_home(struct graph *g, const struct step *s, bool send, struct err *e)
{
    size_t width = g->p.n_embd * sizeof(float);
    bool pools = graph_pools(g);
    const struct piece list[MAX_PIECES] = {
        {g->bad, (s->n_rows + s->n_out) * sizeof *g->bad},
        {g->out, s->n_out * width},
        {g->logits, pools ? 0 : (size_t)s->n_out * g->p.n_vocab * sizeof(float)},
        {g->normed, g->p.pooling == POOLING_MEAN ? s->n_rows * width : 0},
    };
    uint32_t tp = is_tp(g) ? g->size.tp_size : 1;
    return pieces_move(g, list, send, send ? 0 : (g->size.pp_size - 1) * tp, e);
}

int layers_compute(struct graph *g, const struct step *s, struct err *e)
{
    const struct part *part = &g->part;
    bool alone = part->is_first && part->is_last;
    int rc = 0;
    g->ops->copy(g->x, g->bad, g->zeros, (s->n_rows + s->n_out) * sizeof *g->bad);
    if (part->is_first)
        g->ops->embed(g->x, g->resid, &g->top.embd, s->rows, s->n_rows);
    else
        rc = pass_on(g, s, false, e);
    for (uint32_t i = 0; i < part->layers.n && !rc; i++) {
        rc = attention(g, i, s, e);
        if (!rc)
            rc = feed_forward(g, i, s->n_rows, e);
        g->ops->mark_nonfinite(g->x, g->bad, (uint16_t)(1 + part->layers.first + i), g->resid,
                               s->n_rows, g->p.n_embd);
    }
    if (!rc)
        rc = part->is_last ? outputs(g, s, e) : pass_on(g, s, true, e);
    if (!rc && !alone && g->size.tp_rank == 0 && (part->is_first || part->is_last))
        rc = bring_home(g, s, part->is_last, e);
    if (!rc && part->is_first && g->size.tp_rank == 0 && g->p.pooling == POOLING_MEAN)
        g->ops->pool_sum(g->x, g->pool, g->normed, g->p.n_embd, s);
    return rc;
}
