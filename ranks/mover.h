/* mover.h - the main thread: every MPI call, every pack and cache file. It takes tasks from the loop thread and gives them back with a result. */
#ifndef EXA_RANKS_MOVER_H
#define EXA_RANKS_MOVER_H

#include "base/err.h"
#include "base/queue.h"
#include "mpi/world.h"

struct mover_config {
    const char *run_dir, *attempt_dir, *cache_dir, *pack_path;
    uint64_t cache_bytes; /* cache limit; 0: none */
    uint32_t rank;
};

struct mover;
int mover_create(struct mover **out, const struct mover_config *c, struct world *world,
                 struct queue *from_loop, struct queue *to_loop, struct err *e);
/* Serve tasks until TASK_LEAVE; returns its status. */
int mover_run(struct mover *m);
/* For the loop thread: broadcast rounds up to this number, running or to come, should end early. Rounds after it are not touched: the word
 * may come when its round is over. */
void mover_give_up(struct mover *m, uint32_t round);

#endif
