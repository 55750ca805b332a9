/* grammar_scan.c - see grammar_scan.h. */
#include "text/grammar_scan.h"

#include "text/utf8.h"

#include <stdio.h>
#include <string.h>

bool scan_skip(struct scan *s, const char *text)
{
    size_t n = strlen(text);
    if (s->n - s->at < n || memcmp(s->text + s->at, text, n) != 0)
        return false;
    s->at += n;
    return true;
}

uint32_t scan_char(struct scan *s)
{
    uint32_t cp;
    s->at += utf8_next(s->text + s->at, &cp);
    return cp;
}

uint32_t scan_hex(struct scan *s, int digits)
{
    uint32_t value = 0;
    for (int i = 0; i < digits; i++) {
        int c = scan_peek(s), low = c | 0x20;
        int digit = c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
        if (digit < 0) {
            scan_fail(s, ERR_FORMAT, "expected %d hexadecimal digits", digits);
            return UINT32_MAX;
        }
        value = value << 4 | (uint32_t)digit;
        s->at++;
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
        scan_fail(s, ERR_FORMAT, "U+%04X is no character", value);
        return UINT32_MAX;
    }
    return value;
}

bool scan_number(struct scan *s, uint32_t *value)
{
    uint64_t sum = 0;
    size_t start = s->at;
    for (int c; (c = scan_peek(s)) >= '0' && c <= '9'; s->at++) {
        sum = sum * 10 + (uint64_t)(c - '0');
        if (sum >= UINT32_MAX)
            sum = UINT32_MAX - 1;
    }
    *value = (uint32_t)sum;
    return s->at > start;
}

static void skip_blanks(struct scan *s)
{
    while (scan_peek(s) == ' ' || scan_peek(s) == '\t')
        s->at++;
}

bool scan_counts(struct scan *s, bool open, uint32_t *min, uint32_t *max)
{
    size_t start = s->at;
    if (!open) /* GBNF may have blanks here, regular expressions not */
        skip_blanks(s);
    bool first = scan_number(s, min), comma;
    if (!open)
        skip_blanks(s);
    comma = scan_skip(s, ",");
    if (!open)
        skip_blanks(s);
    *max = *min;
    if (comma && !scan_number(s, max))
        *max = IR_INF;
    if (!open)
        skip_blanks(s);
    if (!scan_skip(s, "}") || (!first && !(open && comma))) {
        s->at = start;
        return false;
    }
    if (!first)
        *min = 0;
    return true;
}

void *scan_fail(struct scan *s, int code, const char *fmt, ...)
{
    char text[256];
    size_t line = 1, start = 0;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (size_t i = 0; i < s->at && i < s->n; i++)
        if (s->text[i] == '\n') {
            line++;
            start = i + 1;
        }
    size_t column = 1 + utf8_length(s->text + start, s->at - start);
    return ir_fail(s->b, code, "%s, line %zu, column %zu: %s", s->what, line, column, text);
}

bool scan_enter(struct scan *s)
{
    if (++s->nesting > s->b->limits->max_nesting)
        scan_fail(s, ERR_LIMIT, "nested deeper than %u", s->b->limits->max_nesting);
    return !s->b->rc;
}

void scan_leave(struct scan *s)
{
    s->nesting--;
}

void range_push(struct ir_builder *b, struct range_vec *v, uint32_t lo, uint32_t hi)
{
    if (v->n == v->cap) {
        size_t cap = v->cap ? v->cap * 2 : 8;
        struct cp_range *more = ir_alloc(b, cap * sizeof *more);
        if (!more)
            return;
        if (v->n)
            memcpy(more, v->r, v->n * sizeof *more);
        v->r = more;
        v->cap = cap;
    }
    v->r[v->n++] = (struct cp_range){lo, hi};
}
