/* meta_tokenizer.c - struct tokenizer_data as bytes, and what every reader of models holds it to; see meta.h. */
#include "model/meta_codec.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    TYPES_BYTES = 1, /* of one token */
    SCORE_BYTES = 8,
    ADDED_BYTES = 5,
    STEP_BYTES_LEAST = 14,
};

static void strings_free(char **strings, uint32_t n)
{
    for (uint32_t i = 0; strings && i < n; i++)
        free(strings[i]);
    free(strings);
}

void meta_tokenizer_fini(struct tokenizer_data *t)
{
    strings_free(t->tokens, t->n_tokens);
    strings_free(t->merges, t->n_merges);
    for (uint32_t i = 0; t->steps && i < t->n_steps; i++) {
        free(t->steps[i].text);
        free(t->steps[i].to);
    }
    free(t->types);
    free(t->scores);
    free(t->steps);
    free(t->added);
    *t = (struct tokenizer_data){.bos = -1, .eos = -1, .unk = -1, .pad = -1};
}

/* --- writing ---------------------------------------------------------------------------------- */

static void put_ids(struct buf *out, const uint32_t *ids, uint32_t n)
{
    buf_u32(out, n);
    for (uint32_t i = 0; i < n; i++)
        buf_u32(out, ids[i]);
}

void meta_tokenizer_put(struct buf *out, const struct tokenizer_data *t)
{
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

    buf_u8(out, t->flags);
    buf_u8(out, t->scores != NULL);
    for (uint32_t i = 0; t->scores && i < t->n_tokens; i++)
        buf_f64(out, t->scores[i]);
    buf_str(out, t->word_start);
    buf_str(out, t->word_end);
    buf_u32(out, t->max_word_chars);
    buf_u32(out, t->n_steps);
    for (uint32_t i = 0; i < t->n_steps; i++) {
        const struct tok_step *s = &t->steps[i];
        buf_u8(out, s->kind);
        buf_u8(out, s->flags);
        buf_u32(out, s->arg);
        buf_blob(out, s->text ? s->text : "", s->n_text);
        buf_blob(out, s->to ? s->to : "", s->n_to);
    }
    buf_u32(out, t->n_added);
    for (uint32_t i = 0; i < t->n_added; i++) {
        buf_u32(out, t->added[i].id);
        buf_u8(out, t->added[i].flags);
    }
    put_ids(out, t->prefix, t->n_prefix);
    put_ids(out, t->suffix, t->n_suffix);
    put_ids(out, t->eog, t->n_eog);
}

/* --- reading ---------------------------------------------------------------------------------- */

char *meta_text_dup(struct rd *r, size_t max, const char *what, struct err *e)
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

/* A count of items that take at least `least` bytes each. */
static int read_count(struct rd *r, uint32_t *n, uint32_t max, size_t least, const char *what,
                      struct err *e)
{
    *n = rd_u32(r);
    if (!rd_ok(r) || *n > max || *n > rd_left(r) / least) {
        uint32_t found = *n;
        *n = 0;
        return err_set(e, ERR_FORMAT,
                       "model data: %" PRIu32 " %ss cannot be in %zu bytes (most are %" PRIu32 ")",
                       found, what, rd_left(r), max);
    }
    return 0;
}

/* u32 count, then strings. What was read is handed over even on failure. */
static int read_strings(struct rd *r, char ***strings, uint32_t *count, uint32_t max,
                        const char *what, struct err *e)
{
    uint32_t n;
    int rc = read_count(r, &n, max, 4, what, e); /* each has its 4-byte length */
    if (rc)
        return rc;
    *strings = calloc((size_t)n + 1, sizeof **strings);
    if (!*strings)
        return err_set(e, ERR_NOMEM, "out of memory for %" PRIu32 " %ss", n, what);
    for (*count = 0; *count < n; (*count)++) {
        struct err why = ERR_INIT;
        char *s = meta_text_dup(r, META_TOKEN_BYTES, what, &why);
        if (!s)
            return err_set(e, why.code, "%s number %" PRIu32 ": %s", what, *count, why.text);
        (*strings)[*count] = s;
    }
    return 0;
}

static int read_vocabulary(struct rd *r, struct tokenizer_data *t, struct err *e)
{
    int rc = meta_text_get(r, t->model, sizeof t->model, "tokenizer model", e);
    if (!rc)
        rc = meta_text_get(r, t->pre, sizeof t->pre, "pre-tokenizer", e);
    if (!rc)
        rc = read_strings(r, &t->tokens, &t->n_tokens, META_MAX_VOCAB, "token", e);
    if (rc)
        return rc;
    const uint8_t *types = rd_bytes(r, (size_t)t->n_tokens * TYPES_BYTES);
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

static int read_scores(struct rd *r, struct tokenizer_data *t, struct err *e)
{
    bool scored = false;
    int rc = meta_bool_get(r, &scored, "scores", e);
    if (rc || !scored)
        return rc;
    if (t->n_tokens > rd_left(r) / SCORE_BYTES)
        return err_set(e, ERR_FORMAT, "model data: end inside the scores");
    t->scores = malloc(((size_t)t->n_tokens + 1) * sizeof *t->scores);
    if (!t->scores)
        return err_set(e, ERR_NOMEM, "out of memory for %" PRIu32 " scores", t->n_tokens);
    for (uint32_t i = 0; i < t->n_tokens; i++)
        t->scores[i] = rd_f64(r);
    return 0;
}

static char *read_bytes(struct rd *r, uint32_t *n_out)
{
    size_t n;
    const void *p = rd_blob(r, TOK_STEP_BYTES, &n);
    char *copy = p ? malloc(n + 1) : NULL;
    if (!copy)
        return NULL;
    memcpy(copy, p, n);
    copy[n] = 0;
    *n_out = (uint32_t)n;
    return copy;
}

static int read_steps(struct rd *r, struct tokenizer_data *t, struct err *e)
{
    uint32_t n;
    int rc = read_count(r, &n, TOK_MAX_STEPS, STEP_BYTES_LEAST, "step", e);
    if (rc)
        return rc;
    t->steps = calloc((size_t)n + 1, sizeof *t->steps);
    if (!t->steps)
        return err_set(e, ERR_NOMEM, "out of memory for %" PRIu32 " steps", n);
    for (t->n_steps = 0; t->n_steps < n;) {
        struct tok_step *s = &t->steps[t->n_steps++];
        s->kind = rd_u8(r);
        s->flags = rd_u8(r);
        s->arg = rd_u32(r);
        s->text = read_bytes(r, &s->n_text);
        s->to = s->text ? read_bytes(r, &s->n_to) : NULL;
        if (!s->to)
            return err_set(e, ERR_FORMAT, "model data: step %" PRIu32 ": its text is cut off",
                           t->n_steps - 1);
    }
    return 0;
}

static int read_added(struct rd *r, struct tokenizer_data *t, struct err *e)
{
    int rc = read_count(r, &t->n_added, META_MAX_VOCAB, ADDED_BYTES, "added token", e);
    if (rc)
        return rc;
    t->added = calloc((size_t)t->n_added + 1, sizeof *t->added);
    if (!t->added)
        return err_set(e, ERR_NOMEM, "out of memory for %" PRIu32 " added tokens", t->n_added);
    for (uint32_t i = 0; i < t->n_added; i++) {
        t->added[i].id = rd_u32(r);
        t->added[i].flags = rd_u8(r);
    }
    return 0;
}

static int read_ids(struct rd *r, uint32_t *ids, uint32_t *n, uint32_t max, const char *what,
                    struct err *e)
{
    int rc = read_count(r, n, max, 4, what, e);
    for (uint32_t i = 0; i < *n && !rc; i++)
        ids[i] = rd_u32(r);
    return rc;
}

int meta_tokenizer_get(struct rd *r, struct tokenizer_data *t, struct err *e)
{
    int rc = read_vocabulary(r, t, e);
    if (rc)
        return rc;
    t->flags = rd_u8(r);
    rc = read_scores(r, t, e);
    if (!rc)
        rc = meta_text_get(r, t->word_start, sizeof t->word_start, "prefix of word parts", e);
    if (!rc)
        rc = meta_text_get(r, t->word_end, sizeof t->word_end, "suffix of words", e);
    if (rc)
        return rc;
    t->max_word_chars = rd_u32(r);
    rc = read_steps(r, t, e);
    if (!rc)
        rc = read_added(r, t, e);
    if (!rc)
        rc = read_ids(r, t->prefix, &t->n_prefix, TOK_MAX_AFFIX, "token before a text", e);
    if (!rc)
        rc = read_ids(r, t->suffix, &t->n_suffix, TOK_MAX_AFFIX, "token behind a text", e);
    return rc ? rc : read_ids(r, t->eog, &t->n_eog, TOK_MAX_EOG, "end of generation", e);
}

/* --- validation ------------------------------------------------------------------------------- */

static int check_id(const struct tokenizer_data *t, const char *what, int64_t id, struct err *e)
{
    if (id < -1 || id >= (int64_t)t->n_tokens)
        return err_set(e, ERR_FORMAT, "%s token: expected an id below %" PRIu32 ", found %" PRId64,
                       what, t->n_tokens, id);
    return 0;
}

static int check_ids(const struct tokenizer_data *t, struct err *e)
{
    const struct {
        const char *name;
        int32_t id;
    } ids[] = {{"bos", t->bos}, {"eos", t->eos}, {"unk", t->unk}, {"pad", t->pad}};
    const struct {
        const char *name;
        const uint32_t *ids;
        uint32_t n;
    } lists[] = {{"prefix", t->prefix, t->n_prefix},
                 {"suffix", t->suffix, t->n_suffix},
                 {"end of generation", t->eog, t->n_eog}};
    int rc = 0;
    for (size_t i = 0; i < sizeof ids / sizeof ids[0] && !rc; i++)
        rc = check_id(t, ids[i].name, ids[i].id, e);
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        for (uint32_t k = 0; k < lists[i].n && !rc; k++)
            rc = check_id(t, lists[i].name, lists[i].ids[k], e);
    for (uint32_t i = 0; i < t->n_added && !rc; i++)
        rc = check_id(t, "added", t->added[i].id, e);
    return rc;
}

static int check_step(const struct tok_step *s, uint32_t i, struct err *e)
{
    bool known = (s->kind >= TOK_NFC && s->kind <= TOK_NMT) ||
                 (s->kind >= TOK_BYTE_LEVEL && s->kind <= TOK_BERT_SPLIT) ||
                 (s->kind >= TOK_DEC_BYTE_LEVEL && s->kind <= TOK_DEC_JOIN);
    if (!known)
        return err_set(e, ERR_FORMAT, "tokenizer step %" PRIu32 ": kind %u is not known", i,
                       s->kind);
    uint32_t max = s->kind == TOK_METASPACE || s->kind == TOK_DEC_METASPACE ? TOK_PREPEND_ALWAYS
                   : s->kind == TOK_SPLIT_AT || s->kind == TOK_PUNCTUATION  ? TOK_CONTIGUOUS
                                                                            : UINT32_MAX;
    if (s->arg > max)
        return err_set(e, ERR_FORMAT,
                       "tokenizer step %" PRIu32 ": expected a number up to %" PRIu32
                       ", found %" PRIu32,
                       i, max, s->arg);
    if (s->kind == TOK_CHARSMAP)
        return 0;
    int rc = meta_text_check(s->text ? s->text : "", s->n_text, META_TOKEN_BYTES,
                             "text of a tokenizer step", e);
    return rc ? rc
              : meta_text_check(s->to ? s->to : "", s->n_to, META_TOKEN_BYTES,
                                "text of a tokenizer step", e);
}

int meta_tokenizer_validate(const struct tokenizer_data *t, struct err *e)
{
    for (uint32_t i = 0; i < t->n_tokens; i++) {
        if (t->types[i] < TOKEN_NORMAL || t->types[i] > TOKEN_BYTE)
            return err_set(e, ERR_FORMAT,
                           "token %" PRIu32 ": expected a type from %d to %d, found %u", i,
                           TOKEN_NORMAL, TOKEN_BYTE, t->types[i]);
        if (t->scores && !isfinite(t->scores[i]))
            return err_set(e, ERR_FORMAT, "token %" PRIu32 ": its score is no finite number", i);
    }
    int rc = check_ids(t, e);
    for (uint32_t i = 0; i < t->n_steps && !rc; i++)
        rc = check_step(&t->steps[i], i, e);
    return rc;
}
