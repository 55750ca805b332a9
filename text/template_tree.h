/* template_tree.h - a template before it is rendered: tokens, the tree, the parser. */
#ifndef EXA_TEXT_TEMPLATE_TREE_H
#define EXA_TEXT_TEMPLATE_TREE_H

#include "text/arena.h"
#include "text/template.h"

#include <stdint.h>
#include <string.h>

struct str {
    const char *p;
    size_t n;
};
#define STR(literal) ((struct str){literal, sizeof(literal) - 1})
static inline bool str_is(struct str s, const char *text)
{
    return s.n == strlen(text) && memcmp(s.p, text, s.n) == 0;
}

/* Bytes to show of s with "%.*s" in an error text: at most max, never a part of a character. */
static inline int str_shown(struct str s, size_t max)
{
    size_t n = s.n < max ? s.n : max;
    while (n < s.n && n > 0 && ((unsigned char)s.p[n] & 0xC0) == 0x80)
        n--;
    return (int)n;
}

/* ---- tokens ---- */

enum token_kind {
    TOK_END,
    TOK_DATA, /* text between tags */
    TOK_VAR_BEGIN,
    TOK_VAR_END,
    TOK_BLOCK_BEGIN,
    TOK_BLOCK_END,
    TOK_NAME,
    TOK_STRING,
    TOK_INT,
    TOK_FLOAT,
    TOK_OP,
};
#define OP2(a, b) ((a) << 8 | (b)) /* an operator of two characters */

struct token {
    enum token_kind kind;
    int line;
    int op;
    struct str text;
    int64_t i;
    double f;
};

struct tokens {
    struct token *items; /* owned (malloc); the last one is TOK_END */
    size_t n, cap;
};
/* Strings of tokens point into source or arena. */
int template_lex(struct str source, struct arena *arena, struct tokens *out, struct err *e);

/* ---- the tree ---- */

enum node_kind {
    /* expressions */
    NODE_STRING, /* name */
    NODE_INT,    /* i */
    NODE_FLOAT,  /* f */
    NODE_TRUE,
    NODE_FALSE,
    NODE_NONE,
    NODE_NAME,  /* name */
    NODE_LIST,  /* list */
    NODE_TUPLE, /* list */
    NODE_DICT,  /* list of NODE_PAIR: a key, b value */
    NODE_PAIR,
    NODE_ATTR,     /* a.name */
    NODE_ITEM,     /* a[b] */
    NODE_SLICE,    /* a:b:c, each may be NULL */
    NODE_CALL,     /* a(list, kwargs) */
    NODE_FILTER,   /* a|builtin(list, kwargs) */
    NODE_TEST,     /* a is builtin(list, kwargs) */
    NODE_NEGATIVE, /* -a */
    NODE_POSITIVE, /* +a */
    NODE_NOT,
    NODE_AND, /* a, b */
    NODE_OR,
    NODE_BINARY,  /* a op b */
    NODE_CONCAT,  /* list, joined as text */
    NODE_COMPARE, /* a, then list of NODE_OPERAND: op, a */
    NODE_OPERAND,
    NODE_COND,     /* b if a else c (c may be NULL) */
    NODE_CAPTURED, /* the text that a set or filter block captured */
    NODE_KWARG,    /* name = a */
    NODE_SPREAD,   /* *a among the arguments of a call, **a among the named ones */
    /* statements */
    NODE_TEXT,   /* name */
    NODE_OUTPUT, /* a */
    NODE_PRINT,  /* list of NODE_OUTPUT */
    NODE_IF,     /* list of NODE_BRANCH: a test (NULL: else), list body */
    NODE_BRANCH,
    NODE_FOR,          /* a target, b iterable, c filter or NULL, list body, other = else,
                          op: recursive */
    NODE_SET,          /* a target, b value */
    NODE_SET_BLOCK,    /* a target, b expression over NODE_CAPTURED, list body */
    NODE_FILTER_BLOCK, /* b, list as above */
    NODE_WITH,         /* kwargs: NODE_SET each; list body */
    NODE_MACRO,        /* name, kwargs: parameters as NODE_KWARG (a: default or NULL), list body,
                          op: which of the MACRO_ names its body uses */
    NODE_CALL_BLOCK,   /* b call; kwargs and list as of a macro, which the callee sees as caller */
    NODE_BREAK,
    NODE_CONTINUE,
};

/* Names that a macro has only when its body uses them. */
enum { MACRO_VARARGS = 1, MACRO_KWARGS = 2, MACRO_CALLER = 4 };

struct builtin;

struct node {
    uint8_t kind;
    uint16_t depth; /* of the tree below, in nodes */
    int line;
    int op;
    struct str name;
    struct node *a, *b, *c;
    struct node *list, *kwargs, *other;
    struct node *next; /* in the list it belongs to */
    const struct builtin
        *builtin; /* NULL: no such filter or test, an error only when it is reached */
    int64_t i;
    double f;
    const struct hidden *hidden, *hidden_else; /* of a frame, see template_scope.c */
};

/* Names that are undefined when a frame begins. */
struct hidden {
    const struct hidden *next;
    struct str name;
};

struct chat_template {
    struct arena arena;
    struct node *body;
    const struct hidden *hidden;
    bool takes_parts, takes_texts; /* as content of a message */
};

struct parser {
    const struct token *at; /* never past TOK_END */
    struct arena *arena;
    struct err *e;
    int rc;
    int nesting;
    int loops;    /* open for-blocks: break and continue need one */
    int specials; /* MACRO_ names used in the body that is being parsed */
};
struct node *
template_parse(struct parser *p); /* body; may be NULL for an empty template: check p->rc */

/* template_check.c: what Jinja refuses when it compiles: filters and tests that nothing knows,
 * unless they stand in an if. */
int template_check(const struct node *body, struct err *e);

int template_scopes(struct chat_template *t, struct err *e);
/* template_chat.c: fill takes_parts and takes_texts */
void template_probe(struct chat_template *t);
/* template.c: a rendering with at most so many steps */
int template_try(const struct chat_template *t, const struct chat_inputs *in, uint64_t steps,
                 struct buf *out);

/* for template_parse.c and template_parse_expr.c; all return NULL (or false) after an error */
struct node *parse_error(struct parser *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
struct node *parse_unexpected(struct parser *p, const char *expected);
struct node *node_new(struct parser *p, enum node_kind kind);
bool node_depth(struct parser *p, struct node *parent, const struct node *child);
void node_append(struct node ***tail, struct node *n);
bool parser_is_op(const struct parser *p, int op);
bool parser_is_name(const struct parser *p, const char *name);
bool parser_skip_op(struct parser *p, int op);
bool parser_skip_name(struct parser *p, const char *name);
bool parser_expect_op(struct parser *p, int op, const char *shown);
bool parser_enter(struct parser *p);
void parser_leave(struct parser *p);
struct node *parse_expression(struct parser *p);
struct node *parse_tuple(struct parser *p, bool with_cond,
                         const char *end_name); /* one expression, or a, b, … */
struct node *parse_or(struct parser *p);
struct node *parse_target(struct parser *p, bool with_attr);
struct node *parse_filters(struct parser *p, struct node *input, bool start_inline);
struct node *parse_primary(struct parser *p);
struct node *parse_postfix(struct parser *p, struct node *n);
struct node *parse_number(struct parser *p);
/* A node over a, or over a and b; NULL when one of them is. */
struct node *node_1(struct parser *p, enum node_kind kind, struct node *a);
struct node *node_2(struct parser *p, enum node_kind kind, int op, struct node *a, struct node *b);

#endif
