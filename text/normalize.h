/* normalize.h - the normalizers of a tokenizer, one step at a time, as the `tokenizers` library has them.
 *
 * Text is valid UTF-8 before and after. All take time linear in the text.
 */
#ifndef EXA_TEXT_NORMALIZE_H
#define EXA_TEXT_NORMALIZE_H

#include "base/buf.h"
#include "base/err.h"
#include "text/charsmap.h"
#include "text/pattern.h"

struct normalizer {
    uint8_t kind;  /* enum tok_step_kind, up to TOK_NMT */
    uint8_t flags; /* as in struct tok_step */
    const char *text;
    size_t n_text; /* TOK_PREPEND; TOK_REPLACE: the replacement */
    struct pattern pattern;
    struct charsmap charsmap;
};

/* Append what text[n] becomes to out. *head: how many bytes at the beginning come from the first character of the original text; 0
 * when that went away. run: see pattern.h. */
int normalize(const struct normalizer *s, struct pattern_run *run, const char *text, size_t n,
              struct buf *out, size_t *head, struct err *e);

/* Canonical (or compatibility) decomposition, ordered, and composed again when asked for. */
void normalize_form(const char *text, size_t n, bool compatible, bool compose, struct buf *out);

#endif
