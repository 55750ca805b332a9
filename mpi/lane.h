/* lane.h - one helper thread of the mover: jobs in, done jobs out, both by bounded queues.
 *
 * Reading from the shared file system and hashing with writing each have one, so that neither
 * holds up MPI. The thread never touches MPI. A thread that hangs in a system call can be left
 * behind: it ends by itself when the call returns.
 */
#ifndef EXA_MPI_LANE_H
#define EXA_MPI_LANE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lane;
typedef void lane_work_fn(void *ctx, void *job);
typedef void lane_free_fn(void *p);

struct lane_spec {
    size_t capacity; /* at most so many jobs are between push and pop */
    lane_work_fn *work;
    lane_free_fn *free_ctx; /* runs once, in whichever thread is the last to know the lane */
    lane_free_fn *free_job; /* for the job of a thread that was left behind */
    void *ctx;
};
/* Takes over ctx, also when it fails. */
int lane_start(struct lane **out, const struct lane_spec *spec, struct err *e);
void lane_push(struct lane *l, void *job); /* the caller keeps to the capacity */
void *lane_pop(struct lane *l);            /* a done job, or NULL */
void *lane_recall(struct lane *l);         /* a job not yet begun, or NULL */
/* Wait until the thread has ended; unbegun jobs are dropped. false after timeout_us: the thread
 * is left behind and frees the job it works on when it comes back (UINT64_MAX: no limit). Recall
 * and pop everything before. */
bool lane_stop(struct lane *l, uint64_t timeout_us);

#endif
