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

int encoder_emit(struct encoder *en, uint32_t id)
{
    if (en->out->n >= en->limit)
        return err_set(en->e, ERR_LIMIT, "text gives more than %zu tokens", en->max_tokens);
    if (token_vec_push(en->out, id))
        return err_set(en->e, ERR_NOMEM, "tokenizer: out of memory");
    return 0;
}

/* A section of normalised text without added tokens. */
static int encode_section(struct encoder *en, const char *p, size_t n, bool head)
{
    const struct tokenizer *t = en->t;
    const struct span_vec *spans;
    const char *text;
    int rc = pieces_cut(&en->pieces, t->ops, t->n_ops, p, n, head, &spans, &text, en->e);
    for (size_t i = 0; i < spans->n && rc == 0; i++) {
        const char *piece = text + spans->v[i].at;
        size_t len = spans->v[i].n;
        rc = t->kind == TOKENIZER_BPE       ? bpe_encode(en, piece, len)
             : t->kind == TOKENIZER_UNIGRAM ? unigram_encode(en, piece, len)
                                            : wordpiece_encode(en, piece, len);
    }
    return rc;
}

typedef int (*section_fn)(struct encoder *en, const char *p, size_t n, bool head);

/* The added tokens of a set, and what lies between them. */
static int encode_around(struct encoder *en, const struct added_set *set, const char *p, size_t n,
                         bool head, section_fn section)
{
    size_t at = 0, from = 0, start, end;
    const struct added_entry *entry;
    int rc = 0;
    while (rc == 0 && added_next(set, p, n, en->special, &at, &from, &start, &end, &entry)) {
        if (from < start)
            rc = section(en, p + from, start - from, head && from == 0);
        if (rc == 0)
            rc = encoder_emit(en, entry->id);
        from = end;
    }
    return rc || from >= n ? rc : section(en, p + from, n - from, head && from == 0);
}

/* A section of the text as it is written. */
static int encode_written(struct encoder *en, const char *p, size_t n, bool head)
{
    const struct tokenizer *t = en->t;
    uint32_t cp;
    size_t first = head ? utf8_next(p, &cp) : 0; /* bytes of the first character */
    for (size_t i = 0; i < t->n_normalizers; i++) {
        struct buf *to = &en->pieces.norm[i % 2];
        buf_reset(to);
        int rc = normalize(&t->normalizers[i], &en->pieces.run, p, n, to, &first, en->e);
        if (rc)
            return rc;
        p = (const char *)to->data;
        n = to->len;
    }
    return encode_around(en, &t->added_normalized, p, n, first > 0, encode_section);
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, bool special,
                     size_t max_tokens, struct token_vec *out, struct err *e)
{
    if (n == 0)
        return 0;
    if (n > TOKENIZER_MAX_TEXT)
        return err_set(e, ERR_LIMIT, "text of %zu bytes, at most %d", n, TOKENIZER_MAX_TEXT);
    size_t bad = utf8_check(text, n);
    if (bad != n)
        return err_set(e, ERR_FORMAT, "text is not valid UTF-8 at byte %zu", bad);
    size_t had = out->n;
    size_t limit = max_tokens > SIZE_MAX - had ? SIZE_MAX : had + max_tokens;
    struct encoder en = {
        .t = t, .out = out, .limit = limit, .max_tokens = max_tokens, .special = special, .e = e};
    pieces_init(&en.pieces, n);
    int rc = encode_around(&en, &t->added_plain, text, n, true, encode_written);
    pieces_fini(&en.pieces);
    bpe_scratch_fini(&en.scratch);
    free(en.nodes);
    if (rc)
        out->n = had;
    return rc;
}

static bool tokenizer_is_shown(const struct tokenizer *t, uint32_t id)
{
    return t->types[id] != TOKEN_CONTROL && t->types[id] != TOKEN_UNKNOWN;
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
    if (!special && !tokenizer_is_shown(t, id))
        return "";
    *n = t->texts[id].n;
    return t->blob + t->texts[id].at;
}

/* Take the characters that do not belong to the beginning of a text. */
static void strip_start(const struct tokenizer *t, struct detok *d, const char **bytes, size_t *n)
{
    size_t len = strlen(t->strip);
    while (len && d->n_stripped < t->strip_max && *n >= len && memcmp(*bytes, t->strip, len) == 0) {
        *bytes += len;
        *n -= len;
        d->n_stripped++;
    }
    if (*n)
        d->n_stripped = UINT32_MAX;
}

void detok_token(struct detok *d, const struct tokenizer *t, uint32_t id, bool special,
                 struct buf *out)
{
    if (id >= t->n_tokens || (!special && !tokenizer_is_shown(t, id)))
        return;
    struct token_text text = t->first && !d->begun ? t->first[id] : t->texts[id];
    const char *bytes = t->blob + text.at;
    size_t n = text.n;
    d->begun = true;
    strip_start(t, d, &bytes, &n);
    if (n)
        detok_push(d, bytes, n, out);
}

const uint32_t *tokenizer_prefix(const struct tokenizer *t, size_t *n)
{
    *n = t->n_prefix;
    return t->prefix;
}

const uint32_t *tokenizer_suffix(const struct tokenizer *t, size_t *n)
{
    *n = t->n_suffix;
    return t->suffix;
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
