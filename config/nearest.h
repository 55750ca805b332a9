/* nearest.h - the known word a mistyped one was meant to be. */
#ifndef EXA_CONFIG_NEAREST_H
#define EXA_CONFIG_NEAREST_H

#include <stddef.h>

/* Edit distance with swapped neighbours counted once (optimal string alignment), capped at 99; words over 64 bytes: 99. */
unsigned word_distance(const char *a, const char *b);
/* The closest of words[n], or NULL when none is close enough to be worth naming. Feed words one by one with the state. */
struct nearest {
    const char *word; /* best so far; NULL: none close enough */
    unsigned distance;
};
void nearest_try(struct nearest *best, const char *typed, const char *known);

#endif
