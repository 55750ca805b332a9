/* template_parse_postfix.c - what follows an expression's first part (subscripts, calls,
 * filters, tests), and what may be assigned to. */
#include "text/template_internal.h"

static struct node *parse_subscript(struct parser *p, struct node *of)
{
    struct node *part[3] = {NULL, NULL, NULL};
    int at = 0;
    bool is_slice = false;
    p->at++;
    while (!parser_is_op(p, ']')) {
        if (parser_skip_op(p, ':')) {
            is_slice = true;
            if (++at > 2)
                return parse_error(p, "a slice has more than three parts");
            continue;
        }
        if (part[at])
            return parse_unexpected(p, "]");
        part[at] = parse_expression(p);
        if (!part[at])
            return NULL;
    }
    if (!is_slice && !part[0])
        return parse_unexpected(p, "a subscript");
    p->at++;
    if (!is_slice)
        return node_2(p, NODE_ITEM, 0, of, part[0]);
    struct node *slice = node_new(p, NODE_SLICE);
    if (!slice)
        return NULL;
    slice->a = part[0];
    slice->b = part[1];
    slice->c = part[2];
    for (int i = 0; i < 3; i++)
        if (!node_depth(p, slice, part[i]))
            return NULL;
    return node_2(p, NODE_ITEM, 0, of, slice);
}

static struct node *parse_dot(struct parser *p, struct node *of)
{
    p->at++;
    if (p->at->kind == TOK_INT)
        return node_2(p, NODE_ITEM, 0, of, parse_number(p));
    if (p->at->kind != TOK_NAME)
        return parse_unexpected(p, "a name after the dot");
    struct node *n = node_1(p, NODE_ATTR, of);
    if (n)
        n->name = p->at++->text;
    return n;
}

static bool parse_call_args(struct parser *p, struct node *call)
{
    struct node **args = &call->list, **kwargs = &call->kwargs;
    int count = 0;
    p->at++;
    while (!parser_is_op(p, ')')) {
        if (count && !parser_expect_op(p, ',', "a comma or )"))
            return false;
        if (parser_is_op(p, ')'))
            break;
        if (++count > TEMPLATE_MAX_ARGS)
            return parse_error(p, "more than %d arguments", TEMPLATE_MAX_ARGS);
        bool all = parser_is_op(p, '*'), all_named = parser_is_op(p, OP2('*', '*'));
        bool named = p->at->kind == TOK_NAME && p->at[1].kind == TOK_OP && p->at[1].op == '=';
        if (!named && !all_named && !all && call->kwargs)
            return parse_error(p, "a positional argument follows a named one");
        struct str name = p->at->text;
        p->at += named ? 2 : all || all_named;
        struct node *arg = parse_expression(p);
        if (named || all || all_named)
            arg = node_1(p, named ? NODE_KWARG : NODE_SPREAD, arg);
        if (!arg || !node_depth(p, call, arg))
            return false;
        if (named)
            arg->name = name;
        node_append(named || all_named ? &kwargs : &args, arg);
    }
    p->at++;
    return true;
}

static struct node *parse_call(struct parser *p, struct node *callee)
{
    struct node *n = node_1(p, NODE_CALL, callee);
    return n && parse_call_args(p, n) ? n : NULL;
}

struct node *parse_postfix(struct parser *p, struct node *n)
{
    while (n) {
        if (parser_is_op(p, '.'))
            n = parse_dot(p, n);
        else if (parser_is_op(p, '['))
            n = parse_subscript(p, n);
        else if (parser_is_op(p, '('))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

static bool test_argument_follows(const struct parser *p)
{
    switch (p->at->kind) {
    case TOK_NAME:
        return !parser_is_name(p, "else") && !parser_is_name(p, "or") && !parser_is_name(p, "and");
    case TOK_STRING:
    case TOK_INT:
    case TOK_FLOAT:
        return true;
    default:
        return parser_is_op(p, '(') || parser_is_op(p, '[') || parser_is_op(p, '{');
    }
}

/* The name of a filter or test. Jinja allows dots in it, though nothing here is called so: true. */
static bool parse_dotted(struct parser *p, struct str *name)
{
    *name = p->at++->text;
    bool dotted = false;
    while (parser_is_op(p, '.') && p->at[1].kind == TOK_NAME) {
        p->at += 2;
        dotted = true;
    }
    return dotted;
}

static struct node *parse_test(struct parser *p, struct node *subject)
{
    bool negated = parser_skip_name(p, "not");
    if (p->at->kind != TOK_NAME)
        return parse_unexpected(p, "the name of a test");
    struct node *n = node_1(p, NODE_TEST, subject);
    if (!n)
        return NULL;
    n->builtin = parse_dotted(p, &n->name) ? NULL : test_find(n->name);
    if (parser_is_op(p, '(')) {
        if (!parse_call_args(p, n))
            return NULL;
    } else if (test_argument_follows(p)) {
        if (parser_is_name(p, "is"))
            return parse_error(p, "tests cannot be chained with is");
        struct node *arg = parse_primary(p);
        arg = arg ? parse_postfix(p, arg) : NULL;
        if (!arg || !node_depth(p, n, arg))
            return NULL;
        n->list = arg;
    }
    return negated ? node_1(p, NODE_NOT, n) : n;
}

/* After the name of a filter, or after |. */
static struct node *parse_filter(struct parser *p, struct node *input)
{
    if (p->at->kind != TOK_NAME)
        return parse_unexpected(p, "the name of a filter");
    struct node *n = node_1(p, NODE_FILTER, input);
    if (!n)
        return NULL;
    n->builtin = parse_dotted(p, &n->name) ? NULL : filter_find(n->name);
    if (parser_is_op(p, '(') && !parse_call_args(p, n))
        return NULL;
    return n;
}

struct node *parse_filters(struct parser *p, struct node *n, bool start_inline)
{
    if (start_inline)
        n = parse_filter(p, n);
    while (n) {
        if (parser_skip_op(p, '|'))
            n = parse_filter(p, n);
        else if (parser_skip_name(p, "is"))
            n = parse_test(p, n);
        else if (parser_is_op(p, '('))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

/* ---- what may be assigned to ---- */

static struct node *parse_target_name(struct parser *p, bool with_attr)
{
    static const char *const RESERVED[] = {"true", "false", "none", "True", "False", "None"};
    if (p->at->kind != TOK_NAME)
        return parse_unexpected(p, "a name to assign to");
    for (size_t i = 0; i < sizeof RESERVED / sizeof RESERVED[0]; i++)
        if (parser_is_name(p, RESERVED[i]))
            return parse_error(p, "cannot assign to %s", RESERVED[i]);
    struct node *n = node_new(p, NODE_NAME);
    if (!n)
        return NULL;
    n->name = p->at++->text;
    return with_attr && parser_is_op(p, '.') ? parse_dot(p, n) : n;
}

static struct node *parse_target_item(struct parser *p, bool with_attr)
{
    if (!parser_is_op(p, '('))
        return parse_target_name(p, with_attr);
    if (!parser_enter(p))
        return NULL;
    p->at++;
    struct node *n = parse_target(p, with_attr);
    parser_leave(p);
    return n && parser_expect_op(p, ')', ")") ? n : NULL;
}

struct node *parse_target(struct parser *p, bool with_attr)
{
    struct node *first = parse_target_item(p, with_attr);
    if (!first || !parser_is_op(p, ','))
        return first;
    struct node *n = node_new(p, NODE_TUPLE);
    if (!n || !node_depth(p, n, first))
        return NULL;
    struct node **tail = &n->list;
    node_append(&tail, first);
    while (parser_skip_op(p, ',') && (p->at->kind == TOK_NAME || parser_is_op(p, '(')) &&
           !parser_is_name(p, "in")) {
        struct node *item = parse_target_item(p, with_attr);
        if (!item || !node_depth(p, n, item))
            return NULL;
        node_append(&tail, item);
    }
    return n;
}
