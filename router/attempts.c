/* attempts.c - see attempts.h. The free list is first in, first out, so generations of one slot
 * change slowly. */
#include "router/attempts.h"

#include <stdlib.h>

struct slot {
    struct choice *choice; /* NULL: free */
    uint32_t generation;   /* of the current or last attempt */
    uint32_t next_free;
};

struct attempts {
    struct slot *slots;
    uint32_t capacity, n_made;
    uint32_t first_free, last_free;
};

int attempts_create(struct attempts **out, uint32_t capacity, struct err *e)
{
    struct attempts *a = calloc(1, sizeof *a);
    if (a)
        a->slots = calloc(capacity, sizeof *a->slots);
    if (!a || !a->slots) {
        free(a);
        return err_set(e, ERR_NOMEM, "out of memory for %u request slots", capacity);
    }
    a->capacity = capacity;
    a->first_free = a->last_free = ATTEMPT_NONE;
    *out = a;
    return 0;
}

void attempts_destroy(struct attempts *a)
{
    if (!a)
        return;
    free(a->slots);
    free(a);
}

int attempts_take(struct attempts *a, struct choice *c, uint32_t *slot, uint32_t *generation,
                  struct err *e)
{
    uint32_t i = a->first_free;
    if (a->n_made < a->capacity) {
        i = a->n_made++;
    } else if (i == ATTEMPT_NONE) {
        return err_set(e, ERR_LIMIT, "all %u request slots are taken", a->capacity);
    } else {
        a->first_free = a->slots[i].next_free;
        if (a->first_free == ATTEMPT_NONE)
            a->last_free = ATTEMPT_NONE;
    }
    a->slots[i].choice = c;
    *slot = i;
    *generation = ++a->slots[i].generation;
    return 0;
}

void attempts_give(struct attempts *a, uint32_t slot)
{
    struct slot *s = &a->slots[slot];
    s->choice = NULL;
    s->next_free = ATTEMPT_NONE;
    if (a->last_free == ATTEMPT_NONE)
        a->first_free = slot;
    else
        a->slots[a->last_free].next_free = slot;
    a->last_free = slot;
}

struct choice *attempts_find(const struct attempts *a, uint32_t slot, uint32_t generation)
{
    if (slot >= a->n_made || a->slots[slot].generation != generation)
        return NULL;
    return a->slots[slot].choice;
}
