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

#include "text/template_tree.h"

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
