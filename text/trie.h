/* trie.h - byte strings → numbers, walked byte by byte: the longest or every entry that a text begins with.
 *
 * Nodes hang together by one hash table of (node, byte), so a step costs one probe whatever the fan-out. Immutable once
 * filled.
 */
#ifndef EXA_TEXT_TRIE_H
#define EXA_TEXT_TRIE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define TRIE_NONE UINT32_MAX

struct trie_slot {
    uint32_t key;  /* node << 8 | byte */
    uint32_t node; /* 0: free, for nothing leads to the root */
};
struct trie {
    struct trie_slot *slots; /* owned */
    uint32_t *values;        /* owned, by node; TRIE_NONE: no entry ends there */
    size_t mask;
    uint32_t n_nodes, cap_nodes;
    uint64_t seed;
};

enum { TRIE_ROOT = 0, TRIE_MAX_NODES = 1 << 24 };

/* n_bytes: of all entries together, to begin with. */
int trie_init(struct trie *t, size_t n_bytes, struct err *e);
void trie_fini(struct trie *t);
/* Of equal entries the last value stays. n > 0. ERR_LIMIT over TRIE_MAX_NODES, or ERR_NOMEM. */
int trie_add(struct trie *t, const char *text, size_t n, uint32_t value, struct err *e);
/* The node below `node`, or TRIE_NONE. */
uint32_t trie_step(const struct trie *t, uint32_t node, uint8_t byte);
/* The node that text[n] leads to from the root, or TRIE_NONE. */
uint32_t trie_walk(const struct trie *t, const char *text, size_t n);
/* Bytes of the longest entry that text[n] begins with, walking on from `node`; 0: none. */
size_t trie_longest(const struct trie *t, uint32_t node, const char *text, size_t n,
                    uint32_t *value);

#endif
