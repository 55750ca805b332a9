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

enum { META_VERSION = 3 };

void meta_init(struct model_meta *m)
{
    *m = (struct model_meta){.tok = {.bos = -1, .eos = -1, .unk = -1, .pad = -1}};
}

void meta_fini(struct model_meta *m)
{
    meta_tokenizer_fini(&m->tok);
    free(m->chat_template);
    meta_init(m);
}

int meta_encode(const struct model_meta *m, struct buf *out, struct err *e)
{
    buf_put(out, MAGIC, sizeof MAGIC);
    buf_u8(out, META_VERSION);
    buf_str(out, m->name);

    meta_params_put(out, &m->params);
    meta_tokenizer_put(out, &m->tok);
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

int meta_validate(const struct model_meta *m, struct err *e)
{
    int rc = meta_params_validate(&m->params, e);
    return rc ? rc : meta_tokenizer_validate(&m->tok, e);
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
        rc = meta_tokenizer_get(r, &m->tok, e);
    bool has_template = false;
    if (!rc)
        rc = meta_bool_get(r, &has_template, "chat template", e);
    if (!rc && has_template) {
        m->chat_template = meta_text_dup(r, META_TEMPLATE_BYTES, "chat template", e);
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
