/* meta_params.c - a model's hyper-parameters: their bytes, and what engines can run (meta.h). */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "model/meta_codec.h"

enum { CONTEXT_DEFAULT_MAX = 4096 };

const char *const MODEL_ARCHS[] = {"llama", "qwen2", "qwen3", "qwen3moe", "smollm3", NULL};

int meta_text_get(struct rd *r, char *dst, size_t cap, const char *what, struct err *e)
{
    size_t n;
    const void *p = rd_blob(r, cap - 1, &n);
    if (!p)
        return err_set(e, ERR_FORMAT, "model data: %s: too long, or the data end there", what);
    int rc = meta_text_check(p, n, cap - 1, what, e);
    if (rc)
        return rc;
    memcpy(dst, p, n);
    dst[n] = 0;
    return 0;
}

int meta_bool_get(struct rd *r, bool *v, const char *what, struct err *e)
{
    uint8_t b = rd_u8(r);
    if (!rd_ok(r) || b > 1)
        return err_set(e, ERR_FORMAT, "model data: %s: expected 0 or 1, found %u", what, b);
    *v = b;
    return 0;
}

/* One table for writing and reading: every field that is a number, in the order of the bytes. */
struct field {
    uint32_t *u32;
    float *f32;
    uint8_t *u8;
};

enum { N_FIELDS = 25 };

static void fields_list(struct field f[N_FIELDS], struct model_params *p)
{
    const struct field all[] = {
        {.u32 = &p->n_layers},         {.u32 = &p->n_embd},         {.u32 = &p->n_ff},
        {.u32 = &p->n_heads},          {.u32 = &p->n_kv_heads},     {.u32 = &p->head_dim},
        {.u32 = &p->rope_dim},         {.u32 = &p->n_ctx},          {.u32 = &p->n_vocab},
        {.f32 = &p->rope_base},        {.f32 = &p->norm_eps},       {.u8 = &p->rope_scaling},
        {.f32 = &p->rope_factor},      {.u32 = &p->rope_orig_ctx},  {.f32 = &p->rope_attn_factor},
        {.f32 = &p->yarn_beta_fast},   {.f32 = &p->yarn_beta_slow}, {.f32 = &p->rope_low_factor},
        {.f32 = &p->rope_high_factor}, {.u32 = &p->window},         {.u32 = &p->window_from},
        {.u32 = &p->nope_every},       {.u32 = &p->n_experts},      {.u32 = &p->n_experts_used},
        {.u32 = &p->n_ff_expert},
    };
    _Static_assert(sizeof all / sizeof all[0] == N_FIELDS, "all fields");
    memcpy(f, all, sizeof all);
}

void meta_params_put(struct buf *out, const struct model_params *p)
{
    struct model_params copy = *p;
    struct field f[N_FIELDS];
    fields_list(f, &copy);
    buf_str(out, p->arch);
    for (size_t i = 0; i < N_FIELDS; i++)
        if (f[i].u32)
            buf_u32(out, *f[i].u32);
        else if (f[i].f32)
            buf_f32(out, *f[i].f32);
        else
            buf_u8(out, *f[i].u8);
    buf_u8(out, p->tied_embeddings);
    buf_u8(out, p->experts_renorm);
    buf_u8(out, p->pooling);
}

int meta_params_get(struct rd *r, struct model_params *p, struct err *e)
{
    struct field f[N_FIELDS];
    fields_list(f, p);
    int rc = meta_text_get(r, p->arch, sizeof p->arch, "architecture", e);
    for (size_t i = 0; i < N_FIELDS && !rc; i++)
        if (f[i].u32)
            *f[i].u32 = rd_u32(r);
        else if (f[i].f32)
            *f[i].f32 = rd_f32(r);
        else
            *f[i].u8 = rd_u8(r);
    if (!rc)
        rc = meta_bool_get(r, &p->tied_embeddings, "tied_embeddings", e);
    if (!rc)
        rc = meta_bool_get(r, &p->experts_renorm, "experts_renorm", e);
    p->pooling = rd_u8(r);
    return rc;
}

int meta_params_validate(const struct model_params *p, struct err *e)
{
    const struct {
        const char *name;
        float value;
    } reals[] = {
        {"RoPE base", p->rope_base},
        {"norm epsilon", p->norm_eps},
        {"RoPE scaling factor", p->rope_factor},
        {"RoPE attention factor", p->rope_attn_factor},
        {"YaRN beta_fast", p->yarn_beta_fast},
        {"YaRN beta_slow", p->yarn_beta_slow},
        {"RoPE low_freq_factor", p->rope_low_factor},
        {"RoPE high_freq_factor", p->rope_high_factor},
    };
    if (!p->arch[0])
        return err_set(e, ERR_FORMAT, "architecture: expected a name, found none");
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++)
        if (!isfinite(reals[i].value) || reals[i].value < 0)
            return err_set(e, ERR_FORMAT, "%s: expected a finite number of at least 0, found %g",
                           reals[i].name, (double)reals[i].value);
    if (p->rope_scaling > ROPE_DYNAMIC)
        return err_set(e, ERR_FORMAT, "RoPE scaling: expected a method up to %d, found %u",
                       ROPE_DYNAMIC, p->rope_scaling);
    if (p->pooling != POOLING_NONE && p->pooling != POOLING_MEAN && p->pooling != POOLING_LAST)
        return err_set(e, ERR_FORMAT, "pooling: expected 0 (none), 1 (mean) or 3 (last), found %u",
                       p->pooling);
    return 0;
}

/* --- what engines can run --------------------------------------------------------------------- */

int meta_check_arch(const char *arch, struct err *e)
{
    for (size_t i = 0; MODEL_ARCHS[i]; i++)
        if (strcmp(arch, MODEL_ARCHS[i]) == 0)
            return 0;
    return err_set(
        e, ERR_FORMAT,
        "unsupported architecture \"%s\": expected llama, qwen2, qwen3, qwen3moe or smollm3", arch);
}

static int check_experts(const struct model_params *p, struct err *e)
{
    if (!p->n_experts)
        return 0;
    if (p->n_experts > 1024 || p->n_experts_used < 1 || p->n_experts_used > p->n_experts ||
        p->n_experts_used > 64)
        return err_set(e, ERR_FORMAT,
                       "experts: expected 1 to 64 chosen of at most 1024, found %" PRIu32
                       " of %" PRIu32,
                       p->n_experts_used, p->n_experts);
    if (p->n_ff_expert < 1 || p->n_ff_expert > 1 << 20)
        return err_set(e, ERR_FORMAT, "expert width: expected 1 to %d, found %" PRIu32, 1 << 20,
                       p->n_ff_expert);
    return 0;
}

static int check_rope(const struct model_params *p, struct err *e)
{
    if (p->rope_dim % 2 || p->rope_dim > p->head_dim)
        return err_set(
            e, ERR_FORMAT,
            "rotated dimensions: expected an even number of at most the head size %" PRIu32
            ", found %" PRIu32,
            p->head_dim, p->rope_dim);
    if (!(p->rope_base >= 1))
        return err_set(e, ERR_FORMAT, "RoPE base: expected at least 1, found %g",
                       (double)p->rope_base);
    if (p->rope_scaling != ROPE_PLAIN && p->rope_scaling != ROPE_LONGROPE && !(p->rope_factor >= 1))
        return err_set(e, ERR_FORMAT, "RoPE scaling factor: expected at least 1, found %g",
                       (double)p->rope_factor);
    /* LLAMA3's divisors are a tensor: from a GGUF file no more is known. */
    if (p->rope_scaling >= ROPE_YARN && p->rope_scaling != ROPE_LLAMA3 && p->rope_orig_ctx < 1)
        return err_set(e, ERR_FORMAT,
                       "RoPE scaling: expected the context before it was extended, found none");
    return 0;
}

int meta_check(const struct model_meta *m, struct err *e)
{
    const struct model_params *p = &m->params;
    int rc = meta_check_arch(p->arch, e);
    if (!rc)
        rc = meta_validate(m, e);
    if (rc)
        return rc;
    /* The most are far above any model known; they keep products of two in 64 bits and hostile
     * files small. */
    const struct {
        const char *name;
        uint32_t value, max;
    } sizes[] = {
        {"layers", p->n_layers, 1024},
        {"width", p->n_embd, 1 << 18},
        {"feed-forward width", p->n_ff, 1 << 20},
        {"heads", p->n_heads, 1024},
        {"KV heads", p->n_kv_heads, 1024},
        {"head size", p->head_dim, 1024},
        {"rotated dimensions", p->rope_dim, 1024},
        {"context", p->n_ctx, 1 << 26},
        {"vocabulary", p->n_vocab, META_MAX_VOCAB},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i].value < 1 || sizes[i].value > sizes[i].max)
            return err_set(e, ERR_FORMAT, "%s: expected 1 to %" PRIu32 ", found %" PRIu32,
                           sizes[i].name, sizes[i].max, sizes[i].value);
    if (p->n_heads % p->n_kv_heads)
        return err_set(e, ERR_FORMAT,
                       "heads: expected a multiple of the %" PRIu32 " KV heads, found %" PRIu32,
                       p->n_kv_heads, p->n_heads);
    rc = check_rope(p, e);
    if (!rc)
        rc = check_experts(p, e);
    if (rc)
        return rc;
    if (!(p->norm_eps > 0 && p->norm_eps < 1))
        return err_set(e, ERR_FORMAT, "norm epsilon: expected between 0 and 1, found %g",
                       (double)p->norm_eps);
    if (p->n_vocab != m->tok.n_tokens)
        return err_set(e, ERR_FORMAT,
                       "vocabulary: expected as many as the tokenizer's %" PRIu32
                       " tokens, found %" PRIu32,
                       m->tok.n_tokens, p->n_vocab);
    return 0;
}

uint32_t meta_context_default(const struct model_params *p)
{
    return p->n_ctx < CONTEXT_DEFAULT_MAX ? p->n_ctx : CONTEXT_DEFAULT_MAX;
}
