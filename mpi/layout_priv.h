/* layout_priv.h - shared by layout.c and layout_file.c alone. */
#ifndef EXA_MPI_LAYOUT_PRIV_H
#define EXA_MPI_LAYOUT_PRIV_H

#include "mpi/layout.h"

/* As enum member_role in wire/msg.h, which this room does not include. */
enum { LAYOUT_SCHEDULER = 1, LAYOUT_STANDBY = 2, LAYOUT_ROUTER = 3, LAYOUT_WORKER = 4 };

/* Count, names and uniqueness. ERR_CONFIG. */
int layout_check_nodes(const struct layout_node *nodes, uint32_t n_nodes, struct err *e);
/* Fill n_racks and rack_of_node from nodes. */
int layout_find_racks(struct layout *l, struct err *e);

#endif
