/* placement.h - which node runs which replica. Pure; same input, same output.
 *
 * Even spread over racks, then over the nodes of a rack; at most max_per_node on one node. 0 replicas ("fill"): one on every node.
 */
#ifndef EXA_RANKS_SCHEDULER_PLACEMENT_H
#define EXA_RANKS_SCHEDULER_PLACEMENT_H

#include "base/err.h"

#include <stdint.h>

struct placement_node {
    uint32_t member;
    uint32_t rack; /* rack number, below n_nodes */
};
/* owner[replica * n_shards + shard] = index into nodes, ascending replicas. The shards of one replica stand on as few nodes as per_node
 * allows (0: all on one), filled in order. *n: wanted in, placed out. ERR_CONFIG: does not fit, the numbers named. */
struct placement_wish {
    uint32_t max_per_node; /* shards */
    uint32_t n_shards;     /* of a replica; 1: the whole */
    uint32_t per_node;     /* shards of one replica on one node, at most; 0: all */
};
int placement_make(const struct placement_node *nodes, uint32_t n_nodes,
                   const struct placement_wish *wish, uint32_t *n, uint32_t *owner,
                   uint32_t owner_cap, struct err *e);

#endif
