/* placement.c - see placement.h. */
#include "ranks/scheduler/placement.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The node with the fewest shards in the rack with the fewest for its size; lowest index wins ties. taken: this replica has it already. */
static uint32_t best_node(const struct placement_node *nodes, uint32_t n_nodes,
                          const uint32_t *load, const uint32_t *rack_load,
                          const uint32_t *rack_size, const bool *taken)
{
    uint32_t best = 0;
    while (taken[best])
        best++;
    for (uint32_t i = best + 1; i < n_nodes; i++) {
        if (taken[i])
            continue;
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

static uint32_t per_node_of(const struct placement_wish *w)
{
    return w->per_node && w->per_node < w->n_shards ? w->per_node : w->n_shards;
}

static int fit_check(const struct placement_wish *w, uint32_t wanted, uint32_t n_nodes,
                     uint32_t owner_cap, struct err *e)
{
    uint32_t per_node = per_node_of(w), spread = (w->n_shards + per_node - 1) / per_node;
    if (!n_nodes)
        return err_set(e, ERR_CONFIG, "no node serves: there is nowhere to place a replica");
    if (spread > n_nodes)
        return err_set(e, ERR_CONFIG,
                       "a replica of %u shards with at most %u a node needs %u nodes, there are %u",
                       w->n_shards, per_node, spread, n_nodes);
    uint32_t parts = w->max_per_node / per_node; /* of replicas, that one node may hold */
    if ((uint64_t)wanted * spread > (uint64_t)n_nodes * parts ||
        (uint64_t)wanted * w->n_shards > owner_cap)
        return err_set(e, ERR_CONFIG, "%u replicas do not fit on %u nodes with at most %u a node",
                       wanted, n_nodes, w->n_shards > 1 ? parts : w->max_per_node);
    return 0;
}

int placement_make(const struct placement_node *nodes, uint32_t n_nodes,
                   const struct placement_wish *wish, uint32_t *n, uint32_t *owner,
                   uint32_t owner_cap, struct err *e)
{
    uint32_t per_node = per_node_of(wish);
    uint32_t fill = n_nodes / ((wish->n_shards + per_node - 1) / per_node);
    uint32_t wanted = *n ? *n : fill ? fill : 1;
    int rc = fit_check(wish, wanted, n_nodes, owner_cap, e);
    if (rc)
        return rc;
    uint32_t *load = calloc(3 * (size_t)n_nodes, sizeof *load);
    bool *taken = calloc(n_nodes, sizeof *taken);
    if (!load || !taken) {
        free(load);
        free(taken);
        return err_set(e, ERR_NOMEM, "no memory to place %u replicas", wanted);
    }
    uint32_t *rack_load = load + n_nodes, *rack_size = rack_load + n_nodes;
    for (uint32_t i = 0; i < n_nodes; i++)
        rack_size[nodes[i].rack]++;
    for (uint32_t r = 0; r < wanted; r++) {
        memset(taken, 0, n_nodes * sizeof *taken);
        uint32_t best = 0;
        for (uint32_t s = 0; s < wish->n_shards; s++) {
            if (s % per_node == 0)
                best = best_node(nodes, n_nodes, load, rack_load, rack_size, taken);
            taken[best] = true;
            owner[r * wish->n_shards + s] = best;
            load[best]++;
            rack_load[nodes[best].rack]++;
        }
    }
    free(load);
    free(taken);
    *n = wanted;
    return 0;
}
