/* engine_families_test.c - every family against what transformers computes on the same tiny model (tests/golden/families), by every
 * kernel set: the whole prompt at once, token by token, in chunks and in company, all the same bits. */
#include "families_support.h"

#include "engine/cpu/kernels.h"

/* NMSE that a kernel set keeps on these models. The reference itself rounds norms, angles and softmax to F32. */
static const struct {
    const char *kernels;
    double bound;
} SETS[] = {{"ref", 1e-11}, {"avx2", 1e-10}, {"avxvnni", 1e-10}, {"avx512", 1e-10}, {"amx", 1e-10}};
enum { N_SETS = sizeof SETS / sizeof SETS[0] };

static json_t *cases;
static float *results;

static int load(void **state)
{
    cases = families_load(FAMILIES);
    results = families_results();
    return 0;
}

static int unload(void **state)
{
    json_decref(cases);
    return 0;
}

static bool have_set(const char *name)
{
    const struct kernels *k;
    return kernels_find(&k, name, NULL) == 0;
}

/* --- one model, in all ways ------------------------------------------------------------------------------ */

struct way {
    const char *name;
    uint32_t seq, chunk, n_company, n_threads;
    int kv_type; /* 0: F32 */
};
static const struct way WAYS[] = {
    {"at once", 0, FAMILY_MAX_PROMPT, 0, 1, 0},
    {"token by token", 1, 1, 0, 1, 0},
    {"in chunks of 7, two threads", 2, 7, 0, 2, 0},
    {"in company", 0, 11, 17, 1, 0},
};

/* all: [n_prompt][width]; pool: [n_embd] of a model that takes the mean */
static void run_way(float *all, float *pool, const struct family_case *c, const struct image *img,
                    const char *kernels, const struct way *w)
{
    struct run r;
    struct graph_size size = run_size(c->n_ctx, w->kv_type ? w->kv_type : KV_F32);
    size_t width = c->width * sizeof(float);
    run_open(&r, img, &size, kernels, w->n_threads);
    graph_pool_reset(r.g, w->seq);
    for (uint32_t at = 0; at < c->n_prompt; at += w->chunk) {
        uint32_t n = c->n_prompt - at < w->chunk ? c->n_prompt - at : w->chunk;
        run_step(&r, w->seq, c->prompt, at, n, at ? 0 : w->n_company);
        for (uint32_t i = 0; i < n; i++)
            memcpy(all + (size_t)(at + i) * c->width, run_result(&r, &c->params, i), width);
    }
    if (c->params.pooling == POOLING_MEAN)
        memcpy(pool, graph_pool(r.g, w->seq), width);
    else
        assert_null(graph_pool(r.g, w->seq));
    if (c->params.pooling != POOLING_NONE)
        assert_null(graph_logits(r.g, 0));
    run_close(&r);
}

static double error_of(const struct family_case *c, const float *all, const float *pool)
{
    float mean[256];
    double worst = 0;
    for (uint32_t i = 0; i < c->width && c->params.pooling == POOLING_MEAN; i++)
        mean[i] = pool[i] / (float)c->n_prompt;
    for (uint32_t i = 0; i < c->n_positions; i++) {
        const float *got =
            c->params.pooling == POOLING_MEAN ? mean : all + (size_t)c->positions[i] * c->width;
        double off = nmse(got, c->expected + (size_t)i * c->width, c->width);
        worst = off > worst || isnan(off) ? off : worst;
    }
    return worst;
}

static void check_family(const struct family_case *c, const char *kernels, double bound)
{
    static float first[FAMILY_MAX_PROMPT * 256], again[FAMILY_MAX_PROMPT * 256];
    float pool[2][256] = {0};
    struct image img;
    size_t bytes = (size_t)c->n_prompt * c->width * sizeof(float);
    family_image(&img, c, TENSOR_F32);
    run_way(first, pool[0], c, &img, kernels, &WAYS[0]);
    double off = error_of(c, first, pool[0]);
    print_message("%-22s %s: NMSE %.2g\n", c->name, kernels, off);
    if (!(off <= bound))
        fail_msg("%s by %s: NMSE %g, expected at most %g", c->name, kernels, off, bound);
    for (size_t i = 1; i < sizeof WAYS / sizeof WAYS[0]; i++) {
        run_way(again, pool[1], c, &img, kernels, &WAYS[i]);
        if (memcmp(first, again, bytes) || memcmp(pool[0], pool[1], sizeof pool[0]))
            fail_msg("%s by %s, %s: other bits than at once", c->name, kernels, WAYS[i].name);
    }
    image_drop(&img);
}

static void test_every_family_is_the_reference(void **state)
{
    uint32_t n = 0;
    for (size_t k = 0; k < N_SETS; k++) {
        if (!have_set(SETS[k].kernels))
            continue;
        for (size_t i = INSTRUMENTED ? k % 3 : 0; i < json_array_size(cases);
             i += INSTRUMENTED ? 3 : 1, n++) {
            struct family_case c;
            family_read(&c, json_array_get(cases, i), results);
            check_family(&c, SETS[k].kernels, SETS[k].bound);
        }
    }
    assert_true(n >= (INSTRUMENTED ? 6 : 18));
}

/* F16 and BF16 hold these weights exactly: the same bits as F32 by the reference kernels. */
static void test_half_formats_are_the_same_model(void **state)
{
    static float first[FAMILY_MAX_PROMPT * 256], again[FAMILY_MAX_PROMPT * 256];
    const int types[] = {TENSOR_F32, TENSOR_F16, TENSOR_BF16};
    for (size_t i = 0; i < json_array_size(cases); i += INSTRUMENTED ? 4 : 1) {
        struct family_case c;
        family_read(&c, json_array_get(cases, i), results);
        for (size_t t = 0; t < 3; t++) {
            struct image img;
            float pool[256];
            family_image(&img, &c, types[t]);
            run_way(t ? again : first, pool, &c, &img, "ref", &WAYS[0]);
            image_drop(&img);
            if (t && memcmp(first, again, (size_t)c.n_prompt * c.width * sizeof(float)))
                fail_msg("%s: format %d gives other bits", c.name, types[t]);
        }
    }
}

/* Keys and values of 16 and 8 bits: still one result for all ways, and near the reference. */
static void test_smaller_keys_and_values(void **state)
{
    static float first[FAMILY_MAX_PROMPT * 256], again[FAMILY_MAX_PROMPT * 256];
    static const struct {
        int type;
        double bound;
    } KV[] = {{KV_F16, 3e-6}, {KV_Q8, 2e-3}};
    for (size_t i = 0; i < json_array_size(cases); i += INSTRUMENTED ? 6 : 1)
        for (size_t t = 0; t < 2; t++) {
            const struct way once = {"at once", 1, FAMILY_MAX_PROMPT, 0, 1, KV[t].type};
            const struct way single = {"token by token", 0, 1, 0, 2, KV[t].type};
            float pool[2][256] = {0};
            struct family_case c;
            struct image img;
            family_read(&c, json_array_get(cases, i), results);
            family_image(&img, &c, TENSOR_F32);
            run_way(first, pool[0], &c, &img, NULL, &once);
            run_way(again, pool[1], &c, &img, NULL, &single);
            image_drop(&img);
            double off = error_of(&c, first, pool[0]);
            print_message("%-22s kv %s: NMSE %.2g\n", c.name, kv_type_name(KV[t].type), off);
            if (!(off <= KV[t].bound))
                fail_msg("%s, kv %s: NMSE %g", c.name, kv_type_name(KV[t].type), off);
            if (memcmp(first, again, (size_t)c.n_prompt * c.width * sizeof(float)) ||
                memcmp(pool[0], pool[1], sizeof pool[0]))
                fail_msg("%s, kv %s: token by token gives other bits", c.name,
                         kv_type_name(KV[t].type));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_family_is_the_reference),
        cmocka_unit_test(test_half_formats_are_the_same_model),
        cmocka_unit_test(test_smaller_keys_and_values),
    };
    return cmocka_run_group_tests_name("engine_families", tests, load, unload);
}
