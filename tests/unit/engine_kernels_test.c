/* engine_kernels_test.c - each operation of the fast set against the reference set, and the rule of fixed order within each set. */
#include "engine_support.h"

#include <math.h>

#include "engine/cpu/exec_cpu.h"

enum { COLS = 576, ROWS = 37, MAX_X = 9, HEAD = 64 };

/* F32 sums of K products in eight lanes: error grows like sqrt(K/8) units of 6e-8, times the size of the terms. 1e-5 of the
 * norm-wise size is twenty times what is seen, and a thousand times less than any wrong scale or order of nibbles gives. */
#define BOUND 1e-5

static const int TYPES[] = {TENSOR_F32,  TENSOR_F16,  TENSOR_BF16,
                            TENSOR_Q4_0, TENSOR_Q4_1, TENSOR_Q8_0};
enum { N_TYPES = sizeof TYPES / sizeof TYPES[0] };

static float unit_random(uint32_t *state)
{
    return ((float)(tiny_random(state) % 20001) - 10000) / 10000;
}

static void random_floats(float *x, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++)
        x[i] = unit_random(&seed);
}

/* Largest difference over the size of the expected values. */
static double distance(const float *got, const float *want, size_t n)
{
    double diff = 0, size = 1e-30;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - want[i]);
        diff = d > diff || isnan(d) ? d : diff;
        size = fabs((double)want[i]) > size ? fabs((double)want[i]) : size;
    }
    return diff / size;
}

static void run_matmul(const struct kernels *k, float *y, size_t y_stride, const struct weight *w,
                       uint32_t begin, uint32_t end, const float *x, size_t x_stride, uint32_t n,
                       float *scratch)
{
    const struct matmul m = {.y = y, .y_stride = y_stride, .w = w};
    k->matmul(&m, begin, end, x, x_stride, n, scratch);
}

static struct weight make_weight(int type, uint8_t **data)
{
    const struct tensor_type_info *t = tensor_type_info(type);
    struct tensor_info info = {.type = type,
                               .n_bytes = (uint64_t)ROWS * COLS / t->block_elems * t->block_bytes};
    uint32_t state = 99;
    *data = malloc(info.n_bytes);
    tiny_fill(*data, &info, &state);
    return (struct weight){.data = *data,
                           .type = type,
                           .n_rows = ROWS,
                           .n_cols = COLS,
                           .row_bytes = info.n_bytes / ROWS};
}

static void test_half_floats_are_exact(void **state)
{
    static const struct {
        uint16_t half;
        float value;
    } CASES[] = {{0x3c00, 1},        {0xc000, -2},
                 {0x7bff, 65504},    {0x0400, 0x1p-14f},
                 {0x0001, 0x1p-24f}, {0x03ff, 1023 * 0x1p-24f},
                 {0x8000, -0.0f},    {0x3555, 0.333251953125f}};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        uint8_t raw[16] = {(uint8_t)CASES[i].half, (uint8_t)(CASES[i].half >> 8)};
        float y[8];
        KERNELS_REF.unpack(y, raw, TENSOR_F16, 1);
        assert_memory_equal(y, &CASES[i].value, 4);
    }
}

/* A block written by hand after the format's description (golden/README.md): low nibbles are elements 0-15. */
static void test_blocks_unpack_as_described(void **state)
{
    uint8_t q41[20] = {0x00, 0x38, 0x00, 0xbc}; /* d 0.5, m -1 */
    uint8_t q40[18] = {0x00, 0x38};
    uint8_t q80[34] = {0x00, 0x38};
    for (int i = 0; i < 16; i++)
        q41[4 + i] = q40[2 + i] = (uint8_t)(i | (15 - i) << 4);
    for (int i = 0; i < 32; i++)
        q80[2 + i] = (uint8_t)(i - 16);
    const struct kernels *sets[2] = {&KERNELS_REF, NULL};
    if (support_avx2())
        assert_int_equal(kernels_find(&sets[1], "avx2", NULL), 0);
    for (int s = 0; s < 2 && sets[s]; s++) {
        float a[32], b[32], c[32];
        sets[s]->unpack(a, q41, TENSOR_Q4_1, 32);
        sets[s]->unpack(b, q40, TENSOR_Q4_0, 32);
        sets[s]->unpack(c, q80, TENSOR_Q8_0, 32);
        for (int i = 0; i < 32; i++) {
            int q = i < 16 ? i : 31 - i;
            assert_true(a[i] == 0.5f * (float)q - 1);
            assert_true(b[i] == 0.5f * (float)(q - 8));
            assert_true(c[i] == 0.5f * (float)(i - 16));
        }
    }
}

/* Any split of weight rows and any number of activation rows: the same bits. */
static void matmul_order(const struct kernels *k, const struct weight *w, const float *x)
{
    static float whole[MAX_X * ROWS], part[MAX_X * ROWS], scratch[4 * COLS];
    run_matmul(k, whole, ROWS, w, 0, ROWS, x, COLS, MAX_X, scratch);
    for (uint32_t n = 1; n <= MAX_X; n++)
        for (uint32_t cut = 0; cut <= ROWS; cut += 5) {
            memset(part, 0, sizeof part);
            uint32_t first = MAX_X - n; /* another place in the batch as well */
            run_matmul(k, part, ROWS, w, 0, cut, x + first * COLS, COLS, n, scratch);
            run_matmul(k, part, ROWS, w, cut, ROWS, x + first * COLS, COLS, n, scratch);
            assert_memory_equal(part, whole + first * ROWS, n * ROWS * sizeof(float));
        }
}

static void test_matmul(void **state)
{
    static float x[MAX_X * COLS], want[MAX_X * ROWS], got[MAX_X * ROWS], scratch[4 * COLS];
    random_floats(x, MAX_X * COLS, 5);
    for (int t = 0; t < N_TYPES; t++) {
        uint8_t *data;
        struct weight w = make_weight(TYPES[t], &data);
        matmul_order(&KERNELS_REF, &w, x);
        run_matmul(&KERNELS_REF, want, ROWS, &w, 0, ROWS, x, COLS, MAX_X, scratch);
        const struct kernels *fast;
        if (support_avx2() && !kernels_find(&fast, "avx2", NULL)) {
            matmul_order(fast, &w, x);
            run_matmul(fast, got, ROWS, &w, 0, ROWS, x, COLS, MAX_X, scratch);
            double d = distance(got, want, MAX_X * ROWS);
            if (!(d < BOUND))
                fail_msg("%s: distance %g", tensor_type_info(TYPES[t])->name, d);
        }
        free(data);
    }
}

/* Widths that are whole vectors but no whole blocks, and fewer rows than a tile: nothing is read or written beside them. */
static void test_matmul_of_odd_shapes(void **state)
{
    const struct kernels *fast;
    if (!support_avx2() || kernels_find(&fast, "avx2", NULL))
        skip();
    for (uint32_t cols = 8; cols <= 72; cols += 16)
        for (uint32_t rows = 1; rows <= 6; rows++) {
            float *w = malloc(4 * rows * cols), *x = malloc(4 * 2 * cols);
            float *scratch = malloc(4 * 4 * cols), *want = malloc(4 * 2 * rows),
                  *got = malloc(4 * 2 * rows);
            random_floats(w, rows * cols, rows);
            random_floats(x, 2 * cols, cols);
            memset(scratch, 0, 4 * 4 * cols);
            struct weight m = {.data = w,
                               .type = TENSOR_F32,
                               .n_rows = rows,
                               .n_cols = cols,
                               .row_bytes = 4 * cols};
            run_matmul(&KERNELS_REF, want, rows, &m, 0, rows, x, cols, 2, scratch);
            run_matmul(fast, got, rows, &m, 0, rows, x, cols, 2, scratch);
            assert_true(distance(got, want, 2 * rows) < BOUND);
            free(w);
            free(x);
            free(scratch);
            free(want);
            free(got);
        }
}

static void test_reference_matmul_by_hand(void **state)
{
    float w[2 * 8], x[8], y[2], scratch[4 * 8] = {0};
    for (int i = 0; i < 8; i++) {
        w[i] = (float)i;
        w[8 + i] = i == 3 ? 2 : 0;
        x[i] = (float)(i + 1);
    }
    struct weight m = {.data = w, .type = TENSOR_F32, .n_rows = 2, .n_cols = 8, .row_bytes = 32};
    run_matmul(&KERNELS_REF, y, 2, &m, 0, 2, x, 8, 1, scratch);
    assert_true(y[0] == 168 && y[1] == 8);
}

static void test_norm_silu_add(void **state)
{
    static float x[COLS], s[COLS], want[COLS], got[COLS];
    const struct kernels *fast;
    if (!support_avx2() || kernels_find(&fast, "avx2", NULL))
        skip();
    random_floats(x, COLS, 1);
    random_floats(s, COLS, 2);
    KERNELS_REF.norm(want, x, s, COLS, 1e-5f);
    fast->norm(got, x, s, COLS, 1e-5f);
    assert_true(distance(got, want, COLS) < 1e-6);
    for (int i = 0; i < COLS; i++) /* over the whole range, both tails included */
        want[i] = got[i] = ((float)i - COLS / 2) * 0.4f;
    KERNELS_REF.silu_mul(want, s, COLS);
    fast->silu_mul(got, s, COLS);
    for (int i = 0; i < COLS; i++)
        assert_true(fabs((double)got[i] - want[i]) <= 4e-7 * fabs((double)want[i]) + 1e-30);
    memcpy(want, x, sizeof x);
    memcpy(got, x, sizeof x);
    KERNELS_REF.add(want, s, COLS);
    fast->add(got, s, COLS);
    assert_memory_equal(got, want, sizeof x);
}

static void test_attention(void **state)
{
    enum { MAX_KV = 70, GROUP = 3 };
    static float q[GROUP * HEAD], k[MAX_KV * HEAD], v[MAX_KV * HEAD], want[GROUP * HEAD],
        got[GROUP * HEAD], scores[MAX_KV + 8];
    const struct kernels *fast;
    if (!support_avx2() || kernels_find(&fast, "avx2", NULL))
        skip();
    random_floats(q, GROUP * HEAD, 1);
    random_floats(k, MAX_KV * HEAD, 2);
    random_floats(v, MAX_KV * HEAD, 3);
    for (int i = 0; i < GROUP * HEAD; i++)
        q[i] *= 4; /* scores far apart */
    for (uint32_t n = 1; n <= MAX_KV; n++)
        for (uint32_t dim = 16; dim <= HEAD; dim += 24) {
            KERNELS_REF.attend(want, q, GROUP, k, v, n, dim, scores);
            fast->attend(got, q, GROUP, k, v, n, dim, scores);
            double d = distance(got, want, GROUP * dim);
            if (!(d < 3e-6))
                fail_msg("%u positions, head of %u: distance %g", n, dim, d);
        }
}

static void test_rope_turns_neighbours(void **state)
{
    float head[4] = {1, 0, 0, 1}, angles[4] = {cosf(0.5f), sinf(0.5f), cosf(0.1f), sinf(0.1f)};
    KERNELS_REF.rope(head, angles, 4, ROPE_PAIRS);
    assert_true(fabsf(head[0] - angles[0]) < 1e-7f && fabsf(head[1] - angles[1]) < 1e-7f);
    assert_true(fabsf(head[2] + angles[3]) < 1e-7f && fabsf(head[3] - angles[2]) < 1e-7f);
}

static void test_nan_goes_through(void **state)
{
    float x[8] = {1, 2, NAN, 4, 5, 6, 7, 8}, one[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    const struct kernels *fast;
    if (!support_avx2() || kernels_find(&fast, "avx2", NULL))
        skip();
    fast->silu_mul(x, one, 8);
    assert_true(isnan(x[2]) && !isnan(x[1]));
}

static void test_find(void **state)
{
    const struct kernels *k;
    struct err e = ERR_INIT;
    assert_int_equal(kernels_find(&k, "avx9000", &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "avx9000"));
    assert_int_equal(kernels_find(&k, "ref", &e), 0);
    assert_ptr_equal(k, &KERNELS_REF);
    setenv("EXASERVE_KERNELS", "ref", 1);
    assert_int_equal(kernels_find(&k, NULL, &e), 0);
    assert_ptr_equal(k, &KERNELS_REF);
    unsetenv("EXASERVE_KERNELS");
    if (support_avx2()) {
        assert_int_equal(kernels_find(&k, NULL, &e), 0);
        assert_string_equal(k->name, "avx2");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_half_floats_are_exact),
        cmocka_unit_test(test_blocks_unpack_as_described),
        cmocka_unit_test(test_matmul_of_odd_shapes),
        cmocka_unit_test(test_reference_matmul_by_hand),
        cmocka_unit_test(test_matmul),
        cmocka_unit_test(test_norm_silu_add),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_rope_turns_neighbours),
        cmocka_unit_test(test_nan_goes_through),
        cmocka_unit_test(test_find),
    };
    return cmocka_run_group_tests_name("engine_kernels", tests, NULL, NULL);
}
