/* graph.h - a model as a graph over ops.h: bound tensors, activations, KV blocks; one forward pass a step.
 *
 * The common decoder (norms, rotary attention with grouped queries, gated feed-forward or experts) is written once in graph.c;
 * what makes a family is its file family_<arch>.c: which tensors there are, with shapes, and where its layers differ. Which
 * positions are computed, and where their keys and values lie, is the caller's (step): a graph keeps no requests.
 */
#ifndef EXA_ENGINE_GRAPH_H
#define EXA_ENGINE_GRAPH_H

#include "base/err.h"
#include "engine/ops.h"
#include "model/image.h"

struct coll; /* coll.h */
struct graph;

struct graph_size {
    uint32_t n_ctx;    /* longest sequence */
    uint32_t n_seqs;   /* sequences at once: rows of step.tables */
    uint32_t max_rows; /* rows of one step */
    uint32_t max_out;  /* rows with outputs of one step */
    uint32_t n_blocks; /* KV blocks */
    int kv_type;       /* enum kv_type */
    /* This shard's part of the model; sizes 0 or 1: the whole. */
    uint32_t tp_rank, tp_size, pp_rank, pp_size;
    struct coll *all; /* all shards, rank = pp_rank * tp_size + tp_rank; NULL: pp_size is 1 */
    struct coll *tp;  /* the shards of this stage, rank = tp_rank; NULL: tp_size is 1 */
};
struct graph_memory {
    uint64_t weight_bytes;            /* this shard's, of the image: mapped and shared */
    uint64_t kv_bytes, scratch_bytes; /* taken from the back end at creation, to the byte */
    uint64_t copied_bytes; /* of scratch_bytes: slices that a derived image would have spared */
};

/* What a shard has of a tensor (design.md 5: the rest of a derived image is mapped). */
enum shard_how { SHARD_WHOLE, SHARD_ROWS, SHARD_COLS };
struct shard_plan {
    enum shard_how how;
    uint32_t first, n; /* rows or columns (values) of each part; a vector is one row */
    uint32_t n_parts;  /* equal matrices, one after the other: experts; else 1 */
    bool scattered;    /* columns of a matrix: they must be copied */
};

/* ERR_FORMAT: an architecture or parameters that no family here can run (named, expected and found). */
int graph_check(const struct model_params *p, struct err *e);
/* What would be taken, without taking it. */
int graph_memory(struct graph_memory *m, const struct image *img, const struct graph_size *size,
                 const struct ops *ops, struct err *e);
uint32_t graph_max_cols(const struct model_params *p); /* widest row of any matrix */
/* tp_size shards, this one's number tp_rank. An image may hold each tensor whole or as its slice (first … first + n - 1 of each part, in
 * order): its shape tells. Scattered slices of whole tensors are copied at creation. ERR_FORMAT: a tensor that the family does not
 * have, a model or block format that cannot be divided so (named, with the numbers). */
int graph_shard_plan(struct shard_plan *out, const struct model_params *p, const char *tensor,
                     int type, uint32_t tp_rank, uint32_t tp_size, struct err *e);

/* img, ops and x must outlive the graph. ERR_FORMAT: a tensor missing, unknown to the family, or of another shape or type (named,
 * expected and found). */
int graph_create(struct graph **out, const struct image *img, const struct graph_size *size,
                 const struct ops *ops, struct exec *x, struct err *e);
void graph_destroy(struct graph *g);

/* Compute a step; of several shards on shard 0, which hands it to the others. ERR_PEER, ERR_TIMEOUT: another shard is gone. */
int graph_forward(struct graph *g, const struct step *s, struct err *e);
/* The other shards, over and over: compute the step that shard 0 hands out next. 1: done; 0: shard 0 called graph_end. */
int graph_follow(struct graph *g, struct err *e);
/* Shard 0, while it has nothing to hand out: the others' waits have the group's deadline. Call it well within that. */
int graph_idle(struct graph *g, struct err *e);
void graph_end(struct graph *g);
/* After graph_forward: logits [n_vocab] of output i (back end memory), and the place where row r first had a NaN or an infinity: 0 nowhere,
 * 1 + layer, or 1 + n_layers for the logits. */
float *graph_logits(const struct graph *g, uint32_t i);
uint32_t graph_bad_layer(const struct graph *g, uint32_t r);
/* Embedding models (params.pooling; they have no logits, graph_logits is NULL): the final hidden state [n_embd] of output i after the last norm (POOLING_LAST), and the running sum of sequence s
 * (POOLING_MEAN), which graph_pool_reset sets to zero. */
const float *graph_hidden(const struct graph *g, uint32_t i);
const float *graph_pool(const struct graph *g, uint32_t s);
void graph_pool_reset(struct graph *g, uint32_t s);
/* A block's keys and values to another block: copy on write. */
void graph_kv_copy(struct graph *g, uint32_t from_block, uint32_t to_block);

#endif
