/* tokenizer_bpe.c - one piece by byte pair encoding: its first symbols, then merging. */
#include "text/tokenizer_internal.h"

#include "text/utf8.h"

#include <string.h>

enum { MAX_KEY = 64 }; /* a character between word_start and word_end */

/* The symbols of a piece in the making. An unknown character is held until what follows is known: fuse_unk. */
struct symbols {
    struct encoder *en;
    size_t n;
    bool unknown;
};

static void add(struct symbols *s, uint32_t id)
{
    s->en->scratch.symbols[s->n++].id = id;
}

static void add_known(struct symbols *s, uint32_t id)
{
    if (s->unknown)
        add(s, (uint32_t)s->en->t->unk);
    s->unknown = false;
    add(s, id);
}

static void add_unknown(struct symbols *s)
{
    const struct tokenizer *t = s->en->t;
    if (t->unk < 0)
        return; /* dropped, as the reference does: what is around it becomes neighbours */
    if (s->unknown && !(t->flags & TOK_FUSE_UNK))
        add(s, (uint32_t)t->unk);
    s->unknown = true;
}

/* byte_fallback: the tokens of the key's bytes, if all have one. Held unknowns stay held, as in the reference. */
static bool add_bytes(struct symbols *s, const char *key, size_t n)
{
    const struct tokenizer *t = s->en->t;
    if (!(t->flags & TOK_BYTE_FALLBACK))
        return false;
    for (size_t i = 0; i < n; i++)
        if (t->byte_id[(uint8_t)key[i]] == VOCAB_NONE)
            return false;
    for (size_t i = 0; i < n; i++)
        add(s, t->byte_id[(uint8_t)key[i]]);
    return true;
}

static void add_char(struct symbols *s, const char *c, size_t len, bool first, bool last)
{
    const struct tokenizer *t = s->en->t;
    char key[MAX_KEY];
    size_t n = 0;
    if (!first && t->word_start[0]) {
        n = strlen(t->word_start);
        memcpy(key, t->word_start, n);
    }
    memcpy(key + n, c, len);
    n += len;
    if (last && t->word_end[0]) {
        memcpy(key + n, t->word_end, strlen(t->word_end));
        n += strlen(t->word_end);
    }
    uint32_t id = vocab_map_find(&t->vocab, key, n);
    if (id != VOCAB_NONE)
        add_known(s, id);
    else if (!add_bytes(s, key, n))
        add_unknown(s);
}

static void add_all(struct symbols *s, const char *p, size_t n)
{
    const struct tokenizer *t = s->en->t;
    if (t->raw_bytes) {
        for (size_t i = 0; i < n; i++) {
            uint32_t id = t->byte_id[(uint8_t)p[i]];
            if (id != VOCAB_NONE)
                add_known(s, id);
            else
                add_unknown(s);
        }
    } else {
        for (size_t i = 0, len; i < n; i += len) {
            uint32_t cp;
            len = utf8_next(p + i, &cp);
            add_char(s, p + i, len, i == 0, i + len == n);
        }
    }
    if (s->unknown)
        add(s, (uint32_t)t->unk);
}

/* A piece of bytes that all have tokens, short enough to do without a heap. 1: done. */
static int encode_short(struct encoder *en, const char *p, size_t n)
{
    const struct tokenizer *t = en->t;
    uint32_t ids[BPE_SHORT];
    for (size_t i = 0; i < n; i++) {
        ids[i] = t->byte_id[(uint8_t)p[i]];
        if (ids[i] == VOCAB_NONE)
            return 0;
    }
    n = bpe_merge_short(&t->merges, ids, n);
    for (size_t i = 0; i < n; i++) {
        int rc = encoder_emit(en, ids[i]);
        if (rc)
            return rc;
    }
    return 1;
}

int bpe_encode(struct encoder *en, const char *p, size_t n)
{
    const struct tokenizer *t = en->t;
    if (n <= t->longest) {
        uint32_t id = vocab_map_find(&t->vocab, p, n);
        if (id != VOCAB_NONE && t->whole[id])
            return encoder_emit(en, id);
    }
    if (t->raw_bytes && t->one_rule && n <= BPE_SHORT) {
        int rc = encode_short(en, p, n);
        if (rc)
            return rc < 0 ? rc : 0;
    }
    /* A character is at most one symbol a byte of its key. */
    size_t most = t->raw_bytes ? n + 1 : n + 1 + strlen(t->word_end) + n * strlen(t->word_start);
    if (most > BPE_MAX_PIECE)
        return err_set(en->e, ERR_LIMIT, "tokenizer: one piece of %zu bytes", n);
    if (bpe_scratch_reserve(&en->scratch, most))
        return err_set(en->e, ERR_NOMEM, "tokenizer: out of memory for a piece of %zu bytes", n);
    struct symbols s = {.en = en};
    add_all(&s, p, n);
    if (s.n == 0)
        return 0;
    bpe_merge(&t->merges, t->rank_id, &en->scratch, s.n);
    for (uint32_t i = 0; i != BPE_NONE; i = en->scratch.symbols[i].next) {
        int rc = encoder_emit(en, en->scratch.symbols[i].id);
        if (rc)
            return rc;
    }
    return 0;
}
