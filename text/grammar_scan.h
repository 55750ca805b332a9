/* grammar_scan.h - reading a grammar's source character by character, and faults that name their place. Inside of
 * text/grammar_*.c only. */
#ifndef EXA_TEXT_GRAMMAR_SCAN_H
#define EXA_TEXT_GRAMMAR_SCAN_H

#include "text/grammar_ir.h"

struct scan {
    struct ir_builder *b;
    const char *what; /* "grammar", "pattern": begins messages */
    const char *text; /* valid UTF-8 */
    size_t n, at;
    uint32_t nesting;
};

static inline int scan_peek(const struct scan *s) /* the next byte; -1 at the end */
{
    return s->at < s->n ? (unsigned char)s->text[s->at] : -1;
}
static inline int scan_ahead(const struct scan *s, size_t k)
{
    return s->n - s->at > k ? (unsigned char)s->text[s->at + k] : -1;
}
bool scan_skip(struct scan *s, const char *text); /* text is next: step over it */
uint32_t scan_char(struct scan *s);               /* one character; not at the end */
/* Exactly `digits` hexadecimal digits that are a code point (no surrogate); UINT32_MAX: failed. */
uint32_t scan_hex(struct scan *s, int digits);
/* Decimal digits; false: none. Values beyond UINT32_MAX - 1 stay there. */
bool scan_number(struct scan *s, uint32_t *value);
/* "{m}", "{m,}", "{m,n}" and, with `open`, "{,n}", after the brace; false: it is none (at is unchanged). */
bool scan_counts(struct scan *s, bool open, uint32_t *min, uint32_t *max);
/* Fails with `what`, line and column. Returns NULL. */
void *scan_fail(struct scan *s, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
bool scan_enter(struct scan *s); /* one deeper; false: too deep */
void scan_leave(struct scan *s);

/* A growing list of ranges for one character class. */
struct range_vec {
    struct cp_range *r;
    size_t n, cap;
};
void range_push(struct ir_builder *b, struct range_vec *v, uint32_t lo, uint32_t hi);

#endif
