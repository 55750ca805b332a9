/* task.h - what the loop thread and the mover thread (main) hand each other through two bounded queues.
 *
 * A task is owned by whoever popped it. The mover alone calls MPI, HDF5 and the file system; the loop alone owns the plane,
 * HTTP and engines.
 */
#ifndef EXA_RANKS_TASK_H
#define EXA_RANKS_TASK_H

#include "base/buf.h"
#include "base/err.h"
#include "slurm/rundir.h"
#include "wire/msg.h"

#include <stdint.h>

enum task_kind {
    /* start: mover → loop */
    TASK_CONNECT = 1, /* a: rank 0's plane address */
    TASK_REACHED,     /* phase */
    TASK_FAULT,       /* rank 0: err; a: the host of the rank that cannot join */
    /* start: loop → mover */
    TASK_RELEASED, /* phase */
    TASK_ABORTED,  /* err */
    /* work: loop → mover, and back with its result */
    TASK_PUBLISH, /* endpoint → endpoint.json */
    TASK_UNLED,   /* a: hosts to blame: the job script is to start the world again */
    TASK_RESTATE, /* endpoint: its state, progress, n_ready and time into the file, the rest stays */
    TASK_OPEN_PACK, /* scheduler: → a: index bytes, b: meta bytes, c: file offsets u64[n], n */
    TASK_OPEN_CACHE, /* worker: a: index bytes, b: meta bytes → have, c: its bits; path when complete */
    TASK_CHECK_IMAGE, /* worker: path → err: the image there cannot be used */
    TASK_ROUND,       /* worker: a: MSG_ROUND body → have, c: its bits; path when complete */
    TASK_LEAVE,       /* status; ends: the job script is told; the mover ends the process */
};

struct task {
    enum task_kind kind;
    struct err err; /* result: err.code 0 is success */
    uint32_t phase, n;
    int status;
    bool ends; /* the whole service does */
    struct buf a, b, c;
    struct endpoint endpoint;
    struct msg_have have; /* bits point into c */
    char path[1024];      /* of the finished image; "" while it is not */
};

struct task *task_create(enum task_kind kind); /* NULL: out of memory */
void task_destroy(struct task *t);

#endif
