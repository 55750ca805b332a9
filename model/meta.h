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
    char arch[META_ARCH_BYTES]; /* "llama" */
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
};

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
/* Of these, the architecture alone: its name decides what the other keys mean. */
int meta_check_arch(const char *arch, struct err *e);

/* What every reader of models holds to: ids inside the vocabulary, known token types, finite
 * numbers. */
int meta_validate(const struct model_meta *m, struct err *e);
/* UTF-8 without NUL, at most max bytes; `what` names it in the error. */
int meta_text_check(const void *text, size_t n, size_t max, const char *what, struct err *e);

#endif
