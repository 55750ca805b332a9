/* token_table.c - see token_table.h. */
#include "text/token_table.h"

#include "text/utf8.h"

#include <stdlib.h>
#include <string.h>

/* Characters of a plain token; 0 when it is not one. */
static uint32_t plain_chars(const uint8_t *p, size_t n)
{
    uint32_t chars = 0;
    for (size_t i = 0; i < n; chars++) {
        uint32_t cp;
        size_t len = utf8_decode((const char *)p + i, n - i, &cp);
        if (!len || cp < 0x20 || cp == '"' || cp == '\\')
            return 0;
        i += len;
    }
    return chars;
}

/* ---- tries ---- */

struct sorted {
    const struct token_table *t;
    uint32_t *ids; /* by bytes, then by id */
    uint32_t n;
};

static int token_order(const void *x, const void *y, void *ctx)
{
    const struct token_table *t = ctx;
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    size_t na, nb;
    const uint8_t *pa = token_table_get(t, a, &na), *pb = token_table_get(t, b, &nb);
    int c = memcmp(pa, pb, na < nb ? na : nb);
    if (c)
        return c;
    return na != nb ? (na > nb) - (na < nb) : (a > b) - (a < b);
}

static size_t common_bytes(const struct token_table *t, uint32_t a, uint32_t b)
{
    size_t na, nb, i = 0;
    const uint8_t *pa = token_table_get(t, a, &na), *pb = token_table_get(t, b, &nb);
    while (i < na && i < nb && pa[i] == pb[i])
        i++;
    return i;
}

/* Nodes that the sorted tokens need: each adds what it does not share with the one before. */
static uint32_t count_nodes(const struct sorted *s)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        size_t len;
        token_table_get(s->t, s->ids[i], &len);
        n += len - (i ? common_bytes(s->t, s->ids[i - 1], s->ids[i]) : 0);
    }
    return (uint32_t)n;
}

static void close_nodes(struct token_trie *r, const uint32_t *path, size_t from, size_t to)
{
    for (size_t d = to; d-- > from;) {
        struct token_trie_node *x = &r->nodes[path[d]];
        x->skip = r->n_nodes;
        if (d && r->nodes[path[d - 1]].max_chars < x->max_chars)
            r->nodes[path[d - 1]].max_chars = x->max_chars;
    }
}

static int trie_build(struct token_trie *r, const struct sorted *s, bool plain, struct err *e)
{
    uint32_t n = count_nodes(s);
    uint32_t *path = calloc(TOKEN_TABLE_MAX_TOKEN_BYTES + 1, sizeof *path);
    r->nodes = calloc(n ? n : 1, sizeof *r->nodes);
    r->ids = calloc(s->n ? s->n : 1, sizeof *r->ids);
    if (!r->nodes || !r->ids || !path) {
        free(path);
        return err_set(e, ERR_NOMEM, "token table: no memory for %u nodes", n);
    }
    size_t depth = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        size_t len, keep = i ? common_bytes(s->t, s->ids[i - 1], s->ids[i]) : 0;
        const uint8_t *bytes = token_table_get(s->t, s->ids[i], &len);
        close_nodes(r, path, keep, depth);
        for (depth = keep; depth < len; depth++) {
            path[depth] = r->n_nodes;
            r->nodes[r->n_nodes++] = (struct token_trie_node){
                .first = i, .depth = (uint16_t)(depth + 1), .byte = bytes[depth]};
        }
        struct token_trie_node *end = &r->nodes[path[len - 1]];
        uint32_t chars = plain ? plain_chars(bytes, len) : 0;
        end->max_chars = (uint8_t)(chars > 255 ? 255 : chars);
        end->n++;
        r->ids[r->n_ids++] = s->ids[i];
    }
    close_nodes(r, path, 0, depth);
    free(path);
    return 0;
}

/* ---- the table ---- */

static int copy_bytes(struct token_table *t, token_bytes_fn *bytes, const void *ctx, struct err *e)
{
    uint64_t total = 0;
    for (uint32_t id = 0; id < t->n_vocab; id++) {
        size_t n = 0;
        const char *p = bytes(ctx, id, &n);
        if (p && n <= TOKEN_TABLE_MAX_TOKEN_BYTES && !token_table_is_eog(t, id))
            total += n;
    }
    if (total > UINT32_MAX / 2)
        return err_set(e, ERR_LIMIT, "token table: the vocabulary has %llu bytes",
                       (unsigned long long)total);
    t->bytes = malloc(total ? total : 1);
    if (!t->bytes)
        return err_set(e, ERR_NOMEM, "token table: no memory for %llu bytes",
                       (unsigned long long)total);
    uint32_t at = 0;
    for (uint32_t id = 0; id < t->n_vocab; id++) {
        size_t n = 0;
        const char *p = bytes(ctx, id, &n);
        t->offsets[id] = at;
        if (!p || n > TOKEN_TABLE_MAX_TOKEN_BYTES || token_table_is_eog(t, id))
            continue;
        if (n)
            memcpy(t->bytes + at, p, n);
        at += (uint32_t)n;
        t->max_depth = n > t->max_depth ? (uint32_t)n : t->max_depth;
    }
    t->offsets[t->n_vocab] = at;
    return 0;
}

struct long_token {
    uint32_t chars, id;
};

static int long_order(const void *x, const void *y)
{
    const struct long_token *a = x, *b = y;
    if (a->chars != b->chars)
        return (a->chars > b->chars) - (a->chars < b->chars);
    return (a->id > b->id) - (a->id < b->id);
}

static int fill_plain_sets(struct token_table *t, struct err *e)
{
    struct long_token *many = malloc((t->plain.n_ids + 1) * sizeof *many);
    for (uint32_t i = 0; many && i < t->plain.n_ids; i++) {
        uint32_t id = t->plain.ids[i];
        size_t n;
        const uint8_t *p = token_table_get(t, id, &n);
        uint32_t chars = plain_chars(p, n);
        if (chars > t->plain_longest)
            t->plain_longest = chars;
        if (chars > TOKEN_TABLE_PLAIN_STEPS)
            many[t->n_long++] = (struct long_token){chars, id};
        else
            t->plain_upto[(size_t)chars * t->n_words + id / 32] |= 1u << (id % 32);
    }
    for (size_t i = t->n_words; i < (size_t)(TOKEN_TABLE_PLAIN_STEPS + 1) * t->n_words; i++)
        t->plain_upto[i] |= t->plain_upto[i - t->n_words];
    t->long_ids = calloc(t->n_long + 1, sizeof *t->long_ids);
    t->long_chars = calloc(t->n_long + 1, sizeof *t->long_chars);
    bool ok = many && t->long_ids && t->long_chars;
    if (ok)
        qsort(many, t->n_long, sizeof *many, long_order);
    for (uint32_t i = 0; ok && i < t->n_long; i++) {
        t->long_ids[i] = many[i].id;
        t->long_chars[i] = many[i].chars;
    }
    free(many);
    return ok ? 0 : err_set(e, ERR_NOMEM, "token table: no memory for %u tokens", t->n_vocab);
}

static int build_tries(struct token_table *t, struct err *e)
{
    struct sorted plain = {t, malloc((t->n_vocab + 1) * sizeof(uint32_t)), 0};
    struct sorted rest = {t, malloc((t->n_vocab + 1) * sizeof(uint32_t)), 0};
    int rc = 0;
    for (uint32_t id = 0; plain.ids && rest.ids && id < t->n_vocab; id++) {
        size_t n;
        const uint8_t *p = token_table_get(t, id, &n);
        if (n) {
            struct sorted *s = plain_chars(p, n) ? &plain : &rest;
            s->ids[s->n++] = id;
        }
    }
    if (!plain.ids || !rest.ids) {
        rc = err_set(e, ERR_NOMEM, "token table: no memory for %u tokens", t->n_vocab);
    } else {
        qsort_r(plain.ids, plain.n, sizeof(uint32_t), token_order, t);
        qsort_r(rest.ids, rest.n, sizeof(uint32_t), token_order, t);
        rc = trie_build(&t->plain, &plain, true, e);
        rc = rc ? rc : trie_build(&t->rest, &rest, false, e);
    }
    free(plain.ids);
    free(rest.ids);
    return rc;
}

static int table_alloc(struct token_table *t, uint32_t n_vocab, const uint32_t *eog_ids,
                       size_t n_eog, struct err *e)
{
    t->n_vocab = n_vocab;
    t->n_words = (n_vocab + 31) / 32;
    t->offsets = calloc((size_t)n_vocab + 1, sizeof *t->offsets);
    t->eog_ids = calloc(n_eog + 1, sizeof *t->eog_ids);
    t->plain_upto =
        calloc((size_t)(TOKEN_TABLE_PLAIN_STEPS + 1) * t->n_words, sizeof *t->plain_upto);
    if (!t->offsets || !t->eog_ids || !t->plain_upto)
        return err_set(e, ERR_NOMEM, "token table: no memory for %u tokens", n_vocab);
    for (size_t i = 0; i < n_eog; i++)
        if (eog_ids[i] < n_vocab)
            t->eog_ids[t->n_eog++] = eog_ids[i];
    return 0;
}

int token_table_create(struct token_table **out, uint32_t n_vocab, token_bytes_fn *bytes,
                       const void *ctx, const uint32_t *eog_ids, size_t n_eog, struct err *e)
{
    if (n_vocab == 0 || n_vocab > TOKEN_TABLE_MAX_VOCAB || n_eog > n_vocab)
        return err_set(e, ERR_LIMIT, "token table: %u tokens, %zu of them ends; 1 to %d expected",
                       n_vocab, n_eog, TOKEN_TABLE_MAX_VOCAB);
    struct token_table *t = calloc(1, sizeof *t);
    if (!t)
        return err_set(e, ERR_NOMEM, "token table: no memory");
    int rc = table_alloc(t, n_vocab, eog_ids, n_eog, e);
    rc = rc ? rc : copy_bytes(t, bytes, ctx, e);
    rc = rc ? rc : build_tries(t, e);
    rc = rc ? rc : fill_plain_sets(t, e);
    if (rc) {
        token_table_destroy(t);
        return rc;
    }
    *out = t;
    return 0;
}

struct array_source {
    const uint32_t *offsets;
    const char *bytes;
};

static const char *bytes_of_arrays(const void *ctx, uint32_t id, size_t *n)
{
    const struct array_source *a = ctx;
    *n = a->offsets[id + 1] - a->offsets[id];
    return a->bytes + a->offsets[id];
}

int token_table_from_arrays(struct token_table **out, uint32_t n_vocab, const uint32_t *offsets,
                            const void *bytes, const uint32_t *eog_ids, size_t n_eog, struct err *e)
{
    struct array_source a = {offsets, bytes};
    for (uint32_t i = 0; n_vocab <= TOKEN_TABLE_MAX_VOCAB && i < n_vocab; i++)
        if (offsets[i + 1] < offsets[i])
            return err_set(e, ERR_FORMAT, "token table: token %u ends before it begins", i);
    return token_table_create(out, n_vocab, bytes_of_arrays, &a, eog_ids, n_eog, e);
}

static const char *bytes_of_tokenizer(const void *ctx, uint32_t id, size_t *n)
{
    return tokenizer_bytes(ctx, id, false, n);
}

int token_table_from_tokenizer(struct token_table **out, const struct tokenizer *tok, struct err *e)
{
    size_t n = tokenizer_eog_ids(tok, NULL, 0);
    uint32_t *ids = calloc(n + 1, sizeof *ids);
    if (!ids)
        return err_set(e, ERR_NOMEM, "token table: no memory");
    tokenizer_eog_ids(tok, ids, n);
    int rc = token_table_create(out, tokenizer_vocab(tok), bytes_of_tokenizer, tok, ids, n, e);
    free(ids);
    return rc;
}

void token_table_destroy(struct token_table *t)
{
    if (!t)
        return;
    free(t->offsets);
    free(t->bytes);
    free(t->eog_ids);
    free(t->plain_upto);
    free(t->long_ids);
    free(t->long_chars);
    free(t->plain.nodes);
    free(t->plain.ids);
    free(t->rest.nodes);
    free(t->rest.ids);
    free(t);
}

static size_t trie_bytes(const struct token_trie *r)
{
    return r->n_nodes * sizeof *r->nodes + r->n_ids * sizeof *r->ids;
}

size_t token_table_bytes(const struct token_table *t)
{
    return sizeof *t + (t->n_vocab + 1 + t->n_eog + 2 * t->n_long) * sizeof(uint32_t) +
           t->offsets[t->n_vocab] +
           (size_t)(TOKEN_TABLE_PLAIN_STEPS + 1) * t->n_words * sizeof(uint32_t) +
           trie_bytes(&t->plain) + trie_bytes(&t->rest);
}

bool token_table_is_eog(const struct token_table *t, uint32_t id)
{
    for (uint32_t i = 0; i < t->n_eog; i++)
        if (t->eog_ids[i] == id)
            return true;
    return false;
}
