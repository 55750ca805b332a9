/* meta.c - see meta.h.
 *
 * Bytes: "EXAMETA" and a version byte, then every field in the order of the structs, integers
 * little-endian, strings as u32 length and bytes. There is one way to write a model, so equal
 * models have equal bytes.
 */
#include "model/meta.h"
#include "model/meta_codec.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char MAGIC[7] = {'E', 'X', 'A', 'M', 'E', 'T', 'A'};

enum { META_VERSION = 2 };

void meta_init(struct model_meta *m)
{
    *m = (struct model_meta){.tok = {.bos = -1, .eos = -1, .unk = -1, .pad = -1}};
}

static void strings_free(char **strings, uint32_t n)
{
    for (uint32_t i = 0; strings && i < n; i++)
        free(strings[i]);
    free(strings);
}

void meta_fini(struct model_meta *m)
{
    strings_free(m->tok.tokens, m->tok.n_tokens);
    strings_free(m->tok.merges, m->tok.n_merges);
    free(m->tok.types);
    free(m->chat_template);
    meta_init(m);
}

int meta_encode(const struct model_meta *m, struct buf *out, struct err *e)
{
    const struct tokenizer_data *t = &m->tok;
    buf_put(out, MAGIC, sizeof MAGIC);
    buf_u8(out, META_VERSION);
    buf_str(out, m->name);

    meta_params_put(out, &m->params);
    buf_str(out, t->model);
    buf_str(out, t->pre);
    buf_u32(out, t->n_tokens);
    for (uint32_t i = 0; i < t->n_tokens; i++)
        buf_str(out, t->tokens[i]);
    buf_put(out, t->types, t->n_tokens);
    buf_u32(out, t->n_merges);
    for (uint32_t i = 0; i < t->n_merges; i++)
        buf_str(out, t->merges[i]);
    const int32_t ids[] = {t->bos, t->eos, t->unk, t->pad};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        buf_u32(out, (uint32_t)ids[i]);
    buf_u8(out, t->add_bos);
    buf_u8(out, t->add_eos);

    buf_u8(out, m->chat_template != NULL);
    if (m->chat_template)
        buf_str(out, m->chat_template);
    if (!buf_ok(out))
        return err_set(e, ERR_LIMIT, "model data (tokenizer, template) do not fit in %zu bytes",
                       out->max);
    return 0;
}

/* Length of the UTF-8 character at p[0..n), 0: not one (RFC 3629: no surrogates, nothing
 * over-long). */
static size_t utf8_length(const uint8_t *p, size_t n)
{
    if (p[0] < 0x80)
        return 1;
    size_t k = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || k > n)
        return 0;
    for (size_t i = 1; i < k; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return k;
}

int meta_text_check(const void *text, size_t n, size_t max, const char *what, struct err *e)
{
    if (n > max)
        return err_set(e, ERR_FORMAT, "%s: expected at most %zu bytes, found %zu", what, max, n);
    const uint8_t *p = text;
    for (size_t i = 0, k; i < n; i += k) {
        k = utf8_length(p + i, n - i);
        if (k == 0 || p[i] == 0)
            return err_set(e, ERR_FORMAT,
                           "%s: expected UTF-8 text, found byte 0x%02x at position %zu", what, p[i],
                           i);
    }
    return 0;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* The next string as a new one. */
static char *read_dup(struct rd *r, size_t max, const char *what, struct err *e)
{
    size_t n;
    const void *p = rd_blob(r, max, &n);
    if (!p) {
        err_set(e, ERR_FORMAT, "model data: %s: too long, or the data end there", what);
        return NULL;
    }
    if (meta_text_check(p, n, max, what, e))
        return NULL;
    char *s = malloc(n + 1);
    if (!s) {
        err_set(e, ERR_NOMEM, "out of memory for %zu bytes of %s", n, what);
        return NULL;
    }
    memcpy(s, p, n);
    s[n] = 0;
    return s;
}

/* u32 count, then strings. What was read is handed over even on failure, for meta_fini. */
static int read_strings(struct rd *r, char ***strings, uint32_t *count, uint32_t max,
                        const char *what, struct err *e)
{
    uint32_t n = rd_u32(r);
    if (!rd_ok(r) || n > max || n > rd_left(r) / 4) /* each has its 4-byte length */
        return err_set(e, ERR_FORMAT,
                       "model data: %" PRIu32 " %ss cannot be in %zu bytes (most are %" PRIu32 ")",
                       n, what, rd_left(r), max);
    *strings = calloc((size_t)n + 1, sizeof **strings);
    if (!*strings)
        return err_set(e, ERR_NOMEM, "out of memory for %" PRIu32 " %ss", n, what);
    for (*count = 0; *count < n; (*count)++) {
        struct err why = ERR_INIT;
        char *s = read_dup(r, META_TOKEN_BYTES, what, &why);
        if (!s)
            return err_set(e, why.code, "%s number %" PRIu32 ": %s", what, *count, why.text);
        (*strings)[*count] = s;
    }
    return 0;
}

static int read_tokenizer(struct rd *r, struct tokenizer_data *t, struct err *e)
{
    int rc = meta_text_get(r, t->model, sizeof t->model, "tokenizer model", e);
    if (!rc)
        rc = meta_text_get(r, t->pre, sizeof t->pre, "pre-tokenizer", e);
    if (!rc)
        rc = read_strings(r, &t->tokens, &t->n_tokens, META_MAX_VOCAB, "token", e);
    if (rc)
        return rc;
    const uint8_t *types = rd_bytes(r, t->n_tokens);
    if (!types)
        return err_set(e, ERR_FORMAT, "model data: end inside the token types");
    t->types = malloc((size_t)t->n_tokens + 1);
    if (!t->types)
        return err_set(e, ERR_NOMEM, "out of memory for %" PRIu32 " token types", t->n_tokens);
    memcpy(t->types, types, t->n_tokens);
    rc = read_strings(r, &t->merges, &t->n_merges, META_MAX_MERGES, "merge", e);
    if (rc)
        return rc;
    int32_t *ids[] = {&t->bos, &t->eos, &t->unk, &t->pad};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        *ids[i] = (int32_t)rd_u32(r);
    rc = meta_bool_get(r, &t->add_bos, "add_bos", e);
    return rc ? rc : meta_bool_get(r, &t->add_eos, "add_eos", e);
}

int meta_validate(const struct model_meta *m, struct err *e)
{
    const struct tokenizer_data *t = &m->tok;
    int rc = meta_params_validate(&m->params, e);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < t->n_tokens; i++)
        if (t->types[i] < TOKEN_NORMAL || t->types[i] > TOKEN_BYTE)
            return err_set(e, ERR_FORMAT,
                           "token %" PRIu32 ": expected a type from %d to %d, found %u", i,
                           TOKEN_NORMAL, TOKEN_BYTE, t->types[i]);
    const struct {
        const char *name;
        int32_t id;
    } ids[] = {{"bos", t->bos}, {"eos", t->eos}, {"unk", t->unk}, {"pad", t->pad}};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        if (ids[i].id < -1 || (ids[i].id >= 0 && (uint32_t)ids[i].id >= t->n_tokens))
            return err_set(e, ERR_FORMAT,
                           "%s token: expected an id below %" PRIu32 ", found %" PRId32,
                           ids[i].name, t->n_tokens, ids[i].id);
    return 0;
}

static int read_meta(struct rd *r, struct model_meta *m, struct err *e)
{
    const void *magic = rd_bytes(r, sizeof MAGIC);
    if (!magic || memcmp(magic, MAGIC, sizeof MAGIC) != 0)
        return err_set(e, ERR_FORMAT, "model data: do not begin with %.7s", MAGIC);
    uint8_t version = rd_u8(r);
    if (version != META_VERSION)
        return err_set(e, ERR_FORMAT, "model data: expected version %d, found %u", META_VERSION,
                       version);
    int rc = meta_text_get(r, m->name, sizeof m->name, "name", e);
    if (!rc)
        rc = meta_params_get(r, &m->params, e);
    if (!rc)
        rc = read_tokenizer(r, &m->tok, e);
    bool has_template = false;
    if (!rc)
        rc = meta_bool_get(r, &has_template, "chat template", e);
    if (!rc && has_template) {
        m->chat_template = read_dup(r, META_TEMPLATE_BYTES, "chat template", e);
        if (!m->chat_template)
            return e->code;
    }
    if (!rc && !rd_done(r))
        rc = err_set(e, ERR_FORMAT, "model data: %zu bytes follow the end", rd_left(r));
    return rc ? rc : meta_validate(m, e);
}

int meta_decode(struct model_meta *m, const void *data, size_t n, struct err *e)
{
    if (n > META_MAX_BYTES)
        return err_set(e, ERR_LIMIT, "model data: expected at most %d bytes, found %zu",
                       META_MAX_BYTES, n);
    struct err own = ERR_INIT;
    struct model_meta new;
    meta_init(&new);
    struct rd r = rd_make(data, n);
    int rc = read_meta(&r, &new, &own);
    if (rc) {
        meta_fini(&new);
        return err_set(e, rc, "%s", own.text);
    }
    *m = new;
    return 0;
}
