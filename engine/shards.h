/* shards.h - a process's place among the shards of its replica: the groups it talks in, and the columns of the image that are its own.
 *
 * shard = stage * tp + its place in the stage. Shard 0 takes requests (engine.h); the others do what it hands out (shards_follow).
 */
#ifndef EXA_ENGINE_SHARDS_H
#define EXA_ENGINE_SHARDS_H

#include "engine/coll.h"
#include "engine/graph.h"
#include "model/image_derived.h"
#include "wire/msg.h"

enum {
    /* Of any wait for another shard, also while that one loads. Only the last resort: workers end a gang when a member has ended, and an
     * engine that makes no step is killed long before. */
    SHARDS_DEADLINE_US = 600000000,
};

struct shards_config {
    uint32_t shard, n_shards; /* 0 or 1: the whole model in this process */
    uint32_t tp;              /* divides n_shards; 0: 1 */
    bool
        shared_memory; /* at CHANNEL_FD_SHARDS lies the segment of coll_shm.h, else a channel for coll_relay.h */
    struct shard_name name;
};

struct shards {
    struct coll *all, *tp; /* NULL: a whole model; tp 1 */
    struct coll_relay *relay;
    struct image_derived *columns;
    struct derived_part *parts;
    uint32_t n_parts;
};

static inline bool shards_is_one(const struct shards_config *c)
{
    return c->n_shards < 2;
}

/* ERR_CONFIG: numbers that do not fit together. s is zeroed by the caller; shards_close after any outcome. */
int shards_open(struct shards *s, const struct shards_config *c, struct err *e);
void shards_close(struct shards *s);
/* For graph_create and graph_memory. */
void shards_size(const struct shards *s, const struct shards_config *c, struct graph_size *size);
/* The columns of img that this shard needs come from a file of the node, made by whoever needs it first; afterwards img has them in
 * place of the whole tensors. path: of img. */
int shards_columns(struct shards *s, const struct shards_config *c, struct image *img,
                   const char *path, struct err *e);
/* All shards together: the KV blocks that each of them has room for. */
int shards_agree(struct shards *s, uint32_t *n_blocks, struct err *e);

#endif
