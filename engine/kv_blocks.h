/* kv_blocks.h - which KV block belongs to whom: free list, reference counts, copy on write, and the prefix cache. Pure bookkeeping; the bytes are
 * the graph's. One thread. Everything is allocated at creation.
 *
 *   free       --kv_take-->        owned by one sequence (refs 1), being filled
 *   owned      --kv_publish-->     cached: full, its tokens known; others may find it (refs > 1) and nobody writes to it again
 *   any        --kv_release-->     refs 0: free if it was never published, else cached and idle: found again, or evicted, oldest first
 *
 * A cached block is named by (tenant, the block before it, its own tokens). "The block before" is a number that is given once and never
 * again, so by induction it stands for all tokens before. The table is keyed by SipHash-2-4 of that name under a key drawn for this process: nobody
 * outside can aim at a bucket; and a hit compares the whole name, so that not even a collision could serve wrong keys and values.
 */
#ifndef EXA_ENGINE_KV_BLOCKS_H
#define EXA_ENGINE_KV_BLOCKS_H

#include "base/err.h"
#include "engine/ops.h"

#include <stdbool.h>
#include <stdint.h>

enum { KV_NONE = UINT32_MAX };

struct kv_blocks;
struct kv_stats {
    uint32_t n_blocks, n_free, n_idle; /* idle: cached, nobody's; can be had like a free one */
    uint64_t n_looked_up, n_hits;      /* blocks asked for and found */
    uint64_t n_evicted, n_published;
};

/* cache: keep published blocks findable; false: kv_find finds nothing. */
int kv_blocks_create(struct kv_blocks **out, uint32_t n_blocks, bool cache, struct err *e);
void kv_blocks_destroy(struct kv_blocks *b);
uint64_t kv_blocks_memory(uint32_t n_blocks);
void kv_blocks_stats(const struct kv_blocks *b, struct kv_stats *s);

/* Blocks that kv_take can give: free and idle ones. */
uint32_t kv_available(const struct kv_blocks *b);
/* A block with one reference, contents undefined; KV_NONE: all are referenced. */
uint32_t kv_take(struct kv_blocks *b);
void kv_share(struct kv_blocks *b, uint32_t block); /* one reference more */
/* One reference less. Release a sequence's blocks from its last to its first: a block must not outlive, in the order of eviction, the
 * one before it, without which it cannot be found. */
void kv_release(struct kv_blocks *b, uint32_t block);
uint32_t kv_refs(const struct kv_blocks *b, uint32_t block);
/* May its one holder write to it? Not if others hold it or may find it. */
bool kv_is_own(const struct kv_blocks *b, uint32_t block);

/* The place in a chain of blocks: before the first one it is the tenant's root. */
struct kv_chain {
    uint32_t tenant;
    uint64_t parent; /* 0: none */
};
struct kv_chain kv_chain_root(uint32_t tenant);
/* The cached block behind `c` with these tokens [KV_BLOCK_TOKENS]: gets a reference, and c moves on. KV_NONE: none. */
uint32_t kv_find(struct kv_blocks *b, struct kv_chain *c, const uint32_t *tokens);
/* `block` is full of these tokens and finite: cache it behind c, and move c on. Returns the block to hold from now on: where the same
 * is cached already, that one takes its place (the same bits, by batch invariance) and the caller's reference moves over. */
uint32_t kv_publish(struct kv_blocks *b, uint32_t block, struct kv_chain *c,
                    const uint32_t *tokens);

#endif
