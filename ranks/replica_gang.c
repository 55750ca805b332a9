/* replica_gang.c - a replica's place among the shards of a gang: what they talk through, and what their workers say (ranks/shard.h). */
#include "ranks/replica_internal.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/coll_shm.h"

enum {
    GANG_SAY_US = 5000000, /* shards that are not there after so long are named */
    /* What waits for room in an engine's ring: a step's logits come at once, and the engine may have to wait for a processor. */
    WAITING_BYTES = 64 << 20,
    RECORD_HEAD = 4, /* u32 bytes of the body */
};

void replica_segment_close(struct replica *r)
{
    if (r->segment >= 0)
        close(r->segment);
    r->segment = -1;
}

static void on_side_closed(uv_handle_t *h)
{
    struct replica *r = h->data;
    channel_destroy(r->side);
    r->side = NULL;
    r->side_open = false;
    replica_maybe_free(r);
}

void replica_side_close(struct replica *r)
{
    if (r->side_open && !uv_is_closing((uv_handle_t *)&r->side_poll))
        uv_close((uv_handle_t *)&r->side_poll, on_side_closed);
}

/* --- bytes between shards ---------------------------------------------------------------------------------- */

static void end_gang(struct replica *r, const char *why)
{
    if (!r->alive || r->hung)
        return;
    r->hung = true;
    snprintf(r->last_words, sizeof r->last_words, "%s", why);
    log_warn("replica: shard %u of replica %u ends with its gang: %s", r->assign.shard,
             r->assign.replica, why);
    uv_process_kill(&r->process, SIGKILL);
}

/* Records that the engine's ring had no room for, in their order. */
static void feed_engine(struct replica *r)
{
    struct buf *b = &r->waiting;
    struct err e = ERR_INIT;
    int rc = 0;
    while (r->waiting_at < b->len && !rc) {
        const uint8_t *record = b->data + r->waiting_at;
        uint32_t n = u32_at(record, 0);
        rc = channel_send(r->side, MSG_SHARD, record + RECORD_HEAD, n, &e);
        r->waiting_at += rc ? 0 : RECORD_HEAD + n;
    }
    if (rc && rc != ERR_AGAIN)
        end_gang(r, e.text);
    if (r->waiting_at == b->len) {
        replica_waiting_drop(r);
    } else if (r->waiting_at > b->len / 2) {
        buf_consume(b, r->waiting_at);
        r->waiting_at = 0;
    }
}

void replica_waiting_drop(struct replica *r)
{
    buf_fini(&r->waiting);
    buf_init(&r->waiting, WAITING_BYTES);
    r->waiting_at = 0;
}

/* From our engine to another shard's worker, whole. */
static void pass_on(struct replica *r)
{
    struct msg_shard m;
    struct err e = ERR_INIT;
    const struct msg_assign *a = &r->assign;
    if (msg_shard_get(&m, r->record.data, r->record.len, &e) || m.from != a->shard ||
        m.to >= a->n_shards || m.to == a->shard || m.name.deployment != a->deployment ||
        m.name.replica != a->replica || m.name.epoch != a->epoch ||
        m.name.gang != shard_gang(r->shard)) {
        end_gang(r, "it sent bytes that are not for its gang");
        return;
    }
    r->host.tell(r->host.ctx, r, shard_member(r->shard, m.to), MSG_SHARD, &r->record);
}

static void drain_side(struct replica *r)
{
    uint16_t type;
    struct err e = ERR_INIT;
    int rc;
    while ((rc = channel_recv(r->side, &type, &r->record, &e)) == 1)
        if (type == MSG_SHARD)
            pass_on(r);
    if (rc < 0) {
        uv_poll_stop(&r->side_poll);
        end_gang(r, e.text);
    } else if (r->waiting.len) {
        feed_engine(r);
    }
}

static void on_side(uv_poll_t *p, int status, int events)
{
    struct replica *r = p->data;
    if (r->side && !uv_is_closing((uv_handle_t *)p))
        drain_side(r);
}

void replica_shard_bytes(struct replica *r, uint32_t from_member, const struct msg_shard *m,
                         const uint8_t *body, size_t n)
{
    struct err e = ERR_INIT;
    if (!r->side || !r->alive || m->name.epoch != r->assign.epoch ||
        m->name.gang != shard_gang(r->shard) || m->from >= r->assign.n_shards ||
        shard_member(r->shard, m->from) != from_member)
        return;
    if (r->waiting.len)
        feed_engine(r);
    if (!r->waiting.len) {
        int rc = channel_send(r->side, MSG_SHARD, body, n, &e);
        if (rc && rc != ERR_AGAIN)
            end_gang(r, e.text);
        if (rc != ERR_AGAIN)
            return;
    }
    buf_u32(&r->waiting, (uint32_t)n);
    buf_put(&r->waiting, body, n);
    if (!buf_ok(&r->waiting))
        end_gang(r, "its engine does not read what the other shards send");
}

int replica_shards_connect(struct replica *r, int *fds, int *n, bool *shared, struct err *e)
{
    const struct msg_assign *a = &r->assign;
    uint32_t tp = a->tp ? a->tp : 1;
    *shared = shard_on_one_node(r->shard);
    *n = *shared ? 1 : CHANNEL_FDS;
    if (!*shared) {
        replica_waiting_drop(r);
        int rc = channel_create(&r->side, fds, e);
        if (!rc)
            rc = replica_poll_open(r, r->side, &r->side_poll, on_side, e);
        r->side_open = !rc;
        return rc;
    }
    if (shard_is_leader(r->shard)) {
        replica_segment_close(r);
        int rc = coll_shm_segment(&r->segment, tp, a->n_shards / tp, e);
        fds[0] = r->segment;
        return rc;
    }
    fds[0] = r->host.segment(r->host.ctx, r);
    return fds[0] >= 0 ? 0 : err_set(e, ERR_AGAIN, "the gang's leader is gone already");
}

/* --- gangs ------------------------------------------------------------------------------------------------ */

void replica_tell_word(void *ctx, uint32_t member, const struct msg_gang *m)
{
    struct replica *r = ctx;
    struct buf b;
    buf_init(&b, 4096);
    msg_gang_put(&b, m);
    r->host.tell(r->host.ctx, r, member, MSG_GANG, &b);
    buf_fini(&b);
}

void replica_gang_word(struct replica *r, uint32_t from_member, const struct msg_gang *m)
{
    uint64_t now_us = clock_now_us();
    const char *why = r->shard ? shard_word(r->shard, from_member, m, now_us) : NULL;
    if (why)
        end_gang(r, why);
    else if (r->shard && !shard_is_leader(r->shard) && !shard_on_one_node(r->shard) &&
             shard_may_start(r->shard, now_us))
        replica_tick(r, now_us); /* at once: bytes of the leader's engine are on their way */
}

void replica_member_lost(struct replica *r, uint32_t member)
{
    const char *why = r->shard ? shard_lost(r->shard, member) : NULL;
    if (why)
        end_gang(r, why);
}

int replica_segment(const struct replica *r)
{
    return r->segment;
}

/* Before the first start, and after each end. */
void replica_gang_tick(struct replica *r, uint64_t now_us)
{
    if (r->side && r->alive && r->waiting.len)
        feed_engine(r);
    if (r->process_open || r->poll_open || r->side_open)
        return; /* the shard is not free to start yet */
    shard_tick(r->shard, now_us);
    if (!shard_is_leader(r->shard) || !r->restart_at_us || now_us < r->restart_at_us)
        return;
    char awaited[MSG_TEXT_BYTES / 2];
    shard_awaited(r->shard, now_us, awaited, sizeof awaited);
    if (awaited[0] && now_us > r->restart_at_us + GANG_SAY_US && !r->said_awaited) {
        r->said_awaited = true;
        snprintf(r->trouble, sizeof r->trouble, "waits for %s", awaited);
        log_warn("replica: %u %s", r->assign.replica, r->trouble);
        r->host.changed(r->host.ctx, r);
    }
}
