/* bcast.c - see bcast.h: a round from its meeting to its verdict. How segments move is flow.c. */
#include "mpi/bcast.h"

#include "mpi/comms.h"
#include "mpi/flow.h"
#include "mpi/quarantine.h"

#include "base/clock.h"

#include <inttypes.h>
#include <sched.h>
#include <string.h>

enum {
    STALL_DEFAULT_US = 20 * 1000 * 1000,
    POLL_SLEEP_US = 200, /* libnbc moves a segment on in many small steps, each of them by a poll */
    LINGER_POLLS = 20,
};

/* Until this node's part is over, something is stuck, or *stop. */
static int drive(struct flow *f, const _Atomic uint32_t *stop, struct err *e)
{
    struct backoff pause = {.max_us = POLL_SLEEP_US};
    uint64_t moved_us = clock_now_us();
    for (;;) {
        bool moved = false, done = false;
        int rc = flow_step(f, &moved, &done, e);
        if (rc || done)
            return rc;
        if (round_is_stopped(f->r, stop))
            return err_set(e, ERR_CANCELED, "round %u was stopped", f->r->round);
        uint64_t now = clock_now_us();
        if (moved) {
            moved_us = now;
            backoff_reset(&pause);
            continue;
        }
        if (now - moved_us > f->r->stall_us) {
            char where[256];
            flow_describe(f, where, sizeof where);
            return err_set(e, ERR_PEER, "round %u: rank %u saw no progress for %" PRIu64 " ms: %s",
                           f->r->round, f->w->rank, f->r->stall_us / 1000, where);
        }
        backoff_pause(&pause);
        f->stats->us_wait += clock_now_us() - now;
    }
}

/* The barrier's last packets may still be queued in this process. */
static void linger(void)
{
    for (int i = 0; i < LINGER_POLLS; i++) {
        int flag;
        MPI_Iprobe(MPI_ANY_SOURCE, TAG_WARM_UP, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        sched_yield();
    }
}

static int verdict(const struct flow *f, struct err *e)
{
    /* The reader checked the hash: bytes that came wrong were spoiled on the way, another round may bring them whole. ERR_FORMAT would
     * say that the pack itself is wrong. */
    int own = f->own.code == ERR_FORMAT ? ERR_PEER : f->own.code;
    if (own)
        return err_set(e, own, "round %u, rank %u: %s", f->r->round, f->w->rank, f->own.text);
    if (f->failed.code)
        return err_set(e, f->failed.code, "round %u: %s", f->r->round, f->failed.text);
    return 0;
}

int bcast_round_run(struct world *w, const struct bcast_round *r, struct image_writer *writer,
                    const _Atomic uint32_t *stop, struct bcast_stats *stats, struct err *e)
{
    struct bcast_round round = *r;
    struct bcast_stats ignored;
    struct groups g;
    struct flow f;
    uint64_t from = clock_now_us();
    if (!stats)
        stats = &ignored;
    memset(stats, 0, sizeof *stats);
    if (round.stall_us == 0)
        round.stall_us = STALL_DEFAULT_US;
    int rc = quarantine_sweep(w, e);
    if (rc == 0)
        rc = groups_meet(&g, w, &round, stop, e);
    if (rc == 0) {
        rc = flow_init(&f, w, &g, &round, writer, stats, e);
        if (rc == 0)
            rc = drive(&f, stop, e);
        flow_fini(&f);
        if (rc && g.collective)
            comms_abandon(w);
        if (rc == 0) {
            linger();
            rc = verdict(&f, e);
            stats->mine = rc && (f.own.code || f.read_failed);
        }
        groups_fini(&g);
    }
    stats->us_total = clock_now_us() - from;
    return rc;
}
