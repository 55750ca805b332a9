/* grammar_gbnf.c - GBNF, the grammar notation that llama.cpp publishes.
 *
 *   rule    ::= name "::=" alternatives newline        "root" is where the text begins
 *   alternatives: sequences parted by "|"; a line may end after "|", before it, after "::=" and inside parentheses
 *   sequence: "literal", [class], [^class], . (any character), name, ( alternatives ), each with * + ? {m} {m,} {m,n} after it
 *   escapes in literals and classes: \n \r \t \\ \" \[ \] \xHH \uHHHH \UHHHHHHHH, which are characters
 *   comments: from # to the end of the line
 */
#include "text/grammar_scan.h"

#include "base/buf.h"
#include "text/utf8.h"

#include <string.h>

struct gbnf {
    struct scan s;
    uint32_t *by_name, by_name_cap; /* hash → rule + 1 */
};

static struct ir *parse_alternatives(struct gbnf *p, bool nested);

static bool is_name(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static void skip_space(struct gbnf *p, bool lines)
{
    struct scan *s = &p->s;
    for (;;) {
        int c = scan_peek(s);
        if (c == '#')
            while (scan_peek(s) >= 0 && scan_peek(s) != '\n')
                s->at++;
        else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r')))
            s->at++;
        else
            return;
    }
}

/* ---- names ---- */

static uint32_t name_hash(const char *name, size_t n)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)name[i]) * 16777619u;
    return h;
}

static bool names_grow(struct gbnf *p)
{
    struct ir_builder *b = p->s.b;
    if (b->n_rules * 2 < p->by_name_cap)
        return true;
    uint32_t cap = p->by_name_cap ? p->by_name_cap * 2 : 64;
    uint32_t *table = ir_alloc(b, cap * sizeof *table);
    if (!table)
        return false;
    for (uint32_t r = 0; r < b->n_rules; r++) {
        uint32_t h = name_hash(b->rules[r].name, strlen(b->rules[r].name)) & (cap - 1);
        while (table[h])
            h = (h + 1) & (cap - 1);
        table[h] = r + 1;
    }
    p->by_name = table;
    p->by_name_cap = cap;
    return true;
}

/* The rule of that name, made when it is new; on failure any, with rc set. */
static uint32_t rule_named(struct gbnf *p, const char *name, size_t n)
{
    struct ir_builder *b = p->s.b;
    if (!names_grow(p))
        return 0;
    uint32_t h = name_hash(name, n) & (p->by_name_cap - 1);
    for (; p->by_name[h]; h = (h + 1) & (p->by_name_cap - 1)) {
        const char *other = b->rules[p->by_name[h] - 1].name;
        if (strlen(other) == n && memcmp(other, name, n) == 0)
            return p->by_name[h] - 1;
    }
    uint32_t rule = ir_rule_new(b, name, n);
    if (!b->rc)
        p->by_name[h] = rule + 1;
    return rule;
}

/* ---- elements ---- */

static uint32_t parse_escape(struct scan *s)
{
    static const char PLAIN[] = "\\\"[]", LETTERS[] = "nrt", MEANS[] = "\n\r\t";
    int c = scan_peek(s);
    const char *at;
    if (c < 0) {
        scan_fail(s, ERR_FORMAT, "a backslash ends the grammar");
        return 0;
    }
    s->at++;
    if (c == 'x' || c == 'u' || c == 'U')
        return scan_hex(s, c == 'x' ? 2 : c == 'u' ? 4 : 8);
    if ((at = strchr(LETTERS, c)))
        return (uint32_t)MEANS[at - LETTERS];
    if (strchr(PLAIN, c))
        return (uint32_t)c;
    s->at--;
    scan_fail(s, ERR_FORMAT, "unknown escape \\%c", c >= 0x20 && c < 0x7F ? c : '?');
    return 0;
}

/* A character of a literal or a class, escapes read. */
static uint32_t parse_char(struct scan *s)
{
    return scan_skip(s, "\\") ? parse_escape(s) : scan_char(s);
}

static struct ir *parse_literal(struct scan *s)
{
    struct buf bytes;
    buf_init(&bytes, s->n * 4 + 4);
    while (!s->b->rc && scan_peek(s) >= 0 && scan_peek(s) != '"') {
        char utf8[4];
        buf_put(&bytes, utf8, utf8_encode(parse_char(s), utf8));
    }
    struct ir *x = NULL;
    if (!s->b->rc && !scan_skip(s, "\""))
        scan_fail(s, ERR_FORMAT, "a literal has no closing quote");
    else if (!buf_ok(&bytes))
        ir_fail(s->b, ERR_NOMEM, "grammar: no memory");
    else
        x = ir_bytes(s->b, bytes.data, bytes.len);
    buf_fini(&bytes);
    return x;
}

static struct ir *parse_class(struct scan *s)
{
    bool negated = scan_skip(s, "^");
    struct range_vec ranges = {0};
    while (!s->b->rc && scan_peek(s) != ']') {
        if (scan_peek(s) < 0)
            return scan_fail(s, ERR_FORMAT, "a character class has no closing bracket");
        uint32_t lo = parse_char(s), hi = lo;
        if (scan_peek(s) == '-' && scan_ahead(s, 1) >= 0 && scan_ahead(s, 1) != ']') {
            s->at++;
            hi = parse_char(s);
        }
        if (!s->b->rc && hi < lo)
            return scan_fail(s, ERR_FORMAT, "a range of characters runs backwards");
        range_push(s->b, &ranges, lo, hi);
    }
    s->at++;
    struct cp_set set = cp_set_of(s->b, ranges.r, ranges.n);
    return s->b->rc ? NULL : ir_set(s->b, negated ? cp_set_not(s->b, set) : set);
}

static struct ir *parse_call(struct gbnf *p)
{
    struct scan *s = &p->s;
    size_t start = s->at;
    while (is_name(scan_peek(s)))
        s->at++;
    uint32_t rule = rule_named(p, s->text + start, s->at - start);
    return s->b->rc ? NULL : ir_call(s->b, rule);
}

static struct ir *parse_group(struct gbnf *p)
{
    if (!scan_enter(&p->s))
        return NULL;
    skip_space(p, true);
    struct ir *x = parse_alternatives(p, true);
    if (x && !scan_skip(&p->s, ")"))
        return scan_fail(&p->s, ERR_FORMAT, "expected \")\"");
    scan_leave(&p->s);
    return x;
}

/* NULL without a fault: no element begins here. */
static struct ir *parse_element(struct gbnf *p)
{
    struct scan *s = &p->s;
    int c = scan_peek(s);
    if (is_name(c))
        return parse_call(p);
    if (c == '"' || c == '[' || c == '.' || c == '(')
        s->at++;
    switch (c) {
    case '"':
        return parse_literal(s);
    case '[':
        return parse_class(s);
    case '.':
        return ir_set(s->b, CP_SET(s->b, {0, 0x10FFFF}));
    case '(':
        return parse_group(p);
    case '<':
    case '!':
        return scan_fail(s, ERR_CONFIG, "token references (<token>, !) are not supported");
    case '*':
    case '+':
    case '?':
    case '{':
        return scan_fail(s, ERR_FORMAT, "%c has nothing before it to repeat", c);
    default:
        return NULL;
    }
}

static struct ir *parse_postfix(struct gbnf *p, struct ir *x)
{
    struct scan *s = &p->s;
    for (uint32_t n = 0; x; n++) {
        uint32_t min = 0, max = IR_INF;
        if (scan_skip(s, "+"))
            min = 1;
        else if (scan_skip(s, "?"))
            max = 1;
        else if (scan_skip(s, "{")) {
            if (!scan_counts(s, false, &min, &max))
                return scan_fail(s, ERR_FORMAT, "expected {m}, {m,} or {m,n}");
            if (max < min)
                return scan_fail(s, ERR_FORMAT, "{%u,%u}: the least is more than the most", min,
                                 max);
        } else if (!scan_skip(s, "*"))
            return x;
        if (n == 8)
            return scan_fail(s, ERR_LIMIT, "more than 8 repetitions of one element");
        x = ir_repeat(s->b, x, min, max);
        skip_space(p, false);
    }
    return x;
}

static struct ir *parse_sequence(struct gbnf *p, bool nested)
{
    struct ir_vec parts = {0};
    for (;;) {
        struct ir *x = parse_element(p);
        if (!x)
            return p->s.b->rc ? NULL : ir_list(p->s.b, IR_SEQ, parts.kids, parts.n);
        skip_space(p, nested);
        ir_push(p->s.b, &parts, parse_postfix(p, x));
        skip_space(p, nested);
        if (p->s.b->rc)
            return NULL;
    }
}

/* "|" on the next line goes on with the rule: no rule begins so. */
static bool skip_bar(struct gbnf *p)
{
    size_t start = p->s.at;
    skip_space(p, true);
    if (scan_skip(&p->s, "|"))
        return true;
    p->s.at = start;
    return false;
}

static struct ir *parse_alternatives(struct gbnf *p, bool nested)
{
    struct ir_vec alternatives = {0};
    do {
        skip_space(p, nested || alternatives.n);
        ir_push(p->s.b, &alternatives, parse_sequence(p, nested));
    } while (!p->s.b->rc && skip_bar(p));
    return ir_list(p->s.b, IR_ALT, alternatives.kids, alternatives.n);
}

static void parse_rule(struct gbnf *p)
{
    struct scan *s = &p->s;
    size_t start = s->at;
    while (is_name(scan_peek(s)))
        s->at++;
    if (s->at == start) {
        scan_fail(s, ERR_FORMAT, "expected a rule (name ::= …)");
        return;
    }
    uint32_t rule = rule_named(p, s->text + start, s->at - start);
    skip_space(p, false);
    if (!scan_skip(s, "::=")) {
        scan_fail(s, ERR_FORMAT, "expected ::= after the name of a rule");
        return;
    }
    skip_space(p, true);
    struct ir *body = parse_alternatives(p, false);
    if (!body)
        return;
    if (scan_peek(s) >= 0 && scan_peek(s) != '\n' && scan_peek(s) != '\r') {
        scan_fail(s, ERR_FORMAT, "expected an element, | or the end of the line");
        return;
    }
    if (s->b->rules[rule].body) {
        scan_fail(s, ERR_FORMAT, "rule \"%s\" is defined twice", s->b->rules[rule].name);
        return;
    }
    s->b->rules[rule].body = body;
}

struct ir *gbnf_parse(struct ir_builder *b, const char *text, size_t n)
{
    struct gbnf p = {.s = {.b = b, .what = "grammar", .text = text, .n = n}};
    uint32_t root = rule_named(&p, "root", 4);
    for (skip_space(&p, true); !b->rc && scan_peek(&p.s) >= 0; skip_space(&p, true))
        parse_rule(&p);
    for (uint32_t r = 0; r < b->n_rules && !b->rc; r++)
        if (!b->rules[r].body)
            ir_fail(b, ERR_FORMAT, "grammar: rule \"%s\" is %s", b->rules[r].name,
                    r == root ? "missing: it is where the text begins" : "used but not defined");
    return b->rc ? NULL : ir_call(b, root);
}
