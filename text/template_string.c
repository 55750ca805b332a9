/* template_string.c - Python's string operations on valid UTF-8. */
#include "text/template_internal.h"

#include "text/unicode.h"
#include "text/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

bool str_find(struct str s, struct str part, size_t from, size_t *at)
{
    if (from > s.n)
        return false;
    if (part.n == 0) {
        *at = from;
        return true;
    }
    const char *p = memmem(s.p + from, s.n - from, part.p, part.n);
    if (p)
        *at = (size_t)(p - s.p);
    return p != NULL;
}

static bool is_stripped(struct str s, size_t at, const struct str *chars)
{
    uint32_t cp;
    utf8_next(s.p + at, &cp);
    if (!chars)
        return unicode_is_python_space(cp);
    for (size_t i = 0; i < chars->n;) {
        uint32_t c;
        i += utf8_next(chars->p + i, &c);
        if (c == cp)
            return true;
    }
    return false;
}

struct str str_strip(struct str s, const struct str *chars, bool left, bool right)
{
    size_t from = 0, to = s.n;
    while (left && from < to) {
        uint32_t cp;
        size_t len = utf8_next(s.p + from, &cp);
        if (!is_stripped(s, from, chars))
            break;
        from += len;
    }
    while (right && from < to) {
        size_t at = to - 1;
        while (((unsigned char)s.p[at] & 0xC0) == 0x80)
            at--;
        if (!is_stripped(s, at, chars))
            break;
        to = at;
    }
    return (struct str){s.p + from, to - from};
}

/* ---- digits ---- */

int char_decimal(uint32_t cp)
{
    static const uint32_t ZEROS[] = {
        0x30,    0x660,   0x6F0,   0x7C0,   0x966,   0x9E6,   0xA66,   0xAE6,   0xB66,   0xBE6,
        0xC66,   0xCE6,   0xD66,   0xDE6,   0xE50,   0xED0,   0xF20,   0x1040,  0x1090,  0x17E0,
        0x1810,  0x1946,  0x19D0,  0x1A80,  0x1A90,  0x1B50,  0x1BB0,  0x1C40,  0x1C50,  0xA620,
        0xA8D0,  0xA900,  0xA9D0,  0xA9F0,  0xAA50,  0xABF0,  0xFF10,  0x104A0, 0x10D30, 0x11066,
        0x110F0, 0x11136, 0x111D0, 0x112F0, 0x11450, 0x114D0, 0x11650, 0x116C0, 0x11730, 0x118E0,
        0x11950, 0x11C50, 0x11D50, 0x11DA0, 0x16A60, 0x16AC0, 0x16B50, 0x1D7CE, 0x1D7D8, 0x1D7E2,
        0x1D7EC, 0x1D7F6, 0x1E140, 0x1E2F0, 0x1E950, 0x1FBF0,
    };
    for (size_t i = 0; i < sizeof ZEROS / sizeof ZEROS[0] && ZEROS[i] <= cp; i++)
        if (cp - ZEROS[i] < 10)
            return (int)(cp - ZEROS[i]);
    return -1;
}

bool char_is_digit(uint32_t cp)
{
    static const uint32_t RANGES[][2] = {
        {0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
        {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
        {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
        {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
        {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A},
    };
    for (size_t i = 0; i < sizeof RANGES / sizeof RANGES[0]; i++)
        if (cp >= RANGES[i][0] && cp <= RANGES[i][1])
            return true;
    return char_is_decimal(cp);
}

/* ---- case ---- */

/* Where a letter stands decides between its capital and its small form. */
struct case_state {
    enum str_case how;
    bool in_word;
    bool first;
};

static bool is_cased(uint32_t cp)
{
    return unicode_is_upper(cp) || unicode_is_lower(cp);
}

/* Jinja's title filter begins a word after these; Python's title() after anything that is no
 * cased letter. */
static bool splits_word(uint32_t cp)
{
    return unicode_is_python_space(cp) || cp == '-' || cp == '(' || cp == '{' || cp == '[' ||
           cp == '<';
}

static size_t convert(struct case_state *st, uint32_t cp, uint32_t out[UNICODE_CASE_MAX])
{
    size_t n = 0;
    switch (st->how) {
    case CASE_UPPER:
        n = unicode_upper(cp, out);
        break;
    case CASE_LOWER:
        n = unicode_lower(cp, out);
        break;
    case CASE_CAPITAL:
        n = st->first ? unicode_title(cp, out) : unicode_lower(cp, out);
        break;
    case CASE_TITLE:
        n = st->in_word ? unicode_lower(cp, out) : unicode_title(cp, out);
        st->in_word = is_cased(cp);
        break;
    case CASE_TITLE_FILTER:
        n = st->in_word ? unicode_lower(cp, out) : unicode_upper(cp, out);
        st->in_word = !splits_word(cp);
        break;
    }
    st->first = false;
    return n;
}

/* A capital sigma at the end of a word becomes the final small one (Unicode standard, table
 * 3-17). */
static bool is_final_sigma(struct str s, size_t at, size_t len)
{
    uint32_t cp = 0;
    if (at == 0)
        return false;
    size_t before = at - 1;
    while (((unsigned char)s.p[before] & 0xC0) == 0x80)
        before--;
    utf8_next(s.p + before, &cp);
    if (!is_cased(cp))
        return false;
    if (at + len >= s.n)
        return true;
    utf8_next(s.p + at + len, &cp);
    return !is_cased(cp);
}

int str_case(struct eval *ev, struct str s, enum str_case how, struct str *out)
{
    struct builder b = {.ev = ev};
    struct case_state st = {.how = how, .first = true};
    for (size_t i = 0; i < s.n && !b.rc;) {
        uint32_t cp, to[UNICODE_CASE_MAX];
        size_t len = utf8_next(s.p + i, &cp);
        size_t n = convert(&st, cp, to);
        if (cp == 0x3A3 && to[0] == 0x3C3 && is_final_sigma(s, i, len))
            to[0] = 0x3C2;
        for (size_t k = 0; k < n; k++) {
            char text[4];
            build_put(&b, (struct str){text, utf8_encode(to[k], text)});
        }
        i += len;
    }
    return build_done(&b, out);
}

/* ---- replace, split, reverse ---- */

/* An empty pattern stands before every character and at the end. */
static void replace_empty(struct builder *b, struct str s, struct str to, int64_t count)
{
    size_t i = 0;
    while (i <= s.n && count != 0 && !b->rc) {
        build_put(b, to);
        count--;
        if (i == s.n)
            return;
        uint32_t cp;
        size_t len = utf8_next(s.p + i, &cp);
        build_put(b, (struct str){s.p + i, len});
        i += len;
        b->rc = b->rc ? b->rc : eval_steps(b->ev, 1);
    }
    build_put(b, (struct str){s.p + i, s.n - i});
}

int str_replace(struct eval *ev, struct str s, struct str from, struct str to, int64_t count,
                struct str *out)
{
    struct builder b = {.ev = ev};
    if (from.n == 0) {
        replace_empty(&b, s, to, count);
        return build_done(&b, out);
    }
    size_t at = 0, hit;
    while (count != 0 && !b.rc && str_find(s, from, at, &hit)) {
        build_put(&b, (struct str){s.p + at, hit - at});
        build_put(&b, to);
        at = hit + from.n;
        count--;
        b.rc = b.rc ? b.rc : eval_steps(ev, 1);
    }
    build_put(&b, (struct str){s.p + at, s.n - at});
    return build_done(&b, out);
}

static int push_part(struct eval *ev, struct list *l, struct str s, size_t from, size_t to)
{
    struct value v = value_str((struct str){s.p + from, to - from});
    int rc = eval_steps(ev, 1);
    return rc ? rc : list_push(ev, l, &v);
}

static void list_reverse(struct list *l)
{
    for (size_t i = 0; i < l->n / 2; i++) {
        struct value t = l->items[i];
        l->items[i] = l->items[l->n - 1 - i];
        l->items[l->n - 1 - i] = t;
    }
}

static int split_sep(struct eval *ev, struct str s, struct str sep, int64_t max, struct list *l)
{
    size_t at = 0, hit;
    int rc = 0;
    while (rc == 0 && max != 0 && str_find(s, sep, at, &hit)) {
        rc = push_part(ev, l, s, at, hit);
        at = hit + sep.n;
        max--;
    }
    return rc ? rc : push_part(ev, l, s, at, s.n);
}

static int rsplit_sep(struct eval *ev, struct str s, struct str sep, int64_t max, struct list *l)
{
    size_t end = s.n, at = s.n;
    int rc = 0;
    while (rc == 0 && max != 0 && at >= sep.n) {
        if (memcmp(s.p + at - sep.n, sep.p, sep.n) != 0) {
            at--;
            continue;
        }
        rc = push_part(ev, l, s, at, end);
        at -= sep.n;
        end = at;
        max--;
    }
    if (rc == 0)
        rc = push_part(ev, l, s, 0, end);
    list_reverse(l);
    return rc;
}

/* Words between runs of white space. */
static int split_words(struct eval *ev, struct str s, int64_t max, struct list *l)
{
    int rc = 0;
    s = str_strip(s, NULL, true, false);
    while (rc == 0 && s.n) {
        if (max == 0) /* the rest keeps its white space at the far end */
            return push_part(ev, l, s, 0, s.n);
        size_t i = 0;
        while (i < s.n) {
            uint32_t cp;
            size_t len = utf8_next(s.p + i, &cp);
            if (unicode_is_python_space(cp))
                break;
            i += len;
        }
        rc = push_part(ev, l, s, 0, i);
        max--;
        s = str_strip((struct str){s.p + i, s.n - i}, NULL, true, false);
    }
    return rc;
}

static int rsplit_words(struct eval *ev, struct str s, int64_t max, struct list *l)
{
    int rc = 0;
    s = str_strip(s, NULL, false, true);
    while (rc == 0 && s.n) {
        if (max == 0) {
            rc = push_part(ev, l, s, 0, s.n);
            break;
        }
        size_t i = s.n;
        while (i > 0) {
            size_t start = i - 1;
            while (((unsigned char)s.p[start] & 0xC0) == 0x80)
                start--;
            uint32_t cp;
            utf8_next(s.p + start, &cp);
            if (unicode_is_python_space(cp))
                break;
            i = start;
        }
        rc = push_part(ev, l, s, i, s.n);
        max--;
        s = str_strip((struct str){s.p, i}, NULL, false, true);
    }
    list_reverse(l);
    return rc;
}

int str_split(struct eval *ev, struct str s, const struct str *sep, int64_t max, bool from_right,
              struct list **out)
{
    *out = list_new(ev, LIST_LIST);
    if (!*out)
        return eval_nomem(ev);
    if (sep && sep->n == 0)
        return eval_fail(ev, ERR_FORMAT, "split by an empty string");
    size_t per_byte = sep && from_right ? 1 + sep->n / TEMPLATE_BYTES_PER_STEP : 1;
    int rc = eval_bytes(ev, s.n * per_byte);
    if (rc)
        return rc;
    if (!sep)
        return from_right ? rsplit_words(ev, s, max, *out) : split_words(ev, s, max, *out);
    return from_right ? rsplit_sep(ev, s, *sep, max, *out) : split_sep(ev, s, *sep, max, *out);
}

static bool ends_line(uint32_t cp)
{
    return (cp >= 0x0A && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

int str_lines(struct eval *ev, struct str s, bool keep_ends, struct list **out)
{
    *out = list_new(ev, LIST_LIST);
    if (!*out)
        return eval_nomem(ev);
    size_t from = 0;
    int rc = eval_bytes(ev, s.n);
    for (size_t i = 0; rc == 0 && i < s.n;) {
        uint32_t cp;
        size_t end = i + utf8_next(s.p + i, &cp);
        if (!ends_line(cp)) {
            i = end;
            continue;
        }
        if (cp == '\r' && end < s.n && s.p[end] == '\n')
            end++;
        rc = push_part(ev, *out, s, from, keep_ends ? end : i);
        from = i = end;
    }
    return rc == 0 && from < s.n ? push_part(ev, *out, s, from, s.n) : rc;
}

int str_reverse(struct eval *ev, struct str s, struct str *out)
{
    char *p = eval_alloc(ev, s.n);
    if (!p)
        return eval_nomem(ev);
    for (size_t i = 0; i < s.n;) {
        uint32_t cp;
        size_t len = utf8_next(s.p + i, &cp);
        memcpy(p + s.n - i - len, s.p + i, len);
        i += len;
    }
    *out = (struct str){p, s.n};
    return eval_bytes(ev, s.n);
}

int str_number(struct str s, bool *is_int, int64_t *i, double *f)
{
    char text[320];
    size_t n = 0;
    s = str_strip(s, NULL, true, true);
    if (s.n == 0 || s.n >= sizeof text)
        return -1;
    for (size_t k = 0; k < s.n; k++) {
        uint32_t cp;
        size_t len = utf8_next(s.p + k, &cp);
        if (len > 1) { /* Python reads the digits of all scripts */
            if (char_decimal(cp) < 0)
                return -1;
            text[n++] = (char)('0' + char_decimal(cp));
            k += len - 1;
            continue;
        }
        bool lone =
            s.p[k] == '_' && (k == 0 || k + 1 == s.n || !isdigit((unsigned char)s.p[k - 1]) ||
                              !isdigit((unsigned char)s.p[k + 1]));
        if (lone || s.p[k] == 'x' || s.p[k] == 'X' || s.p[k] == 'p' || s.p[k] == '(')
            return -1; /* strtod would take hexadecimal and nan(...) */
        if (s.p[k] != '_')
            text[n++] = s.p[k];
    }
    text[n] = 0;
    size_t digits = strspn(text + (text[0] == '-' || text[0] == '+'), "0123456789");
    *is_int = digits && digits + (text[0] == '-' || text[0] == '+') == n;
    char *end;
    *f = strtod(text, &end);
    errno = 0;
    *i = strtoll(text, NULL, 10);
    if (*is_int && errno == ERANGE)
        *is_int = false; /* too large for an int here: the caller sees a float out of range */
    return end == text + n ? 0 : -1;
}
