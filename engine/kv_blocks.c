/* kv_blocks.c - see kv_blocks.h. Lists and hash chains are indices into arrays: nothing is allocated after creation. */
#include "engine/kv_blocks.h"

#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "engine/siphash.h"

struct block {
    uint32_t refs;
    uint32_t next, prev; /* in the list of free or of idle blocks */
    uint32_t hash_next;  /* in its bucket */
    uint32_t bucket;
    uint32_t tenant;
    uint64_t id, parent; /* id 0: not cached */
    uint32_t tokens[KV_BLOCK_TOKENS];
};

struct list {
    uint32_t first, last, n;
};

struct kv_blocks {
    uint32_t n_blocks, n_buckets; /* a power of two */
    bool cache;
    uint64_t key[2], next_id;
    struct block *blocks;
    uint32_t *buckets;
    struct list free, idle; /* idle: the least recently used first */
    struct kv_stats stats;
};

static uint32_t bucket_count(uint32_t n_blocks)
{
    uint32_t n = 16;
    while (n < n_blocks && n < 1u << 31)
        n *= 2;
    return n;
}

uint64_t kv_blocks_memory(uint32_t n_blocks)
{
    return (uint64_t)n_blocks * sizeof(struct block) +
           (uint64_t)bucket_count(n_blocks) * sizeof(uint32_t);
}

/* --- lists ----------------------------------------------------------------------------------------------- */

static void list_append(struct kv_blocks *b, struct list *l, uint32_t i)
{
    b->blocks[i].next = KV_NONE;
    b->blocks[i].prev = l->last;
    if (l->last == KV_NONE)
        l->first = i;
    else
        b->blocks[l->last].next = i;
    l->last = i;
    l->n++;
}

static void list_prepend(struct kv_blocks *b, struct list *l, uint32_t i)
{
    b->blocks[i].prev = KV_NONE;
    b->blocks[i].next = l->first;
    if (l->first == KV_NONE)
        l->last = i;
    else
        b->blocks[l->first].prev = i;
    l->first = i;
    l->n++;
}

static void list_remove(struct kv_blocks *b, struct list *l, uint32_t i)
{
    struct block *k = &b->blocks[i];
    if (k->prev == KV_NONE)
        l->first = k->next;
    else
        b->blocks[k->prev].next = k->next;
    if (k->next == KV_NONE)
        l->last = k->prev;
    else
        b->blocks[k->next].prev = k->prev;
    l->n--;
}

/* --- life ------------------------------------------------------------------------------------------------ */

int kv_blocks_create(struct kv_blocks **out, uint32_t n_blocks, bool cache, struct err *e)
{
    struct kv_blocks *b = calloc(1, sizeof *b);
    if (b) {
        b->n_blocks = n_blocks;
        b->n_buckets = bucket_count(n_blocks);
        b->blocks = calloc(n_blocks, sizeof *b->blocks);
        b->buckets = malloc(b->n_buckets * sizeof *b->buckets);
    }
    if (!b || !b->blocks || !b->buckets) {
        kv_blocks_destroy(b);
        return err_set(e, ERR_NOMEM, "table of %u KV blocks: out of memory", n_blocks);
    }
    b->cache = cache;
    b->next_id = 1;
    random_bytes(b->key, sizeof b->key);
    memset(b->buckets, 0xff, b->n_buckets * sizeof *b->buckets);
    b->free = b->idle = (struct list){KV_NONE, KV_NONE, 0};
    for (uint32_t i = 0; i < n_blocks; i++)
        list_append(b, &b->free, i);
    *out = b;
    return 0;
}

void kv_blocks_destroy(struct kv_blocks *b)
{
    if (!b)
        return;
    free(b->blocks);
    free(b->buckets);
    free(b);
}

void kv_blocks_stats(const struct kv_blocks *b, struct kv_stats *s)
{
    *s = b->stats;
    s->n_blocks = b->n_blocks;
    s->n_free = b->free.n;
    s->n_idle = b->idle.n;
}

uint32_t kv_available(const struct kv_blocks *b)
{
    return b->free.n + b->idle.n;
}

/* --- the table of cached blocks -------------------------------------------------------------------------- */

static uint32_t bucket_of(const struct kv_blocks *b, const struct kv_chain *c,
                          const uint32_t *tokens)
{
    uint32_t words[3 + KV_BLOCK_TOKENS] = {c->tenant, (uint32_t)c->parent,
                                           (uint32_t)(c->parent >> 32)};
    memcpy(words + 3, tokens, KV_BLOCK_TOKENS * sizeof *tokens);
    return (uint32_t)siphash(b->key, words, 3 + KV_BLOCK_TOKENS) & (b->n_buckets - 1);
}

static uint32_t cached_find(const struct kv_blocks *b, uint32_t bucket, const struct kv_chain *c,
                            const uint32_t *tokens)
{
    for (uint32_t i = b->buckets[bucket]; i != KV_NONE; i = b->blocks[i].hash_next) {
        const struct block *k = &b->blocks[i];
        if (k->parent == c->parent && k->tenant == c->tenant &&
            !memcmp(k->tokens, tokens, sizeof k->tokens))
            return i;
    }
    return KV_NONE;
}

static void uncache(struct kv_blocks *b, uint32_t i)
{
    uint32_t *at = &b->buckets[b->blocks[i].bucket];
    while (*at != i)
        at = &b->blocks[*at].hash_next;
    *at = b->blocks[i].hash_next;
    b->blocks[i].id = 0;
}

/* --- references ------------------------------------------------------------------------------------------ */

uint32_t kv_take(struct kv_blocks *b)
{
    uint32_t i = b->free.first;
    if (i != KV_NONE) {
        list_remove(b, &b->free, i);
    } else if ((i = b->idle.first) != KV_NONE) {
        list_remove(b, &b->idle, i);
        uncache(b, i);
        b->stats.n_evicted++;
    } else {
        return KV_NONE;
    }
    b->blocks[i].refs = 1;
    return i;
}

void kv_share(struct kv_blocks *b, uint32_t block)
{
    struct block *k = &b->blocks[block];
    if (!k->refs++) {
        CHECK(k->id);
        list_remove(b, &b->idle, block);
    }
}

void kv_release(struct kv_blocks *b, uint32_t block)
{
    struct block *k = &b->blocks[block];
    CHECK(block < b->n_blocks && k->refs);
    if (--k->refs)
        return;
    if (k->id)
        list_append(b, &b->idle, block);
    else
        list_prepend(b, &b->free,
                     block); /* its memory is there already, that of the others may not be */
}

uint32_t kv_refs(const struct kv_blocks *b, uint32_t block)
{
    return b->blocks[block].refs;
}

bool kv_is_own(const struct kv_blocks *b, uint32_t block)
{
    return b->blocks[block].refs == 1 && !b->blocks[block].id;
}

/* --- the prefix cache ------------------------------------------------------------------------------------ */

struct kv_chain kv_chain_root(uint32_t tenant)
{
    return (struct kv_chain){.tenant = tenant};
}

uint32_t kv_find(struct kv_blocks *b, struct kv_chain *c, const uint32_t *tokens)
{
    if (!b->cache)
        return KV_NONE;
    b->stats.n_looked_up++;
    uint32_t i = cached_find(b, bucket_of(b, c, tokens), c, tokens);
    if (i == KV_NONE)
        return KV_NONE;
    b->stats.n_hits++;
    kv_share(b, i);
    c->parent = b->blocks[i].id;
    return i;
}

uint32_t kv_publish(struct kv_blocks *b, uint32_t block, struct kv_chain *c, const uint32_t *tokens)
{
    if (!b->cache)
        return block;
    struct block *k = &b->blocks[block];
    if (k->id) { /* shared from the one who published it */
        c->parent = k->id;
        return block;
    }
    uint32_t bucket = bucket_of(b, c, tokens), other = cached_find(b, bucket, c, tokens);
    if (other != KV_NONE) {
        kv_share(b, other);
        kv_release(b, block);
        c->parent = b->blocks[other].id;
        return other;
    }
    k->tenant = c->tenant;
    k->parent = c->parent;
    k->id = b->next_id++;
    memcpy(k->tokens, tokens, sizeof k->tokens);
    k->bucket = bucket;
    k->hash_next = b->buckets[bucket];
    b->buckets[bucket] = block;
    b->stats.n_published++;
    c->parent = k->id;
    return block;
}
