/* engine_golden_test.c - the real model against the F32 run of another implementation (tests/golden/README.md).
 *
 * Both kernel sets have F32 activations, so the tight bounds hold: the tokens of greedy.json wherever the gap between best and second
 * is over 0.05, and logits NMSE under 1e-5 where logits are kept. All twelve prompts, 48 tokens each, for both sets; with sanitizers a
 * few of them, and the shortest for the reference set.
 */
#include "engine_support.h"

#include <jansson.h>

enum { N_VOCAB = 49152, MAX_PROMPTS = 16 };
#define GAP_BOUND  0.05
#define NMSE_BOUND 1e-5

static json_t *golden;

static const char *golden_dir(void)
{
    return env_or("EXASERVE_GOLDEN",
                  access("tests/golden/greedy.json", R_OK) ? "../shared/golden" : "tests/golden");
}

static int load_golden(void **state)
{
    char path[4096];
    json_error_t error;
    snprintf(path, sizeof path, "%s/greedy.json", golden_dir());
    golden = json_load_file(path, 0, &error);
    return golden ? 0 : -1;
}

static int drop_golden(void **state)
{
    json_decref(golden);
    return 0;
}

static uint32_t ids(const json_t *entry, const char *key, uint32_t *out, uint32_t max)
{
    const json_t *a = json_object_get(entry, key);
    uint32_t n = (uint32_t)json_array_size(a);
    assert_true(n > 0 && n <= max);
    for (uint32_t i = 0; i < n; i++)
        out[i] = (uint32_t)json_integer_value(json_array_get(a, i));
    return n;
}

/* NMSE against the kept logits; negative: none kept for this prompt. */
static double nmse(const char *id, const float *logits)
{
    static float kept[N_VOCAB];
    char path[4096];
    snprintf(path, sizeof path, "%s/logits_%s.f32", golden_dir(), id);
    FILE *f = fopen(path, "rb");
    if (!f)
        return -1;
    size_t n = fread(kept, sizeof *kept, N_VOCAB, f);
    fclose(f);
    assert_int_equal(n, N_VOCAB);
    double diff = 0, sum = 0;
    for (size_t i = 0; i < N_VOCAB; i++) {
        diff += ((double)logits[i] - kept[i]) * ((double)logits[i] - kept[i]);
        sum += (double)kept[i] * kept[i];
    }
    return diff / sum;
}

static uint32_t compare_tokens(const json_t *entry, const struct job *j)
{
    uint32_t want[256], n = ids(entry, "tokens", want, 256);
    const json_t *gaps = json_object_get(entry, "gap");
    for (uint32_t i = 0; i < n && i < j->n_out; i++) {
        if (j->out[i] == want[i])
            continue;
        double gap = json_number_value(json_array_get(gaps, i));
        if (gap > GAP_BOUND)
            fail_msg("%s: token %u is %u, expected %u (gap %g)",
                     json_string_value(json_object_get(entry, "id")), i, j->out[i], want[i], gap);
        return i; /* from here on the texts differ by right */
    }
    return j->n_out;
}

/* Free-running greedy decoding of the prompts whose number is in `list`, all at once. */
static void run(const char *kernels, const uint32_t *list, uint32_t n, uint32_t n_tokens)
{
    struct engine *g = support_engine(support_image(), kernels, n, 512, 2, 0);
    static struct job all[MAX_PROMPTS];
    struct job *ptrs[MAX_PROMPTS];
    struct jobs jobs = {ptrs, n};
    bool compared[MAX_PROMPTS] = {false};
    uint32_t n_logits = 0, n_same = 0;
    struct err e = ERR_INIT;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t prompt[512];
        uint32_t len = ids(json_array_get(golden, list[i]), "prompt_tokens", prompt, 512);
        job_init(&all[i], i, prompt, len, n_tokens);
        ptrs[i] = &all[i];
        MUST(engine_submit(g, &all[i].submit, clock_now_us(), &e), e);
    }
    for (int left = 1; left;) {
        left = jobs_step(g, &jobs);
        for (uint32_t i = 0; i < n; i++) {
            const char *id =
                json_string_value(json_object_get(json_array_get(golden, list[i]), "id"));
            if (all[i].n_out != 1 || compared[i])
                continue;
            compared[i] = true;
            const float *logits = engine_logits(g, &all[i].submit.attempt);
            assert_non_null(logits);
            double d = nmse(id, logits);
            if (d >= 0) {
                print_message("%s %s: logits NMSE %.3g\n", kernels, id, d);
                assert_true(d < NMSE_BOUND);
                n_logits++;
            }
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(all[i].finish, FINISH_LENGTH);
        assert_int_equal(all[i].n_out, n_tokens);
        n_same += compare_tokens(json_array_get(golden, list[i]), &all[i]);
    }
    print_message("%s: %u prompts, %u of %u tokens compared equal\n", kernels, n, n_same,
                  n * n_tokens);
    assert_true(n_same * 10 >= n * n_tokens * 9); /* or the gaps would hide a broken model */
    assert_true(n_logits >= 1);
    engine_destroy(g);
}

static size_t prompt_len(uint32_t i)
{
    return json_array_size(json_object_get(json_array_get(golden, i), "prompt_tokens"));
}

/* All prompts, shortest first. */
static uint32_t by_length(uint32_t *list)
{
    uint32_t n = (uint32_t)json_array_size(golden);
    assert_int_equal(n, 12);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i;
        for (; at && prompt_len(list[at - 1]) > prompt_len(i); at--)
            list[at] = list[at - 1];
        list[at] = i;
    }
    return n;
}

static void test_avx2_gives_the_golden_tokens(void **state)
{
    uint32_t list[MAX_PROMPTS];
    if (!support_avx2() || !support_image())
        skip();
    uint32_t n = by_length(list);
    if (INSTRUMENTED) /* ten times slower */
        run("avx2", list, 4, 8);
    else
        run("avx2", list, n, 48);
}

static void test_ref_gives_the_golden_tokens(void **state)
{
    uint32_t list[MAX_PROMPTS];
    if (!support_image())
        skip();
    uint32_t n = by_length(list);
    if (INSTRUMENTED)
        run("ref", list, 2, 3);
    else
        run("ref", list, n, 48);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_avx2_gives_the_golden_tokens),
        cmocka_unit_test(test_ref_gives_the_golden_tokens),
    };
    return cmocka_run_group_tests_name("engine_golden", tests, load_golden, drop_golden);
}
