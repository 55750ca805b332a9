/* flow_read.c - the part of a round that feeds it: a leader's own segments, from the shared file
 * system to a buffer. See flow.h. */
#include "mpi/flow.h"
#include "mpi/flow_priv.h"

#include "mpi/source.h"

#include "base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    READ_AHEAD =
        2, /* buffers for own segments whose turn has not come; the others carry what comes now */
    SOURCE_STOP_US = 200000, /* a healthy read of 8 MiB ends within it */
};

static uint32_t count_waiting_own(const struct flow *f)
{
    uint32_t n = 0;
    for (int i = 0; i < BCAST_BUFFERS; i++)
        n += f->bufs[i] && (f->bufs[i]->state == BUF_READING || f->bufs[i]->state == BUF_READ);
    return n;
}

bool flow_start_reads(struct flow *f)
{
    bool moved = false;
    uint32_t limit = f->g->n_racks == 1 ? BCAST_BUFFERS : READ_AHEAD;
    while (f->source && f->next_own < f->n_places) {
        struct segbuf *b = flow_find_state(f, BUF_FREE);
        if (flow_left_out(f, f->next_own)) {
            f->next_own += f->g->n_racks;
            continue;
        }
        if (!b || count_waiting_own(f) >= limit)
            break;
        if (!flow_find_state(f, BUF_READING))
            f->read_since_us = clock_now_us();
        flow_claim(f, b, f->next_own, BUF_READING);
        lane_push(f->source, b);
        f->next_own += f->g->n_racks;
        moved = true;
    }
    return moved;
}

bool flow_take_reads(struct flow *f)
{
    struct segbuf *b;
    bool moved = false;
    while (f->source && (b = lane_pop(f->source))) {
        b->state = BUF_READ;
        f->stats->bytes_read += b->n_read;
        f->stats->us_read += b->us;
        f->read_since_us = clock_now_us();
        moved = true;
    }
    return moved;
}

static void stop_source(struct flow *f, uint64_t timeout_us)
{
    bool ended = lane_stop(f->source, timeout_us);
    f->source = NULL;
    for (int i = 0; i < BCAST_BUFFERS; i++) {
        if (!f->bufs[i] || f->bufs[i]->state != BUF_READING)
            continue;
        if (ended)
            f->bufs[i]->state = BUF_FREE;
        else
            f->bufs[i] = NULL; /* the lane's thread frees it when its read returns */
    }
}

/* The shared file system hangs: go on without it, so that the others learn why and do not wait
 * for this rank. */
static void leave_source(struct flow *f)
{
    struct segbuf *b;
    while ((b = lane_recall(f->source)))
        b->state = BUF_FREE;
    flow_take_reads(f);
    stop_source(f, 0);
}

/* A place of ours that no read will fill any more. */
static struct segbuf *fill_unread(struct flow *f, uint32_t k)
{
    struct segbuf *b = flow_find_state(f, BUF_FREE);
    if (!b)
        return NULL;
    flow_claim(f, b, k, BUF_READ);
    struct trailer t = {.segment = b->segment, .state = READ_GAVE_UP, .code = ERR_TIMEOUT};
    snprintf(t.text, sizeof t.text,
             "pack %s: tensor %s, segment %u, rank %u: no read returned for %" PRIu64 " ms",
             f->r->pack_path, b->tensor, b->segment, f->w->rank, f->r->stall_us / 2000);
    memset(b->data, 0, b->at.n_bytes);
    trailer_put(b, &t);
    return b;
}

struct segbuf *flow_own_ready(struct flow *f, uint32_t k)
{
    struct segbuf *b = flow_find_place(f, k);
    if (b && b->state == BUF_READING && clock_now_us() - f->read_since_us > f->r->stall_us / 2)
        leave_source(f);
    b = flow_find_place(f, k);
    if (b)
        return b->state == BUF_READ ? b : NULL;
    return f->source ? NULL : fill_unread(f, k);
}

void flow_end_source(struct flow *f)
{
    struct segbuf *b;
    if (!f->source)
        return;
    while ((b = lane_recall(f->source)))
        b->state = BUF_FREE;
    flow_take_reads(f);
    stop_source(f, SOURCE_STOP_US);
}
