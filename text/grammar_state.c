/* grammar_state.c - reading bytes: all readings of the text so far are carried on together.
 *
 * A reading is a state with edges on bytes and the chain of calls around it. Chains share their beginnings: a frame names the
 * call around it. After every byte frames are numbered anew in the order in which readings use them, so a state is a function
 * of the bytes alone, however they were cut into tokens.
 */
#include "text/grammar_internal.h"

#include <string.h>

enum { SCRATCH_FRAMES = 4 * GRAMMAR_MAX_FRAMES, SCRATCH_SEEN = 512 };

/* The state being made for the next byte. Old frames come first and keep their numbers until the end of the byte. */
struct reader {
    const struct grammar *g;
    struct grammar_frame frames[SCRATCH_FRAMES];
    uint32_t n_frames;
    struct grammar_thread
        seen[SCRATCH_SEEN]; /* all that were met, with those that only call or end */
    uint32_t n_seen;
    struct grammar_thread threads[GRAMMAR_MAX_THREADS];
    uint32_t n_threads;
    bool complete;
    const char *over; /* what did not fit */
};

static uint16_t frame_push(struct reader *r, uint16_t ret, uint16_t parent)
{
    for (uint32_t i = parent + 1u; i < r->n_frames; i++)
        if (r->frames[i].ret == ret && r->frames[i].parent == parent)
            return (uint16_t)i;
    if (r->n_frames == SCRATCH_FRAMES) {
        r->over = "nested too deeply";
        return 0;
    }
    r->frames[r->n_frames] = (struct grammar_frame){ret, parent};
    return (uint16_t)r->n_frames++;
}

static void meet(struct reader *r, uint16_t state, uint16_t frame)
{
    for (uint32_t i = 0; i < r->n_seen; i++)
        if (r->seen[i].state == state && r->seen[i].frame == frame)
            return;
    if (r->n_seen == SCRATCH_SEEN)
        r->over = "too ambiguous";
    else
        r->seen[r->n_seen++] = (struct grammar_thread){state, frame};
}

/* Follow ends and calls from what was met since seen[from]. */
static void close_readings(struct reader *r, uint32_t from)
{
    const struct grammar *g = r->g;
    for (uint32_t i = from; i < r->n_seen && !r->over; i++) {
        struct grammar_thread t = r->seen[i];
        uint8_t flags = g->flags[t.state];
        if (flags & STATE_BYTES) {
            if (r->n_threads == GRAMMAR_MAX_THREADS) {
                r->over = "too ambiguous";
                return;
            }
            r->threads[r->n_threads++] = t;
        }
        if (flags & STATE_ACCEPT) {
            if (t.frame)
                meet(r, r->frames[t.frame].ret, r->frames[t.frame].parent);
            else
                r->complete = true;
        }
        for (uint32_t k = g->call_at[t.state]; k < g->call_at[t.state + 1]; k++) {
            const struct grammar_call *c = &g->calls[k];
            bool tail = g->flags[c->ret] & STATE_TAIL;
            meet(r, c->start, tail ? t.frame : frame_push(r, c->ret, t.frame));
        }
    }
}

/* Number the frames that readings use; false when there are too many. */
static bool renumber(struct reader *r)
{
    uint16_t number[SCRATCH_FRAMES], chain[SCRATCH_FRAMES];
    struct grammar_frame kept[GRAMMAR_MAX_FRAMES];
    uint32_t n = 1;
    memset(number, 0, r->n_frames * sizeof *number);
    kept[0] = (struct grammar_frame){0, 0};
    for (uint32_t i = 0; i < r->n_threads; i++) {
        uint32_t depth = 0;
        for (uint16_t f = r->threads[i].frame; f && !number[f]; f = r->frames[f].parent)
            chain[depth++] = f;
        while (depth) {
            uint16_t f = chain[--depth];
            if (n == GRAMMAR_MAX_FRAMES)
                return false;
            kept[n] = (struct grammar_frame){r->frames[f].ret, number[r->frames[f].parent]};
            number[f] = (uint16_t)n++;
        }
        r->threads[i].frame = number[r->threads[i].frame];
    }
    memcpy(r->frames, kept, n * sizeof *kept);
    r->n_frames = n;
    return true;
}

static int finish_step(struct reader *r, struct err *e)
{
    if (!r->over && !renumber(r))
        r->over = "nested too deeply";
    if (r->over)
        return err_set(e, ERR_LIMIT,
                       "grammar: %s: at most %d open rules and %d readings at once are followed",
                       r->over, GRAMMAR_MAX_FRAMES - 1, GRAMMAR_MAX_THREADS);
    return 0;
}

static void reader_load(struct reader *r, const struct grammar_state *s)
{
    r->g = s->grammar;
    r->n_frames = s->n_frames;
    r->n_threads = s->n_threads;
    r->complete = s->complete;
    r->over = NULL;
    memcpy(r->frames, s->frames, s->n_frames * sizeof *s->frames);
    memcpy(r->threads, s->threads, s->n_threads * sizeof *s->threads);
}

static void reader_store(const struct reader *r, struct grammar_state *s)
{
    memset(s, 0, sizeof *s);
    s->grammar = r->g;
    s->n_threads = (uint16_t)r->n_threads;
    s->n_frames = (uint16_t)r->n_frames;
    s->complete = r->complete;
    memcpy(s->frames, r->frames, r->n_frames * sizeof *s->frames);
    memcpy(s->threads, r->threads, r->n_threads * sizeof *s->threads);
}

/* 0; ERR_FORMAT when no reading goes on with this byte. */
static int read_byte(struct reader *r, uint8_t byte, struct err *e)
{
    struct grammar_thread now[GRAMMAR_MAX_THREADS];
    uint32_t n = r->n_threads;
    memcpy(now, r->threads, n * sizeof *now);
    r->n_seen = 0;
    r->n_threads = 0;
    r->complete = false;
    for (uint32_t i = 0; i < n && !r->over; i++) {
        uint16_t to = grammar_step(r->g, now[i].state, byte);
        if (to)
            meet(r, to, now[i].frame);
    }
    close_readings(r, 0);
    if (r->n_seen == 0)
        return err_set(e, ERR_FORMAT, "grammar: byte 0x%02X is not allowed here", byte);
    return finish_step(r, e);
}

int grammar_start(struct grammar_state *s, const struct grammar *g, struct err *e)
{
    struct reader r;
    r.g = g;
    r.n_frames = 1;
    r.frames[0] = (struct grammar_frame){0, 0};
    r.n_threads = r.n_seen = 0;
    r.complete = false;
    r.over = NULL;
    meet(&r, g->start, 0);
    close_readings(&r, 0);
    int rc = finish_step(&r, e);
    if (!rc)
        reader_store(&r, s);
    return rc;
}

void grammar_state_init(struct grammar_state *s, const struct grammar *g)
{
    CHECK(grammar_start(s, g, NULL) == 0); /* grammar_create tried it */
}

bool grammar_state_equal(const struct grammar_state *a, const struct grammar_state *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

bool grammar_is_complete(const struct grammar_state *s)
{
    return s->complete;
}

bool grammar_is_finished(const struct grammar_state *s)
{
    return s->complete && s->n_threads == 0;
}

int grammar_accept_bytes(struct grammar_state *s, const void *bytes, size_t n, struct err *e)
{
    struct reader r;
    reader_load(&r, s);
    for (size_t i = 0; i < n; i++) {
        int rc = read_byte(&r, ((const uint8_t *)bytes)[i], e);
        if (rc)
            return rc;
    }
    reader_store(&r, s);
    return 0;
}

int grammar_accept(struct grammar_state *s, const struct token_table *t, uint32_t id, struct err *e)
{
    if (id >= t->n_vocab)
        return err_set(e, ERR_FORMAT, "grammar: token %u is not in a vocabulary of %u", id,
                       t->n_vocab);
    if (token_table_is_eog(t, id))
        return s->complete ? 0
                           : err_set(e, ERR_FORMAT,
                                     "grammar: token %u ends the text, which is not whole", id);
    size_t n;
    const uint8_t *bytes = token_table_get(t, id, &n);
    if (!n)
        return err_set(e, ERR_FORMAT, "grammar: token %u has no bytes", id);
    return grammar_accept_bytes(s, bytes, n, e);
}
