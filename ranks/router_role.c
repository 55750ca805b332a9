/* router_role.c - see router_role.h. */
#include "ranks/router_role.h"

#include "base/clock.h"
#include "base/log.h"
#include "ranks/members.h"
#include "ranks/patience.h"
#include "ranks/start.h"
#include "router/router.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ORPHAN_GRACE_MS = 1000,
    ORPHAN_EXIT_STATUS = 1,
    DOWN_FACTOR = 3, /* silent for so many times the suspect time: its requests end with an error */
    UNLED_US =
        20 * 1000000, /* without rank 0 before the service was ever up: it will not come up */
};

struct beat_memory { /* the last whole heartbeat of a worker: a leader later says only "alive" */
    struct msg_heartbeat *last; /* owned, NULL: none yet */
    uint64_t heard_us;
    bool down;
};

struct router_role {
    struct daemon *d;
    struct router *router;
    uint32_t suspect_ms;
    uint64_t begun_us;
    struct msg_heartbeat beat;
    struct beat_memory *beats; /* owned [n_ranks] */
    uint64_t ticked_us;
    uint64_t unled_us; /* rank 0 is lost since; 0: it is there */
};

static int link_submit(void *ctx, uint32_t worker, const void *body, size_t n, struct err *e)
{
    struct router_role *r = ctx;
    return plane_send(r->d->plane, worker, MSG_SUBMIT, body, n, e);
}

static int link_cancel(void *ctx, uint32_t worker, const void *body, size_t n, struct err *e)
{
    struct router_role *r = ctx;
    return plane_send(r->d->plane, worker, MSG_CANCEL, body, n, e);
}

int router_role_create(struct router_role **out, struct daemon *d, struct err *e)
{
    struct router_role *r = calloc(1, sizeof *r);
    if (r)
        r->beats = calloc(d->n_ranks, sizeof *r->beats);
    if (!r || !r->beats) {
        free(r);
        return err_set(e, ERR_NOMEM, "no memory for the router");
    }
    r->d = d;
    const struct config *c = d->config;
    r->suspect_ms = c->heartbeat_ms * (c->missed_heartbeats + 1);
    bool first = true; /* of its node: routers may share one when nodes were lost */
    for (uint32_t m = 0; m < d->rank; m++)
        if (d->layout.ranks[m].role == ROLE_ROUTER &&
            d->layout.ranks[m].node == d->layout.ranks[d->rank].node)
            first = false;
    struct router_config rc = {.listen = c->listen,
                               .port = (uint16_t)(first ? c->port : 0),
                               .key = d->key,
                               .member = d->rank,
                               .incarnation = d->incarnation,
                               .max_body_bytes = c->max_body_bytes,
                               .max_connections = c->max_connections,
                               .header_timeout_ms = 1000 * c->header_timeout_s,
                               .idle_timeout_ms = 1000 * c->idle_timeout_s,
                               .request_timeout_ms = 1000 * c->request_timeout_s,
                               .suspect_ms = r->suspect_ms};
    struct router_link link = {.ctx = r, .submit = link_submit, .cancel = link_cancel};
    int code = router_create(&r->router, &d->loop, &rc, &link, e);
    if (code) {
        free(r->beats);
        free(r);
        return code;
    }
    *out = r;
    return 0;
}

void router_role_url(const struct router_role *r, char *out, size_t cap)
{
    const char *listen = r->d->config->listen;
    bool any = strcmp(listen, "0.0.0.0") == 0 || strcmp(listen, "::") == 0;
    snprintf(out, cap, strchr(listen, ':') && !any ? "http://[%s]:%u" : "http://%s:%u",
             any ? r->d->host : listen, router_port(r->router));
}

void router_role_roster(struct router_role *r)
{
    const struct daemon *d = r->d;
    r->begun_us = clock_now_us();
    for (uint32_t m = 0; m < d->n_ranks; m++)
        if (d->members[m].role == ROLE_WORKER)
            router_on_worker_host(r->router, m, d->members[m].host,
                                  d->layout.nodes[d->layout.ranks[m].node].rack);
    router_on_scheduler(r->router, true);
}

static void take_beat(struct router_role *r, const struct msg_heartbeat *h, bool full)
{
    const struct daemon *d = r->d;
    if (h->member >= d->n_ranks || d->members[h->member].incarnation != h->incarnation)
        return;
    struct beat_memory *m = &r->beats[h->member];
    m->heard_us = clock_now_us();
    if (full) {
        if (!m->last)
            m->last = malloc(sizeof *m->last);
        if (m->last)
            *m->last = *h;
    }
    if (m->down) {
        if (!m->last || !d->members[h->member].up)
            return;
        log_info("router: worker %u on %s is heard again", h->member, d->members[h->member].host);
        m->down = false;
        m->last->seq = h->seq; /* the table has seen the older number and would drop it */
        router_on_heartbeat(r->router, m->last, true, m->heard_us);
        return;
    }
    router_on_heartbeat(r->router, h, full, m->heard_us);
}

static void take_beats(struct router_role *r, const uint8_t *body, size_t n)
{
    struct rd rd;
    struct err e = ERR_INIT;
    uint32_t leader, count;
    bool full;
    int rc = msg_heartbeats_begin(&rd, body, n, &leader, &count, &e);
    for (uint32_t i = 0; !rc && i < count; i++) {
        rc = msg_heartbeats_next(&rd, &r->beat, &full, &e);
        if (!rc)
            take_beat(r, &r->beat, full);
    }
    if (rc)
        log_warn("router: %s", e.text);
}

void router_role_message(struct router_role *r, uint32_t member, uint16_t type, const uint8_t *body,
                         size_t n)
{
    uint8_t role = r->d->members[member].role;
    struct err e = ERR_INIT;
    if (type == MSG_STEPS && role == ROLE_WORKER) {
        router_on_steps(r->router, member, body, n);
    } else if (type == MSG_HEARTBEATS && role == ROLE_WORKER) {
        take_beats(r, body, n);
    } else if (type == MSG_MODEL && role == ROLE_SCHEDULER) {
        struct msg_model m;
        if (msg_model_get(&m, body, n, &e) == 0)
            router_on_model(r->router, &m);
    } else if (type == MSG_SERVICE && role == ROLE_SCHEDULER) {
        struct msg_service m;
        if (msg_service_get(&m, body, n, &e) == 0)
            router_on_service(r->router, &m);
    } else {
        log_warn("router: message of type %u from member %u is not for a router", type, member);
    }
    if (e.code)
        log_warn("router: %s", e.text);
}

static void set_down(struct router_role *r, uint32_t member, const char *why)
{
    r->beats[member].down = true;
    log_warn("router: worker %u on %s: %s", member, r->d->members[member].host, why);
    router_on_worker_lost(r->router, member, why);
}

void router_role_lost(struct router_role *r, uint32_t member)
{
    if (r->d->members[member].role == ROLE_WORKER)
        set_down(r, member, "its process or node is gone");
    else if (r->d->members[member].role == ROLE_SCHEDULER) {
        router_on_scheduler(r->router, false);
        r->unled_us = clock_now_us();
    }
}

void router_role_up(struct router_role *r, uint32_t member)
{
    if (r->d->members[member].role == ROLE_SCHEDULER) {
        router_on_scheduler(r->router, true);
        r->unled_us = 0;
    }
}

static void start_again(struct router_role *r)
{
    struct daemon *d = r->d;
    struct task *t = daemon_task(d, TASK_UNLED);
    if (!t)
        return;
    buf_printf(&t->a, "%s\n", d->members[SCHEDULER_MEMBER].host);
    daemon_give(d, t);
    d->exit_status = EXIT_WORLD_LOST;
    daemon_drain(d, 0, "rank 0 was lost before the service was up");
}

/* endpoint.json is rank 0's, and says STARTING for ever: whoever waits for the service must see that it is up. */
static void publish_unled(struct daemon *d, const struct msg_service *v)
{
    struct task *t = daemon_task(d, TASK_RESTATE);
    if (!t)
        return;
    snprintf(t->endpoint.state, sizeof t->endpoint.state, "%s", service_state_name(v->state));
    snprintf(t->endpoint.progress, sizeof t->endpoint.progress, "%s", v->progress);
    t->endpoint.n_ready = v->n_ready;
    t->endpoint.updated_wall_s = clock_wall_us() / 1000000u;
    daemon_give(d, t);
}

/* A service that was up goes on without a scheduler, and one whose replicas are up begins. Any other would wait for it until the job's end:
 * start the world again; or, when it is this router that is cut off, end its part at the start deadline. */
static void check_led(struct router_role *r, uint64_t now_us)
{
    struct daemon *d = r->d;
    uint64_t deadline_us = r->begun_us + 1000000ull * d->config->start_deadline_s;
    if (d->draining || router_has_served(r->router))
        return;
    /* A rank 0 that lives has decided by then. One that hangs keeps its link, and is as good as lost. */
    if (!r->unled_us && now_us >= deadline_us + UNLED_US)
        r->unled_us = deadline_us;
    if (!r->unled_us)
        return;
    if (!members_most_workers(d))
        r->unled_us = now_us; /* cut off itself: when they are back rank 0 may be too */
    if (now_us >= r->unled_us + UNLED_US) {
        struct msg_service v;
        if (router_serve_unled(r->router, &v))
            publish_unled(d, &v);
        else
            start_again(r);
    } else if (now_us >= deadline_us) {
        d->exit_status = ORPHAN_EXIT_STATUS;
        daemon_drain(d, ORPHAN_GRACE_MS,
                     "the scheduler was lost before the service was ready, and it never will be");
    }
}

void router_role_tick(struct router_role *r, uint64_t now_us)
{
    /* Whoever was stopped itself has heard nobody meanwhile: that is no silence of the workers. */
    uint64_t gap_us = r->ticked_us ? now_us - r->ticked_us : 0;
    r->ticked_us = now_us;
    check_led(r, now_us);
    for (uint32_t m = 0; m < r->d->n_ranks; m++) {
        struct beat_memory *b = &r->beats[m];
        if (gap_us > PAUSE_US && b->heard_us)
            b->heard_us += gap_us;
        if (!b->down && b->heard_us && now_us > b->heard_us + 1000ull * DOWN_FACTOR * r->suspect_ms)
            set_down(r, m, "it has been silent for too long");
    }
}

static void on_drained(void *ctx)
{
    struct router_role *r = ctx;
    struct daemon *d = r->d;
    struct msg_phase p = {d->rank, PHASE_DRAINED};
    struct buf b;
    buf_init(&b, 64);
    msg_phase_put(&b, &p);
    for (uint32_t m = 0; m < d->n_ranks; m++)
        if (m != d->rank && d->members[m].up)
            daemon_send(d, m, MSG_BARRIER, &b);
    buf_fini(&b);
    d->members[d->rank].drained = true;
    daemon_leave(d);
}

void router_role_drain(struct router_role *r, uint32_t grace_ms)
{
    router_drain(r->router, grace_ms, on_drained, r);
}
