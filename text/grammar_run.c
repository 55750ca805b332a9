/* grammar_run.c - see grammar_run.h. */
#include "text/grammar_run.h"

enum { MAX_VISITS = 64, MAX_DEPTH = 16 };

/* Calls made while looking ahead; below them are the state's own. */
struct ahead {
    const struct ahead *up; /* NULL: `frame` of the state is next */
    uint16_t ret;
    uint16_t frame;
};
struct runner {
    const struct grammar *g;
    const struct grammar_state *s;
    uint32_t visits, depth;
};

/* All of them look no further than `enough`, which shrinks on the way. */
static int32_t run_of(struct runner *r, uint16_t state, const struct ahead *up, uint16_t frame,
                      int32_t enough);

static int32_t longest(int32_t x, int32_t y, int32_t enough)
{
    if (x >= enough || y >= enough)
        return enough;
    return x == RUN_UNKNOWN || y == RUN_UNKNOWN ? RUN_UNKNOWN : x > y ? x : y;
}

/* The same for all that may begin at `state` without reading: itself, its calls, and what is around it when it is an end. */
static int32_t run_after(struct runner *r, uint16_t state, const struct ahead *up, uint16_t frame,
                         int32_t enough)
{
    const struct grammar *g = r->g;
    int32_t most = 0;
    if (++r->visits > MAX_VISITS || r->depth >= MAX_DEPTH)
        return RUN_UNKNOWN;
    r->depth++;
    if (g->flags[state] & STATE_BYTES)
        most = run_of(r, state, up, frame, enough);
    if (g->flags[state] & STATE_ACCEPT) {
        if (up)
            most = longest(most, run_after(r, up->ret, up->up, up->frame, enough), enough);
        else if (frame)
            most = longest(
                most,
                run_after(r, r->s->frames[frame].ret, NULL, r->s->frames[frame].parent, enough),
                enough);
    }
    for (uint32_t k = g->call_at[state]; k < g->call_at[state + 1] && most < enough; k++) {
        struct ahead call = {up, g->calls[k].ret, frame};
        bool tail = g->flags[call.ret] & STATE_TAIL;
        most = longest(most, run_after(r, g->calls[k].start, tail ? up : &call, frame, enough),
                       enough);
    }
    r->depth--;
    return most;
}

static int32_t run_return(struct runner *r, const struct ahead *up, uint16_t frame, int32_t enough)
{
    if (up)
        return run_after(r, up->ret, up->up, up->frame, enough);
    return frame ? run_after(r, r->s->frames[frame].ret, NULL, r->s->frames[frame].parent, enough)
                 : 0;
}

static int32_t run_of(struct runner *r, uint16_t state, const struct ahead *up, uint16_t frame,
                      int32_t enough)
{
    const struct grammar *g = r->g;
    uint16_t to = g->plain_next[state];
    int32_t chain = g->plain_chain[state];
    bool ends = g->flags[state] & STATE_ENDS;
    if (to == 0)
        return 0;
    if (to == PLAIN_MIXED)
        return RUN_UNKNOWN;
    if (chain >= enough)
        return enough;
    uint16_t last = g->plain_next[g->plain_end[state]];
    if (last == 0) /* only an end on the way could take more */
        return !ends || run_return(r, up, frame, enough) == 0 ? chain : RUN_UNKNOWN;
    if (last == PLAIN_MIXED || ++r->visits > MAX_VISITS)
        return RUN_UNKNOWN;
    chain++;
    if (chain >= enough)
        return enough;
    /* One more character, then whatever may follow it. An end on the way must not take more than an end there. */
    if (ends && !(g->flags[last] & STATE_ACCEPT) && run_return(r, up, frame, enough) != 0)
        return RUN_UNKNOWN;
    int32_t more = run_after(r, last, up, frame, enough - chain);
    return more == RUN_UNKNOWN ? RUN_UNKNOWN : chain + more;
}

int32_t grammar_plain_run(const struct grammar_state *s, struct grammar_thread t, uint32_t enough)
{
    struct runner r = {s->grammar, s, 0, 0};
    return run_of(&r, t.state, NULL, t.frame, (int32_t)enough);
}
