/* engine_graph_test.c - what a graph is before it computes: refusals by name, memory to the byte, which part of a tensor is whose. */
#include "families_support.h"

#include <inttypes.h>

#include "engine/coll.h"

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

static struct family_case case_of(const char *name)
{
    struct family_case c;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        family_read(&c, json_array_get(cases, i), results);
        if (!strcmp(c.name, name))
            return c;
    }
    fail_msg("no case %s", name);
    return c;
}

static void says(const struct err *e, const char *expect)
{
    if (!strstr(e->text, expect))
        fail_msg("\"%s\" does not say \"%s\"", e->text, expect);
}

/* --- parameters ------------------------------------------------------------------------------------------ */

static void refused(const char *family, void (*spoil)(struct model_params *p), const char *expect)
{
    struct family_case c = case_of(family);
    struct err e = ERR_INIT;
    MUST(graph_check(&c.params, &e), e);
    spoil(&c.params);
    assert_int_equal(graph_check(&c.params, &e), ERR_FORMAT);
    says(&e, expect);
}

static void spoil_arch(struct model_params *p)
{
    strcpy(p->arch, "gemma");
}
static void spoil_experts(struct model_params *p)
{
    p->n_experts = 4;
    p->n_experts_used = 2;
    p->n_ff_expert = 32;
}
static void spoil_no_experts(struct model_params *p)
{
    p->n_experts = 0;
}
static void spoil_used(struct model_params *p)
{
    p->n_experts_used = 9;
}
static void spoil_expert_width(struct model_params *p)
{
    p->n_ff_expert = 30;
}
static void spoil_nope(struct model_params *p)
{
    p->nope_every = 4;
}
static void spoil_all_nope(struct model_params *p)
{
    p->nope_every = 1;
}
static void spoil_window(struct model_params *p)
{
    p->window = 16;
}

static void spoil_heads(struct model_params *p)
{
    p->n_heads = p->n_kv_heads = 1u << 28; /* times 16: 0 in 32 bits */
}
static void spoil_width(struct model_params *p)
{
    p->n_embd = 1u << 31;
}

static void test_sizes_that_overflow_are_refused(void **state)
{
    refused("llama2", spoil_heads, "heads: expected at most 1024, found 268435456");
    refused("llama2", spoil_width, "width: expected at most 262144, found 2147483648");
}

static void test_parameters_that_a_family_lacks_are_refused(void **state)
{
    refused("llama2", spoil_arch,
            "architecture gemma: this engine runs llama, qwen2, qwen3, qwen3moe, smollm3");
    refused("qwen2", spoil_experts, "qwen2: expected a model without experts, found 4");
    refused("smollm3", spoil_experts, "smollm3: expected a model without experts, found 4");
    refused("qwen3moe", spoil_no_experts, "qwen3moe: expected experts, found none");
    refused("qwen3moe", spoil_used, "experts: expected 1 to 8 chosen, found 9");
    refused("mixtral", spoil_expert_width, "width of an expert 30: expected a multiple of 8");
    refused("llama2", spoil_nope, "llama: expected a model without unrotated layers, found 4");
    refused("smollm3", spoil_all_nope, "smollm3: unrotated layers");
    struct family_case c = case_of("qwen3");
    spoil_window(&c.params); /* sliding windows are for all */
    assert_int_equal(graph_check(&c.params, NULL), 0);
}

/* --- tensors --------------------------------------------------------------------------------------------- */

/* The case's tensors but for one change; NULL: left out. */
struct change {
    const char *name, *new_name;
    uint32_t rows, cols; /* 0: as they are */
};

static int create_changed(const char *family, const struct change *change, struct err *e)
{
    struct family_case c = case_of(family);
    struct family_shape shapes[FAMILY_MAX_TENSORS];
    uint32_t n = shapes_read(shapes, &c), kept = 0;
    bool found = false;
    for (uint32_t i = 0; i < n; i++) {
        struct family_shape s = shapes[i];
        if (!strcmp(s.name, change->name)) {
            found = true;
            if (!change->new_name)
                continue;
            s.name = change->new_name;
            s.rows = change->rows ? change->rows : s.rows;
            s.cols = change->cols ? change->cols : s.cols;
        }
        shapes[kept++] = s;
    }
    assert_true(found);
    struct image img;
    struct graph_size size = run_size(c.n_ctx, KV_F32);
    struct graph_memory need;
    image_make(&img, &c.params, shapes, kept, TENSOR_F16, json_object_get(c.record, "tensors"),
               family_weight);
    int rc = graph_memory(&need, &img, &size, &OPS_CPU, e); /* before anything is taken */
    image_drop(&img);
    return rc;
}

static void tensor_refused(const char *family, struct change change, const char *expect)
{
    struct err e = ERR_INIT;
    assert_int_equal(create_changed(family, &change, &e), ERR_FORMAT);
    says(&e, expect);
}

static void test_tensors_are_refused_by_name(void **state)
{
    tensor_refused("qwen2", (struct change){"blk.1.attn_k.bias", NULL, 0, 0},
                   "tensor blk.1.attn_k.bias: missing");
    tensor_refused("qwen3", (struct change){"blk.0.attn_q_norm.weight", NULL, 0, 0},
                   "tensor blk.0.attn_q_norm.weight: missing");
    tensor_refused("qwen3",
                   (struct change){"blk.0.attn_q_norm.weight", "blk.0.attn_q_norm.weight", 0, 64},
                   "tensor blk.0.attn_q_norm.weight: expected 32 F32 values, found 64");
    tensor_refused(
        "mixtral",
        (struct change){"blk.0.ffn_gate_exps.weight", "blk.0.ffn_gate_exps.weight", 64, 0},
        "tensor blk.0.ffn_gate_exps.weight: expected 96 rows of 64 for each expert, "
        "found 64 of 64 times 4");
    tensor_refused("mixtral", (struct change){"blk.1.ffn_gate_inp.weight", NULL, 0, 0},
                   "tensor blk.1.ffn_gate_inp.weight: missing");
    tensor_refused("llama2", (struct change){"output.weight", NULL, 0, 0},
                   "tensor output.weight: missing");
    tensor_refused("llama3", (struct change){"rope_freqs.weight", NULL, 0, 0},
                   "tensor rope_freqs.weight: missing");
    tensor_refused("llama-longrope-short", (struct change){"rope_factors_long.weight", NULL, 0, 0},
                   "tensor rope_factors_long.weight: missing");
    tensor_refused("llama2", (struct change){"blk.0.ffn_up.weight", "blk.00.ffn_up.weight", 0, 0},
                   "tensor blk.00.ffn_up.weight: this engine's llama graph has no use for it");
    tensor_refused("llama2",
                   (struct change){"blk.1.ffn_up.weight", "blk.9999999999.ffn_up.weight", 0, 0},
                   "tensor blk.9999999999.ffn_up.weight");
    tensor_refused("qwen2", (struct change){"blk.0.attn_q.bias", "blk.0.attn_q_norm.weight", 0, 0},
                   "tensor blk.0.attn_q_norm.weight: this engine's qwen2 graph has no use for it");
    tensor_refused("llama-linear", (struct change){"output.weight", "rope_freqs.weight", 0, 0},
                   "tensor rope_freqs.weight: this engine's llama graph has no use for it");
}

static void test_a_context_that_a_scaling_cannot_do_is_refused(void **state)
{
    struct family_case c = case_of("llama-dynamic");
    struct image img;
    struct graph_memory need;
    struct err e = ERR_INIT;
    struct graph_size size = run_size(65, KV_F32);
    family_image(&img, &c, TENSOR_F32);
    assert_int_equal(graph_memory(&need, &img, &size, &OPS_CPU, &e), ERR_CONFIG);
    says(&e, "expected a context of at most 64 tokens, found 65");
    image_drop(&img);
}

/* --- memory ---------------------------------------------------------------------------------------------- */

static uint64_t taken, n_taken;
static struct ops counting;

static void *count_alloc(struct exec *x, enum mem_kind kind, size_t n_bytes)
{
    taken += n_bytes;
    n_taken++;
    return OPS_CPU.mem_alloc(x, kind, n_bytes);
}

static void count_free(struct exec *x, enum mem_kind kind, void *p, size_t n_bytes)
{
    if (p) {
        taken -= n_bytes;
        n_taken--;
    }
    OPS_CPU.mem_free(x, kind, p, n_bytes);
}

static struct coll_ops NO_COLL;

static void check_memory(const struct family_case *c, struct graph_size *size)
{
    struct image img;
    struct graph_memory need;
    struct graph *g;
    struct exec *x;
    const struct kernels *k;
    struct err e = ERR_INIT;
    struct coll coll = {&NO_COLL, size->tp_rank, size->tp_size};
    size->tp = &coll;
    family_image(&img, c, TENSOR_F16);
    MUST(kernels_find(&k, "ref", &e), e);
    MUST(exec_cpu_create(&x, k, 1, graph_max_cols(&c->params), size->n_ctx, &e), e);
    MUST(graph_memory(&need, &img, size, &counting, &e), e);
    MUST(graph_create(&g, &img, size, &counting, x, &e), e);
    if (taken != need.kv_bytes + need.scratch_bytes)
        fail_msg("%s: took %" PRIu64 " bytes, said %" PRIu64, c->name, taken,
                 need.kv_bytes + need.scratch_bytes);
    assert_true(need.copied_bytes < need.scratch_bytes);
    assert_int_equal(need.copied_bytes > 0, size->tp_size > 1);
    if (size->tp_size <= 1) { /* all but vectors is mapped */
        uint64_t matrices = 0;
        for (uint32_t i = 0; i < img.index.n_tensors; i++)
            matrices += img.index.tensors[i].n_dims > 1 ? img.index.tensors[i].n_bytes : 0;
        assert_int_equal(need.weight_bytes, matrices);
    }
    graph_destroy(g);
    assert_int_equal(taken, 0);
    assert_int_equal(n_taken, 0);
    exec_cpu_destroy(x);
    image_drop(&img);
}

static void test_memory_is_what_was_said_to_the_byte(void **state)
{
    counting = OPS_CPU;
    counting.mem_alloc = count_alloc;
    counting.mem_free = count_free;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        struct family_case c;
        family_read(&c, json_array_get(cases, i), results);
        struct graph_size size = run_size(c.n_ctx, KV_F32);
        check_memory(&c, &size);
        size.tp_size = 2;
        size.tp_rank = 1;
        check_memory(&c, &size);
    }
}

/* --- shards ---------------------------------------------------------------------------------------------- */

static void plan_is(const struct model_params *p, const char *tensor, uint32_t rank, uint32_t size,
                    struct shard_plan expect)
{
    struct shard_plan plan;
    struct err e = ERR_INIT;
    MUST(graph_shard_plan(&plan, p, tensor, TENSOR_F16, rank, size, &e), e);
    if (plan.how != expect.how || plan.first != expect.first || plan.n != expect.n ||
        plan.n_parts != expect.n_parts || plan.scattered != expect.scattered)
        fail_msg("%s for %u of %u: %d %u %u %u %d", tensor, rank, size, plan.how, plan.first,
                 plan.n, plan.n_parts, plan.scattered);
}

static void test_shard_plans(void **state)
{
    struct family_case c = case_of("llama-bias"), m = case_of("mixtral");
    const struct model_params *p =
        &c.params; /* 4 heads, 2 kv heads of 16; widths 64 and 96; 96 tokens */
    plan_is(p, "blk.0.attn_q.weight", 1, 2, (struct shard_plan){SHARD_ROWS, 32, 32, 1, false});
    plan_is(p, "blk.0.attn_k.weight", 1, 2, (struct shard_plan){SHARD_ROWS, 16, 16, 1, false});
    plan_is(p, "blk.0.attn_k.weight", 1, 4, (struct shard_plan){SHARD_ROWS, 0, 16, 1, false});
    plan_is(p, "blk.0.attn_v.weight", 2, 4, (struct shard_plan){SHARD_ROWS, 16, 16, 1, false});
    plan_is(p, "blk.1.attn_output.weight", 3, 4, (struct shard_plan){SHARD_COLS, 48, 16, 1, true});
    plan_is(p, "blk.1.ffn_down.weight", 1, 2, (struct shard_plan){SHARD_COLS, 48, 48, 1, true});
    plan_is(p, "blk.1.ffn_up.weight", 1, 2, (struct shard_plan){SHARD_ROWS, 48, 48, 1, false});
    plan_is(p, "blk.1.ffn_up.bias", 1, 2, (struct shard_plan){SHARD_COLS, 48, 48, 1, false});
    plan_is(p, "blk.1.ffn_down.bias", 1, 2, (struct shard_plan){SHARD_WHOLE, 0, 1, 1, false});
    plan_is(p, "token_embd.weight", 1, 2, (struct shard_plan){SHARD_WHOLE, 0, 96, 1, false});
    c.params.n_vocab = 97;
    plan_is(p, "output.weight", 3, 4, (struct shard_plan){SHARD_ROWS, 72, 25, 1, false});
    plan_is(&m.params, "blk.0.ffn_gate_exps.weight", 1, 2,
            (struct shard_plan){SHARD_ROWS, 48, 48, 4, false});
    plan_is(&m.params, "blk.0.ffn_down_exps.weight", 0, 2,
            (struct shard_plan){SHARD_COLS, 0, 48, 4, true});
    plan_is(&m.params, "blk.0.ffn_gate_inp.weight", 0, 2,
            (struct shard_plan){SHARD_WHOLE, 0, 4, 1, false});
}

static void plan_refused(const struct model_params *p, const char *tensor, int type, uint32_t size,
                         const char *expect)
{
    struct shard_plan plan;
    struct err e = ERR_INIT;
    assert_int_equal(graph_shard_plan(&plan, p, tensor, type, 0, size, &e), ERR_FORMAT);
    says(&e, expect);
}

static void test_what_cannot_be_divided_is_refused(void **state)
{
    struct family_case c = case_of("llama2"), m = case_of("mixtral"), s = case_of("smollm2");
    plan_refused(&c.params, "blk.0.attn_q.weight", TENSOR_F32, 3,
                 "heads: expected a multiple of 3 for 3 shards, found 4");
    plan_refused(&s.params, "blk.0.attn_q.weight", TENSOR_F32, 3,
                 "kv heads: expected a multiple or a divisor of 3 shards, found 2");
    plan_refused(&m.params, "blk.0.attn_q.weight", TENSOR_F32, 8,
                 "heads: expected a multiple of 8");
    m.params.n_ff_expert = 40;
    plan_refused(&m.params, "blk.0.ffn_up_exps.weight", TENSOR_F32, 2,
                 "width of an expert: expected a multiple of 16 for 2 shards, found 40");
    plan_refused(
        &c.params, "blk.0.ffn_down.weight", TENSOR_Q4_0, 2,
        "tensor blk.0.ffn_down.weight: 96 columns among 2 shards: expected whole blocks of "
        "32 for format Q4_0");
    plan_refused(&c.params, "blk.0.attn_q_norm.weight", TENSOR_F32, 2, "no use for it");
    struct graph_size size = run_size(64, KV_F32);
    struct graph_memory need;
    struct image img;
    struct err e = ERR_INIT;
    family_image(&img, &c, TENSOR_Q4_0);
    size.tp_size = 2;
    assert_int_equal(graph_memory(&need, &img, &size, &OPS_CPU, &e), ERR_FORMAT);
    says(&e, "96 columns among 2 shards");
    size.tp_size = 1;
    size.pp_size = 3;
    assert_int_equal(graph_memory(&need, &img, &size, &OPS_CPU, &e), ERR_FORMAT);
    says(&e, "expected at least one for each of 3 stages, found 2");
    size.pp_size = 2;
    size.pp_rank = 2;
    assert_int_equal(graph_memory(&need, &img, &size, &OPS_CPU, &e), ERR_CONFIG);
    image_drop(&img);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_that_overflow_are_refused),
        cmocka_unit_test(test_parameters_that_a_family_lacks_are_refused),
        cmocka_unit_test(test_tensors_are_refused_by_name),
        cmocka_unit_test(test_a_context_that_a_scaling_cannot_do_is_refused),
        cmocka_unit_test(test_memory_is_what_was_said_to_the_byte),
        cmocka_unit_test(test_shard_plans),
        cmocka_unit_test(test_what_cannot_be_divided_is_refused),
    };
    return cmocka_run_group_tests_name("engine_graph", tests, load, unload);
}
