/* grammar_internal.h - a compiled grammar as its readers see it. Inside of text/grammar_*.c only.
 *
 * States of all rules share one numbering; state 0 is dead. Only states from which an end can be reached are kept, so a reading
 * that is alive can be completed.
 */
#ifndef EXA_TEXT_GRAMMAR_INTERNAL_H
#define EXA_TEXT_GRAMMAR_INTERNAL_H

#include "text/grammar.h"

#include <stdatomic.h>

enum { GRAMMAR_TOP_STATES = 65535 }; /* numbers are 16 bits */

enum grammar_flag {
    STATE_ACCEPT = 1,
    STATE_BYTES = 2, /* has edges on bytes */
    STATE_TAIL = 4,  /* an end and nothing else: a call that returns here need not be remembered */
    STATE_ENDS = 8,  /* the rule may end on the way of the plain chain from here */
};

struct grammar_call {
    uint16_t start, ret;
};

enum { PLAIN_MIXED = 65535, PLAIN_ENDLESS = 65535 };

struct grammar {
    atomic_uint refs;
    uint32_t n_states; /* with state 0 */
    uint32_t n_classes;
    uint16_t start;
    uint8_t class_of[256];
    uint8_t byte_of[256]; /* some byte of each class */
    uint8_t *flags;       /* [n_states] */
    uint16_t *next;       /* [n_states][n_classes] */
    uint32_t *call_at;    /* [n_states + 1] into calls */
    struct grammar_call *calls;
    /* Where any plain character (token_table.h) leads: the one state, 0 for nowhere, PLAIN_MIXED when it depends. */
    uint16_t *plain_next; /* [n_states] */
    /* How many plain characters in a row can be taken so, through states of the rule that call nothing, and where that stops. */
    uint16_t *plain_chain; /* [n_states] */
    uint16_t *plain_end;   /* [n_states] */
    size_t bytes;
};

static inline uint16_t grammar_step(const struct grammar *g, uint16_t state, uint8_t byte)
{
    return g->next[(size_t)state * g->n_classes + g->class_of[byte]];
}

void grammar_find_plain(struct grammar *g);
/* ERR_LIMIT: even the start needs more readings than a state holds. */
int grammar_start(struct grammar_state *s, const struct grammar *g, struct err *e);

#endif
