/* gguf_model.c - see gguf_model.h. Keys as in ggml/docs/gguf.md; those of the architecture are in gguf_params.c. */
#include "model/gguf_model.h"

#include "model/gguf_tokenizer.h"

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
        rc = gguf_tokenizer_read(d, &m->tok, e);
    if (rc)
        return rc;
    char key[META_ARCH_BYTES + 16];
    snprintf(key, sizeof key, "%s.vocab_size", m->params.arch);
    m->params.n_vocab = m->tok.n_tokens;
    rc = gguf_doc_u32(d, key, false, &m->params.n_vocab, e);
    return rc ? rc : read_template(d, m, e);
}
