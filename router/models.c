/* models.c - see models.h. */
#include "router/models.h"

#include "model/meta.h"

#include <stdio.h>
#include <stdlib.h>

static int build_text(struct model *m, const struct model_meta *meta, struct err *e)
{
    int rc = tokenizer_create(&m->tokenizer, &meta->tok, e);
    if (!rc && meta->chat_template)
        rc = chat_template_create(&m->chat, meta->chat_template, strlen(meta->chat_template), e);
    if (rc)
        return rc;
    m->chat_has_tools = meta->chat_template && strstr(meta->chat_template, "tools");
    size_t n = tokenizer_eog_ids(m->tokenizer, m->eog, MSG_MAX_STOP_IDS);
    m->n_eog = n < MSG_MAX_STOP_IDS ? (uint32_t)n : MSG_MAX_STOP_IDS;
    return 0;
}

int model_build(struct model **out, const struct msg_model *msg, uint64_t created_s, struct err *e)
{
    struct model *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(e, ERR_NOMEM, "out of memory for model %s", msg->name);
    struct model_meta meta;
    int rc = meta_decode(&meta, msg->meta, msg->meta_bytes, e);
    if (rc) {
        free(m);
        return rc;
    }
    m->refs = 1;
    m->deployment = msg->deployment;
    m->version = msg->version;
    m->created_s = created_s;
    snprintf(m->name, sizeof m->name, "%s", msg->name);
    sha256_of(msg->index, msg->index_bytes, m->digest); /* the digest's definition, model/index.h */
    char hex[11];
    hex_encode(m->digest, 5, hex);
    snprintf(m->fingerprint, sizeof m->fingerprint, "fp_%s", hex);
    m->n_embd = meta.params.pooling != POOLING_NONE ? meta.params.n_embd : 0;
    m->add_eos = meta.tok.add_eos;
    m->n_ctx = msg->n_ctx ? msg->n_ctx : meta_context_default(&meta.params);
    rc = build_text(m, &meta, e);
    meta_fini(&meta);
    if (rc) {
        model_unref(m);
        return rc;
    }
    *out = m;
    return 0;
}

struct model *model_ref(struct model *m)
{
    m->refs++;
    return m;
}

void model_unref(struct model *m)
{
    if (!m || --m->refs)
        return;
    chat_template_destroy(m->chat);
    tokenizer_destroy(m->tokenizer);
    free(m);
}

struct model_set *model_set_create(void)
{
    struct model_set *s = calloc(1, sizeof *s);
    if (s)
        s->refs = 1;
    return s;
}

struct model_set *model_set_ref(struct model_set *s)
{
    s->refs++;
    return s;
}

void model_set_unref(struct model_set *s)
{
    if (!s || --s->refs)
        return;
    for (uint32_t i = 0; i < s->n; i++)
        model_unref(s->models[i]);
    free(s);
}

struct model_set *model_set_with(const struct model_set *s, struct model *m)
{
    struct model_set *t = model_set_create();
    if (!t)
        return NULL;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->models[i]->deployment != m->deployment)
            t->models[t->n++] = model_ref(s->models[i]);
    if (t->n == MODELS_MAX) {
        model_set_unref(t);
        return NULL;
    }
    t->models[t->n++] = model_ref(m);
    return t;
}

struct model *model_set_find(const struct model_set *s, const char *name, size_t n)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (strlen(s->models[i]->name) == n && !memcmp(s->models[i]->name, name, n))
            return s->models[i];
    return NULL;
}
