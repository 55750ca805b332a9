/* start.c - see start.h. The order is the point (platform.md):
 *
 *   MPI_Init → message plane up → [all are out of MPI_Init] → MPI warm-up → [all are warm] → communicators
 *            → [all have them] → PMIx detach → [all are detached] → mover
 *
 * [brackets] are barriers over the message plane, with a deadline and names (boot.c). No rank sends an MPI message before the first.
 */
#include "ranks/start.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "mpi/bcast.h"
#include "mpi/world.h"
#include "ranks/daemon.h"
#include "slurm/fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ADDRESS_MAX_BYTES = 64 << 10,
    POLL_ADDRESS_US = 20000,
    MARGIN_US = 10 * 1000000, /* rank 0's own deadline comes first, it knows the names */
    POLL_FAULT_US = 500000,
    ABORT_FLUSH_US = 200000,
};

/* For the job script: this world will not come up, for a rank has left. It ends those that cannot leave by themselves (a stopped
 * process, a node that hangs) instead of waiting for them. */
static void mark_left(void *arg, const char *why)
{
    const struct daemon *d = arg;
    char path[sizeof d->attempt_dir + 32];
    struct err e = ERR_INIT;
    (void)why;
    if (path_join(path, sizeof path, &e, "%s/left", d->attempt_dir) ||
        file_publish(path, "", 0, 0600, &e))
        log_warn("start: %s", e.text);
}

static _Noreturn void give_up(struct daemon *d, const struct err *e)
{
    log_error("start: %s", e->text);
    mark_left(d, e->text);
    if (d->rank == SCHEDULER_MEMBER)
        clock_sleep_us(ABORT_FLUSH_US); /* the others shall hear why, not just lose rank 0 */
    world_leave(e->code == ERR_CONFIG ? err_exit_code(ERR_CONFIG) : EXIT_WORLD_LOST);
}

/* A rank that cannot even meet the others leaves word in a file: rank 0 would wait for it until the deadline, and nobody knew why. */
static _Noreturn void give_up_alone(struct daemon *d, const struct err *e)
{
    char who[64];
    struct err why = ERR_INIT;
    snprintf(who, sizeof who, "%s %u", role_name(d->role), d->rank);
    if (fault_write(d->attempt_dir, d->host, who, e, &why))
        log_warn("start: %s", why.text);
    give_up(d, e);
}

static int publish_address(struct daemon *d, struct err *e)
{
    char path[sizeof d->attempt_dir + 32];
    struct buf address;
    buf_init(&address, ADDRESS_MAX_BYTES);
    int rc = plane_address(d->plane, &address, e);
    if (!rc)
        rc = path_join(path, sizeof path, e, "%s/rank0.addr", d->attempt_dir);
    if (!rc)
        rc = file_publish(path, address.data, address.len, 0600, e);
    buf_fini(&address);
    return rc;
}

/* Rank 0's address is a file on a shared file system: it appears when rank 0 is out of MPI_Init. */
static int await_address(struct daemon *d, struct buf *address, struct err *e)
{
    char path[sizeof d->attempt_dir + 32];
    uint64_t limit = boot_phase_limit_us(d->n_ranks), until = clock_now_us() + limit;
    int rc = path_join(path, sizeof path, e, "%s/rank0.addr", d->attempt_dir);
    while (!rc && access(path, R_OK) != 0) {
        if (clock_now_us() > until)
            return err_set(e, ERR_TIMEOUT,
                           "rank 0 on %s has not published its address in %s within %llu s",
                           d->layout.nodes[d->layout.ranks[0].node].host, path,
                           (unsigned long long)limit / 1000000);
        clock_sleep_us(POLL_ADDRESS_US);
    }
    return rc ? rc : file_read(path, address, e);
}

static int tell_loop(struct daemon *d, enum task_kind kind, uint32_t phase, const struct buf *a,
                     struct err *e)
{
    struct task *t = task_create(kind);
    if (!t)
        return err_set(e, ERR_NOMEM, "no memory for a task");
    t->phase = phase;
    if (a)
        buf_put(&t->a, a->data, a->len);
    if (queue_push(d->to_loop, t) == 0)
        return 0;
    task_destroy(t);
    return err_set(e, ERR_AGAIN, "the loop thread takes no tasks");
}

/* For the job script: nodes that had a part in the failure, one a line. */
static void blame(struct daemon *d, const struct buf *hosts)
{
    char path[sizeof d->attempt_dir + 32];
    struct err e = ERR_INIT;
    if (!hosts->len || path_join(path, sizeof path, &e, "%s/blame", d->attempt_dir))
        return;
    if (file_publish(path, hosts->data, hosts->len, 0600, &e))
        log_warn("start: %s", e.text);
}

/* To rank 0's loop, which tells everybody: they abort, this thread too. */
static void tell_fault(struct daemon *d, const char *host, const struct err *why)
{
    struct task *t = task_create(TASK_FAULT);
    if (!t)
        return;
    t->err = *why;
    buf_puts(&t->a, host);
    if (queue_push(d->to_loop, t))
        task_destroy(t);
}

static struct task *await_task(struct daemon *d, uint32_t phase, uint64_t limit_us)
{
    char host[FAULT_HOST_BYTES];
    struct err why = ERR_INIT;
    struct task *t = NULL;
    uint64_t until = clock_now_us() + limit_us;
    bool watch = d->rank == SCHEDULER_MEMBER && phase == BOOT_OUT_OF_INIT;
    for (uint64_t now; !t && (now = clock_now_us()) < until;) {
        uint64_t left = until - now;
        t = queue_pop_wait(d->to_mover, watch && left > POLL_FAULT_US ? POLL_FAULT_US : left);
        if (!t && watch && fault_read(d->attempt_dir, host, &why) == 0) {
            tell_fault(d, host, &why);
            watch = false;
        }
    }
    return t;
}

_Noreturn void start_leave(struct daemon *d)
{
    blame(d, &d->blamed);
    give_up(d, &d->aborted);
}

static int await_release(struct daemon *d, uint32_t phase, struct err *e)
{
    uint64_t limit = boot_phase_limit_us(d->n_ranks) + MARGIN_US;
    struct task *t = await_task(d, phase, limit);
    if (!t)
        return err_set(e, ERR_TIMEOUT, "no release from rank 0 for %s within %llu s",
                       boot_phase_name(phase), (unsigned long long)limit / 1000000);
    int rc = 0;
    if (t->kind == TASK_ABORTED) {
        blame(d, &t->a);
        *e = t->err;
        rc = t->err.code;
    } else if (t->kind != TASK_RELEASED || t->phase != phase) {
        rc = err_set(e, ERR_PROTO, "expected the release of %s, found task %d of phase %u",
                     boot_phase_name(phase), (int)t->kind, t->phase);
    }
    task_destroy(t);
    return rc;
}

static int reach(struct daemon *d, uint32_t phase, struct err *e)
{
    int rc = tell_loop(d, TASK_REACHED, phase, NULL, e);
    return rc ? rc : await_release(d, phase, e);
}

static int meet(struct daemon *d, struct err *e)
{
    if (d->rank == SCHEDULER_MEMBER)
        return reach(d, BOOT_OUT_OF_INIT, e);
    struct buf address;
    buf_init(&address, ADDRESS_MAX_BYTES);
    int rc = await_address(d, &address, e);
    if (!rc)
        rc = tell_loop(d, TASK_CONNECT, 0, &address, e);
    buf_fini(&address);
    return rc ? rc : await_release(d, BOOT_OUT_OF_INIT, e);
}

/* For the broadcast of weights to every worker; rounds of fewer members do without. */
static int make_communicators(struct daemon *d, struct world *world, struct err *e)
{
    struct bcast_member *members = calloc(d->n_ranks, sizeof *members);
    uint32_t n = 0;
    if (!members)
        return err_set(e, ERR_NOMEM, "no memory for %u members", d->n_ranks);
    for (uint32_t r = 0; r < d->n_ranks; r++)
        if (d->layout.ranks[r].role == ROLE_WORKER)
            members[n++] = (struct bcast_member){r, d->members[r].rack};
    int rc = bcast_prepare(world, members, n, boot_phase_limit_us(d->n_ranks), e);
    free(members);
    return rc;
}

/* From here on a death does not end the world: the job script must not start it again. */
static int mark_detached(struct daemon *d, struct err *e)
{
    char path[sizeof d->attempt_dir + 32];
    int rc = path_join(path, sizeof path, e, "%s/detached", d->attempt_dir);
    return rc ? rc : file_publish(path, "", 0, 0600, e);
}

_Noreturn void rank_run(const char *run_dir, uint32_t attempt, int *argc, char ***argv)
{
    struct err e = ERR_INIT;
    struct daemon *d;
    struct world *world;
    uint64_t t0 = clock_now_us();
    log_init("rank", -1);
    /* Open MPI's shared-memory transport leaves files in /dev/shm when a process is killed; ranks of one node are few: TCP will do. */
    setenv("OMPI_MCA_btl", "^vader", 0);
    if (daemon_create(&d, run_dir, attempt, &e)) {
        log_error("start: %s", e.text);
        _exit(err_exit_code(e.code));
    }
    if (world_init(&world, argc, argv, boot_phase_limit_us(d->layout.n_ranks), mark_left, d, &e))
        give_up(d, &e);
    uint64_t t1 = clock_now_us();
    struct mover_config mc = {.run_dir = d->run_dir,
                              .attempt_dir = d->attempt_dir,
                              .cache_dir = d->cache_dir,
                              .pack_path = d->config->models[0].pack,
                              .cache_bytes = d->config->cache_bytes,
                              .rank = world_rank(world)};
    int rc = mover_create(&d->mover, &mc, world, d->to_mover, d->to_loop, &e);
    if (!rc)
        rc = daemon_join(d, world_rank(world), world_size(world), &e);
    if (!rc && d->rank == SCHEDULER_MEMBER)
        rc = publish_address(d, &e);
    if (!rc)
        rc = daemon_start(d, &e);
    if (rc)
        give_up_alone(d, &e);
    rc = meet(d, &e);
    uint64_t t2 = clock_now_us();
    if (!rc)
        rc = world_warm_up(world, boot_phase_limit_us(d->n_ranks), &e);
    if (!rc)
        rc = reach(d, BOOT_WARM, &e);
    uint64_t t3 = clock_now_us();
    if (!rc && d->role == ROLE_WORKER)
        rc = make_communicators(d, world, &e);
    if (!rc)
        rc = reach(d, BOOT_GROUPED, &e);
    if (!rc)
        rc = world_detach(world, boot_phase_limit_us(d->n_ranks), &e);
    if (!rc)
        rc = reach(d, BOOT_DETACHED, &e);
    if (!rc && d->rank == SCHEDULER_MEMBER)
        rc = mark_detached(d, &e);
    if (rc)
        give_up(d, &e);
    log_info("start: on %s pid=%d mpi_init_ms=%llu meet_ms=%llu warm_up_ms=%llu detach_ms=%llu",
             d->host, (int)getpid(), (unsigned long long)(t1 - t0) / 1000,
             (unsigned long long)(t2 - t1) / 1000, (unsigned long long)(t3 - t2) / 1000,
             (unsigned long long)(clock_now_us() - t3) / 1000);
    world_leave(mover_run(d->mover));
}
