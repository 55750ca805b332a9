/* tokenizer_unigram.c - one piece by a unigram model (the most probable of all ways to cut it) or by WordPiece (the longest
 * token that fits, again and again).
 *
 * Source: Kudo, "Subword Regularization" (Viterbi over the pieces that a trie finds); Schuster and Nakajima for WordPiece. Sums are
 * doubles in the reference's order: ties go the same way.
 */
#include "text/tokenizer_internal.h"

#include "text/utf8.h"

#include <stdlib.h>

#define NO_PATH UINT32_MAX

bool encode_bytes(struct encoder *en, const char *p, size_t n, int *rc)
{
    const struct tokenizer *t = en->t;
    for (size_t i = 0; i < n; i++)
        if (t->byte_id[(uint8_t)p[i]] == VOCAB_NONE)
            return false;
    *rc = 0;
    for (size_t i = 0; i < n && *rc == 0; i++)
        *rc = encoder_emit(en, t->byte_id[(uint8_t)p[i]]);
    return true;
}

static void offer(struct unigram_node *node, double score, uint32_t from, uint32_t id)
{
    if (node->from == NO_PATH || score > node->score)
        *node = (struct unigram_node){score, from, id};
}

/* All entries that begin at `at` are offered where they end; the character alone as unknown, if no entry is just it. */
static void offer_entries(const struct tokenizer *t, struct unigram_node *nodes, const char *p,
                          size_t n, size_t at)
{
    uint32_t cp, node = TRIE_ROOT;
    size_t len = utf8_next(p + at, &cp);
    bool single = false;
    double till_here = nodes[at].score;
    for (size_t i = at; i < n; i++) {
        node = trie_step(&t->trie, node, (uint8_t)p[i]);
        if (node == TRIE_NONE)
            break;
        uint32_t id = t->trie.values[node];
        if (id == TRIE_NONE)
            continue;
        offer(&nodes[i + 1], t->scores[id] + till_here, (uint32_t)at, id);
        single = single || i + 1 - at == len;
    }
    if (!single)
        offer(&nodes[at + len], t->unk_score + till_here, (uint32_t)at, (uint32_t)t->unk);
}

/* A run of unknown characters: a token after all, or its bytes, or one unknown. */
static int emit_unknown(struct encoder *en, const char *p, size_t n)
{
    const struct tokenizer *t = en->t;
    uint32_t id = n <= t->longest ? vocab_map_find(&t->vocab, p, n) : VOCAB_NONE;
    int rc;
    if (id == VOCAB_NONE && (t->flags & TOK_BYTE_FALLBACK) && encode_bytes(en, p, n, &rc))
        return rc;
    return encoder_emit(en, id == VOCAB_NONE ? (uint32_t)t->unk : id);
}

int unigram_encode(struct encoder *en, const char *p, size_t n)
{
    const struct tokenizer *t = en->t;
    if (n + 1 > en->cap_nodes) {
        free(en->nodes);
        en->cap_nodes = n < 128 ? 256 : 2 * n;
        en->nodes = malloc(en->cap_nodes * sizeof *en->nodes);
        if (!en->nodes) {
            en->cap_nodes = 0;
            return err_set(en->e, ERR_NOMEM, "tokenizer: out of memory for a piece of %zu bytes",
                           n);
        }
    }
    struct unigram_node *nodes = en->nodes;
    for (size_t i = 0; i <= n; i++)
        nodes[i] = (struct unigram_node){0, NO_PATH, 0};
    for (size_t at = 0; at < n;) {
        uint32_t cp;
        offer_entries(t, nodes, p, n, at);
        at += utf8_next(p + at, &cp);
    }
    /* Turn the path round: a node says which piece begins there, and where that ends. */
    for (uint32_t at = (uint32_t)n, from, id, next = 0, next_id = 0; at > 0; at = from) {
        from = nodes[at].from;
        id = nodes[at].id;
        if (at < n)
            nodes[at] = (struct unigram_node){0, next, next_id};
        next = at;
        next_id = id;
        if (from == 0)
            nodes[0] = (struct unigram_node){0, next, next_id};
    }
    for (size_t at = 0; at < n;) {
        uint32_t id = nodes[at].id;
        size_t end = nodes[at].from;
        int rc;
        if (id == (uint32_t)t->unk) { /* neighbours become one */
            while (end < n && nodes[end].id == id)
                end = nodes[end].from;
            rc = emit_unknown(en, p + at, end - at);
        } else {
            rc = encoder_emit(en, id);
        }
        if (rc)
            return rc;
        at = end;
    }
    return 0;
}

int wordpiece_encode(struct encoder *en, const char *p, size_t n)
{
    const struct tokenizer *t = en->t;
    if (utf8_length(p, n) > t->max_word_chars)
        return encoder_emit(en, (uint32_t)t->unk);
    size_t had = en->out->n;
    for (size_t at = 0; at < n;) {
        uint32_t id = 0, node = at ? t->inner_node : TRIE_ROOT;
        size_t len = node == TRIE_NONE ? 0 : trie_longest(&t->trie, node, p + at, n - at, &id);
        if (!len) { /* the whole word is unknown */
            en->out->n = had;
            return encoder_emit(en, (uint32_t)t->unk);
        }
        int rc = encoder_emit(en, id);
        if (rc)
            return rc;
        at += len;
    }
    return 0;
}
