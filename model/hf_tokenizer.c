/* hf_tokenizer.c - see hf_tokenizer.h. */
#include "model/hf_tokenizer.h"

#include "base/file.h"
#include "model/hf_tokenizer_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_TOKENIZER_BYTES = 256 << 20, /* Gemma's are 33 MB */
    MAX_CONFIG_BYTES = 16 << 20,
};

static int read_top(struct hf_reader *r)
{
    static const char *const KEYS[] = {
        "version",       "truncation", "padding", "added_tokens",   "normalizer",
        "pre_tokenizer", "model",      "decoder", "post_processor", NULL};
    if (!json_is_object(r->top.v))
        return hf_at_expected(&r->top, "an object", r->e);
    int rc = hf_at_only(&r->top, KEYS, r->e);
    if (!rc)
        rc = hf_read_model(r);
    if (!rc)
        rc = hf_read_added(r);
    if (!rc)
        rc = hf_read_steps(r);
    if (!rc)
        rc = hf_read_post(r);
    if (!rc && r->t->n_tokens == 0)
        rc = err_set(r->e, ERR_FORMAT, "%sno tokens", r->top.where);
    return rc;
}

static int reader_init(struct hf_reader *r, const char *label, const json_t *root,
                       struct tokenizer_data *t, struct err *e)
{
    *r = (struct hf_reader){.t = t, .top.v = root, .e = e};
    const char *slash = strrchr(label, '/');
    snprintf(r->top.where, sizeof r->top.where, "%.100s: ", slash ? slash + 1 : label);
    r->ids = json_object();
    return r->ids ? 0 : err_set(e, ERR_NOMEM, "%s: out of memory", label);
}

/* bos where nothing else names it, and the shorter form where both say the same. */
static void settle_affixes(struct tokenizer_data *t)
{
    if (t->bos < 0 && t->n_prefix == 1)
        t->bos = (int32_t)t->prefix[0];
    if (t->n_prefix == 1 && (int32_t)t->prefix[0] == t->bos) {
        t->add_bos = true;
        t->n_prefix = 0;
        t->prefix[0] = 0;
    }
    if (t->n_suffix == 1 && (int32_t)t->suffix[0] == t->eos) {
        t->add_eos = true;
        t->n_suffix = 0;
        t->suffix[0] = 0;
    }
}

int hf_tokenizer_parse(const char *label, const char *json, size_t n, struct tokenizer_data *t,
                       struct err *e)
{
    json_t *root;
    struct hf_reader r = {0};
    int rc = hf_at_parse(label, json, n, &root, e);
    if (!rc)
        rc = reader_init(&r, label, root, t, e);
    if (!rc)
        rc = read_top(&r);
    if (!rc)
        settle_affixes(t);
    json_decref(r.ids);
    json_decref(root);
    return rc;
}

/* ---- the files beside it ---- */

/* "</s>" or {"content": "</s>", …}: its id. */
static int read_named(struct hf_reader *r, const struct hf_at *top, const char *key, int32_t *out)
{
    struct hf_at v = hf_at_get(top, key);
    if (*out >= 0 || !v.v)
        return 0;
    const char *text = json_string_value(v.v);
    if (json_is_object(v.v))
        text = json_string_value(json_object_get(v.v, "content"));
    if (!text)
        return hf_at_expected(&v, "a token", r->e);
    int64_t id = hf_token_id(r, text);
    if (id >= 0)
        *out = (int32_t)id; /* some files name tokens that their vocabulary lacks */
    return 0;
}

static int read_names(struct hf_reader *r, const struct hf_at *top)
{
    struct tokenizer_data *t = r->t;
    int rc = read_named(r, top, "bos_token", &t->bos);
    if (!rc)
        rc = read_named(r, top, "eos_token", &t->eos);
    if (!rc)
        rc = read_named(r, top, "pad_token", &t->pad);
    return rc ? rc : read_named(r, top, "unk_token", &t->unk);
}

static int take_template(struct model_meta *m, const char *where, const char *text, size_t n,
                         struct err *e)
{
    int rc = meta_text_check(text, n, META_TEMPLATE_BYTES, where, e);
    if (rc)
        return rc;
    free(m->chat_template);
    m->chat_template = malloc(n + 1);
    if (!m->chat_template)
        return err_set(e, ERR_NOMEM, "%s: out of memory", where);
    memcpy(m->chat_template, text, n);
    m->chat_template[n] = 0;
    return 0;
}

/* A text, or a list of named ones of which "default" counts. */
static int read_template(struct model_meta *m, const struct hf_at *top, struct err *e)
{
    struct hf_at v = hf_at_get(top, "chat_template");
    const json_t *text = json_is_string(v.v) ? v.v : NULL;
    for (size_t i = 0; json_is_array(v.v) && i < json_array_size(v.v); i++) {
        const json_t *item = json_array_get(v.v, i);
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name && strcmp(name, "default") == 0)
            text = json_object_get(item, "template");
    }
    if (!json_is_string(text))
        return v.v && !json_is_array(v.v) ? hf_at_expected(&v, "a text or a list of them", e) : 0;
    return take_template(m, v.where, json_string_value(text), json_string_length(text), e);
}

/* FOLDER/chat_template.jinja goes before what tokenizer_config.json holds. */
static int read_template_file(struct model_meta *m, const char *folder, struct err *e)
{
    char path[4096];
    int rc = path_join(path, sizeof path, e, "%s/chat_template.jinja", folder);
    if (rc || access(path, F_OK) != 0)
        return rc;
    struct buf text;
    buf_init(&text, META_TEMPLATE_BYTES);
    rc = file_read(path, &text, e);
    if (!rc)
        rc = take_template(m, path, buf_cstr(&text), text.len, e);
    buf_fini(&text);
    return rc;
}

static int add_eog(struct hf_reader *r, const struct hf_at *at, const json_t *id)
{
    struct tokenizer_data *t = r->t;
    json_int_t v = json_integer_value(id);
    if (!json_is_integer(id) || v < 0 || v >= (json_int_t)t->n_tokens)
        return err_set(r->e, ERR_FORMAT, "%s: expected ids below %" PRIu32, at->where, t->n_tokens);
    if (t->eos < 0)
        t->eos = (int32_t)v;
    for (uint32_t i = 0; i < t->n_eog; i++)
        if (t->eog[i] == (uint32_t)v)
            return 0;
    if (t->n_eog == TOK_MAX_EOG)
        return err_set(r->e, ERR_LIMIT, "%s: more than %d ids", at->where, TOK_MAX_EOG);
    t->eog[t->n_eog++] = (uint32_t)v;
    return 0;
}

/* eos_token_id: 2 or [2, 3] */
static int read_ends(struct hf_reader *r, const struct hf_at *top)
{
    struct hf_at v = hf_at_get(top, "eos_token_id");
    if (!v.v)
        return 0;
    if (!json_is_array(v.v))
        return add_eog(r, &v, v.v);
    int rc = 0;
    for (size_t i = 0; i < json_array_size(v.v) && !rc; i++)
        rc = add_eog(r, &v, json_array_get(v.v, i));
    return rc;
}

/* What each file adds; the first one that names a token is right. */
static int read_beside(struct hf_reader *r, const char *folder, struct model_meta *m)
{
    static const struct {
        const char *name;
        bool names, ends;
    } FILES[] = {{"tokenizer_config.json", true, false},
                 {"special_tokens_map.json", true, false},
                 {"generation_config.json", false, true},
                 {"config.json", false, true}};
    for (size_t i = 0; i < sizeof FILES / sizeof FILES[0]; i++) {
        json_t *root;
        struct hf_at top = {0};
        int rc = hf_at_load(folder, FILES[i].name, MAX_CONFIG_BYTES, &root, r->e);
        if (rc || !root) {
            if (rc)
                return rc;
            continue;
        }
        top.v = root;
        snprintf(top.where, sizeof top.where, "%s: ", FILES[i].name);
        if (FILES[i].names)
            rc = read_names(r, &top);
        if (!rc && i == 0)
            rc = read_template(m, &top, r->e);
        if (!rc && FILES[i].ends)
            rc = read_ends(r, &top);
        json_decref(root);
        if (rc)
            return rc;
    }
    return read_template_file(m, folder, r->e);
}

int hf_tokenizer_read(const char *folder, struct model_meta *m, struct err *e)
{
    json_t *root;
    int rc = hf_at_load(folder, "tokenizer.json", MAX_TOKENIZER_BYTES, &root, e);
    if (rc)
        return rc;
    if (!root)
        return err_set(e, ERR_FORMAT, "%s: no tokenizer.json in it", folder);
    struct hf_reader r = {0};
    rc = reader_init(&r, "tokenizer.json", root, &m->tok, e);
    if (!rc)
        rc = read_top(&r);
    if (!rc)
        rc = read_beside(&r, folder, m);
    if (!rc)
        settle_affixes(&m->tok);
    json_decref(r.ids);
    json_decref(root);
    return rc;
}
