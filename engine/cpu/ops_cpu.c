/* ops_cpu.c - the table of the CPU's operations, and those that go row by row: split into items, computed by one kernel set.
 *
 * Matrix products are split by output rows, attention by rows and kv heads, everything else by rows. An item's result
 * depends on the item alone, so neither the split nor the thread count can change a bit.
 */
#include "engine/cpu/exec.h"
#include "model/blocks.h"

struct embed_job {
    const struct exec *x;
    float *y;
    const struct weight *w;
    const struct batch_row *rows;
};

static void embed_items(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct embed_job *j = ctx;
    for (uint32_t r = begin; r < end; r++)
        block_unpack(j->w->type, j->y + (size_t)r * j->w->n_cols,
                     (const uint8_t *)j->w->data + j->rows[r].token * j->w->row_bytes,
                     j->w->n_cols);
}

static void cpu_embed(struct exec *x, float *y, const struct weight *w,
                      const struct batch_row *rows, uint32_t n)
{
    exec_for(x, n, 8, embed_items, &(struct embed_job){x, y, w, rows});
}

struct norm_job {
    const struct exec *x;
    float *y;
    const float *in, *scale;
    uint32_t width;
    float eps;
};

static void norm_items(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct norm_job *j = ctx;
    for (uint32_t r = begin; r < end; r++)
        j->x->k->norm(j->y + (size_t)r * j->width, j->in + (size_t)r * j->width, j->scale, j->width,
                      j->eps);
}

static void cpu_norm(struct exec *x, float *y, const float *in, const float *scale, uint32_t n,
                     uint32_t width, float eps)
{
    exec_for(x, n, 8, norm_items, &(struct norm_job){x, y, in, scale, width, eps});
}

struct rope_job {
    const struct exec *x;
    float *heads;
    uint32_t n_heads, head_dim, rope_dim;
    const float *table;
    const struct batch_row *rows;
    enum rope_style style;
};

static void rope_items(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct rope_job *j = ctx;
    for (uint32_t r = begin; r < end; r++) {
        const float *angles = j->table + (size_t)j->rows[r].position * j->rope_dim;
        for (uint32_t h = 0; h < j->n_heads; h++)
            j->x->k->rope(j->heads + ((size_t)r * j->n_heads + h) * j->head_dim, angles,
                          j->rope_dim, j->style);
    }
}

static void cpu_rope(struct exec *x, float *heads, uint32_t n_heads, uint32_t head_dim,
                     uint32_t rope_dim, enum rope_style style, const float *table,
                     const struct batch_row *rows, uint32_t n)
{
    exec_for(x, n, 8, rope_items,
             &(struct rope_job){x, heads, n_heads, head_dim, rope_dim, table, rows, style});
}

struct two_rows_job {
    const struct exec *x;
    float *y;
    const float *in;
    uint32_t width;
};

static void silu_items(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct two_rows_job *j = ctx;
    for (uint32_t r = begin; r < end; r++)
        j->x->k->silu_mul(j->y + (size_t)r * j->width, j->in + (size_t)r * j->width, j->width);
}

static void cpu_silu_mul(struct exec *x, float *gate, const float *up, uint32_t n, uint32_t width)
{
    exec_for(x, n, 4, silu_items, &(struct two_rows_job){x, gate, up, width});
}

static void add_items(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct two_rows_job *j = ctx;
    for (uint32_t r = begin; r < end; r++)
        j->x->k->add(j->y + (size_t)r * j->width, j->in + (size_t)r * j->width, j->width);
}

static void cpu_add(struct exec *x, float *y, const float *in, uint32_t n, uint32_t width)
{
    exec_for(x, n, 16, add_items, &(struct two_rows_job){x, y, in, width});
}

const struct ops OPS_CPU = {
    .kind = "cpu",
    .mem_alloc = cpu_mem_alloc,
    .mem_free = cpu_mem_free,
    .copy = cpu_copy,
    .stream_create = cpu_stream_create,
    .stream_destroy = cpu_stream_destroy,
    .stream_use = cpu_stream_destroy,
    .stream_sync = cpu_stream_sync,
    .event_create = cpu_event_create,
    .event_destroy = cpu_event_touch,
    .event_record = cpu_event_touch,
    .event_wait = cpu_event_touch,
    .event_done = cpu_event_done,
    .weight_bind = cpu_weight_bind,
    .weight_unbind = cpu_weight_unbind,
    .embed = cpu_embed,
    .norm = cpu_norm,
    .matmul = cpu_matmul,
    .rope = cpu_rope,
    .kv_block_bytes = cpu_kv_block_bytes,
    .kv_store = cpu_kv_store,
    .kv_copy = cpu_kv_copy,
    .attend = cpu_attend,
    .silu_mul = cpu_silu_mul,
    .add = cpu_add,
    .gather = cpu_gather,
    .route = cpu_route,
    .matmul_experts = cpu_matmul_experts,
    .experts_sum = cpu_experts_sum,
    .pool_sum = cpu_pool_sum,
    .mark_nonfinite = cpu_mark_nonfinite,
    .argmax = cpu_argmax,
    .mask = cpu_mask,
    .log_sum_exp = cpu_log_sum_exp,
};
