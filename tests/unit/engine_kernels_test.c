/* engine_kernels_test.c - which kernel set is chosen, and the reference set by hand. What each set computes: engine_ops_test.c. */
#include "engine_support.h"

#include <math.h>

#include "engine/cpu/kernels.h"

static void test_reference_matmul_by_hand(void **state)
{
    float w[2 * 8], x[8], y[2], scratch[4 * 8];
    for (int i = 0; i < 8; i++) {
        w[i] = (float)i;
        w[8 + i] = i == 3 ? 2 : 0;
        x[i] = (float)(i + 1);
    }
    const struct weight m = {
        .data = w, .type = TENSOR_F32, .n_rows = 2, .n_cols = 8, .row_bytes = 32};
    const struct matmul job = {.y = y, .y_stride = 2, .w = &m};
    KERNELS_REF.matmul(&(struct matmul_part){
        .m = &job, .end = 2, .x = x, .x_stride = 8, .n = 1, .in_div = 1, .scratch = scratch});
    assert_true(y[0] == 168 && y[1] == 8);
}

static void test_rope_turns_neighbours(void **state)
{
    float head[4] = {1, 0, 0, 1}, angles[4] = {cosf(0.5f), sinf(0.5f), cosf(0.1f), sinf(0.1f)};
    KERNELS_REF.rope(head, angles, 4, ROPE_PAIRS);
    assert_true(fabsf(head[0] - angles[0]) < 1e-7f && fabsf(head[1] - angles[1]) < 1e-7f);
    assert_true(fabsf(head[2] + angles[3]) < 1e-7f && fabsf(head[3] - angles[2]) < 1e-7f);
}

static void test_nan_goes_through_every_set(void **state)
{
    const struct kernels *k;
    for (uint32_t i = 0; (k = kernels_nth(i)); i++) {
        float x[8] = {1, 2, NAN, 4, 5, 6, 7, 8}, one[8] = {1, 1, 1, 1, 1, 1, 1, 1};
        if (!k->usable())
            continue;
        k->silu_mul(x, one, 8);
        assert_true(isnan(x[2]) && !isnan(x[1]));
        assert_false(k->all_finite(x, 8));
        assert_true(k->all_finite(one, 8));
        assert_int_equal(k->argmax(x, 8), 7);
    }
}

static void test_find(void **state)
{
    const struct kernels *k, *all;
    struct err e = ERR_INIT;
    assert_int_equal(kernels_find(&k, "avx9000", &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "avx9000"));
    assert_non_null(strstr(e.text, "ref"));
    assert_int_equal(kernels_find(&k, "ref", &e), 0);
    assert_ptr_equal(k, &KERNELS_REF);
    setenv("EXASERVE_KERNELS", "ref", 1);
    assert_int_equal(kernels_find(&k, NULL, &e), 0);
    assert_ptr_equal(k, &KERNELS_REF);
    unsetenv("EXASERVE_KERNELS");
    bool best = true;
    for (uint32_t i = 0; (all = kernels_nth(i)); i++) {
        int rc = kernels_find(&k, all->name, &e);
        assert_int_equal(rc, all->usable() ? 0 : ERR_CONFIG);
        if (!all->usable() || !best)
            continue;
        assert_int_equal(kernels_find(&k, NULL, &e), 0); /* the first that can run */
        assert_ptr_equal(k, all);
        best = false;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_matmul_by_hand),
        cmocka_unit_test(test_rope_turns_neighbours),
        cmocka_unit_test(test_nan_goes_through_every_set),
        cmocka_unit_test(test_find),
    };
    return cmocka_run_group_tests_name("engine_kernels", tests, NULL, NULL);
}
