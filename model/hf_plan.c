/* hf_plan.c - see hf_plan.h. Names on the left as `transformers` saves them, on the right as GGUF files have them. */
#include "model/hf_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A length in a shape. */
enum length { ONE, EMBD, HEADS, KV_HEADS, HEAD, FF, FF_EXPERT, EXPERTS, VOCAB };
/* Which models have the tensor. */
enum when { ALWAYS, QKV_BIAS, OUTPUT_BIAS, QK_NORM, MLP_BIAS, DENSE, MIXTRAL, QWEN3_MOE, UNTIED };
enum how {
    WEIGHT,  /* matrix: keeps its format */
    ROUTER,  /* matrix: becomes F32 */
    VECTOR,  /* becomes F32 */
    ROTATED, /* matrix whose rows change places where the architecture wants it */
    ROTATED_VECTOR,
    EXPERTS_OF, /* one matrix for each expert, stacked; %u in the name */
};

struct entry {
    const char *hf, *name;
    enum length rows, columns;
    enum when when;
    enum how how;
};

static const struct entry LAYER[] = {
    {"input_layernorm.weight", "attn_norm.weight", ONE, EMBD, ALWAYS, VECTOR},
    {"self_attn.q_proj.weight", "attn_q.weight", HEADS, EMBD, ALWAYS, ROTATED},
    {"self_attn.k_proj.weight", "attn_k.weight", KV_HEADS, EMBD, ALWAYS, ROTATED},
    {"self_attn.v_proj.weight", "attn_v.weight", KV_HEADS, EMBD, ALWAYS, WEIGHT},
    {"self_attn.q_proj.bias", "attn_q.bias", ONE, HEADS, QKV_BIAS, ROTATED_VECTOR},
    {"self_attn.k_proj.bias", "attn_k.bias", ONE, KV_HEADS, QKV_BIAS, ROTATED_VECTOR},
    {"self_attn.v_proj.bias", "attn_v.bias", ONE, KV_HEADS, QKV_BIAS, VECTOR},
    {"self_attn.q_norm.weight", "attn_q_norm.weight", ONE, HEAD, QK_NORM, VECTOR},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", ONE, HEAD, QK_NORM, VECTOR},
    {"self_attn.o_proj.weight", "attn_output.weight", EMBD, HEADS, ALWAYS, WEIGHT},
    {"self_attn.o_proj.bias", "attn_output.bias", ONE, EMBD, OUTPUT_BIAS, VECTOR},
    {"post_attention_layernorm.weight", "ffn_norm.weight", ONE, EMBD, ALWAYS, VECTOR},
    {"mlp.gate_proj.weight", "ffn_gate.weight", FF, EMBD, DENSE, WEIGHT},
    {"mlp.up_proj.weight", "ffn_up.weight", FF, EMBD, DENSE, WEIGHT},
    {"mlp.down_proj.weight", "ffn_down.weight", EMBD, FF, DENSE, WEIGHT},
    {"mlp.gate_proj.bias", "ffn_gate.bias", ONE, FF, MLP_BIAS, VECTOR},
    {"mlp.up_proj.bias", "ffn_up.bias", ONE, FF, MLP_BIAS, VECTOR},
    {"mlp.down_proj.bias", "ffn_down.bias", ONE, EMBD, MLP_BIAS, VECTOR},
    {"block_sparse_moe.gate.weight", "ffn_gate_inp.weight", EXPERTS, EMBD, MIXTRAL, ROUTER},
    {"block_sparse_moe.experts.%u.w1.weight", "ffn_gate_exps.weight", FF_EXPERT, EMBD, MIXTRAL,
     EXPERTS_OF},
    {"block_sparse_moe.experts.%u.w3.weight", "ffn_up_exps.weight", FF_EXPERT, EMBD, MIXTRAL,
     EXPERTS_OF},
    {"block_sparse_moe.experts.%u.w2.weight", "ffn_down_exps.weight", EMBD, FF_EXPERT, MIXTRAL,
     EXPERTS_OF},
    {"mlp.gate.weight", "ffn_gate_inp.weight", EXPERTS, EMBD, QWEN3_MOE, ROUTER},
    {"mlp.experts.%u.gate_proj.weight", "ffn_gate_exps.weight", FF_EXPERT, EMBD, QWEN3_MOE,
     EXPERTS_OF},
    {"mlp.experts.%u.up_proj.weight", "ffn_up_exps.weight", FF_EXPERT, EMBD, QWEN3_MOE, EXPERTS_OF},
    {"mlp.experts.%u.down_proj.weight", "ffn_down_exps.weight", EMBD, FF_EXPERT, QWEN3_MOE,
     EXPERTS_OF},
};
enum { N_LAYER = sizeof LAYER / sizeof LAYER[0], N_OUTSIDE = 5 };

static const struct entry EMBEDDING = {
    "embed_tokens.weight", "token_embd.weight", VOCAB, EMBD, ALWAYS, WEIGHT};
static const struct entry NORM = {"norm.weight", "output_norm.weight", ONE, EMBD, ALWAYS, VECTOR};
static const struct entry HEAD_OUT = {"lm_head.weight", "output.weight", VOCAB, EMBD,
                                      UNTIED,           WEIGHT};

struct planner {
    struct hf_plan *plan;
    const struct model_params *p;
    const char *folder, *prefix; /* "model." or "" */
};

static uint64_t length_of(const struct model_params *p, enum length l)
{
    switch (l) {
    case ONE:
        return 1;
    case EMBD:
        return p->n_embd;
    case HEADS:
        return (uint64_t)p->n_heads * p->head_dim;
    case KV_HEADS:
        return (uint64_t)p->n_kv_heads * p->head_dim;
    case HEAD:
        return p->head_dim;
    case FF:
        return p->n_ff;
    case FF_EXPERT:
        return p->n_ff_expert;
    case EXPERTS:
        return p->n_experts;
    case VOCAB:
        return p->n_vocab;
    }
    return 0;
}

static bool has(const struct planner *pl, enum when when)
{
    const struct hf_config *c = &pl->plan->config;
    switch (when) {
    case ALWAYS:
        return true;
    case QKV_BIAS:
        return c->qkv_bias;
    case OUTPUT_BIAS:
        return c->output_bias;
    case QK_NORM:
        return c->family->qk_norm;
    case MLP_BIAS:
        return c->mlp_bias;
    case DENSE:
        return c->family->experts == HF_DENSE;
    case MIXTRAL:
        return c->family->experts == HF_MIXTRAL;
    case QWEN3_MOE:
        return c->family->experts == HF_QWEN3_MOE;
    case UNTIED:
        return !pl->p->tied_embeddings;
    }
    return false;
}

/* --- one tensor of the pack ----------------------------------------------------------------------- */

static int type_of(enum st_dtype dtype, enum how how, uint64_t columns)
{
    if (how == VECTOR || how == ROTATED_VECTOR || how == ROUTER)
        return TENSOR_F32;
    switch (dtype) {
    case ST_F16:
        return TENSOR_F16;
    case ST_BF16:
        return TENSOR_BF16;
    case ST_F8_E4M3:
        return columns % 32 ? TENSOR_F32 : TENSOR_F8_E4M3;
    default:
        return TENSOR_F32;
    }
}

static int take_parts(struct planner *pl, const struct entry *en, const char *prefix,
                      struct hf_target *t, struct err *e)
{
    bool vector = en->how == VECTOR || en->how == ROTATED_VECTOR;
    uint64_t dims[2] = {t->rows, t->columns};
    uint64_t length = t->rows * t->columns; /* one of them is 1 */
    for (uint32_t i = 0; i < t->n_parts; i++) {
        char name[SAFETENSORS_NAME_BYTES];
        const char *number = strstr(en->hf, "%u");
        if (number)
            snprintf(name, sizeof name, "%s%.*s%" PRIu32 "%s", prefix, (int)(number - en->hf),
                     en->hf, i, number + 2);
        else
            snprintf(name, sizeof name, "%s%s", prefix, en->hf);
        struct hf_part *part = &pl->plan->parts[pl->plan->n_parts++];
        int rc = hf_part_take(pl->plan, pl->folder, name, vector ? &length : dims, vector ? 1 : 2,
                              part, e);
        if (!rc && part->scale)
            rc = hf_part_scales(pl->plan, t, part, e);
        if (!rc && part->weight->dtype != pl->plan->parts[t->first_part].weight->dtype)
            rc = err_set(e, ERR_FORMAT, "%s: tensor %s: expected %s as its neighbours, found %s",
                         hf_shards_label(&pl->plan->shards, part->weight), name,
                         st_dtype_name(pl->plan->parts[t->first_part].weight->dtype),
                         st_dtype_name(part->weight->dtype));
        if (rc)
            return rc;
    }
    return 0;
}

static int add_entry(struct planner *pl, const struct entry *en, const char *prefix,
                     const char *name_prefix, struct err *e)
{
    if (!has(pl, en->when))
        return 0;
    struct hf_plan *plan = pl->plan;
    struct hf_target *t = &plan->targets[plan->n_targets];
    struct tensor_info *info = &plan->infos[plan->n_targets];
    bool vector = en->how == VECTOR || en->how == ROTATED_VECTOR;
    *t = (struct hf_target){.first_part = plan->n_parts,
                            .n_parts = en->how == EXPERTS_OF ? pl->p->n_experts : 1,
                            .rows = length_of(pl->p, en->rows),
                            .columns = length_of(pl->p, en->columns)};
    bool rotated = en->how == ROTATED || en->how == ROTATED_VECTOR;
    if (rotated && plan->config.family->permute) {
        t->head_rows = pl->p->head_dim;
        if (vector) { /* a vector that changes places is rows of one number */
            t->rows = t->columns;
            t->columns = 1;
        }
    }
    int rc = take_parts(pl, en, prefix, t, e);
    if (rc)
        return rc;
    snprintf(info->name, sizeof info->name, "%s%s", name_prefix, en->name);
    info->type = type_of(plan->parts[t->first_part].weight->dtype, en->how, t->columns);
    info->n_dims = vector ? 1 : en->how == EXPERTS_OF ? 3 : 2;
    info->dims[0] = vector ? t->rows * t->columns : t->columns;
    info->dims[1] = vector ? 1 : t->rows;
    info->dims[2] = t->n_parts;
    info->dims[3] = 1;
    plan->n_targets++;
    return 0;
}

static void add_made(struct planner *pl, const char *name, const float *values)
{
    struct hf_plan *plan = pl->plan;
    if (!values)
        return;
    struct tensor_info *info = &plan->infos[plan->n_targets];
    plan->targets[plan->n_targets++] = (struct hf_target){.made = values};
    *info = (struct tensor_info){
        .type = TENSOR_F32, .n_dims = 1, .dims = {pl->p->rope_dim / 2, 1, 1, 1}};
    snprintf(info->name, sizeof info->name, "%s", name);
}

/* --- all of them ---------------------------------------------------------------------------------- */

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);
    return n >= k && strcmp(name + n - k, end) == 0;
}

/* What old writers saved though it follows from the configuration, and scales of activations and of caches. */
static bool harmless(const struct planner *pl, const char *name)
{
    static const char *const ENDS[] = {"rotary_emb.inv_freq", ".input_scale", ".k_scale",
                                       ".v_scale"};
    for (size_t i = 0; i < sizeof ENDS / sizeof ENDS[0]; i++)
        if (ends_with(name, ENDS[i]))
            return true;
    return pl->p->tied_embeddings && strcmp(name, HEAD_OUT.hf) == 0;
}

static int check_left(const struct planner *pl, struct err *e)
{
    const struct hf_shards *s = &pl->plan->shards;
    const struct hf_config *c = &pl->plan->config;
    for (uint32_t i = 0; i < s->n_tensors; i++)
        if (!s->tensors[i].used && !harmless(pl, s->tensors[i].tensor->name))
            return err_set(e, ERR_FORMAT, "%s: tensor %s is not known for %s%s",
                           s->files[s->tensors[i].shard].label, s->tensors[i].tensor->name,
                           c->family->name, c->lm_head ? "ForCausalLM" : "Model");
    return 0;
}

static int allocate(struct hf_plan *plan, const struct model_params *p, const char *folder,
                    struct err *e)
{
    size_t targets = N_OUTSIDE + (size_t)p->n_layers * N_LAYER;
    size_t parts = targets + (size_t)p->n_layers * 3 * p->n_experts;
    /* A configuration that asks for more tensors than the files have need not be paid for. */
    size_t most = (size_t)plan->shards.n_tensors + N_OUTSIDE;
    plan->targets = calloc(targets, sizeof *plan->targets);
    plan->infos = calloc(targets, sizeof *plan->infos);
    plan->parts = calloc((parts < most ? parts : most) + p->n_experts + 1, sizeof *plan->parts);
    if (!plan->targets || !plan->infos || !plan->parts)
        return err_set(e, ERR_NOMEM, "%s: out of memory for %zu tensors", folder, targets);
    return 0;
}

int hf_plan_make(struct hf_plan *plan, struct model_params *p, const char *folder, struct err *e)
{
    struct planner pl = {plan, p, folder, "model."};
    if (!hf_shards_has(&plan->shards, "model.embed_tokens.weight") &&
        hf_shards_has(&plan->shards, EMBEDDING.hf))
        pl.prefix = "";
    if (!plan->config.lm_head)
        p->tied_embeddings = true; /* no output.weight */
    int rc = allocate(plan, p, folder, e);
    if (!rc)
        rc = add_entry(&pl, &EMBEDDING, pl.prefix, "", e);
    if (!rc)
        rc = add_entry(&pl, &NORM, pl.prefix, "", e);
    if (!rc)
        rc = add_entry(&pl, &HEAD_OUT, "", "", e);
    if (!rc && p->rope_scaling == ROPE_LLAMA3)
        add_made(&pl, "rope_freqs.weight", plan->config.rope_long);
    if (!rc && p->rope_scaling == ROPE_LONGROPE) {
        add_made(&pl, "rope_factors_short.weight", plan->config.rope_short);
        add_made(&pl, "rope_factors_long.weight", plan->config.rope_long);
    }
    for (uint32_t layer = 0; layer < p->n_layers && !rc; layer++) {
        char prefix[64], name_prefix[32];
        snprintf(prefix, sizeof prefix, "%slayers.%" PRIu32 ".", pl.prefix, layer);
        snprintf(name_prefix, sizeof name_prefix, "blk.%" PRIu32 ".", layer);
        for (size_t i = 0; i < N_LAYER && !rc; i++)
            rc = add_entry(&pl, &LAYER[i], prefix, name_prefix, e);
    }
    return rc ? rc : check_left(&pl, e);
}

void hf_plan_free(struct hf_plan *plan)
{
    if (!plan)
        return;
    hf_config_fini(&plan->config);
    hf_shards_close(&plan->shards);
    free(plan->targets);
    free(plan->infos);
    free(plan->parts);
    free(plan->row);
    free(plan);
}
