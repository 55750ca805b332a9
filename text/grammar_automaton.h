/* grammar_automaton.h - from expressions to deterministic automata over bytes and calls. Inside of text/grammar_*.c only.
 *
 * Owner: one grammar_create call; everything lies in the builder's arena.
 */
#ifndef EXA_TEXT_GRAMMAR_AUTOMATON_H
#define EXA_TEXT_GRAMMAR_AUTOMATON_H

#include "text/grammar_ir.h"

/* ---- nondeterministic, built from the end to the start: every builder is told where to go on ---- */
enum nfa_kind { NFA_ACCEPT, NFA_SPLIT, NFA_BYTE, NFA_CALL };
struct nfa_node {
    uint8_t kind, lo, hi; /* NFA_BYTE: one byte in lo … hi */
    uint32_t a, b;        /* next; NFA_SPLIT: both; NFA_CALL: b is the rule */
};
struct nfa {
    struct nfa_node *nodes; /* node 0 is NFA_ACCEPT */
    uint32_t n, cap;
    uint32_t start;
};

/* ---- deterministic ---- */
struct dfa_edge {
    uint8_t lo, hi;
    uint32_t to;
};
struct dfa_call {
    uint32_t rule, ret;
};
struct dfa_state {
    struct dfa_edge *edges; /* ascending, disjoint */
    struct dfa_call *calls;
    uint32_t n_edges, n_calls;
    bool accept;
    bool live; /* an end can be reached; filled by the compiler */
};
struct dfa {
    struct dfa_state *states; /* state 0 is the start */
    uint32_t n, cap;
};

/* What the compiler knows of each rule before automata are made. */
struct rule_plan {
    bool written_in; /* its body stands in for every call */
};
struct rule_plan *rules_plan(struct ir_builder *b); /* [b->n_rules]; NULL: rc is set */

struct automaton_ctx {
    struct ir_builder *b;
    const struct rule_plan *plan; /* [n_plan]; rules made later are never written in */
    uint32_t n_plan;
    bool regular;      /* calls are not possible here (inside IR_AND, IR_MINUS) */
    uint32_t n_states; /* of all automata so far, against limits->max_states */
    uint32_t depth;    /* nesting of this build */
};

/* false: b->rc is set */
bool nfa_build(struct automaton_ctx *c, struct nfa *n, struct ir *x);
uint32_t nfa_add(struct automaton_ctx *c, struct nfa *n, struct nfa_node node);
bool dfa_from_nfa(struct automaton_ctx *c, const struct nfa *n, struct dfa *out);
bool dfa_from_ir(struct automaton_ctx *c, struct ir *x, struct dfa *out);
/* Over x AND y, or x AND NOT y; both without calls. */
bool dfa_product(struct automaton_ctx *c, const struct dfa *x, const struct dfa *y, bool minus,
                 struct dfa *out);
/* As arena_grow, with the fault told. */
void *automaton_grow(struct automaton_ctx *c, void *p, size_t old, size_t n);
uint32_t dfa_state_new(struct automaton_ctx *c, struct dfa *d); /* UINT32_MAX: failed */
void dfa_mark_live(struct ir_builder *b, struct dfa *d, const bool *productive);

#endif
