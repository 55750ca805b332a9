/* family.c - see family.h. */
#include "engine/family.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    LANES = 8, /* widths are whole vectors of the CPU kernels */
    MAX_HEAD_DIM = 256,
    MAX_HEAD_GROUP = 64,
    MAX_LAYERS = 1024,
};

static const struct family *const FAMILIES[] = {
    &FAMILY_LLAMA, &FAMILY_QWEN2, &FAMILY_QWEN3, &FAMILY_QWEN3MOE, &FAMILY_SMOLLM3,
};
enum { N_FAMILIES = sizeof FAMILIES / sizeof FAMILIES[0] };

/* --- what several families have -------------------------------------------------------------------------- */

const struct family_tensor TENSORS_TOP[] = {
    TOP_MATRIX("token_embd.weight", embd, W_VOCAB, W_EMBD, NEED_ALWAYS),
    TOP_VECTOR("output_norm.weight", out_norm, W_EMBD, NEED_ALWAYS),
    TOP_MATRIX("output.weight", head, W_OUT, W_EMBD, NEED_HEAD),
    TOP_VECTOR("rope_freqs.weight", rope_freqs, W_ROPE_HALF, NEED_LLAMA3),
    TOP_VECTOR("rope_factors_short.weight", rope_short, W_ROPE_HALF, NEED_LONGROPE),
    TOP_VECTOR("rope_factors_long.weight", rope_long, W_ROPE_HALF, NEED_LONGROPE),
    {0},
};
const struct family_tensor TENSORS_ATTENTION[] = {
    LAYER_VECTOR("attn_norm.weight", attn_norm, W_EMBD, NEED_ALWAYS),
    LAYER_MATRIX("attn_q.weight", wq, W_Q, W_EMBD, NEED_ALWAYS),
    LAYER_MATRIX("attn_k.weight", wk, W_KV, W_EMBD, NEED_ALWAYS),
    LAYER_MATRIX("attn_v.weight", wv, W_KV, W_EMBD, NEED_ALWAYS),
    LAYER_MATRIX("attn_output.weight", wo, W_EMBD, W_Q, NEED_ALWAYS),
    {0},
};
const struct family_tensor TENSORS_ATTENTION_BIAS[] = {
    LAYER_VECTOR("attn_q.bias", bq, W_Q, NEED_OPTIONAL),
    LAYER_VECTOR("attn_k.bias", bk, W_KV, NEED_OPTIONAL),
    LAYER_VECTOR("attn_v.bias", bv, W_KV, NEED_OPTIONAL),
    LAYER_VECTOR("attn_output.bias", bo, W_EMBD, NEED_OPTIONAL),
    {0},
};
const struct family_tensor TENSORS_HEAD_NORM[] = {
    LAYER_VECTOR("attn_q_norm.weight", q_norm, W_HEAD, NEED_ALWAYS),
    LAYER_VECTOR("attn_k_norm.weight", k_norm, W_HEAD, NEED_ALWAYS),
    {0},
};
const struct family_tensor TENSORS_FEED_FORWARD[] = {
    LAYER_VECTOR("ffn_norm.weight", ffn_norm, W_EMBD, NEED_ALWAYS),
    LAYER_MATRIX("ffn_gate.weight", w_gate, W_FF, W_EMBD, NEED_DENSE),
    LAYER_MATRIX("ffn_up.weight", w_up, W_FF, W_EMBD, NEED_DENSE),
    LAYER_MATRIX("ffn_down.weight", w_down, W_EMBD, W_FF, NEED_DENSE),
    {0},
};
const struct family_tensor TENSORS_FEED_FORWARD_BIAS[] = {
    LAYER_VECTOR("ffn_gate.bias", b_gate, W_FF, OPTIONAL_DENSE),
    LAYER_VECTOR("ffn_up.bias", b_up, W_FF, OPTIONAL_DENSE),
    LAYER_VECTOR("ffn_down.bias", b_down, W_EMBD, OPTIONAL_DENSE),
    {0},
};
const struct family_tensor TENSORS_EXPERTS[] = {
    LAYER_MATRIX("ffn_gate_inp.weight", router, W_EXPERTS, W_EMBD, NEED_EXPERTS),
    LAYER_EXPERTS("ffn_gate_exps.weight", x_gate, W_FF_EXPERT, W_EMBD),
    LAYER_EXPERTS("ffn_up_exps.weight", x_up, W_FF_EXPERT, W_EMBD),
    LAYER_EXPERTS("ffn_down_exps.weight", x_down, W_EMBD, W_FF_EXPERT),
    {0},
};

/* --- parameters ------------------------------------------------------------------------------------------ */

static int check_features(const struct family *f, const struct model_params *p, struct err *e)
{
    const struct {
        unsigned feature;
        uint32_t value;
        const char *what;
    } all[] = {
        {FAMILY_WINDOW, p->window, "a sliding window"},
        {FAMILY_NOPE, p->nope_every, "unrotated layers"},
        {FAMILY_EXPERTS, p->n_experts, "experts"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].value && !(f->features & all[i].feature))
            return err_set(e, ERR_FORMAT, "%s: expected a model without %s, found %" PRIu32,
                           f->arch, all[i].what, all[i].value);
    if ((f->features & FAMILY_EXPERTS_ONLY) && !p->n_experts)
        return err_set(e, ERR_FORMAT, "%s: expected experts, found none", f->arch);
    return 0;
}

/* As meta_check has them: products of two stay within 32 bits, whoever made the image. */
static int check_sizes(const struct model_params *p, struct err *e)
{
    const struct {
        const char *name;
        uint32_t value, max;
    } all[] = {
        {"layers", p->n_layers, MAX_LAYERS},
        {"width", p->n_embd, 1 << 18},
        {"feed-forward width", p->n_ff, 1 << 20},
        {"heads", p->n_heads, 1024},
        {"vocabulary", p->n_vocab, META_MAX_VOCAB},
        {"experts", p->n_experts, 1024},
        {"chosen experts", p->n_experts_used, 64},
        {"width of an expert", p->n_ff_expert, 1 << 20},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].value > all[i].max)
            return err_set(e, ERR_FORMAT, "%s: expected at most %" PRIu32 ", found %" PRIu32,
                           all[i].name, all[i].max, all[i].value);
    return 0;
}

static int check_feed_forward(const struct model_params *p, struct err *e)
{
    if (!p->n_experts) {
        if (!p->n_ff || p->n_ff % LANES)
            return err_set(e, ERR_FORMAT, "widths %u and %u: expected multiples of %d", p->n_embd,
                           p->n_ff, LANES);
        return 0;
    }
    if (!p->n_ff_expert || p->n_ff_expert % LANES)
        return err_set(e, ERR_FORMAT, "width of an expert %u: expected a multiple of %d",
                       p->n_ff_expert, LANES);
    if (!p->n_experts_used || p->n_experts_used > p->n_experts)
        return err_set(e, ERR_FORMAT, "experts: expected 1 to %u chosen, found %u", p->n_experts,
                       p->n_experts_used);
    return 0;
}

static int check_common(const struct model_params *p, struct err *e)
{
    int rc = check_sizes(p, e);
    if (rc)
        return rc;
    if (!p->n_layers || !p->n_heads || !p->n_kv_heads || !p->n_vocab)
        return err_set(e, ERR_FORMAT, "model has %u layers, %u heads, %u kv heads, %u tokens",
                       p->n_layers, p->n_heads, p->n_kv_heads, p->n_vocab);
    if (p->n_heads % p->n_kv_heads || p->n_heads / p->n_kv_heads > MAX_HEAD_GROUP)
        return err_set(e, ERR_FORMAT, "%u heads cannot share %u kv heads", p->n_heads,
                       p->n_kv_heads);
    if (!p->head_dim || p->head_dim % LANES || p->head_dim > MAX_HEAD_DIM)
        return err_set(e, ERR_FORMAT, "head size %u: expected a multiple of %d up to %d",
                       p->head_dim, LANES, MAX_HEAD_DIM);
    if (!p->n_embd || p->n_embd % LANES)
        return err_set(e, ERR_FORMAT, "widths %u and %u: expected multiples of %d", p->n_embd,
                       p->n_ff, LANES);
    if (!p->rope_dim || p->rope_dim % 2 || p->rope_dim > p->head_dim)
        return err_set(e, ERR_FORMAT, "rotary size %u: expected an even number up to %u",
                       p->rope_dim, p->head_dim);
    if (!(p->rope_base > 1) || !(p->norm_eps > 0) || !isfinite(p->rope_base))
        return err_set(e, ERR_FORMAT, "rotary base %g, norm epsilon %g", (double)p->rope_base,
                       (double)p->norm_eps);
    return check_feed_forward(p, e);
}

int family_find(const struct family **out, const struct model_params *p, struct err *e)
{
    char known[256] = "";
    for (size_t i = 0, n = 0; i < N_FAMILIES; i++) {
        const struct family *f = FAMILIES[i];
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", f->arch);
        if (strcmp(f->arch, p->arch))
            continue;
        int rc = check_common(p, e);
        if (!rc)
            rc = check_features(f, p, e);
        if (!rc && f->check)
            rc = f->check(p, e);
        if (!rc)
            *out = f;
        return rc;
    }
    return err_set(e, ERR_FORMAT, "architecture %s: this engine runs %s", p->arch, known);
}

uint32_t family_width(int width, const struct model_params *p)
{
    switch ((enum width)width) {
    case W_ONE:
        return 1;
    case W_EMBD:
        return p->n_embd;
    case W_HEAD:
        return p->head_dim;
    case W_ROPE_HALF:
        return p->rope_dim / 2;
    case W_EXPERTS:
        return p->n_experts;
    case W_VOCAB:
    case W_OUT:
        return p->n_vocab;
    case W_Q:
        return p->n_heads * p->head_dim;
    case W_KV:
        return p->n_kv_heads * p->head_dim;
    case W_FF:
        return p->n_ff;
    case W_FF_EXPERT:
        return p->n_ff_expert;
    }
    return 0;
}

/* --- tensors --------------------------------------------------------------------------------------------- */

bool family_needs(const struct family_tensor *t, const struct model_params *p)
{
    switch ((enum need)t->need) {
    case NEED_ALWAYS:
        return true;
    case NEED_OPTIONAL:
    case OPTIONAL_DENSE:
        return false;
    case NEED_DENSE:
        return !p->n_experts;
    case NEED_EXPERTS:
        return p->n_experts;
    case NEED_HEAD:
        return !p->tied_embeddings && p->pooling == POOLING_NONE;
    case NEED_LLAMA3:
        return p->rope_scaling == ROPE_LLAMA3;
    case NEED_LONGROPE:
        return p->rope_scaling == ROPE_LONGROPE;
    }
    return false;
}

static bool may_be(const struct family_tensor *t, const struct model_params *p)
{
    switch (t->need) {
    case NEED_OPTIONAL:
    case NEED_HEAD:
        return true;
    case OPTIONAL_DENSE:
        return !p->n_experts;
    case NEED_LLAMA3:
        return p->rope_scaling == ROPE_PLAIN || p->rope_scaling == ROPE_LLAMA3;
    default:
        return family_needs(t, p);
    }
}

uint32_t family_n_slots(const struct family *f)
{
    uint32_t n = 0;
    while (family_slot(f, n))
        n++;
    return n;
}

const struct family_tensor *family_slot(const struct family *f, uint32_t slot)
{
    for (size_t i = 0; i < FAMILY_MAX_TABLES && f->tables[i]; i++)
        for (const struct family_tensor *t = f->tables[i]; t->name; t++)
            if (!slot--)
                return t;
    return NULL;
}

/* "blk.12.attn_q.weight": 12 and the rest; other names: no layer. */
static bool name_split(const char *name, uint32_t *layer, const char **rest)
{
    if (strncmp(name, "blk.", 4))
        return false;
    const char *p = name + 4;
    uint32_t n = 0;
    for (; *p >= '0' && *p <= '9' && n < MAX_LAYERS; p++)
        n = n * 10 + (uint32_t)(*p - '0');
    if (p == name + 4 || *p != '.' || (name[4] == '0' && p != name + 5))
        return false;
    *layer = n;
    *rest = p + 1;
    return true;
}

int family_place(struct tensor_place *out, const struct family *f, const struct model_params *p,
                 const char *name, struct err *e)
{
    uint32_t layer = 0, slot = 0;
    const char *rest = name;
    bool of_layer = name_split(name, &layer, &rest);
    if (of_layer && layer >= p->n_layers)
        return err_set(e, ERR_FORMAT, "tensor %s: expected layers up to %u, found layer %u", name,
                       p->n_layers - 1, layer);
    for (const struct family_tensor *t; (t = family_slot(f, slot)); slot++)
        if (t->of_layer == of_layer && !strcmp(t->name, rest) && may_be(t, p)) {
            *out = (struct tensor_place){t, slot, layer};
            return 0;
        }
    return err_set(e, ERR_FORMAT, "tensor %s: this engine's %s graph has no use for it", name,
                   f->arch);
}
