/* local.h - an engine on this node: one image, one graph on a back end, one table of requests. Inside of local*.c only.
 *
 * local.c makes it and answers for it; local_memory.c plans what it takes; local_step.c computes steps; draft.c speculates.
 */
#ifndef EXA_ENGINE_LOCAL_H
#define EXA_ENGINE_LOCAL_H

#include "engine/backend.h"
#include "engine/batch.h"
#include "engine/draft.h"
#include "engine/draw.h"
#include "engine/graph.h"
#include "model/image.h"

enum { NO_LOGITS = UINT32_MAX };

struct engine_local {
    struct engine base;
    const struct backend *backend;
    struct image img;
    bool img_is_open;
    struct exec *exec;
    struct graph *graph;
    struct draft *draft; /* NULL: none */
    struct graph_size size;
    struct batch_config plan;
    struct batch batch;
    struct draws *draws;
    uint32_t n_threads, shard;
    bool ended; /* a shard that was told the end */
    uint64_t memory_bytes;
    struct backend_kernels kernels;
    uint32_t *logits_index; /* [n_entries]: output of the last step's logits, NO_LOGITS */
    float *host_row;        /* [max(n_vocab, n_embd)] outputs on their way to the host */
    struct drawn *drawn;    /* [max_out] */
    uint64_t n_steps, n_tokens, step_times[ENGINE_STEP_BUCKETS];
};

/* Sizes of graph and batch, and what they take: fills size, plan and memory_bytes. c is checked, img is open. ERR_LIMIT: it does not fit. */
int local_memory_plan(struct engine_local *g, const struct engine_config *c, struct err *e);
/* The request's entry is free again, and what its sampler shared. */
void local_drop(struct engine_local *g, struct request *r);
int local_step(struct engine_local *g, uint64_t now_us, step_result_fn fn, void *ctx,
               struct err *e);

#endif
