/* tokenizer_internal.h - what the files of the tokenizer share. See docs/internals/tokenizers.md for the way of a text. */
#ifndef EXA_TEXT_TOKENIZER_INTERNAL_H
#define EXA_TEXT_TOKENIZER_INTERNAL_H

#include "text/added.h"
#include "text/bpe.h"
#include "text/normalize.h"
#include "text/pieces.h"
#include "text/tokenizer.h"
#include "text/trie.h"
#include "text/vocab_map.h"

enum {
    TOKENIZER_MAX_SPECIAL_BYTES = 512, /* bounds the look-ahead at each byte of a prompt */
    TOKENIZER_MAX_PIECE_BYTES = 512,   /* longest entry of a unigram or WordPiece vocabulary */
    TOKENIZER_MAX_EOG = 64,
};

enum tokenizer_kind { TOKENIZER_BPE, TOKENIZER_UNIGRAM, TOKENIZER_WORDPIECE };

struct token_text {
    uint32_t at, n; /* bytes in a blob */
};

struct tokenizer {
    enum tokenizer_kind kind;
    uint8_t flags; /* enum tok_model_flag */
    /* The pieces are raw bytes: the byte-level alphabet is a matter of files only. */
    bool raw_bytes;
    uint32_t n_tokens;
    uint8_t *types; /* [n_tokens] enum token_type */
    int32_t unk, bos, eos;

    /* What a text goes through. */
    uint32_t n_steps;
    struct tok_step *steps; /* [n_steps] owned copies: patterns and maps point into them */
    struct added_set added_plain, added_normalized;
    struct normalizer *normalizers; /* [n_normalizers] */
    size_t n_normalizers;
    struct piece_op *ops; /* [n_ops] */
    size_t n_ops;

    /* The model. */
    char *names; /* texts as in the file, one after the other */
    struct token_text *name_at;
    struct vocab_map vocab; /* what the model may produce: names, or raw bytes */
    uint32_t byte_id[256];  /* VOCAB_NONE: this byte has no token */
    uint8_t *whole;         /* [n_tokens] bytes that are this token always become it */
    uint32_t longest;       /* bytes of the longest entry of vocab */
    struct bpe_table merges;
    uint32_t *rank_id; /* by rank: what the merge makes */
    bool one_rule;     /* no token is made by two merges */
    char word_start[8], word_end[32];
    struct trie trie;    /* unigram, WordPiece */
    uint32_t inner_node; /* WordPiece: where "##" leads */
    double *scores, unk_score;
    uint32_t max_word_chars;

    /* Back to text. */
    char *blob;
    size_t blob_bytes;
    struct token_text *texts; /* [n_tokens] bytes anywhere in a text */
    struct token_text *first; /* [n_tokens] at its beginning; NULL: the same */
    char strip[8];            /* taken from the beginning of a text, strip_max times at most */
    uint32_t strip_max;

    uint32_t n_prefix, n_suffix, prefix[TOK_MAX_AFFIX], suffix[TOK_MAX_AFFIX];
    uint32_t eog[TOKENIZER_MAX_EOG];
    size_t n_eog;
};

/* Ids in the making. */
struct encoder {
    const struct tokenizer *t;
    struct token_vec *out;
    size_t limit; /* out->n may not pass this */
    size_t max_tokens;
    struct err *e;
    bool special;
    struct pieces pieces;
    struct bpe_scratch scratch;
    struct unigram_node *nodes; /* [cap_nodes] scratch of unigram_encode */
    size_t cap_nodes;
};
struct unigram_node {
    double score;
    uint32_t from, id; /* from: UINT32_MAX where no path ends */
};

int encoder_emit(struct encoder *en, uint32_t id);
/* The ids of one piece. */
int bpe_encode(struct encoder *en, const char *p, size_t n);
int unigram_encode(struct encoder *en, const char *p, size_t n);
int wordpiece_encode(struct encoder *en, const char *p, size_t n);
/* The tokens of p[n] byte by byte; false: one of the bytes has none (nothing was put out). */
bool encode_bytes(struct encoder *en, const char *p, size_t n, int *rc);

/* Parts of tokenizer_create. */
int tokenizer_build_steps(struct tokenizer *t, const struct tokenizer_data *d, struct err *e);
int tokenizer_build_names(struct tokenizer *t, const struct tokenizer_data *d,
                          struct vocab_map *names, struct err *e);
int tokenizer_build_texts(struct tokenizer *t, const struct tokenizer_data *d, struct err *e);
/* The text that a token with ADDED_NORMALIZED is sought by, and writes. */
int tokenizer_normalize_name(const struct tokenizer *t, uint32_t id, struct buf *text,
                             struct buf *scratch, struct err *e);
int tokenizer_build_model(struct tokenizer *t, const struct tokenizer_data *d,
                          const struct vocab_map *names, struct err *e);
int tokenizer_build_added(struct tokenizer *t, const struct tokenizer_data *d, struct err *e);
/* Is the id one that the model makes from ordinary text? Never a control token: what users write must not become one. */
bool tokenizer_in_vocab(const struct tokenizer_data *d, uint32_t id);
void tokenizer_free_steps(struct tokenizer *t);

/* The byte-level alphabet (GPT-2): printable Latin-1 stands for itself, the other bytes follow from U+0100. */
uint32_t alphabet_letter(uint8_t byte);
/* Bytes of text[n] (valid UTF-8) into out[n]; false: a letter is not of the alphabet. */
bool alphabet_decode(const char *text, size_t n, char *out, size_t *n_out);

#endif
