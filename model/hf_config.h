/* hf_config.h - from a Hugging Face folder's config.json to struct model_params. Inside the room only.
 *
 * Names, defaults and meanings as in the configuration classes of `transformers` (LlamaConfig, …). Each key is used, is
 * known to change nothing, or is refused by its name.
 */
#ifndef EXA_MODEL_HF_CONFIG_H
#define EXA_MODEL_HF_CONFIG_H

#include "model/hf_json.h"
#include "model/meta.h"

enum hf_experts { HF_DENSE, HF_MIXTRAL, HF_QWEN3_MOE };

/* One architecture of `transformers`: a row of the table in hf_config.c. */
struct hf_family {
    const char *name; /* "LlamaForCausalLM" is name + "ForCausalLM", LlamaModel is name + "Model" */
    const char *arch; /* of MODEL_ARCHS */
    /* Rotation of dimensions i and i + head_dim / 2 in these files; packs of this architecture rotate 2i and 2i + 1, so rows of q
     * and k change places. */
    bool permute;
    bool qkv_bias; /* always; otherwise by attention_bias, then also at the output */
    bool mlp_bias; /* may have them: mlp_bias */
    bool qk_norm;
    enum hf_experts experts;
    /* what the class assumes for a key that is not there */
    bool tied;
    uint32_t head_dim; /* 0: hidden_size / num_attention_heads */
    double rope_theta, norm_eps;
};

struct hf_config {
    const struct hf_family *family;
    bool lm_head;                   /* a causal model; else one of hidden states: embeddings */
    bool qkv_bias, output_bias;     /* of attention */
    bool mlp_bias;                  /* of gate, up and down */
    bool fp8;                       /* quantization_config says that weights are F8 with scales */
    uint32_t fp8_rows, fp8_columns; /* weights of one scale in a block; 0: by the scales' shapes */
    /* LLAMA3 and LONGROPE: divisors of the rotations' frequencies, [rope_dim / 2], owned; NULL: none. LLAMA3 has one of them. */
    float *rope_short, *rope_long;
};

/* p->n_vocab is vocab_size; tied_embeddings is what the file says; pooling is left alone. c is fini'd by the caller also on failure. `config` is used
 * up. ERR_FORMAT names label, key, expected and found. */
int hf_config_read(struct hf_config *c, struct model_params *p, json_t *config, const char *label,
                   struct err *e);
void hf_config_fini(struct hf_config *c);

/* Sliding windows, layers that do not rotate, experts. (hf_layers.c) */
int hf_layers_read(const struct hf_config *c, struct model_params *p, struct hf_keys *k,
                   struct err *e);
/* rope_scaling or rope_parameters (rope_theta may be inside): fills p's rope_… and c's divisors. Called with sizes known. (hf_rope.c) */
int hf_rope_read(struct hf_config *c, struct model_params *p, struct hf_keys *k, struct err *e);

/* FOLDER/modules.json and 1_Pooling/config.json of sentence-transformers, when they are there: p->pooling. (hf_pooling.c) */
int hf_pooling_read(const char *folder, struct model_params *p, struct err *e);

#endif
