/* placement.c - see placement.h. */
#include "ranks/scheduler/placement.h"

#include <stdlib.h>

/* The node with the fewest replicas in the rack with the fewest for its size; lowest index wins ties. */
static uint32_t best_node(const struct placement_node *nodes, uint32_t n_nodes,
                          const uint32_t *load, const uint32_t *rack_load,
                          const uint32_t *rack_size)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n_nodes; i++) {
        if (load[i] != load[best]) {
            if (load[i] < load[best])
                best = i;
            continue;
        }
        uint32_t a = nodes[i].rack, b = nodes[best].rack;
        if ((uint64_t)rack_load[a] * rack_size[b] < (uint64_t)rack_load[b] * rack_size[a])
            best = i;
    }
    return best;
}

int placement_make(const struct placement_node *nodes, uint32_t n_nodes, uint32_t max_per_node,
                   uint32_t *n, uint32_t *owner, uint32_t owner_cap, struct err *e)
{
    uint32_t wanted = *n ? *n : n_nodes;
    if (!n_nodes)
        return err_set(e, ERR_CONFIG, "no node serves: there is nowhere to place a replica");
    if ((uint64_t)wanted > (uint64_t)n_nodes * max_per_node || wanted > owner_cap)
        return err_set(e, ERR_CONFIG, "%u replicas do not fit on %u nodes with at most %u a node",
                       wanted, n_nodes, max_per_node);
    uint32_t *load = calloc(3 * (size_t)n_nodes, sizeof *load);
    if (!load)
        return err_set(e, ERR_NOMEM, "no memory to place %u replicas", wanted);
    uint32_t *rack_load = load + n_nodes, *rack_size = rack_load + n_nodes;
    for (uint32_t i = 0; i < n_nodes; i++)
        rack_size[nodes[i].rack]++;
    for (uint32_t r = 0; r < wanted; r++) {
        uint32_t best = best_node(nodes, n_nodes, load, rack_load, rack_size);
        owner[r] = best;
        load[best]++;
        rack_load[nodes[best].rack]++;
    }
    free(load);
    *n = wanted;
    return 0;
}
