/* pretok.h - pre-tokenizers: cut text into the pieces inside which byte pairs may merge.
 * Hand-written scanners, no allocation.
 *
 * GPT-2's expression: 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * PRETOK_SMOLLM splits off every single \p{N} first, so its look-ahead ends at a number.
 */
#ifndef EXA_TEXT_PRETOK_H
#define EXA_TEXT_PRETOK_H

#include <stdbool.h>
#include <stddef.h>

enum pretok { PRETOK_GPT2, PRETOK_SMOLLM };

/* The pre-tokenizer of this name (GGUF tokenizer.ggml.pre); false: not known here. */
bool pretok_find(const char *name, enum pretok *out);
/* Bytes of the first piece of text[n], valid UTF-8, n > 0. */
size_t pretok_next(enum pretok kind, const char *text, size_t n);

#endif
