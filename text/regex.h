/* regex.h - expressions of tokenizer files, run by PCRE2 as Oniguruma (the reference's engine) would.
 *
 * Classes are written out from pinned tables before PCRE2 sees them (\p{L}, \s, \w …), so its own version of Unicode does not
 * matter; what means something else there is refused by name. Matching is paid step by step from a budget that grows with the
 * text, so that no expression takes more than time linear in it. A regex is immutable; a run belongs to one thread.
 */
#ifndef EXA_TEXT_REGEX_H
#define EXA_TEXT_REGEX_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct regex;
struct regex_run; /* scratch memory and the budget of one text */

/* ERR_FORMAT: not an expression, or something in it that is not supported (named). */
int regex_create(struct regex **out, const char *pattern, size_t n, struct err *e);
void regex_destroy(struct regex *r);
/* The expression as PCRE2 gets it; ERR_FORMAT as above. */
int regex_translate(const char *pattern, size_t n, struct buf *out, struct err *e);

int regex_run_create(struct regex_run **out, size_t text_bytes, struct err *e);
void regex_run_destroy(struct regex_run *run);

struct regex_at { /* where an iteration stands; starts as zeros */
    size_t from, last_end;
    bool matched;
};
/* The next match in text[n] (valid UTF-8): 1 and its ends, 0 for none, ERR_LIMIT when the budget is spent. An empty match does not
 * touch the match before it. */
int regex_next(const struct regex *r, struct regex_run *run, const char *text, size_t n,
               struct regex_at *at, size_t *start, size_t *end, struct err *e);

#endif
