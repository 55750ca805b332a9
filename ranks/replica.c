/* replica.c - see replica.h. */
#include "ranks/replica_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "engine/coll_shm.h"
#include "ranks/engine_start.h"
#include "ranks/patience.h"
#include "ranks/shard.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool same_attempt(const struct attempt *a, const struct attempt *b)
{
    return a->router == b->router && a->router_inc == b->router_inc && a->slot == b->slot &&
           a->generation == b->generation;
}

static struct live_attempt *find_attempt(struct replica *r, const struct attempt *a)
{
    for (uint32_t i = 0; i < r->n_attempts; i++)
        if (same_attempt(&r->attempts[i].attempt, a))
            return &r->attempts[i];
    return NULL;
}

static void drop_attempt(struct replica *r, struct live_attempt *a)
{
    *a = r->attempts[--r->n_attempts];
}

static void set_state(struct replica *r, uint8_t state)
{
    if (r->state == state)
        return;
    r->state = state;
    log_info("replica: %u of deployment %u is %s epoch=%llu incarnation=%u", r->assign.replica,
             r->assign.deployment, replica_state_name(state), (unsigned long long)r->assign.epoch,
             r->incarnation);
    r->host.changed(r->host.ctx, r);
}

static void start(struct replica *r);

static void free_replica(struct replica *r)
{
    replica_segment_close(r);
    shard_destroy(r->shard);
    buf_fini(&r->waiting);
    buf_fini(&r->record);
    free(r);
}

void replica_maybe_free(struct replica *r)
{
    if (r->destroying && !r->process_open && !r->poll_open && !r->side_open)
        free_replica(r);
}

static void on_poll_closed(uv_handle_t *h)
{
    struct replica *r = h->data;
    channel_destroy(r->channel);
    r->channel = NULL;
    r->poll_open = false;
    replica_maybe_free(r);
}

static void close_polls(struct replica *r)
{
    if (r->poll_open && !uv_is_closing((uv_handle_t *)&r->poll))
        uv_close((uv_handle_t *)&r->poll, on_poll_closed);
    replica_side_close(r);
}

static void on_process_closed(uv_handle_t *h)
{
    struct replica *r = h->data;
    r->process_open = false;
    replica_maybe_free(r);
}

/* Every running attempt ends with a typed error: the router decides what the client sees. */
static void fail_attempts(struct replica *r, const char *why)
{
    while (r->n_attempts) {
        struct live_attempt a = r->attempts[--r->n_attempts];
        r->host.refuse(r->host.ctx, r, &a.attempt, a.position, FINISH_ERROR, ERR_PEER, why);
    }
}

static void plan_restart(struct replica *r, uint64_t now_us)
{
    memmove(&r->deaths_us[1], &r->deaths_us[0], (REPLICA_MAX_DEATHS - 1) * sizeof r->deaths_us[0]);
    r->deaths_us[0] = now_us;
    uint64_t oldest = r->deaths_us[REPLICA_MAX_DEATHS - 1];
    if (oldest && now_us - oldest < REPLICA_DEATHS_US) {
        log_error("replica: %u died %d times within %d s, given up; the last time: %s",
                  r->assign.replica, REPLICA_MAX_DEATHS, REPLICA_DEATHS_US / 1000000, r->trouble);
        set_state(r, REPLICA_BROKEN);
        return;
    }
    uint64_t backoff_ms = REPLICA_BACKOFF_MS;
    for (uint32_t i = 1;
         i < REPLICA_MAX_DEATHS && r->deaths_us[i] && now_us - r->deaths_us[i] < REPLICA_DEATHS_US;
         i++)
        backoff_ms *= 2;
    if (backoff_ms > REPLICA_BACKOFF_MAX_MS)
        backoff_ms = REPLICA_BACKOFF_MAX_MS;
    r->restart_at_us = now_us + backoff_ms * 1000;
    set_state(r, REPLICA_FAILED);
}

static void drain_records(struct replica *r);

static void on_engine_exit(uv_process_t *p, int64_t status, int signal)
{
    struct replica *r = p->data;
    r->alive = false;
    if (r->poll_open)
        drain_records(r); /* what it said before it died still counts */
    uv_close((uv_handle_t *)p, on_process_closed);
    close_polls(r);
    if (r->stopping) {
        if (r->shard)
            shard_ended(r->shard, "it was stopped");
        replica_maybe_free(r);
        return;
    }
    char why[MSG_TEXT_BYTES];
    snprintf(why, sizeof why, "engine of replica %u %s %lld%s%.300s", r->assign.replica,
             signal ? "was killed by signal" : "ended with status",
             signal ? (long long)signal : (long long)status, r->last_words[0] ? ": " : "",
             r->last_words);
    log_error("replica: %s", why);
    snprintf(r->trouble, sizeof r->trouble, "%s", why);
    fail_attempts(r, why);
    if (r->shard)
        shard_ended(r->shard, why);
    replica_segment_close(r);
    if (r->shard && !shard_is_leader(r->shard)) { /* its leader counts the deaths */
        r->restart_at_us = clock_now_us();
        set_state(r, REPLICA_FAILED);
        return;
    }
    plan_restart(r, clock_now_us());
}

static void take_steps(struct replica *r, const uint8_t *body, size_t n)
{
    struct rd rd = rd_make(body, n);
    struct step_section section;
    struct err e = ERR_INIT;
    int rc = msg_section_get(&rd, &section, &e);
    for (uint32_t i = 0; !rc && i < section.n_entries; i++) {
        struct step_entry entry;
        rc = msg_entry_get(&rd, &entry, &e);
        struct live_attempt *a = rc ? NULL : find_attempt(r, &entry.attempt);
        if (!a)
            continue;
        a->position = entry.position + entry.n_tokens;
        if (entry.finish != FINISH_NONE)
            drop_attempt(r, a);
    }
    if (rc || !rd_done(&rd)) {
        log_error("replica: %u speaks nonsense, killed: %s", r->assign.replica, e.text);
        if (r->alive) /* once reaped, its pid may be another's */
            uv_process_kill(&r->process, SIGKILL);
        return;
    }
    r->host.steps(r->host.ctx, r, body, n);
}

static void take_record(struct replica *r, uint16_t type)
{
    struct err e = ERR_INIT;
    if (type == MSG_STEPS) {
        take_steps(r, r->record.data, r->record.len);
    } else if (type == MSG_ENGINE_READY) {
        if (msg_engine_ready_get(&r->ready, r->record.data, r->record.len, &e)) {
            log_error("replica: %u: %s", r->assign.replica, e.text);
            return;
        }
        log_info(
            "replica: %u ready kernels=%s threads=%u load_ms=%llu warm_ms=%llu memory_bytes=%llu",
            r->assign.replica, r->ready.kernels, r->ready.n_threads,
            (unsigned long long)r->ready.load_us / 1000,
            (unsigned long long)r->ready.warm_us / 1000, (unsigned long long)r->ready.memory_bytes);
        if (r->alive) {
            r->trouble[0] = 0;
            set_state(r, REPLICA_READY);
        }
    } else if (type == MSG_ENGINE_FAILED) {
        struct msg_text t;
        if (msg_text_get(&t, r->record.data, r->record.len, &e) == 0)
            snprintf(r->last_words, sizeof r->last_words, "%s", t.text);
    } else {
        log_warn("replica: %u sent a record of unknown type %u", r->assign.replica, type);
    }
}

static void drain_records(struct replica *r)
{
    for (;;) {
        uint16_t type;
        struct err e = ERR_INIT;
        int rc = channel_recv(r->channel, &type, &r->record, &e);
        if (rc == 0)
            return;
        if (rc < 0) {
            log_error("replica: %u: its ring is broken, killed: %s", r->assign.replica, e.text);
            uv_poll_stop(&r->poll);
            if (r->alive)
                uv_process_kill(&r->process, SIGKILL);
            return;
        }
        r->moved_us = clock_now_us();
        take_record(r, type);
    }
}

static void on_channel(uv_poll_t *p, int status, int events)
{
    struct replica *r = p->data;
    if (r->channel && !uv_is_closing((uv_handle_t *)p))
        drain_records(r);
}

int replica_poll_open(struct replica *r, struct channel *c, uv_poll_t *poll, uv_poll_cb cb,
                      struct err *e)
{
    int rc = uv_poll_init(r->host.loop, poll, channel_fd(c));
    if (rc)
        return err_set(e, ERR_SYS, "watching an engine's channel: %s", uv_strerror(rc));
    poll->data = r;
    uv_poll_start(poll, UV_READABLE, cb);
    return 0;
}

static int connect_and_spawn(struct replica *r, struct err *e)
{
    int fds[2 * CHANNEL_FDS], n_more = 0;
    bool shared = false;
    int rc = channel_create(&r->channel, fds, e);
    if (!rc)
        rc = replica_poll_open(r, r->channel, &r->poll, on_channel, e);
    r->poll_open = !rc;
    if (!rc && r->shard)
        rc = replica_shards_connect(r, fds + CHANNEL_FDS, &n_more, &shared, e);
    if (rc)
        return rc;
    struct engine_start o = {.engine_path = r->host.engine_path,
                             .image_path = r->image_path,
                             .assign = &r->assign,
                             .n_threads = r->n_threads,
                             .node_index = r->host.node_index,
                             .node_count = r->host.node_count,
                             .gang = r->shard ? shard_gang(r->shard) : 0,
                             .shared_segment = shared,
                             .fds = fds,
                             .n_fds = CHANNEL_FDS + n_more,
                             .on_exit = on_engine_exit};
    rc = engine_start(r->host.loop, &r->process, &o, e);
    r->process.data = r;
    r->process_open = true; /* the handle is initialised even when the spawn failed */
    r->alive = !rc;
    if (rc)
        uv_close((uv_handle_t *)&r->process, on_process_closed);
    return rc;
}

static void start(struct replica *r)
{
    struct err e = ERR_INIT;
    if (r->process_open || r->poll_open || r->side_open)
        return; /* the old one's handles are still closing: the next tick tries again */
    r->started_us = clock_now_us();
    if (r->shard && !shard_may_start(r->shard, r->started_us)) {
        if (!r->restart_at_us)
            r->restart_at_us = r->started_us; /* and again */
        return;
    }
    r->restart_at_us = 0;
    r->last_words[0] = 0;
    r->hung = r->said_awaited = false;
    r->incarnation++;
    if (r->shard)
        shard_started(r->shard, r->started_us);
    if (!connect_and_spawn(r, &e)) {
        set_state(r, REPLICA_LOADING);
        return;
    }
    log_error("replica: %u: %s", r->assign.replica, e.text);
    snprintf(r->trouble, sizeof r->trouble, "%s", e.text);
    if (!r->poll_open) {
        channel_destroy(r->channel);
        r->channel = NULL;
    }
    if (!r->side_open) {
        channel_destroy(r->side);
        r->side = NULL;
    }
    close_polls(r);
    if (r->shard)
        shard_ended(r->shard, e.text);
    if (r->shard && !shard_is_leader(r->shard))
        r->restart_at_us = r->started_us;
    else
        plan_restart(r, r->started_us);
}

int replica_create(struct replica **out, const struct replica_host *host,
                   const struct msg_assign *a, const char *image_path, uint32_t n_threads,
                   struct err *e)
{
    struct replica *r = calloc(1, sizeof *r);
    if (!r)
        return err_set(e, ERR_NOMEM, "no memory for replica %u", a->replica);
    r->host = *host;
    r->assign = *a;
    r->assign.peers = NULL; /* borrowed from the message */
    r->segment = -1;
    if (a->n_shards > 1 && shard_create(&r->shard, a, replica_tell_word, r, e)) {
        free(r);
        return ERR_NOMEM;
    }
    r->n_threads = n_threads;
    snprintf(r->image_path, sizeof r->image_path, "%s", image_path);
    buf_init(&r->record, RECORD_MAX_BYTES);
    *out = r;
    start(r);
    return 0;
}

void replica_kill(struct replica *r)
{
    r->stopping = true;
    r->restart_at_us = 0;
    if (r->alive)
        uv_process_kill(&r->process, SIGKILL);
}

void replica_hold(struct replica *r, const char *why)
{
    if (r->state != REPLICA_FAILED && r->state != REPLICA_BROKEN)
        return;
    r->held = true;
    snprintf(r->trouble, sizeof r->trouble, "%s", why);
    set_state(r, REPLICA_FAILED);
}

void replica_release(struct replica *r)
{
    if (!r->held)
        return;
    r->held = false;
    memset(r->deaths_us, 0, sizeof r->deaths_us);
    r->restart_at_us = clock_now_us();
}

const char *replica_trouble(const struct replica *r)
{
    return r->trouble;
}

bool replica_is_gone(const struct replica *r)
{
    return !r->alive;
}

void replica_destroy(struct replica *r)
{
    if (!r)
        return;
    fail_attempts(r, "the replica was taken off this node");
    replica_kill(r);
    r->destroying = true;
    if (!r->alive)
        close_polls(r);
    replica_maybe_free(r);
}

/* Time in which this process was stopped (a suspended job, a frozen machine) does not count: its engine was, too. */
static bool is_late(const struct replica *r, uint64_t since_us, uint64_t limit_us, uint64_t now_us)
{
    return now_us > (since_us > r->resumed_us ? since_us : r->resumed_us) + limit_us;
}

void replica_tick(struct replica *r, uint64_t now_us)
{
    if (r->ticked_us && now_us > r->ticked_us + PAUSE_US)
        r->resumed_us = now_us;
    r->ticked_us = now_us;
    if (r->stopping || r->held)
        return;
    if (r->shard)
        replica_gang_tick(r, now_us);
    if (r->restart_at_us && now_us >= r->restart_at_us) {
        start(r);
        return;
    }
    if (!r->alive || !r->channel || r->hung)
        return;
    const char *hang = NULL;
    const struct channel_status *status = channel_status(r->channel);
    uint64_t since = atomic_load_explicit(&status->step_started_us, memory_order_relaxed);
    uint64_t n_steps = atomic_load_explicit(&status->n_steps, memory_order_relaxed);
    if (!r->n_attempts || n_steps != r->n_steps)
        r->moved_us = now_us;
    r->n_steps = n_steps;
    if (r->state == REPLICA_LOADING && is_late(r, r->started_us, r->host.load_timeout_us, now_us))
        hang = "did not become ready in time";
    else if (r->state == REPLICA_READY && since &&
             is_late(r, since, r->host.step_timeout_us, now_us))
        hang = "hangs in a step";
    else if (r->state == REPLICA_READY && is_late(r, r->moved_us, r->host.step_timeout_us, now_us))
        hang = "has requests and makes no step";
    if (hang) {
        r->hung = true;
        log_error("replica: %u %s, killed", r->assign.replica, hang);
        snprintf(r->last_words, sizeof r->last_words, "%s", hang);
        uv_process_kill(&r->process, SIGKILL);
    }
}

void replica_submit(struct replica *r, const struct msg_submit *m, const uint8_t *body, size_t n)
{
    struct err e = ERR_INIT;
    /* in slots and waiting, as the engine said when it was ready */
    uint32_t room =
        r->ready.n_slots < REPLICA_MAX_ATTEMPTS ? r->ready.n_slots : REPLICA_MAX_ATTEMPTS;
    const char *why = NULL;
    if (m->epoch != r->assign.epoch)
        why = "another epoch";
    else if (r->state != REPLICA_READY || r->stopping)
        why = "not ready";
    else if (r->n_attempts >= room)
        why = "no slot free";
    else if (channel_send(r->channel, MSG_SUBMIT, body, n, &e))
        why = e.text;
    if (why) {
        r->host.refuse(r->host.ctx, r, &m->attempt, m->start, FINISH_REFUSED, ERR_AGAIN, why);
        return;
    }
    if (!r->n_attempts)
        r->moved_us = clock_now_us();
    r->attempts[r->n_attempts++] = (struct live_attempt){m->attempt, m->start};
}

void replica_cancel(struct replica *r, const struct msg_cancel *m, const uint8_t *body, size_t n)
{
    struct err e = ERR_INIT;
    if (!r->channel || !find_attempt(r, &m->attempt))
        return;
    if (channel_send(r->channel, MSG_CANCEL, body, n, &e))
        log_warn("replica: %u: a cancellation was lost: %s", r->assign.replica, e.text);
}

void replica_router_lost(struct replica *r, uint32_t router)
{
    for (uint32_t i = 0; i < r->n_attempts; i++) {
        if (r->attempts[i].attempt.router != router)
            continue;
        struct msg_cancel m = {r->attempts[i].attempt, r->assign.deployment, r->assign.replica};
        struct buf b;
        buf_init(&b, 256);
        msg_cancel_put(&b, &m);
        if (buf_ok(&b))
            replica_cancel(r, &m, b.data, b.len);
        buf_fini(&b);
    }
}

void replica_load(const struct replica *r, struct replica_load *out)
{
    *out = (struct replica_load){.deployment = r->assign.deployment,
                                 .replica = r->assign.replica,
                                 .epoch = r->assign.epoch,
                                 .incarnation = r->incarnation,
                                 .state = r->state,
                                 .n_slots = r->ready.n_slots,
                                 .kv_total_tokens = r->ready.kv_total_tokens};
    if (!r->channel || r->state != REPLICA_READY)
        return;
    const struct channel_status *s = channel_status(r->channel);
    out->n_active = atomic_load_explicit(&s->n_active, memory_order_relaxed);
    out->n_queued = atomic_load_explicit(&s->n_queued, memory_order_relaxed);
    out->kv_free_tokens = atomic_load_explicit(&s->kv_free_tokens, memory_order_relaxed);
    out->step_us = atomic_load_explicit(&s->step_us, memory_order_relaxed);
    out->n_steps = atomic_load_explicit(&s->n_steps, memory_order_relaxed);
    out->n_tokens = atomic_load_explicit(&s->n_tokens, memory_order_relaxed);
    out->step_p50_us = atomic_load_explicit(&s->step_p50_us, memory_order_relaxed);
    out->step_p99_us = atomic_load_explicit(&s->step_p99_us, memory_order_relaxed);
    out->n_prefill = atomic_load_explicit(&s->n_prefill, memory_order_relaxed);
    out->n_reused = atomic_load_explicit(&s->n_reused, memory_order_relaxed);
    out->n_preempted = atomic_load_explicit(&s->n_preempted, memory_order_relaxed);
    out->n_drafted = atomic_load_explicit(&s->n_drafted, memory_order_relaxed);
    out->n_draft_held = atomic_load_explicit(&s->n_draft_held, memory_order_relaxed);
}

uint32_t replica_deployment(const struct replica *r)
{
    return r->assign.deployment;
}

uint32_t replica_number(const struct replica *r)
{
    return r->assign.replica;
}

uint32_t replica_node_index(const struct replica *r)
{
    return r->host.node_index;
}

uint64_t replica_epoch(const struct replica *r)
{
    return r->assign.epoch;
}

uint32_t replica_shard(const struct replica *r)
{
    return r->assign.shard;
}
