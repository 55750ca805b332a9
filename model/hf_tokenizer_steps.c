/* hf_tokenizer_steps.c - tokenizer.json: "normalizer", "pre_tokenizer" and "decoder" become steps. */
#include "model/hf_tokenizer_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NESTING = 8 }; /* sequences in sequences */

static int add_bytes(struct hf_reader *r, const struct hf_at *at, struct tok_step s,
                     const void *text, size_t n_text, const char *to)
{
    struct tokenizer_data *t = r->t;
    if (t->n_steps == TOK_MAX_STEPS)
        return err_set(r->e, ERR_LIMIT, "%s: more than %d steps", at->where, TOK_MAX_STEPS);
    if (!t->steps)
        t->steps = calloc(TOK_MAX_STEPS, sizeof *t->steps);
    s.n_text = (uint32_t)n_text;
    s.n_to = (uint32_t)strlen(to);
    s.text = malloc(n_text + 1);
    s.to = strdup(to);
    if (!t->steps || !s.text || !s.to) {
        free(s.text);
        free(s.to);
        return err_set(r->e, ERR_NOMEM, "%s: out of memory", at->where);
    }
    memcpy(s.text, text, n_text);
    s.text[n_text] = 0;
    t->steps[t->n_steps++] = s;
    return 0;
}

static int add(struct hf_reader *r, const struct hf_at *at, struct tok_step s, const char *text,
               const char *to)
{
    if (strlen(text) > META_TOKEN_BYTES || strlen(to) > META_TOKEN_BYTES)
        return err_set(r->e, ERR_LIMIT, "%s: a text of more than %d bytes", at->where,
                       META_TOKEN_BYTES);
    return add_bytes(r, at, s, text, strlen(text), to);
}

static int add_kind(struct hf_reader *r, const struct hf_at *at, uint8_t kind, uint8_t flags)
{
    return add(r, at, (struct tok_step){.kind = kind, .flags = flags}, "", "");
}

/* ---- parts that several have ---- */

/* {"String": …} or {"Regex": …} */
static int read_pattern(struct hf_reader *r, const struct hf_at *at, const char **text,
                        uint8_t *flags)
{
    static const char *const KEYS[] = {"String", "Regex", NULL};
    struct hf_at p = hf_at_get(at, "pattern");
    const char *literal = NULL, *regex = NULL;
    if (!json_is_object(p.v))
        return hf_at_expected(&p, "an object", r->e);
    int rc = hf_at_only(&p, KEYS, r->e);
    if (!rc)
        rc = hf_at_text(&p, "String", &literal, r->e);
    if (!rc)
        rc = hf_at_text(&p, "Regex", &regex, r->e);
    if (!rc && !literal == !regex)
        rc = err_set(r->e, ERR_FORMAT, "%s: expected either String or Regex", p.where);
    *text = literal ? literal : regex;
    *flags |= regex ? TOK_REGEX : 0;
    return rc;
}

static int read_behavior(struct hf_reader *r, const struct hf_at *at, uint32_t *out)
{
    static const char *const NAMES[] = {[TOK_REMOVED] = "Removed",
                                        [TOK_ISOLATED] = "Isolated",
                                        [TOK_MERGED_PREVIOUS] = "MergedWithPrevious",
                                        [TOK_MERGED_NEXT] = "MergedWithNext",
                                        [TOK_CONTIGUOUS] = "Contiguous"};
    const char *name = NULL;
    int rc = hf_at_text(at, "behavior", &name, r->e);
    if (rc || !name)
        return rc;
    for (uint32_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++)
        if (strcmp(name, NAMES[i]) == 0) {
            *out = i;
            return 0;
        }
    return hf_at_refuse(at, "the behavior", name, r->e);
}

/* Metaspace, as pre-tokenizer and as decoder. */
static int read_metaspace(struct hf_reader *r, const struct hf_at *at, uint8_t kind)
{
    static const char *const KEYS[] = {
        "type", "replacement", "prepend_scheme", "add_prefix_space", "split", "str_rep", NULL};
    const char *sign = "\xE2\x96\x81", *scheme = NULL;
    bool split = true, prefix = true;
    int rc = hf_at_only(at, KEYS, r->e);
    if (!rc)
        rc = hf_at_text(at, "replacement", &sign, r->e);
    if (!rc)
        rc = hf_at_text(at, "prepend_scheme", &scheme, r->e);
    if (!rc)
        rc = hf_at_bool(at, "split", &split, r->e);
    if (!rc) /* how older files say it */
        rc = hf_at_bool(at, "add_prefix_space", &prefix, r->e);
    if (rc)
        return rc;
    struct tok_step s = {.kind = kind,
                         .flags = split && kind == TOK_METASPACE ? TOK_SPLIT : 0,
                         .arg = prefix ? TOK_PREPEND_ALWAYS : TOK_PREPEND_NEVER};
    if (scheme && strcmp(scheme, "always") == 0)
        s.arg = TOK_PREPEND_ALWAYS;
    else if (scheme && strcmp(scheme, "first") == 0)
        s.arg = TOK_PREPEND_FIRST;
    else if (scheme && strcmp(scheme, "never") == 0)
        s.arg = TOK_PREPEND_NEVER;
    else if (scheme)
        return hf_at_refuse(at, "the prepend_scheme", scheme, r->e);
    if (!sign[0] || strlen(sign) > 4)
        return err_set(r->e, ERR_FORMAT, "%s.replacement: expected one character", at->where);
    return add(r, at, s, sign, "");
}

/* ---- normalizers ---- */

static int read_strip(struct hf_reader *r, const struct hf_at *at)
{
    static const char *const KEYS[] = {"type", "strip_left", "strip_right", NULL};
    bool left = false, right = false;
    int rc = hf_at_only(at, KEYS, r->e);
    if (!rc)
        rc = hf_at_bool(at, "strip_left", &left, r->e);
    if (!rc)
        rc = hf_at_bool(at, "strip_right", &right, r->e);
    return rc ? rc
              : add_kind(r, at, TOK_STRIP,
                         (uint8_t)((left ? TOK_LEFT : 0) | (right ? TOK_RIGHT : 0)));
}

static int read_replace(struct hf_reader *r, const struct hf_at *at, uint8_t kind)
{
    static const char *const KEYS[] = {"type", "pattern", "content", NULL};
    const char *pattern = NULL, *content = NULL;
    struct tok_step s = {.kind = kind};
    int rc = hf_at_only(at, KEYS, r->e);
    if (!rc)
        rc = read_pattern(r, at, &pattern, &s.flags);
    if (!rc)
        rc = hf_at_text(at, "content", &content, r->e);
    if (!rc && !content)
        rc = err_set(r->e, ERR_FORMAT, "%s: no content", at->where);
    if (!rc && kind == TOK_DEC_REPLACE && (s.flags & TOK_REGEX))
        rc = hf_at_refuse(at, "a decoder's", "Regex", r->e);
    return rc ? rc : add(r, at, s, pattern, content);
}

static int read_prepend(struct hf_reader *r, const struct hf_at *at)
{
    static const char *const KEYS[] = {"type", "prepend", NULL};
    const char *text = NULL;
    int rc = hf_at_only(at, KEYS, r->e);
    if (!rc)
        rc = hf_at_text(at, "prepend", &text, r->e);
    if (!rc && !text)
        rc = err_set(r->e, ERR_FORMAT, "%s: no prepend", at->where);
    return rc ? rc : add(r, at, (struct tok_step){.kind = TOK_PREPEND}, text, "");
}

static int read_bert(struct hf_reader *r, const struct hf_at *at)
{
    static const char *const KEYS[] = {"type",          "clean_text", "handle_chinese_chars",
                                       "strip_accents", "lowercase",  NULL};
    bool clean = true, chinese = true, lower = true;
    int rc = hf_at_only(at, KEYS, r->e);
    if (!rc)
        rc = hf_at_bool(at, "clean_text", &clean, r->e);
    if (!rc)
        rc = hf_at_bool(at, "handle_chinese_chars", &chinese, r->e);
    if (!rc)
        rc = hf_at_bool(at, "lowercase", &lower, r->e);
    bool accents = lower; /* null follows lowercase */
    if (!rc)
        rc = hf_at_bool(at, "strip_accents", &accents, r->e);
    uint8_t flags = (uint8_t)((clean ? TOK_BERT_CLEAN : 0) | (chinese ? TOK_BERT_CHINESE : 0) |
                              (accents ? TOK_BERT_ACCENTS : 0) | (lower ? TOK_BERT_LOWERCASE : 0));
    return rc ? rc : add_kind(r, at, TOK_BERT, flags);
}

static int base64_value(char c)
{
    static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(DIGITS, c) : NULL;
    return at ? (int)(at - DIGITS) : -1;
}

/* Base64 in the file. */
static int read_charsmap(struct hf_reader *r, const struct hf_at *at)
{
    static const char *const KEYS[] = {"type", "precompiled_charsmap", NULL};
    const char *text = "";
    int rc = hf_at_only(at, KEYS, r->e);
    if (!rc)
        rc = hf_at_text(at, "precompiled_charsmap", &text, r->e);
    if (rc)
        return rc;
    size_t n = strlen(text), k = 0;
    if (n / 4 * 3 > TOK_STEP_BYTES)
        return err_set(r->e, ERR_LIMIT, "%s.precompiled_charsmap: over %d bytes", at->where,
                       TOK_STEP_BYTES);
    uint8_t *bytes = malloc(n + 1);
    if (!bytes)
        return err_set(r->e, ERR_NOMEM, "%s: out of memory", at->where);
    uint32_t bits = 0;
    unsigned held = 0;
    for (size_t i = 0; i < n && text[i] != '=' && !rc; i++) {
        int v = base64_value(text[i]);
        if (v < 0)
            rc = err_set(r->e, ERR_FORMAT, "%s.precompiled_charsmap: no base64 at byte %zu",
                         at->where, i);
        bits = bits << 6 | (uint32_t)(v & 63);
        held += 6;
        if (held >= 8) {
            held -= 8;
            bytes[k++] = (uint8_t)(bits >> held);
        }
    }
    /* An empty map changes nothing. */
    if (!rc && k)
        rc = add_bytes(r, at, (struct tok_step){.kind = TOK_CHARSMAP}, bytes, k, "");
    free(bytes);
    return rc;
}

static int read_normalizer(struct hf_reader *r, const struct hf_at *at, const char *type)
{
    static const struct {
        const char *type;
        uint8_t kind;
    } PLAIN[] = {{"NFC", TOK_NFC},
                 {"NFD", TOK_NFD},
                 {"NFKC", TOK_NFKC},
                 {"NFKD", TOK_NFKD},
                 {"Lowercase", TOK_LOWERCASE},
                 {"StripAccents", TOK_STRIP_ACCENTS},
                 {"Nmt", TOK_NMT}};
    for (size_t i = 0; i < sizeof PLAIN / sizeof PLAIN[0]; i++)
        if (strcmp(type, PLAIN[i].type) == 0)
            return add_kind(r, at, PLAIN[i].kind, 0);
    if (strcmp(type, "Strip") == 0)
        return read_strip(r, at);
    if (strcmp(type, "Replace") == 0)
        return read_replace(r, at, TOK_REPLACE);
    if (strcmp(type, "Prepend") == 0)
        return read_prepend(r, at);
    if (strcmp(type, "BertNormalizer") == 0)
        return read_bert(r, at);
    if (strcmp(type, "Precompiled") == 0)
        return read_charsmap(r, at);
    return hf_at_refuse(at, "the normalizer", type, r->e);
}

/* ---- pre-tokenizers ---- */

static int read_byte_level(struct hf_reader *r, const struct hf_at *at)
{
    static const char *const KEYS[] = {"type", "add_prefix_space", "trim_offsets", "use_regex",
                                       NULL};
    bool prefix = true, regex = true;
    int rc = hf_at_only(at, KEYS, r->e);
    if (!rc)
        rc = hf_at_bool(at, "add_prefix_space", &prefix, r->e);
    if (!rc)
        rc = hf_at_bool(at, "use_regex", &regex, r->e);
    return rc ? rc
              : add_kind(r, at, TOK_BYTE_LEVEL,
                         (uint8_t)((prefix ? TOK_PREFIX_SPACE : 0) | (regex ? TOK_REGEX : 0)));
}

static int read_split(struct hf_reader *r, const struct hf_at *at)
{
    static const char *const KEYS[] = {"type", "pattern", "behavior", "invert", NULL};
    const char *pattern = NULL;
    bool invert = false;
    struct tok_step s = {.kind = TOK_SPLIT_AT};
    int rc = hf_at_only(at, KEYS, r->e);
    if (!rc)
        rc = read_pattern(r, at, &pattern, &s.flags);
    if (!rc)
        rc = read_behavior(r, at, &s.arg);
    if (!rc)
        rc = hf_at_bool(at, "invert", &invert, r->e);
    s.flags |= invert ? TOK_INVERT : 0;
    return rc ? rc : add(r, at, s, pattern, "");
}

static int read_delimiter(struct hf_reader *r, const struct hf_at *at)
{
    const char *text = NULL;
    int rc = hf_at_text(at, "delimiter", &text, r->e);
    if (!rc && (!text || !text[0]))
        rc = err_set(r->e, ERR_FORMAT, "%s: no delimiter", at->where);
    return rc ? rc
              : add(r, at, (struct tok_step){.kind = TOK_SPLIT_AT, .arg = TOK_REMOVED}, text, "");
}

static int read_digits(struct hf_reader *r, const struct hf_at *at)
{
    bool alone = false;
    int rc = hf_at_bool(at, "individual_digits", &alone, r->e);
    return rc ? rc : add_kind(r, at, TOK_DIGITS, alone ? TOK_SPLIT : 0);
}

static int read_punctuation(struct hf_reader *r, const struct hf_at *at)
{
    struct tok_step s = {.kind = TOK_PUNCTUATION, .arg = TOK_ISOLATED};
    int rc = read_behavior(r, at, &s.arg);
    return rc ? rc : add(r, at, s, "", "");
}

static int read_pre(struct hf_reader *r, const struct hf_at *at, const char *type)
{
    if (strcmp(type, "ByteLevel") == 0)
        return read_byte_level(r, at);
    if (strcmp(type, "Metaspace") == 0)
        return read_metaspace(r, at, TOK_METASPACE);
    if (strcmp(type, "Split") == 0)
        return read_split(r, at);
    if (strcmp(type, "CharDelimiterSplit") == 0)
        return read_delimiter(r, at);
    if (strcmp(type, "Digits") == 0)
        return read_digits(r, at);
    if (strcmp(type, "Whitespace") == 0)
        return add_kind(r, at, TOK_WHITESPACE, 0);
    if (strcmp(type, "WhitespaceSplit") == 0)
        return add_kind(r, at, TOK_WHITESPACE_SPLIT, 0);
    if (strcmp(type, "Punctuation") == 0)
        return read_punctuation(r, at);
    if (strcmp(type, "BertPreTokenizer") == 0)
        return add_kind(r, at, TOK_BERT_SPLIT, 0);
    return hf_at_refuse(at, "the pre-tokenizer", type, r->e);
}

/* ---- decoders ---- */

static int read_dec_strip(struct hf_reader *r, const struct hf_at *at)
{
    const char *text = " ";
    uint32_t start = 0, stop = 0;
    int rc = hf_at_text(at, "content", &text, r->e);
    if (!rc)
        rc = hf_at_u32(at, "start", &start, r->e);
    if (!rc)
        rc = hf_at_u32(at, "stop", &stop, r->e);
    if (!rc && stop)
        rc = err_set(r->e, ERR_FORMAT,
                     "%s.stop: only 0 is supported: a text's end is not known while it streams",
                     at->where);
    if (!rc && (!text[0] || strlen(text) > 4))
        rc = err_set(r->e, ERR_FORMAT, "%s.content: expected one character", at->where);
    return rc ? rc : add(r, at, (struct tok_step){.kind = TOK_DEC_STRIP, .arg = start}, text, "");
}

static int read_dec_word_piece(struct hf_reader *r, const struct hf_at *at)
{
    const char *prefix = "##";
    bool cleanup = true;
    int rc = hf_at_text(at, "prefix", &prefix, r->e);
    if (!rc)
        rc = hf_at_bool(at, "cleanup", &cleanup, r->e);
    struct tok_step s = {.kind = TOK_DEC_WORDPIECE, .flags = cleanup ? TOK_CLEANUP : 0};
    return rc ? rc : add(r, at, s, prefix, "");
}

static int read_decoder(struct hf_reader *r, const struct hf_at *at, const char *type)
{
    /* What comes out of ByteLevel is one text; no later decoder sees tokens. */
    if (r->t->n_steps && r->t->steps[r->t->n_steps - 1].kind == TOK_DEC_BYTE_LEVEL)
        return hf_at_refuse(at, "behind ByteLevel, the decoder", type, r->e);
    if (strcmp(type, "ByteLevel") == 0)
        return add_kind(r, at, TOK_DEC_BYTE_LEVEL, 0);
    if (strcmp(type, "Metaspace") == 0)
        return read_metaspace(r, at, TOK_DEC_METASPACE);
    if (strcmp(type, "ByteFallback") == 0)
        return add_kind(r, at, TOK_DEC_BYTE_FALLBACK, 0);
    if (strcmp(type, "Fuse") == 0)
        return add_kind(r, at, TOK_DEC_FUSE, 0);
    if (strcmp(type, "Strip") == 0)
        return read_dec_strip(r, at);
    if (strcmp(type, "Replace") == 0)
        return read_replace(r, at, TOK_DEC_REPLACE);
    if (strcmp(type, "WordPiece") == 0)
        return read_dec_word_piece(r, at);
    return hf_at_refuse(at, "the decoder", type, r->e);
}

/* ---- sequences ---- */

typedef int (*read_fn)(struct hf_reader *r, const struct hf_at *at, const char *type);

static int read_nested(struct hf_reader *r, const struct hf_at *at, const char *list_key,
                       read_fn read, int depth)
{
    const char *type = NULL;
    if (!json_is_object(at->v))
        return hf_at_expected(at, "an object", r->e);
    int rc = hf_at_text(at, "type", &type, r->e);
    if (rc)
        return rc;
    if (!type)
        return err_set(r->e, ERR_FORMAT, "%s: no type", at->where);
    if (strcmp(type, "Sequence") != 0)
        return read(r, at, type);
    if (depth == MAX_NESTING)
        return err_set(r->e, ERR_FORMAT, "%s: more than %d sequences in each other", at->where,
                       MAX_NESTING);
    struct hf_at list = hf_at_get(at, list_key);
    if (!json_is_array(list.v))
        return hf_at_expected(&list, "an array", r->e);
    for (size_t i = 0; i < json_array_size(list.v) && !rc; i++) {
        struct hf_at item = hf_at_item(&list, i);
        rc = read_nested(r, &item, list_key, read, depth + 1);
    }
    return rc;
}

int hf_read_steps(struct hf_reader *r)
{
    static const struct {
        const char *key, *list;
        read_fn read;
    } PARTS[] = {{"normalizer", "normalizers", read_normalizer},
                 {"pre_tokenizer", "pretokenizers", read_pre},
                 {"decoder", "decoders", read_decoder}};
    for (size_t i = 0; i < sizeof PARTS / sizeof PARTS[0]; i++) {
        struct hf_at at = hf_at_get(&r->top, PARTS[i].key);
        int rc = 0;
        if (at.v)
            rc = read_nested(r, &at, PARTS[i].list, PARTS[i].read, 0);
        else if (PARTS[i].read == read_decoder) /* tokens are joined by spaces then */
            rc = add_kind(r, &at, TOK_DEC_JOIN, 0);
        if (rc)
            return rc;
    }
    return 0;
}
