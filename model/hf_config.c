/* hf_config.c - see hf_config.h. */
#include "model/hf_config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HEAD_DIM = 1024 }; /* as meta_check has it; here before anything is sized by it */

static const struct hf_family FAMILIES[] = {
    {.name = "Llama",
     .arch = "llama",
     .permute = true,
     .mlp_bias = true,
     .rope_theta = 1e4,
     .norm_eps = 1e-6},
    {.name = "Mistral", .arch = "llama", .permute = true, .rope_theta = 1e4, .norm_eps = 1e-6},
    {.name = "Mixtral",
     .arch = "llama",
     .permute = true,
     .experts = HF_MIXTRAL,
     .rope_theta = 1e6,
     .norm_eps = 1e-5},
    {.name = "Qwen2", .arch = "qwen2", .qkv_bias = true, .rope_theta = 1e4, .norm_eps = 1e-6},
    {.name = "Qwen3",
     .arch = "qwen3",
     .qk_norm = true,
     .head_dim = 128,
     .rope_theta = 1e4,
     .norm_eps = 1e-6},
    {.name = "Qwen3Moe",
     .arch = "qwen3moe",
     .qk_norm = true,
     .experts = HF_QWEN3_MOE,
     .rope_theta = 1e4,
     .norm_eps = 1e-6},
    {.name = "SmolLM3",
     .arch = "smollm3",
     .permute = true,
     .mlp_bias = true,
     .tied = true,
     .rope_theta = 2e6,
     .norm_eps = 1e-6},
};

/* Keys that change no logits: what generation, training, saving and other programs keep in the file. */
static const char *const HARMLESS[] = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_flash_attn_2_enabled",
    "_name_or_path",
    "attention_dropout",
    "attn_implementation",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "hidden_dropout",
    "id2label",
    "initializer_range",
    "is_decoder",
    "is_llama_config",
    "label2id",
    "length_penalty",
    "max_length",
    "max_sequence_length",
    "min_length",
    "model_type",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "output_scores",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
    NULL,
};

/* Switches with one value that changes nothing. */
static const struct {
    const char *key;
    bool value;
} SWITCHES[] = {
    {"rope_interleaved", false},      {"use_mrope", false},           {"is_causal", true},
    {"is_encoder_decoder", false},    {"add_cross_attention", false}, {"use_qk_norm", false},
    {"use_parallel_residual", false}, {"tie_encoder_decoder", false},
};

static int read_family(struct hf_config *c, struct model_params *p, struct hf_keys *k,
                       struct err *e)
{
    json_t *list = hf_take(k, "architectures");
    const char *name = json_string_value(json_array_get(list, 0));
    int rc = 0;
    if (json_array_size(list) != 1 || !name)
        rc = err_set(e, ERR_FORMAT, "%s: key architectures: expected a list of one name, found %zu",
                     k->label, json_array_size(list));
    for (size_t i = 0; !rc && i < sizeof FAMILIES / sizeof FAMILIES[0]; i++) {
        size_t n = strlen(FAMILIES[i].name);
        if (strncmp(name, FAMILIES[i].name, n) != 0)
            continue;
        c->lm_head = strcmp(name + n, "ForCausalLM") == 0;
        if (c->lm_head || strcmp(name + n, "Model") == 0)
            c->family = &FAMILIES[i];
    }
    if (!rc && !c->family)
        rc = hf_refuse(
            k, "architectures",
            "ForCausalLM and Model of Llama, Mistral, Mixtral, Qwen2, Qwen3, Qwen3Moe and "
            "SmolLM3",
            name, e);
    if (!rc)
        snprintf(p->arch, sizeof p->arch, "%s", c->family->arch);
    json_decref(list);
    return rc;
}

static int read_sizes(struct hf_config *c, struct model_params *p, struct hf_keys *k, struct err *e)
{
    const struct {
        const char *key;
        uint32_t *out;
    } sizes[] = {
        {"hidden_size", &p->n_embd},
        {"num_hidden_layers", &p->n_layers},
        {"num_attention_heads", &p->n_heads},
        {"intermediate_size", &p->n_ff},
        {"max_position_embeddings", &p->n_ctx},
        {"vocab_size", &p->n_vocab},
    };
    int rc = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0] && !rc; i++) {
        rc = hf_take_u32(k, sizes[i].key, true, sizes[i].out, e);
        if (!rc && *sizes[i].out == 0)
            rc = hf_refuse(k, sizes[i].key, "a positive number", "0", e);
    }
    if (rc)
        return rc;
    p->n_kv_heads = p->n_heads;
    /* Only Llama's first files leave it out, and mean one for each head. */
    bool old = strcmp(c->family->name, "Llama") == 0;
    rc = hf_take_u32(k, "num_key_value_heads", !old, &p->n_kv_heads, e);
    p->head_dim = c->family->head_dim;
    if (!rc)
        rc = hf_take_u32(k, "head_dim", false, &p->head_dim, e);
    if (!rc && p->head_dim == 0 && p->n_embd % p->n_heads)
        rc = err_set(e, ERR_FORMAT,
                     "%s: hidden_size %" PRIu32 " is no multiple of num_attention_heads %" PRIu32,
                     k->label, p->n_embd, p->n_heads);
    if (!rc && p->head_dim == 0)
        p->head_dim = p->n_embd / p->n_heads;
    if (!rc && (p->head_dim > MAX_HEAD_DIM || p->head_dim % 2))
        rc = err_set(e, ERR_FORMAT,
                     "%s: key head_dim: expected an even number of at most %d, found %" PRIu32,
                     k->label, MAX_HEAD_DIM, p->head_dim);
    p->rope_dim = p->head_dim;
    double eps = c->family->norm_eps, partial = 1;
    if (!rc)
        rc = hf_take_f64(k, "rms_norm_eps", false, &eps, e);
    if (!rc)
        rc = hf_take_f64(k, "partial_rotary_factor", false, &partial, e);
    if (!rc && partial != 1)
        rc = hf_refuse(k, "partial_rotary_factor", "1", "another", e);
    p->norm_eps = (float)eps;
    return rc;
}

/* hidden_act, biases, tied embeddings and what must be as it is everywhere. */
static int read_switches(struct hf_config *c, struct model_params *p, struct hf_keys *k,
                         struct err *e)
{
    char act[32] = "silu";
    int rc = hf_take_text(k, "hidden_act", act, sizeof act, e);
    if (!rc && strcmp(act, "silu") != 0)
        rc = hf_refuse(k, "hidden_act", "silu", act, e);
    for (size_t i = 0; i < sizeof SWITCHES / sizeof SWITCHES[0] && !rc; i++) {
        bool v = SWITCHES[i].value;
        rc = hf_take_bool(k, SWITCHES[i].key, &v, e);
        if (!rc && v != SWITCHES[i].value)
            rc = hf_refuse(k, SWITCHES[i].key, v ? "false" : "true", v ? "true" : "false", e);
    }
    bool bias = false;
    if (!rc)
        rc = hf_take_bool(k, "mlp_bias", &c->mlp_bias, e);
    if (!rc && c->mlp_bias && !c->family->mlp_bias)
        rc = hf_refuse(k, "mlp_bias", "false", "true", e);
    p->tied_embeddings = c->family->tied;
    if (!rc)
        rc = hf_take_bool(k, "attention_bias", &bias, e);
    if (!rc)
        rc = hf_take_bool(k, "tie_word_embeddings", &p->tied_embeddings, e);
    if (!rc && bias && strncmp(c->family->name, "Mi", 2) == 0) /* these classes have none */
        rc = hf_refuse(k, "attention_bias", "false", "true", e);
    /* Qwen2's class has its biases whatever attention_bias says, and never one at the output. */
    c->qkv_bias = bias || c->family->qkv_bias;
    c->output_bias = bias && !c->family->qkv_bias;
    return rc;
}

/* --- quantised files ------------------------------------------------------------------------------ */

/* Weights as F8 with scales; how they were made does not matter, where the scales lie is seen in the tensors. */
static int read_quantization(struct hf_config *c, struct hf_keys *k, struct err *e)
{
    json_t *q = hf_take(k, "quantization_config");
    if (!q)
        return 0;
    const char *method = json_string_value(json_object_get(q, "quant_method"));
    const char *format = json_string_value(json_object_get(q, "format"));
    const char *fmt = json_string_value(json_object_get(q, "fmt"));
    const json_t *block = json_object_get(q, "weight_block_size");
    int rc = 0;
    bool compressed = method && strcmp(method, "compressed-tensors") == 0 && format &&
                      (strcmp(format, "float-quantized") == 0 ||
                       strcmp(format, "naive-quantized") == 0); /* types are seen in the tensors */
    if (!method || (strcmp(method, "fp8") != 0 && strcmp(method, "fbgemm_fp8") != 0 && !compressed))
        rc = hf_refuse(k, "quantization_config.quant_method",
                       "fp8, fbgemm_fp8 and compressed-tensors with format float-quantized",
                       method ? method : "none", e);
    if (!rc && fmt && strcmp(fmt, "e4m3") != 0)
        rc = hf_refuse(k, "quantization_config.fmt", "e4m3", fmt, e);
    if (!rc && json_is_array(block)) {
        json_int_t rows = json_integer_value(json_array_get(block, 0));
        json_int_t columns = json_integer_value(json_array_get(block, 1));
        if (json_array_size(block) != 2 || rows < 1 || rows > 1 << 20 || columns < 32 ||
            columns > 1 << 20 || columns % 32)
            rc = hf_refuse(k, "quantization_config.weight_block_size",
                           "two numbers, the second a multiple of 32", "others", e);
        c->fp8_rows = (uint32_t)rows;
        c->fp8_columns = (uint32_t)columns;
    }
    c->fp8 = true;
    json_decref(q);
    return rc;
}

int hf_config_read(struct hf_config *c, struct model_params *p, json_t *config, const char *label,
                   struct err *e)
{
    *c = (struct hf_config){0};
    struct hf_keys k = {label, "", config};
    int rc = read_family(c, p, &k, e);
    if (!rc)
        rc = read_sizes(c, p, &k, e);
    if (!rc)
        rc = read_switches(c, p, &k, e);
    if (!rc)
        rc = hf_layers_read(c, p, &k, e);
    if (!rc)
        rc = read_quantization(c, &k, e);
    double theta = rc ? 0 : c->family->rope_theta;
    if (!rc)
        rc = hf_take_f64(&k, "rope_theta", false, &theta, e);
    p->rope_base = (float)theta;
    if (!rc && json_object_get(config, "original_max_position_embeddings"))
        rc = hf_take_u32(&k, "original_max_position_embeddings", false, &p->rope_orig_ctx, e);
    if (!rc)
        rc = hf_rope_read(c, p, &k, e);
    if (!rc && p->rope_scaling == ROPE_PLAIN)
        p->rope_orig_ctx = 0;
    return rc ? rc : hf_keys_end(&k, HARMLESS, e);
}

void hf_config_fini(struct hf_config *c)
{
    free(c->rope_short);
    free(c->rope_long);
    *c = (struct hf_config){0};
}
