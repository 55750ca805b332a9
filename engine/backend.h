/* backend.h - where an engine's operations run: what a kind of engine brings beside its table of operations (ops.h). Everything else of an
 * engine (local.h) is the same for all kinds.
 */
#ifndef EXA_ENGINE_BACKEND_H
#define EXA_ENGINE_BACKEND_H

#include "engine/engine.h"
#include "engine/ops.h"

struct exec_need {
    uint32_t n_threads;
    uint32_t max_cols, max_kv; /* widest weight row, longest sequence */
};

struct backend_kernels {
    const char *name, *numerics;
    uint32_t revision; /* raised when any result bit may change */
};

struct backend {
    const char *kind; /* "cpu" */
    const struct ops *ops;
    bool host_memory; /* the host can read and write MEM_DEVICE memory as it is */
    /* ERR_CONFIG: a setting that this back end does not know (kernels, threads). Takes nothing. */
    int (*check)(const struct engine_config *c, struct err *e);
    /* Memory that KV, scratch and weights share; UINT64_MAX: unknown. */
    uint64_t (*memory_available)(void);
    uint64_t (*exec_bytes)(const struct exec_need *need);
    int (*exec_open)(struct exec **out, const struct engine_config *c, const struct exec_need *need,
                     struct err *e);
    void (*exec_close)(struct exec *x);
    uint64_t (*busy_us)(const struct exec *x); /* time in operations so far */
    /* What the kernels of c are called, and what of them decides the bits of a result: sets of the same numerics agree. */
    struct backend_kernels (*kernels)(const struct engine_config *c);
};

extern const struct backend BACKEND_CPU;

/* An engine on it: engine.h. */
int engine_local_create(struct engine **out, const struct backend *backend,
                        const struct engine_config *c, struct err *e);

#endif
