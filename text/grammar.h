/* grammar.h - constrained output: what a text may be, as an automaton over UTF-8 bytes, and how far a text has come.
 *
 * Every notation (JSON object, JSON schema, regular expression, choice list, GBNF) becomes one form: rules, each a
 * deterministic automaton over bytes whose edges may also call a rule; what is regular has no calls. A grammar is immutable,
 * reference counted and may be used from several threads.
 *
 * A grammar_state is a plain value of fixed size: copy it with `=` for speculation or for n > 1. It is a function of
 * (grammar, bytes so far) alone, so a state rebuilt from a token log equals (memcmp) the one that was reached live.
 * Every state that was reached can still be completed in bytes. Whether this vocabulary has tokens for it, the mask says
 * (text/grammar_masks.h).
 *
 * Sources: docs/internals/constrained.md; GBNF is the grammar notation that llama.cpp publishes; JSON is RFC 8259; JSON
 * schema is draft 2020-12 with the spellings of older drafts; regular expressions are the subset that Python's re and
 * ECMA-262 share.
 */
#ifndef EXA_TEXT_GRAMMAR_H
#define EXA_TEXT_GRAMMAR_H

#include "base/err.h"
#include "text/token_table.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum grammar_kind {
    GRAMMAR_JSON_OBJECT, /* any JSON object; the source must be empty */
    GRAMMAR_JSON_SCHEMA, /* a JSON schema */
    GRAMMAR_REGEX,       /* a regular expression; the whole text must match */
    GRAMMAR_CHOICE,      /* a JSON array of strings; the text is one of them */
    GRAMMAR_GBNF,        /* rules; the text is a `root` */
};
const char *grammar_kind_name(enum grammar_kind kind); /* "json_schema", … */

/* What one source may cost. Everything over a limit is ERR_LIMIT with a text that names it. */
struct grammar_limits {
    size_t max_source_bytes;
    size_t max_memory_bytes; /* while compiling */
    uint32_t max_nesting;    /* groups, sub-schemas, parentheses */
    uint32_t max_rules;
    uint32_t max_states; /* of all automata together; at most 65535 */
    uint32_t max_repeat; /* the counts in {m,n}, minLength, maxItems, … */
    uint64_t max_work;   /* elementary steps of the compilation: bounds its time */
};
extern const struct grammar_limits GRAMMAR_LIMITS; /* the defaults: about a second at worst */

struct grammar;

/* limits: NULL for GRAMMAR_LIMITS. ERR_LIMIT: over one of them. ERR_FORMAT: the source is not what its notation says (with the
 * line or the place). ERR_CONFIG: well formed, but asks for what is not supported (named), contradicts itself, or calls
 * itself without reading anything (left recursion). Time and memory are bounded whatever the source. */
int grammar_create(struct grammar **out, enum grammar_kind kind, const char *source, size_t n,
                   const struct grammar_limits *limits, struct err *e);
struct grammar *grammar_ref(struct grammar *g); /* from any thread */
void grammar_unref(struct grammar *g);          /* NULL is allowed; the last one frees */
size_t grammar_bytes(const struct grammar *g);  /* memory it holds */
uint32_t grammar_n_states(const struct grammar *g);

enum {
    GRAMMAR_MAX_THREADS = 64, /* readings of one text that are alive together */
    GRAMMAR_MAX_FRAMES =
        512, /* open calls of all of them: bounds nesting (a JSON array or object takes one or two) */
};

struct grammar_thread {
    uint16_t state; /* which has edges on bytes */
    uint16_t frame; /* its innermost open call; 0: none */
};
struct grammar_frame {
    uint16_t ret;    /* the state to go on at */
    uint16_t parent; /* the call around it; always a lower index */
};
struct grammar_state {
    const struct grammar *grammar; /* borrowed */
    uint16_t n_threads;
    uint16_t n_frames; /* with frame 0, which stands for "no call" */
    uint32_t complete; /* 1: the text so far is whole */
    struct grammar_thread threads[GRAMMAR_MAX_THREADS]; /* unused ones are zero */
    struct grammar_frame frames[GRAMMAR_MAX_FRAMES];
};

void grammar_state_init(struct grammar_state *s, const struct grammar *g); /* nothing read yet */
bool grammar_state_equal(const struct grammar_state *a, const struct grammar_state *b);
/* May the generation end here? */
bool grammar_is_complete(const struct grammar_state *s);
/* Nothing but an end may follow. */
bool grammar_is_finished(const struct grammar_state *s);

/* Read bytes, which may cut characters anywhere. ERR_FORMAT: the grammar does not allow them (byte named). ERR_LIMIT: nested
 * deeper, or more ambiguous, than a state can hold. *s is unchanged on failure. */
int grammar_accept_bytes(struct grammar_state *s, const void *bytes, size_t n, struct err *e);
/* Read one token. An id that ends a generation is accepted exactly when the state is complete, and changes nothing. A token
 * without bytes, or outside the vocabulary, is ERR_FORMAT. */
int grammar_accept(struct grammar_state *s, const struct token_table *t, uint32_t id,
                   struct err *e);

#endif
