/* coll_relay.c - see coll_relay.h. */
#include "engine/coll_relay.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "wire/msg.h"

enum {
    /* What one other shard can be ahead of us: a piece in flight in each of a few calls. More is a fault of the sender. */
    PENDING_BYTES = 32 << 20,
    FULL_POLL_US = 200,
    WAIT_SLICE_US = 50000, /* how late an abort from another thread is noticed */
};

struct pair {
    uint64_t n_sent, n_received; /* bytes */
    struct buf pending;          /* received, not yet asked for */
};

struct coll_relay {
    struct channel *channel;
    struct shard_name name;
    uint32_t shard, n_shards;
    uint64_t deadline_us;
    _Atomic bool aborted;
    struct err broken;  /* the first error; code 0: none */
    struct pair *pairs; /* [n_shards] */
    struct buf record, out;
};

static int fail(struct coll_relay *r, const struct err *why, struct err *e)
{
    if (!r->broken.code)
        r->broken = *why;
    return err_set(e, r->broken.code, "%s", r->broken.text);
}

static int check_open(struct coll_relay *r, struct err *e)
{
    if (r->broken.code)
        return err_set(e, r->broken.code, "%s", r->broken.text);
    struct err why = ERR_INIT;
    if (!atomic_load(&r->aborted))
        return 0;
    err_set(&why, ERR_PEER, "the gang of shard %u was given up", r->shard);
    return fail(r, &why, e);
}

static int relay_send(void *ctx, uint32_t to, const void *p, size_t n_bytes, struct err *e)
{
    struct coll_relay *r = ctx;
    struct err why = ERR_INIT;
    int rc = check_open(r, e);
    if (rc)
        return rc;
    struct msg_shard m = {.name = r->name,
                          .from = r->shard,
                          .to = to,
                          .at = r->pairs[to].n_sent,
                          .n_bytes = (uint32_t)n_bytes,
                          .bytes = p};
    buf_reset(&r->out);
    msg_shard_put(&r->out, &m);
    uint64_t end = clock_now_us() + r->deadline_us;
    for (;;) {
        rc = buf_ok(&r->out)
                 ? channel_send(r->channel, MSG_SHARD, r->out.data, r->out.len, &why)
                 : err_set(&why, ERR_NOMEM, "a piece of %zu bytes: out of memory", n_bytes);
        if (rc != ERR_AGAIN)
            break;
        if (clock_now_us() >= end)
            rc = err_set(&why, ERR_TIMEOUT, "shard %u: its worker has not read for %" PRIu64 " ms",
                         r->shard, r->deadline_us / 1000);
        if (rc == ERR_TIMEOUT || check_open(r, &why))
            break;
        clock_sleep_us(FULL_POLL_US);
    }
    if (rc)
        return fail(r, &why, e);
    r->pairs[to].n_sent += n_bytes;
    return 0;
}

/* Take one record in; 1: took one, 0: none came in this slice. */
static int take_record(struct coll_relay *r, struct err *why)
{
    uint16_t type;
    struct msg_shard m;
    int rc = channel_recv(r->channel, &type, &r->record, why);
    if (rc == 0) {
        channel_wait(r->channel, WAIT_SLICE_US);
        return 0;
    }
    if (rc < 0)
        return rc;
    if (type != MSG_SHARD)
        return err_set(why, ERR_PROTO, "shard %u: a record of type %u on the shards' channel",
                       r->shard, type);
    rc = msg_shard_get(&m, r->record.data, r->record.len, why);
    if (rc)
        return rc;
    if (m.to != r->shard || m.from >= r->n_shards || m.from == r->shard)
        return err_set(why, ERR_PROTO, "shard %u: bytes from shard %u to shard %u came here",
                       r->shard, m.from, m.to);
    struct pair *p = &r->pairs[m.from];
    if (m.at != p->n_received)
        return err_set(why, ERR_PROTO,
                       "shard %u: expected byte %" PRIu64 " of shard %u, found %" PRIu64, r->shard,
                       p->n_received, m.from, m.at);
    buf_put(&p->pending, m.bytes, m.n_bytes);
    if (!buf_ok(&p->pending))
        return err_set(why, ERR_LIMIT, "shard %u: shard %u is more than %d bytes ahead", r->shard,
                       m.from, PENDING_BYTES);
    p->n_received += m.n_bytes;
    return 1;
}

static int relay_recv(void *ctx, uint32_t from, void *out, size_t n_bytes, struct err *e)
{
    struct coll_relay *r = ctx;
    struct pair *p = &r->pairs[from];
    int rc = check_open(r, e);
    uint64_t end = 0;
    while (!rc && p->pending.len < n_bytes) {
        struct err why = ERR_INIT;
        int got = take_record(r, &why);
        if (got < 0)
            return fail(r, &why, e);
        uint64_t now = got ? 0 : clock_now_us();
        end = got || !end ? clock_now_us() + r->deadline_us : end;
        if (!got && now >= end) {
            err_set(&why, ERR_TIMEOUT, "shard %u sent nothing for %" PRIu64 " ms", from,
                    r->deadline_us / 1000);
            return fail(r, &why, e);
        }
        rc = check_open(r, e);
    }
    if (rc)
        return rc;
    memcpy(out, p->pending.data, n_bytes);
    buf_consume(&p->pending, n_bytes);
    return 0;
}

static void relay_abort(void *ctx)
{
    struct coll_relay *r = ctx;
    atomic_store(&r->aborted, true);
}

int coll_relay_create(struct coll_relay **out, struct channel *c, const struct shard_name *name,
                      uint32_t shard, uint32_t n_shards, uint64_t deadline_us, struct err *e)
{
    struct coll_relay *r = calloc(1, sizeof *r);
    if (r)
        r->pairs = calloc(n_shards, sizeof *r->pairs);
    if (!r || !r->pairs) {
        free(r);
        return err_set(e, ERR_NOMEM, "relay of %u shards: out of memory", n_shards);
    }
    r->channel = c;
    r->name = *name;
    r->shard = shard;
    r->n_shards = n_shards;
    r->deadline_us = deadline_us;
    for (uint32_t i = 0; i < n_shards; i++)
        buf_init(&r->pairs[i].pending, PENDING_BYTES);
    buf_init(&r->record, RING_MAX_RECORD);
    buf_init(&r->out, RING_MAX_RECORD);
    *out = r;
    return 0;
}

void coll_relay_destroy(struct coll_relay *r)
{
    if (!r)
        return;
    for (uint32_t i = 0; i < r->n_shards; i++)
        buf_fini(&r->pairs[i].pending);
    free(r->pairs);
    buf_fini(&r->record);
    buf_fini(&r->out);
    channel_destroy(r->channel);
    free(r);
}

struct coll_wire coll_relay_wire(struct coll_relay *r)
{
    return (struct coll_wire){r, relay_send, relay_recv, relay_abort};
}
