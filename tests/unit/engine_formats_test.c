/* engine_formats_test.c - what block formats cost, family by family: NMSE of the logits against the same weights in F32.
 *
 * Models are wider than those of tests/golden/families (rows of whole 256-blocks) and have weights of about a normal distribution.
 * Printed as a table in Markdown (`make families-table`; docs/internals/families.md keeps one).
 */
#include "families_support.h"

#include "engine/cpu/kernels.h"

enum { WIDE = 256, N_LAYERS = 2, N_PROMPT = 16, N_VOCAB = 96 };

/* Bounds are two to three times what the reference kernels measure on any dense family. */
static const struct {
    int type;
    double bound;
} FORMATS[] = {
    {TENSOR_F16, 1e-6},  {TENSOR_BF16, 6e-5},   {TENSOR_Q8_0, 1e-3},    {TENSOR_Q6_K, 6e-3},
    {TENSOR_Q5_K, 3e-2}, {TENSOR_Q5_1, 3e-2},   {TENSOR_Q5_0, 4e-2},    {TENSOR_Q4_K, 1e-1},
    {TENSOR_Q4_1, 1e-1}, {TENSOR_Q4_0, 1.5e-1}, {TENSOR_F8_E4M3, 2e-2},
};
enum { N_FORMATS = sizeof FORMATS / sizeof FORMATS[0] };
static const double ACTIVATION_ERROR = 2e-3;
/* Where two experts are nearly as good, a small error chooses the other one. */
static const double ROUTING = 5;

static const struct wide_case {
    const char *name;
    struct model_params p; /* what differs */
} WIDES[] = {
    {"llama", {.arch = "llama"}},
    {"mistral (window)", {.arch = "llama", .window = 8}},
    {"mixtral",
     {.arch = "llama",
      .n_experts = 4,
      .n_experts_used = 2,
      .n_ff_expert = WIDE,
      .experts_renorm = true}},
    {"qwen2", {.arch = "qwen2"}},
    {"qwen3", {.arch = "qwen3"}},
    {"qwen3moe", {.arch = "qwen3moe", .n_experts = 8, .n_experts_used = 2, .n_ff_expert = WIDE}},
    {"smollm3", {.arch = "smollm3", .nope_every = 2}},
};
enum { N_WIDES = sizeof WIDES / sizeof WIDES[0] };

static struct model_params wide_params(const struct wide_case *w)
{
    struct model_params p = w->p;
    p.n_layers = N_LAYERS;
    p.n_embd = p.n_ff = WIDE;
    p.n_heads = 4;
    p.n_kv_heads = 2;
    p.head_dim = p.rope_dim = WIDE / 4;
    p.rope_base = 10000;
    p.norm_eps = 1e-5f;
    p.n_ctx = 64;
    p.n_vocab = N_VOCAB;
    return p;
}

static void add(struct family_shape *list, uint32_t *n, char (*names)[TENSOR_NAME_BYTES],
                const char *name, uint32_t rows, uint32_t cols, uint32_t n_parts)
{
    snprintf(names[*n], TENSOR_NAME_BYTES, "%s", name);
    list[*n] = (struct family_shape){names[*n], rows, cols, n_parts};
    (*n)++;
}

static uint32_t wide_shapes(struct family_shape *list, const struct model_params *p)
{
    static char names[FAMILY_MAX_TENSORS][TENSOR_NAME_BYTES];
    static const struct {
        const char *name;
        int rows_of,
            when; /* rows_of: 0 vector, 1 the width, 2 kv; when: 0 always, 1 dense, 2 experts, 3 qwen2, 4 qwen3 */
    } PARTS[] = {
        {"attn_norm.weight", 0, 0},    {"attn_q.weight", 1, 0},
        {"attn_k.weight", 2, 0},       {"attn_v.weight", 2, 0},
        {"attn_output.weight", 1, 0},  {"ffn_norm.weight", 0, 0},
        {"ffn_gate.weight", 1, 1},     {"ffn_up.weight", 1, 1},
        {"ffn_down.weight", 1, 1},     {"ffn_gate_exps.weight", 3, 2},
        {"ffn_up_exps.weight", 3, 2},  {"ffn_down_exps.weight", 3, 2},
        {"ffn_gate_inp.weight", 4, 2}, {"attn_q.bias", 0, 3},
        {"attn_k.bias", 5, 3},         {"attn_v.bias", 5, 3},
        {"attn_q_norm.weight", 6, 4},  {"attn_k_norm.weight", 6, 4},
    };
    bool qwen3 = !strncmp(p->arch, "qwen3", 5), qwen2 = !strcmp(p->arch, "qwen2");
    const bool when[] = {true, !p->n_experts, p->n_experts > 0, qwen2, qwen3};
    uint32_t n = 0;
    add(list, &n, names, "token_embd.weight", N_VOCAB, WIDE, 1);
    add(list, &n, names, "output.weight", N_VOCAB, WIDE, 1);
    add(list, &n, names, "output_norm.weight", 0, WIDE, 1);
    const uint32_t rows[] = {0, WIDE, WIDE / 2, WIDE, p->n_experts, 0, 0};
    const uint32_t cols[] = {WIDE, WIDE, WIDE, WIDE, WIDE, WIDE / 2, WIDE / 4};
    for (uint32_t l = 0; l < N_LAYERS; l++)
        for (size_t i = 0; i < sizeof PARTS / sizeof PARTS[0]; i++) {
            char name[TENSOR_NAME_BYTES];
            int of = PARTS[i].rows_of;
            snprintf(name, sizeof name, "blk.%u.%s", l, PARTS[i].name);
            if (when[PARTS[i].when])
                add(list, &n, names, name, rows[of], cols[of], of == 3 ? p->n_experts : 1);
        }
    return n;
}

static void logits_of(float *out, const struct image *img, const char *kernels)
{
    struct graph_size size = run_size(64, KV_F32);
    uint32_t prompt[N_PROMPT];
    struct run r;
    for (uint32_t i = 0; i < N_PROMPT; i++)
        prompt[i] = (i * 29 + i * i * 7 + 3) % N_VOCAB;
    run_open(&r, img, &size, kernels, 1);
    run_step(&r, 0, prompt, 0, N_PROMPT, 0);
    for (uint32_t i = 0; i < N_PROMPT; i++)
        memcpy(out + (size_t)i * N_VOCAB, graph_logits(r.g, i), N_VOCAB * sizeof *out);
    run_close(&r);
}

/* The reference first. */
static const char *const SETS[] = {"ref", "avx2", "avxvnni", "avx512", "amx"};
enum { N_SETS = sizeof SETS / sizeof SETS[0] };

static double errors[N_SETS][N_WIDES][N_FORMATS];
static bool measured[N_SETS][N_WIDES];

static void measure(size_t i)
{
    static float truth[N_PROMPT * N_VOCAB], got[N_PROMPT * N_VOCAB];
    struct model_params p = wide_params(&WIDES[i]);
    struct family_shape shapes[FAMILY_MAX_TENSORS];
    uint32_t n = wide_shapes(shapes, &p);
    const struct kernels *k;
    struct image img;
    image_make(&img, &p, shapes, n, TENSOR_F32, NULL, family_weight_smooth);
    logits_of(truth, &img, "ref");
    image_drop(&img);
    for (size_t f = 0; f < N_FORMATS; f++) {
        image_make(&img, &p, shapes, n, FORMATS[f].type, NULL, family_weight_smooth);
        for (size_t s = 0; s < N_SETS; s++) {
            if (kernels_find(&k, SETS[s], NULL))
                continue;
            logits_of(got, &img, SETS[s]);
            errors[s][i][f] = nmse(got, truth, N_PROMPT * N_VOCAB);
            measured[s][i] = true;
        }
        image_drop(&img);
    }
}

static void print_table(size_t s)
{
    print_message("| %s |", SETS[s]);
    for (size_t f = 0; f < N_FORMATS; f++)
        print_message(" %s |", tensor_type_info(FORMATS[f].type)->name);
    print_message("\n|---|");
    for (size_t f = 0; f < N_FORMATS; f++)
        print_message("---|");
    for (size_t i = 0; i < N_WIDES; i++) {
        if (!measured[s][i])
            continue;
        print_message("\n| %s |", WIDES[i].name);
        for (size_t f = 0; f < N_FORMATS; f++)
            print_message(" %.1e |", errors[s][i][f]);
    }
    print_message("\n\n");
}

static void test_what_formats_cost(void **state)
{
    for (size_t i = 0; i < N_WIDES; i += INSTRUMENTED ? N_WIDES : 1)
        measure(i);
    for (size_t s = 0; s < N_SETS; s++) {
        if (!measured[s][0])
            continue;
        print_table(s);
        for (size_t i = 0; i < N_WIDES; i++)
            for (size_t f = 0; f < N_FORMATS && measured[s][i]; f++) {
                double bound = FORMATS[f].bound + (s ? ACTIVATION_ERROR : 0);
                bound *= WIDES[i].p.n_experts ? ROUTING : 1;
                if (!(errors[s][i][f] > 0 && errors[s][i][f] <= bound))
                    fail_msg("%s in %s by %s: NMSE %g, expected up to %g", WIDES[i].name,
                             tensor_type_info(FORMATS[f].type)->name, SETS[s], errors[s][i][f],
                             bound);
            }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_formats_cost),
    };
    return cmocka_run_group_tests_name("engine_formats", tests, NULL, NULL);
}
