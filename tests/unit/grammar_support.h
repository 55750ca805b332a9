/* grammar_support.h - what the tests of constrained output share: vocabularies, random numbers, masks found token by token. */
#ifndef EXA_TESTS_GRAMMAR_SUPPORT_H
#define EXA_TESTS_GRAMMAR_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/err.h"
#include "model/gguf.h"
#include "model/gguf_model.h"
#include "text/grammar.h"
#include "text/grammar_masks.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { INSTRUMENTED = 1 };
#else
enum { INSTRUMENTED = 0 };
#endif

#define MUST(rc, e)                                                                                \
    do {                                                                                           \
        if (rc)                                                                                    \
            fail_msg("%s: %s", err_name((e).code), (e).text);                                      \
    } while (0)

/* xorshift64*: the same walk on every machine */
static inline uint32_t rng_next(uint64_t *x)
{
    *x ^= *x >> 12;
    *x ^= *x << 25;
    *x ^= *x >> 27;
    return (uint32_t)((*x * 2685821657736338717u) >> 32);
}
static inline uint32_t rng_below(uint64_t *x, uint32_t n)
{
    return (uint32_t)(((uint64_t)rng_next(x) * n) >> 32);
}

static inline struct grammar *support_grammar(enum grammar_kind kind, const char *source)
{
    struct grammar *g = NULL;
    struct err e = ERR_INIT;
    int rc = grammar_create(&g, kind, source, strlen(source), NULL, &e);
    if (rc)
        fail_msg("%s: %s: %s", source, err_name(e.code), e.text);
    return g;
}

/* Id 0 ends, then one token for each byte, then the given texts. */
static inline struct token_table *support_table(const char *const *texts, size_t n)
{
    uint32_t *offsets = calloc(n + 258, sizeof *offsets), eog = 0;
    struct buf bytes;
    buf_init(&bytes, 1 << 24);
    for (uint32_t i = 0; i < 256; i++) {
        offsets[i + 1] = i;
        buf_u8(&bytes, (uint8_t)i);
    }
    for (size_t i = 0; i < n; i++) {
        offsets[257 + i] = (uint32_t)bytes.len;
        buf_puts(&bytes, texts[i]);
    }
    offsets[257 + n] = (uint32_t)bytes.len;
    struct token_table *t = NULL;
    struct err e = ERR_INIT;
    MUST(token_table_from_arrays(&t, (uint32_t)n + 257, offsets, bytes.data, &eog, 1, &e), e);
    buf_fini(&bytes);
    free(offsets);
    return t;
}

/* What grammar_accept says of every token; in `either` those for which a state is too small (ERR_LIMIT), about which a mask may
 * say either. */
static inline void support_mask_slow(const struct grammar_state *s, const struct token_table *t,
                                     uint32_t *mask, uint32_t *either)
{
    memset(mask, 0, t->n_words * sizeof *mask);
    memset(either, 0, t->n_words * sizeof *either);
    for (uint32_t id = 0; id < t->n_vocab; id++) {
        struct grammar_state copy = *s;
        int rc = grammar_accept(&copy, t, id, NULL);
        if (rc == 0)
            mask[id / 32] |= 1u << (id % 32);
        else if (rc == ERR_LIMIT)
            either[id / 32] |= 1u << (id % 32);
    }
}

/* The text is in the language: 1; a beginning of one: 0; neither: -1. */
static inline int support_match(const struct grammar *g, const char *text, size_t n)
{
    struct grammar_state s;
    grammar_state_init(&s, g);
    if (grammar_accept_bytes(&s, text, n, NULL))
        return -1;
    return grammar_is_complete(&s);
}

/* A random set bit; the mask has n of them. */
static inline uint32_t support_pick(const uint32_t *mask, uint32_t n, uint64_t *rng)
{
    uint32_t k = rng_below(rng, n);
    for (uint32_t w = 0;; w++) {
        uint32_t c = (uint32_t)__builtin_popcount(mask[w]);
        if (k >= c) {
            k -= c;
            continue;
        }
        uint32_t bits = mask[w];
        while (k--)
            bits &= bits - 1;
        return w * 32 + (uint32_t)__builtin_ctz(bits);
    }
}

#endif
