/* worker.c - see worker.h. */
#include "ranks/worker.h"

#include "base/clock.h"
#include "base/log.h"
#include "model/image.h"
#include "model/index.h"
#include "ranks/leader.h"
#include "ranks/replica.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

enum {
    BEATS_MAX_BYTES = 32 << 20,
    FRAME_MAX_BYTES = 16 << 20, /* step frames of one flush to one router */
    PENDING_MAX = 256,          /* assignments that wait for weights */
    RESERVED_CORES_FROM = 8,    /* nodes with fewer cores share them among loops and engines */
    LOOP_CORES = 2,
};

struct out_frame { /* to one router */
    uint32_t router;
    struct buf body;
};

struct worker {
    struct daemon *d;
    struct leader *leader;
    bool leading;
    uint64_t beat_seq, next_beat_us;
    bool beat_now;
    struct msg_heartbeat beat, taken; /* tens of KiB each: not on a callback's stack */
    /* weights */
    char image_path[1024]; /* "" until complete */
    uint8_t digest[SHA256_BYTES];
    bool busy; /* the mover works on a weights task of ours */
    /* replicas */
    struct replica *replicas[MSG_MAX_REPLICAS];
    uint32_t n_replicas;
    struct msg_assign pending[PENDING_MAX];
    uint32_t n_pending;
    char engine_path[RUNDIR_PATH_BYTES + 32];
    struct out_frame *frames; /* owned [n_frames], one a router */
    uint32_t n_frames;
};

int worker_create(struct worker **out, struct daemon *d, struct err *e)
{
    struct worker *w = calloc(1, sizeof *w);
    if (w)
        w->leader = leader_create(d->rank);
    if (!w || !w->leader) {
        free(w);
        return err_set(e, ERR_NOMEM, "no memory for the worker");
    }
    w->d = d;
    snprintf(w->engine_path, sizeof w->engine_path, "%s/exaserve-engine", d->bin_dir);
    *out = w;
    return 0;
}

/* --- heartbeats ------------------------------------------------------------------------------------------- */

static void fill_beat(struct worker *w)
{
    struct msg_heartbeat *h = &w->beat;
    struct sysinfo si;
    *h = (struct msg_heartbeat){.member = w->d->rank,
                                .incarnation = w->d->incarnation,
                                .seq = ++w->beat_seq,
                                .draining = w->d->draining,
                                .n_replicas = w->n_replicas};
    if (sysinfo(&si) == 0)
        h->memory_free_bytes = (uint64_t)si.freeram * si.mem_unit;
    for (uint32_t i = 0; i < w->n_replicas; i++)
        replica_load(w->replicas[i], &h->replicas[i]);
}

/* The merged heartbeats of the rack to the scheduler and the routers, and an empty one to the members: it says "I lead". */
static void lead(struct worker *w)
{
    struct daemon *d = w->d;
    struct buf b, ack;
    buf_init(&b, BEATS_MAX_BYTES);
    buf_init(&ack, 256);
    uint32_t n = leader_flush(w->leader, &b);
    msg_heartbeats_begin_put(&ack, d->rank, 0);
    for (uint32_t m = 0; m < d->n_ranks; m++) {
        const struct member *p = &d->members[m];
        if (!p->up || m == d->rank)
            continue;
        if (p->role == ROLE_SCHEDULER || p->role == ROLE_ROUTER) {
            if (n)
                daemon_send(d, m, MSG_HEARTBEATS, &b);
        } else if (p->role == ROLE_WORKER && p->rack == d->members[d->rank].rack) {
            daemon_send(d, m, MSG_HEARTBEATS, &ack);
        }
    }
    buf_fini(&b);
    buf_fini(&ack);
}

static void take_beat(struct worker *w, const struct msg_heartbeat *h)
{
    if (leader_take(w->leader, h))
        lead(w);
}

static void send_beat(struct worker *w)
{
    struct daemon *d = w->d;
    fill_beat(w);
    w->beat_now = false;
    uint32_t leader = daemon_rack_leader(d, d->members[d->rank].rack);
    bool leads = leader == d->rank || leader == UINT32_MAX;
    if (leads && !w->leading) {
        log_info("leader: this worker leads rack %s", d->rack[0] ? d->rack : "(all nodes)");
        leader_refresh(w->leader);
    }
    w->leading = leads;
    if (leads) {
        take_beat(w, &w->beat);
        return;
    }
    struct buf b;
    buf_init(&b, BEATS_MAX_BYTES);
    msg_heartbeat_put(&b, &w->beat);
    daemon_send(d, leader, MSG_HEARTBEAT, &b);
    buf_fini(&b);
}

/* --- replicas --------------------------------------------------------------------------------------------- */

static struct out_frame *frame_of(struct worker *w, uint32_t router)
{
    for (uint32_t i = 0; i < w->n_frames; i++)
        if (w->frames[i].router == router)
            return &w->frames[i];
    struct out_frame *grown = realloc(w->frames, (w->n_frames + 1) * sizeof *grown);
    if (!grown)
        return NULL;
    w->frames = grown;
    struct out_frame *f = &w->frames[w->n_frames++];
    f->router = router;
    buf_init(&f->body, FRAME_MAX_BYTES);
    return f;
}

static bool is_router(const struct worker *w, uint32_t member)
{
    return member < w->d->n_ranks && w->d->members[member].role == ROLE_ROUTER;
}

/* One replica's step, split by router: an entry goes only to the router that named it. */
static void on_steps(void *ctx, struct replica *r, const uint8_t *body, size_t n)
{
    struct worker *w = ctx;
    for (uint32_t m = 0; m < w->d->n_ranks; m++) {
        if (!is_router(w, m) || !w->d->members[m].up)
            continue;
        struct rd rd = rd_make(body, n);
        struct step_section s;
        struct out_frame *f = NULL;
        uint32_t n_entries = 0;
        size_t at = 0;
        if (msg_section_get(&rd, &s, NULL))
            return; /* checked by the replica before */
        for (uint32_t i = 0; i < s.n_entries; i++) {
            struct step_entry entry;
            if (msg_entry_get(&rd, &entry, NULL))
                return;
            if (entry.attempt.router != m)
                continue;
            if (!f) {
                f = frame_of(w, m);
                if (!f)
                    return;
                at = f->body.len;
                s.deployment =
                    replica_deployment(r); /* an engine does not choose whom it speaks for */
                s.replica = replica_number(r);
                s.epoch = replica_epoch(r);
                msg_section_put(&f->body, &s);
            }
            msg_entry_put(&f->body, &entry);
            n_entries++;
        }
        if (f && buf_ok(&f->body))
            msg_section_patch(&f->body, at, n_entries);
    }
}

static void refuse(struct worker *w, uint32_t deployment, uint32_t replica, uint64_t epoch,
                   const struct attempt *a, uint32_t position, uint8_t finish, int code,
                   const char *text)
{
    if (!is_router(w, a->router))
        return;
    struct out_frame *f = frame_of(w, a->router);
    if (!f)
        return;
    struct step_section s = {deployment, replica, epoch, 0, 0};
    struct msg_text t = {.code = code};
    snprintf(t.text, sizeof t.text, "%s", text);
    struct buf ext;
    buf_init(&ext, sizeof t + 64);
    msg_text_put(&ext, &t);
    struct step_entry entry = {.attempt = *a,
                               .position = position,
                               .finish = finish,
                               .ext_type = EXT_ERROR,
                               .ext = ext.data,
                               .ext_bytes = (uint32_t)ext.len};
    size_t at = f->body.len;
    msg_section_put(&f->body, &s);
    msg_entry_put(&f->body, &entry);
    if (buf_ok(&f->body))
        msg_section_patch(&f->body, at, 1);
    buf_fini(&ext);
}

static void on_refuse(void *ctx, struct replica *r, const struct attempt *a, uint32_t position,
                      uint8_t finish, int code, const char *text)
{
    refuse(ctx, replica_deployment(r), replica_number(r), replica_epoch(r), a, position, finish,
           code, text);
}

static void on_changed(void *ctx, struct replica *r)
{
    struct worker *w = ctx;
    w->beat_now = true;
}

static struct replica *find_replica(struct worker *w, uint32_t deployment, uint32_t number)
{
    for (uint32_t i = 0; i < w->n_replicas; i++)
        if (replica_deployment(w->replicas[i]) == deployment &&
            replica_number(w->replicas[i]) == number)
            return w->replicas[i];
    return NULL;
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

static void start_replica(struct worker *w, const struct msg_assign *a, uint32_t n_engines)
{
    struct err e = ERR_INIT;
    struct replica_host host = {.ctx = w,
                                .loop = &w->d->loop,
                                .engine_path = w->engine_path,
                                .steps = on_steps,
                                .changed = on_changed,
                                .refuse = on_refuse};
    uint32_t n_threads = a->n_threads ? a->n_threads : threads_share(w, n_engines);
    if (w->n_replicas == MSG_MAX_REPLICAS) {
        log_error("worker: more than %d replicas on a node, replica %u is not started",
                  MSG_MAX_REPLICAS, a->replica);
        return;
    }
    struct replica **slot = &w->replicas[w->n_replicas];
    if (replica_create(slot, &host, a, w->image_path, n_threads, &e))
        log_error("worker: %s", e.text);
    else
        w->n_replicas++;
    w->beat_now = true;
}

static void start_pending(struct worker *w)
{
    if (!w->image_path[0] || w->d->draining)
        return;
    uint32_t n_engines = w->n_replicas + w->n_pending;
    for (uint32_t i = 0; i < w->n_pending; i++)
        if (memcmp(w->pending[i].digest, w->digest, sizeof w->digest) == 0)
            start_replica(w, &w->pending[i], n_engines);
        else
            log_error("worker: replica %u asks for a pack that was not prepared here",
                      w->pending[i].replica);
    w->n_pending = 0;
}

static void take_assign(struct worker *w, const struct msg_assign *a)
{
    struct replica *old = find_replica(w, a->deployment, a->replica);
    if (old && replica_epoch(old) >= a->epoch)
        return;
    for (uint32_t i = 0; i < w->n_pending; i++)
        if (w->pending[i].deployment == a->deployment && w->pending[i].replica == a->replica &&
            w->pending[i].epoch >= a->epoch)
            return; /* said again after a lost link */
    if (w->n_pending == PENDING_MAX) {
        log_error("worker: more than %d assignments wait, replica %u is dropped", PENDING_MAX,
                  a->replica);
        return;
    }
    w->pending[w->n_pending] = *a;
    w->pending[w->n_pending].peers = NULL;
    w->n_pending++;
    /* All assignments of a node come in a row: they start together at the next tick, when the share of cores is known. */
}

static void take_unassign(struct worker *w, const struct msg_assign *a)
{
    for (uint32_t i = 0; i < w->n_replicas; i++) {
        if (replica_deployment(w->replicas[i]) != a->deployment ||
            replica_number(w->replicas[i]) != a->replica)
            continue;
        if (replica_epoch(w->replicas[i]) > a->epoch)
            return;
        replica_destroy(w->replicas[i]);
        w->replicas[i] = w->replicas[--w->n_replicas];
        w->beat_now = true;
        return;
    }
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
    if (!r || w->d->leave_at_us)
        refuse(w, m.deployment, m.replica, m.epoch, &m.attempt, m.start, FINISH_REFUSED, ERR_AGAIN,
               "no such replica here");
    else
        replica_submit(r, &m, body, n);
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

static void take_model(struct worker *w, const uint8_t *body, size_t n)
{
    struct msg_model m;
    struct err e = ERR_INIT;
    if (msg_model_get(&m, body, n, &e)) {
        log_error("worker: %s", e.text);
        return;
    }
    struct task *t = daemon_task(w->d, TASK_OPEN_CACHE);
    if (!t)
        return;
    buf_put(&t->a, m.index, m.index_bytes);
    buf_put(&t->b, m.meta, m.meta_bytes);
    daemon_give(w->d, t);
}

static void take_round(struct worker *w, const uint8_t *body, size_t n)
{
    struct task *t = daemon_task(w->d, TASK_ROUND);
    if (!t)
        return;
    buf_put(&t->a, body, n);
    daemon_give(w->d, t);
}

static void take_weights(struct worker *w, const uint8_t *body, size_t n)
{
    struct msg_weights m;
    if (msg_weights_get(&m, body, n, NULL))
        return;
    if (m.code == ERR_AGAIN)
        mover_interrupt(w->d->mover);
    else if (m.code)
        log_error("worker: this node gets no weights: %s", m.text);
}

void worker_task(struct worker *w, struct task *t)
{
    if (t->kind != TASK_OPEN_CACHE && t->kind != TASK_ROUND)
        return;
    if (t->path[0]) {
        snprintf(w->image_path, sizeof w->image_path, "%s", t->path);
        memcpy(w->digest, t->have.digest, sizeof w->digest);
    }
    struct buf b;
    buf_init(&b, INDEX_MAX_BYTES);
    msg_have_put(&b, &t->have);
    daemon_send(w->d, SCHEDULER_MEMBER, MSG_HAVE, &b);
    buf_fini(&b);
}

/* --- events ----------------------------------------------------------------------------------------------- */

static void from_scheduler(struct worker *w, uint16_t type, const uint8_t *body, size_t n)
{
    struct msg_assign a;
    struct err e = ERR_INIT;
    switch (type) {
    case MSG_MODEL:
        take_model(w, body, n);
        return;
    case MSG_ROUND:
        take_round(w, body, n);
        return;
    case MSG_WEIGHTS:
        take_weights(w, body, n);
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
    } else if (type == MSG_HEARTBEAT && role == ROLE_WORKER) {
        if (msg_heartbeat_get(&w->taken, body, n, NULL) == 0 && w->taken.member == member)
            take_beat(w, &w->taken);
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
    leader_forget(w->leader, member);
    if (is_router(w, member))
        for (uint32_t i = 0; i < w->n_replicas; i++)
            replica_router_lost(w->replicas[i], member);
}

void worker_up(struct worker *w, uint32_t member)
{
    if (w->d->members[member].role == ROLE_WORKER)
        return;
    leader_refresh(w->leader); /* the newcomer knows nothing yet */
    w->beat_now = true;
}

void worker_tick(struct worker *w, uint64_t now_us)
{
    start_pending(w);
    for (uint32_t i = 0; i < w->n_replicas; i++)
        replica_tick(w->replicas[i], now_us);
    if (!w->d->serving)
        return;
    if (w->beat_now || now_us >= w->next_beat_us) {
        bool regular = now_us >= w->next_beat_us;
        if (regular)
            w->next_beat_us = now_us + 1000ull * w->d->config->heartbeat_ms;
        send_beat(w);
        if (regular && w->leading)
            lead(w);
    }
}

void worker_flush(struct worker *w)
{
    if (w->beat_now && w->d->serving)
        send_beat(w); /* a replica changed its state: not a tick later */
    for (uint32_t i = 0; i < w->n_frames; i++) {
        struct out_frame *f = &w->frames[i];
        if (!f->body.len)
            continue;
        if (buf_ok(&f->body) && w->d->members[f->router].up)
            daemon_send(w->d, f->router, MSG_STEPS, &f->body);
        buf_reset(&f->body);
    }
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
