/* constraint.c - see constraint.h. */
#include "engine/constraint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(CONSTRAINT_JSON_OBJECT == 1 + (int)GRAMMAR_JSON_OBJECT &&
                   CONSTRAINT_JSON_SCHEMA == 1 + (int)GRAMMAR_JSON_SCHEMA &&
                   CONSTRAINT_REGEX == 1 + (int)GRAMMAR_REGEX &&
                   CONSTRAINT_CHOICE == 1 + (int)GRAMMAR_CHOICE &&
                   CONSTRAINT_GBNF == 1 + (int)GRAMMAR_GBNF,
               "kinds of the wire are those of text/, NONE before them");

struct constraint_entry {
    enum constraint_kind kind; /* CONSTRAINT_NONE: the entry is free */
    char *source;              /* owned, [n_source] */
    size_t n_source;
    struct grammar *grammar;
    struct grammar_masks *masks;
    uint32_t n_users;
    uint64_t used; /* order of last use */
};

struct constraints {
    struct token_table *tokens; /* NULL: the model has none that text/ knows */
    struct err why;             /* … and what it says */
    uint32_t *mask;             /* [n_words] */
    uint64_t clock;
    struct constraint_entry entries[CONSTRAINT_MAX_ENTRIES];
};

static int tokens_make(struct constraints *c, const struct model_meta *meta, struct err *e)
{
    struct tokenizer *tok;
    if (!meta->tok.n_tokens)
        return err_set(e, ERR_CONFIG, "it has no tokenizer");
    int rc = tokenizer_create(&tok, &meta->tok, e);
    if (rc)
        return rc;
    rc = token_table_from_tokenizer(&c->tokens, tok, e);
    tokenizer_destroy(tok);
    if (rc)
        return rc;
    c->mask = calloc(c->tokens->n_words, sizeof *c->mask);
    return c->mask ? 0 : err_set(e, ERR_NOMEM, "out of memory for token masks");
}

int constraints_create(struct constraints **out, const struct model_meta *meta, struct err *e)
{
    struct constraints *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, ERR_NOMEM, "out of memory for constraints");
    int rc = tokens_make(c, meta, &c->why);
    if (rc == ERR_NOMEM) {
        err_set(e, rc, "%s", c->why.text);
        constraints_destroy(c);
        return rc;
    }
    *out = c;
    return 0;
}

static void entry_fini(struct constraint_entry *entry)
{
    grammar_masks_destroy(entry->masks);
    grammar_unref(entry->grammar);
    free(entry->source);
    *entry = (struct constraint_entry){0};
}

void constraints_destroy(struct constraints *c)
{
    if (!c)
        return;
    for (int i = 0; i < CONSTRAINT_MAX_ENTRIES; i++)
        entry_fini(&c->entries[i]);
    token_table_destroy(c->tokens);
    free(c->mask);
    free(c);
}

uint64_t constraints_bytes(const struct constraints *c)
{
    uint64_t n = sizeof *c;
    if (c->tokens)
        n += token_table_bytes(c->tokens) + c->tokens->n_words * sizeof *c->mask;
    for (int i = 0; i < CONSTRAINT_MAX_ENTRIES; i++) {
        const struct constraint_entry *entry = &c->entries[i];
        struct grammar_masks_stats stats;
        if (!entry->kind)
            continue;
        grammar_masks_stats(entry->masks, &stats);
        n += entry->n_source + grammar_bytes(entry->grammar) + stats.used_bytes;
    }
    return n;
}

uint64_t constraints_max_bytes(const struct model_meta *meta)
{
    /* a token table is a few words and a few trie nodes a token, and its sets by number of characters */
    uint64_t table = (uint64_t)meta->tok.n_tokens * (64 + TOKEN_TABLE_PLAIN_STEPS / 8 + 1);
    return table + CONSTRAINT_MAX_ENTRIES * (uint64_t)CONSTRAINT_MASKS_BYTES;
}

/* --- entries ---------------------------------------------------------------------------------------------- */

static bool is_of(const struct constraint_entry *entry, enum constraint_kind kind,
                  const char *source, size_t n)
{
    return entry->kind == kind && entry->n_source == n && (!n || !memcmp(entry->source, source, n));
}

/* A free place: one never used, or the one used longest ago by nobody who still runs. NULL: all are in use. */
static struct constraint_entry *place_find(struct constraints *c)
{
    struct constraint_entry *oldest = NULL;
    for (int i = 0; i < CONSTRAINT_MAX_ENTRIES; i++) {
        struct constraint_entry *entry = &c->entries[i];
        if (!entry->kind)
            return entry;
        if (!entry->n_users && (!oldest || entry->used < oldest->used))
            oldest = entry;
    }
    return oldest;
}

static int entry_make(struct constraints *c, struct constraint_entry *entry,
                      enum constraint_kind kind, const char *source, size_t n, struct err *e)
{
    struct constraint_entry made = {.kind = kind, .n_source = n, .source = malloc(n + 1)};
    if (!made.source)
        return err_set(e, ERR_NOMEM, "out of memory for a constraint");
    memcpy(made.source, source ? source : "", n);
    int rc = grammar_create(&made.grammar, (enum grammar_kind)(kind - 1), made.source, n, NULL, e);
    if (!rc)
        rc = grammar_masks_create(&made.masks, made.grammar, c->tokens, CONSTRAINT_MASKS_BYTES, e);
    if (rc) {
        entry_fini(&made);
        return rc;
    }
    entry_fini(entry);
    *entry = made;
    return 0;
}

int constraints_take(struct constraints *c, enum constraint_kind kind, const char *source, size_t n,
                     struct constraint_entry **out, struct err *e)
{
    struct constraint_entry *found = NULL;
    if (!c->tokens)
        return err_set(e, ERR_CONFIG, "this model's output cannot be constrained: %s", c->why.text);
    for (int i = 0; !found && i < CONSTRAINT_MAX_ENTRIES; i++)
        if (is_of(&c->entries[i], kind, source, n))
            found = &c->entries[i];
    if (!found) {
        found = place_find(c);
        if (!found)
            return err_set(e, ERR_AGAIN, "%d different constraints are in use",
                           CONSTRAINT_MAX_ENTRIES);
        int rc = entry_make(c, found, kind, source, n, e);
        if (rc)
            return rc;
    }
    found->n_users++;
    found->used = ++c->clock;
    *out = found;
    return 0;
}

void constraints_give(struct constraints *c, struct constraint_entry *entry)
{
    if (entry)
        entry->n_users--;
}

/* --- use -------------------------------------------------------------------------------------------------- */

void constraint_begin(const struct constraint_entry *entry, struct grammar_state *s)
{
    grammar_state_init(s, entry->grammar);
}

int constraint_accept(const struct constraints *c, struct grammar_state *s, uint32_t token,
                      struct err *e)
{
    return grammar_accept(s, c->tokens, token, e);
}

int constraint_apply(struct constraints *c, const struct constraint_entry *entry,
                     const struct grammar_state *s, float *logits, uint32_t n_vocab, struct err *e)
{
    uint32_t n = grammar_mask(entry->masks, s, c->mask);
    if (n == GRAMMAR_MASK_OVER)
        return err_set(
            e, ERR_LIMIT,
            "the constraint is too ambiguous here: its tokens take over %d bytes to find",
            CONSTRAINT_MASKS_BYTES);
    if (!n)
        return err_set(e, ERR_FORMAT, "the constraint leaves no token of this vocabulary");
    for (uint32_t w = 0; 32 * w < n_vocab; w++) {
        uint32_t may = w < c->tokens->n_words ? c->mask[w] : 0;
        uint32_t end = 32 * w + 32 < n_vocab ? 32 * w + 32 : n_vocab;
        if (may == UINT32_MAX)
            continue;
        for (uint32_t i = 32 * w; i < end; i++)
            logits[i] = may >> (i % 32) & 1 ? logits[i] : -INFINITY;
    }
    return 0;
}
