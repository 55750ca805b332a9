/* scheduler_role.c - see scheduler_role.h. */
#include "ranks/scheduler_role.h"

#include "base/clock.h"
#include "base/log.h"
#include "ranks/scheduler/scheduler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAILED_EXIT_STATUS = 1, FAILED_GRACE_MS = 1000 };

struct scheduler_role {
    struct daemon *d;
    struct sched *sched;
    struct msg_heartbeat beat; /* tens of KiB: not on a callback's stack */
    bool publishing, dirty;    /* one publication at a time; the latest state wins */
    uint8_t said_state;
    bool stopped;
};

/* What the engine is to know beside what ranks understand themselves: engine/settings.h. */
static void settings_write(char out[MSG_SETTINGS_BYTES], const struct config_model *m)
{
    int n = snprintf(out, MSG_SETTINGS_BYTES, "queue=%u prefix_cache=%s kv_type=%s speculation=%s",
                     m->queue, m->prefix_cache ? "on" : "off", m->kv_type, m->speculation);
    if (m->token_budget)
        n += snprintf(out + n, (size_t)(MSG_SETTINGS_BYTES - n), " token_budget=%u",
                      m->token_budget);
    if (m->memory_fraction)
        n += snprintf(out + n, (size_t)(MSG_SETTINGS_BYTES - n), " memory_fraction=%s",
                      m->memory_fraction);
    if (!strcmp(m->speculation, "draft"))
        n += snprintf(out + n, (size_t)(MSG_SETTINGS_BYTES - n), " draft=%s", m->draft);
    CHECK(n < MSG_SETTINGS_BYTES); /* config/options.c bounds the texts */
}

int scheduler_role_create(struct scheduler_role **out, struct daemon *d, struct err *e)
{
    struct scheduler_role *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_NOMEM, "no memory for the scheduler");
    const struct config *c = d->config;
    const struct config_model *m = &c->models[0];
    struct sched_wish wish = {
        .model_name = m->name && m->name[0] ? m->name : NULL,
        .pack_path = m->pack,
        .engine = m->engine,
        .replicas = m->replicas,
        .min_replicas = m->min_replicas,
        .n_ctx = m->context,
        .n_slots = m->slots,
        .n_threads = m->threads,
        .tp = m->tensor_parallel,
        .pp = m->pipeline_parallel,
        .shards_per_node = m->shards_per_node,
        .start_deadline_us = 1000000ull * c->start_deadline_s,
        .suspect_us = 1000ull * c->heartbeat_ms * (c->missed_heartbeats + 1),
        .job_end_wall_s = d->alloc.end_wall_s,
    };
    s->d = d;
    settings_write(wish.settings, m);
    int rc = sched_create(&s->sched, &wish, e);
    if (rc) {
        free(s);
        return rc;
    }
    *out = s;
    return 0;
}

static void put_urls(const struct daemon *d, struct endpoint *p, bool lost)
{
    for (uint32_t m = 0; m < d->n_ranks && p->n_urls < ENDPOINT_MAX_URLS; m++) {
        const struct member *r = &d->members[m];
        if (r->role == ROLE_ROUTER && r->known && r->lost == lost)
            snprintf(p->urls[p->n_urls++], sizeof p->urls[0], "%s", r->url);
    }
}

/* Routers that answer come first: who takes one URL takes the first. */
static void fill_endpoint(const struct scheduler_role *s, struct endpoint *p)
{
    const struct daemon *d = s->d;
    struct msg_service v;
    sched_service(s->sched, &v);
    memset(p, 0, sizeof *p);
    snprintf(p->job, sizeof p->job, "%s", d->alloc.job);
    snprintf(p->cluster, sizeof p->cluster, "%s", d->alloc.cluster);
    snprintf(p->name, sizeof p->name, "%s", d->config->name);
    bool end_well = s->stopped && v.state != SERVICE_FAILED;
    snprintf(p->state, sizeof p->state, "%s",
             service_state_name(end_well ? SERVICE_STOPPED : v.state));
    snprintf(p->progress, sizeof p->progress, "%s",
             end_well ? "the service has ended" : v.progress);
    snprintf(p->key, sizeof p->key, "%s", d->key);
    snprintf(p->model, sizeof p->model, "%s", sched_model_name(s->sched));
    put_urls(d, p, false);
    put_urls(d, p, true);
    p->n_ready = v.n_ready;
    p->n_wanted = v.n_wanted;
    p->n_min = v.n_min;
    p->attempt = d->attempt;
    p->end_wall_s = d->alloc.end_wall_s;
    p->updated_wall_s = clock_wall_us() / 1000000u;
}

static void publish(struct scheduler_role *s)
{
    s->dirty = true;
    if (s->publishing)
        return;
    struct task *t = daemon_task(s->d, TASK_PUBLISH);
    if (!t)
        return;
    fill_endpoint(s, &t->endpoint);
    s->publishing = daemon_give(s->d, t);
    s->dirty = !s->publishing; /* the next tick tries again */
}

static void say_state(struct scheduler_role *s)
{
    struct msg_service v;
    sched_service(s->sched, &v);
    if (v.state == s->said_state) {
        log_debug("service: %s: %s", service_state_name(v.state), v.progress);
        return;
    }
    s->said_state = v.state;
    log_info("service: %s: %s", service_state_name(v.state), v.progress);
}

static void act(struct scheduler_role *s)
{
    struct sched_actions *a = sched_actions(s->sched);
    bool failed = false;
    for (uint32_t i = 0; i < a->n; i++) {
        const struct sched_action *x = &a->list[i];
        if (x->kind == SCHED_SEND) {
            struct buf body = {
                .data = a->bodies.data + x->at, .len = x->n, .cap = x->n, .max = x->n};
            daemon_send(s->d, x->member, x->type, &body);
        } else if (x->kind == SCHED_PUBLISH) {
            say_state(s);
            publish(s);
        } else {
            failed = true;
        }
    }
    sched_actions_clear(a);
    if (failed) {
        s->d->exit_status = FAILED_EXIT_STATUS;
        daemon_drain(s->d, FAILED_GRACE_MS, "the service failed");
    }
}

void scheduler_role_register(struct scheduler_role *s, const struct msg_register *m)
{
    uint32_t rack = m->member < s->d->n_ranks ? s->d->members[m->member].rack : 0;
    sched_register(s->sched, m, rack, clock_now_us());
    act(s);
}

void scheduler_role_begin(struct scheduler_role *s)
{
    sched_begin(s->sched, clock_now_us());
    act(s);
    struct task *t = daemon_task(s->d, TASK_OPEN_PACK);
    if (t)
        daemon_give(s->d, t);
}

void scheduler_role_message(struct scheduler_role *s, uint32_t member, uint16_t type,
                            const uint8_t *body, size_t n)
{
    struct err e = ERR_INIT;
    uint64_t now = clock_now_us();
    if (type == MSG_HAVE) {
        struct msg_have h;
        if (msg_have_get(&h, body, n, &e) == 0 && h.member == member)
            sched_have(s->sched, &h, now);
    } else if (type == MSG_HEARTBEATS) {
        struct rd rd;
        uint32_t leader, count;
        bool full;
        int rc = msg_heartbeats_begin(&rd, body, n, &leader, &count, &e);
        for (uint32_t i = 0; !rc && i < count; i++) {
            rc = msg_heartbeats_next(&rd, &s->beat, &full, &e);
            if (!rc)
                sched_heartbeat(s->sched, &s->beat, full, now);
        }
    } else if (type == MSG_TROUBLE) {
        struct msg_text t;
        if (msg_text_get(&t, body, n, &e) == 0 && t.value <= UINT32_MAX)
            sched_trouble(s->sched, member, (uint32_t)t.value, t.text, now);
    } else {
        log_warn("scheduler: message of type %u from member %u is not for the scheduler", type,
                 member);
    }
    if (e.code)
        log_warn("scheduler: %s", e.text);
    act(s);
}

void scheduler_role_lost(struct scheduler_role *s, uint32_t member)
{
    sched_lost(s->sched, member, clock_now_us());
    if (s->d->members[member].role == ROLE_ROUTER && !s->d->draining)
        publish(s); /* the first URL should be one that answers */
    act(s);
}

void scheduler_role_up(struct scheduler_role *s, const struct plane_peer *peer)
{
    if (peer->member >= s->d->n_ranks)
        return;
    if (s->d->members[peer->member].role == ROLE_ROUTER) {
        sched_router_returned(s->sched, peer->member, clock_now_us());
        publish(s); /* its URL is of use again */
    } else {
        sched_returned(s->sched, peer->member, peer->incarnation, clock_now_us());
    }
    act(s);
}

void scheduler_role_task(struct scheduler_role *s, struct task *t)
{
    uint64_t now = clock_now_us();
    if (t->kind == TASK_PUBLISH) {
        s->publishing = false;
        if (s->dirty)
            publish(s);
    } else if (t->kind == TASK_OPEN_PACK) {
        if (t->err.code)
            sched_pack_failed(s->sched, &t->err, now);
        else
            sched_pack(s->sched, t->a.data, t->a.len, t->b.data, t->b.len, t->c.data, t->n, now);
    }
    act(s);
}

void scheduler_role_tick(struct scheduler_role *s, uint64_t now_us)
{
    sched_tick(s->sched, now_us);
    act(s);
    if (s->dirty)
        publish(s);
}

void scheduler_role_drain(struct scheduler_role *s)
{
    sched_drain(s->sched, clock_now_us());
    act(s);
}

bool scheduler_role_stopped(struct scheduler_role *s)
{
    if (!s->stopped) {
        s->stopped = true;
        publish(s);
    }
    return !s->publishing && !s->dirty;
}
