/* engine_rope_test.c - rotary frequencies and their extensions against those that transformers computes (tests/golden/families/rope.json). */
#include "families_support.h"

#include "engine/rope.h"

static const char ROPES[] = "tests/golden/families/rope.json";

static void check_case(const json_t *o)
{
    struct model_params p = params_read(json_object_get(o, "params"));
    const json_t *divisors = json_object_get(o, "divisors");
    const json_t *turns = json_object_get(o, "turns");
    const char *name = json_string_value(json_object_get(o, "name"));
    float d[ROPE_MAX_HALF];
    struct rope r;
    struct err e = ERR_INIT;
    for (size_t i = 0; i < json_array_size(divisors); i++)
        d[i] = (float)json_number_value(json_array_get(divisors, i));
    MUST(rope_init(&r, &p, json_u32(o, "n_ctx"), json_is_null(divisors) ? NULL : d, &e), e);
    assert_int_equal(r.half, json_array_size(turns));
    for (uint32_t i = 0; i < r.half; i++) {
        double expected = json_number_value(json_array_get(turns, i));
        if (fabs(r.turn[i] / expected - 1) > 2e-6) /* theirs are F32 */
            fail_msg("%s: dimension %u turns %.9g, expected %.9g", name, i, r.turn[i], expected);
    }
    double factor = json_number_value(json_object_get(o, "attention_factor"));
    if (fabs(r.amplitude / factor - 1) > 1e-6)
        fail_msg("%s: attention factor %.9g, expected %.9g", name, r.amplitude, factor);
}

static void test_frequencies_are_the_reference_s(void **state)
{
    json_t *all = families_load(ROPES);
    assert_int_equal(json_array_size(all), 11);
    for (size_t i = 0; i < json_array_size(all); i++)
        check_case(json_array_get(all, i));
    json_decref(all);
}

/* Far positions: the product is made in double, so that an angle of a million radians is still right. */
static void test_angles_of_far_positions(void **state)
{
    const struct model_params p = {.rope_dim = 8, .rope_base = 10000, .n_ctx = 1 << 20};
    enum { FAR = 1000003 };
    struct rope r;
    struct err e = ERR_INIT;
    float a[2][4][2];
    MUST(rope_init(&r, &p, p.n_ctx, NULL, &e), e);
    rope_angles(&r, &a[0][0][0], FAR, 2);
    for (uint32_t k = 0; k < 2; k++)
        for (uint32_t i = 0; i < 4; i++) {
            double angle = (FAR + k) * pow(10000, -(double)i / 4);
            assert_true(fabs((double)a[k][i][0] - cos(angle)) < 1e-7);
            assert_true(fabs((double)a[k][i][1] - sin(angle)) < 1e-7);
        }
}

static void test_long_divisors_are_chosen_by_the_context(void **state)
{
    struct model_params p = {.rope_scaling = ROPE_LONGROPE, .rope_orig_ctx = 4096};
    assert_false(rope_is_long(&p, 4096));
    assert_true(rope_is_long(&p, 4097));
    p.rope_scaling = ROPE_YARN;
    assert_false(rope_is_long(&p, 4097));
}

static void refused(const struct model_params *p, uint32_t n_ctx, const float *divisors, int code,
                    const char *expect)
{
    struct rope r;
    struct err e = ERR_INIT;
    assert_int_equal(rope_init(&r, p, n_ctx, divisors, &e), code);
    if (!strstr(e.text, expect))
        fail_msg("\"%s\" does not say \"%s\"", e.text, expect);
}

static void test_what_cannot_be_exact_is_refused(void **state)
{
    struct model_params p = {.rope_dim = 4,
                             .rope_base = 10000,
                             .n_ctx = 64,
                             .rope_scaling = ROPE_DYNAMIC,
                             .rope_factor = 2,
                             .rope_orig_ctx = 64};
    refused(&p, 65, NULL, ERR_CONFIG, "expected a context of at most 64 tokens, found 65");
    p.rope_scaling = ROPE_LINEAR;
    p.rope_factor = 0.5;
    refused(&p, 64, NULL, ERR_FORMAT, "factor: expected at least 1, found 0.5");
    p.rope_scaling = ROPE_YARN;
    p.rope_factor = 2;
    p.rope_orig_ctx = 0;
    refused(&p, 64, NULL, ERR_FORMAT, "expected the trained context, found 0");
    p.rope_scaling = 6;
    refused(&p, 64, NULL, ERR_FORMAT, "RoPE scaling 6");
    p.rope_scaling = ROPE_LLAMA3;
    refused(&p, 64, (const float[]){1, 0}, ERR_FORMAT, "divisor of dimension 1");
    refused(&p, 64, (const float[]){NAN, 1}, ERR_FORMAT, "divisor of dimension 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frequencies_are_the_reference_s),
        cmocka_unit_test(test_angles_of_far_positions),
        cmocka_unit_test(test_long_divisors_are_chosen_by_the_context),
        cmocka_unit_test(test_what_cannot_be_exact_is_refused),
    };
    return cmocka_run_group_tests_name("engine_rope", tests, NULL, NULL);
}
