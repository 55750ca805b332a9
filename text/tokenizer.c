/* tokenizer.c - encoding and looking up tokens; see tokenizer.h. */
#include "text/tokenizer_internal.h"

#include "text/utf8.h"

#include <stdlib.h>
#include <string.h>

void token_vec_fini(struct token_vec *v)
{
    free(v->ids);
    *v = (struct token_vec){0};
}

int token_vec_push(struct token_vec *v, uint32_t id)
{
    if (v->n == v->cap) {
        size_t cap = v->cap ? v->cap * 2 : 64;
        uint32_t *ids = realloc(v->ids, cap * sizeof *ids);
        if (!ids)
            return ERR_NOMEM;
        v->ids = ids;
        v->cap = cap;
    }
    v->ids[v->n++] = id;
    return 0;
}

struct encoder {
    const struct tokenizer *t;
    struct token_vec *out;
    size_t limit; /* out->n may not pass this */
    size_t max_tokens;
    struct bpe_scratch scratch;
    struct err *e;
};

static int emit(struct encoder *en, uint32_t id)
{
    if (en->out->n >= en->limit)
        return err_set(en->e, ERR_LIMIT, "text gives more than %zu tokens", en->max_tokens);
    if (token_vec_push(en->out, id))
        return err_set(en->e, ERR_NOMEM, "tokenizer: out of memory");
    return 0;
}

/* Bytes without a token are dropped, but nothing merges across the gap they leave. */
static int encode_piece(struct encoder *en, const char *p, size_t n)
{
    if (n == 1) {
        uint32_t id = en->t->byte_id[(uint8_t)p[0]];
        return id == BPE_NONE ? 0 : emit(en, id);
    }
    if (n > BPE_MAX_PIECE)
        return err_set(en->e, ERR_LIMIT, "tokenizer: one piece of %zu bytes", n);
    if (bpe_scratch_reserve(&en->scratch, n))
        return err_set(en->e, ERR_NOMEM, "tokenizer: out of memory for a piece of %zu bytes", n);
    for (size_t i = 0; i < n; i++)
        en->scratch.symbols[i].id = en->t->byte_id[(uint8_t)p[i]];
    bpe_merge(&en->t->merges, &en->scratch, n);
    for (uint32_t i = 0; i != BPE_NONE; i = en->scratch.symbols[i].next) {
        uint32_t id = en->scratch.symbols[i].id;
        int rc = id == BPE_NONE ? 0 : emit(en, id);
        if (rc)
            return rc;
    }
    return 0;
}

static int encode_plain(struct encoder *en, const char *p, size_t n)
{
    while (n) {
        size_t len = pretok_next(en->t->pre, p, n);
        int rc = encode_piece(en, p, len);
        if (rc)
            return rc;
        p += len;
        n -= len;
    }
    return 0;
}

/* The longest special token that p begins with: its length, 0 for none. */
static size_t special_at(const struct tokenizer *t, const char *p, size_t n, uint32_t *id)
{
    size_t found = 0;
    uint32_t list = t->special_root[(uint8_t)p[0]];
    for (size_t i = 0; i < n; i++) {
        while (list && t->special[list].byte != (uint8_t)p[i])
            list = t->special[list].sibling;
        if (!list)
            break;
        if (t->special[list].id >= 0) {
            *id = (uint32_t)t->special[list].id;
            found = i + 1;
        }
        list = t->special[list].child;
    }
    return found;
}

static int encode_special(struct encoder *en, const char *p, size_t n)
{
    size_t from = 0, i = 0;
    while (i < n) {
        uint32_t id = 0;
        size_t len = special_at(en->t, p + i, n - i, &id);
        if (!len) {
            i++;
            continue;
        }
        int rc = encode_plain(en, p + from, i - from);
        if (rc == 0)
            rc = emit(en, id);
        if (rc)
            return rc;
        i += len;
        from = i;
    }
    return encode_plain(en, p + from, n - from);
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, bool special,
                     size_t max_tokens, struct token_vec *out, struct err *e)
{
    if (n == 0)
        return 0;
    size_t bad = utf8_check(text, n);
    if (bad != n)
        return err_set(e, ERR_FORMAT, "text is not valid UTF-8 at byte %zu", bad);
    size_t had = out->n;
    size_t limit = max_tokens > SIZE_MAX - had ? SIZE_MAX : had + max_tokens;
    struct encoder en = {.t = t, .out = out, .limit = limit, .max_tokens = max_tokens, .e = e};
    int rc = special ? encode_special(&en, text, n) : encode_plain(&en, text, n);
    bpe_scratch_fini(&en.scratch);
    if (rc)
        out->n = had;
    return rc;
}

uint32_t tokenizer_vocab(const struct tokenizer *t)
{
    return t->n_tokens;
}

const char *tokenizer_bytes(const struct tokenizer *t, uint32_t id, bool special, size_t *n)
{
    *n = 0;
    if (id >= t->n_tokens)
        return NULL;
    if (!special && t->types[id] == TOKEN_CONTROL)
        return "";
    *n = t->texts[id].n;
    return t->blob + t->texts[id].at;
}

bool tokenizer_is_eog(const struct tokenizer *t, uint32_t id)
{
    for (size_t i = 0; i < t->n_eog; i++)
        if (t->eog[i] == id)
            return true;
    return false;
}

size_t tokenizer_eog_ids(const struct tokenizer *t, uint32_t *ids, size_t max)
{
    for (size_t i = 0; i < t->n_eog && i < max; i++)
        ids[i] = t->eog[i];
    return t->n_eog;
}

int32_t tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}

int32_t tokenizer_eos(const struct tokenizer *t)
{
    return t->eos;
}
