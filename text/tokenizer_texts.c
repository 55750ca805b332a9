/* tokenizer_texts.c - what each token writes: its decoders, done once for every token. */
#include "text/tokenizer_internal.h"

#include "text/utf8.h"

#include <stdlib.h>
#include <string.h>

enum {
    ALPHABET_END = 0x144, /* one past the last letter */
    MAX_TEXTS_BYTES = 1 << 30,
};

static bool is_own_letter(uint32_t byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

uint32_t alphabet_letter(uint8_t byte)
{
    if (is_own_letter(byte))
        return byte;
    /* The others in order: 0-32, 127-160, 173. */
    return 0x100u + (byte <= 32 ? byte : byte <= 160 ? byte - 127u + 33u : 67u);
}

/* The byte that a letter stands for, or -1. */
static int alphabet_byte(uint32_t cp)
{
    if (cp < 0x100)
        return is_own_letter(cp) ? (int)cp : -1;
    if (cp >= ALPHABET_END)
        return -1;
    uint32_t i = cp - 0x100;
    return (int)(i <= 32 ? i : i < 67 ? i - 33 + 127 : 173);
}

bool alphabet_decode(const char *text, size_t n, char *out, size_t *n_out)
{
    size_t k = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        i += utf8_next(text + i, &cp);
        int byte = alphabet_byte(cp);
        if (byte < 0)
            return false;
        out[k++] = (char)byte;
    }
    *n_out = k;
    return true;
}

/* ---- decoders of one token ---- */

static void replace_all(struct buf *text, struct buf *scratch, const char *what, size_t n_what,
                        const char *to, size_t n_to)
{
    buf_reset(scratch);
    const char *p = (const char *)text->data, *end = p + text->len;
    while (p < end && n_what) {
        const char *hit = memmem(p, (size_t)(end - p), what, n_what);
        if (!hit)
            break;
        buf_put(scratch, p, (size_t)(hit - p));
        buf_put(scratch, to, n_to);
        p = hit + n_what;
    }
    if (p < end)
        buf_put(scratch, p, (size_t)(end - p));
    struct buf swap = *text;
    *text = *scratch;
    *scratch = swap;
}

/* What WordPiece's decoder tidies up (English), token by token. */
static void clean_up(struct buf *text, struct buf *scratch)
{
    static const char *const PAIRS[][2] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    for (size_t i = 0; i < sizeof PAIRS / sizeof PAIRS[0]; i++)
        replace_all(text, scratch, PAIRS[i][0], strlen(PAIRS[i][0]), PAIRS[i][1],
                    strlen(PAIRS[i][1]));
}

static void prepend(struct buf *text, struct buf *scratch, const char *what)
{
    buf_reset(scratch);
    buf_puts(scratch, what);
    if (text->len)
        buf_put(scratch, text->data, text->len);
    struct buf swap = *text;
    *text = *scratch;
    *scratch = swap;
}

static int hex_value(uint8_t c)
{
    return c >= '0' && c <= '9'                 ? c - '0'
           : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                : -1;
}

/* "<0x0A>" → 10, anything else → -1. */
static int byte_of_name(const uint8_t *p, size_t n)
{
    if (n != 6 || memcmp(p, "<0x", 3) != 0 || p[5] != '>')
        return -1;
    int hi = hex_value(p[3]), lo = hex_value(p[4]);
    return hi < 0 || lo < 0 ? -1 : hi * 16 + lo;
}

static void word_piece(const struct tok_step *s, struct buf *text, struct buf *scratch, bool first)
{
    if (!first) {
        if (text->len >= s->n_text && memcmp(text->data, s->text, s->n_text) == 0)
            buf_consume(text, s->n_text);
        else
            prepend(text, scratch, " ");
    }
    if (s->flags & TOK_CLEANUP)
        clean_up(text, scratch);
}

/* All of the text is letters of the alphabet, or it stays as it is: never half of it. */
static void byte_level(struct buf *text, struct buf *scratch)
{
    size_t n;
    buf_reset(scratch);
    buf_put(scratch, text->data, text->len);
    if (buf_ok(scratch) &&
        alphabet_decode((const char *)scratch->data, scratch->len, (char *)text->data, &n)) {
        text->len = n;
        return;
    }
    struct buf swap = *text;
    *text = *scratch;
    *scratch = swap;
}

/* One decoder; true: what follows works on the text as a whole. */
static bool decode_step(const struct tok_step *s, bool written_out, bool first, struct buf *text,
                        struct buf *scratch)
{
    switch (s->kind) {
    case TOK_DEC_BYTE_LEVEL:
        /* A control or user-defined token stands in the file as it is written. */
        if (!written_out && text->len)
            byte_level(text, scratch);
        break;
    case TOK_DEC_METASPACE:
        replace_all(text, scratch, s->text, s->n_text, " ",
                    !(first && s->arg != TOK_PREPEND_NEVER));
        break;
    case TOK_DEC_BYTE_FALLBACK: {
        int byte = text->len ? byte_of_name(text->data, text->len) : -1;
        if (byte >= 0) {
            text->data[0] = (uint8_t)byte;
            text->len = 1;
        }
        break;
    }
    case TOK_DEC_STRIP:
        for (uint32_t k = 0; k < s->arg && text->len >= s->n_text && s->n_text &&
                             memcmp(text->data, s->text, s->n_text) == 0;
             k++)
            buf_consume(text, s->n_text);
        break;
    case TOK_DEC_REPLACE:
        replace_all(text, scratch, s->text, s->n_text, s->to, s->n_to);
        break;
    case TOK_DEC_WORDPIECE:
        word_piece(s, text, scratch, first);
        break;
    case TOK_DEC_JOIN:
        if (!first)
            prepend(text, scratch, " ");
        break;
    case TOK_DEC_FUSE:
        return true;
    }
    return false;
}

struct writer {
    struct tokenizer *t;
    uint8_t *normalized; /* by id */
    struct buf all, text, scratch;
    int rc;
    struct err *e;
};

static struct token_text write_token(struct writer *w, uint32_t id, bool first)
{
    const struct tokenizer *t = w->t;
    bool written_out = t->types[id] == TOKEN_CONTROL || t->types[id] == TOKEN_USER_DEFINED ||
                       t->types[id] == TOKEN_UNKNOWN;
    buf_reset(&w->text);
    if (w->normalized[id] && t->n_normalizers)
        w->rc = tokenizer_normalize_name(t, id, &w->text, &w->scratch, w->e);
    else
        buf_put(&w->text, t->names + t->name_at[id].at, t->name_at[id].n);
    for (uint32_t i = 0; i < t->n_steps; i++)
        if (t->steps[i].kind >= TOK_DEC_BYTE_LEVEL &&
            decode_step(&t->steps[i], written_out, first, &w->text, &w->scratch))
            break;
    struct token_text at = {(uint32_t)w->all.len, (uint32_t)w->text.len};
    if (w->text.len)
        buf_put(&w->all, w->text.data, w->text.len);
    return at;
}

/* After Fuse: only what is taken from the beginning of a text can be done while it streams. */
static int fill_strip(struct tokenizer *t, struct err *e)
{
    bool fused = false;
    for (uint32_t i = 0; i < t->n_steps; i++) {
        const struct tok_step *s = &t->steps[i];
        if (s->kind < TOK_DEC_BYTE_LEVEL)
            continue;
        if (fused && s->kind != TOK_DEC_FUSE &&
            (s->kind != TOK_DEC_STRIP || s->n_text >= sizeof t->strip || t->strip_max))
            return err_set(e, ERR_FORMAT, "tokenizer: a decoder behind Fuse other than one Strip");
        if (fused && s->kind == TOK_DEC_STRIP) {
            memcpy(t->strip, s->text, s->n_text);
            t->strip_max = s->arg;
        }
        fused = fused || s->kind == TOK_DEC_FUSE;
    }
    return 0;
}

static bool knows_first(const struct tokenizer *t)
{
    for (uint32_t i = 0; i < t->n_steps; i++)
        if (t->steps[i].kind == TOK_DEC_METASPACE || t->steps[i].kind == TOK_DEC_WORDPIECE ||
            t->steps[i].kind == TOK_DEC_JOIN)
            return true;
    return false;
}

int tokenizer_build_texts(struct tokenizer *t, const struct tokenizer_data *d, struct err *e)
{
    struct writer w = {.t = t, .normalized = calloc(t->n_tokens, 1), .e = e};
    bool first = knows_first(t);
    buf_init(&w.all, MAX_TEXTS_BYTES);
    buf_init(&w.text, MAX_TEXTS_BYTES);
    buf_init(&w.scratch, MAX_TEXTS_BYTES);
    int rc = fill_strip(t, e);
    t->texts = calloc(t->n_tokens, sizeof *t->texts);
    t->first = first ? calloc(t->n_tokens, sizeof *t->first) : NULL;
    if (!rc && (!w.normalized || !t->texts || (first && !t->first)))
        rc = err_set(e, ERR_NOMEM, "tokenizer: out of memory for %u tokens", t->n_tokens);
    for (uint32_t i = 0; i < d->n_added && !rc; i++)
        w.normalized[d->added[i].id] = d->added[i].flags & ADDED_NORMALIZED;
    for (uint32_t id = 0; id < t->n_tokens && !rc; id++) {
        t->texts[id] = write_token(&w, id, false);
        if (first)
            t->first[id] = write_token(&w, id, true);
        rc = w.rc;
    }
    if (!rc && !(buf_ok(&w.all) && buf_ok(&w.text) && buf_ok(&w.scratch)))
        rc = err_set(e, ERR_LIMIT, "tokenizer: the texts of its tokens take over %d bytes",
                     MAX_TEXTS_BYTES);
    buf_u8(&w.all, 0); /* never NULL */
    t->blob = (char *)buf_take(&w.all, &t->blob_bytes);
    if (!rc && !t->blob)
        rc = err_set(e, ERR_NOMEM, "tokenizer: out of memory for the texts of its tokens");
    free(w.normalized);
    buf_fini(&w.all);
    buf_fini(&w.text);
    buf_fini(&w.scratch);
    return rc;
}
