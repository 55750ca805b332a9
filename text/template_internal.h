/* template_internal.h - what the parts of the template engine share: source → tokens
 * (template_lex.c) → tree (template_parse.c, template_parse_expr.c) → output (template_eval.c,
 * template_eval_expr.c and the built-ins).
 *
 * The tree lives in the compiled template and is never written after parsing. Everything an
 * evaluation makes lives in its own arena and is freed at its end, so values are plain structs
 * that may be copied.
 */
#ifndef EXA_TEXT_TEMPLATE_INTERNAL_H
#define EXA_TEXT_TEMPLATE_INTERNAL_H

#include "text/arena.h"
#include "text/template.h"

#include <stdint.h>
#include <string.h>

enum {
    TEMPLATE_MAX_SOURCE = 256 << 10,    /* published ones are under 32 KiB */
    TEMPLATE_MAX_TREE_BYTES = 64 << 20, /* of the parsed form */
    TEMPLATE_MAX_NESTING = 160,         /* of expressions and blocks in the source */
    TEMPLATE_MAX_DEPTH = 500,      /* of evaluation: what macros that call each other add up to */
    TEMPLATE_MAX_VALUE_DEPTH = 64, /* of lists in lists when they are compared or printed */
    TEMPLATE_MAX_RANGE = 100000,   /* as Jinja's sandbox */
    TEMPLATE_MAX_ARGS = 255,
    TEMPLATE_STEPS = 2000000,          /* an evaluation's budget: this, */
    TEMPLATE_STEPS_PER_MESSAGE = 5000, /* and this for each message, */
    TEMPLATE_STEPS_MAX = 50000000,     /* at most (some seconds); */
    TEMPLATE_STEPS_PER_VALUE = 16,     /* and this for each value in them and in the tools */
    TEMPLATE_STEPS_PROBE = 50000,      /* for each rendering that looks what a template knows */
    TEMPLATE_BYTES_PER_STEP = 32,      /* work on long strings counts by their bytes */
    TEMPLATE_MEMORY = 32 << 20,        /* an evaluation's memory: this, */
    TEMPLATE_MEMORY_PER_BYTE = 16,     /* and this for each byte of the messages */
    TEMPLATE_MEMORY_PER_VALUE = 512,   /* and for each value in them */
};

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

/* ---- values ---- */

enum value_type {
    VALUE_UNDEFINED, /* s: what was not defined, for messages */
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_STRING,
    VALUE_LIST,
    VALUE_DICT,
    VALUE_NAMESPACE,
    VALUE_LOOP,
    VALUE_CALLABLE,
};

struct value {
    enum value_type type;
    union {
        bool b;
        int64_t i;
        double f;
        struct str s;
        struct list *list;
        struct dict *dict; /* also of a namespace */
        struct loop *loop;
        struct callable *callable;
    };
};

enum list_kind { LIST_LIST, LIST_TUPLE, LIST_RANGE, LIST_VIEW, LIST_GENERATOR };
enum view_kind { VIEW_ITEMS, VIEW_KEYS, VIEW_VALUES };
struct list {
    struct value *items;
    size_t n, cap;
    enum list_kind kind;
    bool group;                /* a tuple of groupby: its parts have names */
    int64_t first, stop, step; /* of a range; first of a view: enum view_kind */
    size_t taken;              /* a generator can be walked once: items that are gone */
};

struct dict {
    struct value *keys, *values;
    size_t n, cap;
};

struct loop {
    struct list *items;
    size_t at;
    int64_t depth;
    struct value last_seen; /* loop.changed() */
    bool has_last_seen;
    const struct node *node; /* the for-block, and where it stands: for recursion */
    struct scope *scope;
};

enum { MAX_BOUND = 6 };
struct args {
    const struct value *pos;
    size_t n_pos;
    const struct kwarg *kw;
    size_t n_kw;
    const struct value *bound[MAX_BOUND]; /* by the builtin's parameters; NULL: not given */
};
struct kwarg {
    struct str name;
    struct value value;
};

struct eval;
typedef int builtin_fn(struct eval *ev, const struct value *self, const struct args *a,
                       struct value *out);
struct builtin {
    const char *name;
    builtin_fn *fn;
    /* "a,?b,c": a must be given, b and c may; "/" first: none of them by name; "*": the function
     * looks at pos and kw itself */
    const char *params;
};
#define BUILTIN_COUNT(table) (sizeof(table) / sizeof(table)[0])
const struct builtin *builtin_find(const struct builtin *table, size_t n, struct str name);
int builtin_call(struct eval *ev, const struct builtin *b, const struct value *self, struct args *a,
                 struct value *out);
const struct builtin *filter_find(struct str name);
const struct builtin *test_find(struct str name);
const struct builtin *method_find(enum value_type type, struct str name);
const struct builtin *method_find_string(struct str name);
const struct builtin *method_find_string_more(struct str name);
/* Python has such a method, and the sandbox refuses it because it changes the value. */
bool method_is_refused(enum value_type type, struct str name);
const struct builtin *function_find(struct str name); /* globals */

struct callable {
    const struct builtin *builtin; /* NULL: a macro */
    struct value self;
    const struct node *macro;
    struct scope *closure;
};

/* ---- evaluation ---- */

struct var {
    struct var *next;
    struct str name;
    struct value value;
};
struct scope {
    struct scope *parent;
    struct var *vars;
};

/* A string under construction in the arena. */
struct builder {
    struct eval *ev;
    char *p;
    size_t n, cap;
    int rc;
};

struct eval {
    struct arena arena;
    struct buf *out;
    struct builder *capture; /* when set, output goes there */
    struct err *e;
    uint64_t steps_left;
    int depth;
    int line;
    struct value captured; /* what NODE_CAPTURED stands for */
    int64_t now_s;         /* for strftime_now() */
};

enum { OPERAND_IN = 1, OPERAND_NOT_IN = 2 }; /* op of NODE_OPERAND besides the signs */
enum { FLOW_BREAK = 1, FLOW_CONTINUE = 2 };

int eval_fail(struct eval *ev, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int eval_steps(struct eval *ev, uint64_t n);
static inline int eval_bytes(struct eval *ev, size_t n)
{
    return eval_steps(ev, n / TEMPLATE_BYTES_PER_STEP);
}
void *eval_alloc(struct eval *ev, size_t n); /* NULL: the error is set; return eval_nomem(ev) */
int eval_nomem(struct eval *ev);
int eval_enter(struct eval *ev);
void eval_leave(struct eval *ev);
int eval_write(struct eval *ev, struct str s);
int eval_expr(struct eval *ev, struct scope *sc, const struct node *n, struct value *out);
int eval_block(struct eval *ev, struct scope *sc, const struct node *body);
int eval_call(struct eval *ev, const struct value *callee, struct args *a, struct value *out);
int eval_macro(struct eval *ev, const struct callable *m, const struct args *a, struct value *out);
/* template_macro.c: arguments to parameters, in the scope of the macro's body */
int macro_bind(struct eval *ev, struct scope *sc, const struct node *macro, const struct args *a);
int eval_call_with(struct eval *ev, struct scope *sc, const struct node *n,
                   const struct value *caller, struct value *out);
int eval_recursion(struct eval *ev, const struct loop *loop, const struct args *a,
                   struct value *out); /* loop(items) */
int eval_binary(struct eval *ev, int op, const struct value *a, const struct value *b,
                struct value *out);
int eval_slice(struct eval *ev, const struct value *v, const struct value *from,
               const struct value *to, const struct value *step, struct value *out);
/* The builtin as a value to call; self: the value whose method it is, or NULL. */
int eval_bind(struct eval *ev, const struct builtin *b, const struct value *self,
              struct value *out);
int eval_get_attr(struct eval *ev, const struct value *v, struct str name, struct value *out);
int eval_get_item(struct eval *ev, const struct value *v, const struct value *key,
                  struct value *out);
int eval_undefined(struct eval *ev, const struct value *v); /* the error: v is undefined */
int eval_negative(struct eval *ev, const struct value *v, struct value *out);
struct scope *scope_new(struct eval *ev, struct scope *parent);
struct scope *scope_hiding(struct eval *ev, struct scope *parent, const struct hidden *hidden);
int scope_set(struct eval *ev, struct scope *sc, struct str name, const struct value *v);
int scope_get(struct eval *ev, struct scope *sc, struct str name, const struct value **out);

/* template_func.c */
int builtin_arg_int(struct eval *ev, const struct value *v, int64_t absent,
                    int64_t *out); /* v may be NULL */
int builtin_arg_str(struct eval *ev, const struct value *v, struct str absent, struct str *out);

/* template_value.c */
static inline struct value value_bool(bool b)
{
    return (struct value){.type = VALUE_BOOL, .b = b};
}
static inline struct value value_int(int64_t i)
{
    return (struct value){.type = VALUE_INT, .i = i};
}
static inline struct value value_str(struct str s)
{
    return (struct value){.type = VALUE_STRING, .s = s};
}
static inline struct value value_none(void)
{
    return (struct value){.type = VALUE_NONE};
}
static inline struct value value_undefined(struct str name)
{
    return (struct value){.type = VALUE_UNDEFINED, .s = name};
}
static inline bool value_is_number(const struct value *v)
{
    return v->type == VALUE_BOOL || v->type == VALUE_INT || v->type == VALUE_FLOAT;
}
static inline bool value_is_integer(const struct value *v) /* as Python: a bool is one */
{
    return v->type == VALUE_BOOL || v->type == VALUE_INT;
}
static inline int64_t value_as_int(const struct value *v)
{
    return v->type == VALUE_BOOL ? v->b : v->i;
}
static inline double value_as_float(const struct value *v)
{
    return v->type == VALUE_FLOAT ? v->f : (double)value_as_int(v);
}
const char *value_type_name(const struct value *v); /* Python's */
bool value_truth(const struct value *v);
int value_equal(struct eval *ev, const struct value *a, const struct value *b, bool *out);
int value_compare(struct eval *ev, const struct value *a, const struct value *b,
                  int *out); /* TypeError: ERR_FORMAT */
int value_contains(struct eval *ev, const struct value *box, const struct value *item, bool *out);
int value_length(struct eval *ev, const struct value *v, size_t *out);
/* The items that a for-loop would see. Do not write to the list: it may be the value's own. */
int value_items(struct eval *ev, const struct value *v, struct list **out);
int value_check_key(struct eval *ev, const struct value *v); /* error: not hashable */

/* template_input.c: what the caller gives, as values whose strings point into it */
int value_from_json(struct eval *ev, const json_t *j, struct value *out);
int messages_from_plain(struct eval *ev, const struct chat_message *m, size_t n, struct value *out);
/* The variables that transformers' apply_chat_template gives to a template. */
int inputs_define(struct eval *ev, struct scope *sc, const struct chat_inputs *in,
                  const struct value *messages);
struct list *list_new(struct eval *ev, enum list_kind kind);
int list_push(struct eval *ev, struct list *l, const struct value *v);
static inline struct value value_list(struct list *l)
{
    return (struct value){.type = VALUE_LIST, .list = l};
}
struct dict *dict_new(struct eval *ev);
/* As dict_set for a key that is hashable and not there yet: no search. */
int dict_append(struct eval *ev, struct dict *d, const struct value *key, const struct value *v);
int dict_set(struct eval *ev, struct dict *d, const struct value *key, const struct value *v);
int dict_get(struct eval *ev, const struct dict *d, const struct value *key,
             const struct value **out); /* *out NULL: no */

/* template_print.c */
struct json_style {
    bool ascii; /* escape all above U+007F */
    bool sort_keys;
    bool has_indent;
    struct str indent; /* one level's */
    struct str item_separator, key_separator;
};
void build_put(struct builder *b, struct str s);
void build_repeat(struct builder *b, char c, size_t n);
int build_done(struct builder *b, struct str *out);
void build_value(struct builder *b, const struct value *v, bool repr);
int value_to_str(struct eval *ev, const struct value *v, struct str *out); /* str(v) */
int value_to_json(struct eval *ev, const struct value *v, const struct json_style *style,
                  struct str *out);

/* template_string.c: Python's str methods on code points; results may point into s */
bool str_find(struct str s, struct str part, size_t from, size_t *at);
struct str str_strip(struct str s, const struct str *chars, bool left, bool right);
enum str_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITAL, CASE_TITLE_FILTER };
int str_case(struct eval *ev, struct str s, enum str_case how, struct str *out);
int char_decimal(uint32_t cp);   /* its digit, or -1; Unicode 14, as Python 3.11: Nd, and */
bool char_is_digit(uint32_t cp); /* superscripts, circled digits … too */
static inline bool char_is_decimal(uint32_t cp)
{
    return char_decimal(cp) >= 0;
}
int str_replace(struct eval *ev, struct str s, struct str from, struct str to, int64_t count,
                struct str *out);
int str_split(struct eval *ev, struct str s, const struct str *sep, int64_t max, bool from_right,
              struct list **out);
int str_lines(struct eval *ev, struct str s, bool keep_ends, struct list **out);
int str_reverse(struct eval *ev, struct str s, struct str *out);
int str_number(struct str s, bool *is_int, int64_t *i,
               double *f); /* Python's int() or float() of text; 0 or -1 */

/* template_format.c, template_braces.c: Python's "…" % args and "…".format(…) */
int format_percent(struct eval *ev, struct str format, const struct value *args, struct value *out);
int format_braces(struct eval *ev, struct str format, const struct args *a, struct value *out);

#endif
