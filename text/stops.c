/* stops.c - see stops.h.
 *
 * One Knuth-Morris-Pratt matcher for each string. After any byte, a matcher's state is the
 * length of the longest end of the text that begins its string, so the largest state is exactly
 * what must be held back. The result depends on the text alone, never on how it was cut into
 * pushes: the first byte that completes a string decides, and of the strings it completes the
 * longest.
 */
#include "text/stops.h"

#include <stdlib.h>
#include <string.h>

struct stop_matcher {
    char *text; /* owned [n] */
    uint16_t n;
    uint16_t state;
    uint16_t fall[STOPS_MAX_BYTES]; /* state to try after a mismatch */
};

struct stops {
    size_t n;
    struct stop_matcher *m; /* owned [n] */
    char held[STOPS_MAX_BYTES];
    size_t n_held;
};

static void matcher_prepare(struct stop_matcher *m)
{
    uint16_t k = 0;
    m->fall[0] = 0;
    for (uint16_t i = 1; i < m->n; i++) {
        while (k && m->text[i] != m->text[k])
            k = m->fall[k - 1];
        if (m->text[i] == m->text[k])
            k++;
        m->fall[i] = k;
    }
}

static bool matcher_step(struct stop_matcher *m, char c)
{
    while (m->state && m->text[m->state] != c)
        m->state = m->fall[m->state - 1];
    if (m->text[m->state] == c)
        m->state++;
    return m->state == m->n;
}

static int fill(struct stops *s, const char *const *strings, const size_t *lens, struct err *e)
{
    for (size_t i = 0; i < s->n; i++) {
        if (lens[i] == 0)
            return err_set(e, ERR_CONFIG, "stop string %zu is empty", i + 1);
        if (lens[i] > STOPS_MAX_BYTES)
            return err_set(e, ERR_LIMIT, "stop string %zu is %zu bytes, at most %d", i + 1, lens[i],
                           STOPS_MAX_BYTES);
        s->m[i].text = malloc(lens[i]);
        if (!s->m[i].text)
            return err_set(e, ERR_NOMEM, "stop strings: out of memory");
        memcpy(s->m[i].text, strings[i], lens[i]);
        s->m[i].n = (uint16_t)lens[i];
        matcher_prepare(&s->m[i]);
    }
    return 0;
}

int stops_create(struct stops **out, const char *const *strings, const size_t *lens, size_t n,
                 struct err *e)
{
    if (n > STOPS_MAX)
        return err_set(e, ERR_LIMIT, "%zu stop strings, at most %d", n, STOPS_MAX);
    struct stops *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_NOMEM, "stop strings: out of memory");
    s->m = n ? calloc(n, sizeof *s->m) : NULL;
    if (n && !s->m) {
        free(s);
        return err_set(e, ERR_NOMEM, "stop strings: out of memory");
    }
    s->n = n;
    int rc = fill(s, strings, lens, e);
    if (rc) {
        stops_destroy(s);
        return rc;
    }
    *out = s;
    return 0;
}

void stops_destroy(struct stops *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++)
        free(s->m[i].text);
    free(s->m);
    free(s);
}

/* Show the first n bytes of held + text. */
static void show(const struct stops *s, const char *text, size_t n, struct buf *out)
{
    size_t from_held = n < s->n_held ? n : s->n_held;
    if (from_held)
        buf_put(out, s->held, from_held);
    if (n > from_held)
        buf_put(out, text, n - from_held);
}

/* Keep the last `keep` bytes of held + text[n]. */
static void hold(struct stops *s, const char *text, size_t n, size_t keep)
{
    if (keep <= n) {
        memcpy(s->held, text + n - keep, keep);
    } else {
        size_t old = keep - n;
        memmove(s->held, s->held + s->n_held - old, old);
        memcpy(s->held + old, text, n);
    }
    s->n_held = keep;
}

bool stops_push(struct stops *s, const char *text, size_t n, struct buf *out)
{
    if (n == 0)
        return false;
    for (size_t i = 0; i < n; i++) {
        size_t met = 0;
        for (size_t k = 0; k < s->n; k++)
            if (matcher_step(&s->m[k], text[i]) && s->m[k].n > met)
                met = s->m[k].n;
        if (met) {
            show(s, text, s->n_held + i + 1 - met, out);
            s->n_held = 0;
            for (size_t k = 0; k < s->n; k++)
                s->m[k].state = 0;
            return true;
        }
    }
    size_t keep = 0;
    for (size_t k = 0; k < s->n; k++)
        keep = s->m[k].state > keep ? s->m[k].state : keep;
    show(s, text, s->n_held + n - keep, out);
    hold(s, text, n, keep);
    return false;
}

void stops_finish(struct stops *s, struct buf *out)
{
    if (s->n_held)
        buf_put(out, s->held, s->n_held);
    s->n_held = 0;
    for (size_t k = 0; k < s->n; k++)
        s->m[k].state = 0;
}
