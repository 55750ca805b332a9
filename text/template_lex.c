/* template_lex.c - template source → tokens, with Jinja's rules for white space around tags
 * (trim_blocks and lstrip_blocks on). */
#include "text/template_internal.h"

#include "text/unicode.h"
#include "text/utf8.h"

#include <stdlib.h>

struct lexer {
    const char *s;
    size_t n, at;
    int line;
    bool line_starting; /* nothing but consumed tags since the last newline */
    struct arena *arena;
    struct tokens *out;
    struct err *e;
};

static int lex_error(struct lexer *lx, const char *what)
{
    return err_set(lx->e, ERR_FORMAT, "chat template line %d: %s", lx->line, what);
}

static int emit(struct lexer *lx, struct token t)
{
    if (lx->out->n == lx->out->cap) {
        size_t cap = lx->out->cap ? lx->out->cap * 2 : 256;
        struct token *items = realloc(lx->out->items, cap * sizeof *items);
        if (!items)
            return err_set(lx->e, ERR_NOMEM, "chat template: out of memory");
        lx->out->items = items;
        lx->out->cap = cap;
    }
    t.line = lx->line;
    lx->out->items[lx->out->n++] = t;
    return 0;
}

static void advance(struct lexer *lx, size_t to)
{
    for (; lx->at < to; lx->at++)
        lx->line += lx->s[lx->at] == '\n';
}

/* Bytes of the white space character at s[i]; 0: none. */
static size_t space_at(const char *s, size_t n, size_t i)
{
    if (i >= n)
        return 0;
    uint32_t cp;
    size_t len = utf8_next(s + i, &cp);
    return unicode_is_python_space(cp) ? len : 0;
}

static size_t skip_spaces(const struct lexer *lx, size_t i)
{
    size_t len;
    while ((len = space_at(lx->s, lx->n, i)))
        i += len;
    return i;
}

/* Where the text [from, to) ends once trailing white space is dropped, but not below `from`. */
static size_t trim_back(const char *s, size_t from, size_t to)
{
    size_t end = to;
    while (end > from) {
        size_t start = end - 1;
        while (start > from && ((unsigned char)s[start] & 0xC0) == 0x80)
            start--;
        if (!space_at(s, to, start))
            break;
        end = start;
    }
    return end;
}

/* lstrip_blocks: white space alone between the start of the line and the tag goes. */
static size_t strip_line(const struct lexer *lx, size_t from, size_t to)
{
    size_t start = to;
    while (start > from && lx->s[start - 1] != '\n')
        start--;
    if (start == from && !lx->line_starting)
        return to;
    return trim_back(lx->s, start, to) == start ? start : to;
}

/* Text before a tag at `tag`, whose first character after the opening two is a sign or not. */
static int emit_data(struct lexer *lx, size_t tag, bool is_variable)
{
    size_t from = lx->at, to = tag;
    char sign = tag + 2 < lx->n ? lx->s[tag + 2] : 0;
    if (sign == '-')
        to = trim_back(lx->s, from, tag);
    else if (sign != '+' && !is_variable)
        to = strip_line(lx, from, tag);
    int rc = 0;
    if (to > from)
        rc = emit(lx, (struct token){.kind = TOK_DATA, .text = {lx->s + from, to - from}});
    advance(lx, tag);
    return rc;
}

/* Past the end mark of two characters at `at` (maybe with a sign before it); *ok false: no end
 * mark here. */
static size_t after_end(const struct lexer *lx, size_t at, char first, bool trim_newline, bool *ok)
{
    size_t i = at;
    char sign = 0;
    if (i < lx->n && (lx->s[i] == '-' || (trim_newline && lx->s[i] == '+')))
        sign = lx->s[i++];
    *ok = i + 1 < lx->n && lx->s[i] == first && lx->s[i + 1] == '}';
    if (!*ok)
        return at;
    i += 2;
    if (sign == '-')
        return skip_spaces(lx, i);
    if (trim_newline && sign != '+' && i < lx->n && lx->s[i] == '\n')
        i++;
    return i;
}

static void finish_tag(struct lexer *lx, size_t end)
{
    advance(lx, end);
    lx->line_starting = lx->s[end - 1] == '\n';
}

static int lex_comment(struct lexer *lx)
{
    size_t first = lx->at + 2;
    first += first < lx->n && (lx->s[first] == '-' || lx->s[first] == '+');
    for (size_t i = first; i + 1 < lx->n; i++) {
        bool ok;
        size_t end = after_end(lx, i, '#', true, &ok);
        if (ok) {
            finish_tag(lx, end);
            return 0;
        }
    }
    if (first < lx->n)
        return lex_error(lx, "a comment has no end (#})");
    advance(lx, first);
    return 0;
}

/* "{% raw %}" at lx->at? Its end in *end. */
static bool raw_begin(const struct lexer *lx, size_t *end)
{
    size_t i = lx->at + 2;
    if (i < lx->n && (lx->s[i] == '-' || lx->s[i] == '+'))
        i++;
    i = skip_spaces(lx, i);
    if (lx->n - i < 3 || memcmp(lx->s + i, "raw", 3) != 0)
        return false;
    bool ok;
    i = skip_spaces(lx, i + 3);
    *end = after_end(lx, i, '%', false, &ok);
    return ok;
}

static bool raw_end(const struct lexer *lx, size_t at, size_t *end)
{
    size_t i = at + 2;
    if (i < lx->n && (lx->s[i] == '-' || lx->s[i] == '+'))
        i++;
    i = skip_spaces(lx, i);
    if (lx->n - i < 6 || memcmp(lx->s + i, "endraw", 6) != 0)
        return false;
    bool ok;
    i = skip_spaces(lx, i + 6);
    *end = after_end(lx, i, '%', true, &ok);
    return ok;
}

static int lex_raw(struct lexer *lx, size_t begin_end)
{
    finish_tag(lx, begin_end);
    if (lx->at == lx->n) /* Jinja does not miss the end of a block without a text */
        return 0;
    for (size_t i = lx->at; i + 1 < lx->n; i++) {
        size_t end;
        if (lx->s[i] != '{' || lx->s[i + 1] != '%' || !raw_end(lx, i, &end))
            continue;
        int rc = emit_data(lx, i, false);
        if (rc == 0)
            finish_tag(lx, end);
        return rc;
    }
    return lex_error(lx, "a raw block has no end (endraw)");
}

/* ---- inside tags ---- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c) ||
           (unsigned char)c >= 0x80;
}

static int hex_value(char c)
{
    if (is_digit(c))
        return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Digits of an escape: up to `max` of base 8, or exactly `max` of base 16. Returns how many; *cp
 * is their value. */
static size_t escape_digits(const char *s, size_t n, unsigned base, size_t max, uint32_t *cp)
{
    *cp = 0;
    size_t i = 0;
    for (; i < max && i < n; i++) {
        int v = hex_value(s[i]);
        if (v < 0 || (unsigned)v >= base)
            break;
        *cp = *cp * base + (uint32_t)v;
    }
    return i;
}

/* One escape after a backslash: bytes used, its text in out; 0: malformed. */
static size_t unescape_one(const char *s, size_t n, char out[4], size_t *n_out)
{
    static const char FROM[] = "\\'\"abfnrtv", TO[] = "\\'\"\a\b\f\n\r\t\v";
    const char *known = memchr(FROM, s[0], sizeof FROM - 1);
    uint32_t cp;
    *n_out = 0;
    if (known) {
        out[0] = TO[known - FROM];
        *n_out = 1;
        return 1;
    }
    if (s[0] == '\n') /* a continued line */
        return 1;
    if (s[0] >= '0' && s[0] <= '7') {
        size_t used = escape_digits(s, n, 8, 3, &cp);
        *n_out = utf8_encode(cp, out);
        return used;
    }
    size_t want = s[0] == 'x' ? 2 : s[0] == 'u' ? 4 : s[0] == 'U' ? 8 : 0;
    if (!want) { /* Python keeps unknown escapes as they are */
        out[0] = '\\';
        *n_out = 1;
        return SIZE_MAX;
    }
    if (escape_digits(s + 1, n - 1, 16, want, &cp) != want || cp > 0x10FFFF ||
        (cp >= 0xD800 && cp < 0xE000))
        return 0;
    *n_out = utf8_encode(cp, out);
    return want + 1;
}

static int unescape(struct lexer *lx, struct str raw, struct str *out)
{
    char *p = arena_alloc(lx->arena, raw.n + 4);
    if (!p)
        return err_set(lx->e, ERR_LIMIT, "chat template: too much memory");
    size_t n = 0;
    for (size_t i = 0; i < raw.n;) {
        if (raw.p[i] != '\\') {
            p[n++] = raw.p[i++];
            continue;
        }
        char text[4];
        size_t len;
        size_t used = unescape_one(raw.p + i + 1, raw.n - i - 1, text, &len);
        if (used == 0)
            return lex_error(lx, "a string has a malformed escape");
        memcpy(p + n, text, len);
        n += len;
        i += used == SIZE_MAX ? 1 : used + 1;
    }
    *out = (struct str){p, n};
    return 0;
}

static int lex_string(struct lexer *lx)
{
    char quote = lx->s[lx->at];
    size_t from = lx->at + 1, i = from;
    bool escapes = false;
    while (i < lx->n && lx->s[i] != quote) {
        if (lx->s[i] == '\\') {
            escapes = true;
            i++;
        }
        i++;
    }
    if (i >= lx->n)
        return lex_error(lx, "a string has no end");
    struct token t = {.kind = TOK_STRING, .text = {lx->s + from, i - from}};
    int rc = escapes ? unescape(lx, t.text, &t.text) : 0;
    if (rc == 0)
        rc = emit(lx, t);
    advance(lx, i + 1);
    return rc;
}

/* Copy the digits of [from, to) without underscores. */
static size_t plain_digits(const char *s, size_t n, char *out, size_t cap)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++)
        if (s[i] != '_' && len + 1 < cap)
            out[len++] = s[i];
    out[len] = 0;
    return len;
}

static size_t digits_end(const struct lexer *lx, size_t i)
{
    while (i < lx->n &&
           (is_digit(lx->s[i]) || (lx->s[i] == '_' && i + 1 < lx->n && is_digit(lx->s[i + 1]))))
        i++;
    return i;
}

static int lex_int(struct lexer *lx, size_t from, size_t to)
{
    struct token t = {.kind = TOK_INT, .text = {lx->s + from, to - from}};
    for (size_t i = from; i < to; i++) {
        if (lx->s[i] == '_')
            continue;
        if (__builtin_mul_overflow(t.i, 10, &t.i) ||
            __builtin_add_overflow(t.i, lx->s[i] - '0', &t.i))
            return err_set(lx->e, ERR_LIMIT, "chat template line %d: a number is too large",
                           lx->line);
    }
    int rc = emit(lx, t);
    advance(lx, to);
    return rc;
}

static int lex_radix(struct lexer *lx, int base)
{
    struct token t = {.kind = TOK_INT};
    size_t from = lx->at + 2, i = from;
    for (; i < lx->n; i++) {
        int v = lx->s[i] == '_' ? 0 : hex_value(lx->s[i]);
        if (v < 0 || v >= base)
            break;
        if (lx->s[i] == '_')
            continue;
        if (__builtin_mul_overflow(t.i, base, &t.i) || __builtin_add_overflow(t.i, v, &t.i))
            return err_set(lx->e, ERR_LIMIT, "chat template line %d: a number is too large",
                           lx->line);
    }
    if (i == from)
        return lex_error(lx, "a number has no digits");
    t.text = (struct str){lx->s + lx->at, i - lx->at};
    int rc = emit(lx, t);
    advance(lx, i);
    return rc;
}

static int lex_number(struct lexer *lx)
{
    const char *s = lx->s;
    size_t from = lx->at;
    char kind = from + 1 < lx->n ? (char)(s[from + 1] | 32) : 0;
    if (s[from] == '0' && (kind == 'x' || kind == 'o' || kind == 'b'))
        return lex_radix(lx, kind == 'x' ? 16 : kind == 'o' ? 8 : 2);
    size_t to = digits_end(lx, from);
    size_t int_end = to;
    bool after_dot = from > 0 && s[from - 1] == '.'; /* foo.0.1 is two subscripts */
    if (!after_dot && to + 1 < lx->n && s[to] == '.' && is_digit(s[to + 1]))
        to = digits_end(lx, to + 1);
    if (!after_dot && to < lx->n && (s[to] | 32) == 'e') {
        size_t exp = to + 1;
        if (exp < lx->n && (s[exp] == '+' || s[exp] == '-'))
            exp++;
        if (exp < lx->n && is_digit(s[exp]))
            to = digits_end(lx, exp);
    }
    if (to == int_end)
        return lex_int(lx, from, to);
    char text[128];
    if (to - from >= sizeof text)
        return lex_error(lx, "a number has too many digits");
    plain_digits(s + from, to - from, text, sizeof text);
    struct token t = {.kind = TOK_FLOAT, .text = {s + from, to - from}, .f = strtod(text, NULL)};
    int rc = emit(lx, t);
    advance(lx, to);
    return rc;
}

static int operator_at(const char *s, size_t n)
{
    static const char TWO[][3] = {"==", "!=", ">=", "<=", "//", "**"};
    for (size_t i = 0; n >= 2 && i < sizeof TWO / sizeof TWO[0]; i++)
        if (s[0] == TWO[i][0] && s[1] == TWO[i][1])
            return OP2(s[0], s[1]);
    return s[0] && strchr("+-/*%~[](){}<>=.:|,;", s[0]) ? s[0] : 0;
}

enum { LEX_MAX_OPEN = 256, LEX_MAX_NAME = 256 };

static int lex_operator(struct lexer *lx, char *open, size_t *n_open)
{
    int op = operator_at(lx->s + lx->at, lx->n - lx->at);
    if (!op)
        return lex_error(lx, "unexpected character in a tag");
    if (op == '(' || op == '[' || op == '{') {
        if (*n_open == LEX_MAX_OPEN)
            return lex_error(lx, "too many open brackets");
        open[(*n_open)++] = op == '(' ? ')' : op == '[' ? ']' : '}';
    } else if (op == ')' || op == ']' || op == '}') {
        if (*n_open == 0 || open[--(*n_open)] != op)
            return lex_error(lx, "a closing bracket does not match");
    }
    size_t len = op > 255 ? 2 : 1;
    int rc = emit(lx, (struct token){.kind = TOK_OP, .op = op, .text = {lx->s + lx->at, len}});
    advance(lx, lx->at + len);
    return rc;
}

static int lex_name(struct lexer *lx)
{
    size_t i = lx->at;
    while (i < lx->n && is_name_char(lx->s[i]))
        i++;
    if (i - lx->at > LEX_MAX_NAME)
        return lex_error(lx, "a name is too long");
    int rc = emit(lx, (struct token){.kind = TOK_NAME, .text = {lx->s + lx->at, i - lx->at}});
    advance(lx, i);
    return rc;
}

/* Everything up to the end of a variable or block tag. */
static int lex_tag(struct lexer *lx, bool is_variable)
{
    char open[LEX_MAX_OPEN];
    size_t n_open = 0;
    int rc = emit(lx, (struct token){.kind = is_variable ? TOK_VAR_BEGIN : TOK_BLOCK_BEGIN});
    advance(lx, lx->at + 2);
    if (lx->at < lx->n && (lx->s[lx->at] == '-' || lx->s[lx->at] == '+'))
        advance(lx, lx->at + 1);
    while (rc == 0) {
        advance(lx, skip_spaces(lx, lx->at));
        if (lx->at >= lx->n)
            return lex_error(lx, is_variable ? "a variable tag has no end (}})"
                                             : "a block tag has no end (%})");
        bool ok = false;
        size_t end = lx->at;
        if (n_open == 0)
            end = after_end(lx, lx->at, is_variable ? '}' : '%', !is_variable, &ok);
        if (ok) {
            rc = emit(lx, (struct token){.kind = is_variable ? TOK_VAR_END : TOK_BLOCK_END});
            finish_tag(lx, end);
            return rc;
        }
        char c = lx->s[lx->at];
        if (c == '"' || c == '\'')
            rc = lex_string(lx);
        else if (is_digit(c))
            rc = lex_number(lx);
        else if (is_name_char(c))
            rc = lex_name(lx);
        else
            rc = lex_operator(lx, open, &n_open);
    }
    return rc;
}

static size_t find_tag(const struct lexer *lx)
{
    for (size_t i = lx->at; i + 1 < lx->n; i++)
        if (lx->s[i] == '{' && (lx->s[i + 1] == '{' || lx->s[i + 1] == '%' || lx->s[i + 1] == '#'))
            return i;
    return lx->n;
}

int template_lex(struct str source, struct arena *arena, struct tokens *out, struct err *e)
{
    struct lexer lx = {.s = source.p,
                       .n = source.n,
                       .line = 1,
                       .line_starting = true,
                       .arena = arena,
                       .out = out,
                       .e = e};
    int rc = 0;
    while (rc == 0 && lx.at < lx.n) {
        size_t tag = find_tag(&lx);
        if (tag == lx.n) {
            rc = emit(&lx, (struct token){.kind = TOK_DATA, .text = {lx.s + lx.at, tag - lx.at}});
            advance(&lx, tag);
            break;
        }
        rc = emit_data(&lx, tag, lx.s[tag + 1] == '{');
        if (rc)
            break;
        size_t raw;
        if (lx.s[tag + 1] == '#')
            rc = lex_comment(&lx);
        else if (lx.s[tag + 1] == '%' && raw_begin(&lx, &raw))
            rc = lex_raw(&lx, raw);
        else
            rc = lex_tag(&lx, lx.s[tag + 1] == '{');
    }
    return rc ? rc : emit(&lx, (struct token){.kind = TOK_END});
}
