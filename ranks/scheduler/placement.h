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
/* owner[replica] = index into nodes, ascending replicas. *n: wanted in, placed out. ERR_CONFIG: does not fit, both numbers named. */
int placement_make(const struct placement_node *nodes, uint32_t n_nodes, uint32_t max_per_node,
                   uint32_t *n, uint32_t *owner, uint32_t owner_cap, struct err *e);

#endif
