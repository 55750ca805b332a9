/* gguf_model.c - see gguf_model.h. Keys as in ggml/docs/gguf.md; those of the architecture are in gguf_params.c. */
#include "model/gguf_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static char *dup_text(struct gguf_text t)
{
    char *s = malloc(t.n + 1);
    if (s) {
        memcpy(s, t.p, t.n);
        s[t.n] = 0;
    }
    return s;
}

/* An array of strings becomes owned C strings; what was made is counted for meta_fini also on
 * failure. */
static int read_strings(const struct gguf_doc *d, const char *key, bool required, uint32_t max,
                        char ***out, uint32_t *count, struct err *e)
{
    const struct gguf_key *k;
    int rc = gguf_doc_array(d, key, required, GGUF_STRING, &k, e);
    if (rc || !k)
        return rc;
    if (k->count > max)
        return err_set(e, ERR_LIMIT,
                       "%s: key %s: expected at most %" PRIu32 " strings, found %" PRIu64, d->label,
                       key, max, k->count);
    *out = calloc(k->count + 1, sizeof **out);
    if (!*out)
        return err_set(e, ERR_NOMEM, "%s: out of memory for %" PRIu64 " strings of %s", d->label,
                       k->count, key);
    const uint8_t *at = k->value;
    for (*count = 0; *count < k->count; (*count)++) {
        struct gguf_text t = gguf_text_next(&at);
        char what[64];
        snprintf(what, sizeof what, "%s: item %" PRIu32, key, *count);
        rc = meta_text_check(t.p, t.n, META_TOKEN_BYTES, what, e);
        if (rc)
            return e ? err_prefix(e, "%s: key ", d->label) : rc;
        (*out)[*count] = dup_text(t);
        if (!(*out)[*count])
            return err_set(e, ERR_NOMEM, "%s: out of memory for %s", d->label, what);
    }
    return 0;
}

static int read_token_types(const struct gguf_doc *d, struct tokenizer_data *t, struct err *e)
{
    static const char KEY[] = "tokenizer.ggml.token_type";
    const struct gguf_key *k = gguf_doc_find(d, KEY);
    bool is_u32 =
        k && k->type == GGUF_ARRAY && k->item_type == GGUF_U32; /* some writers use it for i32 */
    int rc = gguf_doc_array(d, KEY, true, is_u32 ? GGUF_U32 : GGUF_I32, &k, e);
    if (rc)
        return rc;
    if (k->count != t->n_tokens)
        return err_set(e, ERR_FORMAT,
                       "%s: key %s: expected one for each of %" PRIu32 " tokens, found %" PRIu64,
                       d->label, KEY, t->n_tokens, k->count);
    t->types = malloc((size_t)t->n_tokens + 1);
    if (!t->types)
        return err_set(e, ERR_NOMEM, "%s: out of memory for %" PRIu32 " token types", d->label,
                       t->n_tokens);
    struct rd r = rd_make(k->value, (size_t)(k->value_end - k->value));
    for (uint32_t i = 0; i < t->n_tokens; i++) {
        uint32_t type = rd_u32(&r);
        if (type < TOKEN_NORMAL || type > TOKEN_BYTE)
            return err_set(e, ERR_FORMAT,
                           "%s: key %s: token %" PRIu32 ": expected %d to %d, found %" PRId32,
                           d->label, KEY, i, TOKEN_NORMAL, TOKEN_BYTE, (int32_t)type);
        t->types[i] = (uint8_t)type;
    }
    return 0;
}

static int read_token_id(const struct gguf_doc *d, const char *key, uint32_t n_tokens, int32_t *out,
                         struct err *e)
{
    if (!gguf_doc_find(d, key))
        return 0;
    uint32_t id = 0;
    int rc = gguf_doc_u32(d, key, true, &id, e);
    if (rc)
        return rc;
    if (id >= n_tokens)
        return err_set(e, ERR_FORMAT,
                       "%s: key %s: expected an id below %" PRIu32 ", found %" PRIu32, d->label,
                       key, n_tokens, id);
    *out = (int32_t)id;
    return 0;
}

static int read_tokenizer(const struct gguf_doc *d, struct model_meta *m, struct err *e)
{
    struct tokenizer_data *t = &m->tok;
    struct gguf_text model, pre = {"default", 7};
    int rc = gguf_doc_text(d, "tokenizer.ggml.model", true, &model, e);
    if (!rc)
        rc = copy_text(d, "tokenizer.ggml.model", model, t->model, sizeof t->model, false, e);
    if (!rc)
        rc = gguf_doc_text(d, "tokenizer.ggml.pre", false, &pre, e);
    if (!rc)
        rc = copy_text(d, "tokenizer.ggml.pre", pre, t->pre, sizeof t->pre, false, e);
    if (!rc)
        rc = read_strings(d, "tokenizer.ggml.tokens", true, META_MAX_VOCAB, &t->tokens,
                          &t->n_tokens, e);
    if (!rc)
        rc = read_token_types(d, t, e);
    if (!rc)
        rc = read_strings(d, "tokenizer.ggml.merges", false, META_MAX_MERGES, &t->merges,
                          &t->n_merges, e);
    const struct {
        const char *key;
        int32_t *id;
    } ids[] = {
        {"tokenizer.ggml.bos_token_id", &t->bos},
        {"tokenizer.ggml.eos_token_id", &t->eos},
        {"tokenizer.ggml.unknown_token_id", &t->unk},
        {"tokenizer.ggml.padding_token_id", &t->pad},
    };
    for (size_t i = 0; !rc && i < sizeof ids / sizeof ids[0]; i++)
        rc = read_token_id(d, ids[i].key, t->n_tokens, ids[i].id, e);
    /* Without the key, SentencePiece models begin with bos and byte-level BPE ones do not. */
    t->add_bos = strcmp(t->model, "llama") == 0;
    if (!rc)
        rc = gguf_doc_bool(d, "tokenizer.ggml.add_bos_token", false, &t->add_bos, e);
    if (!rc)
        rc = gguf_doc_bool(d, "tokenizer.ggml.add_eos_token", false, &t->add_eos, e);
    return rc;
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
        rc = gguf_params_read(d, m, e);
    if (!rc)
        rc = read_tokenizer(d, m, e);
    if (rc)
        return rc;
    char key[META_ARCH_BYTES + 16];
    snprintf(key, sizeof key, "%s.vocab_size", m->params.arch);
    m->params.n_vocab = m->tok.n_tokens;
    rc = gguf_doc_u32(d, key, false, &m->params.n_vocab, e);
    return rc ? rc : read_template(d, m, e);
}
