/* token_table.h - the bytes of every token of a vocabulary, arranged so that whole groups of tokens can be judged together.
 *
 * Built once a model, immutable after, usable from several threads. Tokens are in two byte tries, each flattened in
 * depth-first order: `plain` has the tokens that consist of whole characters which a JSON string holds as they are (no
 * quote, backslash, control character, no cut character), `rest` has all others. In states where any plain character leads
 * to the same next state, the first trie need not be walked at all: `plain_upto` answers by the number of characters.
 */
#ifndef EXA_TEXT_TOKEN_TABLE_H
#define EXA_TEXT_TOKEN_TABLE_H

#include "base/err.h"
#include "text/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TOKEN_TABLE_MAX_VOCAB = 1 << 20,
    TOKEN_TABLE_MAX_TOKEN_BYTES = 1024, /* longer tokens are treated as if they had no bytes */
    TOKEN_TABLE_PLAIN_STEPS =
        24, /* bit sets by number of characters: 1 … this; few tokens are longer */
};

struct token_trie_node {
    uint32_t skip;  /* index of the first node that is not below this one */
    uint32_t first; /* into trie.ids: the tokens that end here */
    uint16_t n;
    uint16_t depth; /* 1: a first byte */
    uint8_t byte;
    uint8_t max_chars; /* plain: characters of the longest token here or below; 255: that or more */
};
struct token_trie {
    struct token_trie_node *nodes; /* owned, as ids */
    uint32_t *ids;
    uint32_t n_nodes, n_ids;
};

struct token_table {
    uint32_t n_vocab, n_words; /* n_words: of 32 bits in a mask */
    uint32_t *offsets;         /* [n_vocab + 1] into bytes; owned, as all below */
    uint8_t *bytes;
    struct token_trie plain, rest;
    uint32_t
        *plain_upto;    /* [TOKEN_TABLE_PLAIN_STEPS + 1][n_words]: plain tokens of up to k chars */
    uint32_t *long_ids; /* plain tokens of more, by number of characters */
    uint32_t *long_chars;
    uint32_t n_long;
    uint32_t plain_longest; /* characters */
    uint32_t *eog_ids;
    uint32_t n_eog;
    uint32_t max_depth; /* bytes of the longest token */
};

/* The bytes of token `id` (*n may be 0: not to be generated under a grammar). */
typedef const char *token_bytes_fn(const void *ctx, uint32_t id, size_t *n);

/* eog_ids[n_eog]: ids that end a generation; they count as having no bytes. ERR_LIMIT: vocabulary too large. */
int token_table_create(struct token_table **out, uint32_t n_vocab, token_bytes_fn *bytes,
                       const void *ctx, const uint32_t *eog_ids, size_t n_eog, struct err *e);
/* From plain arrays: the bytes of token i are bytes[offsets[i]] … bytes[offsets[i + 1] - 1]. ERR_FORMAT: offsets fall. */
int token_table_from_arrays(struct token_table **out, uint32_t n_vocab, const uint32_t *offsets,
                            const void *bytes, const uint32_t *eog_ids, size_t n_eog,
                            struct err *e);
int token_table_from_tokenizer(struct token_table **out, const struct tokenizer *tok,
                               struct err *e);
void token_table_destroy(struct token_table *t);
size_t token_table_bytes(const struct token_table *t); /* memory it holds */

static inline const uint8_t *token_table_get(const struct token_table *t, uint32_t id, size_t *n)
{
    *n = t->offsets[id + 1] - t->offsets[id];
    return t->bytes + t->offsets[id];
}
bool token_table_is_eog(const struct token_table *t, uint32_t id);

#endif
