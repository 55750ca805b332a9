/* model_blocks_test.c - block formats: unpacking bit for bit as the Python package `gguf` does it (tests/golden/blocks.json,
 * made by tests/tools/make_block_golden.py), packing with errors no larger than its own, small floats exhaustively. */
#include "model/blocks.h"
#include "model/index.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static const int TYPES[] = {TENSOR_F32,  TENSOR_F16,  TENSOR_BF16, TENSOR_Q4_0,
                            TENSOR_Q4_1, TENSOR_Q5_0, TENSOR_Q5_1, TENSOR_Q8_0,
                            TENSOR_Q4_K, TENSOR_Q5_K, TENSOR_Q6_K, TENSOR_F8_E4M3};
enum { N_TYPES = sizeof TYPES / sizeof TYPES[0], N_WEIGHTS = 16 * 512 };

static int type_named(const char *name)
{
    for (size_t i = 0; i < N_TYPES; i++)
        if (strcmp(tensor_type_info(TYPES[i])->name, name) == 0)
            return TYPES[i];
    fail_msg("no format %s", name);
    return -1;
}

static uint8_t *hex_bytes(const char *hex, size_t *n)
{
    *n = strlen(hex) / 2;
    uint8_t *p = malloc(*n + 1);
    assert_non_null(p);
    for (size_t i = 0; i < *n; i++) {
        unsigned v;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &v), 1);
        p[i] = (uint8_t)v;
    }
    return p;
}

static float bits_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

/* The weights of make_block_golden.py. */
static void weights_make(float x[N_WEIGHTS])
{
    uint32_t s = 1;
    for (int i = 0; i < N_WEIGHTS; i++) {
        int total = -2 * 65535;
        for (int k = 0; k < 4; k++) {
            s = s * 1664525 + 1013904223;
            total += (int)(s >> 16);
        }
        x[i] = (float)total * 0x1p-20f * (i % 97 == 0 ? 8 : 1);
    }
}

static double packing_error(int type, const float *x, size_t n)
{
    const struct tensor_type_info *t = tensor_type_info(type);
    uint8_t *blocks = malloc(n / t->block_elems * t->block_bytes);
    float *y = malloc(n * sizeof *y);
    assert_non_null(blocks);
    assert_non_null(y);
    block_pack(type, blocks, x, n);
    block_unpack(type, y, blocks, n);
    double error = 0;
    for (size_t i = 0; i < n; i++)
        error += ((double)y[i] - (double)x[i]) * ((double)y[i] - (double)x[i]);
    free(blocks);
    free(y);
    return error;
}

static json_t *golden_load(void)
{
    json_error_t why;
    json_t *golden = json_load_file("tests/golden/blocks.json", JSON_REJECT_DUPLICATES, &why);
    if (!golden)
        fail_msg("tests/golden/blocks.json: %s", why.text);
    return golden;
}

static void test_unpack_is_exact(void **state)
{
    (void)state;
    json_t *golden = golden_load(), *entry;
    size_t i, n_formats = 0;
    json_array_foreach(json_object_get(golden, "formats"), i, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "type"));
        int type = type_named(name);
        const struct tensor_type_info *t = tensor_type_info(type);
        size_t n_bytes, n_want;
        uint8_t *blocks = hex_bytes(json_string_value(json_object_get(entry, "blocks")), &n_bytes);
        uint8_t *want = hex_bytes(json_string_value(json_object_get(entry, "weights")), &n_want);
        size_t n = n_bytes / t->block_bytes * t->block_elems;
        assert_int_equal(n * 4, n_want);
        float *y = malloc(n_want);
        assert_non_null(y);
        block_unpack(type, y, blocks, n);
        for (size_t k = 0; k < n; k++) {
            float w;
            memcpy(&w, want + 4 * k, 4);
            if (!(isnan(w) && isnan(y[k])) && memcmp(&y[k], &w, 4) != 0)
                fail_msg("%s: weight %zu: expected %a, found %a", name, k, (double)w, (double)y[k]);
        }
        free(y);
        free(want);
        free(blocks);
        n_formats++;
    }
    assert_int_equal(n_formats, N_TYPES - 2); /* F32 is itself, F8_E4M3 is our own */
    json_decref(golden);
}

static void test_pack_errs_no_more_than_gguf(void **state)
{
    (void)state;
    static float x[N_WEIGHTS];
    weights_make(x);
    json_t *golden = golden_load(), *entry;
    size_t i, n_compared = 0;
    json_array_foreach(json_object_get(golden, "formats"), i, entry)
    {
        const json_t *theirs = json_object_get(entry, "squared_error");
        if (!theirs)
            continue;
        const char *name = json_string_value(json_object_get(entry, "type"));
        double ours = packing_error(type_named(name), x, N_WEIGHTS);
        if (!(ours <= json_real_value(theirs) * (1 + 1e-9)))
            fail_msg("%s: squared error %g, gguf's %g", name, ours, json_real_value(theirs));
        n_compared++;
    }
    assert_int_equal(n_compared, 7);
    json_decref(golden);
}

/* Root of the squared error over the weights' sum of squares, at most: as measured. Packing is deterministic, and each step of the
 * search (scales around the obvious one, turns of solving, d and dmin solved for all sub-blocks) shows here when it is left out:
 * plain rounding of Q4_0 errs by 0.1374. */
static void test_pack_error_of_each_format(void **state)
{
    (void)state;
    static const struct {
        int type;
        double most;
    } table[] = {
        {TENSOR_F32, 0},        {TENSOR_F16, 2.2e-4},   {TENSOR_BF16, 1.66e-3},
        {TENSOR_Q8_0, 0.00882}, {TENSOR_Q6_K, 0.02557}, {TENSOR_Q5_K, 0.04255},
        {TENSOR_Q5_1, 0.0412},  {TENSOR_Q5_0, 0.0674},  {TENSOR_Q4_K, 0.0873},
        {TENSOR_Q4_1, 0.0862},  {TENSOR_Q4_0, 0.1334},  {TENSOR_F8_E4M3, 0.01935},
    };
    static float x[N_WEIGHTS];
    weights_make(x);
    double sum = 0;
    for (int i = 0; i < N_WEIGHTS; i++)
        sum += (double)x[i] * (double)x[i];
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        double e = sqrt(packing_error(table[i].type, x, N_WEIGHTS) / sum);
        print_message("%-7s %.5f\n", tensor_type_info(table[i].type)->name, e);
        if (!(e <= table[i].most))
            fail_msg("%s: error %g, at most %g", tensor_type_info(table[i].type)->name, e,
                     table[i].most);
    }
}

/* Weights that a format can hold come back: packing what was unpacked changes nothing (or hardly, where several scales serve). */
static void test_pack_of_unpacked(void **state)
{
    (void)state;
    static float x[N_WEIGHTS], y[N_WEIGHTS];
    static uint8_t blocks[N_WEIGHTS * 4];
    weights_make(x);
    for (size_t i = 0; i < N_TYPES; i++) {
        block_pack(TYPES[i], blocks, x, N_WEIGHTS);
        block_unpack(TYPES[i], y, blocks, N_WEIGHTS);
        double sum = 0, error = packing_error(TYPES[i], y, N_WEIGHTS);
        for (int k = 0; k < N_WEIGHTS; k++)
            sum += (double)y[k] * (double)y[k];
        bool one_level = tensor_type_info(TYPES[i])->block_elems < KBLOCK_WEIGHTS;
        if (!(sqrt(error / sum) <= (one_level ? 1e-3 : 0.02)))
            fail_msg("%s: error %g on its own weights", tensor_type_info(TYPES[i])->name,
                     sqrt(error / sum));
    }
}

/* Blocks of zeros, of one value, of tiny and of large ones. */
static void test_pack_of_extremes(void **state)
{
    (void)state;
    static const float VALUES[] = {0, 1, -1, 0x1p-149f, 1e-38f, -3e-9f, 60000, -60000};
    for (size_t i = 0; i < N_TYPES; i++)
        for (size_t v = 0; v < sizeof VALUES / sizeof VALUES[0]; v++) {
            float x[KBLOCK_WEIGHTS], y[KBLOCK_WEIGHTS];
            uint8_t blocks[KBLOCK_WEIGHTS * 4];
            for (int alternate = 0; alternate < 2; alternate++) {
                for (int k = 0; k < KBLOCK_WEIGHTS; k++)
                    x[k] = alternate && k % 3 == 0 ? 0 : VALUES[v];
                block_pack(TYPES[i], blocks, x, KBLOCK_WEIGHTS);
                block_unpack(TYPES[i], y, blocks, KBLOCK_WEIGHTS);
                for (int k = 0; k < KBLOCK_WEIGHTS; k++) /* halves end at 6e-8 */
                    if (!(fabsf(y[k] - x[k]) <= fabsf(VALUES[v]) * 0.07f + 1e-5f))
                        fail_msg("%s: %g became %g", tensor_type_info(TYPES[i])->name, (double)x[k],
                                 (double)y[k]);
            }
        }
}

static void test_pack_shows_what_is_not_finite(void **state)
{
    (void)state;
    static const float BAD[] = {NAN, INFINITY, -INFINITY, 1e38f};
    for (size_t i = 0; i < N_TYPES; i++)
        for (size_t v = 0; v < sizeof BAD / sizeof BAD[0]; v++) {
            bool holds_large =
                TYPES[i] == TENSOR_F32 || TYPES[i] == TENSOR_BF16 || TYPES[i] == TENSOR_F8_E4M3;
            float x[KBLOCK_WEIGHTS] = {1, 2, 3}, y[KBLOCK_WEIGHTS];
            uint8_t blocks[KBLOCK_WEIGHTS * 4];
            x[7] = BAD[v];
            block_pack(TYPES[i], blocks, x, KBLOCK_WEIGHTS);
            block_unpack(TYPES[i], y, blocks, KBLOCK_WEIGHTS);
            if (isfinite(y[7]) && !(holds_large && isfinite(x[7])))
                fail_msg("%s: %g became %g", tensor_type_info(TYPES[i])->name, (double)x[7],
                         (double)y[7]);
        }
}

/* Every half, bfloat and e4m3 comes back from its float; what lies between two goes to the nearer one. */
static void test_halves(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 1 << 16; h++) {
        const uint8_t p[2] = {(uint8_t)h, (uint8_t)(h >> 8)};
        uint8_t back[2];
        float f = half_float(p);
        float_half(back, f);
        if (isnan(f))
            assert_true(isnan(half_float(back)));
        else
            assert_memory_equal(p, back, 2);
        f = bfloat_float(p);
        float_bfloat(back, f);
        if (isnan(f))
            assert_true(isnan(bfloat_float(back)));
        else
            assert_memory_equal(p, back, 2);
        /* the middle between this one and the next goes to the even one, a little more to the upper */
        if ((h & 0x7fff) < 0x7bff) {
            uint32_t up = h + 1;
            const uint8_t q[2] = {(uint8_t)up, (uint8_t)(up >> 8)};
            float mid = (half_float(p) + half_float(q)) / 2;
            float_half(back, mid);
            assert_memory_equal(h & 1 ? q : p, back, 2);
            float_half(back, nextafterf(mid, half_float(q)));
            assert_memory_equal(q, back, 2);
            float_half(back, nextafterf(mid, half_float(p)));
            assert_memory_equal(p, back, 2);
        }
    }
    uint8_t out[2];
    float_half(out, 65519.996f);
    assert_true(half_float(out) == 65504);
    float_half(out, 65520);
    assert_true(isinf(half_float(out)));
    float_bfloat(out, bits_float(0x3f808000)); /* ties to even */
    assert_int_equal(out[0] | out[1] << 8, 0x3f80);
    float_bfloat(out, bits_float(0x3f818000));
    assert_int_equal(out[0] | out[1] << 8, 0x3f82);
}

static void test_e4m3(void **state)
{
    (void)state;
    assert_true(e4m3_float(0x7e) == 448 && e4m3_float(0x08) == 0x1p-6f &&
                e4m3_float(0x01) == 0x1p-9f && e4m3_float(0x38) == 1 &&
                e4m3_float(0xb9) == -1.125f);
    assert_true(isnan(e4m3_float(0x7f)) && isnan(e4m3_float(0xff)));
    for (int q = 0; q < 256; q++) {
        float f = e4m3_float((uint8_t)q);
        if (isnan(f)) {
            assert_true(isnan(e4m3_float(float_e4m3(f))));
            continue;
        }
        assert_int_equal(float_e4m3(f), q);
        if ((q & 0x7f) < 0x7e) {
            float next = e4m3_float((uint8_t)(q + 1)), mid = (f + next) / 2;
            assert_int_equal(float_e4m3(mid), q & 1 ? q + 1 : q);
            assert_int_equal(float_e4m3(nextafterf(mid, next)), q + 1);
            assert_int_equal(float_e4m3(nextafterf(mid, f)), q);
        }
    }
    assert_int_equal(float_e4m3(1e9f), 0x7e);
    assert_int_equal(float_e4m3(-INFINITY), 0xfe);
    assert_int_equal(float_e4m3(-1e-9f), 0x80);
}

/* An F8 block: scale times q, one rounding. */
static void test_f8_block(void **state)
{
    (void)state;
    struct block_f8_e4m3 b;
    float scale = 0.0123f, y[BLOCK_WEIGHTS];
    memcpy(b.scale, &scale, 4);
    for (int i = 0; i < BLOCK_WEIGHTS; i++)
        b.q[i] = (uint8_t)(i * 7 + (i & 1 ? 128 : 0));
    block_unpack(TENSOR_F8_E4M3, y, &b, BLOCK_WEIGHTS);
    for (int i = 0; i < BLOCK_WEIGHTS; i++) {
        float want = scale * e4m3_float(b.q[i]);
        assert_true(y[i] == want || isnan(want));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unpack_is_exact),
        cmocka_unit_test(test_pack_errs_no_more_than_gguf),
        cmocka_unit_test(test_pack_error_of_each_format),
        cmocka_unit_test(test_pack_of_unpacked),
        cmocka_unit_test(test_pack_of_extremes),
        cmocka_unit_test(test_pack_shows_what_is_not_finite),
        cmocka_unit_test(test_halves),
        cmocka_unit_test(test_e4m3),
        cmocka_unit_test(test_f8_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
