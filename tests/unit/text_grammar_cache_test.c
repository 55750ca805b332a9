/* text_grammar_cache_test.c - compiled grammars are found again, leave when others are used more, and stay while they are held;
 * several threads at once. */
#include "tests/unit/grammar_support.h"

#include "text/grammar_cache.h"

#include <pthread.h>

static struct grammar *get(struct grammar_cache *c, const char *source)
{
    struct grammar *g = NULL;
    struct err e = ERR_INIT;
    MUST(grammar_cache_get(c, GRAMMAR_REGEX, source, strlen(source), &g, &e), e);
    return g;
}

static void test_least_recently_used(void **state)
{
    struct grammar_cache *c;
    struct grammar_cache_stats st;
    struct err e = ERR_INIT;
    MUST(grammar_cache_create(&c, &(struct grammar_cache_options){.max_entries = 2}, &e), e);
    struct grammar *a = get(c, "a"), *held = get(c, "b");
    assert_true(a != held);
    grammar_unref(a);
    grammar_unref(get(c, "c"));
    assert_ptr_equal(get(c, "a"), a); /* found again, and used after c */
    grammar_unref(a);
    grammar_unref(get(c, "d"));
    grammar_unref(
        get(c, "e")); /* c was idle longest and goes; b was not idle; e was held at that time */
    grammar_cache_stats(c, &st);
    assert_int_equal(st.entries, 4);
    assert_int_equal(st.dropped, 1);
    assert_int_equal(st.hits, 1);
    assert_int_equal(st.misses, 5);
    assert_ptr_equal(get(c, "b"), held);
    grammar_unref(held);
    /* the same text of another kind is another grammar; failures are not kept */
    struct grammar *g = NULL;
    assert_int_equal(grammar_cache_get(c, GRAMMAR_GBNF, "b", 1, &g, &e), ERR_FORMAT);
    assert_null(g);
    grammar_cache_destroy(c);
    assert_int_equal(support_match(held, "b", 1), 1); /* outlives the cache */
    grammar_unref(held);
}

static void test_masks(void **state)
{
    struct token_table *t = support_table(NULL, 0);
    struct grammar_cache *c;
    struct err e = ERR_INIT;
    MUST(
        grammar_cache_create(&c, &(struct grammar_cache_options){.max_entries = 1, .table = t}, &e),
        e);
    struct grammar *a = get(c, "a"), *b = get(c, "b");
    struct grammar_masks *ma, *mb, *again;
    MUST(grammar_cache_masks(c, a, &ma, &e), e);
    MUST(grammar_cache_masks(c, b, &mb, &e), e);
    MUST(grammar_cache_masks(c, a, &again, &e), e);
    assert_true(ma == again && ma != mb);
    uint32_t mask[9];
    struct grammar_state s;
    grammar_state_init(&s, b);
    assert_int_equal(grammar_mask(mb, &s, mask), 1);
    assert_true(mask_has(mask, 1 + 'b'));
    grammar_unref(a);
    grammar_unref(b);
    grammar_unref(get(c, "c")); /* both are idle, with their masks: they go */
    struct grammar_cache_stats st;
    grammar_cache_stats(c, &st);
    grammar_unref(get(c, "d"));
    grammar_cache_stats(c, &st);
    assert_true(st.entries <= 2 && st.dropped >= 2);
    grammar_cache_destroy(c);
    token_table_destroy(t);
}

enum { N_THREADS = 4, ROUNDS = 300 };

static void *worker(void *arg)
{
    struct grammar_cache *c = arg;
    for (int i = 0; i < ROUNDS; i++) {
        char source[32];
        struct grammar *g = NULL;
        int n = snprintf(source, sizeof source, "a{%d}b", i % 7 + 1);
        if (grammar_cache_get(c, GRAMMAR_REGEX, source, (size_t)n, &g, NULL))
            return "not compiled";
        if (support_match(g, "aab", 3) != (i % 7 == 1 ? 1 : -1))
            return "another grammar";
        grammar_unref(g);
    }
    return NULL;
}

static void test_threads(void **state)
{
    struct grammar_cache *c;
    struct err e = ERR_INIT;
    MUST(grammar_cache_create(&c, &(struct grammar_cache_options){.max_entries = 3}, &e), e);
    pthread_t threads[N_THREADS];
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, worker, c), 0);
    for (int i = 0; i < N_THREADS; i++) {
        void *fault;
        pthread_join(threads[i], &fault);
        if (fault)
            fail_msg("%s", (char *)fault);
    }
    struct grammar_cache_stats st;
    grammar_cache_stats(c, &st);
    assert_true(st.hits + st.misses == N_THREADS * ROUNDS && st.entries <= 3 + N_THREADS);
    grammar_cache_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_least_recently_used),
                                       cmocka_unit_test(test_masks),
                                       cmocka_unit_test(test_threads)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
