/* members.c - see members.h. */
#include "ranks/members.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/version.h"
#include "ranks/router_role.h"
#include "ranks/scheduler_role.h"
#include "ranks/start.h"
#include "ranks/worker.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

enum {
    ADDRESS_MAX_BYTES = 64 << 10,
    REGISTER_MAX_BYTES = 128 << 10,
    ROSTER_MAX_BYTES = 64 << 20,
    BLAME_MAX_BYTES = 1 << 20,
    RETRY_US = 2000000,
    SAY_WAITING_US = 5000000,
    ABORT_LATE_US =
        2000000, /* a mover that waits for a dead rank inside MPI would take the whole deadline */
};

int members_init(struct daemon *d, struct err *e)
{
    d->members = calloc(d->n_ranks, sizeof *d->members);
    if (!d->members)
        return err_set(e, ERR_NOMEM, "no memory for %u members", d->n_ranks);
    for (uint32_t m = 0; m < d->n_ranks; m++) {
        struct member *p = &d->members[m];
        uint32_t node = d->layout.ranks[m].node;
        p->role = d->layout.ranks[m].role;
        p->rack = d->layout.rack_of_node[node];
        snprintf(p->host, sizeof p->host, "%s", d->layout.nodes[node].host);
        buf_init(&p->address, ADDRESS_MAX_BYTES);
    }
    d->members[d->rank].incarnation = d->incarnation;
    return 0;
}

/* blamed: hosts that the job script holds responsible, one a line; NULL: none. The first reason stands. */
static void abort_start(struct daemon *d, int code, const char *why, const struct buf *blamed)
{
    if (d->aborted.code)
        return;
    err_set(&d->aborted, code, "%s", why);
    buf_init(&d->blamed, BLAME_MAX_BYTES);
    if (blamed)
        buf_put(&d->blamed, blamed->data, blamed->len);
    d->abort_late_us = clock_now_us() + ABORT_LATE_US;
    struct task *t = daemon_task(d, TASK_ABORTED);
    if (!t)
        return; /* the loop thread leaves by itself */
    t->err = d->aborted;
    buf_put(&t->a, d->blamed.data, d->blamed.len);
    daemon_give(d, t);
}

void members_abort(struct daemon *d, int code, const char *why)
{
    abort_start(d, code, why, NULL);
}

/* --- registration ----------------------------------------------------------------------------------------- */

static void fill_register(struct daemon *d, struct msg_register *m, char *url, size_t url_cap)
{
    struct sysinfo si;
    cpu_set_t set;
    *m = (struct msg_register){.member = d->rank, .incarnation = d->incarnation, .role = d->role};
    snprintf(m->host, sizeof m->host, "%s", d->host);
    snprintf(m->rack, sizeof m->rack, "%s", d->rack);
    snprintf(m->zone, sizeof m->zone, "%s", d->zone);
    snprintf(m->build, sizeof m->build, "%s", EXASERVE_VERSION);
    m->n_cores = sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
    if (sysinfo(&si) == 0)
        m->memory_bytes = (uint64_t)si.totalram * si.mem_unit;
    if (d->worker) {
        m->n_digests = d->n_cached;
        m->digests = d->cached;
    }
    if (d->router) {
        router_role_url(d->router, url, url_cap);
        m->url = url;
        m->url_bytes = (uint32_t)strlen(url);
    }
}

static void note_register(struct daemon *d, const struct msg_register *m)
{
    struct member *p = &d->members[m->member];
    p->known = true;
    p->incarnation = m->incarnation;
    buf_reset(&p->address);
    buf_put(&p->address, m->address, m->address_bytes);
    size_t n = m->url_bytes < sizeof p->url - 1 ? m->url_bytes : sizeof p->url - 1;
    if (n)
        memcpy(p->url, m->url, n);
    p->url[n] = 0;
}

/* Facts of this node to the scheduler, and the first phase: this rank is out of MPI_Init. */
static void send_register(struct daemon *d)
{
    struct msg_register m;
    struct buf address, b;
    struct err e = ERR_INIT;
    char url[128];
    buf_init(&address, ADDRESS_MAX_BYTES);
    buf_init(&b, REGISTER_MAX_BYTES);
    if (plane_address(d->plane, &address, &e)) {
        members_abort(d, e.code, e.text);
    } else {
        fill_register(d, &m, url, sizeof url);
        m.address = address.data;
        m.address_bytes = (uint32_t)address.len;
        if (d->rank == SCHEDULER_MEMBER) {
            note_register(d, &m);
            scheduler_role_register(d->scheduler, &m);
        } else {
            msg_register_put(&b, &m);
            daemon_send(d, SCHEDULER_MEMBER, MSG_REGISTER, &b);
        }
    }
    buf_fini(&address);
    buf_fini(&b);
}

static void send_phase(struct daemon *d, uint32_t phase)
{
    if (d->rank == SCHEDULER_MEMBER) {
        boot_reach(&d->boot, d->rank, phase);
        return;
    }
    struct msg_phase p = {d->rank, phase};
    struct buf b;
    buf_init(&b, 64);
    msg_phase_put(&b, &p);
    daemon_send(d, SCHEDULER_MEMBER, MSG_BARRIER, &b);
    buf_fini(&b);
}

/* --- links ------------------------------------------------------------------------------------------------ */

static bool wants_link(struct daemon *d, uint32_t m)
{
    if (m >= d->rank)
        return false;
    if (m == SCHEDULER_MEMBER)
        return true;
    const struct member *p = &d->members[m];
    if (d->role == ROLE_ROUTER)
        return p->role == ROLE_STANDBY; /* it hears of the end without a scheduler too */
    if (d->role != ROLE_WORKER)
        return false;
    if (p->role == ROLE_ROUTER)
        return true;
    if (p->role == ROLE_WORKER && p->in_gang)
        return true;
    /* A lost one below us leads again when it is back. */
    return p->role == ROLE_WORKER && p->rack == d->members[d->rank].rack &&
           (p->lost || m == members_rack_leader(d, p->rack));
}

static void keep_links(struct daemon *d, uint64_t now_us)
{
    for (uint32_t m = 0; m < d->rank; m++) {
        struct member *p = &d->members[m];
        if (!p->known || p->up || p->connecting || now_us < p->retry_at_us || !wants_link(d, m))
            continue;
        struct err e = ERR_INIT;
        p->retry_at_us = now_us + RETRY_US;
        if (plane_connect(d->plane, m, p->address.data, p->address.len, &e))
            log_debug("members: %s", e.text);
        else
            p->connecting = true;
    }
}

uint32_t members_rack_leader(struct daemon *d, uint32_t rack)
{
    uint64_t now = clock_now_us();
    /* Half of what others grant this member: its own beats must find another way before it counts as silent itself. */
    uint64_t silent_us = 500ull * d->config->heartbeat_ms * (d->config->missed_heartbeats + 2);
    for (uint32_t m = 0; m < d->n_ranks; m++) {
        const struct member *p = &d->members[m];
        if (p->role != ROLE_WORKER || p->rack != rack)
            continue;
        if (m == d->rank)
            return m;
        /* Silence of somebody without a link says nothing: the link is made when it is its turn to lead. */
        if (p->lost || (d->serving && p->up && now > p->heard_us + silent_us))
            continue;
        return m;
    }
    return UINT32_MAX;
}

bool members_most_workers(const struct daemon *d)
{
    uint32_t n = 0, n_up = 0;
    for (uint32_t m = 0; m < d->n_ranks; m++)
        if (d->members[m].role == ROLE_WORKER) {
            n++;
            n_up += d->members[m].up;
        }
    return 2 * n_up > n;
}

void members_up(struct daemon *d, const struct plane_peer *peer)
{
    if (peer->member >= d->n_ranks)
        return;
    struct member *p = &d->members[peer->member];
    p->up = true;
    p->lost = false;
    p->connecting = false;
    p->heard_us = clock_now_us();
    p->incarnation = peer->incarnation;
    if (strcmp(peer->build, EXASERVE_VERSION) != 0)
        log_warn("members: %u on %s runs build %s, this is %s", peer->member, p->host, peer->build,
                 EXASERVE_VERSION);
    if (!d->serving && peer->member == SCHEDULER_MEMBER) {
        send_register(d);
        send_phase(d, BOOT_OUT_OF_INIT);
    }
}

bool members_lost(struct daemon *d, uint32_t member, const struct err *why)
{
    if (member >= d->n_ranks)
        return false;
    struct member *p = &d->members[member];
    bool was_up = p->up;
    p->up = false;
    p->connecting = false;
    p->lost = true;
    p->retry_at_us = clock_now_us() + RETRY_US;
    if (was_up && !d->members[member].drained && !d->draining)
        log_warn("members: %s %u on %s is lost: %s", role_name(p->role), member, p->host,
                 why ? why->text : "");
    return was_up;
}

/* --- the start -------------------------------------------------------------------------------------------- */

static void released(struct daemon *d, uint32_t phase)
{
    struct task *t = daemon_task(d, TASK_RELEASED);
    if (t) {
        t->phase = phase;
        daemon_give(d, t);
    }
    if (phase != BOOT_DETACHED)
        return;
    uint64_t now = clock_now_us();
    for (uint32_t m = 0; m < d->n_ranks; m++)
        d->members[m].heard_us = now;
    d->serving = true;
    if (d->router)
        router_role_roster(d->router);
    if (d->scheduler)
        scheduler_role_begin(d->scheduler);
}

static void broadcast(struct daemon *d, uint16_t type, const struct buf *b)
{
    for (uint32_t m = 0; m < d->n_ranks; m++)
        if (m != d->rank && d->members[m].up)
            daemon_send(d, m, type, b);
}

static void send_roster(struct daemon *d)
{
    struct buf b;
    buf_init(&b, ROSTER_MAX_BYTES);
    msg_roster_begin_put(&b, d->n_ranks);
    for (uint32_t m = 0; m < d->n_ranks; m++) {
        const struct member *p = &d->members[m];
        struct msg_register r = {.member = m,
                                 .incarnation = p->incarnation,
                                 .role = p->role,
                                 .address = p->address.data,
                                 .address_bytes = (uint32_t)p->address.len,
                                 .url = p->url,
                                 .url_bytes = (uint32_t)strlen(p->url)};
        snprintf(r.host, sizeof r.host, "%s", p->host);
        msg_register_put(&b, &r);
    }
    broadcast(d, MSG_ROSTER, &b);
    buf_fini(&b);
}

static void take_roster(struct daemon *d, const uint8_t *body, size_t n)
{
    struct rd rd;
    struct err e = ERR_INIT;
    uint32_t count;
    int rc = msg_roster_begin(&rd, body, n, &count, &e);
    for (uint32_t i = 0; !rc && i < count; i++) {
        struct msg_register m;
        rc = msg_roster_next(&rd, &m, &e);
        if (!rc && m.member < d->n_ranks && m.member != d->rank)
            note_register(d, &m);
    }
    if (rc)
        members_abort(d, rc, e.text);
}

static void take_register(struct daemon *d, uint32_t member, const uint8_t *body, size_t n)
{
    struct msg_register m;
    struct err e = ERR_INIT;
    if (msg_register_get(&m, body, n, &e) || m.member != member) {
        log_warn("members: registration of member %u is not readable: %s", member, e.text);
        return;
    }
    if (d->serving) /* a link that came back; a joiner is a later matter */
        return;
    note_register(d, &m);
    scheduler_role_register(d->scheduler, &m);
}

static void check_start(struct daemon *d, uint64_t now_us);

void members_message(struct daemon *d, uint32_t member, uint16_t type, const uint8_t *body,
                     size_t n)
{
    struct msg_phase p;
    struct msg_text t;
    if (d->rank == SCHEDULER_MEMBER) {
        if (type == MSG_REGISTER)
            take_register(d, member, body, n);
        else if (type == MSG_BARRIER && msg_phase_get(&p, body, n, NULL) == 0)
            boot_reach(&d->boot, member, p.phase);
        if (!d->serving)
            check_start(d, clock_now_us());
        return;
    }
    if (member != SCHEDULER_MEMBER || d->serving)
        return;
    if (type == MSG_ROSTER)
        take_roster(d, body, n);
    else if (type == MSG_RELEASE && msg_phase_get(&p, body, n, NULL) == 0)
        released(d, p.phase);
    else if (type == MSG_ABORT && msg_text_get(&t, body, n, NULL) == 0)
        members_abort(d, t.code ? t.code : ERR_PEER, t.text);
}

/* Rank 0: everybody gives the start up. Said once. blamed: a host; NULL: as boot_blame says */
static void fail_start(struct daemon *d, int code, const char *why, const char *blamed)
{
    struct msg_text t = {.code = code};
    struct buf b;
    snprintf(t.text, sizeof t.text, "%s", why);
    buf_init(&b, BLAME_MAX_BYTES);
    msg_text_put(&b, &t);
    broadcast(d, MSG_ABORT, &b);
    buf_reset(&b);
    if (blamed)
        buf_printf(&b, "%s\n", blamed);
    else
        boot_blame(&d->boot, &b);
    abort_start(d, code, why, &b);
    buf_fini(&b);
    d->boot.phase = BOOT_PHASES + 1;
}

void members_task(struct daemon *d, struct task *t)
{
    struct err e = ERR_INIT;
    if (t->kind == TASK_FAULT) {
        err_set(&e, t->err.code, "the world did not start: %s", t->err.text);
        if (d->boot.phase <= BOOT_PHASES)
            fail_start(d, e.code, e.text, buf_cstr(&t->a));
        return;
    }
    if (t->kind == TASK_REACHED) {
        if (t->phase == BOOT_OUT_OF_INIT)
            send_register(d);
        send_phase(d, t->phase);
        if (d->rank == SCHEDULER_MEMBER)
            check_start(d, clock_now_us());
        return;
    }
    struct member *p = &d->members[SCHEDULER_MEMBER];
    buf_reset(&p->address);
    buf_put(&p->address, t->a.data, t->a.len);
    p->known = true;
    p->connecting = plane_connect(d->plane, SCHEDULER_MEMBER, t->a.data, t->a.len, &e) == 0;
    if (!p->connecting)
        members_abort(d, e.code, e.text);
}

static void check_start(struct daemon *d, uint64_t now_us)
{
    if (d->boot.phase > BOOT_PHASES)
        return;
    struct err e = ERR_INIT;
    uint32_t phase = d->boot.phase;
    int rc = boot_check(&d->boot, now_us, &e);
    if (rc == 1) {
        log_info("start: every rank is done with %s ms=%llu", boot_phase_name(phase),
                 (unsigned long long)(now_us - d->boot.phase_us[0]) / 1000);
        if (phase == BOOT_OUT_OF_INIT)
            send_roster(d);
        struct msg_phase p = {d->rank, phase};
        struct buf b;
        buf_init(&b, 64);
        msg_phase_put(&b, &p);
        broadcast(d, MSG_RELEASE, &b);
        buf_fini(&b);
        released(d, phase);
    } else if (rc < 0) {
        fail_start(d, rc, e.text, NULL);
    } else if (now_us > d->boot_said_us + SAY_WAITING_US) {
        char names[384];
        d->boot_said_us = now_us;
        boot_missing(&d->boot, names, sizeof names);
        log_info("start: %s: waiting for %s", boot_phase_name(phase), names);
    }
}

void members_tick(struct daemon *d, uint64_t now_us)
{
    if (d->aborted.code && now_us >= d->abort_late_us)
        start_leave(d);
    if (d->rank == SCHEDULER_MEMBER && !d->serving)
        check_start(d, now_us);
    keep_links(d, now_us);
}
