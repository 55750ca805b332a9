/* beats.c - see beats.h. What is merged into a leader's message is leader.c's. */
#include "ranks/beats.h"

#include "base/log.h"
#include "ranks/leader.h"

#include <stdlib.h>
#include <sys/sysinfo.h>

enum { BEATS_MAX_BYTES = 32 << 20 };

struct beats {
    struct daemon *d;
    beats_fill_fn *fill;
    void *ctx;
    struct leader *leader; /* owned */
    bool leading;          /* by rank, not for want of a link to the leader */
    bool hurry;
    uint64_t seq, next_us;
    struct msg_heartbeat own, taken; /* tens of KiB each: not on a callback's stack */
};

int beats_create(struct beats **out, struct daemon *d, beats_fill_fn *fill, void *ctx,
                 struct err *e)
{
    struct beats *b = calloc(1, sizeof *b);
    if (b)
        b->leader = leader_create(d->rank);
    if (!b || !b->leader) {
        free(b);
        return err_set(e, ERR_NOMEM, "no memory for heartbeats");
    }
    b->d = d;
    b->fill = fill;
    b->ctx = ctx;
    *out = b;
    return 0;
}

void beats_destroy(struct beats *b)
{
    if (!b)
        return;
    leader_destroy(b->leader);
    free(b);
}

void beats_hurry(struct beats *b)
{
    b->hurry = true;
}

static void fill_own(struct beats *b)
{
    struct sysinfo si;
    b->own = (struct msg_heartbeat){.member = b->d->rank,
                                    .incarnation = b->d->incarnation,
                                    .seq = ++b->seq,
                                    .draining = b->d->draining};
    if (sysinfo(&si) == 0)
        b->own.memory_free_bytes = (uint64_t)si.freeram * si.mem_unit;
    b->fill(b->ctx, &b->own);
}

/* What was heard since the last time, to the scheduler and the routers. */
static void report(struct beats *b)
{
    struct daemon *d = b->d;
    struct buf body;
    buf_init(&body, BEATS_MAX_BYTES);
    uint32_t n = leader_flush(b->leader, &body);
    for (uint32_t m = 0; n && m < d->n_ranks; m++) {
        const struct member *p = &d->members[m];
        if (p->up && m != d->rank && (p->role == ROLE_SCHEDULER || p->role == ROLE_ROUTER))
            daemon_send(d, m, MSG_HEARTBEATS, &body);
    }
    buf_fini(&body);
}

/* An empty message to the members of the rack: it says "I lead". */
static void greet(struct beats *b)
{
    struct daemon *d = b->d;
    struct buf body;
    buf_init(&body, 256);
    msg_heartbeats_begin_put(&body, d->rank, 0);
    for (uint32_t m = 0; m < d->n_ranks; m++) {
        const struct member *p = &d->members[m];
        if (p->up && m != d->rank && p->role == ROLE_WORKER && p->rack == d->members[d->rank].rack)
            daemon_send(d, m, MSG_HEARTBEATS, &body);
    }
    buf_fini(&body);
}

static void send_own(struct beats *b)
{
    struct daemon *d = b->d;
    uint32_t leader = daemon_rack_leader(d, d->members[d->rank].rack);
    bool leads = leader == d->rank || leader == UINT32_MAX;
    fill_own(b);
    b->hurry = false;
    if (leads && !b->leading) {
        log_info("leader: this worker leads rack %s", d->rack[0] ? d->rack : "(all nodes)");
        leader_refresh(b->leader);
    }
    b->leading = leads;
    if (leads || !d->members[leader].up) {
        bool urgent = leader_take(b->leader, &b->own);
        if (urgent || !leads)
            report(b);
        return;
    }
    struct buf body;
    buf_init(&body, BEATS_MAX_BYTES);
    msg_heartbeat_put(&body, &b->own);
    daemon_send(d, leader, MSG_HEARTBEAT, &body);
    buf_fini(&body);
}

void beats_take(struct beats *b, uint32_t member, const uint8_t *body, size_t n)
{
    if (msg_heartbeat_get(&b->taken, body, n, NULL) || b->taken.member != member)
        return;
    if (leader_take(b->leader, &b->taken))
        report(b);
}

void beats_up(struct beats *b, uint32_t member)
{
    if (b->d->members[member].role == ROLE_WORKER)
        return;
    leader_refresh(b->leader); /* the newcomer knows nothing yet */
    b->hurry = true;
}

void beats_lost(struct beats *b, uint32_t member)
{
    leader_forget(b->leader, member);
}

void beats_tick(struct beats *b, uint64_t now_us)
{
    bool regular = now_us >= b->next_us;
    if (!b->d->serving || !(b->hurry || regular))
        return;
    if (regular)
        b->next_us = now_us + 1000ull * b->d->config->heartbeat_ms;
    send_own(b);
    if (regular && b->leading) {
        report(b);
        greet(b);
    }
}

void beats_flush(struct beats *b)
{
    if (b->hurry && b->d->serving)
        send_own(b);
}
