/* flight_events.c - what happens to running requests: step frames, lost workers and replicas,
 * deadlines. */
#include "router/flight_parts.h"

#include "base/clock.h"
#include "base/log.h"

static uint64_t now_us(const struct router *r)
{
    return clock_now_us();
}

void flight_dirty_add(struct flight *f)
{
    if (f->is_dirty)
        return;
    f->is_dirty = true;
    f->next_dirty = f->router->dirty;
    f->router->dirty = f;
}

void flight_dirty_remove(struct flight *f)
{
    for (struct flight **at = &f->router->dirty; f->is_dirty && *at; at = &(*at)->next_dirty)
        if (*at == f) {
            *at = f->next_dirty;
            f->is_dirty = false;
            return;
        }
}

/* --- frames ----------------------------------------------------------------------------------- */

static void on_answer(struct choice *c, const struct step_entry *entry, enum answer_event event)
{
    struct flight *f = c->flight;
    switch (event) {
    case ANSWER_DROPPED:
        f->router->counters.n_entries_dropped++;
        return;
    case ANSWER_REFUSED:
        choice_refused(c);
        return;
    case ANSWER_FAILED:
        f->has_failed = true; /* all its attempts end with it */
        /* fall through */
    case ANSWER_STOPPED:
    case ANSWER_DONE:
        if (entry->finish == FINISH_NONE)
            choice_attempt_cancel(c);
        else
            choice_attempt_end(c);
        c->state = CHOICE_DONE;
        f->n_done++;
        break;
    case ANSWER_MORE:
        break;
    }
    c->is_new = true;
    flight_dirty_add(f);
}

static void on_entry(struct router *r, uint32_t worker, const struct step_section *s,
                     const struct step_entry *entry)
{
    struct choice *c = NULL;
    if (entry->attempt.router == r->config.member &&
        entry->attempt.router_inc == (uint32_t)r->config.incarnation)
        c = attempts_find(r->attempts, entry->attempt.slot, entry->attempt.generation);
    if (!c || c->pick.worker != worker || c->pick.deployment != s->deployment ||
        c->pick.replica != s->replica || c->pick.epoch != s->epoch) {
        r->counters.n_entries_stale++;
        return;
    }
    struct flight *f = c->flight;
    on_answer(c, entry,
              answer_push(&c->answer, entry, f->has_failed ? &(struct api_error){0} : &f->error));
}

void flights_on_steps(struct router *r, uint32_t worker, const void *body, size_t n)
{
    struct rd rd = rd_make(body, n);
    struct step_section s;
    struct step_entry entry;
    struct err e = ERR_INIT;
    int rc = 0;
    while (!rc && !rd_done(&rd)) {
        rc = msg_section_get(&rd, &s, &e);
        for (uint32_t i = 0; !rc && i < s.n_entries; i++) {
            rc = msg_entry_get(&rd, &entry, &e);
            if (!rc)
                on_entry(r, worker, &s, &entry);
        }
    }
    if (rc && !r->counters.n_frames_bad++)
        log_warn("router: bad step frame worker=%u: %s (further ones are only counted)", worker,
                 e.text);
    while (r->dirty) {
        struct flight *f = r->dirty;
        r->dirty = f->next_dirty;
        f->is_dirty = false;
        flight_flush(f);
    }
    flights_dispatch(r);
}

/* --- losses and deadlines --------------------------------------------------------------------- */

static void fail_lost(struct flight *f, const char *why)
{
    struct api_error a;
    api_fail(&a, 502, API_SERVER_ERROR, NULL, "replica_lost",
             "The replica that worked on this request was lost: %s.", why);
    flight_fail(
        f, &a); /* silent is not dead: attempts are cancelled, they may compute on for nobody */
}

static bool runs_on(const struct choice *c, const struct table_lost *l)
{
    const struct table_pick *p = &c->pick;
    return c->state == CHOICE_RUNNING && p->worker == l->worker && p->deployment == l->deployment &&
           p->replica == l->replica && p->epoch == l->epoch && p->incarnation == l->incarnation;
}

void flights_on_worker_lost(struct router *r, uint32_t worker, const char *why)
{
    for (struct flight *f = r->flights, *next; f; f = next) {
        bool lost = false;
        next = f->next;
        for (uint32_t i = 0; i < f->n_begun; i++)
            lost |= f->choices[i].state == CHOICE_RUNNING && f->choices[i].pick.worker == worker;
        if (lost)
            fail_lost(f, why);
    }
}

void flights_on_replica_lost(struct router *r, const struct table_lost *l)
{
    for (struct flight *f = r->flights, *next; f; f = next) {
        bool lost = false;
        next = f->next;
        for (uint32_t i = 0; i < f->n_begun; i++)
            lost |= runs_on(&f->choices[i], l);
        if (lost)
            fail_lost(f, l->why);
    }
}

/* Asked for every waiting request, so the last answer is kept for one round. */
struct live_memo {
    bool known, live;
    uint32_t deployment;
};

static bool is_live(struct router *r, uint32_t deployment, struct live_memo *m)
{
    if (!m->known || m->deployment != deployment)
        *m =
            (struct live_memo){true, table_n_live(r->table, deployment, now_us(r)) > 0, deployment};
    return m->live;
}

/* The first choice that has waited too long for a place. */
static bool has_waited(struct flight *f, uint64_t now_ms, struct live_memo *memo,
                       struct api_error *a)
{
    for (uint32_t i = 0; i < f->n_begun; i++) {
        const struct choice *c = &f->choices[i];
        if (c->state != CHOICE_WAITING)
            continue;
        bool live = is_live(f->router, f->model->deployment, memo);
        uint64_t until = c->wait_until_ms;
        if (!live && until > WAIT_FULL_MS - WAIT_ABSENT_MS)
            until -= WAIT_FULL_MS - WAIT_ABSENT_MS;
        if (f->deadline_ms < until)
            until = f->deadline_ms;
        if (now_ms < until)
            continue;
        api_fail(a, 503, API_SERVER_ERROR, NULL, live ? "overloaded" : "no_replica",
                 live ? "All replicas are busy. Try again shortly."
                      : "No replica of this model is alive at the moment. Try again shortly.");
        a->retry_after_s = RETRY_AFTER_S;
        return true;
    }
    return false;
}

static bool flight_expired(struct flight *f, uint64_t now_ms, struct live_memo *memo,
                           struct api_error *a)
{
    if (!f->n_begun)
        return false;
    if (has_waited(f, now_ms, memo, a))
        return true;
    if (now_ms < f->deadline_ms)
        return false;
    api_fail(a, 504, API_SERVER_ERROR, NULL, "request_timeout",
             "The request did not finish within %u ms.", f->router->config.request_timeout_ms);
    return true;
}

void flights_on_tick(struct router *r, uint64_t now_ms)
{
    struct live_memo memo = {0};
    flights_dispatch(r);
    for (struct flight *f = r->flights, *next; f; f = next) {
        struct api_error a;
        next = f->next;
        if (flight_expired(f, now_ms, &memo, &a))
            flight_fail(f, &a);
    }
}

void flights_fail_all(struct router *r, const struct api_error *a)
{
    for (struct flight *f = r->flights, *next; f; f = next) {
        next = f->next;
        if (f->work.data) {
            if (f->conn)
                routes_respond_error(f->conn, a, f->request_id);
            f->conn = NULL; /* ends with its job */
        } else {
            flight_fail(f, a);
        }
    }
}
