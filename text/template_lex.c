/* template_lex.c - template source → tokens, with Jinja's rules for white space around tags
 * (trim_blocks and lstrip_blocks on). */
#include "text/template_lex.h"

#include "text/unicode.h"
#include "text/utf8.h"

#include <stdlib.h>

int lexer_error(struct lexer *lx, const char *what)
{
    return err_set(lx->e, ERR_FORMAT, "chat template line %d: %s", lx->line, what);
}

int lexer_emit(struct lexer *lx, struct token t)
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

void lexer_advance(struct lexer *lx, size_t to)
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
        rc = lexer_emit(lx, (struct token){.kind = TOK_DATA, .text = {lx->s + from, to - from}});
    lexer_advance(lx, tag);
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
    lexer_advance(lx, end);
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
        return lexer_error(lx, "a comment has no end (#})");
    lexer_advance(lx, first);
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
    return lexer_error(lx, "a raw block has no end (endraw)");
}

/* Everything up to the end of a variable or block tag. */
static int lex_tag(struct lexer *lx, bool is_variable)
{
    char open[LEX_MAX_OPEN];
    size_t n_open = 0;
    int rc = lexer_emit(lx, (struct token){.kind = is_variable ? TOK_VAR_BEGIN : TOK_BLOCK_BEGIN});
    lexer_advance(lx, lx->at + 2);
    if (lx->at < lx->n && (lx->s[lx->at] == '-' || lx->s[lx->at] == '+'))
        lexer_advance(lx, lx->at + 1);
    while (rc == 0) {
        lexer_advance(lx, skip_spaces(lx, lx->at));
        if (lx->at >= lx->n)
            return lexer_error(lx, is_variable ? "a variable tag has no end (}})"
                                               : "a block tag has no end (%})");
        bool ok = false;
        size_t end = lx->at;
        if (n_open == 0)
            end = after_end(lx, lx->at, is_variable ? '}' : '%', !is_variable, &ok);
        if (ok) {
            rc = lexer_emit(lx, (struct token){.kind = is_variable ? TOK_VAR_END : TOK_BLOCK_END});
            finish_tag(lx, end);
            return rc;
        }
        rc = lexer_token(lx, open, &n_open);
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
            rc = lexer_emit(&lx,
                            (struct token){.kind = TOK_DATA, .text = {lx.s + lx.at, tag - lx.at}});
            lexer_advance(&lx, tag);
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
    return rc ? rc : lexer_emit(&lx, (struct token){.kind = TOK_END});
}
