/* meta.h - what a model is besides its tensors: hyper-parameters, tokenizer data and chat template.
 *
 * One neutral struct between the readers (gguf, pack), the router (text/) and the engine. It
 * travels as bytes (meta_encode): inside a pack, inside a node image, and from rank 0 to every
 * router ("text bundle"). The bytes are canonical: equal models give equal bytes, and their SHA-256
 * is part of the pack's digest. Source of names: GGUF specification (ggml/docs/gguf.md), keys
 * `<arch>.*`, `tokenizer.ggml.*`, `tokenizer.chat_template`.
 */
#ifndef EXA_MODEL_META_H
#define EXA_MODEL_META_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    META_NAME_BYTES = 128,
    META_ARCH_BYTES = 32,
    META_MAX_VOCAB = 1 << 20,
    META_MAX_MERGES = 1 << 21,
    META_MAX_BYTES = 64 << 20,     /* cap of the encoded form */
    META_TOKEN_BYTES = 64 << 10,   /* longest token or merge */
    META_TEMPLATE_BYTES = 1 << 20, /* longest chat template */
};

/* tokenizer.ggml.token_type */
enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
};

struct model_params {
    char arch[META_ARCH_BYTES]; /* one of MODEL_ARCHS */
    uint32_t n_layers;
    uint32_t n_embd; /* model width */
    uint32_t n_ff;   /* feed-forward width */
    uint32_t n_heads;
    uint32_t n_kv_heads;
    uint32_t head_dim; /* n_embd / n_heads unless given */
    uint32_t rope_dim; /* rotated dimensions of a head */
    float rope_base;
    float norm_eps;
    uint32_t n_ctx; /* context the model was trained for, tokens */
    uint32_t n_vocab;
    bool tied_embeddings; /* no output.weight: token_embd.weight serves both */

    /* Everything below is 0 where the model has no such thing. */
    uint8_t rope_scaling;   /* enum rope_scaling */
    float rope_factor;      /* context extended so many times */
    uint32_t rope_orig_ctx; /* context before it was extended */
    float
        rope_attn_factor; /* cosines and sines are multiplied by it; 0: by the method's own rule */
    float yarn_beta_fast,
        yarn_beta_slow; /* turns over rope_orig_ctx: above fast a dimension stays as it is */
    float rope_low_factor, rope_high_factor; /* llama3: low_freq_factor, high_freq_factor */
    uint32_t window;         /* tokens a position sees of the past, itself included; 0: all */
    uint32_t window_from;    /* the first layer with a window; those before it see all */
    uint32_t nope_every;     /* layers i with (i + 1) % nope_every == 0 are not rotated (SmolLM3) */
    uint32_t n_experts;      /* of a mixture; 0: one dense feed-forward */
    uint32_t n_experts_used; /* chosen for each token */
    uint32_t n_ff_expert;    /* feed-forward width of one expert */
    bool experts_renorm;     /* the chosen experts' shares are scaled to sum to 1 */
    uint8_t pooling;         /* enum pooling: an embedding model */
};

/* Rotary embeddings beyond the trained context. YARN: arXiv:2309.00071. LLAMA3 and LONGROPE (arXiv:2402.13753) as
 * in transformers' modeling_rope_utils. A pack keeps the per-dimension divisors of LLAMA3 and LONGROPE as tensors (rope_freqs.weight;
 * rope_factors_short.weight and rope_factors_long.weight, each [rope_dim / 2] F32), as GGUF files do. DYNAMIC is exact up to
 * rope_orig_ctx only: engines refuse a longer context. */
enum rope_scaling {
    ROPE_PLAIN = 0,
    ROPE_LINEAR = 1,
    ROPE_YARN = 2,
    ROPE_LONGROPE = 3,
    ROPE_LLAMA3 = 4,
    ROPE_DYNAMIC = 5,
};
/* How the hidden states of a text become one vector. Numbers as in GGUF (llama_pooling_type). */
enum pooling { POOLING_NONE = 0, POOLING_MEAN = 1, POOLING_LAST = 3 };

struct tokenizer_data {
    char model[32]; /* "gpt2": byte-level BPE */
    char pre[32];   /* "smollm" */
    uint32_t n_tokens;
    char **tokens; /* [n_tokens] owned, NUL-terminated UTF-8 as in the file (byte-level alphabet) */
    uint8_t *types; /* [n_tokens] enum token_type */
    uint32_t n_merges;
    char **merges;              /* [n_merges] owned, "left right" */
    int32_t bos, eos, unk, pad; /* ids, -1: none */
    bool add_bos, add_eos;
};

struct model_meta {
    char name[META_NAME_BYTES]; /* general.name, or the file's name */
    struct model_params params;
    struct tokenizer_data tok;
    char *chat_template; /* owned Jinja source; NULL: none */
};

void meta_init(struct model_meta *m);
void meta_fini(struct model_meta *m);
/* Append the canonical bytes. Fails only by the buffer's cap or memory. */
int meta_encode(const struct model_meta *m, struct buf *out, struct err *e);
/* Read and validate (ranges, counts against the real size, ids inside the vocabulary). m is fini'd
 * by the caller on success. */
int meta_decode(struct model_meta *m, const void *data, size_t n, struct err *e);
/* Refuse, by name, what no engine here can run (architecture, head counts, widths). */
int meta_check(const struct model_meta *m, struct err *e);
/* Longest prompt and answer when nobody names one: the model's own, at most 4,096, so that a long-context model starts on a
 * small machine. Engines and routers go by it. */
uint32_t meta_context_default(const struct model_params *p);
/* Of these, the architecture alone: its name decides what the other keys mean. Known: the names of MODEL_ARCHS. */
int meta_check_arch(const char *arch, struct err *e);
/* "llama" (Llama, SmolLM2, Mistral, Mixtral), "qwen2", "qwen3", "qwen3moe", "smollm3"; NULL ends the list. Names as in GGUF files. */
extern const char *const MODEL_ARCHS[];

/* What every reader of models holds to: ids inside the vocabulary, known token types, finite
 * numbers. */
int meta_validate(const struct model_meta *m, struct err *e);
/* UTF-8 without NUL, at most max bytes; `what` names it in the error. */
int meta_text_check(const void *text, size_t n, size_t max, const char *what, struct err *e);

#endif
