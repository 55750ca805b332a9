/* ops_matmul.c - matrix products on the CPU: activations made ready once a call, then output rows of all jobs over the pool. */
#include <string.h>

#include "engine/cpu/acts.h"
#include "engine/cpu/exec.h"

enum {
    MATMUL_MAX_JOBS = 4,
    GRAINS_A_THREAD = 4, /* enough that a thread that lost its core holds up a small share */
    ACTS_GRAIN = 8,      /* activation rows; fewer are not worth waking threads */
};

/* Up to KERNELS_SLICE_ROWS activation rows against all jobs. */
struct matmul_call {
    struct exec *x;
    const struct matmul *jobs;
    uint32_t n_jobs;
    struct matmul_part part; /* m, begin, end, scratch are an item's own */
};

static void acts_items(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct matmul_call *c = ctx;
    uint32_t n_cols = c->jobs[0].w->n_cols;
    for (uint32_t r = begin; r < end; r++)
        c->x->k->acts_make(c->x->acts + r * acts_row_bytes(n_cols),
                           c->part.x + r * c->part.x_stride, n_cols);
}

/* Activation rows of the part as int8, if any job wants them so. */
static void acts_prepare(struct matmul_call *c, uint32_t n_rows)
{
    bool wanted = false;
    for (uint32_t i = 0; i < c->n_jobs; i++)
        wanted = wanted || c->x->k->has_acts(c->jobs[i].w->type);
    if (!wanted)
        return;
    CHECK(n_rows <= KERNELS_SLICE_ROWS && c->jobs[0].w->n_cols <= c->x->max_cols);
    c->part.acts = c->x->acts;
    exec_for(c->x, n_rows, ACTS_GRAIN, acts_items, c);
}

static uint32_t tiles_of(uint32_t n_rows)
{
    return (n_rows + KERNELS_TILE_ROWS - 1) / KERNELS_TILE_ROWS;
}

/* Items are tiles of output rows of all jobs, one job after the other. */
static void matmul_items(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct matmul_call *c = ctx;
    struct matmul_part part = c->part;
    part.scratch = exec_scratch(c->x, thread);
    uint32_t first = 0;
    for (uint32_t i = 0; i < c->n_jobs; i++) {
        uint32_t rows = c->jobs[i].w->n_rows, n = tiles_of(rows);
        uint32_t from = begin > first ? begin - first : 0, to = end > first ? end - first : 0;
        to = to < n ? to : n;
        if (from < to) {
            part.m = &c->jobs[i];
            part.begin = from * KERNELS_TILE_ROWS;
            part.end = to * KERNELS_TILE_ROWS < rows ? to * KERNELS_TILE_ROWS : rows;
            c->x->k->matmul(&part);
        }
        first += n;
    }
}

static uint32_t tile_grain(const struct exec *x, uint32_t n_tiles)
{
    uint32_t grain = n_tiles / (pool_threads(x->pool) * GRAINS_A_THREAD);
    return grain ? grain : 1;
}

static void matmul_slice(struct exec *x, const struct matmul *jobs, uint32_t n_jobs,
                         const float *in, size_t in_stride, uint32_t n)
{
    struct matmul_call c = {x, jobs, n_jobs, {.x = in, .x_stride = in_stride, .n = n, .in_div = 1}};
    uint32_t n_tiles = 0;
    for (uint32_t i = 0; i < n_jobs; i++)
        n_tiles += tiles_of(jobs[i].w->n_rows);
    acts_prepare(&c, n);
    exec_for(x, n_tiles, tile_grain(x, n_tiles), matmul_items, &c);
}

void cpu_matmul(struct exec *x, const struct matmul *jobs, uint32_t n_jobs, const float *in,
                size_t in_stride, uint32_t n)
{
    CHECK(n_jobs && n_jobs <= MATMUL_MAX_JOBS);
    for (uint32_t r = 0; r < n; r += KERNELS_SLICE_ROWS) {
        struct matmul part[MATMUL_MAX_JOBS];
        uint32_t rows = n - r < KERNELS_SLICE_ROWS ? n - r : KERNELS_SLICE_ROWS;
        for (uint32_t i = 0; i < n_jobs; i++) {
            part[i] = jobs[i];
            part[i].y += r * jobs[i].y_stride;
        }
        matmul_slice(x, part, n_jobs, in + r * in_stride, in_stride, rows);
    }
}

/* --- experts ---------------------------------------------------------------------------------------------- */

/* Results of one slice, those of an expert together: x->picks[x->expert_at[k]] … of the k-th expert that is used at all. */
struct experts_call {
    struct matmul_call call;
    float *y;
    size_t y_stride;
    const struct weight *w;
    uint32_t n_used;
};

static void experts_sort(struct exec *x, struct experts_call *c, const uint32_t *choice, uint32_t n)
{
    uint32_t n_done = 0;
    c->n_used = 0;
    for (uint32_t i = 0; i < n; i++) /* in order of number, however they were chosen */
        CHECK(choice[i] < c->w->n_experts);
    for (uint32_t expert = 0; expert < c->w->n_experts && n_done < n; expert++) {
        uint32_t begin = n_done;
        for (uint32_t i = 0; i < n; i++)
            if (choice[i] == expert)
                x->picks[n_done++] = i;
        if (n_done == begin)
            continue;
        x->expert_no[c->n_used] = expert;
        x->expert_at[c->n_used++] = begin;
    }
    x->expert_at[c->n_used] = n;
}

/* Items are tiles of the used experts. */
static void experts_items(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct experts_call *c = ctx;
    struct exec *x = c->call.x;
    uint32_t n_tiles = tiles_of(c->w->n_rows);
    for (uint32_t item = begin; item < end; item++) {
        uint32_t k = item / n_tiles, row = item % n_tiles * KERNELS_TILE_ROWS;
        struct weight one = *c->w;
        one.data = weight_expert(c->w, x->expert_no[k]);
        const struct matmul m = {.y = c->y, .y_stride = c->y_stride, .w = &one};
        struct matmul_part part = c->call.part;
        part.m = &m;
        part.begin = row;
        part.end = row + KERNELS_TILE_ROWS < one.n_rows ? row + KERNELS_TILE_ROWS : one.n_rows;
        part.pick = x->picks + x->expert_at[k];
        part.n = x->expert_at[k + 1] - x->expert_at[k];
        part.scratch = exec_scratch(x, thread);
        x->k->matmul(&part);
    }
}

void cpu_matmul_experts(struct exec *x, float *y, size_t y_stride, const struct weight *w,
                        const uint32_t *choice, const float *in, size_t in_stride, uint32_t in_div,
                        uint32_t n)
{
    uint32_t step = KERNELS_SLICE_ROWS / in_div * in_div;
    const struct matmul as_job = {.w = w};
    CHECK(in_div && in_div <= KERNELS_SLICE_ROWS);
    for (uint32_t i = 0; i < n; i += step) {
        uint32_t count = n - i < step ? n - i : step;
        struct experts_call c = {
            .call = {x,
                     &as_job,
                     1,
                     {.x = in + (size_t)(i / in_div) * in_stride,
                      .x_stride = in_stride,
                      .in_div = in_div}},
            .y = y + i * y_stride,
            .y_stride = y_stride,
            .w = w,
        };
        experts_sort(x, &c, choice + i, count);
        acts_prepare(&c.call, (count + in_div - 1) / in_div);
        uint32_t n_items = c.n_used * tiles_of(w->n_rows);
        exec_for(x, n_items, tile_grain(x, n_items), experts_items, &c);
    }
}
