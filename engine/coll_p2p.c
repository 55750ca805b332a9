/* coll_p2p.c - see coll_p2p.h. */
#include "engine/coll_p2p.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE_FLOATS = COLL_PIECE_BYTES / sizeof(float) };

struct coll_p2p {
    struct coll base;
    struct coll_wire wire;
    uint32_t first;
    float sum[PIECE_FLOATS], in[PIECE_FLOATS];
};

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static int wire_send(struct coll_p2p *c, uint32_t to, const void *p, size_t n, struct err *e)
{
    return c->wire.send(c->wire.ctx, c->first + to, p, n, e);
}

static int wire_recv(struct coll_p2p *c, uint32_t from, void *p, size_t n, struct err *e)
{
    return c->wire.recv(c->wire.ctx, c->first + from, p, n, e);
}

static int send_to_others(struct coll_p2p *c, const void *p, size_t n, struct err *e)
{
    int rc = 0;
    for (uint32_t r = 0; r < c->base.size && !rc; r++)
        if (r != c->base.rank)
            rc = wire_send(c, r, p, n, e);
    return rc;
}

/* In the order of ranks, ours at its own place. */
static int reduce_piece(struct coll_p2p *c, float *x, size_t n, struct err *e)
{
    int rc = send_to_others(c, x, n * sizeof *x, e);
    for (uint32_t r = 0; r < c->base.size && !rc; r++) {
        const float *part = x;
        if (r != c->base.rank) {
            rc = wire_recv(c, r, c->in, n * sizeof *x, e);
            part = c->in;
        }
        if (r == 0)
            memcpy(c->sum, part, n * sizeof *x);
        else
            for (size_t i = 0; i < n; i++)
                c->sum[i] += part[i];
    }
    if (!rc)
        memcpy(x, c->sum, n * sizeof *x);
    return rc;
}

static int p2p_all_reduce(struct coll *base, float *x, size_t n, struct err *e)
{
    int rc = 0;
    for (size_t at = 0; at < n && !rc; at += PIECE_FLOATS)
        rc = reduce_piece((struct coll_p2p *)base, x + at, least(n - at, PIECE_FLOATS), e);
    return rc;
}

static int p2p_all_gather(struct coll *base, float *out, const float *in, size_t n, struct err *e)
{
    struct coll_p2p *c = (struct coll_p2p *)base;
    int rc = 0;
    for (size_t at = 0; at < n && !rc; at += PIECE_FLOATS) {
        size_t count = least(n - at, PIECE_FLOATS);
        rc = send_to_others(c, in + at, count * sizeof *in, e);
        for (uint32_t r = 0; r < base->size && !rc; r++)
            if (r != base->rank)
                rc = wire_recv(c, r, out + r * n + at, count * sizeof *in, e);
    }
    if (!rc)
        memcpy(out + base->rank * n, in, n * sizeof *in);
    return rc;
}

static int p2p_broadcast(struct coll *base, void *p, size_t n_bytes, uint32_t root, struct err *e)
{
    struct coll_p2p *c = (struct coll_p2p *)base;
    int rc = 0;
    for (size_t at = 0; at < n_bytes && !rc; at += COLL_PIECE_BYTES) {
        size_t count = least(n_bytes - at, COLL_PIECE_BYTES);
        rc = base->rank == root ? send_to_others(c, (uint8_t *)p + at, count, e)
                                : wire_recv(c, root, (uint8_t *)p + at, count, e);
    }
    return rc;
}

static int other_check(const struct coll *base, uint32_t other, struct err *e)
{
    if (other < base->size && other != base->rank)
        return 0;
    return err_set(e, ERR_PROTO, "no wire between shards %u and %u of %u", base->rank, other,
                   base->size);
}

static int p2p_send(struct coll *base, const void *p, size_t n_bytes, uint32_t to, struct err *e)
{
    int rc = other_check(base, to, e);
    for (size_t at = 0; at < n_bytes && !rc; at += COLL_PIECE_BYTES)
        rc = wire_send((struct coll_p2p *)base, to, (const uint8_t *)p + at,
                       least(n_bytes - at, COLL_PIECE_BYTES), e);
    return rc;
}

static int p2p_recv(struct coll *base, void *p, size_t n_bytes, uint32_t from, struct err *e)
{
    int rc = other_check(base, from, e);
    /* piece by piece: a wire holds back a bounded number of bytes, not a whole step's logits */
    for (size_t at = 0; at < n_bytes && !rc; at += COLL_PIECE_BYTES)
        rc = wire_recv((struct coll_p2p *)base, from, (uint8_t *)p + at,
                       least(n_bytes - at, COLL_PIECE_BYTES), e);
    return rc;
}

static void p2p_abort(struct coll *base)
{
    struct coll_p2p *c = (struct coll_p2p *)base;
    c->wire.abort(c->wire.ctx);
}

static void p2p_destroy(struct coll *base)
{
    free(base);
}

static const struct coll_ops P2P = {
    .kind = "relay",
    .all_reduce = p2p_all_reduce,
    .all_gather = p2p_all_gather,
    .broadcast = p2p_broadcast,
    .send = p2p_send,
    .recv = p2p_recv,
    .abort = p2p_abort,
    .destroy = p2p_destroy,
};

int coll_p2p_create(struct coll **out, const struct coll_wire *wire, uint32_t first, uint32_t size,
                    uint32_t rank, struct err *e)
{
    if (!size || rank >= size)
        return err_set(e, ERR_CONFIG, "rank %u of a group of %u shards", rank, size);
    struct coll_p2p *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, ERR_NOMEM, "group of %u shards: out of memory", size);
    c->base = (struct coll){.ops = &P2P, .rank = rank, .size = size};
    c->wire = *wire;
    c->first = first;
    *out = &c->base;
    return 0;
}
