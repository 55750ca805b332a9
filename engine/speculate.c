/* speculate.c - see speculate.h. */
#include "engine/speculate.h"

enum { FIRST_LENGTH = 4, MISSES_TO_PAUSE = 3 };

void spec_init(struct spec *s, uint32_t max)
{
    max = max < SPEC_MAX ? max : SPEC_MAX;
    *s = (struct spec){
        .max = max,
        .length = max < FIRST_LENGTH ? max : FIRST_LENGTH,
        .pause = SPEC_PAUSE_FIRST,
    };
}

uint32_t spec_wish(struct spec *s)
{
    if (!s->pause_left)
        return s->length;
    s->pause_left--;
    return 0;
}

/* A row costs little where weights are read anyway, but not nothing: ask for a little more than held the last time. */
void spec_learn(struct spec *s, uint32_t n_made, uint32_t n_held)
{
    if (!n_made)
        return;
    if (n_held) {
        s->n_misses = 0;
        s->pause = SPEC_PAUSE_FIRST;
        s->length = n_held == n_made && n_made < s->length ? s->length
                    : n_held == n_made                     ? s->length * 2
                                                           : n_held + 1;
        s->length = s->length < s->max ? s->length : s->max;
        return;
    }
    s->length = s->length > 1 ? s->length / 2 : 1;
    if (++s->n_misses < MISSES_TO_PAUSE)
        return;
    s->n_misses = 0;
    s->pause_left = s->pause;
    s->pause = s->pause * 2 < SPEC_PAUSE_LAST ? s->pause * 2 : SPEC_PAUSE_LAST;
}

uint32_t spec_look_up(uint32_t *guesses, uint32_t max, const uint32_t *tokens, uint32_t n)
{
    uint32_t best_at = 0, best = SPEC_NGRAM_MIN - 1;
    uint32_t from = n > SPEC_LOOK_BACK ? n - SPEC_LOOK_BACK : 0;
    if (n <= SPEC_NGRAM_MIN)
        return 0;
    /* `end`: the token after the earlier occurrence; the latest of the longest wins */
    for (uint32_t end = n - 1; end > from && best < SPEC_NGRAM_MAX; end--) {
        uint32_t len = 0;
        while (len < SPEC_NGRAM_MAX && len < end && tokens[end - 1 - len] == tokens[n - 1 - len])
            len++;
        if (len > best) {
            best = len;
            best_at = end;
        }
    }
    if (!best_at)
        return 0;
    /* past the end it goes on with itself: a loop in the text */
    for (uint32_t i = 0; i < max; i++)
        guesses[i] = best_at + i < n ? tokens[best_at + i] : guesses[i - (n - best_at)];
    return max;
}
