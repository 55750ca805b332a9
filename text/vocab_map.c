/* vocab_map.c - see vocab_map.h. */
#include "text/vocab_map.h"

#include "base/digest.h"

#include <stdlib.h>
#include <string.h>

int vocab_map_init(struct vocab_map *m, size_t n_entries, const char *blob)
{
    size_t n = 64;
    while (n < n_entries * 2)
        n *= 2;
    *m = (struct vocab_map){.slots = calloc(n, sizeof *m->slots), .mask = n - 1, .blob = blob};
    random_bytes(&m->seed, sizeof m->seed);
    return m->slots ? 0 : ERR_NOMEM;
}

void vocab_map_fini(struct vocab_map *m)
{
    free(m->slots);
    *m = (struct vocab_map){0};
}

static uint64_t mix(uint64_t h, uint64_t word)
{
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)(h ^ word) * 0xA0761D6478BD642Fu;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash_of(const struct vocab_map *m, const char *p, size_t n)
{
    uint64_t h = m->seed ^ n, word = 0;
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&word, p, 8);
        h = mix(h, word);
    }
    word = 0;
    if (n >= 4) { /* two overlapping halves: no loop over the rest */
        uint32_t a, b;
        memcpy(&a, p, 4);
        memcpy(&b, p + n - 4, 4);
        word = (uint64_t)a << 32 | b;
    } else if (n) {
        word = (uint64_t)(uint8_t)p[0] << 16 | (uint64_t)(uint8_t)p[n / 2] << 8 | (uint8_t)p[n - 1];
    }
    return mix(h ^ 0xE7037ED1A0B428DBu, word);
}

static struct vocab_slot *slot_of(const struct vocab_map *m, const char *p, size_t n, uint64_t h)
{
    size_t i = (size_t)h & m->mask;
    for (;; i = (i + 1) & m->mask) {
        struct vocab_slot *s = &m->slots[i];
        if (s->n == 0 ||
            (s->hash == (uint32_t)(h >> 32) && s->n == n && memcmp(m->blob + s->at, p, n) == 0))
            return s;
    }
}

uint32_t vocab_map_add(struct vocab_map *m, uint32_t at, uint32_t n, uint32_t id)
{
    uint64_t h = hash_of(m, m->blob + at, n);
    struct vocab_slot *s = slot_of(m, m->blob + at, n, h);
    if (s->n)
        return s->id;
    *s = (struct vocab_slot){at, n, id, (uint32_t)(h >> 32)};
    return VOCAB_NONE;
}

uint32_t vocab_map_find(const struct vocab_map *m, const char *text, size_t n)
{
    if (n == 0)
        return VOCAB_NONE;
    const struct vocab_slot *s = slot_of(m, text, n, hash_of(m, text, n));
    return s->n ? s->id : VOCAB_NONE;
}
