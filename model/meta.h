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
 * rope_factors_short.weight and rope_factors_long.weight, each [rope_dim / 2] F32), as GGUF files do. (Those tell of LLAMA3
 * by the tensor alone: rope_factor is then its largest divisor, rope_orig_ctx is 0.) DYNAMIC is exact up to
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

/* How text becomes tokens and back. One form for GGUF and Hugging Face files: the vocabulary, and steps that name what the
 * `tokenizers` library does (normalizers, pre-tokenizers, decoders), each with its options. docs/internals/tokenizers.md. */
enum tok_step_kind {
    /* normalizers: section of text → text */
    TOK_NFC = 1,
    TOK_NFD = 2,
    TOK_NFKC = 3,
    TOK_NFKD = 4,
    TOK_LOWERCASE = 5,
    TOK_STRIP_ACCENTS = 6,
    TOK_STRIP = 7,     /* flags: TOK_LEFT, TOK_RIGHT */
    TOK_REPLACE = 8,   /* text → to; flags: TOK_REGEX */
    TOK_PREPEND = 9,   /* text */
    TOK_BERT = 10,     /* flags: TOK_BERT_… */
    TOK_CHARSMAP = 11, /* text: SentencePiece's precompiled_charsmap, any bytes */
    TOK_NMT = 12,
    /* pre-tokenizers: pieces → pieces */
    TOK_BYTE_LEVEL = 32, /* flags: TOK_PREFIX_SPACE, TOK_REGEX (GPT-2's expression) */
    TOK_METASPACE = 33,  /* text: one character; arg: enum tok_prepend; flags: TOK_SPLIT */
    TOK_SPLIT_AT = 34,   /* text: pattern; arg: enum tok_behavior; flags: TOK_REGEX, TOK_INVERT */
    TOK_DIGITS = 35,     /* flags: TOK_SPLIT: each one alone */
    TOK_WHITESPACE = 36, /* \w+|[^\w\s]+ */
    TOK_WHITESPACE_SPLIT = 37,
    TOK_PUNCTUATION = 38, /* arg: enum tok_behavior */
    TOK_BERT_SPLIT = 39,
    /* decoders: tokens → text */
    TOK_DEC_BYTE_LEVEL = 64,
    TOK_DEC_METASPACE = 65, /* text, arg as TOK_METASPACE */
    TOK_DEC_BYTE_FALLBACK = 66,
    TOK_DEC_FUSE = 67,
    TOK_DEC_STRIP = 68,     /* text: one character; arg: how many at most at the start */
    TOK_DEC_REPLACE = 69,   /* text → to */
    TOK_DEC_WORDPIECE = 70, /* text: prefix; flags: TOK_CLEANUP */
    TOK_DEC_JOIN = 71,      /* a space between tokens */
};
enum tok_step_flag {
    TOK_LEFT = 1,
    TOK_RIGHT = 2,
    TOK_REGEX = 1,
    TOK_INVERT = 2,
    TOK_PREFIX_SPACE = 2,
    TOK_SPLIT = 1,
    TOK_CLEANUP = 1,
    TOK_BERT_CLEAN = 1,
    TOK_BERT_CHINESE = 2,
    TOK_BERT_ACCENTS = 4,
    TOK_BERT_LOWERCASE = 8,
};
enum tok_prepend { TOK_PREPEND_NEVER, TOK_PREPEND_FIRST, TOK_PREPEND_ALWAYS };
enum tok_behavior {
    TOK_REMOVED,
    TOK_ISOLATED,
    TOK_MERGED_PREVIOUS,
    TOK_MERGED_NEXT,
    TOK_CONTIGUOUS
};
struct tok_step {
    uint8_t kind;  /* enum tok_step_kind */
    uint8_t flags; /* enum tok_step_flag */
    uint32_t arg;
    uint32_t n_text, n_to;
    char *text, *to; /* owned, NUL-terminated after n bytes; NULL: none */
};

/* An added token: found in the text before anything else is done with it. */
enum added_flag {
    ADDED_LSTRIP = 1,      /* takes the white space before it */
    ADDED_RSTRIP = 2,      /* and behind it */
    ADDED_SINGLE_WORD = 4, /* not inside a word */
    ADDED_NORMALIZED = 8,  /* sought in normalised text */
    ADDED_IN_VOCAB = 16,   /* the model's own vocabulary has it, too */
};
struct added_token {
    uint32_t id;
    uint8_t flags;
};

enum tok_model_flag { TOK_IGNORE_MERGES = 1, TOK_BYTE_FALLBACK = 2, TOK_FUSE_UNK = 4 };

enum {
    TOK_MAX_STEPS = 64,
    TOK_MAX_AFFIX = 4, /* tokens put before or behind a text */
    TOK_MAX_EOG = 16,
    TOK_STEP_BYTES = 4 << 20, /* longest text of a step (a charsmap) */
};

struct tokenizer_data {
    /* "gpt2": byte-level BPE with the pre-tokenizer `pre`; "llama": BPE ranked by scores; "bpe": by merges; "unigram" ("t5");
     * "wordpiece" ("bert") */
    char model[32];
    char pre[32]; /* "smollm"; of "gpt2" only */
    uint32_t n_tokens;
    char **tokens; /* [n_tokens] owned, NUL-terminated UTF-8 as in the file (byte-level alphabet) */
    uint8_t *types; /* [n_tokens] enum token_type */
    uint32_t n_merges;
    char **merges;              /* [n_merges] owned, "left right" */
    int32_t bos, eos, unk, pad; /* ids, -1: none */
    bool add_bos, add_eos;

    uint8_t flags;      /* enum tok_model_flag */
    double *scores;     /* [n_tokens] owned; NULL: none. Log probabilities, or ranks of "llama" */
    char word_start[8]; /* continuing_subword_prefix: "##" of WordPiece */
    char word_end[32];  /* end_of_word_suffix: "</w>" */
    uint32_t max_word_chars; /* WordPiece: longer words are unknown */
    uint32_t n_steps;
    struct tok_step *steps;    /* [n_steps] owned, in order of kinds */
    uint32_t n_added;          /* 0: control, unknown and user-defined tokens, without flags */
    struct added_token *added; /* [n_added] owned */
    /* What is put around a text beside bos and eos (add_bos, add_eos), ids. */
    uint32_t n_prefix, n_suffix;
    uint32_t prefix[TOK_MAX_AFFIX], suffix[TOK_MAX_AFFIX];
    uint32_t n_eog; /* ids that end a generation besides eos and well-known names */
    uint32_t eog[TOK_MAX_EOG];
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
