/* ops_matmul.c - matrix products on the CPU, split by output rows of all jobs. */
#include "engine/cpu/exec.h"

enum {
    MATMUL_GRAIN = 32, /* output rows a thread takes at a time; a multiple of KERNELS_TILE_ROWS */
    MATMUL_MAX_JOBS = 4,
};

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
    float *scratch = exec_scratch(c->x, thread);
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

void cpu_matmul(struct exec *x, const struct matmul *jobs, uint32_t n_jobs, const float *in,
                size_t in_stride, uint32_t n)
{
    uint32_t n_items = 0;
    CHECK(n_jobs <= MATMUL_MAX_JOBS);
    for (uint32_t i = 0; i < n_jobs; i++)
        n_items += jobs[i].w->n_rows;
    if (n)
        exec_for(x, n_items, MATMUL_GRAIN, matmul_items,
                 &(struct matmul_call){x, jobs, n_jobs, in, in_stride, n});
}

void cpu_matmul_experts(struct exec *x, float *y, size_t y_stride, const struct weight *w,
                        const uint32_t *choice, const float *in, size_t in_stride, uint32_t in_div,
                        uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct weight one = *w;
        one.data = (const uint8_t *)w->data + (size_t)choice[i] * w->n_rows * w->row_bytes;
        const struct matmul job = {.y = y + i * y_stride, .y_stride = y_stride, .w = &one};
        cpu_matmul(x, &job, 1, in + (size_t)(i / in_div) * in_stride, in_stride, 1);
    }
}
