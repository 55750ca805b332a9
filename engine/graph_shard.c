/* graph_shard.c - which part of a model is whose: layers in contiguous ranges for the stages of a pipeline; heads, feed-forward widths
 * and output rows for the shards of a stage. Every shard of a stage has its rows of q, k, v, gate and up, and its columns of what
 * comes back to the model's width. */
#include "engine/graph_parts.h"

#include <inttypes.h>

enum { LANES = 8 }; /* as in family.c */

static uint32_t tp_size(const struct graph_size *s)
{
    return s->tp_size > 1 ? s->tp_size : 1;
}

/* Equal parts but for rounding: any n, any number of shards up to n. */
static struct span span_of(uint32_t n, uint32_t rank, uint32_t size)
{
    uint32_t first = (uint32_t)((uint64_t)n * rank / size);
    return (struct span){first, (uint32_t)((uint64_t)n * (rank + 1) / size) - first};
}

/* With more shards than kv heads several have the same one. */
static struct span kv_heads(const struct model_params *p, const struct graph_size *s)
{
    uint32_t size = tp_size(s);
    if (size > p->n_kv_heads)
        return (struct span){s->tp_rank / (size / p->n_kv_heads), 1};
    return span_of(p->n_kv_heads, s->tp_rank, size);
}

struct span shard_span(int width, const struct model_params *p, const struct graph_size *s)
{
    uint32_t n = family_width(width, p);
    struct span kv;
    switch ((enum width)width) {
    case W_Q:
    case W_FF:
    case W_FF_EXPERT:
    case W_OUT:
        return span_of(n, s->tp_rank, tp_size(s));
    case W_KV:
        kv = kv_heads(p, s);
        return (struct span){kv.first * p->head_dim, kv.n * p->head_dim};
    default:
        return (struct span){0, n};
    }
}

static int check_tp(const struct model_params *p, uint32_t size, struct err *e)
{
    const struct {
        const char *what;
        uint32_t n, unit; /* a shard has a whole number of units */
    } all[] = {
        {"heads", p->n_heads, 1},
        {"feed-forward width", p->n_experts ? 0 : p->n_ff, LANES},
        {"width of an expert", p->n_experts ? p->n_ff_expert : 0, LANES},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].n % (size * all[i].unit))
            return err_set(e, ERR_FORMAT,
                           "%s: expected a multiple of %" PRIu32 " for %" PRIu32
                           " shards, found %" PRIu32,
                           all[i].what, size * all[i].unit, size, all[i].n);
    if (size <= p->n_kv_heads ? p->n_kv_heads % size : size % p->n_kv_heads)
        return err_set(e, ERR_FORMAT,
                       "kv heads: expected a multiple or a divisor of %" PRIu32
                       " shards, found %" PRIu32,
                       size, p->n_kv_heads);
    if (p->n_vocab < size)
        return err_set(e, ERR_FORMAT,
                       "vocabulary: expected at least %" PRIu32 " tokens for as many shards, "
                       "found %" PRIu32,
                       size, p->n_vocab);
    return 0;
}

int shard_part(struct part *out, const struct model_params *p, const struct graph_size *s,
               struct err *e)
{
    uint32_t tp = tp_size(s), pp = s->pp_size > 1 ? s->pp_size : 1;
    if (s->tp_rank >= tp || s->pp_rank >= pp)
        return err_set(e, ERR_CONFIG, "shard %u of %u, stage %u of %u: no such part", s->tp_rank,
                       tp, s->pp_rank, pp);
    if (pp > p->n_layers)
        return err_set(e, ERR_FORMAT,
                       "layers: expected at least one for each of %u stages, found %u", pp,
                       p->n_layers);
    int rc = tp > 1 ? check_tp(p, tp, e) : 0;
    if (rc)
        return rc;
    struct span kv = shard_span(W_KV, p, s);
    *out = (struct part){
        .layers = span_of(p->n_layers, s->pp_rank, pp),
        .is_first = s->pp_rank == 0,
        .is_last = s->pp_rank == pp - 1,
        .n_heads = p->n_heads / tp,
        .n_kv_heads = kv.n / p->head_dim,
        .q_dim = shard_span(W_Q, p, s).n,
        .kv_dim = kv.n,
        .n_ff = shard_span(W_FF, p, s).n,
        .n_ff_expert = shard_span(W_FF_EXPERT, p, s).n,
        .n_out_rows = shard_span(W_OUT, p, s).n,
        .out_stride = (p->n_vocab + tp - 1) / tp,
    };
    return 0;
}

int graph_shard_plan(struct shard_plan *out, const struct model_params *p, const char *tensor,
                     int type, uint32_t tp_rank, uint32_t size, struct err *e)
{
    const struct graph_size s = {.tp_rank = tp_rank, .tp_size = size};
    const struct tensor_type_info *info = tensor_type_info(type);
    const struct family *f = NULL;
    struct part part;
    struct tensor_place at;
    int rc = family_find(&f, p, e);
    if (!rc)
        rc = shard_part(&part, p, &s, e);
    if (!rc)
        rc = family_place(&at, f, p, tensor, e);
    if (rc)
        return rc;
    struct span rows = shard_span(at.t->rows, p, &s), cols = shard_span(at.t->cols, p, &s);
    uint32_t all_rows = family_width(at.t->rows, p), all_cols = family_width(at.t->cols, p);
    if (!info || cols.first % info->block_elems || cols.n % info->block_elems)
        return err_set(e, ERR_FORMAT,
                       "tensor %s: %u columns among %u shards: expected whole blocks of %u for "
                       "format %s",
                       tensor, all_cols, size, info ? info->block_elems : 0,
                       info ? info->name : "unknown");
    bool by_rows = rows.n != all_rows, by_cols = cols.n != all_cols;
    *out = (struct shard_plan){
        .how = by_cols   ? SHARD_COLS
               : by_rows ? SHARD_ROWS
                         : SHARD_WHOLE,
        .first = by_cols   ? cols.first
                 : by_rows ? rows.first
                           : 0,
        .n = by_cols ? cols.n : rows.n,
        .n_parts = at.t->of_experts ? p->n_experts : 1,
        .scattered = by_cols && at.t->rows != W_ONE,
    };
    return 0;
}
