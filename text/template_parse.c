/* template_parse.c - statements of a template; also the helpers that the expression parser
 * shares. Source: Jinja2 documentation, "Template Designer", and the loop controls that
 * transformers switches on. */
#include "text/template_internal.h"

#include <stdio.h>

/* ---- helpers ---- */

struct node *parse_error(struct parser *p, const char *fmt, ...)
{
    if (p->rc)
        return NULL;
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    p->rc = err_set(p->e, ERR_FORMAT, "chat template line %d: %s", p->at->line, text);
    return NULL;
}

static const char *token_shown(const struct token *t, char *buf, size_t cap)
{
    switch (t->kind) {
    case TOK_END:
        return "the end of the template";
    case TOK_DATA:
        return "text";
    case TOK_VAR_BEGIN:
        return "{{";
    case TOK_VAR_END:
        return "}}";
    case TOK_BLOCK_BEGIN:
        return "{%";
    case TOK_BLOCK_END:
        return "%}";
    default:
        snprintf(buf, cap, "\"%.*s\"", str_shown(t->text, 40), t->text.p);
        return buf;
    }
}

struct node *parse_unexpected(struct parser *p, const char *expected)
{
    char shown[64];
    return parse_error(p, "expected %s, found %s", expected,
                       token_shown(p->at, shown, sizeof shown));
}

struct node *node_new(struct parser *p, enum node_kind kind)
{
    struct node *n = arena_alloc(p->arena, sizeof *n);
    if (!n) {
        if (!p->rc)
            p->rc = err_set(p->e, p->arena->over ? ERR_LIMIT : ERR_NOMEM,
                            "chat template line %d: too much memory", p->at->line);
        return NULL;
    }
    n->kind = (uint8_t)kind;
    n->line = p->at->line;
    n->depth = 1;
    return n;
}

bool node_depth(struct parser *p, struct node *parent, const struct node *child)
{
    if (!child)
        return !p->rc;
    if (child->depth >= parent->depth)
        parent->depth = (uint16_t)(child->depth + 1);
    if (parent->depth <= TEMPLATE_MAX_NESTING)
        return true;
    if (!p->rc)
        p->rc = err_set(p->e, ERR_LIMIT, "chat template line %d: nested deeper than %d",
                        p->at->line, TEMPLATE_MAX_NESTING);
    return false;
}

void node_append(struct node ***tail, struct node *n)
{
    **tail = n;
    *tail = &n->next;
}

bool parser_is_op(const struct parser *p, int op)
{
    return p->at->kind == TOK_OP && p->at->op == op;
}

bool parser_is_name(const struct parser *p, const char *name)
{
    return p->at->kind == TOK_NAME && str_is(p->at->text, name);
}

bool parser_skip_op(struct parser *p, int op)
{
    if (!parser_is_op(p, op))
        return false;
    p->at++;
    return true;
}

bool parser_skip_name(struct parser *p, const char *name)
{
    if (!parser_is_name(p, name))
        return false;
    p->at++;
    return true;
}

bool parser_expect_op(struct parser *p, int op, const char *shown)
{
    if (parser_skip_op(p, op))
        return true;
    parse_unexpected(p, shown);
    return false;
}

bool parser_enter(struct parser *p)
{
    if (p->rc)
        return false;
    if (p->nesting == TEMPLATE_MAX_NESTING) {
        p->rc = err_set(p->e, ERR_LIMIT, "chat template line %d: nested deeper than %d",
                        p->at->line, TEMPLATE_MAX_NESTING);
        return false;
    }
    p->nesting++;
    return true;
}

void parser_leave(struct parser *p)
{
    p->nesting--;
}

/* ---- blocks ---- */

static struct node *parse_body(struct parser *p, const char *const *ends);

static bool expect_block_end(struct parser *p)
{
    if (p->rc)
        return false;
    if (p->at->kind != TOK_BLOCK_END) {
        parse_unexpected(p, "%}");
        return false;
    }
    p->at++;
    return true;
}

/* The body up to "{% END": the name after the mark is left for the caller to read. Depth of
 * `owner` follows. */
static bool parse_body_of(struct parser *p, struct node *owner, struct node **where,
                          const char *const *ends)
{
    if (!expect_block_end(p))
        return false;
    *where = parse_body(p, ends);
    for (const struct node *n = *where; n; n = n->next)
        if (!node_depth(p, owner, n))
            return false;
    return !p->rc;
}

static bool link_expr(struct parser *p, struct node *owner, struct node **where, struct node *expr)
{
    *where = expr;
    return expr && node_depth(p, owner, expr);
}

static struct node *parse_if(struct parser *p)
{
    static const char *const ENDS[] = {"elif", "else", "endif", NULL};
    static const char *const LAST[] = {"endif", NULL};
    struct node *n = node_new(p, NODE_IF);
    if (!n)
        return NULL;
    struct node **tail = &n->list;
    bool is_else = false;
    for (;;) {
        struct node *branch = node_new(p, NODE_BRANCH);
        if (!branch)
            return NULL;
        if (!is_else && !link_expr(p, branch, &branch->a, parse_tuple(p, false, NULL)))
            return NULL;
        if (!parse_body_of(p, branch, &branch->list, is_else ? LAST : ENDS) ||
            !node_depth(p, n, branch))
            return NULL;
        node_append(&tail, branch);
        if (parser_skip_name(p, "endif"))
            return n;
        is_else = parser_is_name(p, "else");
        p->at++;
    }
}

static struct node *parse_for(struct parser *p)
{
    static const char *const ENDS[] = {"else", "endfor", NULL};
    static const char *const LAST[] = {"endfor", NULL};
    struct node *n = node_new(p, NODE_FOR);
    if (!n || !link_expr(p, n, &n->a, parse_target(p, false)))
        return NULL;
    if (!parser_skip_name(p, "in"))
        return parse_unexpected(p, "in");
    if (!link_expr(p, n, &n->b, parse_tuple(p, false, "recursive")))
        return NULL;
    if (parser_skip_name(p, "if") && !link_expr(p, n, &n->c, parse_expression(p)))
        return NULL;
    n->op = parser_skip_name(p, "recursive");
    p->loops++;
    bool ok = parse_body_of(p, n, &n->list, ENDS);
    p->loops--;
    if (!ok)
        return NULL;
    if (parser_skip_name(p, "else") && !parse_body_of(p, n, &n->other, LAST))
        return NULL;
    p->at++; /* endfor */
    return n;
}

static struct node *parse_set(struct parser *p)
{
    static const char *const ENDS[] = {"endset", NULL};
    struct node *n = node_new(p, NODE_SET);
    if (!n || !link_expr(p, n, &n->a, parse_target(p, true)))
        return NULL;
    if (parser_skip_op(p, '='))
        return link_expr(p, n, &n->b, parse_tuple(p, true, NULL)) ? n : NULL;
    n->kind = NODE_SET_BLOCK;
    struct node *captured = node_new(p, NODE_CAPTURED);
    if (!captured || !link_expr(p, n, &n->b, parse_filters(p, captured, false)) ||
        !parse_body_of(p, n, &n->list, ENDS))
        return NULL;
    p->at++;
    return n;
}

static struct node *parse_filter_block(struct parser *p)
{
    static const char *const ENDS[] = {"endfilter", NULL};
    struct node *n = node_new(p, NODE_FILTER_BLOCK);
    struct node *captured = n ? node_new(p, NODE_CAPTURED) : NULL;
    if (!captured || !link_expr(p, n, &n->b, parse_filters(p, captured, true)) ||
        !parse_body_of(p, n, &n->list, ENDS))
        return NULL;
    p->at++;
    return n;
}

static struct node *parse_with(struct parser *p)
{
    static const char *const ENDS[] = {"endwith", NULL};
    struct node *n = node_new(p, NODE_WITH);
    if (!n)
        return NULL;
    struct node **tail = &n->kwargs;
    while (p->at->kind != TOK_BLOCK_END) {
        if (n->kwargs && !parser_expect_op(p, ',', "a comma"))
            return NULL;
        struct node *set = node_new(p, NODE_SET);
        if (!set || !link_expr(p, set, &set->a, parse_target(p, false)) ||
            !parser_expect_op(p, '=', "=") || !link_expr(p, set, &set->b, parse_expression(p)) ||
            !node_depth(p, n, set))
            return NULL;
        node_append(&tail, set);
    }
    if (!parse_body_of(p, n, &n->list, ENDS))
        return NULL;
    p->at++;
    return n;
}

static bool parse_parameters(struct parser *p, struct node *macro)
{
    struct node **tail = &macro->kwargs;
    int count = 0;
    bool defaults = false;
    if (!parser_expect_op(p, '(', "("))
        return false;
    while (!parser_is_op(p, ')')) {
        if (macro->kwargs && !parser_expect_op(p, ',', "a comma or )"))
            return false;
        if (parser_is_op(p, ')'))
            break;
        if (p->at->kind != TOK_NAME || ++count > TEMPLATE_MAX_ARGS)
            return parse_unexpected(p, "a parameter's name");
        struct node *param = node_new(p, NODE_KWARG);
        if (!param)
            return false;
        param->name = p->at++->text;
        bool has_default = parser_skip_op(p, '=');
        if (has_default &&
            (!link_expr(p, param, &param->a, parse_expression(p)) || !node_depth(p, macro, param)))
            return false;
        if (defaults && !has_default)
            return parse_error(p, "a parameter without a default follows one with it");
        defaults = defaults || has_default;
        node_append(&tail, param);
    }
    p->at++;
    return true;
}

/* The body of a macro or of a call block: what is around it is not around the body. */
static bool parse_macro_body(struct parser *p, struct node *n, const char *const *ends)
{
    int loops = p->loops, specials = p->specials;
    p->loops = p->specials = 0;
    bool ok = parse_body_of(p, n, &n->list, ends);
    n->op = p->specials;
    p->loops = loops;
    p->specials |= specials;
    p->at += ok;
    return ok;
}

static struct node *parse_macro(struct parser *p)
{
    static const char *const ENDS[] = {"endmacro", NULL};
    struct node *n = node_new(p, NODE_MACRO);
    if (!n)
        return NULL;
    if (p->at->kind != TOK_NAME)
        return parse_unexpected(p, "the macro's name");
    n->name = p->at++->text;
    return parse_parameters(p, n) && parse_macro_body(p, n, ENDS) ? n : NULL;
}

/* {% call(x) m(…) %}: the body is a macro that m sees as caller. */
static struct node *parse_call_block(struct parser *p)
{
    static const char *const ENDS[] = {"endcall", NULL};
    struct node *n = node_new(p, NODE_CALL_BLOCK);
    if (!n)
        return NULL;
    n->name = STR("caller");
    if (parser_is_op(p, '(') && !parse_parameters(p, n))
        return NULL;
    if (!link_expr(p, n, &n->b, parse_expression(p)))
        return NULL;
    if (n->b->kind != NODE_CALL)
        return parse_error(p, "expected a call after \"call\"");
    return parse_macro_body(p, n, ENDS) ? n : NULL;
}

/* {% print a, b %} is {{ a }}{{ b }}. */
static struct node *parse_print(struct parser *p)
{
    struct node *n = node_new(p, NODE_PRINT);
    struct node **tail = n ? &n->list : NULL;
    while (n && p->at->kind != TOK_BLOCK_END) {
        if (n->list && !parser_expect_op(p, ',', "a comma"))
            return NULL;
        struct node *one = node_new(p, NODE_OUTPUT);
        if (!one || !link_expr(p, one, &one->a, parse_expression(p)) || !node_depth(p, n, one))
            return NULL;
        node_append(&tail, one);
    }
    return n;
}

/* {% generation %} marks what a model wrote, for training: its body is rendered as it stands. */
static struct node *parse_generation(struct parser *p)
{
    static const char *const ENDS[] = {"endgeneration", NULL};
    struct node *n = node_new(p, NODE_WITH);
    if (!n || !parse_body_of(p, n, &n->list, ENDS))
        return NULL;
    p->at++;
    return n;
}

static struct node *parse_jump(struct parser *p, enum node_kind kind)
{
    if (!p->loops)
        return parse_error(p, "%s outside of a loop", kind == NODE_BREAK ? "break" : "continue");
    return node_new(p, kind);
}

static struct node *parse_statement(struct parser *p)
{
    static const struct {
        const char *name;
        struct node *(*parse)(struct parser *p);
    } STATEMENTS[] = {
        {"if", parse_if},
        {"for", parse_for},
        {"set", parse_set},
        {"macro", parse_macro},
        {"call", parse_call_block},
        {"print", parse_print},
        {"filter", parse_filter_block},
        {"with", parse_with},
        {"generation", parse_generation},
    };
    if (p->at->kind != TOK_NAME)
        return parse_unexpected(p, "a statement");
    for (size_t i = 0; i < sizeof STATEMENTS / sizeof STATEMENTS[0]; i++)
        if (parser_skip_name(p, STATEMENTS[i].name))
            return STATEMENTS[i].parse(p);
    if (parser_skip_name(p, "break"))
        return parse_jump(p, NODE_BREAK);
    if (parser_skip_name(p, "continue"))
        return parse_jump(p, NODE_CONTINUE);
    return parse_error(p, "statement \"%.*s\" is not supported here", str_shown(p->at->text, 40),
                       p->at->text.p);
}

static struct node *parse_output(struct parser *p)
{
    struct node *n = node_new(p, NODE_OUTPUT);
    if (!n || !link_expr(p, n, &n->a, parse_tuple(p, true, NULL)))
        return NULL;
    if (p->at->kind != TOK_VAR_END)
        return parse_unexpected(p, "}}");
    p->at++;
    return n;
}

static bool is_end(const struct parser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (parser_is_name(p, *ends))
            return true;
    return false;
}

static struct node *parse_one(struct parser *p, const char *const *ends, bool *ended)
{
    struct node *n;
    switch (p->at->kind) {
    case TOK_DATA:
        n = node_new(p, NODE_TEXT);
        if (n)
            n->name = p->at->text;
        p->at++;
        return n;
    case TOK_VAR_BEGIN:
        p->at++;
        return parse_output(p);
    case TOK_BLOCK_BEGIN:
        p->at++;
        *ended = is_end(p, ends);
        if (*ended)
            return NULL;
        n = parse_statement(p);
        return n && expect_block_end(p) ? n : NULL;
    default:
        return parse_unexpected(p, "text or a tag");
    }
}

/* Statements up to one of `ends` (NULL: the end of the template). */
static struct node *parse_body(struct parser *p, const char *const *ends)
{
    struct node *first = NULL, **tail = &first;
    if (!parser_enter(p))
        return NULL;
    while (!p->rc) {
        bool ended = false;
        if (p->at->kind == TOK_END && !ends)
            break;
        if (p->at->kind == TOK_END) {
            parse_error(p, "the template ends before {%% %s %%}",
                        ends[1] ? ends[2] ? ends[2] : ends[1] : ends[0]);
            break;
        }
        struct node *n = parse_one(p, ends, &ended);
        if (!n)
            break;
        node_append(&tail, n);
    }
    parser_leave(p);
    return p->rc ? NULL : first;
}

struct node *template_parse(struct parser *p)
{
    return parse_body(p, NULL);
}
