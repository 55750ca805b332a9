/* gguf_model.c - see gguf_model.h. Keys as in ggml/docs/gguf.md.
 *
 * A key that would change what the model computes, and that no engine here follows, is refused by
 * its name (NEUTRAL below): a wrong answer is worse than none. All other unknown keys are skipped.
 * (A tensor rope_freqs.weight changes the rotation too: that is in the index, and the engine
 * refuses it as it does every tensor it does not know.)
 */
#include "model/gguf_model.h"

#include "model/gguf_tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = META_ARCH_BYTES + 64 };

static void arch_key(char key[KEY_BYTES], const struct model_meta *m, const char *suffix)
{
    snprintf(key, KEY_BYTES, "%s.%s", m->params.arch, suffix);
}

/* Copy text into dst[cap]; it must fit unless `cut` (then it ends at a whole character). */
static int copy_text(const struct gguf_doc *d, const char *key, struct gguf_text t, char *dst,
                     size_t cap, bool cut, struct err *e)
{
    int rc = meta_text_check(t.p, t.n, cut ? SIZE_MAX : cap - 1, key, e);
    if (rc)
        return e ? err_prefix(e, "%s: key ", d->label) : rc;
    size_t n = t.n < cap - 1 ? t.n : cap - 1;
    while (n < t.n && n > 0 && ((uint8_t)t.p[n] & 0xc0) == 0x80)
        n--;
    memcpy(dst, t.p, n);
    dst[n] = 0;
    return 0;
}

static int read_name(const struct gguf_doc *d, struct model_meta *m, struct err *e)
{
    const char *slash = strrchr(d->label, '/');
    const char *file = slash ? slash + 1 : d->label;
    struct gguf_text name = {0};
    int rc = gguf_doc_text(d, "general.name", false, &name, e);
    if (rc)
        return rc;
    if (name.n)
        return copy_text(d, "general.name", name, m->name, sizeof m->name, true, e);
    name = (struct gguf_text){file, strlen(file)};
    if (copy_text(d, "file name", name, m->name, sizeof m->name, true, NULL))
        strcpy(m->name, "model"); /* the file's name is no UTF-8 */
    return 0;
}

static int read_arch(const struct gguf_doc *d, struct model_meta *m, struct err *e)
{
    struct gguf_text arch;
    int rc = gguf_doc_text(d, "general.architecture", true, &arch, e);
    if (!rc)
        rc = copy_text(d, "general.architecture", arch, m->params.arch, sizeof m->params.arch,
                       false, e);
    if (rc)
        return rc;
    rc = meta_check_arch(m->params.arch, e);
    return rc && e ? err_prefix(e, "%s: ", d->label) : rc;
}

/* Keys with one value that changes nothing; any other is refused. */
static const struct {
    const char *suffix;
    uint32_t type; /* GGUF_U32 (any integer), GGUF_F32, GGUF_BOOL or GGUF_STRING */
    double number;
    const char *text;
} NEUTRAL[] = {
    {"rope.scaling.type", GGUF_STRING, 0, "none"},
    {"rope.scaling.factor", GGUF_F32, 1, NULL},
    {"rope.scaling.attn_factor", GGUF_F32, 1, NULL},
    {"rope.scale_linear", GGUF_F32, 1, NULL},
    {"expert_count", GGUF_U32, 0, NULL},
    {"expert_used_count", GGUF_U32, 0, NULL},
    {"attention.sliding_window", GGUF_U32, 0, NULL},
    {"attention.causal", GGUF_BOOL, 1, NULL},
    {"attention.max_alibi_bias", GGUF_F32, 0, NULL},
    {"attention.clamp_kqv", GGUF_F32, 0, NULL},
    {"attn_logit_softcapping", GGUF_F32, 0, NULL},
    {"final_logit_softcapping", GGUF_F32, 0, NULL},
    {"logit_scale", GGUF_F32, 1, NULL},
    {"embedding_scale", GGUF_F32, 1, NULL},
    {"residual_scale", GGUF_F32, 1, NULL},
    {"use_parallel_residual", GGUF_BOOL, 0, NULL},
};

static int refuse_value(const struct gguf_doc *d, const char *key, const char *expected,
                        const char *found, struct err *e)
{
    return err_set(e, ERR_FORMAT, "%s: key %s: only %s is supported, found %s", d->label, key,
                   expected, found);
}

static int check_neutral_text(const struct gguf_doc *d, const char *key, const char *expected,
                              struct err *e)
{
    struct gguf_text t = {expected, strlen(expected)};
    int rc = gguf_doc_text(d, key, false, &t, e);
    if (rc || (t.n == strlen(expected) && memcmp(t.p, expected, t.n) == 0))
        return rc;
    char found[32];
    rc = copy_text(d, key, t, found, sizeof found, true, e);
    return rc ? rc : refuse_value(d, key, expected, found, e);
}

static int check_neutral(const struct gguf_doc *d, const struct model_meta *m, struct err *e)
{
    for (size_t i = 0; i < sizeof NEUTRAL / sizeof NEUTRAL[0]; i++) {
        char key[KEY_BYTES];
        arch_key(key, m, NEUTRAL[i].suffix);
        double want = NEUTRAL[i].number;
        uint32_t whole = (uint32_t)want;
        float real = (float)want;
        bool flag = want != 0;
        int rc;
        if (NEUTRAL[i].type == GGUF_STRING)
            rc = check_neutral_text(d, key, NEUTRAL[i].text, e);
        else if (NEUTRAL[i].type == GGUF_U32)
            rc = gguf_doc_u32(d, key, false, &whole, e);
        else if (NEUTRAL[i].type == GGUF_BOOL)
            rc = gguf_doc_bool(d, key, false, &flag, e);
        else
            rc = gguf_doc_f32(d, key, false, &real, e);
        if (rc)
            return rc;
        double found = NEUTRAL[i].type == GGUF_U32    ? whole
                       : NEUTRAL[i].type == GGUF_BOOL ? flag
                       : NEUTRAL[i].type == GGUF_F32  ? (double)real
                                                      : want;
        if (found != want) {
            char expected[32], shown[32];
            snprintf(expected, sizeof expected, "%g", want);
            snprintf(shown, sizeof shown, "%g", found);
            return refuse_value(d, key, expected, shown, e);
        }
    }
    return 0;
}

/* key_length and value_length; both default to width / heads. */
static int read_head_dim(const struct gguf_doc *d, struct model_meta *m, struct err *e)
{
    struct model_params *p = &m->params;
    char key[KEY_BYTES], key_v[KEY_BYTES];
    arch_key(key, m, "attention.key_length");
    arch_key(key_v, m, "attention.value_length");
    uint32_t k = 0, v = 0;
    int rc = gguf_doc_u32(d, key, false, &k, e);
    if (!rc)
        rc = gguf_doc_u32(d, key_v, false, &v, e);
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

static int read_params(const struct gguf_doc *d, struct model_meta *m, struct err *e)
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
    char key[KEY_BYTES];
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        arch_key(key, m, sizes[i].suffix);
        int rc = gguf_doc_u32(d, key, true, sizes[i].out, e);
        if (rc)
            return rc;
        if (*sizes[i].out == 0)
            return err_set(e, ERR_FORMAT, "%s: key %s: expected a positive number, found 0",
                           d->label, key);
    }
    p->n_kv_heads = p->n_heads;
    arch_key(key, m, "attention.head_count_kv");
    int rc = gguf_doc_u32(d, key, false, &p->n_kv_heads, e);
    if (!rc)
        rc = read_head_dim(d, m, e);
    if (rc)
        return rc;
    p->rope_dim = p->head_dim;
    arch_key(key, m, "rope.dimension_count");
    rc = gguf_doc_u32(d, key, false, &p->rope_dim, e);
    if (rc)
        return rc;
    p->rope_base = 10000; /* the specification's default */
    arch_key(key, m, "rope.freq_base");
    rc = gguf_doc_f32(d, key, false, &p->rope_base, e);
    if (rc)
        return rc;
    arch_key(key, m, "attention.layer_norm_rms_epsilon");
    return gguf_doc_f32(d, key, true, &p->norm_eps, e);
}

static char *dup_text(struct gguf_text t)
{
    char *s = malloc(t.n + 1);
    if (s) {
        memcpy(s, t.p, t.n);
        s[t.n] = 0;
    }
    return s;
}

static int read_template(const struct gguf_doc *d, struct model_meta *m, struct err *e)
{
    static const char KEY[] = "tokenizer.chat_template";
    if (!gguf_doc_find(d, KEY))
        return 0;
    struct gguf_text t;
    int rc = gguf_doc_text(d, KEY, true, &t, e);
    if (rc)
        return rc;
    rc = meta_text_check(t.p, t.n, META_TEMPLATE_BYTES, KEY, e);
    if (rc)
        return e ? err_prefix(e, "%s: key ", d->label) : rc;
    m->chat_template = dup_text(t);
    return m->chat_template ? 0 : err_set(e, ERR_NOMEM, "%s: out of memory for %s", d->label, KEY);
}

int gguf_model_read(const struct gguf_doc *d, struct model_meta *m, struct err *e)
{
    int rc = read_arch(d, m, e);
    if (!rc)
        rc = read_name(d, m, e);
    if (!rc)
        rc = check_neutral(d, m, e);
    if (!rc)
        rc = read_params(d, m, e);
    if (!rc)
        rc = gguf_tokenizer_read(d, &m->tok, e);
    if (rc)
        return rc;
    char key[KEY_BYTES];
    arch_key(key, m, "vocab_size");
    m->params.n_vocab = m->tok.n_tokens;
    rc = gguf_doc_u32(d, key, false, &m->params.n_vocab, e);
    return rc ? rc : read_template(d, m, e);
}
