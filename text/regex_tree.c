/* regex_tree.c - regular expressions read into a tree; see regex_grammar.h for what is read. */
#include "text/regex_tree.h"

#include <string.h>

static struct rx *parse_alternatives(struct scan *s);

static struct rx *rx_new(struct scan *s, enum rx_kind kind)
{
    struct rx *x = ir_alloc(s->b, sizeof *x);
    if (x)
        x->kind = kind;
    return x;
}

static struct rx *rx_set(struct scan *s, struct cp_set set)
{
    struct rx *x = rx_new(s, RX_SET);
    if (x)
        x->set = set;
    return x;
}

/* ---- escapes ---- */

static struct cp_set class_set(struct ir_builder *b, int letter)
{
    struct cp_set set;
    switch (letter | 0x20) {
    case 'd':
        set = CP_SET(b, {'0', '9'});
        break;
    case 'w':
        set = CP_SET(b, {'0', '9'}, {'A', 'Z'}, {'a', 'z'}, {'_', '_'});
        break;
    default:
        set = CP_SET(b, {'\t', '\r'}, {' ', ' '});
    }
    return letter & 0x20 ? set : cp_set_not(b, set);
}

static const char *unsupported_escape(int c)
{
    if (c >= '1' && c <= '9')
        return "back-references";
    if (c == 'k' || c == 'g')
        return "back-references";
    if (c == 'b' || c == 'B')
        return "word boundaries";
    if (c == 'p' || c == 'P')
        return "Unicode properties";
    return NULL;
}

/* \uHHHH, a pair of which may be one character, or \u{H…} */
static uint32_t parse_unicode(struct scan *s)
{
    if (scan_skip(s, "{")) {
        int digits = 0;
        while (scan_ahead(s, (size_t)digits) >= 0 && scan_ahead(s, (size_t)digits) != '}' &&
               digits < 7)
            digits++;
        uint32_t cp = scan_hex(s, digits);
        if (!s->b->rc && (digits == 0 || !scan_skip(s, "}")))
            scan_fail(s, ERR_FORMAT, "expected \\u{H…}");
        return cp;
    }
    static const char HEX[] = "0123456789abcdefABCDEF";
    int c0 = scan_ahead(s, 0), c1 = scan_ahead(s, 1);
    bool high = (c0 == 'd' || c0 == 'D') && c1 > 0 && strchr("89abAB", c1);
    if (!high)
        return scan_hex(s, 4);
    uint32_t unit[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 4; k++) {
            const char *at = scan_peek(s) > 0 ? strchr(HEX, scan_peek(s)) : NULL;
            uint32_t digit = at ? (uint32_t)(at - HEX) : 99;
            if (!at)
                break;
            unit[i] = unit[i] << 4 | (digit > 15 ? digit - 6 : digit);
            s->at++;
        }
        if (i == 0 && !scan_skip(s, "\\u"))
            break;
    }
    if (unit[0] < 0xD800 || unit[0] > 0xDBFF || unit[1] < 0xDC00 || unit[1] > 0xDFFF)
        scan_fail(s, ERR_FORMAT, "\\u: half of a surrogate pair");
    return 0x10000 + ((unit[0] & 0x3FF) << 10) + (unit[1] & 0x3FF);
}

/* After the backslash: one character. Sets and anchors were taken before. */
static uint32_t parse_escape(struct scan *s, bool in_class)
{
    static const char LETTERS[] = "nrtfv", MEANS[] = "\n\r\t\f\v";
    int c = scan_peek(s);
    const char *at, *name = unsupported_escape(c);
    if (c < 0) {
        scan_fail(s, ERR_FORMAT, "a backslash ends the expression");
        return 0;
    }
    if (in_class && c == 'b') {
        s->at++;
        return '\b';
    }
    if (name) {
        scan_fail(s, ERR_CONFIG, "%s (\\%c) are not supported", name, c);
        return 0;
    }
    if (c >= 0x80)
        return scan_char(s);
    s->at++;
    if (c == 'x' || c == 'U')
        return scan_hex(s, c == 'x' ? 2 : 8);
    if (c == 'u')
        return parse_unicode(s);
    if ((at = strchr(LETTERS, c)))
        return (uint32_t)MEANS[at - LETTERS];
    bool digit_next = scan_peek(s) >= '0' && scan_peek(s) <= '9';
    if (c == '0' && !digit_next)
        return 0;
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter) {
        s->at--;
        scan_fail(s, ERR_FORMAT, "unknown escape \\%c", c);
    }
    return (uint32_t)c;
}

static bool is_class_letter(int c)
{
    return c > 0 && strchr("dwsDWS", c) != NULL;
}

/* ---- elements ---- */

/* One end of a range, or a whole set (*whole). */
static uint32_t class_member(struct scan *s, struct cp_set *set, bool *whole)
{
    *whole = scan_peek(s) == '\\' && is_class_letter(scan_ahead(s, 1));
    if (*whole) {
        *set = class_set(s->b, scan_ahead(s, 1));
        s->at += 2;
        return 0;
    }
    return scan_skip(s, "\\") ? parse_escape(s, true) : scan_char(s);
}

static struct rx *parse_class(struct scan *s)
{
    bool negated = scan_skip(s, "^"), first = true;
    struct range_vec ranges = {0};
    for (; !s->b->rc && (first || scan_peek(s) != ']'); first = false) {
        if (scan_peek(s) < 0)
            return scan_fail(s, ERR_FORMAT, "a character class has no closing bracket");
        struct cp_set set, other;
        bool whole, other_whole = false;
        uint32_t lo = class_member(s, &set, &whole), hi = lo;
        if (scan_peek(s) == '-' && scan_ahead(s, 1) >= 0 && scan_ahead(s, 1) != ']') {
            s->at++;
            hi = class_member(s, &other, &other_whole);
            if (!s->b->rc && (whole || other_whole || hi < lo))
                return scan_fail(s, ERR_FORMAT,
                                 "a range of characters runs backwards or has a set"
                                 " at an end");
        }
        for (uint32_t i = 0; whole && i < set.n; i++)
            range_push(s->b, &ranges, set.r[i].lo, set.r[i].hi);
        if (!whole)
            range_push(s->b, &ranges, lo, hi);
    }
    s->at++;
    struct cp_set set = cp_set_of(s->b, ranges.r, ranges.n);
    return rx_set(s, negated ? cp_set_not(s->b, set) : set);
}

static bool skip_group_name(struct scan *s)
{
    size_t start = s->at;
    while (scan_peek(s) > 0 && scan_peek(s) != '>' && scan_peek(s) != ')')
        s->at++;
    return s->at > start && scan_skip(s, ">");
}

/* After "(?": only what makes no difference to the language is let through. */
static bool group_kind(struct scan *s)
{
    static const struct {
        const char *begin, *name;
    } REFUSED[] = {{"=", "look-ahead (?=…)"},        {"!", "look-ahead (?!…)"},
                   {"<=", "look-behind (?<=…)"},     {"<!", "look-behind (?<!…)"},
                   {"P=", "back-references (?P=…)"}, {">", "atomic groups (?>…)"},
                   {"(", "conditions (?(…)…)"},      {"#", "comments (?#…)"}};
    for (size_t i = 0; i < sizeof REFUSED / sizeof *REFUSED; i++)
        if (scan_skip(s, REFUSED[i].begin)) {
            scan_fail(s, ERR_CONFIG, "%s are not supported", REFUSED[i].name);
            return false;
        }
    if (scan_skip(s, ":"))
        return true;
    if (scan_skip(s, "P<") || scan_skip(s, "<")) {
        if (!skip_group_name(s))
            scan_fail(s, ERR_FORMAT, "a named group needs (?<name>…)");
        return !s->b->rc;
    }
    scan_fail(s, ERR_CONFIG, "flags (?…) are not supported");
    return false;
}

static struct rx *parse_group(struct scan *s)
{
    if (!scan_enter(s) || (scan_skip(s, "?") && !group_kind(s)))
        return NULL;
    struct rx *x = parse_alternatives(s);
    if (x && !scan_skip(s, ")"))
        return scan_fail(s, ERR_FORMAT, "expected \")\"");
    scan_leave(s);
    return x;
}

static struct rx *parse_backslash(struct scan *s)
{
    int c = scan_peek(s);
    if (is_class_letter(c)) {
        s->at++;
        return rx_set(s, class_set(s->b, c));
    }
    if (c == 'A' || c == 'Z') {
        s->at++;
        return rx_new(s, c == 'A' ? RX_BEGIN : RX_END);
    }
    uint32_t cp = parse_escape(s, false);
    return rx_set(s, CP_SET(s->b, {cp, cp}));
}

static struct rx *parse_atom(struct scan *s)
{
    int c = scan_peek(s);
    if (c == '*' || c == '+' || c == '?')
        return scan_fail(s, ERR_FORMAT, "%c has nothing before it to repeat", c);
    uint32_t cp = scan_char(s);
    switch (c) {
    case '(':
        return parse_group(s);
    case '[':
        return parse_class(s);
    case '\\':
        return parse_backslash(s);
    case '.':
        return rx_set(s, cp_set_not(s->b, CP_SET(s->b, {'\n', '\n'})));
    case '^':
        return rx_new(s, RX_BEGIN);
    case '$':
        return rx_new(s, RX_END);
    default:
        return rx_set(s, CP_SET(s->b, {cp, cp}));
    }
}

/* *, +, ?, {…}: false when there is none. "{" that begins no counts is a character. */
static bool parse_counts(struct scan *s, uint32_t *min, uint32_t *max)
{
    *min = 0;
    *max = IR_INF;
    if (scan_skip(s, "*"))
        return true;
    if (scan_skip(s, "+")) {
        *min = 1;
        return true;
    }
    if (scan_skip(s, "?")) {
        *max = 1;
        return true;
    }
    size_t start = s->at;
    if (scan_skip(s, "{") && scan_counts(s, true, min, max)) {
        if (*max < *min)
            scan_fail(s, ERR_FORMAT, "{%u,%u}: the least is more than the most", *min, *max);
        return true;
    }
    s->at = start;
    return false;
}

static struct rx *parse_repeat(struct scan *s, struct rx *x)
{
    uint32_t min, max;
    if (!x || !parse_counts(s, &min, &max) || s->b->rc)
        return x;
    if (x->kind == RX_BEGIN || x->kind == RX_END)
        return scan_fail(s, ERR_CONFIG, "a repeated anchor is not supported");
    struct rx *r = rx_new(s, RX_REPEAT);
    if (!r)
        return NULL;
    r->first = x;
    r->min = min;
    r->max = max;
    if (scan_skip(s, "?"))
        return r; /* lazy: the same language */
    if (scan_skip(s, "+"))
        return scan_fail(s, ERR_CONFIG, "possessive repetition is not supported");
    if (parse_counts(s, &min, &max))
        return scan_fail(s, ERR_FORMAT, "a repetition is repeated; put it into a group");
    return r;
}

static struct rx *parse_sequence(struct scan *s)
{
    struct rx *seq = rx_new(s, RX_SEQ);
    if (!seq)
        return NULL;
    struct rx **tail = &seq->first;
    while (!s->b->rc && scan_peek(s) >= 0 && scan_peek(s) != '|' && scan_peek(s) != ')') {
        struct rx *x = parse_repeat(s, parse_atom(s));
        if (!x)
            return NULL;
        *tail = x;
        tail = &x->next;
    }
    return s->b->rc ? NULL : seq;
}

static struct rx *parse_alternatives(struct scan *s)
{
    struct rx *alt = rx_new(s, RX_ALT);
    if (!alt)
        return NULL;
    struct rx **tail = &alt->first;
    do {
        struct rx *x = parse_sequence(s);
        if (!x)
            return NULL;
        *tail = x;
        tail = &x->next;
    } while (scan_skip(s, "|"));
    return alt;
}

struct rx *regex_read(struct scan *s)
{
    struct rx *x = parse_alternatives(s);
    if (x && scan_peek(s) == ')')
        return scan_fail(s, ERR_FORMAT, "\")\" closes nothing");
    return x;
}
