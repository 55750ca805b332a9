/* template_parse_expr.c - expressions, by Jinja2's grammar (its precedences differ from
 * Python's: ~ binds tighter than +, filters bind tighter than unary minus). */
#include "text/template_internal.h"

static struct node *parse_unary(struct parser *p, bool with_filter);

struct node *node_1(struct parser *p, enum node_kind kind, struct node *a)
{
    struct node *n = a ? node_new(p, kind) : NULL;
    if (!n || !node_depth(p, n, a))
        return NULL;
    n->a = a;
    return n;
}

struct node *node_2(struct parser *p, enum node_kind kind, int op, struct node *a, struct node *b)
{
    struct node *n = b ? node_1(p, kind, a) : NULL;
    if (!n || !node_depth(p, n, b))
        return NULL;
    n->b = b;
    n->op = op;
    return n;
}

/* b if a else c, from the left: "x if y" may be followed by another "if". */
static struct node *parse_cond(struct parser *p)
{
    struct node *value = parse_or(p);
    while (value && parser_skip_name(p, "if")) {
        struct node *n = node_2(p, NODE_COND, 0, parse_or(p), value);
        if (!n)
            return NULL;
        if (parser_skip_name(p, "else")) {
            n->c = parse_expression(p);
            if (!n->c || !node_depth(p, n, n->c))
                return NULL;
        }
        value = n;
    }
    return value;
}

struct node *parse_expression(struct parser *p)
{
    if (!parser_enter(p))
        return NULL;
    struct node *n = parse_cond(p);
    parser_leave(p);
    return n;
}

static struct node *parse_not(struct parser *p);

static struct node *parse_and(struct parser *p)
{
    struct node *left = parse_not(p);
    while (left && parser_skip_name(p, "and"))
        left = node_2(p, NODE_AND, 0, left, parse_not(p));
    return left;
}

struct node *parse_or(struct parser *p)
{
    struct node *left = parse_and(p);
    while (left && parser_skip_name(p, "or"))
        left = node_2(p, NODE_OR, 0, left, parse_and(p));
    return left;
}

static struct node *parse_sum(struct parser *p);

static int comparison(struct parser *p)
{
    static const int OPS[] = {OP2('=', '='), OP2('!', '='), '<', '>', OP2('<', '='), OP2('>', '=')};
    for (size_t i = 0; i < sizeof OPS / sizeof OPS[0]; i++)
        if (parser_skip_op(p, OPS[i]))
            return OPS[i];
    if (parser_skip_name(p, "in"))
        return OPERAND_IN;
    if (parser_is_name(p, "not") && p->at[1].kind == TOK_NAME && str_is(p->at[1].text, "in")) {
        p->at += 2;
        return OPERAND_NOT_IN;
    }
    return 0;
}

static struct node *parse_compare(struct parser *p)
{
    struct node *first = parse_sum(p);
    struct node *n = NULL, **tail = NULL;
    int op;
    while (first && (op = comparison(p))) {
        if (!n) {
            n = node_1(p, NODE_COMPARE, first);
            if (!n)
                return NULL;
            tail = &n->list;
        }
        struct node *operand = node_1(p, NODE_OPERAND, parse_sum(p));
        if (!operand || !node_depth(p, n, operand))
            return NULL;
        operand->op = op;
        node_append(&tail, operand);
    }
    return n ? n : first;
}

static struct node *parse_not(struct parser *p)
{
    if (!parser_skip_name(p, "not"))
        return parse_compare(p);
    if (!parser_enter(p))
        return NULL;
    struct node *n = node_1(p, NODE_NOT, parse_not(p));
    parser_leave(p);
    return n;
}

static struct node *parse_power(struct parser *p)
{
    struct node *left = parse_unary(p, true);
    while (left && parser_skip_op(p, OP2('*', '*')))
        left = node_2(p, NODE_BINARY, OP2('*', '*'), left, parse_unary(p, true));
    return left;
}

static struct node *parse_product(struct parser *p)
{
    static const int OPS[] = {'*', '/', OP2('/', '/'), '%'};
    struct node *left = parse_power(p);
    for (size_t i = 0; left && i < sizeof OPS / sizeof OPS[0];) {
        if (!parser_skip_op(p, OPS[i])) {
            i++;
            continue;
        }
        left = node_2(p, NODE_BINARY, OPS[i], left, parse_power(p));
        i = 0;
    }
    return left;
}

static struct node *parse_concat(struct parser *p)
{
    struct node *first = parse_product(p);
    if (!first || !parser_is_op(p, '~'))
        return first;
    struct node *n = node_new(p, NODE_CONCAT);
    if (!n || !node_depth(p, n, first))
        return NULL;
    struct node **tail = &n->list;
    node_append(&tail, first);
    while (parser_skip_op(p, '~')) {
        struct node *part = parse_product(p);
        if (!part || !node_depth(p, n, part))
            return NULL;
        node_append(&tail, part);
    }
    return n;
}

static struct node *parse_sum(struct parser *p)
{
    struct node *left = parse_concat(p);
    while (left && (parser_is_op(p, '+') || parser_is_op(p, '-'))) {
        int op = p->at++->op;
        left = node_2(p, NODE_BINARY, op, left, parse_concat(p));
    }
    return left;
}

static struct node *parse_sign(struct parser *p)
{
    enum node_kind kind = p->at++->op == '-' ? NODE_NEGATIVE : NODE_POSITIVE;
    if (!parser_enter(p))
        return NULL;
    struct node *n = node_1(p, kind, parse_unary(p, false));
    parser_leave(p);
    return n;
}

static struct node *parse_unary(struct parser *p, bool with_filter)
{
    struct node *n;
    if (parser_is_op(p, '-') || parser_is_op(p, '+'))
        n = parse_sign(p);
    else
        n = parse_primary(p);
    n = n ? parse_postfix(p, n) : NULL;
    return n && with_filter ? parse_filters(p, n, false) : n;
}

/* ---- literals ---- */

/* Neighbouring strings are one. */
static struct node *parse_string(struct parser *p)
{
    struct node *n = node_new(p, NODE_STRING);
    if (!n)
        return NULL;
    n->name = p->at++->text;
    if (p->at->kind != TOK_STRING)
        return n;
    size_t total = n->name.n;
    for (const struct token *t = p->at; t->kind == TOK_STRING; t++)
        total += t->text.n;
    char *all = arena_alloc(p->arena, total);
    if (!all)
        return parse_error(p, "too much memory");
    memcpy(all, n->name.p, n->name.n);
    size_t len = n->name.n;
    for (; p->at->kind == TOK_STRING; p->at++) {
        memcpy(all + len, p->at->text.p, p->at->text.n);
        len += p->at->text.n;
    }
    n->name = (struct str){all, total};
    return n;
}

static struct node *parse_list(struct parser *p)
{
    struct node *n = node_new(p, NODE_LIST);
    if (!n)
        return NULL;
    struct node **tail = &n->list;
    p->at++;
    while (!parser_is_op(p, ']')) {
        if (n->list && !parser_expect_op(p, ',', "a comma or ]"))
            return NULL;
        if (parser_is_op(p, ']'))
            break;
        struct node *item = parse_expression(p);
        if (!item || !node_depth(p, n, item))
            return NULL;
        node_append(&tail, item);
    }
    p->at++;
    return n;
}

static struct node *parse_dict(struct parser *p)
{
    struct node *n = node_new(p, NODE_DICT);
    if (!n)
        return NULL;
    struct node **tail = &n->list;
    p->at++;
    while (!parser_is_op(p, '}')) {
        if (n->list && !parser_expect_op(p, ',', "a comma or }"))
            return NULL;
        if (parser_is_op(p, '}'))
            break;
        struct node *key = parse_expression(p);
        if (!key || !parser_expect_op(p, ':', ":"))
            return NULL;
        struct node *pair = node_2(p, NODE_PAIR, 0, key, parse_expression(p));
        if (!pair || !node_depth(p, n, pair))
            return NULL;
        node_append(&tail, pair);
    }
    p->at++;
    return n;
}

static struct node *parse_parentheses(struct parser *p)
{
    p->at++;
    struct node *n;
    if (parser_is_op(p, ')'))
        n = node_new(p, NODE_TUPLE);
    else
        n = parse_tuple(p, true, NULL);
    return n && parser_expect_op(p, ')', ")") ? n : NULL;
}

static struct node *parse_name(struct parser *p)
{
    static const struct {
        const char *name;
        enum node_kind kind;
    } CONSTANTS[] = {
        {"true", NODE_TRUE},   {"True", NODE_TRUE}, {"false", NODE_FALSE},
        {"False", NODE_FALSE}, {"none", NODE_NONE}, {"None", NODE_NONE},
    };
    for (size_t i = 0; i < sizeof CONSTANTS / sizeof CONSTANTS[0]; i++)
        if (parser_skip_name(p, CONSTANTS[i].name))
            return node_new(p, CONSTANTS[i].kind);
    struct node *n = node_new(p, NODE_NAME);
    if (!n)
        return NULL;
    n->name = p->at++->text;
    p->specials |= str_is(n->name, "varargs")  ? MACRO_VARARGS
                   : str_is(n->name, "kwargs") ? MACRO_KWARGS
                   : str_is(n->name, "caller") ? MACRO_CALLER
                                               : 0;
    return n;
}

struct node *parse_number(struct parser *p)
{
    struct node *n = node_new(p, p->at->kind == TOK_INT ? NODE_INT : NODE_FLOAT);
    if (n) {
        n->i = p->at->i;
        n->f = p->at->f;
        p->at++;
    }
    return n;
}

struct node *parse_primary(struct parser *p)
{
    if (p->rc)
        return NULL;
    switch (p->at->kind) {
    case TOK_NAME:
        return parse_name(p);
    case TOK_STRING:
        return parse_string(p);
    case TOK_INT:
    case TOK_FLOAT:
        return parse_number(p);
    default:
        break;
    }
    if (parser_is_op(p, '('))
        return parse_parentheses(p);
    if (parser_is_op(p, '['))
        return parse_list(p);
    if (parser_is_op(p, '{'))
        return parse_dict(p);
    return parse_unexpected(p, "an expression");
}

static bool tuple_ends(const struct parser *p, const char *end_name)
{
    return p->at->kind == TOK_VAR_END || p->at->kind == TOK_BLOCK_END || parser_is_op(p, ')') ||
           (end_name && parser_is_name(p, end_name));
}

struct node *parse_tuple(struct parser *p, bool with_cond, const char *end_name)
{
    struct node *first = with_cond ? parse_expression(p) : parse_or(p);
    if (!first || !parser_is_op(p, ','))
        return first;
    struct node *n = node_new(p, NODE_TUPLE);
    if (!n || !node_depth(p, n, first))
        return NULL;
    struct node **tail = &n->list;
    node_append(&tail, first);
    while (parser_skip_op(p, ',') && !tuple_ends(p, end_name)) {
        struct node *item = with_cond ? parse_expression(p) : parse_or(p);
        if (!item || !node_depth(p, n, item))
            return NULL;
        node_append(&tail, item);
    }
    return n;
}
