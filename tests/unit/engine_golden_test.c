/* engine_golden_test.c - the real model against the F32 run of another implementation (tests/golden/README.md).
 *
 * Each prompt and its 48 golden tokens go through the graph once, with logits at every token:
 *   - Reference kernels: the golden token is the best one wherever the gap between best and second is over 0.05, and logits NMSE is under 1e-5
 *     where logits are kept.
 *   - Fast kernels (integer activations, keys and values in F16), against the reference kernels' logits: at least 98 % of best tokens
 *     are the golden ones, none differs where the gap is over 0.35, mean KL at most 0.0025, median NMSE under 8e-4. All sets of the same numerics
 *     give the same bits.
 * With sanitizers a few short prompts.
 */
#include "engine_support.h"

#include <jansson.h>
#include <math.h>

#include "engine/cpu/exec_cpu.h"
#include "engine/graph.h"

enum { N_VOCAB = 49152, MAX_PROMPTS = 16, MAX_ROWS = 512, MAX_OUT = 48 };
#define GAP_BOUND       0.05
#define NMSE_BOUND      1e-5
#define FAST_GAP_BOUND  0.35
#define FAST_EQUAL      0.98
#define FAST_KL_BOUND   0.0025
#define FAST_NMSE_BOUND 8e-4

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

/* --- one prompt by one kernel set ------------------------------------------------------------------------ */

struct runner {
    struct image img;
    struct exec *x;
    struct graph *g;
};

static void runner_init(struct runner *r, const struct kernels *k, int kv_type)
{
    struct err e = ERR_INIT;
    MUST(image_open(&r->img, support_image(), false, &e), e);
    const struct graph_size size = {.n_ctx = MAX_ROWS,
                                    .n_seqs = 1,
                                    .max_rows = MAX_ROWS,
                                    .max_out = MAX_OUT,
                                    .n_blocks = MAX_ROWS / KV_BLOCK_TOKENS,
                                    .kv_type = kv_type};
    MUST(exec_cpu_create(&r->x, k, 2, graph_max_cols(&r->img.meta.params), MAX_ROWS, &e), e);
    MUST(graph_create(&r->g, &r->img, &size, &OPS_CPU, r->x, &e), e);
}

static void runner_fini(struct runner *r)
{
    graph_destroy(r->g);
    exec_cpu_destroy(r->x);
    image_close(&r->img);
}

/* Logits [n][N_VOCAB] at the prompt's last token and at each golden token but the last. */
static void runner_logits(struct runner *r, float *logits, const json_t *entry, uint32_t n)
{
    static struct batch_row rows[MAX_ROWS];
    uint32_t tokens[MAX_ROWS], table[MAX_ROWS / KV_BLOCK_TOKENS];
    uint32_t n_prompt = ids(entry, "prompt_tokens", tokens, MAX_ROWS - MAX_OUT);
    uint32_t all = n_prompt + n - 1;
    uint32_t more[256], n_golden = ids(entry, "tokens", more, 256);
    assert_true(n <= n_golden && n <= MAX_OUT);
    memcpy(tokens + n_prompt, more, (n - 1) * sizeof *tokens);
    for (uint32_t i = 0; i < MAX_ROWS / KV_BLOCK_TOKENS; i++)
        table[i] = i;
    for (uint32_t i = 0; i < all; i++)
        rows[i] =
            (struct batch_row){0, i, tokens[i], i + 1 < n_prompt ? ROW_NO_OUT : i + 1 - n_prompt};
    struct err e = ERR_INIT;
    MUST(graph_forward(r->g, &(struct step){rows, all, n, table, MAX_ROWS / KV_BLOCK_TOKENS}, &e),
         e);
    for (uint32_t i = 0; i < n; i++)
        memcpy(logits + (size_t)i * N_VOCAB, graph_logits(r->g, i), N_VOCAB * sizeof *logits);
}

/* --- judging --------------------------------------------------------------------------------------------- */

static uint32_t best_of(const float *x)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < N_VOCAB; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

static double log_sum(const float *x)
{
    double top = x[best_of(x)], sum = 0;
    for (uint32_t i = 0; i < N_VOCAB; i++)
        sum += exp(x[i] - top);
    return top + log(sum);
}

/* KL divergence of got from want, and NMSE. */
static void compare(const float *want, const float *got, double *kl, double *nmse_of)
{
    double lw = log_sum(want), lg = log_sum(got), diff = 0, size = 0;
    *kl = 0;
    for (uint32_t i = 0; i < N_VOCAB; i++) {
        double w = want[i], g = got[i];
        *kl += exp(w - lw) * ((w - lw) - (g - lg));
        diff += (w - g) * (w - g);
        size += w * w;
    }
    *nmse_of = diff / size;
}

struct verdict {
    uint32_t n, n_equal;
    double kl, nmse[MAX_PROMPTS * MAX_OUT];
};

static double gap_at(const json_t *entry, uint32_t i)
{
    return json_number_value(json_array_get(json_object_get(entry, "gap"), i));
}

static void judge(struct verdict *v, const json_t *entry, const float *want, const float *got,
                  uint32_t n)
{
    uint32_t golden_ids[256];
    ids(entry, "tokens", golden_ids, 256);
    for (uint32_t i = 0; i < n; i++) {
        double kl;
        compare(want + (size_t)i * N_VOCAB, got + (size_t)i * N_VOCAB, &kl, &v->nmse[v->n++]);
        v->kl += kl;
        bool equal = best_of(got + (size_t)i * N_VOCAB) == golden_ids[i];
        v->n_equal += equal;
        if (!equal && gap_at(entry, i) > FAST_GAP_BOUND)
            fail_msg("%s: token %u differs (gap %g)",
                     json_string_value(json_object_get(entry, "id")), i, gap_at(entry, i));
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void judge_reference(const json_t *entry, const float *logits, uint32_t n,
                            uint32_t *n_logits)
{
    uint32_t golden_ids[256];
    const char *id = json_string_value(json_object_get(entry, "id"));
    ids(entry, "tokens", golden_ids, 256);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t best = best_of(logits + (size_t)i * N_VOCAB);
        if (best != golden_ids[i] && gap_at(entry, i) > GAP_BOUND)
            fail_msg("%s: token %u is %u, expected %u (gap %g)", id, i, best, golden_ids[i],
                     gap_at(entry, i));
    }
    double d = nmse(id, logits);
    if (d < 0)
        return;
    print_message("ref %s: logits NMSE %.3g\n", id, d);
    assert_true(d < NMSE_BOUND);
    ++*n_logits;
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

static const struct kernels *best_fast(void)
{
    const struct kernels *k;
    for (uint32_t i = 0; (k = kernels_nth(i)); i++)
        if (k->usable() && k != &KERNELS_REF && !strcmp(k->numerics, "int15"))
            return k;
    return NULL;
}

static void test_kernels_keep_the_golden_bounds(void **state)
{
    uint32_t list[MAX_PROMPTS], n_logits = 0;
    if (!support_image())
        skip();
    uint32_t n = by_length(list), n_tokens = MAX_OUT;
    if (INSTRUMENTED) { /* ten times slower */
        n = 2;
        n_tokens = 3;
    }
    struct runner ref, fast;
    const struct kernels *k = best_fast();
    static struct verdict v;
    float *want = malloc(sizeof *want * MAX_OUT * N_VOCAB);
    float *got = malloc(sizeof *got * MAX_OUT * N_VOCAB);
    runner_init(&ref, &KERNELS_REF, KV_F32);
    if (k)
        runner_init(&fast, k, KV_F16);
    for (uint32_t i = 0; i < n; i++) {
        const json_t *entry = json_array_get(golden, list[i]);
        runner_logits(&ref, want, entry, n_tokens);
        judge_reference(entry, want, n_tokens, &n_logits);
        if (!k)
            continue;
        runner_logits(&fast, got, entry, n_tokens);
        judge(&v, entry, want, got, n_tokens);
    }
    assert_true(n_logits >= 1);
    runner_fini(&ref);
    if (k) {
        runner_fini(&fast);
        qsort(v.nmse, v.n, sizeof v.nmse[0], by_value);
        print_message("%s: %u of %u best tokens equal, mean KL %.3g, median NMSE %.3g\n", k->name,
                      v.n_equal, v.n, v.kl / v.n, v.nmse[v.n / 2]);
        assert_true(v.n_equal >= FAST_EQUAL * v.n);
        assert_true(v.kl / v.n <= FAST_KL_BOUND);
        assert_true(v.nmse[v.n / 2] < FAST_NMSE_BOUND);
    }
    free(want);
    free(got);
}

static void test_sets_of_one_numerics_give_the_same_bits(void **state)
{
    uint32_t list[MAX_PROMPTS], n = INSTRUMENTED ? 2 : MAX_OUT;
    const struct kernels *best = best_fast(), *k;
    if (!support_image() || !best)
        skip();
    by_length(list);
    const json_t *entry = json_array_get(golden, list[0]);
    float *want = malloc(sizeof *want * MAX_OUT * N_VOCAB);
    float *got = malloc(sizeof *got * MAX_OUT * N_VOCAB);
    struct runner r;
    runner_init(&r, best, KV_F16);
    runner_logits(&r, want, entry, n);
    runner_fini(&r);
    for (uint32_t i = 0; (k = kernels_nth(i)); i++) {
        if (!k->usable() || k == best || strcmp(k->numerics, best->numerics))
            continue;
        runner_init(&r, k, KV_F16);
        runner_logits(&r, got, entry, n);
        runner_fini(&r);
        print_message("%s against %s\n", k->name, best->name);
        assert_memory_equal(got, want, sizeof *got * n * N_VOCAB);
    }
    free(want);
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels_keep_the_golden_bounds),
        cmocka_unit_test(test_sets_of_one_numerics_give_the_same_bits),
    };
    return cmocka_run_group_tests_name("engine_golden", tests, load_golden, drop_golden);
}
