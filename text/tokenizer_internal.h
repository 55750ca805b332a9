/* tokenizer_internal.h - what tokenizer.c (use) and tokenizer_build.c (creation) share. */
#ifndef EXA_TEXT_TOKENIZER_INTERNAL_H
#define EXA_TEXT_TOKENIZER_INTERNAL_H

#include "text/bpe.h"
#include "text/pretok.h"
#include "text/tokenizer.h"

enum {
    TOKENIZER_MAX_SPECIAL_BYTES = 512, /* bounds the look-ahead at each byte of a prompt */
    TOKENIZER_MAX_EOG = 32,
};

/* A trie over the texts of special tokens. Node 0 is the root; 0 also means "none". */
struct special_node {
    uint32_t child, sibling;
    int32_t id; /* -1: no token ends here */
    uint8_t byte;
};

struct token_text {
    uint32_t at, n; /* bytes in tokenizer.blob */
};

struct tokenizer {
    enum pretok pre;
    uint32_t n_tokens;
    struct token_text *texts; /* [n_tokens] raw bytes, not the byte-level alphabet */
    uint8_t *types;           /* [n_tokens] enum token_type */
    char *blob;
    size_t blob_bytes;
    uint32_t byte_id[256]; /* BPE_NONE: this byte has no token */
    struct bpe_table merges;
    struct special_node *special;
    uint32_t n_special, cap_special;
    uint32_t special_root[256]; /* first nodes by byte; 0: none */
    uint32_t eog[TOKENIZER_MAX_EOG];
    size_t n_eog;
    int32_t bos, eos;
    bool add_bos, add_eos;
};

#endif
