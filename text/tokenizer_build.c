/* tokenizer_build.c - tokenizer_create(): check a model's vocabulary and merges, and build the
 * tables that encoding walks. */
#include "text/tokenizer_internal.h"

#include "base/digest.h"
#include "text/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- token text → id, needed during creation only ---- */

struct text_map {
    uint32_t *slots; /* id + 1; 0: free */
    size_t mask;
    uint64_t seed; /* random, so that no file can be made to collide */
    char *const *texts;
};

static size_t text_hash(const struct text_map *m, const char *s, size_t n)
{
    uint64_t h = m->seed ^ n;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ (uint8_t)s[i]) * 0xD6E8FEB86659FD93u;
        h ^= h >> 32;
    }
    return (size_t)h;
}

static uint32_t *text_slot(const struct text_map *m, const char *s, size_t n)
{
    size_t i = text_hash(m, s, n) & m->mask;
    while (m->slots[i]) {
        const char *have = m->texts[m->slots[i] - 1];
        if (strncmp(have, s, n) == 0 && have[n] == 0)
            break;
        i = (i + 1) & m->mask;
    }
    return &m->slots[i];
}

static int map_tokens(struct text_map *m, const struct tokenizer_data *d, struct err *e)
{
    size_t n = 64;
    while (n < (size_t)d->n_tokens * 2)
        n *= 2;
    m->slots = calloc(n, sizeof *m->slots);
    if (!m->slots)
        return err_set(e, ERR_NOMEM, "tokenizer: out of memory for %u tokens", d->n_tokens);
    m->mask = n - 1;
    m->texts = d->tokens;
    random_bytes(&m->seed, sizeof m->seed);
    for (uint32_t id = 0; id < d->n_tokens; id++) {
        const char *text = d->tokens[id];
        size_t len = strlen(text);
        if (utf8_check(text, len) != len)
            return err_set(e, ERR_FORMAT, "tokenizer: token %u is not valid UTF-8", id);
        uint32_t *slot = text_slot(m, text, len);
        if (*slot)
            return err_set(e, ERR_FORMAT, "tokenizer: tokens %u and %u are both \"%.64s\"",
                           *slot - 1, id, text);
        *slot = id + 1;
    }
    return 0;
}

/* ---- the byte-level alphabet (GPT-2): printable Latin-1 stands for itself, the other bytes
 * follow from U+0100 ---- */

static bool is_own_letter(uint32_t byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

enum { ALPHABET_END = 0x144 }; /* one past the last code point of the alphabet */

struct alphabet {
    uint32_t of_byte[256];
    int16_t to_byte[ALPHABET_END]; /* -1: not in the alphabet */
};

static void alphabet_fill(struct alphabet *a)
{
    memset(a->to_byte, -1, sizeof a->to_byte);
    uint32_t next = 0x100;
    for (uint32_t b = 0; b < 256; b++) {
        a->of_byte[b] = is_own_letter(b) ? b : next++;
        a->to_byte[a->of_byte[b]] = (int16_t)b;
    }
}

/* Decode `text` into bytes; a token that uses other letters is kept as it is written. */
static size_t alphabet_decode(const struct alphabet *a, const char *text, char *out)
{
    size_t len = strlen(text), n = 0;
    for (size_t i = 0; i < len;) {
        uint32_t cp;
        i += utf8_next(text + i, &cp);
        if (cp >= ALPHABET_END || a->to_byte[cp] < 0) {
            memcpy(out, text, len);
            return len;
        }
        out[n++] = (char)a->to_byte[cp];
    }
    return n;
}

static bool is_written_out(uint8_t type)
{
    return type == TOKEN_CONTROL || type == TOKEN_USER_DEFINED || type == TOKEN_UNKNOWN;
}

static int fill_texts(struct tokenizer *t, const struct tokenizer_data *d, const struct alphabet *a,
                      struct err *e)
{
    size_t total = 0;
    for (uint32_t id = 0; id < d->n_tokens; id++)
        total += strlen(d->tokens[id]);
    if (total > UINT32_MAX)
        return err_set(e, ERR_FORMAT, "tokenizer: %zu bytes of token texts", total);
    t->texts = calloc(d->n_tokens, sizeof *t->texts);
    t->types = malloc(d->n_tokens);
    t->blob = malloc(total + 1);
    if (!t->texts || !t->types || !t->blob)
        return err_set(e, ERR_NOMEM, "tokenizer: out of memory for %u tokens", d->n_tokens);
    size_t at = 0;
    for (uint32_t id = 0; id < d->n_tokens; id++) {
        size_t n;
        t->types[id] = d->types ? d->types[id] : TOKEN_NORMAL;
        if (is_written_out(t->types[id])) {
            n = strlen(d->tokens[id]);
            memcpy(t->blob + at, d->tokens[id], n);
        } else {
            n = alphabet_decode(a, d->tokens[id], t->blob + at);
        }
        t->texts[id] = (struct token_text){(uint32_t)at, (uint32_t)n};
        at += n;
    }
    t->blob_bytes = at;
    return 0;
}

static void fill_bytes(struct tokenizer *t, const struct text_map *map, const struct alphabet *a)
{
    for (uint32_t b = 0; b < 256; b++) {
        char letter[4];
        size_t n = utf8_encode(a->of_byte[b], letter);
        uint32_t slot = *text_slot(map, letter, n);
        bool plain = slot && !is_written_out(t->types[slot - 1]);
        t->byte_id[b] = plain ? slot - 1 : BPE_NONE;
    }
}

/* ---- merges ---- */

static int add_merge(struct tokenizer *t, const struct text_map *map, const char *text,
                     uint32_t rank, char *both, struct err *e)
{
    size_t len = strlen(text);
    const char *space = strchr(text, ' ');
    if (!space || space == text || !space[1] || strchr(space + 1, ' '))
        return err_set(e, ERR_FORMAT, "tokenizer: merge %u is \"%.64s\", expected two parts", rank,
                       text);
    size_t n_left = (size_t)(space - text), n_right = len - n_left - 1;
    memcpy(both, text, n_left);
    memcpy(both + n_left, space + 1, n_right);
    uint32_t left = *text_slot(map, text, n_left);
    uint32_t right = *text_slot(map, space + 1, n_right);
    uint32_t id = *text_slot(map, both, n_left + n_right);
    if (!left || !right || !id)
        return err_set(e, ERR_FORMAT, "tokenizer: merge %u (\"%.64s\"): %s is no token", rank, text,
                       !left    ? "the left part"
                       : !right ? "the right part"
                                : "the result");
    /* What users write must never become a control token. */
    if (t->types[id - 1] == TOKEN_CONTROL)
        return err_set(e, ERR_FORMAT, "tokenizer: merge %u (\"%.64s\") makes a control token", rank,
                       text);
    bpe_table_add(&t->merges, (struct bpe_rule){left - 1, right - 1, rank, id - 1});
    return 0;
}

static int fill_merges(struct tokenizer *t, const struct tokenizer_data *d,
                       const struct text_map *map, struct err *e)
{
    size_t longest = 0;
    for (uint32_t i = 0; i < d->n_merges; i++)
        longest = strlen(d->merges[i]) > longest ? strlen(d->merges[i]) : longest;
    char *both = malloc(longest + 1);
    if (!both || bpe_table_init(&t->merges, d->n_merges)) {
        free(both);
        return err_set(e, ERR_NOMEM, "tokenizer: out of memory for %u merges", d->n_merges);
    }
    int rc = 0;
    for (uint32_t i = 0; i < d->n_merges && rc == 0; i++)
        rc = add_merge(t, map, d->merges[i], i, both, e);
    free(both);
    return rc;
}

/* ---- special tokens ---- */

static uint32_t special_child(struct tokenizer *t, uint32_t *list, uint8_t byte)
{
    for (uint32_t i = *list; i; i = t->special[i].sibling)
        if (t->special[i].byte == byte)
            return i;
    uint32_t made = t->n_special++;
    t->special[made] = (struct special_node){.sibling = *list, .id = -1, .byte = byte};
    *list = made;
    return made;
}

static int fill_special(struct tokenizer *t, struct err *e)
{
    size_t nodes = 1;
    for (uint32_t id = 0; id < t->n_tokens; id++) {
        if (t->types[id] != TOKEN_CONTROL && t->types[id] != TOKEN_USER_DEFINED)
            continue;
        if (t->texts[id].n > TOKENIZER_MAX_SPECIAL_BYTES)
            return err_set(e, ERR_FORMAT, "tokenizer: special token %u is %u bytes, at most %d", id,
                           t->texts[id].n, TOKENIZER_MAX_SPECIAL_BYTES);
        nodes += t->texts[id].n;
    }
    t->special = calloc(nodes, sizeof *t->special);
    if (!t->special)
        return err_set(e, ERR_NOMEM, "tokenizer: out of memory for special tokens");
    t->n_special = 1;
    for (uint32_t id = 0; id < t->n_tokens; id++) {
        struct token_text text = t->texts[id];
        if ((t->types[id] != TOKEN_CONTROL && t->types[id] != TOKEN_USER_DEFINED) || !text.n)
            continue;
        const char *p = t->blob + text.at;
        uint32_t at = special_child(t, &t->special_root[(uint8_t)p[0]], (uint8_t)p[0]);
        for (uint32_t i = 1; i < text.n; i++)
            at = special_child(t, &t->special[at].child, (uint8_t)p[i]);
        t->special[at].id = (int32_t)id;
    }
    return 0;
}

/* Names under which published vocabularies carry tokens that end a turn or a text (the list that
 * llama.cpp recognises, fill-in-the-middle ends included: a text after them is not part of the
 * answer). */
static const char *const EOG_NAMES[] = {
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|eot|>",
    "<|eos|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|endofturn|>",
    "<|end_of_turn|>",
    "<|end_of_role|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<eos>",
    "</s>",
    "<EOT>",
    "_<EOT>",
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
};

static void add_eog(struct tokenizer *t, uint32_t id)
{
    if (!tokenizer_is_eog(t, id) && t->n_eog < TOKENIZER_MAX_EOG)
        t->eog[t->n_eog++] = id;
}

static void fill_eog(struct tokenizer *t, const struct text_map *map)
{
    if (t->eos >= 0)
        add_eog(t, (uint32_t)t->eos);
    for (size_t i = 0; i < sizeof EOG_NAMES / sizeof EOG_NAMES[0]; i++) {
        uint32_t slot = *text_slot(map, EOG_NAMES[i], strlen(EOG_NAMES[i]));
        /* As ordinary text these names mean nothing ("</s>" is HTML). */
        if (slot && t->types[slot - 1] != TOKEN_NORMAL)
            add_eog(t, slot - 1);
    }
}

static int check_data(const struct tokenizer_data *d, enum pretok *pre, struct err *e)
{
    if (strcmp(d->model, "gpt2") != 0)
        return err_set(e, ERR_FORMAT, "tokenizer model \"%.31s\" is not supported (gpt2 is)",
                       d->model);
    if (!pretok_find(d->pre, pre))
        return err_set(e, ERR_FORMAT,
                       "pre-tokenizer \"%.31s\" is not supported (smollm, gpt-2, default are)",
                       d->pre);
    if (d->n_tokens == 0 || d->n_tokens > META_MAX_VOCAB)
        return err_set(e, ERR_FORMAT, "tokenizer: %u tokens, expected 1 to %d", d->n_tokens,
                       META_MAX_VOCAB);
    if (d->bos >= (int64_t)d->n_tokens || d->eos >= (int64_t)d->n_tokens)
        return err_set(e, ERR_FORMAT, "tokenizer: bos %d or eos %d outside of %u tokens", d->bos,
                       d->eos, d->n_tokens);
    return 0;
}

static int build(struct tokenizer *t, const struct tokenizer_data *d, struct text_map *map,
                 struct err *e)
{
    struct alphabet alphabet;
    alphabet_fill(&alphabet);
    int rc = map_tokens(map, d, e);
    if (rc == 0)
        rc = fill_texts(t, d, &alphabet, e);
    if (rc == 0)
        rc = fill_merges(t, d, map, e);
    if (rc == 0)
        rc = fill_special(t, e);
    if (rc)
        return rc;
    fill_bytes(t, map, &alphabet);
    fill_eog(t, map);
    return 0;
}

int tokenizer_create(struct tokenizer **out, const struct tokenizer_data *data, struct err *e)
{
    enum pretok pre = PRETOK_GPT2;
    int rc = check_data(data, &pre, e);
    if (rc)
        return rc;
    struct tokenizer *t = calloc(1, sizeof *t);
    if (!t)
        return err_set(e, ERR_NOMEM, "tokenizer: out of memory");
    t->pre = pre;
    t->n_tokens = data->n_tokens;
    t->bos = data->bos < 0 ? -1 : data->bos;
    t->eos = data->eos < 0 ? -1 : data->eos;
    t->add_bos = data->add_bos;
    t->add_eos = data->add_eos;
    struct text_map map = {0};
    rc = build(t, data, &map, e);
    free(map.slots);
    if (rc) {
        tokenizer_destroy(t);
        return rc;
    }
    *out = t;
    return 0;
}

void tokenizer_destroy(struct tokenizer *t)
{
    if (!t)
        return;
    free(t->texts);
    free(t->types);
    free(t->blob);
    free(t->special);
    bpe_table_fini(&t->merges);
    free(t);
}
