/* tokenizer_steps.c - the steps of a file become normalizers and operations on pieces.
 *
 * "gpt2" without steps (GGUF) stands for those of its pre-tokenizer's name.
 */
#include "text/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

enum { OPS_A_STEP = 3 }; /* most operations that one step becomes */

static char *dup_bytes(const char *p, size_t n)
{
    char *copy = malloc(n + 1);
    if (copy) {
        if (n)
            memcpy(copy, p, n);
        copy[n] = 0;
    }
    return copy;
}

static int add_step(struct tokenizer *t, struct tok_step s, struct err *e)
{
    const char *text = s.text, *to = s.to;
    s.text = dup_bytes(text, s.n_text);
    s.to = dup_bytes(to, s.n_to);
    if (!s.text || !s.to) {
        free(s.text);
        free(s.to);
        return err_set(e, ERR_NOMEM, "tokenizer: out of memory for its steps");
    }
    t->steps[t->n_steps++] = s;
    return 0;
}

/* The steps that tokenizer.ggml.pre stands for. */
static int add_preset(struct tokenizer *t, const struct tokenizer_data *d, struct err *e)
{
    const struct pretok_preset *preset = pretok_preset(d->pre);
    if (!preset)
        return err_set(e, ERR_FORMAT,
                       "pre-tokenizer \"%.31s\" is not supported (gpt-2, smollm, llama-bpe, qwen2, "
                       "tekken, gpt-4o, deepseek-v3 and others are)",
                       d->pre);
    if (preset->ignore_merges)
        t->flags |= TOK_IGNORE_MERGES;
    int rc = 0;
    if (preset->digits)
        rc = add_step(t, (struct tok_step){.kind = TOK_DIGITS, .flags = TOK_SPLIT}, e);
    for (size_t i = 0; i < 3 && preset->expression[i] && !rc; i++) {
        const char *text = preset->expression[i];
        struct tok_step s = {.kind = TOK_SPLIT_AT,
                             .flags = TOK_REGEX,
                             .arg = TOK_ISOLATED,
                             .n_text = (uint32_t)strlen(text),
                             .text = (char *)text};
        rc = add_step(t, s, e);
    }
    if (!rc)
        rc = add_step(t, (struct tok_step){.kind = TOK_BYTE_LEVEL}, e);
    return rc ? rc : add_step(t, (struct tok_step){.kind = TOK_DEC_BYTE_LEVEL}, e);
}

static int copy_steps(struct tokenizer *t, const struct tokenizer_data *d, struct err *e)
{
    enum { PRESET_STEPS = 8 };
    if (d->n_steps > TOK_MAX_STEPS)
        return err_set(e, ERR_FORMAT, "tokenizer: %u steps, at most %d", d->n_steps, TOK_MAX_STEPS);
    t->steps = calloc(d->n_steps + PRESET_STEPS, sizeof *t->steps);
    if (!t->steps)
        return err_set(e, ERR_NOMEM, "tokenizer: out of memory for its steps");
    if (strcmp(d->model, "gpt2") == 0 && d->n_steps == 0)
        return add_preset(t, d, e);
    int rc = 0;
    for (uint32_t i = 0; i < d->n_steps && !rc; i++)
        rc = add_step(t, d->steps[i], e);
    return rc;
}

static int add_normalizer(struct tokenizer *t, const struct tok_step *s, struct err *e)
{
    struct normalizer *n = &t->normalizers[t->n_normalizers++];
    *n = (struct normalizer){
        .kind = s->kind, .flags = s->flags, .text = s->text, .n_text = s->n_text};
    if (s->kind == TOK_CHARSMAP)
        return charsmap_open(&n->charsmap, s->text, s->n_text, e);
    if (s->kind != TOK_REPLACE)
        return 0;
    n->text = s->to;
    n->n_text = s->n_to;
    return pattern_init(&n->pattern, s->text, s->n_text, !(s->flags & TOK_REGEX), e);
}

static struct piece_op *add_op(struct tokenizer *t, struct piece_op op)
{
    t->ops[t->n_ops] = op;
    return &t->ops[t->n_ops++];
}

static void split_at_set(struct tokenizer *t, enum unicode_set set, uint32_t behavior)
{
    add_op(t,
           (struct piece_op){.kind = OP_SPLIT, .arg = behavior, .matcher = MATCH_SET, .set = set});
}

static int split_at(struct tokenizer *t, const char *text, size_t n, bool literal, bool invert,
                    uint32_t behavior, struct err *e)
{
    struct piece_op *op =
        add_op(t, (struct piece_op){.kind = OP_SPLIT, .arg = behavior, .invert = invert});
    return pattern_init(&op->pattern, text, n, literal, e);
}

/* The letters of the alphabet need not be written when the model takes bytes as they are. */
static int add_byte_level(struct tokenizer *t, const struct tok_step *s, struct err *e)
{
    if (s->flags & TOK_PREFIX_SPACE)
        add_op(t, (struct piece_op){.kind = OP_PREFIX_SPACE});
    int rc = 0;
    if (s->flags & TOK_REGEX)
        rc = split_at(t, PRETOK_GPT2, strlen(PRETOK_GPT2), false, false, TOK_ISOLATED, e);
    if (!t->raw_bytes)
        add_op(t, (struct piece_op){.kind = OP_ALPHABET});
    return rc;
}

static int add_pre(struct tokenizer *t, const struct tok_step *s, struct err *e)
{
    switch (s->kind) {
    case TOK_BYTE_LEVEL:
        return add_byte_level(t, s, e);
    case TOK_METASPACE:
        add_op(t, (struct piece_op){
                      .kind = OP_METASPACE, .arg = s->arg, .text = s->text, .n_text = s->n_text});
        return s->flags & TOK_SPLIT
                   ? split_at(t, s->text, s->n_text, true, false, TOK_MERGED_NEXT, e)
                   : 0;
    case TOK_SPLIT_AT:
        return split_at(t, s->text, s->n_text, !(s->flags & TOK_REGEX), s->flags & TOK_INVERT,
                        s->arg, e);
    case TOK_DIGITS:
        split_at_set(t, SET_DIGIT, s->flags & TOK_SPLIT ? TOK_ISOLATED : TOK_CONTIGUOUS);
        return 0;
    case TOK_WHITESPACE:
        add_op(t,
               (struct piece_op){
                   .kind = OP_SPLIT, .arg = TOK_REMOVED, .matcher = MATCH_WORDS, .invert = true});
        return 0;
    case TOK_WHITESPACE_SPLIT:
        split_at_set(t, SET_SPACE, TOK_REMOVED);
        return 0;
    case TOK_PUNCTUATION:
        split_at_set(t, SET_PUNCT, s->arg);
        return 0;
    case TOK_BERT_SPLIT:
        split_at_set(t, SET_SPACE, TOK_REMOVED);
        split_at_set(t, SET_PUNCT, TOK_ISOLATED);
        return 0;
    }
    return err_set(e, ERR_FORMAT, "tokenizer: step %u is not known", s->kind);
}

/* Byte-level text, as the last thing before a model that knows nothing but merges and the only thing behind it: then its
 * vocabulary is turned into bytes, and the alphabet is left out. */
static bool takes_raw_bytes(const struct tokenizer *t)
{
    const struct tok_step *last = NULL;
    unsigned n = 0, n_decoders = 0, n_others = 0;
    for (uint32_t i = 0; i < t->n_steps; i++) {
        uint8_t kind = t->steps[i].kind;
        if (kind >= TOK_BYTE_LEVEL && kind < TOK_DEC_BYTE_LEVEL)
            last = &t->steps[i];
        n += kind == TOK_BYTE_LEVEL;
        n_decoders += kind == TOK_DEC_BYTE_LEVEL;
        n_others += kind > TOK_DEC_BYTE_LEVEL;
    }
    return t->kind == TOKENIZER_BPE && n == 1 && last->kind == TOK_BYTE_LEVEL && n_decoders == 1 &&
           n_others == 0 && !(t->flags & TOK_BYTE_FALLBACK) && !t->word_start[0] && !t->word_end[0];
}

int tokenizer_build_steps(struct tokenizer *t, const struct tokenizer_data *d, struct err *e)
{
    int rc = copy_steps(t, d, e);
    if (rc)
        return rc;
    t->raw_bytes = takes_raw_bytes(t);
    t->normalizers = calloc(t->n_steps + 1, sizeof *t->normalizers);
    t->ops = calloc((size_t)t->n_steps * OPS_A_STEP + 1, sizeof *t->ops);
    if (!t->normalizers || !t->ops)
        return err_set(e, ERR_NOMEM, "tokenizer: out of memory for its steps");
    for (uint32_t i = 0; i < t->n_steps && !rc; i++) {
        const struct tok_step *s = &t->steps[i];
        if (s->kind >= TOK_NFC && s->kind <= TOK_NMT)
            rc = add_normalizer(t, s, e);
        else if (s->kind < TOK_DEC_BYTE_LEVEL)
            rc = add_pre(t, s, e);
    }
    return rc;
}

void tokenizer_free_steps(struct tokenizer *t)
{
    for (size_t i = 0; i < t->n_normalizers; i++)
        pattern_fini(&t->normalizers[i].pattern);
    for (size_t i = 0; i < t->n_ops; i++)
        pattern_fini(&t->ops[i].pattern);
    for (uint32_t i = 0; i < t->n_steps; i++) {
        free(t->steps[i].text);
        free(t->steps[i].to);
    }
    free(t->normalizers);
    free(t->ops);
    free(t->steps);
}
