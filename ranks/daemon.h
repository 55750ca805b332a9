/* daemon.h - one rank of the world: its identity, its two threads, its roster, and the dispatch of messages to its role.
 *
 * main owns one struct daemon. Fields above the line are set before the loop thread starts and only read afterwards; those below
 * belong to the loop thread.
 */
#ifndef EXA_RANKS_DAEMON_H
#define EXA_RANKS_DAEMON_H

#include "base/err.h"
#include "base/queue.h"
#include "config/config.h"
#include "mpi/layout.h"
#include "ranks/boot.h"
#include "ranks/mover.h"
#include "ranks/task.h"
#include "slurm/job.h"
#include "wire/msg.h"
#include "wire/plane.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <uv.h>

enum {
    SCHEDULER_MEMBER = 0,
    TICK_MS = 100,
    PHASE_DRAINED = 100, /* MSG_BARRIER phase: this router has no running request any more */
};

struct scheduler_role;
struct router_role;
struct worker;

struct member { /* one line of the roster, by member id */
    bool known, up;
    bool drained; /* a router says that it has nothing running any more */
    bool in_gang; /* a worker whose engines are shards of a replica that has shards here, too */
    bool lost;    /* was tried or up, and failed: does not lead until it is up again */
    uint8_t role;
    uint32_t rack;
    uint64_t incarnation;
    char host[MSG_HOST_BYTES];
    char url[128];        /* routers */
    struct buf address;   /* plane address */
    uint64_t retry_at_us; /* next attempt to connect */
    bool connecting;
    uint64_t heard_us; /* last message of any kind */
};

struct daemon {
    uint32_t rank, n_ranks;
    uint8_t role; /* enum member_role */
    uint64_t incarnation;
    struct layout layout;
    struct config *config;
    struct allocation alloc;
    char host[MSG_HOST_BYTES], rack[MSG_RACK_BYTES], zone[MSG_RACK_BYTES];
    char run_dir[RUNDIR_PATH_BYTES], attempt_dir[RUNDIR_PATH_BYTES + 32],
        cache_dir[RUNDIR_PATH_BYTES];
    char bin_dir[RUNDIR_PATH_BYTES];
    char key[80];
    uint8_t secret[32];
    uint32_t attempt;
    uint8_t *cached; /* workers: digests of the images in the node's cache, [n_cached][32] */
    uint32_t n_cached;
    struct queue *to_loop, *to_mover;
    struct mover *mover;
    pthread_t loop_thread;
    _Atomic int leaving; /* the loop thread decided to leave with leave_status */
    int leave_status;
    /* ------------------------------------------------------------------------------------------------- */
    uv_loop_t loop;
    struct plane *plane;
    uv_poll_t plane_poll, queue_poll;
    uv_prepare_t prepare;
    uv_timer_t tick;
    uv_signal_t on_term, on_int, on_usr1;
    struct member *members; /* owned [n_ranks] */
    bool serving;           /* BOOT_DETACHED was released */
    struct boot boot;       /* rank 0 */
    uint64_t boot_said_us;
    struct err aborted; /* why the start was given up; code 0: it was not */
    struct buf blamed;  /* with it: hosts that had a part, one a line */
    uint64_t
        abort_late_us; /* by then the mover has taken it, or sits in MPI: the loop thread leaves */
    struct scheduler_role *scheduler; /* one of these, by role */
    struct router_role *router;
    struct worker *worker;
    /* end */
    uint64_t alone_us; /* neither the scheduler nor anybody to work with in reach since */
    bool ends;         /* the whole service does, and not a part that is cut off from it */
    bool draining;
    uint64_t drain_deadline_us;
    uint64_t
        leave_at_us; /* set when all is done: leave once the plane is flushed, at the latest now */
    int exit_status;
};

/* Everything before MPI: layout, configuration, secret, key, folders. */
int daemon_create(struct daemon **out, const char *run_dir, uint32_t attempt, struct err *e);
/* rank and size as MPI gave them: check the layout's line, take the role, make plane and role. */
int daemon_join(struct daemon *d, uint32_t rank, uint32_t n_ranks, struct err *e);
/* What the plane tells this rank; daemon_join's plane has them, and so may a plane_mem of a test. */
struct plane_events daemon_events(struct daemon *d);
/* Start the loop thread. */
int daemon_start(struct daemon *d, struct err *e);

/* --- loop thread ------------------------------------------------------------------------------------------ */
int daemon_send(struct daemon *d, uint32_t member, uint16_t type,
                const struct buf *body); /* logs what cannot be sent, once a loss */
struct task *daemon_task(struct daemon *d, enum task_kind kind); /* a new task, or NULL (logged) */
/* To the mover. false: its queue is full; the task is destroyed, and that is logged. */
bool daemon_give(struct daemon *d, struct task *t);
/* Live worker with the lowest rank of the rack, as far as this member knows; UINT32_MAX: none. */
uint32_t daemon_rack_leader(struct daemon *d, uint32_t rack);
/* End this rank's part: nothing new, finish within grace_ms, leave. status: exit status if this is the cause. */
void daemon_drain(struct daemon *d, uint32_t grace_ms, const char *why);
void daemon_leave(struct daemon *d);

#endif
