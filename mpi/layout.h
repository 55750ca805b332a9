/* layout.h - which rank is what, and on which node: a pure function of nodes, racks and
 * configuration.
 *
 * Order of ranks (design.md 2): 0 scheduler; standbys, in other racks; routers, in different
 * racks; workers, one on every serving node. Several ranks may share a node (`shared`), or
 * scheduler and routers have nodes without engines (`dedicated`). Standbys: 0 on fewer than 3
 * nodes, 2 up to 63 nodes, 4 above. Routers: 1 on one node, two from 2 nodes on, one more for
 * each 64 nodes. Written as layout.json (published by rename) and as a Slurm host file (one host
 * a line, line = rank).
 */
#ifndef EXA_MPI_LAYOUT_H
#define EXA_MPI_LAYOUT_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { LAYOUT_MAX_NODES = 4096, LAYOUT_NAME_BYTES = 64 };

struct layout_node {
    char host[LAYOUT_NAME_BYTES];
    char rack[LAYOUT_NAME_BYTES]; /* "" : unknown, all in one */
    char zone[LAYOUT_NAME_BYTES];
};
struct layout_rank {
    uint32_t node; /* index into nodes */
    uint8_t
        role; /* 1 scheduler, 2 standby, 3 router, 4 worker (as enum member_role in wire/msg.h) */
};
struct layout {
    uint32_t n_nodes;
    struct layout_node *nodes; /* owned */
    uint32_t n_ranks;
    struct layout_rank *ranks; /* owned, [rank] */
    uint32_t n_racks;
    uint32_t *rack_of_node; /* owned [n_nodes]: rack number, in order of first appearance */
};
struct layout_wish {
    bool dedicated;
    uint32_t routers; /* 0: by size */
    bool standbys;
};

/* ERR_CONFIG names what does not fit (`dedicated` on too few nodes, more routers than nodes, …).
 * Same input, same output. */
int layout_make(struct layout *l, const struct layout_node *nodes, uint32_t n_nodes,
                const struct layout_wish *w, struct err *e);
void layout_fini(struct layout *l);
int layout_write(const struct layout *l, const char *json_path, const char *hostfile_path,
                 struct err *e);
int layout_read(struct layout *l, const char *json_path, struct err *e);
/* A rank's own check: size and my line must agree with what I see. ERR_CONFIG names rank,
 * expected and found host. */
int layout_verify(const struct layout *l, uint32_t rank, uint32_t n_ranks, const char *host,
                  struct err *e);
/* Live worker with the lowest rank of the node's rack leads it. live may be NULL (all).
 * UINT32_MAX: none. */
uint32_t layout_rack_leader(const struct layout *l, uint32_t rack, const bool *live);

#endif
