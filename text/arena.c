/* arena.c - see arena.h. */
#include "text/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_BLOCK_BYTES = 32 << 10, ARENA_ALIGN = 16 };

struct arena_block {
    struct arena_block *next;
    size_t used, cap;
    _Alignas(ARENA_ALIGN) uint8_t data[];
};

void arena_init(struct arena *a, size_t max_bytes)
{
    *a = (struct arena){.max_bytes = max_bytes};
}

void arena_fini(struct arena *a)
{
    struct arena_block *b = a->head;
    while (b) {
        struct arena_block *next = b->next;
        free(b);
        b = next;
    }
    *a = (struct arena){.max_bytes = a->max_bytes};
}

static size_t aligned(size_t n)
{
    return (n + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
}

static bool take(struct arena *a, size_t n)
{
    a->over = n > a->max_bytes - a->taken_bytes;
    if (a->over)
        return false;
    a->taken_bytes += n;
    return true;
}

static struct arena_block *add_block(struct arena *a, size_t n)
{
    size_t cap = n > ARENA_BLOCK_BYTES ? n : ARENA_BLOCK_BYTES;
    struct arena_block *b = malloc(sizeof *b + cap);
    if (!b)
        return NULL;
    *b = (struct arena_block){.next = a->head, .cap = cap};
    a->head = b;
    return b;
}

void *arena_alloc(struct arena *a, size_t n)
{
    a->over = n > a->max_bytes;
    if (a->over)
        return NULL;
    n = aligned(n ? n : 1);
    if (!take(a, n))
        return NULL;
    struct arena_block *b = a->head;
    if (!b || b->cap - b->used < n)
        b = add_block(a, n);
    if (!b)
        return NULL;
    void *p = b->data + b->used;
    b->used += n;
    return memset(p, 0, n);
}

void *arena_grow(struct arena *a, void *p, size_t old, size_t n)
{
    struct arena_block *b = a->head;
    size_t have = aligned(old ? old : 1), want = aligned(n ? n : 1);
    if (p && b && (uint8_t *)p + have == b->data + b->used && n <= a->max_bytes &&
        b->cap - b->used >= want - have) {
        if (!take(a, want - have))
            return NULL;
        b->used += want - have;
        memset((uint8_t *)p + old, 0, n - old);
        return p;
    }
    void *copy = arena_alloc(a, n);
    if (copy && old)
        memcpy(copy, p, old);
    return copy;
}
