/* text_grammar_fuzz.c - any bytes as a grammar of any kind (the first byte says which): limits hold; of what compiles, a walk under
 * the masks: masks equal a trial of every token, a state rebuilt from the bytes equals the live one, every allowed token is
 * accepted, and there is no dead end. */
#include "text/grammar_masks.h"

#include <stdlib.h>
#include <string.h>

enum { N_TEXTS = 12, N_VOCAB = 257 + N_TEXTS, STEPS = 12 };

static const struct grammar_limits LIMITS = {
    .max_source_bytes = 1 << 16,
    .max_memory_bytes = 64 << 20,
    .max_nesting = 50,
    .max_rules = 1000,
    .max_states = 20000,
    .max_repeat = 5000,
    .max_work = 1000000,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct token_table *table(void)
{
    static const char *const TEXTS[N_TEXTS] = {"{\"",
                                               "\":",
                                               "\", \"",
                                               "\"}",
                                               "}}",
                                               "12",
                                               "true",
                                               "\n  ",
                                               "ab",
                                               "\xC3\xA4"
                                               "b",
                                               "\xF0\x9F",
                                               "aaaaaaaaaaaaaaaa"};
    static struct token_table *t;
    uint32_t offsets[N_VOCAB + 1] = {0}, eog = 0;
    char bytes[1024];
    size_t at = 0;
    if (t)
        return t;
    for (uint32_t i = 0; i < N_VOCAB; i++) {
        offsets[i] = (uint32_t)at;
        if (i >= 257) {
            memcpy(bytes + at, TEXTS[i - 257], strlen(TEXTS[i - 257]));
            at += strlen(TEXTS[i - 257]);
        } else if (i > 0) {
            bytes[at++] = (char)(i - 1);
        }
    }
    offsets[N_VOCAB] = (uint32_t)at;
    if (token_table_from_arrays(&t, N_VOCAB, offsets, bytes, &eog, 1, NULL))
        abort();
    return t;
}

static void check_mask(const struct token_table *t, const struct grammar_state *s,
                       const uint32_t *mask)
{
    for (uint32_t id = 0; id < N_VOCAB; id++) {
        struct grammar_state copy = *s;
        int rc = grammar_accept(&copy, t, id, NULL);
        if (rc != ERR_LIMIT && (rc == 0) != mask_has(mask, id))
            abort();
    }
}

static void walk(struct grammar *g, uint64_t x)
{
    const struct token_table *t = table();
    struct grammar_masks *m;
    struct grammar_state s, again;
    uint32_t mask[(N_VOCAB + 31) / 32];
    if (grammar_masks_create(&m, g, t, 4 << 20, NULL))
        abort();
    grammar_state_init(&s, g);
    grammar_state_init(&again, g);
    for (int step = 0; step < STEPS; step++) {
        uint32_t n = grammar_mask(m, &s, mask);
        if (n == GRAMMAR_MASK_OVER)
            break;
        if (n == 0)
            abort(); /* every byte is a token */
        check_mask(t, &s, mask);
        x = x * 6364136223846793005u + 1442695040888963407u;
        uint32_t id = (uint32_t)(x >> 33) % N_VOCAB;
        while (!mask_has(mask, id))
            id = (id + 1) % N_VOCAB;
        if (grammar_accept(&s, t, id, NULL) || id == 0)
            break;
        size_t len;
        const uint8_t *p = token_table_get(t, id, &len);
        for (size_t i = 0; i < len; i++)
            if (grammar_accept_bytes(&again, p + i, 1, NULL))
                abort();
        if (!grammar_state_equal(&s, &again))
            abort();
    }
    grammar_masks_destroy(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct err e = ERR_INIT;
    struct grammar *g = NULL;
    if (n == 0)
        return 0;
    enum grammar_kind kind = (enum grammar_kind)((data[0] - '0') & 7);
    int rc = grammar_create(&g, kind, (const char *)data + 1, n - 1, &LIMITS, &e);
    if ((rc != 0) != (e.code != 0) || rc != e.code || (rc == 0) != (g != NULL))
        abort();
    if (rc)
        return 0;
    uint64_t seed = n;
    for (size_t i = 0; i < n; i++)
        seed = (seed ^ data[i]) * 1099511628211u;
    walk(g, seed);
    grammar_unref(g);
    return 0;
}
