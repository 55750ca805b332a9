/* worker.c - see worker.h. */
#include "ranks/worker.h"

#include "base/clock.h"
#include "base/log.h"
#include "engine/coll_shm.h"
#include "ranks/beats.h"
#include "ranks/frames.h"
#include "ranks/replica.h"
#include "ranks/store.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PENDING_MAX = 256,       /* assignments that wait for weights */
    RESERVED_CORES_FROM = 8, /* nodes with fewer cores share them among loops and engines */
    LOOP_CORES = 2,
};

struct pending {
    struct msg_assign assign; /* its peers are the ones here */
    uint8_t peers[4 * COLL_MAX_SHARDS];
};

struct worker {
    struct daemon *d;
    struct beats *beats;   /* owned */
    struct frames *frames; /* owned */
    struct store *store;   /* owned */
    struct replica *replicas[MSG_MAX_REPLICAS];
    uint32_t n_replicas;
    struct pending pending[PENDING_MAX];
    uint32_t n_pending;
    char engine_path[RUNDIR_PATH_BYTES + 32];
};

static void fill_beat(void *ctx, struct msg_heartbeat *h)
{
    const struct worker *w = ctx;
    h->n_replicas = 0;
    for (uint32_t i = 0; i < w->n_replicas; i++)
        if (replica_shard(w->replicas[i]) == 0) /* the one that speaks for its gang */
            replica_load(w->replicas[i], &h->replicas[h->n_replicas++]);
}

/* --- replicas --------------------------------------------------------------------------------------------- */

static void on_steps(void *ctx, struct replica *r, const uint8_t *body, size_t n)
{
    struct worker *w = ctx;
    struct frame_source from = {replica_deployment(r), replica_number(r), replica_epoch(r)};
    frames_steps(w->frames, &from, body, n);
}

static void on_refuse(void *ctx, struct replica *r, const struct attempt *a, uint32_t position,
                      uint8_t finish, int code, const char *text)
{
    struct worker *w = ctx;
    struct frame_source from = {replica_deployment(r), replica_number(r), replica_epoch(r)};
    frames_refuse(w->frames, &from, a, position, finish, code, text);
}

/* Heartbeats say that a replica does not serve; here is why. */
static void tell_trouble(struct worker *w, const struct replica *r)
{
    struct msg_text t = {.value = replica_number(r)};
    snprintf(t.text, sizeof t.text, "%s", replica_trouble(r));
    if (!t.text[0] || !w->d->members[SCHEDULER_MEMBER].up)
        return;
    struct buf b;
    buf_init(&b, 4096);
    msg_text_put(&b, &t);
    daemon_send(w->d, SCHEDULER_MEMBER, MSG_TROUBLE, &b);
    buf_fini(&b);
}

static void on_changed(void *ctx, struct replica *r)
{
    struct worker *w = ctx;
    struct replica_load l;
    beats_hurry(w->beats);
    replica_load(r, &l);
    if (l.state != REPLICA_FAILED && l.state != REPLICA_BROKEN)
        return;
    if (store_trouble(w->store)[0])
        replica_hold(r, store_trouble(w->store));
    else
        store_check(w->store);
    tell_trouble(w, r);
}

static struct replica *find_shard(struct worker *w, uint32_t deployment, uint32_t number,
                                  uint32_t shard)
{
    for (uint32_t i = 0; i < w->n_replicas; i++)
        if (replica_deployment(w->replicas[i]) == deployment &&
            replica_number(w->replicas[i]) == number && replica_shard(w->replicas[i]) == shard)
            return w->replicas[i];
    return NULL;
}

static struct replica *find_replica(struct worker *w, uint32_t deployment, uint32_t number)
{
    return find_shard(w, deployment, number, 0);
}

/* --- gangs ------------------------------------------------------------------------------------------------ */

static void take_gang(struct worker *w, uint32_t member, const uint8_t *body, size_t n)
{
    struct msg_gang m;
    struct err e = ERR_INIT;
    if (msg_gang_get(&m, body, n, &e)) {
        log_warn("worker: dropped a word from member %u: %s", member, e.text);
        return;
    }
    for (uint32_t i = 0; i < w->n_replicas; i++) {
        struct replica *r = w->replicas[i];
        if (replica_deployment(r) == m.name.deployment && replica_number(r) == m.name.replica)
            replica_gang_word(r, member, &m);
    }
}

static void take_shard(struct worker *w, uint32_t member, const uint8_t *body, size_t n)
{
    struct msg_shard m;
    struct err e = ERR_INIT;
    if (msg_shard_get(&m, body, n, &e)) {
        log_warn("worker: dropped bytes from member %u: %s", member, e.text);
        return;
    }
    struct replica *r = find_shard(w, m.name.deployment, m.name.replica, m.to);
    if (r)
        replica_shard_bytes(r, member, &m, body, n);
}

static void on_tell(void *ctx, struct replica *r, uint32_t member, uint16_t type,
                    const struct buf *b)
{
    struct worker *w = ctx;
    if (member != w->d->rank)
        daemon_send(w->d, member, type, b);
    else if (type == MSG_GANG)
        take_gang(w, member, b->data, b->len);
    else
        take_shard(w, member, b->data, b->len);
}

static int on_segment(void *ctx, const struct replica *r)
{
    struct worker *w = ctx;
    const struct replica *leader = find_replica(w, replica_deployment(r), replica_number(r));
    return leader ? replica_segment(leader) : -1;
}

/* Cores this process may use, divided among the engines of the node. */
static uint32_t threads_share(const struct worker *w, uint32_t n_engines)
{
    cpu_set_t set;
    uint32_t cores = sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
    if (cores >= RESERVED_CORES_FROM)
        cores -= LOOP_CORES;
    uint32_t share = n_engines ? cores / n_engines : cores;
    return share ? share : 1;
}

static void take_unassign(struct worker *w, const struct msg_assign *a)
{
    for (uint32_t i = 0; i < w->n_replicas; i++) {
        if (replica_deployment(w->replicas[i]) != a->deployment ||
            replica_number(w->replicas[i]) != a->replica ||
            replica_shard(w->replicas[i]) != a->shard)
            continue;
        if (replica_epoch(w->replicas[i]) > a->epoch)
            return;
        replica_destroy(w->replicas[i]);
        w->replicas[i] = w->replicas[--w->n_replicas];
        beats_hurry(w->beats);
        return;
    }
}

/* The shards of a gang talk through their workers: these need links (members.h). */
static void link_gang(struct worker *w, const struct msg_assign *a)
{
    for (uint32_t i = 0; i < a->n_peers; i++) {
        uint32_t m = u32_at(a->peers, i);
        if (m < w->d->n_ranks && m != w->d->rank)
            w->d->members[m].in_gang = true;
    }
}

/* The lowest number that no engine of this node has: with it go the cores that it runs on. */
static uint32_t free_index(const struct worker *w)
{
    for (uint32_t index = 0;; index++) {
        uint32_t i = 0;
        while (i < w->n_replicas && replica_node_index(w->replicas[i]) != index)
            i++;
        if (i == w->n_replicas)
            return index;
    }
}

static void start_replica(struct worker *w, const struct msg_assign *a, uint32_t n_engines)
{
    struct err e = ERR_INIT;
    struct replica_host host = {.ctx = w,
                                .loop = &w->d->loop,
                                .engine_path = w->engine_path,
                                .load_timeout_us = 1000000ull * w->d->config->start_deadline_s,
                                .step_timeout_us =
                                    1000000ull * w->d->config->models[0].step_timeout_s,
                                .steps = on_steps,
                                .changed = on_changed,
                                .tell = on_tell,
                                .segment = on_segment,
                                .refuse = on_refuse};
    uint32_t n_threads = a->n_threads ? a->n_threads : threads_share(w, n_engines);
    take_unassign(w, a); /* an older epoch of it gives way */
    link_gang(w, a);
    host.node_index = free_index(w);
    host.node_count = host.node_index < n_engines ? n_engines : host.node_index + 1;
    if (w->n_replicas == MSG_MAX_REPLICAS) {
        log_error("worker: more than %d replicas on a node, replica %u is not started",
                  MSG_MAX_REPLICAS, a->replica);
        return;
    }
    struct replica **slot = &w->replicas[w->n_replicas];
    if (replica_create(slot, &host, a, store_path(w->store), n_threads, &e))
        log_error("worker: %s", e.text);
    else
        w->n_replicas++;
    beats_hurry(w->beats);
}

static void start_pending(struct worker *w)
{
    if (!store_path(w->store)[0] || w->d->draining)
        return;
    uint32_t n_engines = w->n_replicas + w->n_pending;
    for (uint32_t i = 0; i < w->n_pending; i++)
        if (memcmp(w->pending[i].assign.digest, store_digest(w->store), SHA256_BYTES) == 0)
            start_replica(w, &w->pending[i].assign, n_engines);
        else
            log_error("worker: replica %u asks for a pack that was not prepared here",
                      w->pending[i].assign.replica);
    w->n_pending = 0;
}

static void take_assign(struct worker *w, const struct msg_assign *a)
{
    struct replica *old = find_shard(w, a->deployment, a->replica, a->shard);
    if (old && replica_epoch(old) >= a->epoch)
        return;
    if (a->n_shards > COLL_MAX_SHARDS) {
        log_error("worker: replica %u has %u shards, at most %d are possible", a->replica,
                  a->n_shards, COLL_MAX_SHARDS);
        return;
    }
    struct pending *p = w->pending;
    while (p < w->pending + w->n_pending &&
           (p->assign.deployment != a->deployment || p->assign.replica != a->replica ||
            p->assign.shard != a->shard))
        p++;
    bool is_new = p == w->pending + w->n_pending;
    if (is_new && w->n_pending == PENDING_MAX) {
        log_error("worker: more than %d assignments wait, replica %u is dropped", PENDING_MAX,
                  a->replica);
        return;
    }
    if (!is_new && p->assign.epoch >= a->epoch)
        return;
    p->assign = *a;
    p->assign.peers = p->peers;
    if (a->n_peers <= COLL_MAX_SHARDS && a->n_peers)
        memcpy(p->peers, a->peers, 4 * (size_t)a->n_peers);
    w->n_pending += is_new;
    /* All assignments of a node come in a row: they start together at the next tick, when the share of cores is known. */
}

static void take_submit(struct worker *w, uint32_t member, const uint8_t *body, size_t n)
{
    struct msg_submit m;
    struct err e = ERR_INIT;
    if (msg_submit_get(&m, body, n, &e)) {
        log_warn("worker: dropped a submission from member %u: %s", member, e.text);
        return;
    }
    if (m.attempt.router != member)
        return;
    struct replica *r = find_replica(w, m.deployment, m.replica);
    if (r && !w->d->leave_at_us) {
        replica_submit(r, &m, body, n);
        return;
    }
    struct frame_source from = {m.deployment, m.replica, m.epoch};
    frames_refuse(w->frames, &from, &m.attempt, m.start, FINISH_REFUSED, ERR_AGAIN,
                  "no such replica here");
}

static void take_cancel(struct worker *w, uint32_t member, const uint8_t *body, size_t n)
{
    struct msg_cancel m;
    if (msg_cancel_get(&m, body, n, NULL) || m.attempt.router != member)
        return;
    struct replica *r = find_replica(w, m.deployment, m.replica);
    if (r)
        replica_cancel(r, &m, body, n);
}

/* --- weights ---------------------------------------------------------------------------------------------- */

static void on_image_ready(void *ctx)
{
    struct worker *w = ctx;
    for (uint32_t i = 0; i < w->n_replicas; i++)
        replica_release(w->replicas[i]);
}

/* An engine that runs has the old file mapped and goes on; one that died, or dies now, waits. */
static void on_image_lost(void *ctx, const char *why)
{
    struct worker *w = ctx;
    for (uint32_t i = 0; i < w->n_replicas; i++) {
        replica_hold(w->replicas[i], why);
        tell_trouble(w, w->replicas[i]);
    }
    beats_hurry(w->beats);
}

void worker_task(struct worker *w, struct task *t)
{
    if (t->kind == TASK_OPEN_CACHE || t->kind == TASK_ROUND || t->kind == TASK_CHECK_IMAGE)
        store_task(w->store, t);
}

int worker_create(struct worker **out, struct daemon *d, struct err *e)
{
    struct worker *w = calloc(1, sizeof *w);
    struct store_events ev = {.ctx = w, .ready = on_image_ready, .lost = on_image_lost};
    int rc = w ? beats_create(&w->beats, d, fill_beat, w, e)
               : err_set(e, ERR_NOMEM, "no memory for the worker");
    if (!rc)
        rc = store_create(&w->store, d, &ev, e);
    if (!rc)
        rc = frames_create(&w->frames, d, e);
    if (rc) {
        if (w) {
            store_destroy(w->store);
            beats_destroy(w->beats);
        }
        free(w);
        return rc;
    }
    w->d = d;
    snprintf(w->engine_path, sizeof w->engine_path, "%s/exaserve-engine", d->bin_dir);
    *out = w;
    return 0;
}

/* --- events ----------------------------------------------------------------------------------------------- */

static void from_scheduler(struct worker *w, uint16_t type, const uint8_t *body, size_t n)
{
    struct msg_assign a;
    struct err e = ERR_INIT;
    switch (type) {
    case MSG_MODEL:
    case MSG_ROUND:
    case MSG_WEIGHTS:
        store_message(w->store, type, body, n);
        return;
    case MSG_ASSIGN:
    case MSG_UNASSIGN:
        if (msg_assign_get(&a, body, n, &e))
            log_error("worker: %s", e.text);
        else if (type == MSG_ASSIGN)
            take_assign(w, &a);
        else
            take_unassign(w, &a);
        return;
    default:
        log_warn("worker: message of type %u from the scheduler is not for a worker", type);
    }
}

void worker_message(struct worker *w, uint32_t member, uint16_t type, const uint8_t *body, size_t n)
{
    uint8_t role = w->d->members[member].role;
    if (type == MSG_SUBMIT && role == ROLE_ROUTER) {
        take_submit(w, member, body, n);
    } else if (type == MSG_CANCEL && role == ROLE_ROUTER) {
        take_cancel(w, member, body, n);
    } else if (type == MSG_GANG && role == ROLE_WORKER) {
        take_gang(w, member, body, n);
    } else if (type == MSG_SHARD && role == ROLE_WORKER) {
        take_shard(w, member, body, n);
    } else if (type == MSG_HEARTBEAT && role == ROLE_WORKER) {
        beats_take(w->beats, member, body, n);
    } else if (type == MSG_HEARTBEATS && role == ROLE_WORKER) {
        /* the leader's sign of life: daemon.c has noted the time */
    } else if (role == ROLE_SCHEDULER) {
        from_scheduler(w, type, body, n);
    } else {
        log_warn("worker: message of type %u from member %u is not for a worker", type, member);
    }
}

void worker_lost(struct worker *w, uint32_t member)
{
    beats_lost(w->beats, member);
    for (uint32_t i = 0; i < w->n_replicas; i++)
        replica_member_lost(w->replicas[i], member);
    if (w->d->members[member].role != ROLE_ROUTER)
        return;
    for (uint32_t i = 0; i < w->n_replicas; i++)
        replica_router_lost(w->replicas[i], member);
}

void worker_up(struct worker *w, uint32_t member)
{
    beats_up(w->beats, member);
    if (member != SCHEDULER_MEMBER)
        return;
    for (uint32_t i = 0; i < w->n_replicas; i++)
        tell_trouble(w, w->replicas[i]);
    store_scheduler_up(w->store);
}

void worker_tick(struct worker *w, uint64_t now_us)
{
    start_pending(w);
    for (uint32_t i = 0; i < w->n_replicas; i++)
        replica_tick(w->replicas[i], now_us);
    beats_tick(w->beats, now_us);
}

void worker_flush(struct worker *w)
{
    beats_flush(w->beats);
    frames_flush(w->frames);
}

bool worker_stop(struct worker *w)
{
    bool gone = true;
    for (uint32_t i = 0; i < w->n_replicas; i++) {
        replica_kill(w->replicas[i]);
        gone = gone && replica_is_gone(w->replicas[i]);
    }
    return gone;
}
