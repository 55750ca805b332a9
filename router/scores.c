/* scores.c - see scores.h. */
#include "router/scores.h"

#include <stdlib.h>

void scores_fini(struct scores *s)
{
    free(s->items);
    free(s->tops);
    *s = (struct scores){0};
}

/* Room for n more elements. 0, or -1. */
static int grow(void **data, size_t have, size_t *cap, size_t n, size_t element_bytes)
{
    if (have + n <= *cap)
        return 0;
    size_t want = have + n > 2 * *cap ? have + n : 2 * *cap;
    want = want < 16 ? 16 : want;
    void *p = realloc(*data, want * element_bytes);
    if (!p)
        return -1;
    *data = p;
    *cap = want;
    return 0;
}

int scores_set(struct scores *s, size_t i, const struct msg_logprob *m)
{
    struct score *item = &s->items[i];
    if (grow((void **)&s->tops, s->n_tops, &s->cap_tops, m->n_top, sizeof *s->tops))
        return -1;
    item->has_logprob = true;
    item->logprob = m->logprob;
    item->n_top = (uint8_t)m->n_top;
    item->first_top = (uint32_t)s->n_tops;
    if (m->n_top)
        memcpy(s->tops + s->n_tops, m->top, m->n_top * sizeof *s->tops);
    s->n_tops += m->n_top;
    return 0;
}

int scores_push(struct scores *s, const struct score *item, const struct msg_logprob *m)
{
    if (grow((void **)&s->items, s->n, &s->cap, 1, sizeof *s->items))
        return -1;
    s->items[s->n++] = *item;
    return m ? scores_set(s, s->n - 1, m) : 0;
}

size_t scores_ready(const struct scores *s, size_t shown, bool ended)
{
    size_t n = 0;
    while (n < s->n && (s->items[n].end <= shown ||
                        (ended && (s->items[n].begin < shown || s->items[n].is_end))))
        n++;
    return n;
}
