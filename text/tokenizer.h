/* tokenizer.h - text bytes → token ids → text bytes. Byte-level BPE ("gpt2") with the
 * pre-tokenizer named by the model.
 *
 * A tokenizer is immutable after creation and may be used by several threads at once. Source:
 * GPT-2 byte-level BPE; pre-tokenizer `smollm` as described in docs (every \p{N} split off
 * first, then the GPT-2 expression); character classes are pinned tables
 * (text/unicode_tables.h), not the C library's or PCRE2's.
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

/* ERR_FORMAT: unknown tokenizer model or pre-tokenizer (named), duplicate or broken
 * tokens/merges. data is not kept. */
int tokenizer_create(struct tokenizer **out, const struct tokenizer_data *data, struct err *e);
void tokenizer_destroy(struct tokenizer *t);
uint32_t tokenizer_vocab(const struct tokenizer *t);

struct token_vec {
    uint32_t *ids; /* owned */
    size_t n, cap;
};
void token_vec_fini(struct token_vec *v);
int token_vec_push(struct token_vec *v, uint32_t id); /* 0 or ERR_NOMEM */

/* Append the ids of text[n]. special: control and user-defined tokens in the text are recognised
 * (prompts made by a template); otherwise they are ordinary text (what users write). max_tokens:
 * ERR_LIMIT when more would come out (error has no count: the work stops). Invalid UTF-8:
 * ERR_FORMAT with the byte position. Linear time on hostile input. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, bool special,
                     size_t max_tokens, struct token_vec *out, struct err *e);

/* The raw bytes of one token; *n may be 0. Control tokens have no bytes unless `special`. NULL:
 * id outside the vocabulary. */
const char *tokenizer_bytes(const struct tokenizer *t, uint32_t id, bool special, size_t *n);
/* An id that ends a generation (eos, end of turn, end of text). */
bool tokenizer_is_eog(const struct tokenizer *t, uint32_t id);
/* All of them: fills ids[max], returns how many there are. */
size_t tokenizer_eog_ids(const struct tokenizer *t, uint32_t *ids, size_t max);
int32_t tokenizer_bos(const struct tokenizer *t); /* -1: none */
int32_t tokenizer_eos(const struct tokenizer *t);

/* Incremental, UTF-8-safe detokenizing of one stream: bytes of an incomplete character are held
 * back. An invalid sequence becomes U+FFFD (as Python's errors="replace"). Fixed size, no
 * allocation. */
struct detok {
    uint8_t held[4];
    uint8_t n_held;
};
void detok_init(struct detok *d);
void detok_push(struct detok *d, const char *bytes, size_t n, struct buf *out);
void detok_finish(struct detok *d, struct buf *out); /* what is still held comes out as U+FFFD */

#endif
