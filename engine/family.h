/* family.h - what makes a model family: its tensors with their shapes, the style of its rotation, what its parameters may be.
 *
 * A family is one file, family_<arch>.c, that defines one struct family; family.c lists them. Everything that the families share
 * (the decoder's layers, binding, slicing among shards, memory) reads these tables: docs/internals/families.md says how to add one.
 */
#ifndef EXA_ENGINE_FAMILY_H
#define EXA_ENGINE_FAMILY_H

#include "base/err.h"
#include "engine/ops.h"
#include "model/index.h"
#include "model/meta.h"

/* A size of a tensor, by its meaning. Tensor parallel shards divide the W_Q … W_OUT ones among themselves (graph_shard.c). */
enum width {
    W_ONE, /* rows of a vector */
    W_EMBD,
    W_HEAD,      /* head_dim */
    W_ROPE_HALF, /* rope_dim / 2 */
    W_EXPERTS,
    W_VOCAB,
    W_Q,         /* all query heads */
    W_KV,        /* all key or value heads */
    W_FF,        /* of a dense feed-forward */
    W_FF_EXPERT, /* of one expert */
    W_OUT,       /* rows of the output matrix: n_vocab */
};

/* When a tensor must be there; where it neither must nor may, it is refused as unknown. */
enum need {
    NEED_ALWAYS,
    NEED_OPTIONAL,
    NEED_DENSE, /* without experts */
    OPTIONAL_DENSE,
    NEED_EXPERTS, /* with experts */
    NEED_HEAD,    /* unless embeddings are tied or the model pools; may be there then */
    NEED_LLAMA3, /* rotary scaling LLAMA3; may be there without scaling: GGUF files of Llama 3 say no more */
    NEED_LONGROPE, /* rotary scaling LONGROPE */
};

/* The tensors of a layer as the decoder uses them; what a family does not have is zero. */
struct layer {
    const float *attn_norm, *ffn_norm; /* [n_embd] */
    const float *q_norm, *k_norm;      /* [head_dim], of each head */
    const float *bq, *bk, *bv, *bo;    /* biases of the four below */
    struct weight wq, wk, wv, wo;      /* rows: q heads, kv heads, kv heads, n_embd */
    const float *b_gate, *b_up, *b_down;
    struct weight w_gate, w_up;         /* [n_ff][n_embd] */
    struct weight w_down;               /* [n_embd][n_ff] */
    struct weight router;               /* [n_experts][n_embd] */
    struct weight x_gate, x_up, x_down; /* as w_*, n_experts times n_ff_expert */
};
/* Those of the model as a whole. */
struct layer_top {
    struct weight embd, head; /* [n_vocab][n_embd] */
    const float *out_norm;    /* [n_embd] */
    const float *rope_freqs, *rope_short,
        *rope_long; /* [rope_dim / 2]: divisors of the frequencies */
};

struct family_tensor {
    const char *name; /* without the "blk.N." of a layer's; NULL ends a table */
    bool of_layer;
    uint8_t rows, cols; /* enum width; rows W_ONE: a vector, F32 */
    bool of_experts;    /* n_experts such matrices, one after the other */
    uint8_t need;       /* enum need */
    uint16_t at;        /* its place in struct layer or layer_top */
};

/* name, member, rows, cols, need; name, member, width, need */
#define LAYER_MATRIX(n, member, r, c, need_)                                                       \
    {                                                                                              \
        .name = n, .of_layer = true, .rows = r, .cols = c, .need = need_,                          \
        .at = offsetof(struct layer, member)                                                       \
    }
#define LAYER_EXPERTS(n, member, r, c)                                                             \
    {                                                                                              \
        .name = n, .of_layer = true, .rows = r, .cols = c, .of_experts = true,                     \
        .need = NEED_EXPERTS, .at = offsetof(struct layer, member)                                 \
    }
#define LAYER_VECTOR(n, member, w, need_)                                                          \
    {                                                                                              \
        .name = n, .of_layer = true, .rows = W_ONE, .cols = w, .need = need_,                      \
        .at = offsetof(struct layer, member)                                                       \
    }
#define TOP_MATRIX(n, member, r, c, need_)                                                         \
    {                                                                                              \
        .name = n, .rows = r, .cols = c, .need = need_, .at = offsetof(struct layer_top, member)   \
    }
#define TOP_VECTOR(n, member, w, need_)                                                            \
    {                                                                                              \
        .name = n, .rows = W_ONE, .cols = w, .need = need_,                                        \
        .at = offsetof(struct layer_top, member)                                                   \
    }

/* What several families have, to be named in their lists. */
extern const struct family_tensor TENSORS_TOP[]; /* embedding, last norm, output, rotary divisors */
extern const struct family_tensor TENSORS_ATTENTION[];      /* norm, q, k, v, output */
extern const struct family_tensor TENSORS_ATTENTION_BIAS[]; /* of q, k, v, output; optional */
extern const struct family_tensor TENSORS_HEAD_NORM[];      /* of each query and key head */
extern const struct family_tensor TENSORS_FEED_FORWARD[]; /* norm; gate, up, down without experts */
extern const struct family_tensor TENSORS_FEED_FORWARD_BIAS[]; /* optional */
extern const struct family_tensor TENSORS_EXPERTS[]; /* router; gate, up, down of experts */

enum {
    FAMILY_WINDOW = 1 << 0,       /* may have a sliding window */
    FAMILY_NOPE = 1 << 1,         /* may leave layers unrotated */
    FAMILY_EXPERTS = 1 << 2,      /* may be a mixture */
    FAMILY_EXPERTS_ONLY = 1 << 3, /* must be one */
    FAMILY_MAX_TABLES = 8,
};

struct family {
    const char *arch; /* as in model_params */
    enum rope_style rope_style;
    unsigned features;
    const struct family_tensor *tables[FAMILY_MAX_TABLES]; /* NULL ends them */
    /* What only this family asks of parameters, after the common checks; NULL: nothing. */
    int (*check)(const struct model_params *p, struct err *e);
};
extern const struct family FAMILY_LLAMA, FAMILY_QWEN2, FAMILY_QWEN3, FAMILY_QWEN3MOE,
    FAMILY_SMOLLM3;

/* ERR_FORMAT: no family of p->arch, or parameters that it cannot run (named, expected and found). */
int family_find(const struct family **out, const struct model_params *p, struct err *e);

/* One tensor of the image to its place in the tables. */
struct tensor_place {
    const struct family_tensor *t;
    uint32_t slot;  /* running number of t among all of the family's */
    uint32_t layer; /* 0 for those of the whole model */
};
/* ERR_FORMAT: this family has no use for it. */
int family_place(struct tensor_place *out, const struct family *f, const struct model_params *p,
                 const char *name, struct err *e);
uint32_t family_n_slots(const struct family *f);
const struct family_tensor *family_slot(const struct family *f, uint32_t slot);
bool family_needs(const struct family_tensor *t, const struct model_params *p);
uint32_t family_width(int width, const struct model_params *p); /* of the whole model */

#endif
