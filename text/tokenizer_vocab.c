/* tokenizer_vocab.c - the tables that the models walk: names, vocabulary, merges, trie, added tokens. */
#include "text/tokenizer_internal.h"

#include "text/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(const struct tokenizer *t, struct err *e)
{
    return err_set(e, ERR_NOMEM, "tokenizer: out of memory for %u tokens", t->n_tokens);
}

int tokenizer_build_names(struct tokenizer *t, const struct tokenizer_data *d,
                          struct vocab_map *names, struct err *e)
{
    size_t total = 0;
    for (uint32_t id = 0; id < d->n_tokens; id++)
        total += strlen(d->tokens[id]);
    if (total > META_MAX_BYTES)
        return err_set(e, ERR_FORMAT, "tokenizer: %zu bytes of token texts", total);
    t->types = malloc(d->n_tokens);
    t->names = calloc(total + 1, 1);
    t->name_at = calloc(d->n_tokens, sizeof *t->name_at);
    if (!t->types || !t->names || !t->name_at || vocab_map_init(names, d->n_tokens, t->names))
        return no_memory(t, e);
    uint32_t at = 0;
    for (uint32_t id = 0; id < d->n_tokens; id++) {
        uint32_t n = (uint32_t)strlen(d->tokens[id]);
        t->types[id] = d->types ? d->types[id] : TOKEN_NORMAL;
        memcpy(t->names + at, d->tokens[id], n);
        if (utf8_check(t->names + at, n) != n)
            return err_set(e, ERR_FORMAT, "tokenizer: token %u is not valid UTF-8", id);
        t->name_at[id] = (struct token_text){at, n};
        uint32_t other = n ? vocab_map_add(names, at, n, id) : VOCAB_NONE;
        if (other != VOCAB_NONE)
            return err_set(e, ERR_FORMAT, "tokenizer: tokens %u and %u are both \"%.64s\"", other,
                           id, d->tokens[id]);
        at += n;
    }
    return 0;
}

bool tokenizer_in_vocab(const struct tokenizer_data *d, uint32_t id)
{
    uint8_t type = d->types ? d->types[id] : TOKEN_NORMAL;
    bool unigram = strcmp(d->model, "unigram") == 0 || strcmp(d->model, "t5") == 0;
    if (unigram && (int64_t)id == d->unk)
        return true; /* any letter that it lacks makes the unknown token, too */
    if (type == TOKEN_CONTROL || type == TOKEN_UNKNOWN)
        return false;
    /* Unused tokens of SentencePiece's vocabularies are pieces; elsewhere they fill up a table. */
    if (type == TOKEN_UNUSED)
        return strcmp(d->model, "llama") == 0 || strcmp(d->model, "t5") == 0;
    return type != TOKEN_USER_DEFINED || strcmp(d->model, "gpt2") != 0;
}

/* ---- the vocabulary ---- */

/* Added tokens that only the list of added ones has are nothing to the model. */
static void mark_added_only(const struct tokenizer_data *d, uint8_t *skip)
{
    for (uint32_t i = 0; i < d->n_added; i++)
        if (!(d->added[i].flags & ADDED_IN_VOCAB))
            skip[d->added[i].id] = 1;
}

static void fill_byte_ids(struct tokenizer *t)
{
    for (unsigned b = 0; b < 256; b++) {
        char name[8] = {(char)b};
        if (t->raw_bytes) {
            t->byte_id[b] = vocab_map_find(&t->vocab, name, 1);
        } else {
            snprintf(name, sizeof name, "<0x%02X>", b);
            t->byte_id[b] = vocab_map_find(&t->vocab, name, 6);
        }
    }
}

/* Raw bytes are looked for where the decoded texts lie, names where those do. */
static int fill_vocab(struct tokenizer *t, const struct tokenizer_data *d, struct err *e)
{
    uint8_t *skip = calloc(t->n_tokens, 1);
    if (!skip || vocab_map_init(&t->vocab, t->n_tokens, t->raw_bytes ? t->blob : t->names)) {
        free(skip);
        return no_memory(t, e);
    }
    mark_added_only(d, skip);
    char *scratch = malloc(META_TOKEN_BYTES);
    for (uint32_t id = 0; id < t->n_tokens && scratch; id++) {
        struct token_text text = t->raw_bytes ? t->texts[id] : t->name_at[id];
        size_t n = 0;
        if (skip[id] || text.n == 0 || !tokenizer_in_vocab(d, id))
            continue;
        if (t->raw_bytes &&
            (t->name_at[id].n > META_TOKEN_BYTES ||
             !alphabet_decode(t->names + t->name_at[id].at, t->name_at[id].n, scratch, &n)))
            continue; /* no piece is ever written so */
        if (t->raw_bytes && (n != text.n || memcmp(scratch, t->blob + text.at, n) != 0))
            continue; /* its decoders write something else */
        vocab_map_add(&t->vocab, text.at, text.n, id);
        if (text.n > t->longest)
            t->longest = text.n;
    }
    bool failed = !scratch;
    free(scratch);
    free(skip);
    if (failed)
        return no_memory(t, e);
    fill_byte_ids(t);
    return 0;
}

/* ---- merges ---- */

static int add_merge(struct tokenizer *t, const struct vocab_map *names, const char *text,
                     uint32_t rank, char *both, struct err *e)
{
    size_t len = strlen(text), n_start = strlen(t->word_start);
    const char *space = strchr(text, ' ');
    if (!space || space == text || !space[1] || strchr(space + 1, ' '))
        return err_set(e, ERR_FORMAT, "tokenizer: merge %u is \"%.64s\", expected two parts", rank,
                       text);
    size_t n_left = (size_t)(space - text), n_right = len - n_left - 1;
    const char *rest = space + 1;
    uint32_t left = vocab_map_find(names, text, n_left);
    uint32_t right = vocab_map_find(names, rest, n_right);
    if (n_start && n_right >= n_start && memcmp(rest, t->word_start, n_start) == 0) {
        rest += n_start;
        n_right -= n_start;
    } else if (n_start) {
        return err_set(e, ERR_FORMAT,
                       "tokenizer: merge %u (\"%.64s\"): no \"%s\" before its right part", rank,
                       text, t->word_start);
    }
    memcpy(both, text, n_left);
    memcpy(both + n_left, rest, n_right);
    uint32_t id = vocab_map_find(names, both, n_left + n_right);
    if (left == VOCAB_NONE || right == VOCAB_NONE || id == VOCAB_NONE)
        return err_set(e, ERR_FORMAT, "tokenizer: merge %u (\"%.64s\"): %s is no token", rank, text,
                       left == VOCAB_NONE    ? "the left part"
                       : right == VOCAB_NONE ? "the right part"
                                             : "the result");
    /* What users write must never become a control token. */
    if (t->types[id] == TOKEN_CONTROL)
        return err_set(e, ERR_FORMAT, "tokenizer: merge %u (\"%.64s\") makes a control token", rank,
                       text);
    bpe_table_add(&t->merges, (struct bpe_rule){left, right, rank, id});
    t->rank_id[rank] = id;
    return 0;
}

static int fill_merges(struct tokenizer *t, const struct tokenizer_data *d,
                       const struct vocab_map *names, struct err *e)
{
    size_t longest = 0;
    for (uint32_t i = 0; i < d->n_merges; i++)
        longest = strlen(d->merges[i]) > longest ? strlen(d->merges[i]) : longest;
    char *both = malloc(longest + 1);
    t->rank_id = calloc((size_t)d->n_merges + 1, sizeof *t->rank_id);
    if (!both || !t->rank_id || bpe_table_init(&t->merges, d->n_merges)) {
        free(both);
        return err_set(e, ERR_NOMEM, "tokenizer: out of memory for %u merges", d->n_merges);
    }
    int rc = 0;
    for (uint32_t i = 0; i < d->n_merges && rc == 0; i++)
        rc = add_merge(t, names, d->merges[i], i, both, e);
    free(both);
    return rc;
}

/* ---- "llama": SentencePiece's BPE, where the score of what a merge makes is its rank ---- */

struct scored {
    double score;
    uint32_t id;
};

static int by_score(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Every way to cut the token in two: counted, or with `add` put into the table. */
static size_t split_token(struct tokenizer *t, uint32_t id, uint32_t rank, bool add)
{
    struct token_text name = t->name_at[id];
    const char *p = t->names + name.at;
    size_t n = 0, len;
    for (size_t i = 0; i < name.n; i += len) {
        uint32_t cp;
        len = utf8_next(p + i, &cp);
        if (i == 0)
            continue;
        n++;
        uint32_t left = add ? vocab_map_find(&t->vocab, p, i) : VOCAB_NONE;
        uint32_t right = add ? vocab_map_find(&t->vocab, p + i, name.n - i) : VOCAB_NONE;
        if (left != VOCAB_NONE && right != VOCAB_NONE)
            bpe_table_add(&t->merges, (struct bpe_rule){left, right, rank, id});
    }
    return n;
}

static bool is_split(const struct tokenizer *t, uint32_t id)
{
    struct token_text name = t->name_at[id];
    return t->types[id] != TOKEN_BYTE && name.n <= TOKENIZER_MAX_PIECE_BYTES &&
           vocab_map_find(&t->vocab, t->names + name.at, name.n) == id;
}

static int fill_scored_merges(struct tokenizer *t, const struct tokenizer_data *d, struct err *e)
{
    if (!d->scores)
        return err_set(e, ERR_FORMAT, "tokenizer model \"%.31s\": neither merges nor scores",
                       d->model);
    struct scored *order = malloc(t->n_tokens * sizeof *order);
    t->rank_id = calloc((size_t)t->n_tokens + 1, sizeof *t->rank_id);
    size_t n = 0, n_rules = 0;
    for (uint32_t id = 0; order && id < t->n_tokens; id++)
        if (is_split(t, id)) {
            order[n++] = (struct scored){d->scores[id], id};
            n_rules += split_token(t, id, 0, false);
        }
    if (!order || !t->rank_id || bpe_table_init(&t->merges, n_rules)) {
        free(order);
        return no_memory(t, e);
    }
    qsort(order, n, sizeof *order, by_score);
    for (size_t rank = 0; rank < n; rank++) {
        t->rank_id[rank] = order[rank].id;
        split_token(t, order[rank].id, (uint32_t)rank, true);
    }
    free(order);
    return 0;
}

/* ---- tokens that a piece of their own bytes always becomes ---- */

static void find_one_rule(struct tokenizer *t, size_t n_ranks, uint8_t *made)
{
    t->one_rule = true;
    for (size_t i = 0; i < n_ranks && t->one_rule; i++)
        t->one_rule = !made[t->rank_id[i]]++;
    memset(made, 0, t->n_tokens);
}

static int fill_whole(struct tokenizer *t, size_t n_ranks, struct err *e)
{
    t->whole = calloc(t->n_tokens, 1);
    if (!t->whole)
        return no_memory(t, e);
    find_one_rule(t, n_ranks, t->whole);
    if (t->flags & TOK_IGNORE_MERGES) {
        memset(t->whole, 1, t->n_tokens);
        return 0;
    }
    if (!t->raw_bytes)
        return 0;
    struct token_vec ids = {0};
    struct encoder en = {.t = t, .out = &ids, .limit = SIZE_MAX, .e = e};
    int rc = 0;
    for (uint32_t id = 0; id < t->n_tokens && !rc; id++) {
        struct token_text text = t->texts[id];
        if (text.n == 0 || text.n > TOKENIZER_MAX_PIECE_BYTES ||
            vocab_map_find(&t->vocab, t->blob + text.at, text.n) != id)
            continue;
        ids.n = 0;
        rc = bpe_encode(&en, t->blob + text.at, text.n);
        t->whole[id] = ids.n == 1 && ids.ids[0] == id;
    }
    bpe_scratch_fini(&en.scratch);
    token_vec_fini(&ids);
    return rc;
}

/* ---- unigram and WordPiece ---- */

static int fill_trie(struct tokenizer *t, const struct tokenizer_data *d, struct err *e)
{
    size_t total = strlen(t->word_start);
    for (uint32_t id = 0; id < t->n_tokens; id++)
        total += t->name_at[id].n;
    int rc = trie_init(&t->trie, total, e);
    if (rc)
        return rc;
    for (uint32_t id = 0; id < t->n_tokens; id++) {
        struct token_text name = t->name_at[id];
        if (!name.n || vocab_map_find(&t->vocab, t->names + name.at, name.n) != id)
            continue;
        if (name.n > TOKENIZER_MAX_PIECE_BYTES)
            return err_set(e, ERR_LIMIT, "tokenizer: token %u is %u bytes, at most %d", id, name.n,
                           TOKENIZER_MAX_PIECE_BYTES);
        rc = trie_add(&t->trie, t->names + name.at, name.n, id, e);
        if (rc)
            return rc;
    }
    t->inner_node = trie_walk(&t->trie, t->word_start, strlen(t->word_start));
    if (t->kind != TOKENIZER_UNIGRAM)
        return 0;
    t->scores = malloc(t->n_tokens * sizeof *t->scores);
    if (!t->scores)
        return no_memory(t, e);
    double lowest = INFINITY;
    for (uint32_t id = 0; id < t->n_tokens; id++) {
        t->scores[id] = d->scores[id];
        lowest = t->scores[id] < lowest ? t->scores[id] : lowest;
    }
    t->unk_score = lowest - 10; /* SentencePiece's kUnkPenalty */
    return 0;
}

int tokenizer_build_model(struct tokenizer *t, const struct tokenizer_data *d,
                          const struct vocab_map *names, struct err *e)
{
    int rc = fill_vocab(t, d, e);
    if (rc)
        return rc;
    if (t->kind != TOKENIZER_BPE)
        return fill_trie(t, d, e);
    bool scored = strcmp(d->model, "llama") == 0 && d->n_merges == 0;
    rc = scored ? fill_scored_merges(t, d, e) : fill_merges(t, d, names, e);
    /* By scores many merges make one token, all of one rank. */
    return rc ? rc : fill_whole(t, scored ? 0 : d->n_merges, e);
}

/* ---- added tokens ---- */

static int check_added(const struct tokenizer *t, uint32_t id, struct err *e)
{
    if (t->name_at[id].n > TOKENIZER_MAX_SPECIAL_BYTES)
        return err_set(e, ERR_FORMAT, "tokenizer: special token %u is %u bytes, at most %d", id,
                       t->name_at[id].n, TOKENIZER_MAX_SPECIAL_BYTES);
    return 0;
}

int tokenizer_normalize_name(const struct tokenizer *t, uint32_t id, struct buf *text,
                             struct buf *scratch, struct err *e)
{
    struct pattern_run run = {.text_bytes = t->name_at[id].n};
    int rc = 0;
    buf_reset(text);
    buf_put(text, t->names + t->name_at[id].at, t->name_at[id].n);
    for (size_t i = 0; i < t->n_normalizers && rc == 0; i++) {
        size_t head = 0;
        buf_reset(scratch);
        rc = normalize(&t->normalizers[i], &run, (const char *)text->data, text->len, scratch,
                       &head, e);
        struct buf swap = *text;
        *text = *scratch;
        *scratch = swap;
    }
    pattern_run_fini(&run);
    if (!rc && text->len == 0)
        rc = err_set(e, ERR_FORMAT,
                     "tokenizer: nothing is left of added token %u when it is normalised", id);
    return rc;
}

static int put_added(struct tokenizer *t, struct added_token a, struct buf *text,
                     struct buf *scratch, struct err *e)
{
    struct added_entry entry = {a.id, a.flags,
                                t->types[a.id] == TOKEN_CONTROL || t->types[a.id] == TOKEN_UNKNOWN};
    struct token_text name = t->name_at[a.id];
    if (name.n == 0)
        return 0;
    int rc = check_added(t, a.id, e);
    if (rc)
        return rc;
    if (!(a.flags & ADDED_NORMALIZED) || t->n_normalizers == 0) {
        struct added_set *set = a.flags & ADDED_NORMALIZED ? &t->added_normalized : &t->added_plain;
        return added_put(set, t->names + name.at, name.n, entry, e);
    }
    rc = tokenizer_normalize_name(t, a.id, text, scratch, e);
    if (!rc)
        rc = added_put(&t->added_normalized, (const char *)text->data, text->len, entry, e);
    return rc;
}

/* Without a list: control, unknown and user-defined tokens, as a GGUF file marks them. */
static int fill_added(struct tokenizer *t, const struct tokenizer_data *d, struct err *e)
{
    struct buf text, scratch;
    buf_init(&text, META_TOKEN_BYTES);
    buf_init(&scratch, META_TOKEN_BYTES);
    int rc = 0;
    for (uint32_t i = 0; i < d->n_added && !rc; i++)
        rc = put_added(t, d->added[i], &text, &scratch, e);
    for (uint32_t id = 0; !d->n_added && id < t->n_tokens && !rc; id++)
        if (t->types[id] == TOKEN_CONTROL || t->types[id] == TOKEN_USER_DEFINED ||
            t->types[id] == TOKEN_UNKNOWN)
            rc = put_added(t, (struct added_token){.id = id}, &text, &scratch, e);
    buf_fini(&text);
    buf_fini(&scratch);
    return rc;
}

int tokenizer_build_added(struct tokenizer *t, const struct tokenizer_data *d, struct err *e)
{
    size_t n = d->n_added, bytes = 0;
    for (uint32_t id = 0; id < t->n_tokens; id++)
        if (d->n_added == 0 && t->types[id] != TOKEN_NORMAL) {
            n++;
            bytes += t->name_at[id].n;
        }
    for (uint32_t i = 0; i < d->n_added; i++)
        bytes += t->name_at[d->added[i].id].n;
    int rc = added_init(&t->added_plain, n, bytes, e);
    if (!rc)
        rc = added_init(&t->added_normalized, n, bytes, e);
    return rc ? rc : fill_added(t, d, e);
}
