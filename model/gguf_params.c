/* gguf_params.c - hyper-parameters of a GGUF file (gguf_model.h). Keys as in ggml/docs/gguf.md.
 *
 * Every key of the architecture (`llama.…`) is used, changes nothing (HARMLESS, or NEUTRAL with that one value), or is
 * refused by its name: a wrong answer is worse than none.
 */
#include "model/gguf_model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { KEY_BYTES = META_ARCH_BYTES + 64 };

static void arch_key(char key[KEY_BYTES], const struct model_meta *m, const char *suffix)
{
    snprintf(key, KEY_BYTES, "%s.%s", m->params.arch, suffix);
}

/* Used below; the check for unknown keys needs the list. */
static const char *const USED[] = {
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "vocab_size",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "attention.sliding_window",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scale_linear",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.attn_factor",
    "rope.scaling.original_context_length",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "expert_count",
    "expert_used_count",
    "expert_feed_forward_length",
    "expert_weights_norm",
    "pooling_type",
};

static const char *const HARMLESS[] = {
    "rope.scaling.finetuned",       /* tells of the training */
    "tensor_data_layout",           /* where the file came from */
    "attention.layer_norm_epsilon", /* of norms with a mean, which these models have not */
};

/* Keys with one value that changes nothing; any other is refused. */
static const struct {
    const char *suffix;
    uint32_t type; /* GGUF_U32 (any integer), GGUF_F32 or GGUF_BOOL */
    double number;
} NEUTRAL[] = {
    {"attention.causal", GGUF_BOOL, 1},
    {"attention.max_alibi_bias", GGUF_F32, 0},
    {"attention.clamp_kqv", GGUF_F32, 0},
    {"attention.scale", GGUF_F32, 0},
    {"attn_logit_softcapping", GGUF_F32, 0},
    {"final_logit_softcapping", GGUF_F32, 0},
    {"logit_scale", GGUF_F32, 1},
    {"embedding_scale", GGUF_F32, 1},
    {"residual_scale", GGUF_F32, 1},
    {"use_parallel_residual", GGUF_BOOL, 0},
    {"expert_shared_count", GGUF_U32, 0},
    {"expert_shared_feed_forward_length", GGUF_U32, 0},
    {"expert_group_count", GGUF_U32, 0},
    {"expert_gating_func", GGUF_U32, 1}, /* softmax */
    {"expert_weights_scale", GGUF_F32, 1},
    {"leading_dense_block_count", GGUF_U32, 0},
    {"rope.scaling.yarn_log_multiplier", GGUF_F32, 0},
    {"rope.scaling.yarn_ext_factor", GGUF_F32, 1},
    {"rope.scaling.yarn_attn_factor", GGUF_F32, 1},
};

enum {
    N_USED = sizeof USED / sizeof USED[0],
    N_HARMLESS = sizeof HARMLESS / sizeof HARMLESS[0],
    N_NEUTRAL = sizeof NEUTRAL / sizeof NEUTRAL[0]
};

static int refuse_value(const struct gguf_doc *d, const char *key, const char *expected,
                        const char *found, struct err *e)
{
    return err_set(e, ERR_FORMAT, "%s: key %s: only %s is supported, found %s", d->label, key,
                   expected, found);
}

static int check_neutral(const struct gguf_doc *d, const struct model_meta *m, struct err *e)
{
    for (size_t i = 0; i < N_NEUTRAL; i++) {
        char key[KEY_BYTES];
        arch_key(key, m, NEUTRAL[i].suffix);
        double want = NEUTRAL[i].number;
        uint32_t whole = (uint32_t)want;
        float real = (float)want;
        bool flag = want != 0;
        int rc;
        if (NEUTRAL[i].type == GGUF_U32)
            rc = gguf_doc_u32(d, key, false, &whole, e);
        else if (NEUTRAL[i].type == GGUF_BOOL)
            rc = gguf_doc_bool(d, key, false, &flag, e);
        else
            rc = gguf_doc_f32(d, key, false, &real, e);
        if (rc)
            return rc;
        double found = NEUTRAL[i].type == GGUF_U32    ? whole
                       : NEUTRAL[i].type == GGUF_BOOL ? flag
                                                      : (double)real;
        if (found != want) {
            char expected[32], shown[32];
            snprintf(expected, sizeof expected, "%g", want);
            snprintf(shown, sizeof shown, "%g", found);
            return refuse_value(d, key, expected, shown, e);
        }
    }
    return 0;
}

static bool suffix_known(const char *p, size_t n)
{
    for (size_t i = 0; i < N_USED; i++)
        if (strlen(USED[i]) == n && memcmp(USED[i], p, n) == 0)
            return true;
    for (size_t i = 0; i < N_HARMLESS; i++)
        if (strlen(HARMLESS[i]) == n && memcmp(HARMLESS[i], p, n) == 0)
            return true;
    for (size_t i = 0; i < N_NEUTRAL; i++)
        if (strlen(NEUTRAL[i].suffix) == n && memcmp(NEUTRAL[i].suffix, p, n) == 0)
            return true;
    return false;
}

static int check_unknown(const struct gguf_doc *d, const struct model_meta *m, struct err *e)
{
    char start[KEY_BYTES], shown[KEY_BYTES];
    arch_key(start, m, "");
    size_t n = strlen(start);
    for (uint32_t i = 0; i < d->n_keys; i++) {
        struct gguf_text name = d->keys[i].name;
        if (name.n < n || memcmp(name.p, start, n) != 0 || suffix_known(name.p + n, name.n - n))
            continue;
        size_t k = 0;
        for (; k < name.n && k < sizeof shown - 1; k++)
            shown[k] = name.p[k] > ' ' && name.p[k] <= '~' ? name.p[k] : '?';
        shown[k] = 0;
        return err_set(e, ERR_FORMAT,
                       "%s: key %s is not known for this architecture: its meaning would be lost",
                       d->label, shown);
    }
    return 0;
}

/* One number for all layers. Some writers list one for each layer: good while they are the same. */
static int read_u32(const struct gguf_doc *d, const struct model_meta *m, const char *suffix,
                    bool required, uint32_t *out, struct err *e)
{
    char key[KEY_BYTES];
    arch_key(key, m, suffix);
    const struct gguf_key *k = gguf_doc_find(d, key);
    if (!k || k->type != GGUF_ARRAY)
        return gguf_doc_u32(d, key, required, out, e);
    if (k->item_type != GGUF_U32 && k->item_type != GGUF_I32)
        return err_set(e, ERR_FORMAT, "%s: key %s: expected an integer, or an array of them",
                       d->label, key);
    struct rd r = rd_make(k->value, (size_t)(k->value_end - k->value));
    uint32_t first = rd_u32(&r);
    for (uint64_t i = 1; i < k->count; i++) {
        uint32_t v = rd_u32(&r);
        if (v != first)
            return err_set(e, ERR_FORMAT,
                           "%s: key %s: layers that differ are not supported: %" PRIu32
                           " in the first, %" PRIu32 " in layer %" PRIu64,
                           d->label, key, first, v, i);
    }
    if (k->count == 0 || first > INT32_MAX)
        return err_set(e, ERR_FORMAT, "%s: key %s: expected no negative numbers, and some",
                       d->label, key);
    *out = first;
    return 0;
}

static int read_f32(const struct gguf_doc *d, const struct model_meta *m, const char *suffix,
                    bool required, float *out, struct err *e)
{
    char key[KEY_BYTES];
    arch_key(key, m, suffix);
    return gguf_doc_f32(d, key, required, out, e);
}

/* key_length and value_length; both default to width / heads. */
static int read_head_dim(const struct gguf_doc *d, struct model_meta *m, struct err *e)
{
    struct model_params *p = &m->params;
    char key_v[KEY_BYTES];
    arch_key(key_v, m, "attention.value_length");
    uint32_t k = 0, v = 0;
    int rc = read_u32(d, m, "attention.key_length", false, &k, e);
    if (!rc)
        rc = read_u32(d, m, "attention.value_length", false, &v, e);
    if (rc)
        return rc;
    if (k == 0 && p->n_embd % p->n_heads)
        return err_set(e, ERR_FORMAT,
                       "%s: width %" PRIu32 " is no multiple of the %" PRIu32 " heads", d->label,
                       p->n_embd, p->n_heads);
    uint32_t whole = p->n_embd / p->n_heads;
    p->head_dim = k ? k : whole;
    v = v ? v : whole;
    if (v != p->head_dim)
        return err_set(e, ERR_FORMAT,
                       "%s: key %s: expected the key length %" PRIu32 ", found %" PRIu32, d->label,
                       key_v, p->head_dim, v);
    return 0;
}

static int read_sizes(const struct gguf_doc *d, struct model_meta *m, struct err *e)
{
    struct model_params *p = &m->params;
    const struct {
        const char *suffix;
        uint32_t *out;
    } sizes[] = {
        {"block_count", &p->n_layers},     {"embedding_length", &p->n_embd},
        {"feed_forward_length", &p->n_ff}, {"attention.head_count", &p->n_heads},
        {"context_length", &p->n_ctx},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int rc = read_u32(d, m, sizes[i].suffix, true, sizes[i].out, e);
        if (rc)
            return rc;
        if (*sizes[i].out == 0)
            return err_set(e, ERR_FORMAT, "%s: key %s.%s: expected a positive number, found 0",
                           d->label, p->arch, sizes[i].suffix);
    }
    p->n_kv_heads = p->n_heads;
    int rc = read_u32(d, m, "attention.head_count_kv", false, &p->n_kv_heads, e);
    if (!rc)
        rc = read_head_dim(d, m, e);
    if (rc)
        return rc;
    p->rope_dim = p->head_dim;
    rc = read_u32(d, m, "rope.dimension_count", false, &p->rope_dim, e);
    if (!rc)
        rc = read_f32(d, m, "attention.layer_norm_rms_epsilon", true, &p->norm_eps, e);
    return rc;
}

/* --- rotary scalings ------------------------------------------------------------------------------ */

static int read_scaling_type(const struct gguf_doc *d, const struct model_meta *m, float factor,
                             uint8_t *out, struct err *e)
{
    static const struct {
        const char *name;
        enum rope_scaling scaling;
    } TYPES[] = {{"none", ROPE_PLAIN},
                 {"linear", ROPE_LINEAR},
                 {"yarn", ROPE_YARN},
                 {"longrope", ROPE_LONGROPE}};
    char key[KEY_BYTES], found[32];
    arch_key(key, m, "rope.scaling.type");
    struct gguf_text t = {0};
    int rc = gguf_doc_text(d, key, false, &t, e);
    if (rc)
        return rc;
    if (!gguf_doc_find(d, key)) { /* a factor alone is a linear one */
        *out = factor != 0 && factor != 1 ? ROPE_LINEAR : ROPE_PLAIN;
        return 0;
    }
    for (size_t i = 0; i < sizeof TYPES / sizeof TYPES[0]; i++)
        if (strlen(TYPES[i].name) == t.n && memcmp(TYPES[i].name, t.p, t.n) == 0) {
            *out = (uint8_t)TYPES[i].scaling;
            return 0;
        }
    size_t n = 0;
    for (; n < t.n && n < sizeof found - 1; n++)
        found[n] = t.p[n] > ' ' && t.p[n] <= '~' ? t.p[n] : '?';
    found[n] = 0;
    return refuse_value(d, key, "none, linear, yarn or longrope", found, e);
}

static int read_rope(const struct gguf_doc *d, struct model_meta *m, struct err *e)
{
    struct model_params *p = &m->params;
    float factor = 0, attn = 1, fast = 32, slow = 1;
    p->rope_base = 10000; /* the specification's default */
    uint32_t original = p->n_ctx;
    int rc = read_f32(d, m, "rope.freq_base", false, &p->rope_base, e);
    if (!rc)
        rc = read_f32(d, m, "rope.scale_linear", false, &factor, e); /* the older name */
    if (!rc)
        rc = read_f32(d, m, "rope.scaling.factor", false, &factor, e);
    if (!rc)
        rc = read_f32(d, m, "rope.scaling.attn_factor", false, &attn, e);
    if (!rc)
        rc = read_f32(d, m, "rope.scaling.yarn_beta_fast", false, &fast, e);
    if (!rc)
        rc = read_f32(d, m, "rope.scaling.yarn_beta_slow", false, &slow, e);
    if (!rc)
        rc = read_u32(d, m, "rope.scaling.original_context_length", false, &original, e);
    if (!rc)
        rc = read_scaling_type(d, m, factor, &p->rope_scaling, e);
    if (rc)
        return rc;
    if (attn != 1)
        p->rope_attn_factor = attn;
    if (p->rope_scaling == ROPE_LINEAR || p->rope_scaling == ROPE_YARN)
        p->rope_factor = factor != 0 ? factor : 1;
    if (p->rope_scaling == ROPE_YARN) {
        /* These files' factor comes on top of the method's own. */
        if (attn != 1)
            p->rope_attn_factor = attn * (1 + 0.1f * logf(p->rope_factor));
        p->rope_orig_ctx = original;
        p->yarn_beta_fast = fast;
        p->yarn_beta_slow = slow;
    } else if (p->rope_scaling == ROPE_LONGROPE) {
        p->rope_orig_ctx = original;
        p->rope_factor = original ? (float)p->n_ctx / (float)original : 1;
        p->rope_attn_factor = attn; /* the writer has computed it */
    }
    return 0;
}

/* --- windows, experts, pooling --------------------------------------------------------------------- */

static int read_window(const struct gguf_doc *d, struct model_meta *m, struct err *e)
{
    struct model_params *p = &m->params;
    uint32_t window = 0;
    int rc = read_u32(d, m, "attention.sliding_window", false, &window, e);
    if (rc || !window)
        return rc;
    /* Of the other families the files do not say which layers slide. */
    if (strcmp(p->arch, "llama") != 0)
        return err_set(e, ERR_FORMAT,
                       "%s: key %s.attention.sliding_window: only 0 is supported, found %" PRIu32,
                       d->label, p->arch, window);
    p->window = window;
    return 0;
}

static int read_experts(const struct gguf_doc *d, struct model_meta *m, struct err *e)
{
    struct model_params *p = &m->params;
    bool qwen = strcmp(p->arch, "qwen3moe") == 0, allowed = qwen || strcmp(p->arch, "llama") == 0;
    char key[KEY_BYTES];
    int rc = read_u32(d, m, "expert_count", qwen, &p->n_experts, e);
    if (rc || (!p->n_experts && !qwen)) /* then expert_used_count is 0, too */
        return rc;
    if (!allowed || !p->n_experts)
        return err_set(e, ERR_FORMAT,
                       "%s: key %s.expert_count: only %s is supported, found %" PRIu32, d->label,
                       p->arch, allowed ? "a positive number" : "0", p->n_experts);
    rc = read_u32(d, m, "expert_used_count", true, &p->n_experts_used, e);
    p->n_ff_expert = p->n_ff;
    if (!rc)
        rc = read_u32(d, m, "expert_feed_forward_length", qwen, &p->n_ff_expert, e);
    /* The files' readers scale the chosen shares to 1 unless they say otherwise. */
    p->experts_renorm = true;
    arch_key(key, m, "expert_weights_norm");
    return rc ? rc : gguf_doc_bool(d, key, false, &p->experts_renorm, e);
}

static int read_pooling(const struct gguf_doc *d, struct model_meta *m, struct err *e)
{
    uint32_t pooling = POOLING_NONE;
    int rc = read_u32(d, m, "pooling_type", false, &pooling, e);
    if (!rc && pooling != POOLING_NONE && pooling != POOLING_MEAN && pooling != POOLING_LAST)
        rc = err_set(e, ERR_FORMAT,
                     "%s: key %s.pooling_type: only 0 (none), 1 (mean) and 3 (last) are supported, "
                     "found %" PRIu32,
                     d->label, m->params.arch, pooling);
    m->params.pooling = (uint8_t)pooling;
    return rc;
}

/* A model that was cut into several files has its tensors in all of them. */
static int check_split(const struct gguf_doc *d, struct err *e)
{
    uint32_t files = 1;
    int rc = gguf_doc_u32(d, "split.count", false, &files, e);
    if (!rc && files > 1)
        rc = err_set(e, ERR_FORMAT,
                     "%s: key split.count: only a model in one file is supported, found %" PRIu32
                     " files: join them first",
                     d->label, files);
    return rc;
}

int gguf_params_read(const struct gguf_doc *d, struct model_meta *m, struct err *e)
{
    int rc = check_split(d, e);
    if (!rc)
        rc = check_neutral(d, m, e);
    if (!rc)
        rc = check_unknown(d, m, e);
    if (!rc)
        rc = read_sizes(d, m, e);
    if (!rc)
        rc = read_rope(d, m, e);
    if (!rc)
        rc = read_window(d, m, e);
    if (!rc)
        rc = read_experts(d, m, e);
    if (!rc)
        rc = read_pooling(d, m, e);
    if (!rc && strcmp(m->params.arch, "smollm3") == 0)
        m->params.nope_every = 4; /* no key says so: all models of this architecture have it */
    return rc;
}
