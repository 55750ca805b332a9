/* regex_translate.c - an expression in Oniguruma's (Ruby's) syntax becomes one of PCRE2's with the same meaning, or is
 * refused; see regex.h. */
#include "text/regex.h"

#include "text/unicode_set.h"
#include "text/utf8.h"

#include <string.h>

struct scan {
    const char *begin, *p, *end;
    struct buf *out;
    struct err *e;
};

static int refuse(struct scan *s, const char *what, const char *from, size_t n)
{
    size_t left = (size_t)(s->end - from);
    return err_set(s->e, ERR_FORMAT, "regular expression: %s \"%.*s\" is not supported", what,
                   (int)(n < left ? n : left), from);
}

static void put_range(struct buf *out, uint32_t first, uint32_t last)
{
    if (first == last)
        buf_printf(out, "\\x{%X}", first);
    else if (first < last)
        buf_printf(out, "\\x{%X}-\\x{%X}", first, last);
}

static void put_outside(struct buf *out, uint32_t from,
                        uint32_t to) /* [from, to) without surrogates */
{
    if (from < 0xD800 && to > 0xD800) {
        put_range(out, from, 0xD7FF);
        from = 0xE000;
    }
    if (from >= 0xD800 && from < 0xE000)
        from = 0xE000;
    if (from < to)
        put_range(out, from, to - 1);
}

/* The set, or with `negative` all that is not in it, as the inside of a class. */
static void put_set(struct buf *out, enum unicode_set set, uint32_t mask, bool negative)
{
    uint32_t first = 0, last = 0, from = 0;
    for (; unicode_set_next(set, mask & ~CAT_BIT(CAT_CS), &first, &last); first = last + 1) {
        if (negative)
            put_outside(out, from, first);
        else
            put_outside(out, first, last + 1);
        from = last + 1;
        if (last >= 0x10FFFF)
            break;
    }
    if (negative && from <= 0x10FFFF)
        put_outside(out, from, 0x110000);
}

static void put_class(struct scan *s, enum unicode_set set, uint32_t mask, bool negative,
                      bool in_class)
{
    if (!in_class)
        buf_puts(s->out, "[");
    put_set(s->out, set, mask, negative);
    if (!in_class)
        buf_puts(s->out, "]");
}

/* \p{L}, \P{^Lu}, \pL: s->p is behind the p. */
static int put_property(struct scan *s, bool negative, bool in_class)
{
    const char *from = s->p;
    const char *close =
        s->p < s->end && *s->p == '{' ? memchr(s->p, '}', (size_t)(s->end - s->p)) : NULL;
    if (!close)
        return refuse(s, "the property", from - 2, 6);
    const char *name = s->p + 1;
    if (*name == '^') {
        negative = !negative;
        name++;
    }
    uint32_t mask = unicode_category_mask(name, (size_t)(close - name));
    s->p = close + 1;
    if (mask) {
        put_class(s, SET_CATEGORIES, mask, negative, in_class);
        return 0;
    }
    static const char *const SCRIPTS[] = {"Han",      "Hiragana", "Katakana", "Hangul", "Latin",
                                          "Cyrillic", "Greek",    "Arabic",   "Hebrew", "Thai"};
    for (size_t i = 0; i < sizeof SCRIPTS / sizeof SCRIPTS[0]; i++)
        if (strlen(SCRIPTS[i]) == (size_t)(close - name) &&
            memcmp(SCRIPTS[i], name, (size_t)(close - name)) == 0) {
            buf_printf(s->out, "\\%c{%s}", negative ? 'P' : 'p', SCRIPTS[i]);
            return 0;
        }
    return refuse(s, "the property", from - 2, (size_t)(close + 1 - (from - 2)));
}

static int hex_value(char c)
{
    return c >= '0' && c <= '9'                 ? c - '0'
           : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                : -1;
}

/* \x41, \x{1F600}, \u0041: one code point; s->p is behind the letter. */
static int put_code_point(struct scan *s, char letter)
{
    const char *from = s->p - 2;
    size_t max = letter == 'u' ? 4 : 2;
    bool braces = letter == 'x' && s->p < s->end && *s->p == '{';
    if (braces) {
        s->p++;
        max = 6;
    }
    uint32_t cp = 0;
    size_t n = 0;
    for (; n < max && s->p < s->end && hex_value(*s->p) >= 0; n++)
        cp = cp * 16 + (uint32_t)hex_value(*s->p++);
    if (braces && (s->p == s->end || *s->p++ != '}'))
        n = 0;
    bool byte = letter == 'x' && !braces;
    if (n == 0 || (letter == 'u' && n < 4) || (byte && cp >= 0x80) || cp > 0x10FFFF ||
        (cp >= 0xD800 && cp < 0xE000))
        return refuse(s, "the code point", from, 10);
    buf_printf(s->out, "\\x{%X}", cp);
    return 0;
}

/* \b and \B by the \w above: PCRE2's own are of another. */
static void put_boundary(struct scan *s, bool inside)
{
    static const char *const LOOKS[2][4] = {{"(?:(?<=", ")(?!", ")|(?<!", ")(?="},
                                            {"(?:(?<=", ")(?=", ")|(?<!", ")(?!"}};
    for (size_t i = 0; i < 4; i++) {
        buf_puts(s->out, LOOKS[inside][i]);
        put_class(s, SET_ONIG_WORD, 0, false, false);
    }
    buf_puts(s->out, "))");
}

static int put_escape(struct scan *s, bool in_class)
{
    const char *from = s->p++;
    if (s->p == s->end)
        return refuse(s, "the end", from, 1);
    char c = *s->p++;
    switch (c) {
    case 'p':
    case 'P':
        return put_property(s, c == 'P', in_class);
    case 's':
    case 'S':
        put_class(s, SET_SPACE, 0, c == 'S', in_class);
        return 0;
    case 'd':
    case 'D':
        put_class(s, SET_CATEGORIES, CAT_BIT(CAT_ND), c == 'D', in_class);
        return 0;
    case 'w':
    case 'W':
        put_class(s, SET_ONIG_WORD, 0, c == 'W', in_class);
        return 0;
    case 'h': /* a hexadecimal digit there, horizontal space in PCRE2 */
        buf_puts(s->out, in_class ? "0-9a-fA-F" : "[0-9a-fA-F]");
        return 0;
    case 'v':
        buf_puts(s->out, "\\x{B}");
        return 0;
    case 'x':
    case 'u':
        return put_code_point(s, c);
    case 'n':
    case 'r':
    case 't':
    case 'f':
    case 'a':
    case 'e':
        break;
    case 'b':
    case 'B':
        if (in_class)
            return refuse(s, "the escape", from, 2);
        put_boundary(s, c == 'B');
        return 0;
    case 'A':
    case 'z':
    case 'Z':
        if (in_class)
            return refuse(s, "the escape", from, 2);
        break;
    default:
        if ((uint8_t)c >= 0x80) { /* a letter of its own */
            s->p = from + 1;
            return 0;
        }
        if ((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z'))
            return refuse(s, "the escape", from, 2);
    }
    buf_put(s->out, from, 2);
    return 0;
}

static int put_brackets(struct scan *s)
{
    const char *from = s->p++;
    buf_puts(s->out, "[");
    if (s->p < s->end && *s->p == '^') {
        buf_puts(s->out, "^");
        s->p++;
    }
    if (s->p < s->end && *s->p == ']')
        return refuse(s, "the empty class", from, 4);
    while (s->p < s->end && *s->p != ']') {
        int rc = 0;
        if (*s->p == '\\')
            rc = put_escape(s, true);
        else if (*s->p == '[')
            rc = refuse(s, "the class in a class", s->p, 8);
        else if (*s->p == '&' && s->end - s->p > 1 && s->p[1] == '&')
            rc = refuse(s, "the intersection", from, 32);
        else
            buf_put(s->out, s->p++, 1);
        if (rc)
            return rc;
    }
    if (s->p == s->end)
        return refuse(s, "the open class", from, 32);
    buf_put(s->out, s->p++, 1);
    return 0;
}

/* What begins with "(": plain groups, look-around, atomic groups, and the option i. */
static int put_group(struct scan *s)
{
    static const char *const KNOWN[] = {
        "(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i)", "(?i:", "(?-i)", "(?-i:"};
    size_t left = (size_t)(s->end - s->p), n = 0;
    if (left >= 2 && s->p[1] == '*') /* a verb of PCRE2 */
        return refuse(s, "the group", s->p, 8);
    if (left < 2 || s->p[1] != '?')
        n = 1;
    for (size_t i = 0; !n && i < sizeof KNOWN / sizeof KNOWN[0]; i++)
        if (strlen(KNOWN[i]) <= left && memcmp(KNOWN[i], s->p, strlen(KNOWN[i])) == 0)
            n = strlen(KNOWN[i]);
    /* In the middle it takes the rest of the branches in there, and only its own here. */
    bool bare = n > 3 && s->p[n - 1] == ')';
    if (!n || (bare && s->p != s->begin && s->p[-1] != '('))
        return refuse(s, "the group", s->p, 8);
    buf_put(s->out, s->p, n);
    s->p += n;
    return 0;
}

static int put_braces(struct scan *s)
{
    const char *from = s->p;
    const char *close = memchr(from, '}', (size_t)(s->end - from));
    if (close && close + 1 < s->end && close[1] == '+')
        return refuse(s, "the repeated repetition", from, (size_t)(close + 2 - from));
    buf_puts(s->out, s->end - from > 1 && from[1] == ',' ? "{0" : "{");
    s->p++;
    return 0;
}

int regex_translate(const char *pattern, size_t n, struct buf *out, struct err *e)
{
    struct scan s = {.begin = pattern, .p = pattern, .end = pattern + n, .out = out, .e = e};
    int rc = 0;
    while (s.p < s.end && rc == 0) {
        if (*s.p == '\\')
            rc = put_escape(&s, false);
        else if (*s.p == '[')
            rc = put_brackets(&s);
        else if (*s.p == '(')
            rc = put_group(&s);
        else if (*s.p == '{')
            rc = put_braces(&s);
        else
            buf_put(out, s.p++, 1);
    }
    if (rc)
        return rc;
    return buf_ok(out)
               ? 0
               : err_set(e, ERR_LIMIT, "regular expression: longer than %zu bytes", out->max);
}
