/* speculate.h - guesses at a request's next tokens, and how many are worth making. Pure.
 *
 * A guess is verified by drawing every token as always (a function of logits, seed and position): the output does not change, only
 * how many tokens one step brings (arXiv:2211.17192, with draws that are exact instead of resampled). Prompt look-up: what followed
 * the last tokens where they occurred before (arXiv:2304.04487).
 */
#ifndef EXA_ENGINE_SPECULATE_H
#define EXA_ENGINE_SPECULATE_H

#include <stdint.h>

enum {
    SPEC_MAX = 15,         /* guesses of a request in one step: with the known token one KV block */
    SPEC_NGRAM_MAX = 4,    /* tokens that must agree, longest first … */
    SPEC_NGRAM_MIN = 2,    /* … down to so many */
    SPEC_LOOK_BACK = 8192, /* how far back is searched: bounds the time of a step */
    SPEC_PAUSE_FIRST = 16, /* tokens without a guess after three misses in a row; doubled … */
    SPEC_PAUSE_LAST = 1024, /* … up to here */
};

struct spec {
    uint32_t max, length; /* guesses that will be asked for */
    uint32_t n_misses;    /* guesses in a row of which nothing held */
    uint32_t pause, pause_left;
};

void spec_init(struct spec *s, uint32_t max);
/* How many guesses to make now; 0: none. Call once a step in which there is room for some. */
uint32_t spec_wish(struct spec *s);
/* Of n_made guesses the first n_held were what was drawn. */
void spec_learn(struct spec *s, uint32_t n_made, uint32_t n_held);
/* Guesses (at most max) at what follows tokens[n]; returns how many. */
uint32_t spec_look_up(uint32_t *guesses, uint32_t max, const uint32_t *tokens, uint32_t n);

#endif
