/* gguf_tokenizer.c - see gguf_tokenizer.h. Keys as in ggml/docs/gguf.md.
 *
 * What a GGUF file leaves to its reader is written out as steps here: SentencePiece's spaces, byte fallback, WordPiece's
 * normalizer. Only for byte-level BPE the name `pre` stays, which text/ has the expressions of.
 */
#include "model/gguf_tokenizer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPACE_SIGN "\xE2\x96\x81" /* SentencePiece writes a space so */

static int copy_text(const struct gguf_doc *d, const char *key, struct gguf_text t, char *dst,
                     size_t cap, struct err *e)
{
    int rc = meta_text_check(t.p, t.n, cap - 1, key, e);
    if (rc)
        return e ? err_prefix(e, "%s: key ", d->label) : rc;
    memcpy(dst, t.p, t.n);
    dst[t.n] = 0;
    return 0;
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

static int read_scores(const struct gguf_doc *d, struct tokenizer_data *t, struct err *e)
{
    static const char KEY[] = "tokenizer.ggml.scores";
    const struct gguf_key *k;
    int rc = gguf_doc_array(d, KEY, false, GGUF_F32, &k, e);
    if (rc || !k)
        return rc;
    if (k->count != t->n_tokens)
        return err_set(e, ERR_FORMAT,
                       "%s: key %s: expected one for each of %" PRIu32 " tokens, found %" PRIu64,
                       d->label, KEY, t->n_tokens, k->count);
    t->scores = malloc(((size_t)t->n_tokens + 1) * sizeof *t->scores);
    if (!t->scores)
        return err_set(e, ERR_NOMEM, "%s: out of memory for %" PRIu32 " scores", d->label,
                       t->n_tokens);
    struct rd r = rd_make(k->value, (size_t)(k->value_end - k->value));
    for (uint32_t i = 0; i < t->n_tokens; i++) {
        t->scores[i] = (double)rd_f32(&r);
        if (!isfinite(t->scores[i]))
            return err_set(e, ERR_FORMAT, "%s: key %s: token %" PRIu32 ": no finite number",
                           d->label, KEY, i);
    }
    return 0;
}

/* --- steps ------------------------------------------------------------------------------------ */

static int add_step(struct tokenizer_data *t, struct tok_step s, const void *text, size_t n_text,
                    const char *to, struct err *e)
{
    s.text = dup_text((struct gguf_text){text, n_text});
    s.to = dup_text((struct gguf_text){to, strlen(to)});
    s.n_text = (uint32_t)n_text;
    s.n_to = (uint32_t)strlen(to);
    if (!t->steps)
        t->steps = calloc(TOK_MAX_STEPS, sizeof *t->steps);
    if (!s.text || !s.to || !t->steps || t->n_steps == TOK_MAX_STEPS) {
        free(s.text);
        free(s.to);
        return err_set(e, ERR_NOMEM, "out of memory for the steps of a tokenizer");
    }
    t->steps[t->n_steps++] = s;
    return 0;
}

static int add(struct tokenizer_data *t, uint8_t kind, uint8_t flags, uint32_t arg,
               const char *text, const char *to, struct err *e)
{
    struct tok_step s = {.kind = kind, .flags = flags, .arg = arg};
    return add_step(t, s, text, strlen(text), to, e);
}

/* As LlamaTokenizer's converter writes them. */
static int llama_steps(const struct gguf_doc *d, struct tokenizer_data *t, struct err *e)
{
    bool prefix = true;
    int rc = gguf_doc_bool(d, "tokenizer.ggml.add_space_prefix", false, &prefix, e);
    t->flags |= TOK_BYTE_FALLBACK | TOK_FUSE_UNK;
    if (!rc && prefix)
        rc = add(t, TOK_PREPEND, 0, 0, SPACE_SIGN, "", e);
    if (!rc)
        rc = add(t, TOK_REPLACE, 0, 0, " ", SPACE_SIGN, e);
    if (!rc)
        rc = add(t, TOK_DEC_REPLACE, 0, 0, SPACE_SIGN, " ", e);
    if (!rc)
        rc = add(t, TOK_DEC_BYTE_FALLBACK, 0, 0, "", "", e);
    if (!rc)
        rc = add(t, TOK_DEC_FUSE, 0, 0, "", "", e);
    if (!rc && prefix)
        rc = add(t, TOK_DEC_STRIP, 0, 1, " ", "", e);
    return rc;
}

static int read_charsmap(const struct gguf_doc *d, struct tokenizer_data *t, struct err *e)
{
    static const char KEY[] = "tokenizer.ggml.precompiled_charsmap";
    const struct gguf_key *k = gguf_doc_find(d, KEY);
    if (!k)
        return 0;
    bool is_u8 = k->type == GGUF_ARRAY && k->item_type == GGUF_U8;
    int rc = gguf_doc_array(d, KEY, true, is_u8 ? GGUF_U8 : GGUF_I8, &k, e);
    if (rc || k->count == 0)
        return rc;
    if (k->count > TOK_STEP_BYTES)
        return err_set(e, ERR_LIMIT, "%s: key %s: expected at most %d bytes, found %" PRIu64,
                       d->label, KEY, TOK_STEP_BYTES, k->count);
    return add_step(t, (struct tok_step){.kind = TOK_CHARSMAP}, k->value, (size_t)k->count, "", e);
}

/* As the converters of T5 and XLM-R write them. */
static int t5_steps(const struct gguf_doc *d, struct tokenizer_data *t, struct err *e)
{
    bool prefix = true, trim = false;
    int rc = gguf_doc_bool(d, "tokenizer.ggml.add_space_prefix", false, &prefix, e);
    if (!rc)
        rc = gguf_doc_bool(d, "tokenizer.ggml.remove_extra_whitespaces", false, &trim, e);
    if (!rc)
        rc = read_charsmap(d, t, e);
    if (!rc && trim)
        rc = add(t, TOK_STRIP, TOK_LEFT | TOK_RIGHT, 0, "", "", e);
    if (!rc && trim)
        rc = add(t, TOK_REPLACE, TOK_REGEX, 0, " {2,}", " ", e);
    uint32_t scheme = prefix ? TOK_PREPEND_ALWAYS : TOK_PREPEND_NEVER;
    if (!rc)
        rc = add(t, TOK_METASPACE, TOK_SPLIT, scheme, SPACE_SIGN, "", e);
    return rc ? rc : add(t, TOK_DEC_METASPACE, 0, scheme, SPACE_SIGN, "", e);
}

/* GGUF files write "##ing" as "ing" and "the" as "▁the"; "[CLS]" stays. */
static int rename_word_piece(char **text, struct err *e)
{
    size_t n = strlen(*text), sign = strlen(SPACE_SIGN);
    if (n && (*text)[0] == '[' && (*text)[n - 1] == ']')
        return 0;
    if (n >= sign && memcmp(*text, SPACE_SIGN, sign) == 0) {
        memmove(*text, *text + sign, n - sign + 1);
        return 0;
    }
    char *longer = malloc(n + 3);
    if (!longer)
        return err_set(e, ERR_NOMEM, "out of memory for a token");
    memcpy(longer, "##", 2);
    memcpy(longer + 2, *text, n + 1);
    free(*text);
    *text = longer;
    return 0;
}

static int bert_steps(const struct gguf_doc *d, struct tokenizer_data *t, struct err *e)
{
    static const char *const KEYS[] = {"tokenizer.ggml.cls_token_id",
                                       "tokenizer.ggml.seperator_token_id"};
    int32_t ids[] = {t->bos, t->eos};
    int rc = 0;
    strcpy(t->word_start, "##");
    t->max_word_chars = 100; /* BertTokenizer's own */
    for (uint32_t i = 0; i < t->n_tokens && !rc; i++)
        rc = rename_word_piece(&t->tokens[i], e);
    for (size_t i = 0; i < 2 && !rc; i++)
        rc = read_token_id(d, KEYS[i], t->n_tokens, &ids[i], e);
    if (!rc && ids[0] >= 0)
        t->prefix[t->n_prefix++] = (uint32_t)ids[0];
    if (!rc && ids[1] >= 0)
        t->suffix[t->n_suffix++] = (uint32_t)ids[1];
    if (!rc)
        rc = add(t, TOK_BERT, 15, 0, "", "", e); /* all of it: files of this kind are uncased */
    if (!rc)
        rc = add(t, TOK_BERT_SPLIT, 0, 0, "", "", e);
    return rc ? rc : add(t, TOK_DEC_WORDPIECE, TOK_CLEANUP, 0, "##", "", e);
}

static int read_kind(const struct gguf_doc *d, struct tokenizer_data *t, struct err *e)
{
    if (strcmp(t->model, "llama") == 0)
        return llama_steps(d, t, e);
    if (strcmp(t->model, "t5") == 0)
        return t5_steps(d, t, e);
    if (strcmp(t->model, "bert") == 0)
        return bert_steps(d, t, e);
    return 0;
}

/* Ends of a turn that have keys of their own. */
static int read_ends(const struct gguf_doc *d, struct tokenizer_data *t, struct err *e)
{
    static const char *const KEYS[] = {"tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    for (size_t i = 0; i < sizeof KEYS / sizeof KEYS[0]; i++) {
        int32_t id = -1;
        int rc = read_token_id(d, KEYS[i], t->n_tokens, &id, e);
        if (rc)
            return rc;
        if (id >= 0)
            t->eog[t->n_eog++] = (uint32_t)id;
    }
    return 0;
}

int gguf_tokenizer_read(const struct gguf_doc *d, struct tokenizer_data *t, struct err *e)
{
    struct gguf_text model, pre = {"default", 7};
    int rc = gguf_doc_text(d, "tokenizer.ggml.model", true, &model, e);
    if (!rc)
        rc = copy_text(d, "tokenizer.ggml.model", model, t->model, sizeof t->model, e);
    if (!rc)
        rc = gguf_doc_text(d, "tokenizer.ggml.pre", false, &pre, e);
    if (!rc)
        rc = copy_text(d, "tokenizer.ggml.pre", pre, t->pre, sizeof t->pre, e);
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
    if (!rc)
        rc = read_scores(d, t, e);
    if (!rc)
        rc = read_ends(d, t, e);
    return rc ? rc : read_kind(d, t, e);
}
