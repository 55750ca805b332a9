/* pattern.h - what a step of a tokenizer splits at or replaces: a literal, a known expression, or any other.
 *
 * Immutable after creation. A pattern_run holds what matching one text needs; it belongs to one thread.
 */
#ifndef EXA_TEXT_PATTERN_H
#define EXA_TEXT_PATTERN_H

#include "text/pretok.h"
#include "text/regex.h"

struct pattern {
    const struct pretok_rules *rules; /* a known expression */
    struct regex *regex;              /* owned; another one */
    const char *literal;              /* not owned; else */
    size_t n_literal;
};

/* literal: text is no expression. text must live as long as the pattern. */
int pattern_init(struct pattern *p, const char *text, size_t n, bool literal, struct err *e);
void pattern_fini(struct pattern *p);

struct pattern_run {
    struct regex_run *regex; /* made when it is first needed */
    size_t text_bytes;       /* of the whole text: what the budget is counted by */
};
void pattern_run_fini(struct pattern_run *run);

/* The next match in text[n]: 1 and its ends, 0 for none, or an error. at starts as zeros. */
int pattern_next(const struct pattern *p, struct pattern_run *run, const char *text, size_t n,
                 struct regex_at *at, size_t *start, size_t *end, struct err *e);

#endif
