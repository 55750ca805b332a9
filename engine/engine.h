/* engine.h - the narrow engine interface: token ids in, step results out. What runs behind it (CPU now; CUDA, simulated, an external server
 * later) is chosen by name; nothing above knows.
 *
 * One thread owns an engine: all calls come from it. `engine_step` computes one step for all active requests (continuous
 * batching: prefill and decode mixed) and hands out what each produced. It allocates nothing; everything is taken at creation.
 * Batch invariance: a request's tokens depend only on its own tokens, sampling parameters and seed, never on the
 * requests beside it, on chunking, on the number of threads, nor on prefill versus decode.
 */
#ifndef EXA_ENGINE_ENGINE_H
#define EXA_ENGINE_ENGINE_H

#include "base/err.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stdint.h>

struct engine;
struct coll;   /* engine/coll.h */
struct shards; /* engine/shards.h */
struct drawn;  /* engine/sampler.h */

enum speculation { SPECULATE_OFF, SPECULATE_LOOK_UP, SPECULATE_DRAFT };

struct engine_config {
    const char *kind;       /* "cpu" */
    const char *image_path; /* node image (model/image.h) */
    uint32_t n_ctx;         /* context a request may use; 0: the model's, at most 4096 */
    uint32_t n_slots;       /* requests computed at once; 1 … 256 */
    uint32_t n_queue;       /* requests that may wait beside them; at most 4096 */
    uint32_t n_threads;     /* compute threads, this one included; 0: 1 */
    uint32_t
        chunk; /* rows of one step: a token of every stream, the rest for prompts; 0: default */
    const char *
        kernels; /* NULL: best for this CPU; "ref", "avx2", "avx512" …: override (EXASERVE_KERNELS) */

    /* KV. With neither size nor fraction: what n_slots requests of n_ctx need, at most ENGINE_MEMORY_DEFAULT of what is available. */
    int kv_type;              /* enum kv_type; 0: default */
    uint64_t kv_bytes;        /* this much; 0: by fraction */
    uint32_t memory_permille; /* KV and scratch together take so much of the available memory */
    bool no_prefix_cache;

    uint8_t speculation;    /* enum speculation */
    const char *draft_path; /* image of the draft model */
    uint32_t max_drafts;    /* speculated tokens of a request in one step; 0: default */

    /* This engine is number node_index of node_count on its node: they share memory and cores. 0 of 0: alone, cores not bound. */
    uint32_t node_index, node_count;

    uint32_t shard, n_shards, tp; /* shard = stage * tp + place in the stage; n_shards 0, tp 0: 1 */
    struct coll *all, *tp_group;  /* borrowed; NULL: groups of one (engine/graph.h) */
    struct shards
        *shards; /* borrowed: keeps this shard's columns of the image; NULL: they are copied */
};
enum { ENGINE_MEMORY_DEFAULT = 500 /* permille */ };

struct engine_info {
    uint32_t n_ctx, n_slots, n_queue, n_threads, n_vocab;
    uint32_t kv_total_tokens;
    uint64_t memory_bytes; /* KV + scratch, without the shared image */
    bool embeds;           /* it takes texts to embed only, else only texts to go on with */
    char kernels[32];
    uint8_t numerics[SHA256_BYTES]; /* hash of all that decides the bits of an output */
};

enum { ENGINE_STEP_BUCKETS = 24, ENGINE_STEP_UNIT_US = 64 };
struct engine_load {
    uint32_t n_active, n_queued; /* all requests; those of them that wait */
    uint32_t kv_free_tokens;     /* neither held nor promised; cached prefixes count as free */
    uint64_t n_steps, n_tokens;
    uint64_t n_prefill_rows,
        n_decode_rows; /* computed for prompts (and again for preempted requests), for streams */
    uint64_t n_reused_tokens; /* of prompts: taken from the prefix cache or a sibling */
    uint64_t n_preempted, n_evicted;
    uint64_t kernel_us; /* of all steps, in operations: the rest is bookkeeping and sampling */
    uint64_t n_drafted, n_draft_held; /* speculated tokens; those that were drawn */
    /* Steps by their time: bucket i counts those under 2^i units that no lower one counted, the last one all others. */
    uint64_t step_times[ENGINE_STEP_BUCKETS];
};
/* The time that `permille` of all steps stayed under, by the buckets' upper bounds; 0: no step yet. */
uint64_t engine_step_quantile_us(const struct engine_load *load, uint32_t permille);

/* What one request got in one step. Pointers are valid during the call only. */
struct step_result {
    struct attempt attempt;
    uint32_t position;
    uint16_t n_tokens;
    uint8_t finish; /* enum finish; anything but FINISH_NONE is the request's last result */
    const uint32_t *tokens;
    const struct err *error;   /* for FINISH_ERROR */
    const struct drawn *drawn; /* [n_tokens] their log-probabilities; NULL: not asked for */
    /* Log-probabilities of prompt tokens prompt_first …, in results before the first token (the prompt's own first token has none). */
    uint32_t prompt_first, n_prompt_drawn;
    const struct drawn *prompt_drawn;
    uint32_t n_embedding;
    const float *embedding; /* [n_embedding] of a SUBMIT_EMBED, with FINISH_STOP and no tokens */
};
typedef void (*step_result_fn)(void *ctx, const struct step_result *r);

/* ERR_CONFIG: unknown kind or kernels. ERR_LIMIT: memory would not fit (weights, KV, scratch named), found before the weights are
 * read. ERR_FORMAT: not this family's tensors. */
int engine_create(struct engine **out, const struct engine_config *c, struct err *e);
void engine_destroy(struct engine *g);
void engine_info(const struct engine *g, struct engine_info *info);
void engine_load(const struct engine *g, struct engine_load *load);

/* Take a request. ERR_AGAIN: slots and queue are full. ERR_LIMIT: prompt longer than the context (both numbers named). ERR_FORMAT: token outside the
 * vocabulary. An attempt with the same (router, router_inc, slot) is replaced: the old one ends as canceled. */
int engine_submit(struct engine *g, const struct msg_submit *s, uint64_t now_us, struct err *e);
/* Ends at the next step with FINISH_CANCELED; unknown attempts are ignored. */
void engine_cancel(struct engine *g, const struct attempt *a);
/* One step. Returns the number of requests still active, or a negative error after which the engine is unusable. */
int engine_step(struct engine *g, uint64_t now_us, step_result_fn fn, void *ctx, struct err *e);

/* For tests and perplexity: logits [n_vocab] float of the last computed position of an active attempt, NULL if none. */
const float *engine_logits(const struct engine *g, const struct attempt *a);

/* --- what a kind implements ------------------------------------------------------------------------------- */
struct engine_ops {
    const char *kind;
    void (*destroy)(struct engine *g);
    void (*info)(const struct engine *g, struct engine_info *info);
    void (*load)(const struct engine *g, struct engine_load *load);
    int (*submit)(struct engine *g, const struct msg_submit *s, uint64_t now_us, struct err *e);
    void (*cancel)(struct engine *g, const struct attempt *a);
    int (*step)(struct engine *g, uint64_t now_us, step_result_fn fn, void *ctx, struct err *e);
    const float *(*logits)(const struct engine *g, const struct attempt *a);
};
struct engine { /* first member of every kind's own struct */
    const struct engine_ops *ops;
};
#endif
