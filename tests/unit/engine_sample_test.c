/* engine_sample_test.c - drawing tokens: pure, deterministic, and of the right distribution. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>

#include "engine/sample.h"

enum { N = 1000, DRAWS = 40000 };

static uint32_t order[N];

static void test_greedy_takes_the_lowest_id_of_equals(void **state)
{
    float logits[6] = {1, 3, 2, 3, 3, 0};
    assert_int_equal(sample_greedy(logits, 6), 1);
    struct sampling s = {.temperature = 0, .top_p = 1, .seed = 5};
    for (uint32_t pos = 0; pos < 100; pos++)
        assert_int_equal(sample_token(&s, pos, logits, 6, order), 1);
    s = (struct sampling){.temperature = 2, .top_p = 1, .top_k = 1};
    assert_int_equal(sample_token(&s, 3, logits, 6, order), 1);
    s = (struct sampling){.temperature = 2, .top_p = 0};
    assert_int_equal(sample_token(&s, 3, logits, 6, order), 1);
}

static void test_uniform_is_a_function_of_seed_and_position(void **state)
{
    double sum = 0, lag = 0, last = 0.5;
    for (uint32_t pos = 0; pos < DRAWS; pos++) {
        double u = sample_uniform(42, pos);
        assert_true(u >= 0 && u < 1);
        assert_true(u == sample_uniform(42, pos));
        sum += u;
        lag += (u - 0.5) * (last - 0.5);
        last = u;
    }
    /* standard error of the mean: 0.29 / 200; of the lag product: 0.083 / 200 */
    assert_true(fabs(sum / DRAWS - 0.5) < 0.007);
    assert_true(fabs(lag / DRAWS) < 0.002);
    uint32_t n_same = 0; /* neighbouring seeds are no shifted copies of each other */
    for (uint32_t seed = 0; seed < 100; seed++)
        for (uint32_t pos = 0; pos < 100; pos++)
            n_same += sample_uniform(seed, pos + 1) == sample_uniform(seed + 1, pos);
    assert_int_equal(n_same, 0);
}

/* Frequencies of one setting against the probabilities written by hand. */
static void check_frequencies(struct sampling s, const float *logits, uint32_t n, const double *p)
{
    uint32_t hits[16] = {0};
    for (uint32_t pos = 0; pos < DRAWS; pos++)
        hits[sample_token(&s, pos, logits, n, order)]++;
    for (uint32_t i = 0; i < n; i++) {
        double f = (double)hits[i] / DRAWS, sigma = sqrt(p[i] * (1 - p[i]) / DRAWS);
        if (fabs(f - p[i]) > 4.5 * sigma + 1e-12)
            fail_msg("token %u: frequency %g, expected %g", i, f, p[i]);
    }
}

static void test_distribution(void **state)
{
    /* probabilities 0.1 0.4 0.2 0.3 at temperature 1 */
    float logits[4] = {logf(0.1f), logf(0.4f), logf(0.2f), logf(0.3f)};
    struct sampling s = {.temperature = 1, .top_p = 1, .seed = 7};
    check_frequencies(s, logits, 4, (double[]){0.1, 0.4, 0.2, 0.3});
    s.top_k = 2;
    check_frequencies(s, logits, 4, (double[]){0, 0.4 / 0.7, 0, 0.3 / 0.7});
    s = (struct sampling){.temperature = 1, .top_p = 0.75f, .seed = 8};
    check_frequencies(s, logits, 4, (double[]){0, 0.4 / 0.9, 0.2 / 0.9, 0.3 / 0.9});
    s.top_p = 0.35f;
    check_frequencies(s, logits, 4, (double[]){0, 1, 0, 0});
    s = (struct sampling){.temperature = 0.5f, .top_p = 1, .seed = 9};
    check_frequencies(s, logits, 4, (double[]){0.01 / 0.3, 0.16 / 0.3, 0.04 / 0.3, 0.09 / 0.3});
    /* top_k first, then top_p over what is left: of {0.4, 0.3, 0.2} the best two reach 0.7 */
    s = (struct sampling){.temperature = 1, .top_p = 0.7f, .top_k = 3, .seed = 10};
    check_frequencies(s, logits, 4, (double[]){0, 0.4 / 0.7, 0, 0.3 / 0.7});
}

static void test_ties_go_by_id(void **state)
{
    float logits[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    struct sampling s = {.temperature = 1, .top_p = 1, .top_k = 3, .seed = 11};
    check_frequencies(s, logits, 8, (double[]){1. / 3, 1. / 3, 1. / 3, 0, 0, 0, 0, 0});
}

/* top_k of the whole vocabulary, and one that is larger, are no filter. */
static void test_order_does_not_matter_to_the_draw(void **state)
{
    static float logits[N];
    for (uint32_t i = 0; i < N; i++)
        logits[i] = (float)((i * 7919) % 1000) / 100;
    struct sampling a = {.temperature = 1, .top_p = 1, .seed = 3}, b = a;
    b.top_k = 5000;
    for (uint32_t pos = 0; pos < 300; pos++) {
        uint32_t t = sample_token(&a, pos, logits, N, order);
        assert_int_equal(sample_token(&b, pos, logits, N, order), t);
        assert_int_equal(sample_token(&a, pos, logits, N, order), t);
    }
}

static void test_check(void **state)
{
    struct err e = ERR_INIT;
    assert_int_equal(sample_check(&(struct sampling){.temperature = 1, .top_p = 1}, &e), 0);
    assert_int_equal(sample_check(&(struct sampling){.temperature = NAN, .top_p = 1}, &e),
                     ERR_FORMAT);
    assert_int_equal(sample_check(&(struct sampling){.temperature = -1, .top_p = 1}, &e),
                     ERR_FORMAT);
    assert_int_equal(sample_check(&(struct sampling){.temperature = INFINITY, .top_p = 1}, &e),
                     ERR_FORMAT);
    assert_int_equal(sample_check(&(struct sampling){.temperature = 1, .top_p = 1.5f}, &e),
                     ERR_FORMAT);
    assert_int_equal(sample_check(&(struct sampling){.temperature = 1, .top_p = NAN}, &e),
                     ERR_FORMAT);
    assert_non_null(strstr(e.text, "top_p"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy_takes_the_lowest_id_of_equals),
        cmocka_unit_test(test_uniform_is_a_function_of_seed_and_position),
        cmocka_unit_test(test_distribution),
        cmocka_unit_test(test_ties_go_by_id),
        cmocka_unit_test(test_order_does_not_matter_to_the_draw),
        cmocka_unit_test(test_check),
    };
    return cmocka_run_group_tests_name("engine_sample", tests, NULL, NULL);
}
