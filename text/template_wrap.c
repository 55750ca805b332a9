/* template_wrap.c - the filters that Jinja takes from Python's library: wordwrap (textwrap),
 * urlencode (urllib), filesizeformat.
 *
 * Source: Python library reference, "textwrap": text is cut into chunks (runs of white space, words,
 * parts of hyphenated words, dashes), and lines are filled with chunks up to the width.
 */
#include "text/template_filter.h"

#include "text/unicode.h"
#include "text/utf8.h"

#include <math.h>
#include <stdio.h>

/* ---- wordwrap ---- */

/* The characters of one paragraph: looking back is by index. */
struct line {
    const uint32_t *cp;
    const size_t *offset; /* bytes before each, and n + 1: all */
    size_t n;
    struct str text;
};

struct wrap {
    struct eval *ev;
    int64_t width;
    bool break_long, by_hyphens;
    struct str newline;
    struct builder out;
    bool any; /* a line of this paragraph is out */
};

static bool is_space(uint32_t cp)
{
    return cp == ' ' || (cp >= '\t' && cp <= '\r');
}

static bool is_word(uint32_t cp) /* \w */
{
    enum unicode_class class = unicode_class(cp);
    return cp == '_' || class == UNICODE_LETTER || class == UNICODE_NUMBER;
}

static bool is_letter(uint32_t cp)
{
    return is_word(cp) && !char_is_decimal(cp);
}

/* May stand before a dash between words. */
static bool is_punctuated(uint32_t cp)
{
    return is_word(cp) || (cp < 0x80 && cp && strchr("!\"'&.,?", (int)cp));
}

/* A run of two or more hyphens at `at`, with a word after it: its end, else 0. */
static size_t dash_end(const struct line *l, size_t at)
{
    size_t end = at;
    while (end < l->n && l->cp[end] == '-')
        end++;
    return end >= at + 2 && end < l->n && is_word(l->cp[end]) ? end : 0;
}

/* The hyphen at `at` is inside a word: two letters, or a letter, a hyphen and a sign, before it, and
 * two letters after it, maybe with a hyphen between. */
static bool is_inner_hyphen(const struct line *l, size_t at)
{
    const uint32_t *c = l->cp;
    if (c[at] != '-')
        return false;
    bool two = at >= 2 && is_letter(c[at - 1]) && is_letter(c[at - 2]);
    bool single = at >= 3 && is_punctuated(c[at - 1]) && c[at - 2] == '-' && is_letter(c[at - 3]);
    if ((!two && !single) || at + 2 >= l->n || !is_letter(c[at + 1]))
        return false;
    size_t next = at + 2 + (c[at + 2] == '-');
    return is_letter(c[at + 2]) || (next < l->n && is_letter(c[next]));
}

static size_t chunk_end(const struct wrap *w, const struct line *l, size_t from)
{
    size_t at = from;
    if (is_space(l->cp[at])) {
        while (at < l->n && is_space(l->cp[at]))
            at++;
        return at;
    }
    if (w->by_hyphens && at > 0 && is_punctuated(l->cp[at - 1])) {
        size_t end = dash_end(l, at);
        if (end)
            return end;
    }
    for (at++; at < l->n && !is_space(l->cp[at]); at++) {
        if (!w->by_hyphens)
            continue;
        if (is_inner_hyphen(l, at))
            return at + 1;
        if (is_punctuated(l->cp[at - 1]) && dash_end(l, at))
            return at;
    }
    return at;
}

static bool is_blank(const struct line *l, size_t from, size_t to)
{
    while (from < to && unicode_is_python_space(l->cp[from]))
        from++;
    return from == to;
}

/* Where a word longer than a line is cut. */
static size_t long_word_end(const struct wrap *w, const struct line *l, size_t from, size_t to,
                            size_t room)
{
    size_t end = from + room < to ? from + room : to;
    if (!w->by_hyphens || to - from <= room)
        return end;
    size_t hyphen = end;
    while (hyphen > from && l->cp[hyphen - 1] != '-')
        hyphen--;
    for (size_t i = from; hyphen > from + 1 && i < hyphen - 1; i++)
        if (l->cp[i] != '-')
            return hyphen;
    return end;
}

static int put_line(struct wrap *w, const struct line *l, size_t from, size_t to)
{
    if (w->any)
        build_put(&w->out, w->newline);
    w->any = true;
    build_put(&w->out, (struct str){l->text.p + l->offset[from], l->offset[to] - l->offset[from]});
    return w->out.rc ? w->out.rc : eval_steps(w->ev, 1);
}

/* One paragraph. Chunks follow each other in the text, so a line is a range of it; what a long word
 * leaves is cut again from where the line ended. */
static int wrap_line(struct wrap *w, const struct line *l)
{
    size_t at = 0, width = (size_t)w->width;
    size_t word_end = 0; /* of a long word that was cut: not to be cut into chunks again */
    int rc = 0;
    w->any = false;
    while (at < l->n && rc == 0) {
        size_t end = word_end > at ? word_end : chunk_end(w, l, at);
        if (w->any && is_blank(l, at, end)) {
            at = word_end = end;
            if (at == l->n)
                break;
            end = chunk_end(w, l, at);
        }
        size_t from = at, last = at; /* last: where the line's last chunk begins */
        while (at < l->n && end - from <= width) {
            last = at;
            at = end;
            end = at < l->n ? chunk_end(w, l, at) : at;
        }
        word_end = 0;
        if (at < l->n && end - at > width && (w->break_long || at == from)) {
            last = at;
            word_end = end;
            at = w->break_long ? long_word_end(w, l, at, end, width - (at - from)) : end;
        }
        size_t stop = at > last && is_blank(l, last, at) ? last : at;
        if (stop > from)
            rc = put_line(w, l, from, stop);
    }
    return rc;
}

static int wrap_paragraph(struct wrap *w, struct str text)
{
    size_t n = utf8_length(text.p, text.n);
    uint32_t *cp = eval_alloc(w->ev, (n + 1) * sizeof *cp);
    size_t *offset = cp ? eval_alloc(w->ev, (n + 1) * sizeof *offset) : NULL;
    if (!offset)
        return eval_nomem(w->ev);
    for (size_t i = 0, at = 0; i < n; i++) {
        offset[i] = at;
        at += utf8_next(text.p + at, &cp[i]);
    }
    offset[n] = text.n;
    struct line l = {cp, offset, n, text};
    int rc = eval_steps(w->ev, n);
    return rc ? rc : wrap_line(w, &l);
}

FILTER(f_wordwrap)
{
    struct str s;
    struct list *lines = NULL;
    struct wrap w = {.ev = ev,
                     .break_long = !a->bound[1] || value_truth(a->bound[1]),
                     .by_hyphens = !a->bound[3] || value_truth(a->bound[3]),
                     .newline = STR("\n"),
                     .out = {.ev = ev}};
    int rc = builtin_arg_str(ev, v, STR(""), &s);
    if (rc == 0)
        rc = builtin_arg_int(ev, a->bound[0], 79, &w.width);
    if (rc == 0 && a->bound[2] && a->bound[2]->type != VALUE_NONE)
        rc = builtin_arg_str(ev, a->bound[2], STR(""), &w.newline);
    if (rc == 0)
        rc = str_lines(ev, s, false, &lines);
    if (rc == 0 && w.width <= 0 && lines->n)
        rc = eval_fail(ev, ERR_FORMAT, "wordwrap: the width must be above 0");
    for (size_t i = 0; rc == 0 && i < lines->n; i++) {
        if (i)
            build_put(&w.out, w.newline);
        rc = wrap_paragraph(&w, lines->items[i].s);
    }
    out->type = VALUE_STRING;
    return rc ? rc : build_done(&w.out, &out->s);
}

/* ---- urlencode ---- */

static int put_quoted(struct eval *ev, const struct value *v, bool in_query, struct builder *b)
{
    static const char PLAIN[] = "_.-~";
    struct str s;
    int rc = value_to_str(ev, v, &s);
    for (size_t i = 0; rc == 0 && i < s.n && !b->rc; i++) {
        unsigned char c = (unsigned char)s.p[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     memchr(PLAIN, c, sizeof PLAIN - 1) || (c == '/' && !in_query);
        char text[4];
        snprintf(text, sizeof text, "%%%02X", c);
        build_put(b, plain                  ? (struct str){s.p + i, 1}
                     : c == ' ' && in_query ? STR("+")
                                            : (struct str){text, 3});
    }
    return rc ? rc : b->rc;
}

/* A text, or the pairs of a query. */
FILTER(f_urlencode)
{
    struct builder b = {.ev = ev};
    struct value pairs = *v;
    struct list *items = NULL, *pair;
    struct args no_args = {0};
    int rc = 0;
    out->type = VALUE_STRING;
    if (v->type != VALUE_LIST && v->type != VALUE_DICT && v->type != VALUE_UNDEFINED) {
        rc = put_quoted(ev, v, false, &b);
        return rc ? rc : build_done(&b, &out->s);
    }
    if (v->type == VALUE_DICT)
        rc = builtin_call(ev, method_find(VALUE_DICT, STR("items")), v, &no_args, &pairs);
    if (rc == 0)
        rc = value_items(ev, &pairs, &items);
    for (size_t i = 0; rc == 0 && i < items->n; i++) {
        rc = value_items(ev, &items->items[i], &pair);
        if (rc == 0 && pair->n != 2)
            rc = eval_fail(ev, ERR_FORMAT, "urlencode: expected pairs, got %zu values", pair->n);
        if (rc == 0 && i)
            build_put(&b, STR("&"));
        if (rc == 0)
            rc = put_quoted(ev, &pair->items[0], true, &b);
        if (rc == 0)
            build_put(&b, STR("="));
        if (rc == 0)
            rc = put_quoted(ev, &pair->items[1], true, &b);
    }
    out->type = VALUE_STRING;
    return rc ? rc : build_done(&b, &out->s);
}

/* ---- filesizeformat ---- */

FILTER(f_filesizeformat)
{
    static const char *const NAMES[2][8] = {
        {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"},
        {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"},
    };
    bool binary = a->bound[0] && value_truth(a->bound[0]), is_int;
    double base = binary ? 1024 : 1000, f, unit = base;
    int64_t i;
    char text[400];
    if (value_is_number(v))
        f = value_as_float(v);
    else if (v->type != VALUE_STRING || str_number(v->s, &is_int, &i, &f) != 0)
        return eval_fail(ev, ERR_FORMAT, "filesizeformat of a %s", value_type_name(v));
    if (!isfinite(f))
        return eval_fail(ev, ERR_FORMAT, "filesizeformat of a number that is not finite");
    if (f < base) {
        snprintf(text, sizeof text, f == 1 ? "1 Byte" : "%.0f Bytes", trunc(f) + 0.0);
    } else {
        size_t name = 0;
        for (unit *= base; name < 7 && f >= unit; name++)
            unit *= base;
        snprintf(text, sizeof text, "%.1f %s", base * f / unit, NAMES[binary][name]);
    }
    struct builder b = {.ev = ev};
    build_put(&b, (struct str){text, strlen(text)});
    out->type = VALUE_STRING;
    return build_done(&b, &out->s);
}

const struct builtin *filter_find_library(struct str name)
{
    static const struct builtin TABLE[] = {
        {"filesizeformat", f_filesizeformat, "?binary"},
        {"urlencode", f_urlencode, ""},
        {"wordwrap", f_wordwrap, "?width,break_long_words,wrapstring,break_on_hyphens"},
    };
    return builtin_find(TABLE, BUILTIN_COUNT(TABLE), name);
}
