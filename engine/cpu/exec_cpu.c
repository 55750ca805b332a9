/* exec_cpu.c - see exec_cpu.h; memory, streams, events and weights of the CPU. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/err.h"
#include "engine/cpu/acts.h"
#include "engine/cpu/exec.h"
#include "model/index.h"

enum { SCRATCH_ALIGN = 64 }; /* a cache line: threads never share one */

/* Of one thread; the largest that any set wants, so that memory can be planned before a set is chosen. */
static size_t scratch_stride(uint32_t max_cols, uint32_t max_kv)
{
    size_t most = 0;
    const struct kernels *k;
    for (uint32_t i = 0; (k = kernels_nth(i)); i++) {
        size_t n = k->scratch_bytes(max_cols, max_kv);
        most = n > most ? n : most;
    }
    return (most + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
}

static size_t acts_bytes(uint32_t max_cols)
{
    return KERNELS_SLICE_ROWS * acts_row_bytes(max_cols);
}

uint64_t exec_cpu_scratch_bytes(uint32_t n_threads, uint32_t max_cols, uint32_t max_kv)
{
    return (uint64_t)n_threads * scratch_stride(max_cols, max_kv) + acts_bytes(max_cols) +
           EXEC_PARTIALS_BYTES;
}

int exec_cpu_create(struct exec **out, const struct kernels *k, uint32_t n_threads,
                    uint32_t max_cols, uint32_t max_kv, struct err *e)
{
    struct exec *x = calloc(1, sizeof *x);
    if (!x)
        return err_set(e, ERR_NOMEM, "compute context: out of memory");
    x->k = k;
    x->max_cols = max_cols;
    x->scratch_stride = scratch_stride(max_cols, max_kv);
    int rc = pool_create(&x->pool, n_threads, e);
    if (!rc) {
        x->scratch = aligned_alloc(SCRATCH_ALIGN, x->scratch_stride * n_threads);
        x->acts = aligned_alloc(SCRATCH_ALIGN, acts_bytes(max_cols));
        x->partials = aligned_alloc(SCRATCH_ALIGN, EXEC_PARTIALS_BYTES);
        if (!x->scratch || !x->acts || !x->partials)
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
    free(x->acts);
    free(x->partials);
    free(x);
}

/* --- memory and weights ---------------------------------------------------------------------------------- */

/* Straight from the kernel: zeroed, and small pages of a KV block cost nothing until a request gets that far. */
void *cpu_mem_alloc(struct exec *x, enum mem_kind kind, size_t n_bytes)
{
    void *p = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    madvise(p, n_bytes, MADV_NOHUGEPAGE);
    return p;
}

void cpu_mem_free(struct exec *x, enum mem_kind kind, void *p, size_t n_bytes)
{
    if (p)
        munmap(p, n_bytes);
}

void cpu_copy(struct exec *x, void *to, const void *from, size_t n_bytes)
{
    memmove(to, from, n_bytes);
}

/* A stream is the calling thread: whatever was enqueued is done, and so is every event. */
int cpu_stream_create(struct exec *x, struct stream **out, struct err *e)
{
    *out = NULL;
    return 0;
}

void cpu_stream_destroy(struct exec *x, struct stream *s)
{
}

int cpu_stream_sync(struct exec *x, struct stream *s, struct err *e)
{
    return 0;
}

int cpu_event_create(struct exec *x, struct event **out, struct err *e)
{
    *out = NULL;
    return 0;
}

void cpu_event_touch(struct exec *x, struct event *v)
{
}

bool cpu_event_done(struct exec *x, struct event *v)
{
    return true;
}

int cpu_weight_bind(struct exec *x, struct weight *w, const char *name, struct err *e)
{
    const struct tensor_type_info *t = tensor_type_info(w->type);
    if (!t)
        return err_set(e, ERR_FORMAT, "tensor %s: block format %d has no kernels here", name,
                       w->type);
    if (w->n_cols % t->block_elems)
        return err_set(e, ERR_FORMAT, "tensor %s: rows of %u are no whole blocks of %u (%s)", name,
                       w->n_cols, t->block_elems, t->name);
    return 0;
}

void cpu_weight_unbind(struct exec *x, struct weight *w)
{
}

/* --- running ---------------------------------------------------------------------------------------------- */

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void exec_for(struct exec *x, uint32_t n_items, uint32_t grain, pool_fn fn, void *ctx)
{
    uint64_t start = now_ns();
    pool_for(x->pool, n_items, grain, fn, ctx);
    x->busy_ns += now_ns() - start;
}

uint64_t exec_cpu_busy_us(const struct exec *x)
{
    return x->busy_ns / 1000;
}
