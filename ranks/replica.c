/* replica.c - see replica.h. */
#include "ranks/replica.h"

#include "base/clock.h"
#include "base/log.h"
#include "ranks/patience.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    RECORD_MAX_BYTES = RING_MAX_RECORD,
    STDIO_FDS = 3,
};

struct live_attempt {
    struct attempt attempt;
    uint32_t position; /* next one expected */
};

struct replica {
    struct replica_host host;
    struct msg_assign assign;
    char image_path[1024];
    uint32_t n_threads;
    uint8_t state;
    uint32_t incarnation;
    struct channel *channel;
    uv_process_t process;
    bool process_open; /* handle is open: not reaped or not closed yet */
    bool alive;        /* the process runs */
    uv_poll_t poll;
    bool poll_open;
    bool stopping, destroying, held, hung;
    uint64_t ticked_us,
        resumed_us; /* resumed: when this process went on after a pause of its own */
    uint64_t started_us, restart_at_us;
    uint64_t moved_us, n_steps; /* when it last did something for its attempts: a record, a step */
    uint64_t deaths_us[REPLICA_MAX_DEATHS];
    char last_words[MSG_TEXT_BYTES]; /* of the engine, or why it was killed */
    char trouble[MSG_TEXT_BYTES];
    struct msg_engine_ready ready;
    uint32_t n_attempts;
    struct live_attempt attempts[REPLICA_MAX_ATTEMPTS];
    struct buf record;
};

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
    buf_fini(&r->record);
    free(r);
}

static void maybe_free(struct replica *r)
{
    if (r->destroying && !r->process_open && !r->poll_open)
        free_replica(r);
}

static void on_poll_closed(uv_handle_t *h)
{
    struct replica *r = h->data;
    channel_destroy(r->channel);
    r->channel = NULL;
    r->poll_open = false;
    maybe_free(r);
}

static void on_process_closed(uv_handle_t *h)
{
    struct replica *r = h->data;
    r->process_open = false;
    maybe_free(r);
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
    if (r->poll_open && !uv_is_closing((uv_handle_t *)&r->poll))
        uv_close((uv_handle_t *)&r->poll, on_poll_closed);
    if (r->stopping) {
        maybe_free(r);
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

static int spawn(struct replica *r, const int fds[CHANNEL_FDS], struct err *e)
{
    char ppid[16], n_fds[16], deployment[16], number[16], epoch[24], n_ctx[16], n_slots[16],
        n_threads[16];
    snprintf(ppid, sizeof ppid, "%d", (int)getpid());
    snprintf(n_fds, sizeof n_fds, "%d", STDIO_FDS + CHANNEL_FDS);
    snprintf(deployment, sizeof deployment, "%u", r->assign.deployment);
    snprintf(number, sizeof number, "%u", r->assign.replica);
    snprintf(epoch, sizeof epoch, "%llu", (unsigned long long)r->assign.epoch);
    snprintf(n_ctx, sizeof n_ctx, "%u", r->assign.n_ctx);
    snprintf(n_slots, sizeof n_slots, "%u", r->assign.n_slots);
    snprintf(n_threads, sizeof n_threads, "%u", r->n_threads);
    char *engine = (char *)r->host.engine_path; /* libuv's argv is not const */
    char *argv[] = {engine,      "--stub",      ppid,
                    n_fds,       "--",          engine,
                    "--serve",   "--kind",      r->assign.engine,
                    "--image",   r->image_path, "--deployment",
                    deployment,  "--replica",   number,
                    "--epoch",   epoch,         "--ctx",
                    n_ctx,       "--slots",     n_slots,
                    "--threads", n_threads,     NULL};
    uv_stdio_container_t stdio[STDIO_FDS + CHANNEL_FDS];
    stdio[0].flags = UV_IGNORE;
    for (int i = 1; i < STDIO_FDS; i++) {
        stdio[i].flags = UV_INHERIT_FD;
        stdio[i].data.fd = 2;
    }
    for (int i = 0; i < CHANNEL_FDS; i++) {
        stdio[STDIO_FDS + i].flags = UV_INHERIT_FD;
        stdio[STDIO_FDS + i].data.fd = fds[i];
    }
    uv_process_options_t o = {.file = engine,
                              .args = argv,
                              .exit_cb = on_engine_exit,
                              .stdio = stdio,
                              .stdio_count = STDIO_FDS + CHANNEL_FDS};
    int rc = uv_spawn(r->host.loop, &r->process, &o);
    r->process.data = r;
    r->process_open = true; /* the handle is initialised even when the spawn failed */
    if (rc) {
        uv_close((uv_handle_t *)&r->process, on_process_closed);
        return err_set(e, ERR_SYS, "cannot start %s: %s", engine, uv_strerror(rc));
    }
    r->alive = true;
    return 0;
}

static void start(struct replica *r)
{
    struct err e = ERR_INIT;
    int fds[CHANNEL_FDS];
    if (r->process_open || r->poll_open)
        return; /* the old one's handles are still closing: the next tick tries again */
    r->restart_at_us = 0;
    r->last_words[0] = 0;
    r->hung = false;
    r->incarnation++;
    r->started_us = clock_now_us();
    int rc = channel_create(&r->channel, fds, &e);
    if (!rc) {
        uv_poll_init(r->host.loop, &r->poll, channel_fd(r->channel));
        r->poll.data = r;
        r->poll_open = true;
        uv_poll_start(&r->poll, UV_READABLE, on_channel);
        rc = spawn(r, fds, &e);
        if (rc)
            uv_close((uv_handle_t *)&r->poll, on_poll_closed);
    }
    if (rc) {
        log_error("replica: %u: %s", r->assign.replica, e.text);
        snprintf(r->trouble, sizeof r->trouble, "%s", e.text);
        plan_restart(r, r->started_us);
        return;
    }
    set_state(r, REPLICA_LOADING);
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
    r->assign.peers = NULL; /* borrowed from the message; a gang of one has none */
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
    if (!r->alive && r->poll_open && !uv_is_closing((uv_handle_t *)&r->poll))
        uv_close((uv_handle_t *)&r->poll, on_poll_closed);
    maybe_free(r);
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
    uint32_t room =
        r->assign.n_slots < REPLICA_MAX_ATTEMPTS ? r->assign.n_slots : REPLICA_MAX_ATTEMPTS;
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
}

uint32_t replica_deployment(const struct replica *r)
{
    return r->assign.deployment;
}

uint32_t replica_number(const struct replica *r)
{
    return r->assign.replica;
}

uint64_t replica_epoch(const struct replica *r)
{
    return r->assign.epoch;
}
