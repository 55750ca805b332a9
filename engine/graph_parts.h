/* graph_parts.h - the inside of a graph (graph.h), shared by graph_*.c and nobody else. */
#ifndef EXA_ENGINE_GRAPH_PARTS_H
#define EXA_ENGINE_GRAPH_PARTS_H

#include "engine/coll.h"
#include "engine/family.h"
#include "engine/graph.h"

struct span {
    uint32_t first, n;
};

/* What this shard has of the model. */
struct part {
    struct span layers;
    bool is_first, is_last; /* stage of the pipeline: embeds, has the outputs */
    uint32_t n_heads, n_kv_heads, q_dim, kv_dim, n_ff, n_ff_expert;
    uint32_t n_out_rows; /* rows of the output matrix here */
    uint32_t out_stride; /* and the most that any shard has */
};

struct graph {
    struct model_params p;
    struct graph_size size;
    struct part part;
    const struct family *family;
    const struct ops *ops;
    struct exec *x;

    struct layer_top top;
    struct layer *layers; /* [part.layers.n] */
    struct kv_cache kv;

    void *vectors; /* norms and biases */
    void *copied;  /* slices that do not lie in one piece in the image */
    uint64_t vector_bytes, copied_bytes, scratch_bytes, host_bytes, kv_bytes;

    void *scratch;    /* all that follows lies in it */
    float *angles;    /* [n_ctx][rope_dim / 2][cos, sin] */
    float *resid;     /* [max_rows][n_embd]: the residual stream */
    float *normed;    /* [max_rows][n_embd] */
    float *partial;   /* [max_rows][n_embd]: this shard's summand; tensor parallel only */
    float *q, *att;   /* [max_rows][q_dim] */
    float *k, *v;     /* [max_rows][kv_dim] */
    float *gate, *up; /* [max_rows][n_ff], of experts [max_rows * n_experts_used][n_ff_expert] */
    float *route;     /* [max_rows][n_experts] */
    uint32_t *choice; /* [max_rows][n_experts_used] */
    float *share;
    float *expert_out; /* [max_rows * n_experts_used][n_embd] */
    float *out;        /* [max_out][n_embd] */
    float *logits;     /* [max_out][n_vocab] */
    float *out_part;   /* [max_out][out_stride]; tensor parallel only */
    float *out_parts;  /* [tp_size][max_out][out_stride] */
    float *pool;       /* [n_seqs][n_embd]; POOLING_MEAN only */
    uint16_t *bad;     /* [max_rows + max_out] */

    void *host;             /* MEM_HOST; all that follows lies in it */
    uint16_t *bad_host;     /* [max_rows + max_out] */
    uint8_t *zeros;         /* as many bytes as are ever set to zero at once */
    float *staging;         /* [STAGING_POSITIONS][rope_dim] */
    struct batch_row *rows; /* [max_rows]; a follower's */
    uint32_t *tables;       /* [n_seqs][table_stride] */
    uint32_t *packed;       /* [1 + n_seqs * table_stride]: what is handed out of them */
    uint32_t table_stride;
};

static inline bool graph_is_shard(const struct graph_size *s)
{
    return s->tp_size > 1 || s->pp_size > 1;
}

static inline bool graph_pools(const struct graph *g)
{
    return g->p.pooling != POOLING_NONE;
}

/* --- graph_shard.c --------------------------------------------------------------------------------------- */
/* ERR_CONFIG: ranks outside of their sizes. ERR_FORMAT: what cannot be divided (named with its numbers). */
int shard_part(struct part *out, const struct model_params *p, const struct graph_size *s,
               struct err *e);
/* The shard's piece of a dimension. */
struct span shard_span(int width, const struct model_params *p, const struct graph_size *s);

/* --- graph_bind.c ---------------------------------------------------------------------------------------- */
struct binding {
    const struct tensor_info **found; /* [n_slots][n_layers], NULL: not in the image */
    uint32_t n_slots;
    uint64_t mapped_bytes, copied_bytes, vector_bytes; /* of this shard */
};
/* Find and check all tensors. */
int binding_init(struct binding *b, const struct graph *g, const struct image *img, struct err *e);
void binding_fini(struct binding *b);
/* Fill top and layers; vectors and copied have been taken with the sizes that binding_init found. */
int binding_apply(const struct binding *b, struct graph *g, const struct image *img, struct err *e);

/* --- graph_layers.c: enqueue; ERR_PEER, ERR_TIMEOUT from the other shards ---------------------------------- */
int layers_compute(struct graph *g, const struct step *s, struct err *e);

/* --- graph_steps.c --------------------------------------------------------------------------------------- */
/* Shard 0: hand the step to all others. */
int steps_hand_out(struct graph *g, const struct step *s, struct err *e);

#endif
