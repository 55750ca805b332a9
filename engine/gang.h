/* gang.h - the shards of one replica step together: shard 0 plans and says what it does, the others do the same on their part.
 *
 * What is said: forward passes (rows and the block tables they need), copies of KV blocks, resets of pools, "still here" while there is
 * nothing to do (so that a wait for the next word has the same deadline as every other), and the end. A gang of one says nothing.
 * Everything is allocated at creation. After an error the gang is over: shards agree on nothing any more, their workers start them again.
 */
#ifndef EXA_ENGINE_GANG_H
#define EXA_ENGINE_GANG_H

#include "engine/coll.h"
#include "engine/graph.h"

struct gang;

/* all: the group of all shards, borrowed; NULL: a gang of one. size: as the graph's. */
int gang_create(struct gang **out, struct graph *g, struct coll *all, const struct graph_size *size,
                uint32_t n_vocab, struct err *e);
void gang_destroy(struct gang *g);
uint64_t gang_bytes(const struct graph_size *size); /* what creation takes */

/* Every shard can hold `mine` KV blocks or more of its own; the least is what all use. Before the graph is made. */
int gang_agree_blocks(struct coll *all, uint32_t mine, uint32_t *least, struct err *e);

/* --- shard 0 ---------------------------------------------------------------------------------------------- */
int gang_forward(struct gang *g, const struct step *s, struct err *e);
int gang_kv_copy(struct gang *g, uint32_t from_block, uint32_t to_block, struct err *e);
int gang_pool_reset(struct gang *g, uint32_t seq, struct err *e);
int gang_idle(struct gang *g,
              struct err *e); /* call at least every GANG_IDLE_US while nothing else is said */
int gang_end(struct gang *g, struct err *e);
enum { GANG_IDLE_US = 1000000 };

/* --- the other shards ------------------------------------------------------------------------------------- */
/* Wait for the next word and do it. 0: done; 1: it was the end. A word that makes no sense is ERR_PROTO. */
int gang_follow(struct gang *g, struct err *e);

#endif
