/* model_hf_test.c - Hugging Face folders: names, shapes, row order, formats and parameters that come out of them, and how what
 * is wrong is refused by its name. Tiny models are written here: width 32, 2 heads of 16, 1 KV head, feed-forward 64, 6 tokens
 * (the tokenizer has 5). */
#include "tests/unit/hf_fixture.h"

#include <math.h>

enum { EMBD = 32, HEAD = 16, Q = 32, KV = 16, FF = 64, VOCAB = 6, EXPERTS = 3, FF_EXPERT = 32 };

#define COMMON                                                                                     \
    "\"hidden_size\":32,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":16,"      \
    "\"intermediate_size\":64,\"max_position_embeddings\":128,\"vocab_size\":6,"                   \
    "\"rms_norm_eps\":1e-5,\"hidden_act\":\"silu\",\"torch_dtype\":\"float16\","                   \
    "\"transformers_version\":\"4.0\""

enum {
    T_BIAS = 1,     /* q, k, v */
    T_OUT_BIAS = 2, /* attention output */
    T_MLP_BIAS = 4,
    T_QK_NORM = 8,
    T_MIXTRAL = 16,
    T_QWEN_MOE = 32,
    T_HEAD = 64,  /* lm_head.weight */
    T_BARE = 128, /* names without "model." */
};

static uint32_t seed_of(const char *name)
{
    uint32_t h = 17;
    for (; *name; name++)
        h = h * 31 + (uint8_t)*name;
    return h;
}

static void add(struct st_maker *m, const char *name, const char *dtype, uint64_t rows,
                uint64_t columns)
{
    char shape[64];
    if (rows)
        snprintf(shape, sizeof shape, "%llu,%llu", (unsigned long long)rows,
                 (unsigned long long)columns);
    else
        snprintf(shape, sizeof shape, "%llu", (unsigned long long)columns);
    st_add(m, name, dtype, shape, (rows ? rows : 1) * columns, seed_of(name));
}

static void add_layer(struct st_maker *m, const char *prefix, uint32_t layer, unsigned flags,
                      const char *dtype)
{
    const struct {
        const char *name;
        uint64_t rows, columns;
        unsigned when, unless;
    } all[] = {
        {"input_layernorm.weight", 0, EMBD, 0, 0},
        {"post_attention_layernorm.weight", 0, EMBD, 0, 0},
        {"self_attn.q_proj.weight", Q, EMBD, 0, 0},
        {"self_attn.k_proj.weight", KV, EMBD, 0, 0},
        {"self_attn.v_proj.weight", KV, EMBD, 0, 0},
        {"self_attn.o_proj.weight", EMBD, Q, 0, 0},
        {"self_attn.q_proj.bias", 0, Q, T_BIAS, 0},
        {"self_attn.k_proj.bias", 0, KV, T_BIAS, 0},
        {"self_attn.v_proj.bias", 0, KV, T_BIAS, 0},
        {"self_attn.o_proj.bias", 0, EMBD, T_OUT_BIAS, 0},
        {"self_attn.q_norm.weight", 0, HEAD, T_QK_NORM, 0},
        {"self_attn.k_norm.weight", 0, HEAD, T_QK_NORM, 0},
        {"mlp.gate_proj.weight", FF, EMBD, 0, T_MIXTRAL | T_QWEN_MOE},
        {"mlp.up_proj.weight", FF, EMBD, 0, T_MIXTRAL | T_QWEN_MOE},
        {"mlp.down_proj.weight", EMBD, FF, 0, T_MIXTRAL | T_QWEN_MOE},
        {"mlp.gate_proj.bias", 0, FF, T_MLP_BIAS, 0},
        {"mlp.up_proj.bias", 0, FF, T_MLP_BIAS, 0},
        {"mlp.down_proj.bias", 0, EMBD, T_MLP_BIAS, 0},
        {"block_sparse_moe.gate.weight", EXPERTS, EMBD, T_MIXTRAL, 0},
        {"mlp.gate.weight", EXPERTS, EMBD, T_QWEN_MOE, 0},
    };
    char name[128];
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if ((all[i].when && !(flags & all[i].when)) || (flags & all[i].unless))
            continue;
        snprintf(name, sizeof name, "%slayers.%u.%s", prefix, layer, all[i].name);
        add(m, name, dtype, all[i].rows, all[i].columns);
    }
    for (uint32_t x = 0; x < EXPERTS && (flags & (T_MIXTRAL | T_QWEN_MOE)); x++) {
        bool mixtral = flags & T_MIXTRAL;
        const char *const ends[3] = {mixtral ? "w1" : "gate_proj", mixtral ? "w3" : "up_proj",
                                     mixtral ? "w2" : "down_proj"};
        uint64_t ff = mixtral ? FF : FF_EXPERT;
        for (int i = 0; i < 3; i++) {
            snprintf(name, sizeof name, "%slayers.%u.%s.experts.%u.%s.weight", prefix, layer,
                     mixtral ? "block_sparse_moe" : "mlp", x, ends[i]);
            add(m, name, dtype, i < 2 ? ff : EMBD, i < 2 ? EMBD : ff);
        }
    }
}

static void add_model(struct st_maker *m, unsigned flags, uint32_t layers, const char *dtype)
{
    const char *prefix = flags & T_BARE ? "" : "model.";
    char name[64];
    snprintf(name, sizeof name, "%sembed_tokens.weight", prefix);
    add(m, name, dtype, VOCAB, EMBD);
    snprintf(name, sizeof name, "%snorm.weight", prefix);
    add(m, name, dtype, 0, EMBD);
    if (flags & T_HEAD)
        add(m, "lm_head.weight", dtype, VOCAB, EMBD);
    for (uint32_t i = 0; i < layers; i++)
        add_layer(m, prefix, i, flags, dtype);
}

/* A folder with config.json and model.safetensors. */
static void folder_make(char dir[64], const char *config, unsigned flags, uint32_t layers,
                        const char *dtype)
{
    struct st_maker m;
    scratch_dir(dir);
    folder_puts(dir, "config.json", config);
    st_init(&m);
    add_model(&m, flags, layers, dtype);
    folder_put_st(dir, "model.safetensors", &m);
    st_fini(&m);
}

static void folder_drop(const char *dir)
{
    struct err e = ERR_INIT;
    assert_int_equal(dir_remove(dir, &e), 0);
}

static void open_good(struct hf_model *h, const char *dir)
{
    struct err e = ERR_INIT;
    if (hf_open(h, dir, fixture_tokenizer, &e))
        fail_msg("%s", e.text);
}

static void open_refused(const char *dir, const char *says)
{
    struct hf_model h;
    struct err e = ERR_INIT;
    int rc = hf_open(&h, dir, fixture_tokenizer, &e);
    if (rc == 0)
        fail_msg("taken, though \"%s\"", says);
    if (!strstr(e.text, says) || strchr(e.text, '\n'))
        fail_msg("\"%s\" does not say \"%s\"", e.text, says);
    assert_int_equal(hf_open(&h, dir, fixture_tokenizer, NULL), rc);
}

/* Weight (row, column) of the pack's tensor `name` as a float; pieces of `step` bytes. */
static float *unpacked(struct hf_model *h, const char *name, uint32_t step,
                       const struct tensor_info **info)
{
    struct tensor_source s = hf_source(h);
    uint8_t *bytes = source_all(&s, &h->index, name, step, info);
    const struct tensor_info *t = *info;
    size_t n = t->dims[0] * t->dims[1] * t->dims[2];
    float *y = malloc(n * sizeof *y);
    assert_non_null(y);
    block_unpack(t->type, y, bytes, n);
    free(bytes);
    return y;
}

/* The pack's tensor is the file's, row r from row from(r). */
static void check_tensor(struct hf_model *h, const char *name, const char *hf_name, int type,
                         uint64_t rows, uint64_t columns, uint64_t head)
{
    static const uint32_t steps[] = {1 << 20, 7, 64, 1000};
    for (size_t s = 0; s < sizeof steps / sizeof steps[0]; s++) {
        const struct tensor_info *t;
        float *y = unpacked(h, name, steps[s], &t);
        assert_int_equal(t->type, type);
        assert_int_equal(t->dims[0] * t->dims[1], rows * columns);
        for (uint64_t r = 0; r < rows; r++)
            for (uint64_t c = 0; c < columns; c++) {
                /* within a head, even rows are its first half, odd ones its second */
                uint64_t in = head ? r % head : r, from = r;
                if (head)
                    from = r / head * head + (in % 2 ? head / 2 + in / 2 : in / 2);
                float want = fixture_weight(seed_of(hf_name), from * columns + c);
                if (y[r * columns + c] != want)
                    fail_msg("%s[%llu][%llu]: expected %g, found %g", name, (unsigned long long)r,
                             (unsigned long long)c, (double)want, (double)y[r * columns + c]);
            }
        free(y);
    }
}

#define LLAMA "{\"architectures\":[\"LlamaForCausalLM\"],\"num_hidden_layers\":2," COMMON

static void test_llama(void **state)
{
    (void)state;
    static const char *const dtypes[] = {"F16", "BF16", "F32"};
    static const int types[] = {TENSOR_F16, TENSOR_BF16, TENSOR_F32};
    for (int d = 0; d < 3; d++) {
        char dir[64];
        struct hf_model h;
        folder_make(dir, LLAMA ",\"rope_theta\":500000.0}", T_HEAD, 2, dtypes[d]);
        open_good(&h, dir);
        const struct model_params *p = &h.meta.params;
        assert_string_equal(p->arch, "llama");
        assert_string_equal(h.meta.name, strrchr(dir, '/') + 1);
        assert_true(p->n_layers == 2 && p->n_embd == EMBD && p->n_ff == FF && p->n_heads == 2 &&
                    p->n_kv_heads == 1 && p->head_dim == HEAD && p->rope_dim == HEAD &&
                    p->n_ctx == 128 && p->n_vocab == VOCAB && !p->tied_embeddings);
        assert_true(p->rope_base == 5e5f && p->norm_eps == 1e-5f && p->rope_scaling == ROPE_PLAIN);
        assert_int_equal(h.index.n_tensors, 3 + 2 * 9);
        /* embeddings have a row more than there are tokens */
        assert_int_equal(h.meta.tok.n_tokens, VOCAB);
        assert_string_equal(h.meta.tok.tokens[5], "[PAD5]");
        assert_int_equal(h.meta.tok.types[5], TOKEN_UNUSED);
        int t = types[d];
        check_tensor(&h, "token_embd.weight", "model.embed_tokens.weight", t, VOCAB, EMBD, 0);
        check_tensor(&h, "output.weight", "lm_head.weight", t, VOCAB, EMBD, 0);
        check_tensor(&h, "output_norm.weight", "model.norm.weight", TENSOR_F32, 1, EMBD, 0);
        check_tensor(&h, "blk.1.attn_norm.weight", "model.layers.1.input_layernorm.weight",
                     TENSOR_F32, 1, EMBD, 0);
        check_tensor(&h, "blk.1.ffn_norm.weight", "model.layers.1.post_attention_layernorm.weight",
                     TENSOR_F32, 1, EMBD, 0);
        check_tensor(&h, "blk.1.attn_q.weight", "model.layers.1.self_attn.q_proj.weight", t, Q,
                     EMBD, HEAD);
        check_tensor(&h, "blk.0.attn_k.weight", "model.layers.0.self_attn.k_proj.weight", t, KV,
                     EMBD, HEAD);
        check_tensor(&h, "blk.0.attn_v.weight", "model.layers.0.self_attn.v_proj.weight", t, KV,
                     EMBD, 0);
        check_tensor(&h, "blk.0.attn_output.weight", "model.layers.0.self_attn.o_proj.weight", t,
                     EMBD, Q, 0);
        check_tensor(&h, "blk.0.ffn_gate.weight", "model.layers.0.mlp.gate_proj.weight", t, FF,
                     EMBD, 0);
        check_tensor(&h, "blk.0.ffn_up.weight", "model.layers.0.mlp.up_proj.weight", t, FF, EMBD,
                     0);
        check_tensor(&h, "blk.0.ffn_down.weight", "model.layers.0.mlp.down_proj.weight", t, EMBD,
                     FF, 0);
        hf_close(&h);
        folder_drop(dir);
    }
}

static void test_biases(void **state)
{
    (void)state;
    char dir[64];
    struct hf_model h;
    folder_make(dir,
                LLAMA ",\"attention_bias\":true,\"mlp_bias\":true,\"tie_word_embeddings\":true}",
                T_BIAS | T_OUT_BIAS | T_MLP_BIAS | T_HEAD, 2, "BF16");
    open_good(&h, dir);
    assert_true(h.meta.params.tied_embeddings);
    assert_null(
        index_find(&h.index, "output.weight")); /* tied: what the file has there does not count */
    check_tensor(&h, "blk.0.attn_q.bias", "model.layers.0.self_attn.q_proj.bias", TENSOR_F32, Q, 1,
                 HEAD);
    check_tensor(&h, "blk.1.attn_k.bias", "model.layers.1.self_attn.k_proj.bias", TENSOR_F32, KV, 1,
                 HEAD);
    check_tensor(&h, "blk.0.attn_v.bias", "model.layers.0.self_attn.v_proj.bias", TENSOR_F32, KV, 1,
                 0);
    check_tensor(&h, "blk.0.attn_output.bias", "model.layers.0.self_attn.o_proj.bias", TENSOR_F32,
                 EMBD, 1, 0);
    check_tensor(&h, "blk.0.ffn_down.bias", "model.layers.0.mlp.down_proj.bias", TENSOR_F32, EMBD,
                 1, 0);
    assert_int_equal(index_find(&h.index, "blk.0.attn_q.bias")->n_dims, 1);
    hf_close(&h);
    folder_drop(dir);
}

#define QWEN2 "{\"architectures\":[\"Qwen2ForCausalLM\"],\"num_hidden_layers\":2," COMMON

static void test_qwen2(void **state)
{
    (void)state;
    char dir[64];
    struct hf_model h;
    folder_make(dir,
                QWEN2 ",\"tie_word_embeddings\":true,\"use_sliding_window\":false,"
                      "\"sliding_window\":32,\"max_window_layers\":1}",
                T_BIAS, 2, "F16");
    open_good(&h, dir);
    assert_string_equal(h.meta.params.arch, "qwen2");
    assert_int_equal(h.meta.params.window, 0);
    /* halves rotate together here: rows stay */
    check_tensor(&h, "blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight", TENSOR_F16, Q,
                 EMBD, 0);
    check_tensor(&h, "blk.0.attn_q.bias", "model.layers.0.self_attn.q_proj.bias", TENSOR_F32, Q, 1,
                 0);
    hf_close(&h);
    folder_puts(dir, "config.json",
                QWEN2 ",\"tie_word_embeddings\":true,\"use_sliding_window\":true,"
                      "\"sliding_window\":32,\"max_window_layers\":1}");
    open_good(&h, dir);
    assert_true(h.meta.params.window == 32 && h.meta.params.window_from == 1);
    hf_close(&h);
    folder_puts(dir, "config.json",
                QWEN2 ",\"tie_word_embeddings\":true,\"use_sliding_window\":true,"
                      "\"sliding_window\":32,\"max_window_layers\":0,\"layer_types\":"
                      "[\"full_attention\",\"sliding_attention\"]}");
    open_good(&h, dir);
    assert_true(h.meta.params.window == 32 && h.meta.params.window_from == 1);
    hf_close(&h);
    folder_drop(dir);
}

static void test_mistral(void **state)
{
    (void)state;
    char dir[64];
    struct hf_model h;
    folder_make(dir,
                "{\"architectures\":[\"MistralForCausalLM\"],\"num_hidden_layers\":1,"
                "\"sliding_window\":48," COMMON "}",
                T_HEAD, 1, "BF16");
    open_good(&h, dir);
    assert_string_equal(h.meta.params.arch, "llama");
    assert_true(h.meta.params.window == 48 && h.meta.params.window_from == 0);
    check_tensor(&h, "blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight", TENSOR_BF16,
                 Q, EMBD, HEAD);
    hf_close(&h);
    folder_drop(dir);
}

/* Expert x of the stacked tensor is the file's tensor of that expert. */
static void check_experts(struct hf_model *h, const char *name, const char *hf_format,
                          uint64_t rows, uint64_t columns)
{
    const struct tensor_info *t;
    float *y = unpacked(h, name, 100, &t);
    assert_int_equal(t->n_dims, 3);
    assert_true(t->dims[0] == columns && t->dims[1] == rows && t->dims[2] == EXPERTS);
    for (uint32_t x = 0; x < EXPERTS; x++) {
        char hf_name[128];
        const char *at = strchr(hf_format, '#');
        snprintf(hf_name, sizeof hf_name, "%.*s%u%s", (int)(at - hf_format), hf_format, x, at + 1);
        for (uint64_t i = 0; i < rows * columns; i++)
            assert_true(y[x * rows * columns + i] == fixture_weight(seed_of(hf_name), i));
    }
    free(y);
}

static void test_mixtral(void **state)
{
    (void)state;
    char dir[64];
    struct hf_model h;
    folder_make(dir,
                "{\"architectures\":[\"MixtralForCausalLM\"],\"num_hidden_layers\":1,"
                "\"num_local_experts\":3,\"num_experts_per_tok\":2,\"sliding_window\":null,"
                "\"router_aux_loss_coef\":0.02,\"output_router_logits\":false," COMMON "}",
                T_HEAD | T_MIXTRAL, 1, "F16");
    open_good(&h, dir);
    const struct model_params *p = &h.meta.params;
    assert_string_equal(p->arch, "llama");
    assert_true(p->n_experts == 3 && p->n_experts_used == 2 && p->n_ff_expert == FF &&
                p->experts_renorm && p->rope_base == 1e6f);
    check_tensor(&h, "blk.0.ffn_gate_inp.weight", "model.layers.0.block_sparse_moe.gate.weight",
                 TENSOR_F32, EXPERTS, EMBD, 0);
    check_experts(&h, "blk.0.ffn_gate_exps.weight",
                  "model.layers.0.block_sparse_moe.experts.#.w1.weight", FF, EMBD);
    check_experts(&h, "blk.0.ffn_up_exps.weight",
                  "model.layers.0.block_sparse_moe.experts.#.w3.weight", FF, EMBD);
    check_experts(&h, "blk.0.ffn_down_exps.weight",
                  "model.layers.0.block_sparse_moe.experts.#.w2.weight", EMBD, FF);
    hf_close(&h);
    folder_drop(dir);
}

#define QWEN3MOE                                                                                   \
    "{\"architectures\":[\"Qwen3MoeForCausalLM\"],\"num_hidden_layers\":2,"                        \
    "\"num_experts\":3,\"num_experts_per_tok\":1,\"moe_intermediate_size\":32," COMMON

static void test_qwen3moe(void **state)
{
    (void)state;
    char dir[64];
    struct hf_model h;
    folder_make(dir,
                QWEN3MOE ",\"norm_topk_prob\":true,\"decoder_sparse_step\":1,"
                         "\"mlp_only_layers\":[]}",
                T_HEAD | T_QWEN_MOE | T_QK_NORM, 2, "BF16");
    open_good(&h, dir);
    const struct model_params *p = &h.meta.params;
    assert_string_equal(p->arch, "qwen3moe");
    assert_true(p->n_experts == 3 && p->n_experts_used == 1 && p->n_ff_expert == FF_EXPERT &&
                p->experts_renorm);
    check_tensor(&h, "blk.1.attn_k_norm.weight", "model.layers.1.self_attn.k_norm.weight",
                 TENSOR_F32, 1, HEAD, 0);
    check_tensor(&h, "blk.1.attn_q.weight", "model.layers.1.self_attn.q_proj.weight", TENSOR_BF16,
                 Q, EMBD, 0);
    check_experts(&h, "blk.1.ffn_down_exps.weight", "model.layers.1.mlp.experts.#.down_proj.weight",
                  EMBD, FF_EXPERT);
    hf_close(&h);
    folder_puts(dir, "config.json", QWEN3MOE "}");
    open_good(&h, dir);
    assert_false(h.meta.params.experts_renorm); /* the class's default */
    hf_close(&h);
    folder_drop(dir);
}

#define SMOLLM3 "{\"architectures\":[\"SmolLM3ForCausalLM\"],\"num_hidden_layers\":4," COMMON

static void test_smollm3(void **state)
{
    (void)state;
    static const struct {
        const char *more;
        uint32_t every;
    } table[] = {
        {"}", 4},
        {",\"no_rope_layer_interval\":2}", 2},
        {",\"no_rope_layers\":[1,1,1,0],\"no_rope_layer_interval\":4}", 4},
        {",\"no_rope_layers\":[1,0,1,0]}", 2},
        {",\"no_rope_layers\":[1,1,1,1]}", 0},
        {",\"no_rope_layers\":[0,0,0,0]}", 1},
    };
    char dir[64];
    struct hf_model h;
    folder_make(dir, "", 0, 4, "BF16");
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char config[1024];
        snprintf(config, sizeof config, "%s%s", SMOLLM3, table[i].more);
        folder_puts(dir, "config.json", config);
        open_good(&h, dir);
        assert_string_equal(h.meta.params.arch, "smollm3");
        assert_true(h.meta.params.tied_embeddings && h.meta.params.rope_base == 2e6f);
        assert_int_equal(h.meta.params.nope_every, table[i].every);
        check_tensor(&h, "blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight",
                     TENSOR_BF16, Q, EMBD, HEAD);
        hf_close(&h);
    }
    folder_puts(dir, "config.json", SMOLLM3 ",\"no_rope_layers\":[1,0,0,1]}");
    open_refused(dir, "key no_rope_layers: only a zero at every n-th layer");
    folder_puts(dir, "config.json", SMOLLM3 ",\"no_rope_layers\":[1,0]}");
    open_refused(dir, "key no_rope_layers: expected 4 numbers, found 2");
    folder_drop(dir);
}

/* --- rotary scalings -------------------------------------------------------------------------------- */

static const float *made(struct hf_model *h, const char *name, uint8_t **bytes)
{
    const struct tensor_info *t;
    struct tensor_source s = hf_source(h);
    *bytes = source_all(&s, &h->index, name, 5, &t);
    assert_int_equal(t->n_bytes, HEAD / 2 * 4);
    assert_int_equal(t->n_dims, 1);
    return (const float *)(void *)*bytes;
}

static void test_llama3_scaling(void **state)
{
    (void)state;
    char dir[64];
    struct hf_model h;
    uint8_t *bytes;
    folder_make(dir,
                LLAMA ",\"rope_theta\":500000.0,\"rope_scaling\":{\"rope_type\":\"llama3\","
                      "\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
                      "\"original_max_position_embeddings\":8192}}",
                T_HEAD, 2, "F16");
    open_good(&h, dir);
    const struct model_params *p = &h.meta.params;
    assert_int_equal(p->rope_scaling, ROPE_LLAMA3);
    assert_true(p->rope_factor == 8 && p->rope_orig_ctx == 8192 && p->rope_low_factor == 1 &&
                p->rope_high_factor == 4);
    const float *f = made(&h, "rope_freqs.weight", &bytes);
    for (int i = 0; i < HEAD / 2; i++) {
        /* transformers: _compute_llama3_parameters */
        double inv = pow(500000.0, -2.0 * i / HEAD), wave = 2 * M_PI / inv, want;
        if (wave < 8192 / 4.0)
            want = inv;
        else if (wave > 8192 / 1.0)
            want = inv / 8;
        else {
            double smooth = (8192 / wave - 1) / (4.0 - 1);
            want = (1 - smooth) * inv / 8 + smooth * inv;
        }
        assert_true(fabs(inv / (double)f[i] / want - 1) < 1e-6);
    }
    assert_true(f[0] == 1 && f[HEAD / 2 - 1] == 8);
    free(bytes);
    hf_close(&h);
    folder_drop(dir);
}

static void test_other_scalings(void **state)
{
    (void)state;
    char dir[64];
    struct hf_model h;
    uint8_t *bytes;
    const struct model_params *p = &h.meta.params;
    folder_make(dir, LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.5}}", T_HEAD, 2,
                "F16");
    open_good(&h, dir);
    assert_true(p->rope_scaling == ROPE_LINEAR && p->rope_factor == 2.5f);
    hf_close(&h);
    folder_puts(dir, "config.json", LLAMA ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}}");
    open_good(&h, dir);
    assert_true(p->rope_scaling == ROPE_DYNAMIC && p->rope_factor == 2 && p->rope_orig_ctx == 128);
    hf_close(&h);
    folder_puts(dir, "config.json",
                LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,\"beta_fast\":24,"
                      "\"original_max_position_embeddings\":32,\"attention_factor\":1.5}}");
    open_good(&h, dir);
    assert_true(p->rope_scaling == ROPE_YARN && p->rope_factor == 4 && p->rope_orig_ctx == 32 &&
                p->rope_attn_factor == 1.5f && p->yarn_beta_fast == 24 && p->yarn_beta_slow == 1);
    hf_close(&h);
    /* newer files: everything in rope_parameters, beside the older name */
    folder_puts(dir, "config.json",
                LLAMA ",\"rope_parameters\":{\"rope_theta\":1234.0,\"rope_type\":\"linear\","
                      "\"factor\":2},\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}");
    open_good(&h, dir);
    assert_true(p->rope_scaling == ROPE_LINEAR && p->rope_base == 1234);
    hf_close(&h);
    folder_puts(dir, "config.json",
                LLAMA ",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1,1,1,1,1,1,2],"
                      "\"long_factor\":[1,2,3,4,5,6,7,8]},"
                      "\"original_max_position_embeddings\":32}");
    open_good(&h, dir);
    assert_true(p->rope_scaling == ROPE_LONGROPE && p->rope_factor == 4 && p->rope_orig_ctx == 32);
    assert_true(fabsf(p->rope_attn_factor - sqrtf(1 + logf(4) / logf(32))) < 1e-6f);
    assert_true(made(&h, "rope_factors_long.weight", &bytes)[3] == 4);
    free(bytes);
    assert_true(made(&h, "rope_factors_short.weight", &bytes)[7] == 2);
    free(bytes);
    hf_close(&h);
    folder_drop(dir);
}

/* --- F8 ------------------------------------------------------------------------------------------------ */

/* A llama whose q_proj of layer 0 is F8 with the given scale tensor. */
static void f8_folder(char dir[64], const char *scale_end, const char *dtype, const char *shape,
                      uint64_t n_scales, const char *config)
{
    static const char NAME[] = "model.layers.0.self_attn.q_proj.weight";
    struct st_maker m, f8;
    scratch_dir(dir);
    folder_puts(dir, "config.json", config);
    st_init(&m);
    add_model(&m, T_HEAD, 2, "BF16");
    /* the same tensor again as F8, in a file of its own */
    struct buf file;
    st_init(&f8);
    add(&f8, NAME, "F8_E4M3", Q, EMBD);
    char scale[96];
    snprintf(scale, sizeof scale, "%s%s", NAME, scale_end);
    st_add(&f8, scale, dtype, shape, n_scales, 99);
    st_file(&m, &file);
    /* take the BF16 one out by renaming it to what is ignored */
    char *at = memmem(file.data, file.len, NAME, strlen(NAME));
    assert_non_null(at);
    memcpy(at + strlen(NAME) - 12, ".input_scale", 12);
    folder_put(dir, "a.safetensors", file.data, file.len);
    buf_fini(&file);
    folder_put_st(dir, "b.safetensors", &f8);
    st_fini(&f8);
    st_fini(&m);
}

static void f8_list(const char *dir)
{
    struct buf list;
    buf_init(&list, 1 << 20);
    buf_puts(&list, "{\"metadata\":{},\"weight_map\":{");
    const char *sep = "";
    for (const char *file = "a"; file; file = *file == 'a' ? "b" : NULL) {
        char path[128];
        struct safetensors s;
        struct err e = ERR_INIT;
        snprintf(path, sizeof path, "%s/%s.safetensors", dir, file);
        assert_int_equal(safetensors_open(&s, path, &e), 0);
        for (uint32_t i = 0; i < s.n_tensors; i++, sep = ",")
            buf_printf(&list, "%s\"%s\":\"%s.safetensors\"", sep, s.tensors[i].name, file);
        safetensors_close(&s);
    }
    buf_puts(&list, "}}");
    folder_put(dir, "model.safetensors.index.json", list.data, list.len);
    buf_fini(&list);
}

/* w = scale * e4m3, the scale of (row, column) given by its index. */
static void check_f8(const char *dir, uint64_t scale_rows, uint64_t scale_columns, bool bf16)
{
    static const char NAME[] = "model.layers.0.self_attn.q_proj.weight";
    struct hf_model h;
    const struct tensor_info *t;
    open_good(&h, dir);
    float *y = unpacked(&h, "blk.0.attn_q.weight", 50, &t);
    assert_int_equal(t->type, TENSOR_F8_E4M3);
    assert_int_equal(t->n_bytes, Q * EMBD / 32 * 36);
    uint64_t across = (EMBD + scale_columns - 1) / scale_columns;
    for (uint64_t r = 0; r < Q; r++)
        for (uint64_t c = 0; c < EMBD; c++) {
            uint64_t in = r % HEAD, from = r - in + (in % 2 ? HEAD / 2 + in / 2 : in / 2);
            float scale = fixture_weight(99, from / scale_rows * across + c / scale_columns);
            float q = e4m3_float(float_e4m3(fixture_weight(seed_of(NAME), from * EMBD + c)));
            (void)bf16; /* fixture weights are exact in BF16 */
            assert_true(y[r * EMBD + c] == scale * q);
        }
    free(y);
    hf_close(&h);
}

#define FP8 LLAMA ",\"quantization_config\":{\"quant_method\":\"fp8\",\"fmt\":\"e4m3\"}}"

static void test_f8(void **state)
{
    (void)state;
    static const struct {
        const char *end, *dtype, *shape;
        uint64_t n, rows, columns;
    } table[] = {
        {"_scale", "F32", "", 1, Q, EMBD},       /* one a tensor */
        {"_scale", "F32", "1", 1, Q, EMBD},      /* the same */
        {"_scale", "BF16", "32,1", Q, 1, EMBD},  /* one a row */
        {"_scale", "F16", "32", Q, 1, EMBD},     /* the same */
        {"_scale_inv", "F32", "1,1", 1, Q, EMBD} /* one block of 128 x 128 */
    };
    char dir[64];
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        f8_folder(dir, table[i].end, table[i].dtype, table[i].shape, table[i].n, FP8);
        f8_list(dir);
        check_f8(dir, table[i].rows, table[i].columns, false);
        folder_drop(dir);
    }
    /* blocks of 8 x 32 */
    f8_folder(dir, "_scale_inv", "BF16", "4,1", 4,
              LLAMA ",\"quantization_config\":{\"quant_method\":\"fp8\","
                    "\"weight_block_size\":[8,32]}}");
    f8_list(dir);
    check_f8(dir, 8, 32, true);
    folder_drop(dir);

    f8_folder(dir, "_scale", "F32", "3", 3, FP8);
    f8_list(dir);
    open_refused(dir, "q_proj.weight_scale: expected one scale, 32 of rows, or [1, 1] of blocks, "
                      "found shape [3]");
    folder_drop(dir);
    f8_folder(dir, "_zero", "F32", "", 1, FP8);
    f8_list(dir);
    open_refused(dir, "q_proj.weight is F8_E4M3 without a");
    folder_drop(dir);
    f8_folder(dir, "_scale", "F32", "", 1,
              LLAMA ",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4}}");
    f8_list(dir);
    open_refused(dir, "quantization_config.quant_method");
    folder_drop(dir);
}

/* --- embeddings ------------------------------------------------------------------------------------------- */

static void test_pooling(void **state)
{
    (void)state;
    static const char MODULES[] = "[{\"idx\":0,\"name\":\"0\",\"path\":\"\",\"type\":\"sentence_"
                                  "transformers.models.Transformer\"},"
                                  "{\"idx\":1,\"name\":\"1\",\"path\":\"1_Pooling\",\"type\":"
                                  "\"sentence_transformers.models.Pooling\"},"
                                  "{\"idx\":2,\"name\":\"2\",\"path\":\"2_Normalize\",\"type\":"
                                  "\"sentence_transformers.models.Normalize\"}]";
    char dir[64];
    struct hf_model h;
    folder_make(dir, "{\"architectures\":[\"Qwen3Model\"],\"num_hidden_layers\":1," COMMON "}",
                T_BARE | T_QK_NORM, 1, "BF16");
    open_refused(dir, "Qwen3Model has no head for tokens");
    folder_puts(dir, "modules.json", MODULES);
    open_refused(dir, "1_Pooling/config.json");
    folder_puts(dir, "1_Pooling/config.json",
                "{\"word_embedding_dimension\":32,\"pooling_mode_cls_token\":false,"
                "\"pooling_mode_mean_tokens\":false,\"pooling_mode_lasttoken\":true,"
                "\"include_prompt\":true}");
    open_good(&h, dir);
    assert_int_equal(h.meta.params.pooling, POOLING_LAST);
    assert_null(index_find(&h.index, "output.weight"));
    check_tensor(&h, "blk.0.attn_q.weight", "layers.0.self_attn.q_proj.weight", TENSOR_BF16, Q,
                 EMBD, 0);
    hf_close(&h);
    folder_puts(dir, "1_Pooling/config.json", "{\"pooling_mode_mean_tokens\":true}");
    open_good(&h, dir);
    assert_int_equal(h.meta.params.pooling, POOLING_MEAN);
    hf_close(&h);
    static const struct {
        const char *pooling, *says;
    } bad[] = {
        {"{\"pooling_mode_cls_token\":true}", "key pooling_mode_cls_token: only false"},
        {"{\"pooling_mode_mean_tokens\":true,\"pooling_mode_lasttoken\":true}", "found 2"},
        {"{}", "found 0"},
        {"{\"pooling_mode_lasttoken\":true,\"strange\":1}", "key strange = 1 is not known"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        folder_puts(dir, "1_Pooling/config.json", bad[i].pooling);
        open_refused(dir, bad[i].says);
    }
    folder_puts(dir, "modules.json", "[{\"path\":\"2_Dense\",\"type\":\"a.b.Dense\"}]");
    open_refused(dir, "found Dense");
    folder_puts(dir, "modules.json", "[{\"path\":\"../x\",\"type\":\"a.b.Pooling\"}]");
    open_refused(dir, "path inside the folder");
    folder_drop(dir);
}

/* --- what is refused ---------------------------------------------------------------------------------------- */

static void test_refused_keys(void **state)
{
    (void)state;
    static const struct {
        const char *config, *says;
    } table[] = {
        {"[1]", "config.json: expected a JSON object"},
        {"{", "config.json: line 1"},
        {"{}", "key architectures"},
        {"{\"architectures\":[\"MambaForCausalLM\"]," COMMON "}", "found MambaForCausalLM"},
        {"{\"architectures\":[\"LlamaForSequenceClassification\"]," COMMON "}",
         "found LlamaForSequenceClassification"},
        {"{\"architectures\":[\"LlamaForCausalLM\"]," COMMON "}", "key num_hidden_layers"},
        {LLAMA ",\"num_hidden_layers\":2}", "config.json: line 1: duplicate object key"},
        {LLAMA ",\"some_new_trick\":true}", "key some_new_trick = true is not known"},
        {LLAMA ",\"auto_map\":{\"AutoModel\":\"x.y\"}}", "key auto_map"},
        {LLAMA ",\"sliding_window\":16}", "key sliding_window: only null"},
        {LLAMA ",\"partial_rotary_factor\":0.5}", "key partial_rotary_factor: only 1"},
        {LLAMA ",\"rope_interleaved\":true}", "key rope_interleaved: only false"},
        {LLAMA ",\"is_causal\":false}", "key is_causal: only true"},
        {LLAMA ",\"rope_theta\":\"big\"}",
         "key rope_theta: expected a finite number, found \"big\""},
        {LLAMA ",\"attention_bias\":1}", "key attention_bias: expected true or false, found 1"},
        {LLAMA ",\"rope_scaling\":{\"type\":\"mrope\"}}",
         "key rope_scaling.rope_type: only default"},
        {LLAMA ",\"rope_scaling\":{\"type\":\"linear\"}}",
         "key rope_scaling.factor: expected a number"},
        {LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2,\"trick\":3}}",
         "key rope_scaling.trick = 3 is not known"},
        {LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":0.5}}", "RoPE scaling factor"},
        {LLAMA
         ",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1],\"long_factor\":[1]}}",
         "key rope_scaling.short_factor: expected 8 numbers, found 1"},
        {LLAMA ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"truncate\":false}}",
         "key rope_scaling.truncate: only true"},
        {LLAMA ",\"rope_scaling\":7}", "key rope_scaling: only an object"},
        {LLAMA ",\"layer_types\":[\"sliding_attention\",\"full_attention\"]}",
         "key layer_types: only full attention before"},
        {LLAMA ",\"layer_types\":[\"full_attention\",\"linear_attention\"]}",
         "found linear_attention"},
        {"{\"architectures\":[\"MistralForCausalLM\"],\"num_hidden_layers\":2,"
         "\"attention_bias\":true," COMMON "}",
         "key attention_bias: only false"},
        {"{\"architectures\":[\"Qwen3ForCausalLM\"],\"num_hidden_layers\":2,"
         "\"mlp_bias\":true," COMMON "}",
         "key mlp_bias: only false"},
        {QWEN3MOE ",\"mlp_only_layers\":[0]}", "key mlp_only_layers: only []"},
        {QWEN3MOE ",\"decoder_sparse_step\":2}", "key decoder_sparse_step: only 1"},
        {SMOLLM3 ",\"use_sliding_window\":true,\"sliding_window\":8}", "key use_sliding_window"},
        {LLAMA ",\"\\u001b[31m\":1}", "key ?[31m = 1"},
    };
    char dir[64];
    folder_make(dir, "", T_HEAD, 2, "F16");
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        folder_puts(dir, "config.json", table[i].config);
        open_refused(dir, table[i].says);
    }
    /* sizes, each on its own */
    static const struct {
        const char *from, *to, *says;
    } sizes[] = {
        {"\"hidden_act\":\"silu\"", "\"hidden_act\":\"gelu\"", "key hidden_act: only silu"},
        {"\"vocab_size\":6", "\"vocab_size\":4", "the tokenizer has 5 tokens, but vocab_size is 4"},
        {"\"vocab_size\":6", "\"vocab_size\":4000000000", "vocab_size: expected at most"},
        {"\"hidden_size\":32", "\"hidden_size\":0", "key hidden_size: only a positive number"},
        {"\"head_dim\":16", "\"head_dim\":15", "key head_dim: expected an even number"},
        {"\"head_dim\":16", "\"head_dim\":4000000000", "key head_dim: expected an even number"},
        {"\"num_key_value_heads\":1", "\"num_key_value_heads\":3", "heads: expected a multiple"},
        {"\"num_hidden_layers\":2", "\"num_hidden_layers\":3000000000", "layers: expected 1 to"},
        {"\"rms_norm_eps\":1e-5", "\"rms_norm_eps\":0", "norm epsilon"},
        {"\"hidden_size\":32", "\"hidden_size\":64",
         "tensor model.embed_tokens.weight: expected shape [6, 64], found [6, 32]"},
        {"\"num_hidden_layers\":2", "\"num_hidden_layers\":1",
         "tensor model.layers.1.input_layernorm.weight is not known for LlamaForCausalLM"},
        {"\"num_hidden_layers\":2", "\"num_hidden_layers\":3",
         "tensor model.layers.2.input_layernorm.weight of shape [32] is missing"},
        {"\"num_key_value_heads\":1", "\"num_key_value_heads\":2",
         "k_proj.weight: expected shape [32, 32], found [16, 32]"},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char config[1024];
        snprintf(config, sizeof config, "%s}", LLAMA);
        char *at = strstr(config, sizes[i].from), rest[1024];
        assert_non_null(at);
        snprintf(rest, sizeof rest, "%s", at + strlen(sizes[i].from));
        snprintf(at, sizeof config - (size_t)(at - config), "%s%s", sizes[i].to, rest);
        folder_puts(dir, "config.json", config);
        open_refused(dir, sizes[i].says);
    }
    folder_drop(dir);
}

static void test_refused_tensors(void **state)
{
    (void)state;
    char dir[64];
    struct st_maker m;
    scratch_dir(dir);
    folder_puts(dir, "config.json", LLAMA "}");
    open_refused(dir, "expected model.safetensors or model.safetensors.index.json, found neither");
    folder_puts(dir, "pytorch_model.bin", "PK");
    open_refused(dir, "pytorch_model.bin only");
    static const struct {
        unsigned flags;
        const char *name, *dtype, *shape, *says;
        uint64_t n;
    } table[] = {
        {T_HEAD, "model.layers.0.mlp.extra.weight", "F16", "1", "mlp.extra.weight is not known", 1},
        {T_HEAD | T_BIAS, "x", "F16", "1", "self_attn.k_proj.bias is not known", 1},
        {0, "x", "F16", "1", "tensor lm_head.weight of shape [6, 32] is missing", 1},
        {0, "lm_head.weight", "I8", "6,32", "lm_head.weight: expected F32, F16, BF16 or F8", 0},
        {0, "lm_head.weight", "F16", "32,6", "expected shape [6, 32], found [32, 6]", 192},
        {0, "lm_head.weight", "F16", "192", "expected shape [6, 32], found [192]", 192},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        st_init(&m);
        add_model(&m, table[i].flags, 2, "F16");
        if (table[i].n) {
            st_add(&m, table[i].name, table[i].dtype, table[i].shape, table[i].n, 1);
        } else {
            uint64_t from = m.data.len;
            memset(buf_reserve(&m.data, 192), 0, 192);
            m.data.len += 192;
            st_entry(&m, table[i].name, table[i].dtype, table[i].shape, from, m.data.len);
        }
        folder_put_st(dir, "model.safetensors", &m);
        st_fini(&m);
        open_refused(dir, table[i].says);
    }
    /* what old files bring along is left out */
    struct hf_model h;
    st_init(&m);
    add_model(&m, T_HEAD, 2, "F16");
    st_add(&m, "model.layers.0.self_attn.rotary_emb.inv_freq", "F32", "8", 8, 1);
    folder_put_st(dir, "model.safetensors", &m);
    st_fini(&m);
    open_good(&h, dir);
    hf_close(&h);
    folder_drop(dir);
}

static void test_refused_experts(void **state)
{
    (void)state;
    char dir[64];
    struct st_maker m;
    scratch_dir(dir);
    folder_puts(dir, "config.json", QWEN3MOE "}");
    st_init(&m); /* one expert in another format */
    add_model(&m, T_HEAD | T_QWEN_MOE | T_QK_NORM, 1, "F16");
    add_layer(&m, "model.", 1, T_QK_NORM, "F16");
    folder_put_st(dir, "model.safetensors", &m);
    st_fini(&m);
    open_refused(dir, "tensor model.layers.1.mlp.gate.weight of shape [3, 32] is missing");
    folder_drop(dir);
}

/* --- shards ------------------------------------------------------------------------------------------------- */

static void shards_make(const char *dir, const char *const *files, const uint32_t *layers,
                        const char *list)
{
    for (int i = 0; files[i]; i++) {
        struct st_maker m;
        st_init(&m);
        if (layers[i] == 9) {
            add(&m, "model.embed_tokens.weight", "F16", VOCAB, EMBD);
            add(&m, "model.norm.weight", "F16", 0, EMBD);
        } else {
            add_layer(&m, "model.", layers[i], 0, "F16");
        }
        folder_put_st(dir, files[i], &m);
        st_fini(&m);
    }
    if (list)
        folder_puts(dir, "model.safetensors.index.json", list);
}

/* The list of two layers and the rest in three files. */
static void list_make(char *out, size_t cap, const char *layer1_file)
{
    struct st_maker m;
    size_t n = (size_t)snprintf(out, cap,
                                "{\"metadata\":{\"total_size\":1},\"weight_map\":{"
                                "\"model.embed_tokens.weight\":\"c.safetensors\","
                                "\"model.norm.weight\":\"c.safetensors\"");
    for (uint32_t layer = 0; layer < 2; layer++) {
        struct buf file;
        struct safetensors s;
        st_init(&m);
        add_layer(&m, "model.", layer, 0, "F16");
        st_file(&m, &file);
        assert_int_equal(safetensors_parse(&s, file.data, file.len, "x", NULL), 0);
        for (uint32_t i = 0; i < s.n_tensors; i++)
            n += (size_t)snprintf(out + n, cap - n, ",\"%s\":\"%s\"", s.tensors[i].name,
                                  layer ? layer1_file : "a.safetensors");
        safetensors_close(&s);
        buf_fini(&file);
        st_fini(&m);
    }
    snprintf(out + n, cap - n, "}}");
}

static void test_shards(void **state)
{
    (void)state;
    char dir[64], list[4096];
    struct hf_model h;
    const char *const files[] = {"a.safetensors", "b.safetensors", "c.safetensors", NULL};
    scratch_dir(dir);
    folder_puts(dir, "config.json", LLAMA ",\"tie_word_embeddings\":true}");
    list_make(list, sizeof list, "b.safetensors");
    shards_make(dir, files, (const uint32_t[]){0, 1, 9}, list);
    open_good(&h, dir);
    assert_int_equal(h.index.n_tensors, 2 + 2 * 9);
    check_tensor(&h, "blk.1.attn_q.weight", "model.layers.1.self_attn.q_proj.weight", TENSOR_F16, Q,
                 EMBD, HEAD);
    hf_close(&h);

    shards_make(dir, files, (const uint32_t[]){0, 0, 9}, list);
    open_refused(dir, "is both in");
    shards_make(dir, files, (const uint32_t[]){1, 0, 9}, list);
    open_refused(dir, "is in b.safetensors, but the list says a.safetensors");
    shards_make(dir, files, (const uint32_t[]){0, 1, 9}, NULL);
    char wrong[4200];
    snprintf(wrong, sizeof wrong, "%.*s,\"model.more\":\"a.safetensors\"}}", (int)strlen(list) - 2,
             list);
    folder_puts(dir, "model.safetensors.index.json", wrong);
    open_refused(dir, "tensor model.more is not in a.safetensors");
    list_make(list, sizeof list, "../b.safetensors");
    folder_puts(dir, "model.safetensors.index.json", list);
    open_refused(dir, "in the same folder, found another");
    list_make(list, sizeof list, "missing.safetensors");
    folder_puts(dir, "model.safetensors.index.json", list);
    open_refused(dir, "missing.safetensors");
    folder_puts(dir, "model.safetensors.index.json", "{\"weight_map\":{\"a\":7}}");
    open_refused(dir, "expected file names");
    folder_puts(dir, "model.safetensors.index.json", "{\"weight_map\":[]}");
    open_refused(dir, "expected a weight_map");
    folder_drop(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama),           cmocka_unit_test(test_biases),
        cmocka_unit_test(test_qwen2),           cmocka_unit_test(test_mistral),
        cmocka_unit_test(test_mixtral),         cmocka_unit_test(test_qwen3moe),
        cmocka_unit_test(test_smollm3),         cmocka_unit_test(test_llama3_scaling),
        cmocka_unit_test(test_other_scalings),  cmocka_unit_test(test_f8),
        cmocka_unit_test(test_pooling),         cmocka_unit_test(test_refused_keys),
        cmocka_unit_test(test_refused_tensors), cmocka_unit_test(test_refused_experts),
        cmocka_unit_test(test_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
