/* arena.h - many small objects freed together, with a hard cap on the bytes taken. Owner: one
 * thread. */
#ifndef EXA_TEXT_ARENA_H
#define EXA_TEXT_ARENA_H

#include <stdbool.h>
#include <stddef.h>

struct arena_block;

struct arena {
    struct arena_block *head;
    size_t taken_bytes, max_bytes;
    bool over; /* the cap, not the system, refused the last request */
};

void arena_init(struct arena *a, size_t max_bytes);
void arena_fini(struct arena *a);
/* n zeroed bytes, aligned for any type; NULL: over the cap or out of memory. */
void *arena_alloc(struct arena *a, size_t n);
/* p[old] becomes p[n], n >= old: in place when p was the last request, else a copy. The new
 * bytes are zero. */
void *arena_grow(struct arena *a, void *p, size_t old, size_t n);

#endif
