/* tokenizer_build.c - tokenizer_create(): check what a file says, and call for the parts. */
#include "text/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

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

static void fill_eog(struct tokenizer *t, const struct tokenizer_data *d,
                     const struct vocab_map *names)
{
    if (t->eos >= 0)
        add_eog(t, (uint32_t)t->eos);
    for (uint32_t i = 0; i < d->n_eog; i++)
        add_eog(t, d->eog[i]);
    for (size_t i = 0; i < sizeof EOG_NAMES / sizeof EOG_NAMES[0]; i++) {
        uint32_t id = vocab_map_find(names, EOG_NAMES[i], strlen(EOG_NAMES[i]));
        /* As ordinary text these names mean nothing ("</s>" is HTML). */
        if (id != VOCAB_NONE && t->types[id] != TOKEN_NORMAL)
            add_eog(t, id);
    }
}

static void fill_affixes(struct tokenizer *t, const struct tokenizer_data *d)
{
    t->n_prefix = d->n_prefix;
    t->n_suffix = d->n_suffix;
    memcpy(t->prefix, d->prefix, sizeof t->prefix);
    memcpy(t->suffix, d->suffix, sizeof t->suffix);
    if (!t->n_prefix && d->add_bos && t->bos >= 0)
        t->prefix[t->n_prefix++] = (uint32_t)t->bos;
    if (!t->n_suffix && d->add_eos && t->eos >= 0)
        t->suffix[t->n_suffix++] = (uint32_t)t->eos;
}

static int find_kind(struct tokenizer *t, const struct tokenizer_data *d, struct err *e)
{
    static const struct {
        const char *name;
        enum tokenizer_kind kind;
    } KINDS[] = {
        {"gpt2", TOKENIZER_BPE},       {"llama", TOKENIZER_BPE},
        {"bpe", TOKENIZER_BPE},        {"unigram", TOKENIZER_UNIGRAM},
        {"t5", TOKENIZER_UNIGRAM},     {"wordpiece", TOKENIZER_WORDPIECE},
        {"bert", TOKENIZER_WORDPIECE},
    };
    for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++)
        if (strcmp(d->model, KINDS[i].name) == 0) {
            t->kind = KINDS[i].kind;
            return 0;
        }
    return err_set(
        e, ERR_FORMAT,
        "tokenizer model \"%.31s\" is not supported (gpt2, llama, bpe, t5, unigram, bert, "
        "wordpiece are)",
        d->model);
}

static int check_ids(const struct tokenizer_data *d, struct err *e)
{
    if (d->n_tokens == 0 || d->n_tokens > META_MAX_VOCAB)
        return err_set(e, ERR_FORMAT, "tokenizer: %u tokens, expected 1 to %d", d->n_tokens,
                       META_MAX_VOCAB);
    if (d->bos >= (int64_t)d->n_tokens || d->eos >= (int64_t)d->n_tokens ||
        d->unk >= (int64_t)d->n_tokens)
        return err_set(e, ERR_FORMAT, "tokenizer: bos %d, eos %d or unk %d outside of %u tokens",
                       d->bos, d->eos, d->unk, d->n_tokens);
    const struct {
        const char *what;
        const uint32_t *ids;
        uint32_t n, max;
    } lists[] = {{"prefix", d->prefix, d->n_prefix, TOK_MAX_AFFIX},
                 {"suffix", d->suffix, d->n_suffix, TOK_MAX_AFFIX},
                 {"end of generation", d->eog, d->n_eog, TOK_MAX_EOG}};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        if (lists[i].n > lists[i].max)
            return err_set(e, ERR_FORMAT, "tokenizer: %u tokens of %s, at most %u", lists[i].n,
                           lists[i].what, lists[i].max);
        for (uint32_t k = 0; k < lists[i].n; k++)
            if (lists[i].ids[k] >= d->n_tokens)
                return err_set(e, ERR_FORMAT, "tokenizer: %s token %u is outside of %u tokens",
                               lists[i].what, lists[i].ids[k], d->n_tokens);
    }
    for (uint32_t i = 0; i < d->n_added; i++)
        if (d->added[i].id >= d->n_tokens)
            return err_set(e, ERR_FORMAT, "tokenizer: added token %u is outside of %u tokens",
                           d->added[i].id, d->n_tokens);
    return 0;
}

static int fill_options(struct tokenizer *t, const struct tokenizer_data *d, struct err *e)
{
    t->n_tokens = d->n_tokens;
    t->flags = d->flags;
    t->bos = d->bos < 0 ? -1 : d->bos;
    t->eos = d->eos < 0 ? -1 : d->eos;
    t->unk = d->unk < 0 ? -1 : d->unk;
    t->max_word_chars = d->max_word_chars;
    memcpy(t->word_start, d->word_start, sizeof t->word_start);
    memcpy(t->word_end, d->word_end, sizeof t->word_end);
    if (t->kind != TOKENIZER_BPE && t->unk < 0)
        return err_set(e, ERR_FORMAT, "tokenizer model \"%.31s\": no token for unknown text",
                       d->model);
    if (t->kind == TOKENIZER_UNIGRAM && !d->scores)
        return err_set(e, ERR_FORMAT, "tokenizer model \"%.31s\": no scores", d->model);
    /* A vocabulary of bytes has no unknown text; what it lacks is dropped (llama.cpp and GPT-2 agree). */
    if (strcmp(d->model, "gpt2") == 0)
        t->unk = -1;
    return 0;
}

static int build(struct tokenizer *t, const struct tokenizer_data *d, struct vocab_map *names,
                 struct err *e)
{
    int rc = check_ids(d, e);
    if (!rc)
        rc = find_kind(t, d, e);
    if (!rc)
        rc = fill_options(t, d, e);
    if (!rc)
        rc = tokenizer_build_steps(t, d, e);
    if (!rc)
        rc = tokenizer_build_names(t, d, names, e);
    if (!rc)
        rc = tokenizer_build_texts(t, d, e);
    if (!rc)
        rc = tokenizer_build_model(t, d, names, e);
    if (!rc)
        rc = tokenizer_build_added(t, d, e);
    if (rc)
        return rc;
    fill_eog(t, d, names);
    fill_affixes(t, d);
    return 0;
}

int tokenizer_create(struct tokenizer **out, const struct tokenizer_data *data, struct err *e)
{
    struct tokenizer *t = calloc(1, sizeof *t);
    if (!t)
        return err_set(e, ERR_NOMEM, "tokenizer: out of memory");
    struct vocab_map names = {0};
    int rc = build(t, data, &names, e);
    vocab_map_fini(&names);
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
    tokenizer_free_steps(t);
    added_fini(&t->added_plain);
    added_fini(&t->added_normalized);
    vocab_map_fini(&t->vocab);
    bpe_table_fini(&t->merges);
    trie_fini(&t->trie);
    free(t->rank_id);
    free(t->scores);
    free(t->whole);
    free(t->names);
    free(t->name_at);
    free(t->types);
    free(t->blob);
    free(t->texts);
    free(t->first);
    free(t);
}
