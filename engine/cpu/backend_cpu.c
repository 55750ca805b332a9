/* backend_cpu.c - the back end "cpu": a thread pool and the best kernel set of this CPU. */
#include "engine/backend.h"
#include "engine/cpu/exec_cpu.h"
#include "engine/memory.h"

static int cpu_check(const struct engine_config *c, struct err *e)
{
    const struct kernels *k;
    if (c->n_threads > POOL_MAX_THREADS)
        return err_set(e, ERR_CONFIG, "threads: %u, at most %d", c->n_threads, POOL_MAX_THREADS);
    return kernels_find(&k, c->kernels, e);
}

static uint64_t cpu_exec_bytes(const struct exec_need *need)
{
    return exec_cpu_scratch_bytes(need->n_threads, need->max_cols, need->max_kv);
}

static int cpu_exec_open(struct exec **out, const struct engine_config *c,
                         const struct exec_need *need, struct err *e)
{
    const struct kernels *k;
    int rc = kernels_find(&k, c->kernels, e);
    return rc ? rc : exec_cpu_create(out, k, need->n_threads, need->max_cols, need->max_kv, e);
}

static struct backend_kernels cpu_kernels(const struct engine_config *c)
{
    const struct kernels *k;
    if (kernels_find(&k, c->kernels, NULL))
        return (struct backend_kernels){"", "", 0};
    return (struct backend_kernels){k->name, k->numerics, k->revision};
}

const struct backend BACKEND_CPU = {
    .kind = "cpu",
    .ops = &OPS_CPU,
    .host_memory = true,
    .check = cpu_check,
    .memory_available = memory_available,
    .exec_bytes = cpu_exec_bytes,
    .exec_open = cpu_exec_open,
    .exec_close = exec_cpu_destroy,
    .busy_us = exec_cpu_busy_us,
    .kernels = cpu_kernels,
};
