/* daemon.c - see daemon.h. This file: creation, the loop thread, sending, the dispatch of messages; members.c keeps the roster,
 * ending.c the end.
 */
#include "ranks/daemon.h"

#include "base/clock.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/log.h"
#include "base/paths.h"
#include "base/version.h"
#include "model/image.h"
#include "ranks/ending.h"
#include "ranks/members.h"
#include "ranks/router_role.h"
#include "ranks/scheduler_role.h"
#include "ranks/worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

enum { QUEUE_ITEMS = 256, CACHED_MAX = 256 };

/* --- creation --------------------------------------------------------------------------------------------- */

static int read_run_dir(struct daemon *d, const char *run_dir, struct err *e)
{
    char path[RUNDIR_PATH_BYTES + 64];
    int rc = path_join(d->run_dir, sizeof d->run_dir, e, "%s", run_dir);
    if (!rc)
        rc = path_join(d->attempt_dir, sizeof d->attempt_dir, e, "%s/attempt-%u", run_dir,
                       d->attempt);
    if (!rc)
        rc = path_join(path, sizeof path, e, "%s/layout.json", d->attempt_dir);
    if (!rc)
        rc = layout_read(&d->layout, path, e);
    if (!rc)
        rc = path_join(path, sizeof path, e, "%s/serve.yaml", run_dir);
    if (!rc)
        rc = config_load(&d->config, path, e);
    if (!rc)
        rc = rundir_secret(run_dir, d->secret, e);
    if (!rc)
        rc = rundir_key(run_dir, d->key, sizeof d->key, e);
    return rc;
}

int daemon_create(struct daemon **out, const char *run_dir, uint32_t attempt, struct err *e)
{
    struct daemon *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(e, ERR_NOMEM, "no memory for the daemon");
    d->attempt = attempt;
    int rc = path_host_name(d->host, sizeof d->host, e);
    if (!rc)
        rc = read_run_dir(d, run_dir, e);
    if (!rc)
        rc = path_cache_dir(d->cache_dir, sizeof d->cache_dir, e);
    char self[RUNDIR_PATH_BYTES];
    if (!rc)
        rc = file_self_dir(self, sizeof self, e);
    if (!rc)
        rc = path_join(d->bin_dir, sizeof d->bin_dir, e, "%s/bin", self);
    if (!rc)
        rc = queue_create(&d->to_loop, QUEUE_ITEMS, e);
    if (!rc)
        rc = queue_create(&d->to_mover, QUEUE_ITEMS, e);
    if (!rc && !allocation_read(&d->alloc)) { /* one machine, no Slurm: `exaserve run` */
        snprintf(d->alloc.cluster, sizeof d->alloc.cluster, "local");
        const char *base = strrchr(d->run_dir, '/');
        snprintf(d->alloc.job, sizeof d->alloc.job, "%.*s", (int)sizeof d->alloc.job - 1,
                 base ? base + 1 : d->run_dir);
    }
    if (rc)
        return rc; /* the process ends */
    topology_of_task(d->rack, sizeof d->rack, d->zone, sizeof d->zone);
    do
        random_bytes(&d->incarnation, sizeof d->incarnation);
    while (!d->incarnation);
    *out = d;
    return 0;
}

static int role_create(struct daemon *d, struct err *e)
{
    switch (d->role) {
    case ROLE_SCHEDULER:
        return scheduler_role_create(&d->scheduler, d, e);
    case ROLE_ROUTER:
        return router_role_create(&d->router, d, e);
    case ROLE_WORKER:
        return worker_create(&d->worker, d, e);
    default:
        return 0; /* standbys are laid out and idle for now */
    }
}

static void on_peer_up(void *ctx, const struct plane_peer *peer)
{
    struct daemon *d = ctx;
    members_up(d, peer);
    if (!d->serving)
        return;
    if (d->scheduler)
        scheduler_role_up(d->scheduler, peer);
    if (d->router)
        router_role_up(d->router, peer->member);
    if (d->worker)
        worker_up(d->worker, peer->member);
}

static void on_peer_lost(void *ctx, uint32_t member, uint64_t incarnation, const struct err *why)
{
    struct daemon *d = ctx;
    bool was_up = members_lost(d, member, why);
    if (!d->serving) {
        if (d->rank == SCHEDULER_MEMBER && was_up)
            boot_lose(&d->boot, member);
        else if (member == SCHEDULER_MEMBER && was_up)
            members_abort(d, ERR_PEER, "rank 0 was lost while the world started");
        else if (member == SCHEDULER_MEMBER && why->code == ERR_PROTO)
            members_abort(d, why->code, why->text); /* it does not want us; else: tried again */
        return;
    }
    if (!was_up)
        return;
    if (d->scheduler)
        scheduler_role_lost(d->scheduler, member);
    if (d->router)
        router_role_lost(d->router, member);
    if (d->worker)
        worker_lost(d->worker, member);
}

static void to_role(struct daemon *d, uint32_t member, uint16_t type, const uint8_t *body, size_t n)
{
    if (d->scheduler)
        scheduler_role_message(d->scheduler, member, type, body, n);
    else if (d->router)
        router_role_message(d->router, member, type, body, n);
    else if (d->worker)
        worker_message(d->worker, member, type, body, n);
}

static void on_message(void *ctx, uint32_t member, uint16_t type, const uint8_t *body, size_t n)
{
    struct daemon *d = ctx;
    if (member >= d->n_ranks)
        return;
    d->members[member].heard_us = clock_now_us();
    switch (type) {
    case MSG_REGISTER:
    case MSG_ROSTER:
    case MSG_RELEASE:
    case MSG_ABORT:
        members_message(d, member, type, body, n);
        return;
    case MSG_BARRIER:
        if (d->serving)
            ending_message(d, member, body, n);
        else
            members_message(d, member, type, body, n);
        return;
    case MSG_STOP:
        ending_stop(d, member, body, n);
        return;
    default:
        if (d->serving)
            to_role(d, member, type, body, n);
        return; /* before: heartbeats of members that were released first; they come again */
    }
}

struct plane_events daemon_events(struct daemon *d)
{
    return (struct plane_events){
        .ctx = d, .on_up = on_peer_up, .on_message = on_message, .on_lost = on_peer_lost};
}

static int list_cache(struct daemon *d, struct err *e)
{
    d->cached = calloc(CACHED_MAX, SHA256_BYTES);
    if (!d->cached)
        return err_set(e, ERR_NOMEM, "no memory for the list of cached images");
    int rc = dir_make_private(d->cache_dir, e);
    if (!rc)
        d->n_cached = image_list(d->cache_dir, (uint8_t(*)[SHA256_BYTES])d->cached, CACHED_MAX);
    return rc;
}

int daemon_join(struct daemon *d, uint32_t rank, uint32_t n_ranks, struct err *e)
{
    d->rank = rank;
    d->n_ranks = n_ranks;
    /* On one machine (`exaserve run`) the layout's host is whatever was planned: this machine. */
    int rc = layout_verify(&d->layout, rank, n_ranks, d->host, e);
    if (rc)
        return rc;
    d->role = d->layout.ranks[rank].role;
    log_init(role_name(d->role), (int)rank);
    rc = members_init(d, e);
    if (!rc && d->role == ROLE_WORKER)
        rc = list_cache(d, e);
    if (rc)
        return rc;
    if (uv_loop_init(&d->loop))
        return err_set(e, ERR_SYS, "cannot make an event loop");
    struct plane_self self = {
        .member = rank, .incarnation = d->incarnation, .secret_bytes = sizeof d->secret};
    snprintf(self.build, sizeof self.build, "%s", EXASERVE_VERSION);
    memcpy(self.secret, d->secret, sizeof d->secret);
    struct plane_events ev = daemon_events(d);
    rc = plane_ucx_create(&d->plane, &self, &ev, e);
    if (!rc && rank == SCHEDULER_MEMBER)
        rc = boot_init(&d->boot, &d->layout, clock_now_us(), e);
    if (!rc)
        rc = role_create(d, e);
    return rc;
}

/* --- the loop thread -------------------------------------------------------------------------------------- */

static void run_plane(struct daemon *d)
{
    if (d->worker)
        worker_flush(d->worker);
    plane_progress(d->plane, clock_now_us());
    if (d->worker)
        worker_flush(d->worker); /* what the messages just handled made */
}

static void on_prepare(uv_prepare_t *h)
{
    run_plane(h->data);
}

static void on_plane(uv_poll_t *h, int status, int events)
{
    struct daemon *d = h->data;
    plane_progress(d->plane, clock_now_us());
}

static void take_task(struct daemon *d, struct task *t)
{
    switch (t->kind) {
    case TASK_CONNECT:
    case TASK_REACHED:
    case TASK_FAULT:
        members_task(d, t);
        return;
    case TASK_PUBLISH:
    case TASK_OPEN_PACK:
        if (d->scheduler)
            scheduler_role_task(d->scheduler, t);
        return;
    default:
        if (d->worker)
            worker_task(d->worker, t);
    }
}

static void on_queue(uv_poll_t *h, int status, int events)
{
    struct daemon *d = h->data;
    struct task *t;
    while ((t = queue_pop(d->to_loop)) != NULL) {
        take_task(d, t);
        task_destroy(t);
    }
}

static void on_tick(uv_timer_t *h)
{
    struct daemon *d = h->data;
    uint64_t now = clock_now_us();
    members_tick(d, now);
    if (d->serving) {
        if (d->scheduler)
            scheduler_role_tick(d->scheduler, now);
        if (d->router)
            router_role_tick(d->router, now);
        if (d->worker)
            worker_tick(d->worker, now);
    }
    ending_tick(d, now);
}

static void on_signal(uv_signal_t *h, int signum)
{
    ending_signal(h->data, signum);
}

static void *loop_main(void *arg)
{
    struct daemon *d = arg;
    uv_run(&d->loop, UV_RUN_DEFAULT); /* until the process ends: the mover leaves by _exit */
    return NULL;
}

static void watch_signal(struct daemon *d, uv_signal_t *h, int signum)
{
    uv_signal_init(&d->loop, h);
    h->data = d;
    uv_signal_start(h, on_signal, signum);
}

int daemon_start(struct daemon *d, struct err *e)
{
    int fd = plane_fd(d->plane);
    uv_prepare_init(&d->loop, &d->prepare);
    d->prepare.data = d;
    uv_prepare_start(&d->prepare, on_prepare);
    if (fd >= 0) {
        uv_poll_init(&d->loop, &d->plane_poll, fd);
        d->plane_poll.data = d;
        uv_poll_start(&d->plane_poll, UV_READABLE, on_plane);
    }
    uv_poll_init(&d->loop, &d->queue_poll, queue_fd(d->to_loop));
    d->queue_poll.data = d;
    uv_poll_start(&d->queue_poll, UV_READABLE, on_queue);
    uv_timer_init(&d->loop, &d->tick);
    d->tick.data = d;
    uv_timer_start(&d->tick, on_tick, TICK_MS, TICK_MS);
    watch_signal(d, &d->on_term, SIGTERM);
    watch_signal(d, &d->on_int, SIGINT);
    watch_signal(d, &d->on_usr1, SIGUSR1);
    int rc = pthread_create(&d->loop_thread, NULL, loop_main, d);
    if (rc)
        return err_sys(e, rc, "cannot start the loop thread");
    return 0;
}

/* --- for the roles ---------------------------------------------------------------------------------------- */

int daemon_send(struct daemon *d, uint32_t member, uint16_t type, const struct buf *body)
{
    struct err e = ERR_INIT;
    if (!buf_ok(body)) {
        log_error("plane: a message of type %u to member %u outgrew its bound and is not sent",
                  type, member);
        return ERR_LIMIT;
    }
    int rc = plane_send(d->plane, member, type, body->data, body->len, &e);
    if (rc && rc != ERR_PEER) /* who is lost was said when it was lost */
        log_warn("plane: %s", e.text);
    return rc;
}

struct task *daemon_task(struct daemon *d, enum task_kind kind)
{
    struct task *t = task_create(kind);
    if (!t)
        log_error("daemon: no memory for a task of kind %d", (int)kind);
    return t;
}

bool daemon_give(struct daemon *d, struct task *t)
{
    if (queue_push(d->to_mover, t) == 0)
        return true;
    log_error("daemon: the mover's queue is full, a task of kind %d is dropped", (int)t->kind);
    task_destroy(t);
    return false;
}

uint32_t daemon_rack_leader(struct daemon *d, uint32_t rack)
{
    return members_rack_leader(d, rack);
}
