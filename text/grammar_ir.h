/* grammar_ir.h - what all notations become first: expressions over characters and rules, and how they are built.
 *
 * Owner: one grammar_create call. Builders never fail loudly: the first fault sets rc and the text, and from then on they
 * return NULL, which all of them accept; a front end checks once at its end.
 */
#ifndef EXA_TEXT_GRAMMAR_IR_H
#define EXA_TEXT_GRAMMAR_IR_H

#include "base/err.h"
#include "text/arena.h"
#include "text/grammar.h"

enum ir_kind {
    IR_NONE,  /* matches nothing at all */
    IR_BYTES, /* these bytes; n = 0: the empty text */
    IR_SET,   /* one character of a set */
    IR_SEQ,
    IR_ALT,
    IR_REPEAT, /* kids[0], min … max times */
    IR_RULE,
    IR_AND,      /* what both kids match; regular kids only */
    IR_MULTIPLE, /* decimal digits, any number of them, whose value is a multiple of min */
    IR_MINUS,    /* what kids[0] matches and kids[1] does not; regular kids only */
};
enum { IR_INF = UINT32_MAX };

struct cp_range {
    uint32_t lo, hi; /* code points, both included */
};
struct cp_set {
    struct cp_range *r; /* ascending, apart by at least one; in the arena */
    uint32_t n;
};

struct ir {
    uint8_t kind;
    uint16_t depth; /* of the tree below, rules not followed */
    uint32_t n;     /* kids or bytes */
    uint64_t size;  /* about how many automaton nodes it takes when written out */
    union {
        struct ir **kids;
        const uint8_t *bytes;
        struct cp_set set;
        uint32_t rule;
    };
    uint32_t min, max; /* IR_REPEAT; IR_MULTIPLE: min */
};

struct ir_rule {
    const char *name; /* for messages; in the arena */
    struct ir *body;  /* NULL: not defined yet */
    bool apart;       /* never written into its callers: it is shared on purpose */
    uint32_t line;    /* where it is used or defined first; 0: none */
};

struct ir_builder {
    struct arena arena;
    const struct grammar_limits *limits;
    struct ir_rule *rules; /* in the arena */
    uint32_t n_rules, cap_rules;
    uint64_t work; /* steps done; compared with limits->max_work */
    int rc;
    struct err *e;
};

void ir_builder_init(struct ir_builder *b, const struct grammar_limits *limits, struct err *e);
void ir_builder_fini(struct ir_builder *b);

/* The first fault counts. Returns NULL. */
void *ir_fail(struct ir_builder *b, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void *ir_alloc(struct ir_builder *b, size_t n);
/* Count n steps; false when that is too much. */
bool ir_work(struct ir_builder *b, uint64_t n);

struct ir *ir_none(struct ir_builder *b);
struct ir *ir_empty(struct ir_builder *b);
struct ir *ir_bytes(struct ir_builder *b, const void *bytes, size_t n); /* copied */
struct ir *ir_text(struct ir_builder *b, const char *s);
struct ir *ir_set(struct ir_builder *b, struct cp_set set); /* kept; empty: ir_none */
struct ir *ir_repeat(struct ir_builder *b, struct ir *kid, uint32_t min, uint32_t max);
struct ir *ir_optional(struct ir_builder *b, struct ir *kid);
struct ir *ir_call(struct ir_builder *b, uint32_t rule);
struct ir *ir_and(struct ir_builder *b, struct ir *x, struct ir *y);
struct ir *ir_multiple(struct ir_builder *b, uint32_t of);
struct ir *ir_minus(struct ir_builder *b, struct ir *x, struct ir *y);
/* ir_seq(b, x, y, …) and ir_alt(b, x, y, …) */
struct ir *ir_list(struct ir_builder *b, enum ir_kind kind, struct ir *const *kids, size_t n);
#define IR_KIDS(...)                                                                               \
    (struct ir *const[]){__VA_ARGS__}, sizeof((struct ir *[]){__VA_ARGS__}) / sizeof(struct ir *)
#define ir_seq(b, ...) ir_list(b, IR_SEQ, IR_KIDS(__VA_ARGS__))
#define ir_alt(b, ...) ir_list(b, IR_ALT, IR_KIDS(__VA_ARGS__))

/* For an expression that is used in several places: itself when it is small, else a call to a rule for it. */
struct ir *ir_share(struct ir_builder *b, struct ir *x, const char *name);

/* A list that grows, for kids whose number is not known before. */
struct ir_vec {
    struct ir **kids;
    size_t n, cap;
};
void ir_push(struct ir_builder *b, struct ir_vec *v, struct ir *kid);

uint32_t ir_rule_new(struct ir_builder *b, const char *name, size_t n); /* name is copied */

/* Sets. Every function gives a new set. */
struct cp_set cp_set_of(struct ir_builder *b, const struct cp_range *r,
                        size_t n); /* any order, may overlap */
struct cp_set cp_set_union(struct ir_builder *b, struct cp_set x, struct cp_set y);
struct cp_set cp_set_not(struct ir_builder *b, struct cp_set x); /* surrogates are never in a set */
bool cp_set_has(struct cp_set x, uint32_t cp);
#define CP_SET(b, ...)                                                                             \
    cp_set_of(b, (struct cp_range[]){__VA_ARGS__},                                                 \
              sizeof((struct cp_range[]){__VA_ARGS__}) / sizeof(struct cp_range))

/* Front ends: they add rules and return the whole expression, NULL with rc set. text is valid UTF-8. */
struct ir *gbnf_parse(struct ir_builder *b, const char *text, size_t n);
struct ir *regex_parse(struct ir_builder *b, const char *text, size_t n);
struct ir *json_schema_parse(struct ir_builder *b, const char *text, size_t n);
struct ir *choice_parse(struct ir_builder *b, const char *text, size_t n);
struct ir *json_object_build(struct ir_builder *b);

/* Compile; the builder's rules may grow. */
struct grammar *grammar_compile(struct ir_builder *b, struct ir *root);

#endif
