/* tokenizer.h - text bytes → token ids → text bytes: BPE (byte-level or SentencePiece's), unigram, WordPiece.
 *
 * A tokenizer is immutable after creation and may be used by several threads at once. The reference is the `tokenizers` library
 * of Hugging Face: the same ids, for any text. Character classes are pinned tables, not the C library's or PCRE2's. The way of a
 * text and how to add a kind: docs/internals/tokenizers.md.
 */
#ifndef EXA_TEXT_TOKENIZER_H
#define EXA_TEXT_TOKENIZER_H

#include "base/buf.h"
#include "base/err.h"
#include "model/meta.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;

/* ERR_FORMAT: unknown tokenizer model, pre-tokenizer or step (named), duplicate or broken tokens, merges or expressions. ERR_LIMIT:
 * larger than this can work with. data is not kept. */
int tokenizer_create(struct tokenizer **out, const struct tokenizer_data *data, struct err *e);
void tokenizer_destroy(struct tokenizer *t);
uint32_t tokenizer_vocab(const struct tokenizer *t);

struct token_vec {
    uint32_t *ids; /* owned */
    size_t n, cap;
};
void token_vec_fini(struct token_vec *v);
int token_vec_push(struct token_vec *v, uint32_t id); /* 0 or ERR_NOMEM */

enum { TOKENIZER_MAX_TEXT = 256 << 20 }; /* bytes in one call */

/* Append the ids of text[n], without what the model puts around a text. Added tokens in the text are recognised as the reference
 * does it. special: control tokens, too (prompts made by a template); otherwise those are ordinary text (what users write), and no
 * text makes one. max_tokens: ERR_LIMIT when more would come out (error has no count: the work stops). Invalid UTF-8: ERR_FORMAT
 * with the byte position. Linear time on hostile input. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, bool special,
                     size_t max_tokens, struct token_vec *out, struct err *e);

/* What stands before and behind a text by itself (bos; [CLS] and [SEP]): ids, borrowed. */
const uint32_t *tokenizer_prefix(const struct tokenizer *t, size_t *n);
const uint32_t *tokenizer_suffix(const struct tokenizer *t, size_t *n);

/* The raw bytes that one token adds to a text that has begun, wherever it stands: "▁the" is " the", "##ing" is "ing", "<0x0A>" is a
 * newline, half a character is its bytes. Grammar masks and answers (which go on behind a prompt) are made of them. *n may be 0.
 * Control tokens have no bytes unless `special`. NULL: id outside the vocabulary. */
const char *tokenizer_bytes(const struct tokenizer *t, uint32_t id, bool special, size_t *n);
/* An id that ends a generation (eos, end of turn, end of text). */
bool tokenizer_is_eog(const struct tokenizer *t, uint32_t id);
/* All of them: fills ids[max], returns how many there are. */
size_t tokenizer_eog_ids(const struct tokenizer *t, uint32_t *ids, size_t max);
int32_t tokenizer_bos(const struct tokenizer *t); /* -1: none */
int32_t tokenizer_eos(const struct tokenizer *t);

/* Incremental, UTF-8-safe detokenizing of one stream: bytes of an incomplete character are held back. An invalid sequence becomes
 * U+FFFD (as Python's errors="replace"). Fixed size, no allocation.
 *
 * detok_push takes bytes of tokenizer_bytes: text that goes on. detok_token takes ids of a text from its beginning on, where some
 * models write no space before the first word. */
struct detok {
    uint8_t held[4];
    uint8_t n_held;
    bool begun;
    uint32_t n_stripped; /* UINT32_MAX: the text has begun */
};
void detok_init(struct detok *d);
void detok_push(struct detok *d, const char *bytes, size_t n, struct buf *out);
/* An id outside the vocabulary is nothing. */
void detok_token(struct detok *d, const struct tokenizer *t, uint32_t id, bool special,
                 struct buf *out);
void detok_finish(struct detok *d, struct buf *out); /* what is still held comes out as U+FFFD */

#endif
