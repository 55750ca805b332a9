/* ending.c - see ending.h. */
#include "ranks/ending.h"

#include "base/clock.h"
#include "base/log.h"
#include "ranks/members.h"
#include "ranks/patience.h"
#include "ranks/router_role.h"
#include "ranks/scheduler_role.h"
#include "ranks/worker.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum {
    KILL_GRACE_MS =
        20000, /* after SIGTERM Slurm waits KillWait (30 s by default) before SIGKILL: be gone before */
    ENDING_MARGIN_MS = 3000,
    FLUSH_US = 500000,      /* for the last messages to leave */
    LAST_WORD_US = 2000000, /* for the last endpoint.json */
    MOVER_US = 5000000,     /* a mover stuck in a file system does not keep the process */
    ALONE_EXIT_STATUS = 1,
};

static bool routers_done(const struct daemon *d)
{
    for (uint32_t m = 0; m < d->n_ranks; m++) {
        const struct member *p = &d->members[m];
        if (p->role == ROLE_ROUTER && p->up && !p->drained)
            return false;
    }
    return true;
}

static bool others_gone(const struct daemon *d)
{
    for (uint32_t m = 0; m < d->n_ranks; m++)
        if (m != d->rank && d->members[m].up)
            return false;
    return true;
}

static void tell_all(struct daemon *d, uint32_t grace_ms, const char *why)
{
    struct msg_text t = {.value = grace_ms};
    snprintf(t.text, sizeof t.text, "%s", why);
    struct buf b;
    buf_init(&b, 4096);
    msg_text_put(&b, &t);
    for (uint32_t m = 0; m < d->n_ranks; m++)
        if (m != d->rank && d->members[m].up)
            daemon_send(d, m, MSG_STOP, &b);
    buf_fini(&b);
}

void daemon_drain(struct daemon *d, uint32_t grace_ms, const char *why)
{
    uint64_t deadline = clock_now_us() + 1000ull * grace_ms;
    if (d->draining) {
        if (deadline < d->drain_deadline_us) { /* a shorter grace wins: SIGTERM after SIGUSR1 */
            d->drain_deadline_us = deadline;
            tell_all(d, grace_ms, why);
            if (d->router && !d->members[d->rank].drained)
                router_role_drain(d->router, grace_ms);
        }
        return;
    }
    d->draining = true;
    d->ends = (d->scheduler || d->router) && members_most_workers(d);
    d->drain_deadline_us = deadline;
    log_info("end: %s, grace_ms=%u", why, grace_ms);
    tell_all(d, grace_ms, why);
    if (d->scheduler)
        scheduler_role_drain(d->scheduler);
    if (d->router)
        router_role_drain(d->router, grace_ms);
}

void ending_signal(struct daemon *d, int signum)
{
    uint32_t grace_ms = 1000 * d->config->grace_s;
    if (signum != SIGUSR1 && grace_ms > KILL_GRACE_MS)
        grace_ms = KILL_GRACE_MS;
    if (!d->serving)
        members_abort(d, ERR_CANCELED, "ended by a signal while the world started");
    else
        daemon_drain(d, grace_ms, signum == SIGUSR1 ? "asked to drain" : "asked to end");
}

void ending_stop(struct daemon *d, uint32_t member, const uint8_t *body, size_t n)
{
    struct msg_text t;
    if (!d->serving || msg_text_get(&t, body, n, NULL) || t.value > UINT32_MAX)
        return;
    daemon_drain(d, (uint32_t)t.value, t.text[0] ? t.text : "asked to end");
}

void ending_message(struct daemon *d, uint32_t member, const uint8_t *body, size_t n)
{
    struct msg_phase p;
    if (msg_phase_get(&p, body, n, NULL) == 0 && p.phase == PHASE_DRAINED && p.member == member)
        d->members[member].drained = true;
}

void daemon_leave(struct daemon *d)
{
    if (!d->leave_at_us)
        d->leave_at_us = clock_now_us() + FLUSH_US;
}

static bool flushed(const struct daemon *d)
{
    for (uint32_t m = 0; m < d->n_ranks; m++)
        if (d->members[m].up && plane_queued_bytes(d->plane, m))
            return false;
    return true;
}

static void leave_now(struct daemon *d, uint64_t now_us)
{
    if (atomic_load(&d->leaving)) {
        if (now_us > d->leave_at_us + MOVER_US) {
            log_warn("end: the mover does not come back, leaving without it");
            _exit(d->exit_status);
        }
        return;
    }
    if (now_us < d->leave_at_us && !flushed(d))
        return;
    atomic_store(&d->leaving, 1);
    d->leave_at_us = now_us;
    mover_give_up(d->mover, UINT32_MAX);
    struct task *t = daemon_task(d, TASK_LEAVE);
    if (!t)
        _exit(d->exit_status);
    t->status = d->exit_status;
    t->ends = d->ends;
    daemon_give(d, t);
}

/* Nothing that this member does is of use without the scheduler, or those it works with. */
static bool is_needed(const struct daemon *d, uint8_t role)
{
    return role == ROLE_SCHEDULER || role == (d->role == ROLE_ROUTER ? ROLE_WORKER : ROLE_ROUTER);
}

/* Nobody uses it, and nobody will ever tell it to end: do not hold the allocation for nothing. A cut cable may be healed, so it takes a
 * while. Rank 0 sees for itself (scheduler/service.c). */
static void check_alone(struct daemon *d, uint64_t now_us)
{
    bool alone = d->serving && d->role != ROLE_SCHEDULER;
    for (uint32_t m = 0; alone && m < d->n_ranks; m++)
        alone = !d->members[m].up || !is_needed(d, d->members[m].role);
    if (!alone || !d->alone_us)
        d->alone_us = now_us;
    if (now_us < d->alone_us + ALONE_US)
        return;
    d->exit_status = ALONE_EXIT_STATUS;
    daemon_drain(d, 0,
                 d->router ? "neither the scheduler nor a worker has been in reach for long"
                           : "neither the scheduler nor a router has been in reach for long");
}

void ending_tick(struct daemon *d, uint64_t now_us)
{
    if (!d->draining)
        check_alone(d, now_us);
    if (!d->draining)
        return;
    bool late = now_us > d->drain_deadline_us + 1000ull * ENDING_MARGIN_MS;
    if (!d->leave_at_us && (late || (!d->router && routers_done(d)))) {
        if (d->worker) {
            if (worker_stop(d->worker) || late)
                daemon_leave(d);
        } else if (d->scheduler) {
            /* last: the state says STOPPED when nothing is left of the service */
            uint64_t alone_us = d->drain_deadline_us + 2000ull * ENDING_MARGIN_MS;
            if ((others_gone(d) || now_us > alone_us) &&
                (scheduler_role_stopped(d->scheduler) || now_us > alone_us + LAST_WORD_US))
                daemon_leave(d);
        } else {
            daemon_leave(d);
        }
    }
    if (d->leave_at_us)
        leave_now(d, now_us);
}
