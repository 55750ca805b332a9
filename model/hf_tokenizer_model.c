/* hf_tokenizer_model.c - tokenizer.json: "model" and "added_tokens". */
#include "model/hf_tokenizer_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WORD_CHARS = 100 }; /* of WordPiece, when the file does not say */

int64_t hf_token_id(const struct hf_reader *r, const char *text)
{
    const json_t *id = json_object_get(r->ids, text);
    return id ? json_integer_value(id) : -1;
}

static char *dup_text(const char *s, size_t n)
{
    char *copy = malloc(n + 1);
    if (copy) {
        memcpy(copy, s, n);
        copy[n] = 0;
    }
    return copy;
}

static int no_memory(struct hf_reader *r)
{
    return err_set(r->e, ERR_NOMEM, "%sout of memory for the vocabulary", r->top.where);
}

/* Room for ids below n, those not given yet without text. */
static int grow_vocab(struct hf_reader *r, uint32_t n)
{
    struct tokenizer_data *t = r->t;
    if (n <= t->n_tokens)
        return 0;
    if (n > META_MAX_VOCAB)
        return err_set(r->e, ERR_LIMIT, "%stoken id %" PRIu32 ": expected at most %d tokens",
                       r->top.where, n - 1, META_MAX_VOCAB);
    size_t cap = 64;
    while (cap < n)
        cap *= 2;
    char **tokens = realloc(t->tokens, cap * sizeof *tokens);
    if (!tokens)
        return no_memory(r);
    t->tokens = tokens;
    uint8_t *types = realloc(t->types, cap);
    if (!types)
        return no_memory(r);
    t->types = types;
    while (t->n_tokens < n) {
        t->tokens[t->n_tokens] = dup_text("", 0);
        if (!t->tokens[t->n_tokens])
            return no_memory(r);
        t->types[t->n_tokens++] = TOKEN_UNUSED;
    }
    return 0;
}

static int put_token(struct hf_reader *r, const struct hf_at *at, const char *text, size_t n_text,
                     json_int_t id, uint8_t type)
{
    struct tokenizer_data *t = r->t;
    if (id < 0 || id > UINT32_MAX - 1)
        return err_set(r->e, ERR_FORMAT, "%s: token \"%.64s\": id %lld is out of range", at->where,
                       text, (long long)id);
    int rc = meta_text_check(text, n_text, META_TOKEN_BYTES, at->where, r->e);
    if (!rc)
        rc = grow_vocab(r, (uint32_t)id + 1);
    if (rc)
        return rc;
    if (t->tokens[id][0])
        return err_set(r->e, ERR_FORMAT, "%s: tokens \"%.64s\" and \"%.64s\" both have id %lld",
                       at->where, t->tokens[id], text, (long long)id);
    char *copy = dup_text(text, n_text);
    if (!copy || json_object_set_new_nocheck(r->ids, copy, json_integer(id))) {
        free(copy);
        return no_memory(r);
    }
    free(t->tokens[id]);
    t->tokens[id] = copy;
    t->types[id] = type;
    return 0;
}

static bool is_byte_name(const char *s)
{
    return strlen(s) == 6 && memcmp(s, "<0x", 3) == 0 && s[5] == '>' &&
           strspn(s + 3, "0123456789ABCDEF") == 2;
}

/* {"text": id, …} */
static int read_vocab(struct hf_reader *r, const struct hf_at *model)
{
    struct hf_at vocab = hf_at_get(model, "vocab");
    if (!json_is_object(vocab.v))
        return hf_at_expected(&vocab, "an object", r->e);
    const char *text;
    json_t *id;
    json_object_foreach((json_t *)vocab.v, text, id)
    {
        if (!json_is_integer(id))
            return err_set(r->e, ERR_FORMAT, "%s: token \"%.64s\": expected an id", vocab.where,
                           text);
        bool byte = (r->t->flags & TOK_BYTE_FALLBACK) && is_byte_name(text);
        if (!text[0])
            return err_set(r->e, ERR_FORMAT, "%s: a token without text", vocab.where);
        int rc = put_token(r, &vocab, text, strlen(text), json_integer_value(id),
                           byte ? TOKEN_BYTE : TOKEN_NORMAL);
        if (rc)
            return rc;
    }
    return 0;
}

/* "left right" or ["left", "right"]; kept as "left right". */
static char *merge_text(const json_t *item)
{
    if (json_is_string(item)) {
        const char *s = json_string_value(item), *space = strchr(s, ' ');
        bool two = space && space > s && space[1] && !strchr(space + 1, ' ') &&
                   strlen(s) == json_string_length(item);
        return two ? dup_text(s, strlen(s)) : NULL;
    }
    const json_t *a = json_array_get(item, 0), *b = json_array_get(item, 1);
    if (json_array_size(item) != 2 || !json_is_string(a) || !json_is_string(b))
        return NULL;
    const char *left = json_string_value(a), *right = json_string_value(b);
    size_t n_left = strlen(left), n_right = strlen(right);
    if (!n_left || !n_right || n_left != json_string_length(a) ||
        n_right != json_string_length(b) || strchr(left, ' ') || strchr(right, ' '))
        return NULL;
    char *both = malloc(n_left + n_right + 2);
    if (both) {
        memcpy(both, left, n_left);
        both[n_left] = ' ';
        memcpy(both + n_left + 1, right, n_right + 1);
    }
    return both;
}

static int read_merges(struct hf_reader *r, const struct hf_at *model)
{
    struct tokenizer_data *t = r->t;
    struct hf_at merges = hf_at_get(model, "merges");
    if (!json_is_array(merges.v))
        return hf_at_expected(&merges, "an array", r->e);
    size_t n = json_array_size(merges.v);
    if (n > META_MAX_MERGES)
        return err_set(r->e, ERR_LIMIT, "%s: expected at most %d, found %zu", merges.where,
                       META_MAX_MERGES, n);
    t->merges = calloc(n + 1, sizeof *t->merges);
    if (!t->merges)
        return no_memory(r);
    for (size_t i = 0; i < n; i++) {
        char *text = merge_text(json_array_get(merges.v, i));
        if (!text || strlen(text) > META_TOKEN_BYTES) {
            free(text);
            return err_set(r->e, ERR_FORMAT,
                           "%s[%zu]: expected two parts of at most %d bytes without spaces in them",
                           merges.where, i, META_TOKEN_BYTES);
        }
        t->merges[t->n_merges++] = text;
    }
    return 0;
}

static int read_affix(struct hf_reader *r, const struct hf_at *model, const char *key, char *out,
                      size_t cap)
{
    const char *text = "";
    int rc = hf_at_text(model, key, &text, r->e);
    if (rc)
        return rc;
    if (strlen(text) >= cap)
        return err_set(r->e, ERR_FORMAT, "%s.%s: expected at most %zu bytes", model->where, key,
                       cap - 1);
    strcpy(out, text);
    return 0;
}

static int read_unk(struct hf_reader *r, const struct hf_at *model, const char *text)
{
    if (!text)
        return 0;
    int64_t id = hf_token_id(r, text);
    if (id < 0)
        return err_set(r->e, ERR_FORMAT, "%s.unk_token: \"%.64s\" is not in the vocabulary",
                       model->where, text);
    r->t->unk = (int32_t)id;
    return 0;
}

static int read_flag(struct hf_reader *r, const struct hf_at *model, const char *key, uint8_t flag)
{
    bool on = false;
    int rc = hf_at_bool(model, key, &on, r->e);
    if (on)
        r->t->flags |= flag;
    return rc;
}

static int read_bpe(struct hf_reader *r, const struct hf_at *model)
{
    static const char *const KEYS[] = {"type",
                                       "dropout",
                                       "unk_token",
                                       "continuing_subword_prefix",
                                       "fuse_unk",
                                       "byte_fallback",
                                       "ignore_merges",
                                       "end_of_word_suffix",
                                       "vocab",
                                       "merges",
                                       NULL};
    struct tokenizer_data *t = r->t;
    const char *unk = NULL;
    struct hf_at dropout = hf_at_get(model, "dropout");
    int rc = hf_at_only(model, KEYS, r->e);
    if (!rc && dropout.v && json_number_value(dropout.v) != 0)
        rc = err_set(r->e, ERR_FORMAT, "%s: is not supported", dropout.where);
    if (!rc)
        rc = read_flag(r, model, "fuse_unk", TOK_FUSE_UNK);
    if (!rc)
        rc = read_flag(r, model, "byte_fallback", TOK_BYTE_FALLBACK);
    if (!rc)
        rc = read_flag(r, model, "ignore_merges", TOK_IGNORE_MERGES);
    if (!rc)
        rc = read_affix(r, model, "continuing_subword_prefix", t->word_start, sizeof t->word_start);
    if (!rc)
        rc = read_affix(r, model, "end_of_word_suffix", t->word_end, sizeof t->word_end);
    if (!rc)
        rc = read_vocab(r, model);
    if (!rc)
        rc = read_merges(r, model);
    if (!rc)
        rc = hf_at_text(model, "unk_token", &unk, r->e);
    return rc ? rc : read_unk(r, model, unk);
}

static int read_word_piece(struct hf_reader *r, const struct hf_at *model)
{
    static const char *const KEYS[] = {
        "type",  "unk_token", "continuing_subword_prefix", "max_input_chars_per_word",
        "vocab", NULL};
    struct tokenizer_data *t = r->t;
    const char *unk = "[UNK]";
    strcpy(t->word_start, "##");
    t->max_word_chars = MAX_WORD_CHARS;
    int rc = hf_at_only(model, KEYS, r->e);
    if (!rc)
        rc = read_affix(r, model, "continuing_subword_prefix", t->word_start, sizeof t->word_start);
    if (!rc)
        rc = hf_at_u32(model, "max_input_chars_per_word", &t->max_word_chars, r->e);
    if (!rc)
        rc = read_vocab(r, model);
    if (!rc)
        rc = hf_at_text(model, "unk_token", &unk, r->e);
    return rc ? rc : read_unk(r, model, unk);
}

/* [["text", log probability], …]: the id is the place. */
static int read_pieces(struct hf_reader *r, const struct hf_at *model)
{
    struct hf_at vocab = hf_at_get(model, "vocab");
    size_t n = json_array_size(vocab.v);
    if (!json_is_array(vocab.v))
        return hf_at_expected(&vocab, "an array", r->e);
    if (n > META_MAX_VOCAB)
        return err_set(r->e, ERR_LIMIT, "%s: expected at most %d tokens, found %zu", vocab.where,
                       META_MAX_VOCAB, n);
    r->t->scores = calloc(n + 1, sizeof *r->t->scores);
    if (!r->t->scores)
        return no_memory(r);
    for (size_t i = 0; i < n; i++) {
        struct hf_at item = hf_at_item(&vocab, i);
        const json_t *text = json_array_get(item.v, 0), *score = json_array_get(item.v, 1);
        if (json_array_size(item.v) != 2 || !json_is_string(text) || !json_is_number(score))
            return hf_at_expected(&item, "a text and a number", r->e);
        const char *s = json_string_value(text);
        if (!s[0])
            return err_set(r->e, ERR_FORMAT, "%s: a token without text, or with U+0000",
                           item.where);
        if (hf_token_id(r, s) >= 0)
            return err_set(r->e, ERR_FORMAT, "%s: tokens %" PRId64 " and %zu are both \"%.64s\"",
                           item.where, hf_token_id(r, s), i, s);
        bool byte = (r->t->flags & TOK_BYTE_FALLBACK) && is_byte_name(s);
        int rc = put_token(r, &item, s, json_string_length(text), (json_int_t)i,
                           byte ? TOKEN_BYTE : TOKEN_NORMAL);
        if (rc)
            return rc;
        r->t->scores[i] = json_number_value(score);
        if (!isfinite(r->t->scores[i]))
            return err_set(r->e, ERR_FORMAT, "%s: its score is no finite number", item.where);
    }
    return 0;
}

static int read_unigram(struct hf_reader *r, const struct hf_at *model)
{
    static const char *const KEYS[] = {"type", "unk_id", "vocab", "byte_fallback", NULL};
    uint32_t unk = UINT32_MAX;
    int rc = hf_at_only(model, KEYS, r->e);
    if (!rc)
        rc = read_flag(r, model, "byte_fallback", TOK_BYTE_FALLBACK);
    if (!rc)
        rc = read_pieces(r, model);
    if (!rc)
        rc = hf_at_u32(model, "unk_id", &unk, r->e);
    if (rc)
        return rc;
    if (unk >= r->t->n_tokens)
        return err_set(r->e, ERR_FORMAT, "%s.unk_id: expected an id below %" PRIu32, model->where,
                       r->t->n_tokens);
    r->t->unk = (int32_t)unk;
    return 0;
}

int hf_read_model(struct hf_reader *r)
{
    struct hf_at model = hf_at_get(&r->top, "model");
    const char *type = NULL;
    if (!json_is_object(model.v))
        return hf_at_expected(&model, "an object", r->e);
    int rc = hf_at_text(&model, "type", &type, r->e);
    if (rc)
        return rc;
    if (!type) /* older files: what is in it tells */
        type = hf_at_get(&model, "merges").v                     ? "BPE"
               : json_is_array(hf_at_get(&model, "vocab").v)     ? "Unigram"
               : hf_at_get(&model, "max_input_chars_per_word").v ? "WordPiece"
                                                                 : "without a type";
    static const struct {
        const char *type, *name;
        int (*read)(struct hf_reader *r, const struct hf_at *model);
    } MODELS[] = {{"BPE", "bpe", read_bpe},
                  {"Unigram", "unigram", read_unigram},
                  {"WordPiece", "wordpiece", read_word_piece}};
    for (size_t i = 0; i < sizeof MODELS / sizeof MODELS[0]; i++)
        if (strcmp(type, MODELS[i].type) == 0) {
            strcpy(r->t->model, MODELS[i].name);
            return MODELS[i].read(r, &model);
        }
    return hf_at_refuse(&model, "the type", type, r->e);
}

/* ---- added tokens ---- */

static int read_added_flags(struct hf_reader *r, const struct hf_at *at, uint8_t *flags,
                            bool *special)
{
    static const struct {
        const char *key;
        uint8_t flag;
    } FLAGS[] = {{"lstrip", ADDED_LSTRIP},
                 {"rstrip", ADDED_RSTRIP},
                 {"single_word", ADDED_SINGLE_WORD},
                 {"normalized", ADDED_NORMALIZED}};
    int rc = hf_at_bool(at, "special", special, r->e);
    for (size_t i = 0; i < sizeof FLAGS / sizeof FLAGS[0] && !rc; i++) {
        bool on = false;
        rc = hf_at_bool(at, FLAGS[i].key, &on, r->e);
        *flags |= on ? FLAGS[i].flag : 0;
    }
    return rc;
}

/* One of them, if it is of the kind asked for: the reference seeks special ones before others. */
static int read_added_token(struct hf_reader *r, const struct hf_at *at, bool want_special)
{
    struct tokenizer_data *t = r->t;
    const char *text = NULL;
    uint32_t id = UINT32_MAX;
    uint8_t flags = 0;
    bool special = false;
    if (!json_is_object(at->v))
        return hf_at_expected(at, "an object", r->e);
    int rc = hf_at_text(at, "content", &text, r->e);
    if (!rc)
        rc = hf_at_u32(at, "id", &id, r->e);
    if (!rc)
        rc = read_added_flags(r, at, &flags, &special);
    if (rc || special != want_special)
        return rc;
    if (!text || !text[0])
        return err_set(r->e, ERR_FORMAT, "%s: an added token without text", at->where);
    int64_t have = hf_token_id(r, text);
    if (have >= 0 && have != id)
        return err_set(r->e, ERR_FORMAT,
                       "%s: \"%.64s\" has id %" PRIu32 ", and %" PRId64 " in the vocabulary",
                       at->where, text, id, have);
    if (have >= 0 && (t->types[id] == TOKEN_CONTROL || t->types[id] == TOKEN_USER_DEFINED))
        return err_set(r->e, ERR_FORMAT, "%s: \"%.64s\" is added twice", at->where, text);
    if (have < 0)
        rc = put_token(r, at, text, strlen(text), id, TOKEN_NORMAL);
    if (rc)
        return rc;
    t->types[id] = special ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
    flags |= have >= 0 ? ADDED_IN_VOCAB : 0;
    t->added[t->n_added++] = (struct added_token){id, flags};
    return 0;
}

/* Scores of tokens that the model does not know: nothing asks for them. */
static int pad_scores(struct hf_reader *r, uint32_t before)
{
    struct tokenizer_data *t = r->t;
    if (!t->scores)
        return 0;
    double *scores = realloc(t->scores, ((size_t)t->n_tokens + 1) * sizeof *scores);
    if (!scores)
        return no_memory(r);
    t->scores = scores;
    double highest = before ? scores[0] : 0;
    for (uint32_t i = 0; i < before; i++)
        highest = scores[i] > highest ? scores[i] : highest;
    for (uint32_t i = before; i < t->n_tokens; i++)
        scores[i] = highest; /* never the lowest, which the score of unknown text hangs on */
    return 0;
}

int hf_read_added(struct hf_reader *r)
{
    struct hf_at list = hf_at_get(&r->top, "added_tokens");
    uint32_t before = r->t->n_tokens;
    size_t n = json_array_size(list.v);
    if (list.v && !json_is_array(list.v))
        return hf_at_expected(&list, "an array", r->e);
    if (n > META_MAX_VOCAB)
        return err_set(r->e, ERR_LIMIT, "%s: expected at most %d, found %zu", list.where,
                       META_MAX_VOCAB, n);
    r->t->added = calloc(n + 1, sizeof *r->t->added);
    if (!r->t->added)
        return no_memory(r);
    int rc = 0;
    for (int special = 1; special >= 0; special--)
        for (size_t i = 0; i < n && !rc; i++) {
            struct hf_at item = hf_at_item(&list, i);
            rc = read_added_token(r, &item, special);
        }
    return rc ? rc : pad_scores(r, before);
}
