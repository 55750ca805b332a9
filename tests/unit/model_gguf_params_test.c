/* model_gguf_params_test.c - hyper-parameters of every family from GGUF keys: rotary scalings, windows, experts, pooling, lists
 * with one number for each layer, tensors with three dimensions. */
#include "tests/unit/model_fixture.h"

struct any_key {
    const char *key; /* after "ARCH." */
    double number;
    bool is_float;
};

/* A small model of `arch` with more keys, read back; the caller closes g and frees file. */
static int read_model(const char *arch, const struct any_key *more, const char *scaling,
                      void (*tensors)(struct gguf_maker *m), struct gguf *g, struct buf *file,
                      struct err *e)
{
    static const char *const skip[] = {"general.architecture", NULL};
    struct gguf_maker m;
    char key[128];
    const struct any_key base[] = {
        {"block_count", 2, false},
        {"context_length", 128, false},
        {"embedding_length", 64, false},
        {"feed_forward_length", 96, false},
        {"attention.head_count", 4, false},
        {"attention.layer_norm_rms_epsilon", 1e-5, true},
        {NULL, 0, false},
    };
    maker_init(&m);
    keys_llama(&m,
               skip[0]); /* its llama.* keys are strange to another architecture: not looked at */
    if (strcmp(arch, "llama") != 0)
        for (const struct any_key *k = base; k->key; k++) {
            snprintf(key, sizeof key, "%s.%s", arch, k->key);
            if (k->is_float)
                key_f32(&m, key, (float)k->number);
            else
                key_u32(&m, key, (uint32_t)k->number);
        }
    key_text(&m, "general.architecture", arch);
    for (const struct any_key *k = more; k && k->key; k++) {
        snprintf(key, sizeof key, "%s.%s", arch, k->key);
        if (k->is_float)
            key_f32(&m, key, (float)k->number);
        else
            key_u32(&m, key, (uint32_t)k->number);
    }
    if (scaling) {
        snprintf(key, sizeof key, "%s.rope.scaling.type", arch);
        key_text(&m, key, scaling);
    }
    tensors_llama(&m);
    if (tensors)
        tensors(&m);
    maker_file(&m, file);
    maker_fini(&m);
    return gguf_parse(g, file->data, file->len, "m.gguf", e);
}

static void good(const char *arch, const struct any_key *more, const char *scaling,
                 void (*tensors)(struct gguf_maker *m), struct gguf *g, struct buf *file)
{
    struct err e = ERR_INIT;
    if (read_model(arch, more, scaling, tensors, g, file, &e))
        fail_msg("%s: %s", arch, e.text);
}

static void refused(const char *arch, const struct any_key *more, const char *scaling,
                    void (*tensors)(struct gguf_maker *m), const char *says)
{
    struct err e = ERR_INIT;
    struct gguf g;
    struct buf file;
    assert_int_equal(read_model(arch, more, scaling, tensors, &g, &file, &e), ERR_FORMAT);
    if (!strstr(e.text, says))
        fail_msg("\"%s\" does not say \"%s\"", e.text, says);
    buf_fini(&file);
}

static void done(struct gguf *g, struct buf *file)
{
    gguf_close(g);
    buf_fini(file);
}

static void test_scalings(void **state)
{
    (void)state;
    struct gguf g;
    struct buf f;
    const struct model_params *p = &g.meta.params;
    good("llama", (const struct any_key[]){{"rope.scaling.factor", 4, true}, {0}}, NULL, NULL, &g,
         &f); /* a factor alone is linear */
    assert_int_equal(p->rope_scaling, ROPE_LINEAR);
    assert_true(p->rope_factor == 4 && p->rope_attn_factor == 0);
    done(&g, &f);
    good("llama", (const struct any_key[]){{"rope.scale_linear", 2, true}, {0}}, NULL, NULL, &g,
         &f);
    assert_int_equal(p->rope_scaling, ROPE_LINEAR);
    assert_true(p->rope_factor == 2);
    done(&g, &f);
    good("qwen2",
         (const struct any_key[]){{"rope.scaling.factor", 4, true},
                                  {"rope.scaling.original_context_length", 32, false},
                                  {"rope.scaling.yarn_beta_fast", 16, true},
                                  {0}},
         "yarn", NULL, &g, &f);
    assert_int_equal(p->rope_scaling, ROPE_YARN);
    assert_true(p->rope_factor == 4 && p->rope_orig_ctx == 32 && p->yarn_beta_fast == 16 &&
                p->yarn_beta_slow == 1 && p->rope_attn_factor == 0);
    done(&g, &f);
    good("qwen2",
         (const struct any_key[]){
             {"rope.scaling.factor", 4, true}, {"rope.scaling.attn_factor", 0.5, true}, {0}},
         "yarn", NULL, &g, &f); /* on top of the method's own 1 + 0.1 ln 4 */
    assert_true(p->rope_attn_factor > 0.5693f && p->rope_attn_factor < 0.5694f);
    assert_int_equal(p->rope_orig_ctx, 128);
    done(&g, &f);
    good("llama",
         (const struct any_key[]){{"rope.scaling.original_context_length", 16, false},
                                  {"rope.scaling.attn_factor", 1.25, true},
                                  {0}},
         "longrope", NULL, &g, &f);
    assert_int_equal(p->rope_scaling, ROPE_LONGROPE);
    assert_true(p->rope_factor == 4 && p->rope_orig_ctx == 16 && p->rope_attn_factor == 1.25f);
    done(&g, &f);
}

static void freqs_put(struct gguf_maker *m, uint64_t n, float last)
{
    while (m->data.len % m->alignment)
        buf_u8(&m->data, 0);
    tensor_entry(m, "rope_freqs.weight", 1, &n, TENSOR_F32, m->data.len);
    for (uint64_t i = 0; i < n; i++)
        buf_f32(&m->data, i + 1 < n ? 1 : last);
}
static void freqs_good(struct gguf_maker *m)
{
    freqs_put(m, 8, 32);
}
static void freqs_long(struct gguf_maker *m)
{
    freqs_put(m, 16, 32);
}
static void freqs_negative(struct gguf_maker *m)
{
    freqs_put(m, 8, -1);
}

/* Llama 3 files tell of their scaling by a tensor alone. */
static void test_rope_freqs(void **state)
{
    (void)state;
    struct gguf g;
    struct buf f;
    good("llama", NULL, NULL, freqs_good, &g, &f);
    assert_int_equal(g.meta.params.rope_scaling, ROPE_LLAMA3);
    assert_true(g.meta.params.rope_factor == 32);
    done(&g, &f);
    refused("llama", NULL, NULL, freqs_long, "rope_freqs.weight: expected 8 numbers");
    refused("llama", NULL, NULL, freqs_negative, "item 7: expected a number above 0, found -1");
    refused("llama", (const struct any_key[]){{"rope.scaling.factor", 4, true}, {0}}, NULL,
            freqs_good, "rope_freqs.weight: expected no other scaling");
}

static void test_experts(void **state)
{
    (void)state;
    struct gguf g;
    struct buf f;
    const struct model_params *p = &g.meta.params;
    good("llama",
         (const struct any_key[]){{"expert_count", 8, false}, {"expert_used_count", 2, false}, {0}},
         NULL, NULL, &g, &f); /* Mixtral */
    assert_int_equal(p->n_experts, 8);
    assert_int_equal(p->n_experts_used, 2);
    assert_int_equal(p->n_ff_expert, 96);
    assert_true(p->experts_renorm);
    done(&g, &f);
    good("qwen3moe",
         (const struct any_key[]){{"expert_count", 16, false},
                                  {"expert_used_count", 4, false},
                                  {"expert_feed_forward_length", 32, false},
                                  {0}},
         NULL, NULL, &g, &f);
    assert_int_equal(p->n_experts, 16);
    assert_int_equal(p->n_ff_expert, 32);
    done(&g, &f);
    refused("qwen3moe", NULL, NULL, NULL, "qwen3moe.expert_count is missing");
    refused("qwen3moe", (const struct any_key[]){{"expert_count", 0, false}, {0}}, NULL, NULL,
            "qwen3moe.expert_count: only a positive number");
    refused("qwen2", (const struct any_key[]){{"expert_count", 4, false}, {0}}, NULL, NULL,
            "qwen2.expert_count: only 0");
    refused(
        "llama",
        (const struct any_key[]){{"expert_count", 2, false}, {"expert_used_count", 3, false}, {0}},
        NULL, NULL, "found 3 of 2");
}

static void test_windows_pooling_rotation(void **state)
{
    (void)state;
    struct gguf g;
    struct buf f;
    good("llama", (const struct any_key[]){{"attention.sliding_window", 32, false}, {0}}, NULL,
         NULL, &g, &f);
    assert_int_equal(g.meta.params.window, 32);
    assert_int_equal(g.meta.params.window_from, 0);
    done(&g, &f);
    good("qwen3", (const struct any_key[]){{"pooling_type", 3, false}, {0}}, NULL, NULL, &g, &f);
    assert_int_equal(g.meta.params.pooling, POOLING_LAST);
    assert_int_equal(g.meta.params.nope_every, 0);
    done(&g, &f);
    good("smollm3", NULL, NULL, NULL, &g, &f);
    assert_int_equal(g.meta.params.nope_every, 4);
    done(&g, &f);
    refused("qwen2", (const struct any_key[]){{"attention.sliding_window", 32, false}, {0}}, NULL,
            NULL, "qwen2.attention.sliding_window: only 0");
}

static void list_equal(struct gguf_maker *m)
{
    key_i32s(m, "qwen2.attention.head_count_kv", (const int32_t[]){2, 2}, 2);
}
static void list_differs(struct gguf_maker *m)
{
    key_i32s(m, "qwen2.attention.head_count_kv", (const int32_t[]){2, 4}, 2);
}

/* Some writers list a number for each layer. */
static void test_lists(void **state)
{
    (void)state;
    struct gguf g;
    struct buf f;
    good("qwen2", NULL, NULL, list_equal, &g, &f);
    assert_int_equal(g.meta.params.n_kv_heads, 2);
    done(&g, &f);
    refused("qwen2", NULL, NULL, list_differs, "layers that differ");
}

static void experts_put(struct gguf_maker *m)
{
    const uint64_t dims[3] = {64, 8, 4};
    while (m->data.len % m->alignment)
        buf_u8(&m->data, 0);
    tensor_entry(m, "blk.0.ffn_gate_exps.weight", 3, dims, TENSOR_Q8_0, m->data.len);
    uint8_t *p = buf_reserve(&m->data, 2 * 34 * 8 * 4);
    assert_non_null(p);
    memset(p, 7, 2 * 34 * 8 * 4);
    m->data.len += 2 * 34 * 8 * 4;
}

/* Stacked experts keep their three dimensions through the index and its bytes. */
static void test_three_dimensions(void **state)
{
    (void)state;
    struct gguf g;
    struct buf f, bytes;
    struct err e = ERR_INIT;
    struct model_index back;
    good("llama", NULL, NULL, experts_put, &g, &f);
    buf_init(&bytes, 1 << 20);
    assert_int_equal(index_encode(&g.index, &bytes, &e), 0);
    assert_int_equal(index_decode(&back, bytes.data, bytes.len, &e), 0);
    const struct tensor_info *t = index_find(&back, "blk.0.ffn_gate_exps.weight");
    assert_non_null(t);
    assert_int_equal(t->n_dims, 3);
    assert_true(t->dims[0] == 64 && t->dims[1] == 8 && t->dims[2] == 4 && t->dims[3] == 1);
    assert_int_equal(t->n_bytes, 2 * 34 * 8 * 4);
    index_fini(&back);
    buf_fini(&bytes);
    done(&g, &f);
}

static void type_own(struct gguf_maker *m)
{
    const uint64_t dims[1] = {32};
    tensor_entry(m, "x.weight", 1, dims, TENSOR_F8_E4M3, 0);
}

/* Our own type numbers mean nothing in a GGUF file. */
static void test_own_types(void **state)
{
    (void)state;
    refused("llama", NULL, NULL, type_own, "tensor x.weight: unsupported type");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scalings),  cmocka_unit_test(test_rope_freqs),
        cmocka_unit_test(test_experts),   cmocka_unit_test(test_windows_pooling_rotation),
        cmocka_unit_test(test_lists),     cmocka_unit_test(test_three_dimensions),
        cmocka_unit_test(test_own_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
