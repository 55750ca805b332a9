/* scores.h - the tokens of an answer or a prompt with their log-probabilities, and which of them may be
 * shown so far.
 *
 * A token may be shown when the text up to its end was: what is held back as the start of a stop
 * string keeps its tokens back too. Pure; grows with the answer.
 */
#ifndef EXA_ROUTER_SCORES_H
#define EXA_ROUTER_SCORES_H

#include "router/models.h"

struct score {
    uint32_t id;
    float logprob;
    bool has_logprob; /* false: the first token of a prompt */
    bool is_end;      /* ended the answer: it has no text */
    uint8_t n_top;
    uint32_t first_top; /* into tops */
    uint32_t chars;     /* of the text before it */
    size_t begin, end;  /* bytes of the text before it, and with it */
};
struct scores {
    struct score *items; /* owned */
    size_t n, cap;
    struct token_logprob *tops; /* owned */
    size_t n_tops, cap_tops;
};

void scores_fini(struct scores *s);
/* 0, or -1: no memory. m NULL: none is known (yet). */
int scores_push(struct scores *s, const struct score *item, const struct msg_logprob *m);
/* What is known of item i now. */
int scores_set(struct scores *s, size_t i, const struct msg_logprob *m);
/* How many of them may be shown when `shown` bytes of text were; at the end of the answer (ended)
 * those whose text was cut by a stop string are left out. */
size_t scores_ready(const struct scores *s, size_t shown, bool ended);

#endif
