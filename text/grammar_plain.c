/* grammar_plain.c - where runs of plain characters lead, for every state of a grammar: what lets a mask of a string's inside be
 * taken from the token table instead of being found token by token.
 *
 * A character is plain as token_table.h has it: whole UTF-8, not below U+0020, no quote, no backslash.
 */
#include "text/grammar_internal.h"

#include <stdlib.h>

static bool calls(const struct grammar *g, uint16_t s)
{
    return g->call_at[s] != g->call_at[s + 1];
}

/* The one state that all bytes lo … hi lead to; 0 for nowhere. */
static uint16_t uniform(const struct grammar *g, uint16_t s, int lo, int hi)
{
    uint16_t to = grammar_step(g, s, (uint8_t)lo);
    for (int i = lo + 1; i <= hi && to != PLAIN_MIXED; i++)
        if (g->class_of[i] != g->class_of[i - 1] && grammar_step(g, s, (uint8_t)i) != to)
            to = PLAIN_MIXED;
    return to;
}

/* `steps` continuation bytes, the first in lo … 0xBF. States in between must pass bytes on. */
static uint16_t after_tail(const struct grammar *g, uint16_t s, int lo, int hi, int steps)
{
    for (int i = 0; i < steps && s && s != PLAIN_MIXED; i++) {
        if (calls(g, s) || (g->flags[s] & STATE_ACCEPT))
            return PLAIN_MIXED; /* more may happen inside of a character than passing it on */
        s = uniform(g, s, i ? 0x80 : lo, i ? 0xBF : hi);
    }
    return s;
}

static bool lead_agrees(const struct grammar *g, uint16_t s, int lead, uint16_t want)
{
    int lo = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    int hi = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    int steps = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    return after_tail(g, grammar_step(g, s, (uint8_t)lead), lo, hi, steps) == want;
}

static uint16_t find_next(const struct grammar *g, uint16_t s)
{
    uint16_t to = uniform(g, s, ' ', '!');
    static const int RANGES[][2] = {{' ', '!'}, {'#', '['}, {']', 0x7F}};
    for (int i = 0; i < 3 && to != PLAIN_MIXED; i++)
        if (uniform(g, s, RANGES[i][0], RANGES[i][1]) != to)
            return PLAIN_MIXED;
    for (int lead = 0xC2; lead <= 0xF4 && to != PLAIN_MIXED; lead++)
        if ((lead == 0xC2 || g->class_of[lead] != g->class_of[lead - 1] || lead == 0xE0 ||
             lead == 0xE1 || lead == 0xED || lead == 0xEE || lead == 0xF0 || lead == 0xF1 ||
             lead == 0xF4) &&
            !lead_agrees(g, s, lead, to))
            return PLAIN_MIXED;
    return to;
}

/* Follow next from s until it ends or meets a state whose chain is known; then fill in all on the way. A state that calls is not
 * stepped into: its calls take characters in their own ways. Nor is one that has no bytes: the caller goes on there. */
static void find_chain(struct grammar *g, uint16_t s, uint16_t *path)
{
    uint32_t n = 0;
    uint16_t at = s;
    enum { OPEN = PLAIN_ENDLESS - 1 }; /* on the path; no chain is that long */
    while (g->plain_chain[at] == 0 && g->plain_end[at] == 0) {
        uint16_t to = g->plain_next[at];
        if (to == 0 || to == PLAIN_MIXED || calls(g, to) || !(g->flags[to] & STATE_BYTES)) {
            g->plain_end[at] = at;
            break;
        }
        g->plain_chain[at] = OPEN;
        path[n++] = at;
        at = to;
    }
    bool endless = g->plain_chain[at] == OPEN || g->plain_chain[at] == PLAIN_ENDLESS;
    bool ends = g->flags[at] & STATE_ENDS;
    uint32_t length = g->plain_chain[at];
    for (uint16_t next = at; n; next = path[n]) {
        uint16_t p = path[--n];
        g->plain_chain[p] = endless ? PLAIN_ENDLESS : (uint16_t)++length;
        g->plain_end[p] = endless ? p : g->plain_end[at];
        ends = ends || (g->flags[next] & STATE_ACCEPT);
        if (ends)
            g->flags[p] |= STATE_ENDS;
    }
}

void grammar_find_plain(struct grammar *g)
{
    for (uint32_t s = 1; s < g->n_states; s++)
        g->plain_next[s] = find_next(g, (uint16_t)s);
    uint16_t *path = calloc(g->n_states, sizeof *path);
    for (uint32_t s = 1; s < g->n_states; s++) {
        if (path)
            find_chain(g, (uint16_t)s, path);
        else /* without memory: every mask is found the long way */
            g->plain_end[s] = (uint16_t)s, g->plain_next[s] = PLAIN_MIXED;
    }
    free(path);
}
