/* answer.h - one request's token log and what becomes of it: text, stop strings, finish reason,
 * usage.
 *
 * Pure. Fed with step entries that carry the right attempt; checks the position, so that what is
 * dropped, doubled or late upstream never reaches a client. Text comes out in whole characters,
 * with what may be the start of a stop string held back; one string of text whether it is streamed
 * or not.
 */
#ifndef EXA_ROUTER_ANSWER_H
#define EXA_ROUTER_ANSWER_H

#include "router/api_error.h"
#include "router/api_request.h"
#include "router/models.h"
#include "router/scores.h"

struct answer {
    const struct model *model; /* the owner keeps it alive */
    struct token_vec log;      /* every token generated, end-of-generation ids included */
    struct detok detok;
    struct stops *stops;
    struct buf bytes; /* scratch: one entry's text before the stop strings */
    struct buf text;  /* text that may be shown; a stream takes it at each step */
    uint32_t max_tokens;
    uint32_t n_counted; /* completion_tokens: up to the token that ended it */
    bool ignore_eos, done;
    const char *finish_reason; /* "stop" or "length", once done */
    const uint32_t *stop_ids;  /* [n_stop_ids] the request's own; the owner keeps them alive */
    uint32_t n_stop_ids;
    /* Log-probabilities, when asked for. */
    bool want_scores;
    struct scores scores;    /* of the tokens that count */
    struct scores prompt;    /* one for each token of the prompt (answer_expect_prompt) */
    size_t n_prompt_known;   /* of them, the first … */
    double logprob_sum;      /* of the tokens that count */
    size_t n_bytes, n_shown; /* of text: all, and that which may be shown */
    uint32_t n_chars;        /* of all */
    struct buf embedding;    /* f32, little-endian: of an embedding request */
};

enum answer_event {
    ANSWER_MORE,    /* taken, goes on */
    ANSWER_DONE,    /* taken, finish_reason is set by the engine's finish */
    ANSWER_STOPPED, /* a stop string was met: the attempt is to be cancelled */
    /* Not the next position, or after the end: nothing changed. (The end of an attempt at a wrong
     * position is ANSWER_FAILED: nothing more would come of it.) */
    ANSWER_DROPPED,
    ANSWER_REFUSED, /* the replica did not start it */
    ANSWER_FAILED,  /* error is filled */
};

/* stops is taken. */
void answer_init(struct answer *a, const struct model *m, struct stops *stops, bool ignore_eos,
                 uint32_t max_tokens);
/* Log-probabilities of this prompt will come before the answer. 0, or -1: no memory. */
int answer_expect_prompt(struct answer *a, const uint32_t *ids, size_t n);
/* All log-probabilities of the prompt are there (or none are expected). */
bool answer_knows_prompt(const struct answer *a);
void answer_fini(struct answer *a);
enum answer_event answer_push(struct answer *a, const struct step_entry *entry,
                              struct api_error *error);

#endif
