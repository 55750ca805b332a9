/* graph_steps.c - shard 0 plans every step and hands it to the other shards of its replica: rows, and of the block tables what these
 * rows' sequences use. All of them then compute the same rows in the same order. */
#include "engine/graph_parts.h"

#include <string.h>

enum command { COMMAND_STEP = 1, COMMAND_KV_COPY = 2, COMMAND_END = 3, COMMAND_IDLE = 4 };

struct command_head {
    uint32_t command;
    uint32_t a, b; /* STEP: rows, outputs; KV_COPY: blocks from, to */
};

static struct coll *group_of(const struct graph *g)
{
    return g->size.all ? g->size.all : g->size.tp;
}

static int command_send(struct graph *g, struct command_head h, struct err *e)
{
    struct coll *c = group_of(g);
    return c->ops->broadcast(c, &h, sizeof h, 0, e);
}

/* Blocks that a sequence uses whose last row of the step is this one. */
static uint32_t blocks_of(const struct batch_row *last)
{
    return last->position / KV_BLOCK_TOKENS + 1;
}

/* Rows of one sequence stand together. */
static bool ends_sequence(const struct batch_row *rows, uint32_t n, uint32_t i)
{
    return i + 1 == n || rows[i + 1].seq != rows[i].seq;
}

int steps_hand_out(struct graph *g, const struct step *s, struct err *e)
{
    struct coll *c = group_of(g);
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_rows; i++) {
        if (!ends_sequence(s->rows, s->n_rows, i))
            continue;
        uint32_t used = blocks_of(&s->rows[i]);
        memcpy(g->packed + n, s->tables + (size_t)s->rows[i].seq * s->table_stride,
               used * sizeof *s->tables);
        n += used;
    }
    int rc = command_send(g, (struct command_head){COMMAND_STEP, s->n_rows, s->n_out}, e);
    if (!rc)
        memcpy(g->rows, s->rows, s->n_rows * sizeof *s->rows);
    if (!rc)
        rc = c->ops->broadcast(c, g->rows, s->n_rows * sizeof *g->rows, 0, e);
    if (!rc)
        rc = c->ops->broadcast(c, g->packed, n * sizeof *g->packed, 0, e);
    return rc;
}

/* Shard 0 is of the same program; still, what comes by a wire is checked before it becomes an index. */
static int rows_check(const struct graph *g, const struct command_head *h, uint32_t *n_blocks,
                      struct err *e)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < h->a; i++) {
        const struct batch_row *r = &g->rows[i];
        bool fits = r->seq < g->size.n_seqs && r->position < g->size.n_ctx &&
                    r->token < g->p.n_vocab && (r->out < h->b || r->out == ROW_NO_OUT);
        if (fits && ends_sequence(g->rows, h->a, i))
            n += blocks_of(r);
        if (!fits || n > g->size.n_seqs * g->table_stride)
            return err_set(e, ERR_PROTO, "step of shard 0, row %u: sequence %u, position %u", i,
                           r->seq, r->position);
    }
    *n_blocks = n;
    return 0;
}

static int step_take(struct graph *g, const struct command_head *h, struct err *e)
{
    struct coll *c = group_of(g);
    uint32_t n_blocks = 0, n = 0;
    if (h->a > g->size.max_rows || h->b > g->size.max_out)
        return err_set(e, ERR_PROTO, "step of shard 0: %u rows and %u outputs, at most %u and %u",
                       h->a, h->b, g->size.max_rows, g->size.max_out);
    int rc = c->ops->broadcast(c, g->rows, h->a * sizeof *g->rows, 0, e);
    if (!rc)
        rc = rows_check(g, h, &n_blocks, e);
    if (!rc)
        rc = c->ops->broadcast(c, g->packed, n_blocks * sizeof *g->packed, 0, e);
    for (uint32_t i = 0; i < n_blocks && !rc; i++)
        if (g->packed[i] >= g->size.n_blocks)
            rc = err_set(e, ERR_PROTO, "step of shard 0: KV block %u of %u", g->packed[i],
                         g->size.n_blocks);
    for (uint32_t i = 0; i < h->a && !rc; i++) {
        if (!ends_sequence(g->rows, h->a, i))
            continue;
        uint32_t used = blocks_of(&g->rows[i]);
        memcpy(g->tables + (size_t)g->rows[i].seq * g->table_stride, g->packed + n,
               used * sizeof *g->tables);
        n += used;
    }
    return rc;
}

int graph_follow(struct graph *g, struct err *e)
{
    struct coll *c = group_of(g);
    for (;;) {
        struct command_head h = {0};
        int rc = c->ops->broadcast(c, &h, sizeof h, 0, e);
        if (rc)
            return rc;
        switch ((enum command)h.command) {
        case COMMAND_STEP:
            rc = step_take(g, &h, e);
            if (!rc)
                rc = layers_compute(
                    g, &(struct step){g->rows, h.a, h.b, g->tables, g->table_stride}, e);
            if (!rc)
                rc = g->ops->stream_sync(g->x, NULL, e);
            return rc ? rc : 1;
        case COMMAND_KV_COPY:
            if (h.a >= g->size.n_blocks || h.b >= g->size.n_blocks)
                return err_set(e, ERR_PROTO, "copy by shard 0: KV blocks %u to %u of %u", h.a, h.b,
                               g->size.n_blocks);
            g->ops->kv_copy(g->x, &g->kv, h.a, h.b);
            break;
        case COMMAND_IDLE:
            return 1;
        case COMMAND_END:
            return 0;
        default:
            return err_set(e, ERR_PROTO, "command %u of shard 0 is unknown", h.command);
        }
    }
}

int graph_idle(struct graph *g, struct err *e)
{
    return graph_is_shard(&g->size)
               ? command_send(g, (struct command_head){.command = COMMAND_IDLE}, e)
               : 0;
}

/* A broken group makes the next step fail: nothing to say here. */
void graph_end(struct graph *g)
{
    if (graph_is_shard(&g->size))
        command_send(g, (struct command_head){.command = COMMAND_END}, NULL);
}

void graph_kv_copy(struct graph *g, uint32_t from_block, uint32_t to_block)
{
    if (graph_is_shard(&g->size))
        command_send(g, (struct command_head){COMMAND_KV_COPY, from_block, to_block}, NULL);
    g->ops->kv_copy(g->x, &g->kv, from_block, to_block);
}
