/* siphash.c - see siphash.h. */
#include "engine/siphash.h"

struct sip {
    uint64_t v0, v1, v2, v3;
};

static uint64_t rotate(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static void rounds(struct sip *s, int n)
{
    while (n--) {
        s->v0 += s->v1;
        s->v1 = rotate(s->v1, 13) ^ s->v0;
        s->v0 = rotate(s->v0, 32);
        s->v2 += s->v3;
        s->v3 = rotate(s->v3, 16) ^ s->v2;
        s->v0 += s->v3;
        s->v3 = rotate(s->v3, 21) ^ s->v0;
        s->v2 += s->v1;
        s->v1 = rotate(s->v1, 17) ^ s->v2;
        s->v2 = rotate(s->v2, 32);
    }
}

static void word_add(struct sip *s, uint64_t m)
{
    s->v3 ^= m;
    rounds(s, 2);
    s->v0 ^= m;
}

uint64_t siphash(const uint64_t key[2], const uint32_t *words, uint32_t n)
{
    struct sip s = {key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du,
                    key[0] ^ 0x6c7967656e657261u, key[1] ^ 0x7465646279746573u};
    for (uint32_t i = 0; i + 1 < n; i += 2)
        word_add(&s, words[i] | (uint64_t)words[i + 1] << 32);
    uint64_t last = (uint64_t)(4 * n) << 56; /* length in bytes, and the odd word */
    word_add(&s, n % 2 ? last | words[n - 1] : last);
    s.v2 ^= 0xff;
    rounds(&s, 4);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}
