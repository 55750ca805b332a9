/* vocab_map.h - token bytes → id, for whole strings. Open addressing; immutable once filled. */
#ifndef EXA_TEXT_VOCAB_MAP_H
#define EXA_TEXT_VOCAB_MAP_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VOCAB_NONE UINT32_MAX

struct vocab_slot {
    uint32_t at, n; /* bytes in blob; n = 0: free */
    uint32_t id;
    uint32_t hash; /* upper half: saves most comparisons */
};
struct vocab_map {
    struct vocab_slot *slots; /* owned */
    size_t mask;
    uint64_t seed;    /* random, so that no file can be made to collide */
    const char *blob; /* not owned */
};

int vocab_map_init(struct vocab_map *m, size_t n_entries, const char *blob); /* 0 or ERR_NOMEM */
void vocab_map_fini(struct vocab_map *m);
/* The bytes blob[at .. at + n) mean id, n > 0. The id that was there before (which stays), or VOCAB_NONE. */
uint32_t vocab_map_add(struct vocab_map *m, uint32_t at, uint32_t n, uint32_t id);
uint32_t vocab_map_find(const struct vocab_map *m, const char *text, size_t n);

#endif
