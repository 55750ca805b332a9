/* template_token.c - what stands inside tags: names, numbers, strings, operators. */
#include "text/template_lex.h"

#include "text/utf8.h"

#include <stdlib.h>

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
            return lexer_error(lx, "a string has a malformed escape");
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
        return lexer_error(lx, "a string has no end");
    struct token t = {.kind = TOK_STRING, .text = {lx->s + from, i - from}};
    int rc = escapes ? unescape(lx, t.text, &t.text) : 0;
    if (rc == 0)
        rc = lexer_emit(lx, t);
    lexer_advance(lx, i + 1);
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
    int rc = lexer_emit(lx, t);
    lexer_advance(lx, to);
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
        return lexer_error(lx, "a number has no digits");
    t.text = (struct str){lx->s + lx->at, i - lx->at};
    int rc = lexer_emit(lx, t);
    lexer_advance(lx, i);
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
        return lexer_error(lx, "a number has too many digits");
    plain_digits(s + from, to - from, text, sizeof text);
    struct token t = {.kind = TOK_FLOAT, .text = {s + from, to - from}, .f = strtod(text, NULL)};
    int rc = lexer_emit(lx, t);
    lexer_advance(lx, to);
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

static int lex_operator(struct lexer *lx, char *open, size_t *n_open)
{
    int op = operator_at(lx->s + lx->at, lx->n - lx->at);
    if (!op)
        return lexer_error(lx, "unexpected character in a tag");
    if (op == '(' || op == '[' || op == '{') {
        if (*n_open == LEX_MAX_OPEN)
            return lexer_error(lx, "too many open brackets");
        open[(*n_open)++] = op == '(' ? ')' : op == '[' ? ']' : '}';
    } else if (op == ')' || op == ']' || op == '}') {
        if (*n_open == 0 || open[--(*n_open)] != op)
            return lexer_error(lx, "a closing bracket does not match");
    }
    size_t len = op > 255 ? 2 : 1;
    int rc =
        lexer_emit(lx, (struct token){.kind = TOK_OP, .op = op, .text = {lx->s + lx->at, len}});
    lexer_advance(lx, lx->at + len);
    return rc;
}

static int lex_name(struct lexer *lx)
{
    size_t i = lx->at;
    while (i < lx->n && is_name_char(lx->s[i]))
        i++;
    if (i - lx->at > LEX_MAX_NAME)
        return lexer_error(lx, "a name is too long");
    int rc = lexer_emit(lx, (struct token){.kind = TOK_NAME, .text = {lx->s + lx->at, i - lx->at}});
    lexer_advance(lx, i);
    return rc;
}

int lexer_token(struct lexer *lx, char open[LEX_MAX_OPEN], size_t *n_open)
{
    char c = lx->s[lx->at];
    if (c == '"' || c == '\'')
        return lex_string(lx);
    if (is_digit(c))
        return lex_number(lx);
    if (is_name_char(c))
        return lex_name(lx);
    return lex_operator(lx, open, n_open);
}
