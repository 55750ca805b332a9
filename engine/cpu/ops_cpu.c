/* ops_cpu.c - the operations of ops.h on the CPU: split a call into items, let the pool's threads run one kernel set on them.
 *
 * Matrix products are split by output rows, everything else by batch rows (attention by row and kv head). An item's result
 * depends on the item alone, so neither the split nor the thread count can change a bit.
 */
#include "engine/cpu/exec_cpu.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/err.h"
#include "model/index.h"

enum {
    SCRATCH_ALIGN = 64, /* a cache line: threads never share one */
    MATMUL_GRAIN = 32,  /* output rows a thread takes at a time; a multiple of KERNELS_TILE_ROWS */
    MATMUL_MAX_JOBS = 4,
};

struct exec {
    const struct kernels *k;
    struct pool *pool;
    uint8_t *scratch; /* [n_threads][scratch_stride] */
    size_t scratch_stride;
    uint32_t max_kv;
};

static size_t scratch_stride(uint32_t max_cols, uint32_t max_kv)
{
    size_t tile = (size_t)KERNELS_TILE_ROWS * max_cols;
    size_t scores = (size_t)max_kv * (1 + 2 * KERNELS_MAX_HEAD_DIM) + 8;
    size_t bytes = sizeof(float) * (tile > scores ? tile : scores);
    return (bytes + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
}

uint64_t exec_cpu_scratch_bytes(uint32_t n_threads, uint32_t max_cols, uint32_t max_kv)
{
    return (uint64_t)n_threads * scratch_stride(max_cols, max_kv);
}

int exec_cpu_create(struct exec **out, const struct kernels *k, uint32_t n_threads,
                    uint32_t max_cols, uint32_t max_kv, struct err *e)
{
    struct exec *x = calloc(1, sizeof *x);
    if (!x)
        return err_set(e, ERR_NOMEM, "compute context: out of memory");
    x->k = k;
    x->max_kv = max_kv;
    x->scratch_stride = scratch_stride(max_cols, max_kv);
    int rc = pool_create(&x->pool, n_threads, e);
    if (!rc) {
        size_t bytes = x->scratch_stride * n_threads;
        x->scratch = aligned_alloc(SCRATCH_ALIGN, bytes);
        if (x->scratch)
            memset(x->scratch, 0, bytes);
        else
            rc = err_set(e, ERR_NOMEM, "scratch of %u threads: out of memory", n_threads);
    }
    if (rc) {
        exec_cpu_destroy(x);
        return rc;
    }
    *out = x;
    return 0;
}

void exec_cpu_destroy(struct exec *x)
{
    if (!x)
        return;
    pool_destroy(x->pool);
    free(x->scratch);
    free(x);
}

static float *thread_scratch(const struct exec *x, uint32_t thread)
{
    return (float *)(void *)(x->scratch + thread * x->scratch_stride);
}

/* --- memory and weights ---------------------------------------------------------------------------------- */

/* Straight from the kernel: zeroed, and small pages of a KV block cost nothing until a request gets that far. */
static void *cpu_mem_alloc(struct exec *x, enum mem_kind kind, size_t n_bytes)
{
    void *p = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    madvise(p, n_bytes, MADV_NOHUGEPAGE);
    return p;
}

static void cpu_mem_free(struct exec *x, enum mem_kind kind, void *p, size_t n_bytes)
{
    if (p)
        munmap(p, n_bytes);
}

static void cpu_copy(struct exec *x, void *to, const void *from, size_t n_bytes)
{
    memmove(to, from, n_bytes);
}

/* A stream is the calling thread: whatever was enqueued is done, and so is every event. */
static int cpu_stream_create(struct exec *x, struct stream **out, struct err *e)
{
    *out = NULL;
    return 0;
}

static void cpu_stream_destroy(struct exec *x, struct stream *s)
{
}

static int cpu_stream_sync(struct exec *x, struct stream *s, struct err *e)
{
    return 0;
}

static int cpu_event_create(struct exec *x, struct event **out, struct err *e)
{
    *out = NULL;
    return 0;
}

static void cpu_event_touch(struct exec *x, struct event *v)
{
}

static bool cpu_event_done(struct exec *x, struct event *v)
{
    return true;
}

static int cpu_weight_bind(struct exec *x, struct weight *w, const char *name, struct err *e)
{
    const struct tensor_type_info *t = tensor_type_info(w->type);
    if (!t || !x->k->has_type(w->type))
        return err_set(e, ERR_FORMAT, "tensor %s: the %s kernels have no block format %s", name,
                       x->k->name, t ? t->name : "of that number");
    return 0;
}

/* --- row by row ------------------------------------------------------------------------------------------ */

static void cpu_weight_unbind(struct exec *x, struct weight *w)
{
}

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
        j->x->k->unpack(j->y + (size_t)r * j->w->n_cols,
                        (const uint8_t *)j->w->data + j->rows[r].token * j->w->row_bytes,
                        j->w->type, j->w->n_cols);
}

static void cpu_embed(struct exec *x, float *y, const struct weight *w,
                      const struct batch_row *rows, uint32_t n)
{
    pool_for(x->pool, n, 8, embed_items, &(struct embed_job){x, y, w, rows});
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
    pool_for(x->pool, n, 8, norm_items, &(struct norm_job){x, y, in, scale, width, eps});
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
    pool_for(x->pool, n, 8, rope_items,
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
    pool_for(x->pool, n, 4, silu_items, &(struct two_rows_job){x, gate, up, width});
}

static void add_items(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct two_rows_job *j = ctx;
    for (uint32_t r = begin; r < end; r++)
        j->x->k->add(j->y + (size_t)r * j->width, j->in + (size_t)r * j->width, j->width);
}

static void cpu_add(struct exec *x, float *y, const float *in, uint32_t n, uint32_t width)
{
    pool_for(x->pool, n, 16, add_items, &(struct two_rows_job){x, y, in, width});
}

static void cpu_mark_nonfinite(struct exec *x, uint16_t *bad, uint16_t mark, const float *in,
                               uint32_t n, uint32_t width)
{
    for (uint32_t r = 0; r < n; r++) {
        uint32_t found = 0;
        for (uint32_t i = 0; i < width; i++) {
            uint32_t bits;
            memcpy(&bits, &in[(size_t)r * width + i], 4);
            found |= (bits & 0x7f800000u) == 0x7f800000u; /* exponent of NaN and infinities */
        }
        if (found && !bad[r])
            bad[r] = mark;
    }
}

/* --- matrix products ------------------------------------------------------------------------------------- */

struct matmul_call {
    const struct exec *x;
    const struct matmul *jobs;
    uint32_t n_jobs;
    const float *in;
    size_t in_stride;
    uint32_t n;
};

/* Items are the output rows of all jobs, one job after the other. */
static void matmul_items(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct matmul_call *c = ctx;
    float *scratch = thread_scratch(c->x, thread);
    uint32_t first = 0;
    for (uint32_t i = 0; i < c->n_jobs; i++) {
        const struct matmul *m = &c->jobs[i];
        uint32_t rows = m->w->n_rows;
        uint32_t from = begin > first ? begin - first : 0;
        uint32_t to = end > first ? end - first : 0;
        if (to > rows)
            to = rows;
        if (from < to)
            c->x->k->matmul(m, from, to, c->in, c->in_stride, c->n, scratch);
        first += rows;
    }
}

static void cpu_matmul(struct exec *x, const struct matmul *jobs, uint32_t n_jobs, const float *in,
                       size_t in_stride, uint32_t n)
{
    uint32_t n_items = 0;
    CHECK(n_jobs <= MATMUL_MAX_JOBS);
    for (uint32_t i = 0; i < n_jobs; i++)
        n_items += jobs[i].w->n_rows;
    if (n)
        pool_for(x->pool, n_items, MATMUL_GRAIN, matmul_items,
                 &(struct matmul_call){x, jobs, n_jobs, in, in_stride, n});
}

/* --- keys, values, attention ------------------------------------------------------------------------------ */

/* F32: [block][layer][kv head][k, v][KV_BLOCK_TOKENS][head_dim] */
static size_t cpu_kv_block_bytes(int kv_type, uint32_t n_layers, uint32_t n_kv_heads,
                                 uint32_t head_dim)
{
    return (size_t)n_layers * n_kv_heads * 2 * KV_BLOCK_TOKENS * head_dim * sizeof(float);
}

static float *kv_at(const struct kv_cache *kv, uint32_t block, uint32_t layer, uint32_t head,
                    uint32_t k_or_v)
{
    size_t i = ((size_t)layer * kv->n_kv_heads + head) * 2 + k_or_v;
    return (float *)(void *)((uint8_t *)kv->data + block * kv->block_bytes) +
           i * KV_BLOCK_TOKENS * kv->head_dim;
}

static uint32_t block_of(const struct step *s, uint32_t seq, uint32_t position)
{
    return s->tables[(size_t)seq * s->table_stride + position / KV_BLOCK_TOKENS];
}

static void cpu_kv_store(struct exec *x, const struct kv_cache *kv, uint32_t layer, const float *k,
                         const float *v, const struct step *s)
{
    size_t d = kv->head_dim;
    for (uint32_t r = 0; r < s->n_rows; r++)
        for (uint32_t h = 0; h < kv->n_kv_heads; h++) {
            const struct batch_row *row = &s->rows[r];
            uint32_t block = block_of(s, row->seq, row->position);
            size_t from = ((size_t)r * kv->n_kv_heads + h) * d;
            size_t to = row->position % KV_BLOCK_TOKENS * d;
            memcpy(kv_at(kv, block, layer, h, 0) + to, k + from, d * sizeof *k);
            memcpy(kv_at(kv, block, layer, h, 1) + to, v + from, d * sizeof *v);
        }
}

static void cpu_kv_copy(struct exec *x, const struct kv_cache *kv, uint32_t from_block,
                        uint32_t to_block)
{
    memcpy((uint8_t *)kv->data + to_block * kv->block_bytes,
           (uint8_t *)kv->data + from_block * kv->block_bytes, kv->block_bytes);
}

struct attend_job {
    const struct exec *x;
    float *out;
    const float *q;
    uint32_t n_heads;
    const struct kv_cache *kv;
    uint32_t layer, window;
    const struct step *s;
};

static void attend_items(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct attend_job *j = ctx;
    const struct kv_cache *kv = j->kv;
    uint32_t group = j->n_heads / kv->n_kv_heads;
    size_t d = kv->head_dim;
    for (uint32_t i = begin; i < end; i++) {
        uint32_t r = i / kv->n_kv_heads, h = i % kv->n_kv_heads;
        const struct batch_row *row = &j->s->rows[r];
        uint32_t last = row->position + 1;
        uint32_t first = j->window && last > j->window ? last - j->window : 0;
        float *scores = thread_scratch(j->x, thread), *k = scores + j->x->max_kv + 8,
              *v = k + j->x->max_kv * d;
        for (uint32_t p = first; p < last; p++) {
            uint32_t block = block_of(j->s, row->seq, p), at = p % KV_BLOCK_TOKENS;
            memcpy(k + (p - first) * d, kv_at(kv, block, j->layer, h, 0) + at * d, d * sizeof *k);
            memcpy(v + (p - first) * d, kv_at(kv, block, j->layer, h, 1) + at * d, d * sizeof *v);
        }
        size_t at = ((size_t)r * j->n_heads + (size_t)h * group) * d;
        j->x->k->attend(j->out + at, j->q + at, group, k, v, last - first, kv->head_dim, scores);
    }
}

static void cpu_attend(struct exec *x, float *out, const float *q, uint32_t n_heads,
                       const struct kv_cache *kv, uint32_t layer, uint32_t window,
                       const struct step *s)
{
    pool_for(x->pool, s->n_rows * kv->n_kv_heads, 1, attend_items,
             &(struct attend_job){x, out, q, n_heads, kv, layer, window, s});
}

static void cpu_gather(struct exec *x, float *y, const float *in, uint32_t width,
                       const struct step *s)
{
    for (uint32_t r = 0; r < s->n_rows; r++)
        if (s->rows[r].out != ROW_NO_OUT)
            memcpy(y + (size_t)s->rows[r].out * width, in + (size_t)r * width, width * sizeof *y);
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
    .mark_nonfinite = cpu_mark_nonfinite,
};
