/* text_hostile_test.c - every kind of tokenizer takes linear time on what would hurt a careless
 * one, and expressions meet their budget. Time is the thread's own, and a megabyte is compared with
 * a quarter of it. */
#include "tests/tools/tokenizer_kinds.h"
#include "text/pattern.h"
#include "text/regex.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { LARGE = 64 << 10 };
#else
enum { LARGE = 1 << 20 };
#endif
enum {
    FLOOR_US = 20000, /* below that, noise is larger than what is measured */
    TRIES = 4,        /* a page fault or a neighbour may spoil one */
};
static const double MOST = 9; /* times: 4 when linear, 16 when quadratic */

static uint64_t cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static uint64_t encode_us(const struct tokenizer *t, const char *text, size_t n)
{
    struct token_vec ids = {0};
    struct err e = ERR_INIT;
    uint64_t start = cpu_us();
    if (tokenizer_encode(t, text, n, true, SIZE_MAX, &ids, &e))
        fail_msg("%s", e.text);
    token_vec_fini(&ids);
    return cpu_us() - start;
}

static const char *const PATTERNS[] = {"a",
                                       " ",
                                       "\n",
                                       "b",
                                       "1",
                                       "!",
                                       "\xF0\x9F\x98\x80",
                                       "\xF0\x9F\x91\xA9\xE2\x80\x8D",
                                       "\xCC\x81\xCC\xA3",
                                       "e\xCC\x81",
                                       "aab",
                                       "<se",
                                       "<sep",
                                       "  <sep>",
                                       "<tool",
                                       "<tools>",
                                       "'",
                                       "'l",
                                       " a",
                                       "\r\n",
                                       "a ",
                                       "a!",
                                       "\xE4\xB8\x96",
                                       "\xE2\x96\x81",
                                       "\xE1\x84\x80\xE1\x85\xA1",
                                       "Aa",
                                       "A",
                                       "\xC2\xA0"};

static void test_linear(void **state)
{
    char *text = malloc(LARGE + 16);
    for (int kind = 0; kind < N_SAMPLES; kind++) {
        struct err e = ERR_INIT;
        struct tokenizer *t = sample_create((enum tokenizer_sample)kind, &e);
        if (!t)
            fail_msg("sample %d: %s", kind, e.text);
        for (size_t p = 0; p < sizeof PATTERNS / sizeof PATTERNS[0]; p++) {
            size_t len = strlen(PATTERNS[p]);
            /* Classes written out as hundreds of ranges are slow, if linear. */
            size_t n = kind == SAMPLE_REGEX ? LARGE / 4 : LARGE;
            for (size_t i = 0; i < LARGE + len; i++)
                text[i] = PATTERNS[p][i % len];
            double ratio = MOST + 1;
            for (int i = 0; i < TRIES && ratio > MOST; i++) {
                uint64_t small = encode_us(t, text, n / 4 / len * len);
                uint64_t large = encode_us(t, text, n / len * len);
                ratio = large < FLOOR_US ? 0 : (double)large / (double)(small ? small : 1);
            }
            if (ratio > MOST)
                fail_msg("sample %d, pattern %zu: %.1f times as long", kind, p, ratio);
        }
        tokenizer_destroy(t);
    }
    free(text);
}

/* One tokenizer, several threads: the same ids as alone. */
struct shared {
    struct tokenizer *t;
    const char *text;
    struct token_vec want;
};

static void *encode_shared(void *arg)
{
    const struct shared *s = arg;
    bool same = true;
    for (int i = 0; i < 20 && same; i++) {
        struct token_vec ids = {0};
        struct err e = ERR_INIT;
        same = tokenizer_encode(s->t, s->text, strlen(s->text), true, SIZE_MAX, &ids, &e) == 0 &&
               ids.n == s->want.n && memcmp(ids.ids, s->want.ids, ids.n * sizeof *ids.ids) == 0;
        token_vec_fini(&ids);
    }
    return same ? arg : NULL;
}

static void test_threads(void **state)
{
    enum { N_THREADS = 4 };
    for (int kind = 0; kind < N_SAMPLES; kind++) {
        struct err e = ERR_INIT;
        struct shared s = {.t = sample_create((enum tokenizer_sample)kind, &e),
                           .text =
                               "a aa  aaab <s> <sep> <tool> \xC3\xA9 e\xCC\x81 12!! \n\n 'S abc"};
        pthread_t threads[N_THREADS];
        assert_non_null(s.t);
        assert_int_equal(tokenizer_encode(s.t, s.text, strlen(s.text), true, SIZE_MAX, &s.want, &e),
                         0);
        for (int i = 0; i < N_THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, encode_shared, &s), 0);
        for (int i = 0; i < N_THREADS; i++) {
            void *same;
            pthread_join(threads[i], &same);
            assert_non_null(same);
        }
        token_vec_fini(&s.want);
        tokenizer_destroy(s.t);
    }
}

/* Expressions that take exponential or quadratic time: refused on the way, whatever the text. */
static void test_expressions_meet_their_budget(void **state)
{
    static const char *const EXPRESSIONS[] = {"(a+)+b",  "(a|aa)+b", "(?:a*)*b",     "a++b",
                                              "a*a*a*b", "(?=.*d)a", "(?:a?){9}a+b", "(?:a+)+\\b!"};
    enum { N = 16 << 10 };
    char *text = malloc(N);
    memset(text, 'a', N);
    memcpy(text + N - 3, "_b!",
           3); /* so that what must come is there, and no search ends before it begins */
    for (size_t i = 0; i < sizeof EXPRESSIONS / sizeof EXPRESSIONS[0]; i++) {
        struct pattern p;
        struct pattern_run run = {.text_bytes = N};
        struct regex_at at = {0};
        struct err e = ERR_INIT;
        size_t start, end;
        if (pattern_init(&p, EXPRESSIONS[i], strlen(EXPRESSIONS[i]), false, &e))
            fail_msg("%s: %s", EXPRESSIONS[i], e.text);
        int rc = pattern_next(&p, &run, text, N, &at, &start, &end, &e);
        if (rc != ERR_LIMIT)
            fail_msg("%s: %d", EXPRESSIONS[i], rc);
        assert_non_null(strstr(e.text, "takes too long"));
        pattern_run_fini(&run);
        pattern_fini(&p);
    }
    free(text);
}

static void test_expressions_refused_by_name(void **state)
{
    static const struct {
        const char *expression, *named;
    } CASES[] = {
        {"[a&&b]", "intersection"},  {"[a[bc]]", "class in a class"},
        {"(?<n>a)", "(?<n>"},        {"a(?i)b|c", "(?i)"},
        {"(?m:.)", "(?m:"},          {"\\p{Alpha}", "\\p{Alpha}"},
        {"a{2}+", "{2}+"},           {"\\1", "\\1"},
        {"[", "open class"},         {"(a", "missing"},
        {"\\xFF", "\\xFF"},          {"\\X", "\\X"},
        {"(*LIMIT_MATCH=9)a", "(*"}, {"[]a]", "empty class"},
        {"\\", "the end"},           {"\\p{L", "property"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct regex *r = NULL;
        struct err e = ERR_INIT;
        if (regex_create(&r, CASES[i].expression, strlen(CASES[i].expression), &e) != ERR_FORMAT ||
            !strstr(e.text, CASES[i].named))
            fail_msg("%s: \"%s\" does not name %s", CASES[i].expression, e.text, CASES[i].named);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_expressions_meet_their_budget),
        cmocka_unit_test(test_expressions_refused_by_name),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
