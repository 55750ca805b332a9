/* grammar_readings.c - see grammar_readings.h. */
#include "text/grammar_readings.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_SEEN = 512, MIN_SETS = 256 };

/* A set in the making. */
struct draft {
    struct reading seen[MAX_SEEN], kept[GRAMMAR_MAX_THREADS];
    uint32_t n_seen, n_kept;
    bool exits;
    bool over; /* more than a state could follow: no token may lead here */
    bool full;
};

bool readings_init(struct readings *r, const struct grammar *g, size_t bytes)
{
    size_t row = g->n_classes * sizeof(uint32_t);
    size_t each = row + sizeof(struct reading_set) + 4 * sizeof(struct reading) +
                  2 * sizeof(struct reading_frame) + 4 * sizeof(uint32_t);
    uint32_t cap = bytes / each > 65536 ? 65536 : (uint32_t)(bytes / each);
    cap = cap < MIN_SETS ? MIN_SETS : cap;
    uint32_t table = 1;
    while (table < cap)
        table *= 2;
    *r = (struct readings){.g = g,
                           .cap_sets = cap,
                           .cap_readings = 4 * cap,
                           .cap_frames = cap,
                           .set_table_cap = 2 * table,
                           .frame_table_cap = 2 * table};
    r->sets = malloc(cap * sizeof *r->sets);
    r->readings = malloc(4 * (size_t)cap * sizeof *r->readings);
    r->frames = malloc(cap * sizeof *r->frames);
    r->rows = malloc(cap * row);
    r->set_table = calloc(r->set_table_cap, sizeof *r->set_table);
    r->frame_table = calloc(r->frame_table_cap, sizeof *r->frame_table);
    if (!r->sets || !r->readings || !r->frames || !r->rows || !r->set_table || !r->frame_table)
        return false;
    readings_clear(r);
    return true;
}

void readings_fini(struct readings *r)
{
    free(r->sets);
    free(r->readings);
    free(r->frames);
    free(r->rows);
    free(r->set_table);
    free(r->frame_table);
}

void readings_clear(struct readings *r)
{
    memset(r->set_table, 0, r->set_table_cap * sizeof *r->set_table);
    memset(r->frame_table, 0, r->frame_table_cap * sizeof *r->frame_table);
    r->n_frames = 1; /* the base */
    r->n_readings = 0;
    r->n_sets = READINGS_FIRST;
    r->sets[READINGS_DEAD] = (struct reading_set){0};
}

size_t readings_bytes(const struct readings *r)
{
    return r->n_sets * (sizeof *r->sets + r->g->n_classes * sizeof *r->rows) +
           r->n_readings * sizeof *r->readings + r->n_frames * sizeof *r->frames;
}

static uint32_t mix(uint32_t a, uint32_t b)
{
    uint64_t h = ((uint64_t)a << 32 | b) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(h >> 29);
}

/* 0: no room */
static uint32_t frame_of(struct readings *r, uint32_t ret, uint32_t parent)
{
    uint32_t h = mix(ret, parent) & (r->frame_table_cap - 1);
    for (; r->frame_table[h]; h = (h + 1) & (r->frame_table_cap - 1)) {
        const struct reading_frame *f = &r->frames[r->frame_table[h]];
        if (f->ret == ret && f->parent == parent)
            return r->frame_table[h];
    }
    if (r->n_frames == r->cap_frames)
        return 0;
    r->frames[r->n_frames] = (struct reading_frame){ret, parent};
    r->frame_table[h] = r->n_frames;
    return r->n_frames++;
}

static void meet(struct draft *d, uint32_t state, uint32_t frame)
{
    for (uint32_t i = 0; i < d->n_seen; i++)
        if (d->seen[i].state == state && d->seen[i].frame == frame)
            return;
    if (d->n_seen == MAX_SEEN)
        d->over = true;
    else
        d->seen[d->n_seen++] = (struct reading){state, frame};
}

static void keep(struct draft *d, struct reading x)
{
    if (d->n_kept == GRAMMAR_MAX_THREADS) {
        d->over = true;
        return;
    }
    uint32_t k = d->n_kept++; /* sorted: the same set must look the same */
    for (; k && (d->kept[k - 1].state > x.state ||
                 (d->kept[k - 1].state == x.state && d->kept[k - 1].frame > x.frame));
         k--)
        d->kept[k] = d->kept[k - 1];
    d->kept[k] = x;
}

static void follow(struct readings *r, struct draft *d)
{
    const struct grammar *g = r->g;
    for (uint32_t i = 0; i < d->n_seen && !d->over && !d->full; i++) {
        struct reading x = d->seen[i];
        uint8_t flags = g->flags[x.state];
        if (flags & STATE_BYTES)
            keep(d, x);
        if (flags & STATE_ACCEPT) {
            if (x.frame)
                meet(d, r->frames[x.frame].ret, r->frames[x.frame].parent);
            else
                d->exits = true;
        }
        for (uint32_t k = g->call_at[x.state]; k < g->call_at[x.state + 1]; k++) {
            const struct grammar_call *c = &g->calls[k];
            bool tail = g->flags[c->ret] & STATE_TAIL;
            uint32_t frame = tail ? x.frame : frame_of(r, c->ret, x.frame);
            d->full = d->full || (!tail && !frame);
            meet(d, c->start, frame);
        }
    }
}

static uint32_t draft_hash(const struct draft *d)
{
    uint32_t h = d->exits;
    for (uint32_t i = 0; i < d->n_kept; i++)
        h = mix(h ^ d->kept[i].state, d->kept[i].frame + h);
    return h;
}

static uint32_t set_of(struct readings *r, const struct draft *d)
{
    if (d->full)
        return READINGS_FULL;
    if (d->over || (d->n_kept == 0 && !d->exits))
        return READINGS_DEAD;
    uint32_t hash = draft_hash(d), h = hash & (r->set_table_cap - 1);
    for (; r->set_table[h]; h = (h + 1) & (r->set_table_cap - 1)) {
        const struct reading_set *s = &r->sets[r->set_table[h]];
        if (s->hash == hash && s->n == d->n_kept && s->exits == d->exits &&
            memcmp(&r->readings[s->first], d->kept, d->n_kept * sizeof *d->kept) == 0)
            return r->set_table[h];
    }
    if (r->n_sets == r->cap_sets || r->n_readings + d->n_kept > r->cap_readings)
        return READINGS_FULL;
    uint32_t id = r->n_sets++;
    r->sets[id] = (struct reading_set){r->n_readings, d->n_kept, hash, d->exits};
    memcpy(&r->readings[r->n_readings], d->kept, d->n_kept * sizeof *d->kept);
    r->n_readings += d->n_kept;
    memset(r->rows + (size_t)id * r->g->n_classes, 0, r->g->n_classes * sizeof *r->rows);
    r->set_table[h] = id;
    return id;
}

static void draft_init(struct draft *d)
{
    d->n_seen = d->n_kept = 0;
    d->exits = d->over = d->full = false;
}

uint32_t readings_at(struct readings *r, uint16_t state)
{
    struct draft d;
    draft_init(&d);
    keep(&d, (struct reading){state, 0});
    return set_of(r, &d);
}

uint32_t readings_return(struct readings *r, uint16_t state)
{
    struct draft d;
    draft_init(&d);
    meet(&d, state, 0);
    follow(r, &d);
    return set_of(r, &d);
}

uint32_t readings_next(struct readings *r, uint32_t set, uint8_t class)
{
    uint32_t *cell = &r->rows[(size_t)set * r->g->n_classes + class];
    if (*cell)
        return *cell;
    struct draft d;
    draft_init(&d);
    struct reading_set s = r->sets[set];
    for (uint32_t i = 0; i < s.n; i++) {
        struct reading x = r->readings[s.first + i];
        uint16_t to = r->g->next[(size_t)x.state * r->g->n_classes + class];
        if (to)
            meet(&d, to, x.frame);
    }
    follow(r, &d);
    uint32_t next = set_of(r, &d);
    if (next != READINGS_FULL)
        *cell = next;
    return next;
}
