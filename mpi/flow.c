/* flow.c - see flow.h. */
#include "mpi/flow.h"

#include "mpi/quarantine.h"
#include "mpi/sink.h"
#include "mpi/source.h"

#include "base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    READ_AHEAD =
        2, /* buffers for own segments whose turn has not come; the others carry what comes now */
    SOURCE_STOP_US = 200000, /* a healthy read of 8 MiB ends within it */
    DRAIN_POLL_US = 500,
};

static bool bit(const uint8_t *bits, uint32_t i)
{
    return bits[i / 8] >> (i % 8) & 1;
}

/* --- set-up --------------------------------------------------------------------------------------------- */

static int fill_places(struct flow *f, const struct image_writer *writer, struct err *e)
{
    const struct model_index *x = f->r->index;
    size_t n_bytes = (x->n_segments + 7) / 8;
    const uint8_t *have = writer ? image_writer_have(writer) : NULL;
    f->segment_of = malloc((x->n_segments + 1) * sizeof *f->segment_of);
    f->known = calloc(x->n_segments + 1, 1);
    f->needed = calloc(n_bytes + 1, 1);
    f->gave_up_at = malloc(f->g->n_racks * sizeof *f->gave_up_at);
    if (!f->segment_of || !f->known || !f->needed || !f->gave_up_at)
        return err_set(e, ERR_NOMEM, "no memory for a round of %u segments", x->n_segments);
    for (uint32_t s = 0; s < x->n_segments; s++)
        if (bit(f->r->missing, s))
            f->segment_of[f->n_places++] = s;
    /* a copy: the sink lane changes the writer's own bits meanwhile */
    for (size_t i = 0; have && i < n_bytes; i++)
        f->needed[i] = (uint8_t)(~have[i] & f->r->missing[i]);
    for (uint32_t i = 0; i < f->g->n_racks; i++)
        f->gave_up_at[i] = UINT32_MAX;
    return 0;
}

static bool needs_any(const struct flow *f)
{
    for (uint32_t k = 0; k < f->n_places; k++)
        if (bit(f->needed, f->segment_of[k]))
            return true;
    return false;
}

int flow_init(struct flow *f, struct world *w, const struct groups *g, const struct bcast_round *r,
              struct image_writer *writer, struct bcast_stats *stats, struct err *e)
{
    *f = (struct flow){.w = w, .r = r, .g = g, .stats = stats};
    leg_end_init(&f->end_lead);
    leg_end_init(&f->end_rack);
    f->next_own = f->g->rack;
    f->failed_at = UINT32_MAX;
    int rc = fill_places(f, writer, e);
    for (int i = 0; i < BCAST_BUFFERS && rc == 0; i++)
        if (!(f->bufs[i] = segbuf_create()))
            rc = err_set(e, ERR_NOMEM, "no memory for %d buffers of a segment", BCAST_BUFFERS);
    if (rc == 0 && f->g->leader && f->n_places > f->g->rack)
        rc = source_start(&f->source, r->pack_path, w->rank, BCAST_BUFFERS, e);
    if (rc == 0 && needs_any(f))
        rc = sink_start(&f->sink, writer, BCAST_BUFFERS, e);
    return rc;
}

/* --- who has what --------------------------------------------------------------------------------------- */

static uint32_t reader_of(const struct flow *f, uint32_t k)
{
    return k % f->g->n_racks;
}

static bool is_own(const struct flow *f, uint32_t k)
{
    return f->g->leader && reader_of(f, k) == f->g->rack;
}

static bool left_out(const struct flow *f, uint32_t k)
{
    uint32_t at = f->gave_up_at[reader_of(f, k)];
    return at < k && k - at >= BCAST_BUFFERS;
}

static void set_known(struct flow *f, uint32_t k)
{
    f->known[k] = 1;
    while (f->first_unknown < f->n_places && f->known[f->first_unknown])
        f->first_unknown++;
}

static struct segbuf *find_state(const struct flow *f, enum buf_state state)
{
    for (int i = 0; i < BCAST_BUFFERS; i++)
        if (f->bufs[i] && f->bufs[i]->state == state)
            return f->bufs[i];
    return NULL;
}

static struct segbuf *find_place(const struct flow *f, uint32_t k)
{
    for (int i = 0; i < BCAST_BUFFERS; i++)
        if (f->bufs[i] && f->bufs[i]->state != BUF_FREE && f->bufs[i]->k == k)
            return f->bufs[i];
    return NULL;
}

static void claim(struct flow *f, struct segbuf *b, uint32_t k, enum buf_state state)
{
    const struct model_index *x = f->r->index;
    b->state = state;
    b->k = k;
    b->segment = f->segment_of[k];
    b->at = index_segment(x, b->segment);
    b->file_offset = f->r->file_offset[b->at.tensor];
    memcpy(b->hash, x->hashes[b->segment], sizeof b->hash);
    memcpy(b->tensor, x->tensors[b->at.tensor].name, sizeof b->tensor);
    leg_init(&b->lead);
    leg_init(&b->rack);
    b->storing = false;
}

/* --- trailers ------------------------------------------------------------------------------------------- */

static void note_failure(struct flow *f, uint32_t k, const struct trailer *t)
{
    uint32_t *at = &f->gave_up_at[reader_of(f, k)];
    if (t->state == READ_GAVE_UP && k < *at)
        *at = k;
    if (k < f->failed_at) {
        f->failed_at = k;
        err_set(&f->failed, t->code < 0 ? t->code : ERR_PROTO, "%s", t->text);
    }
}

/* The bytes of b are here. They may go to the image while they are still being sent on. */
static int take_trailer(struct flow *f, struct segbuf *b, struct err *e)
{
    struct trailer t;
    int rc = trailer_get(b, &t, e);
    if (rc)
        return rc;
    set_known(f, b->k);
    if (t.state != READ_OK) {
        note_failure(f, b->k, &t);
        return 0;
    }
    if (!is_own(f, b->k))
        f->stats->bytes_received += b->at.n_bytes;
    if (f->sink && bit(f->needed, b->segment) && (f->own.code == 0 || f->own.code == ERR_FORMAT)) {
        b->storing = true;
        lane_push(f->sink, b);
    }
    return 0;
}

/* --- reading -------------------------------------------------------------------------------------------- */

static uint32_t count_waiting_own(const struct flow *f)
{
    uint32_t n = 0;
    for (int i = 0; i < BCAST_BUFFERS; i++)
        n += f->bufs[i] && (f->bufs[i]->state == BUF_READING || f->bufs[i]->state == BUF_READ);
    return n;
}

static bool start_reads(struct flow *f)
{
    bool moved = false;
    uint32_t limit = f->g->n_racks == 1 ? BCAST_BUFFERS : READ_AHEAD;
    while (f->source && f->next_own < f->n_places) {
        struct segbuf *b = find_state(f, BUF_FREE);
        if (left_out(f, f->next_own)) {
            f->next_own += f->g->n_racks;
            continue;
        }
        if (!b || count_waiting_own(f) >= limit)
            break;
        if (!find_state(f, BUF_READING))
            f->read_since_us = clock_now_us();
        claim(f, b, f->next_own, BUF_READING);
        lane_push(f->source, b);
        f->next_own += f->g->n_racks;
        moved = true;
    }
    return moved;
}

static bool take_reads(struct flow *f)
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

/* The shared file system hangs: go on without it, so that the others learn why and do not wait for this rank. */
static void leave_source(struct flow *f)
{
    struct segbuf *b;
    while ((b = lane_recall(f->source)))
        b->state = BUF_FREE;
    take_reads(f);
    stop_source(f, 0);
}

/* A place of ours that no read will fill any more. */
static struct segbuf *fill_unread(struct flow *f, uint32_t k)
{
    struct segbuf *b = find_state(f, BUF_FREE);
    if (!b)
        return NULL;
    claim(f, b, k, BUF_READ);
    struct trailer t = {.segment = b->segment, .state = READ_GAVE_UP, .code = ERR_TIMEOUT};
    snprintf(t.text, sizeof t.text,
             "pack %s: tensor %s, segment %u, rank %u: no read returned for %" PRIu64 " ms",
             f->r->pack_path, b->tensor, b->segment, f->w->rank, f->r->stall_us / 2000);
    memset(b->data, 0, b->at.n_bytes);
    trailer_put(b, &t);
    return b;
}

static struct segbuf *own_ready(struct flow *f, uint32_t k)
{
    struct segbuf *b = find_place(f, k);
    if (b && b->state == BUF_READING && clock_now_us() - f->read_since_us > f->r->stall_us / 2)
        leave_source(f);
    b = find_place(f, k);
    if (b)
        return b->state == BUF_READ ? b : NULL;
    return f->source ? NULL : fill_unread(f, k);
}

/* --- moving --------------------------------------------------------------------------------------------- */

static size_t moved_bytes(const struct segbuf *b)
{
    return (size_t)b->at.n_bytes + TRAILER_BYTES;
}

static int begin_lead(struct flow *f, struct segbuf *b, struct err *e)
{
    b->state = BUF_MOVING;
    int rc = is_own(f, b->k) ? take_trailer(f, b, e) : 0;
    return rc ? rc
              : leg_post(&b->lead, &f->g->leaders, reader_of(f, b->k), b->k, b->data,
                         moved_bytes(b), e);
}

/* Leaders: the next places among themselves. */
static int post_lead(struct flow *f, bool *moved, struct err *e)
{
    while (f->g->leader && f->next_lead < f->n_places) {
        uint32_t k = f->next_lead;
        if (k - f->first_unknown >= BCAST_BUFFERS && k > f->first_unknown)
            break;
        if (left_out(f, k)) {
            struct segbuf *ahead = find_place(f, k);
            if (ahead && ahead->state == BUF_READ)
                ahead->state = BUF_FREE; /* read before we gave up */
            set_known(f, k);
            f->next_lead++;
            *moved = true;
            continue;
        }
        struct segbuf *b = is_own(f, k) ? own_ready(f, k) : find_state(f, BUF_FREE);
        if (!b)
            break;
        if (!is_own(f, k))
            claim(f, b, k, BUF_MOVING);
        f->next_lead++;
        *moved = true;
        int rc = begin_lead(f, b, e);
        if (rc)
            return rc;
    }
    return 0;
}

/* The buffer whose place goes through the rack next: a leader's when its bytes are here, a member's as soon as one is free. */
static struct segbuf *rack_ready(struct flow *f, uint32_t k)
{
    if (f->g->leader) {
        struct segbuf *b = k < f->next_lead ? find_place(f, k) : NULL;
        return b && b->lead.here ? b : NULL;
    }
    if (k - f->first_unknown >= BCAST_BUFFERS && k > f->first_unknown)
        return NULL;
    struct segbuf *b = find_state(f, BUF_FREE);
    if (b) {
        claim(f, b, k, BUF_MOVING);
        b->lead.posted = b->lead.here = b->lead.done = true; /* no leader: nothing to do there */
    }
    return b;
}

static int post_rack(struct flow *f, bool *moved, struct err *e)
{
    while (f->next_rack < f->n_places) {
        uint32_t k = f->next_rack;
        bool decided = f->g->leader ? k < f->next_lead : k < f->first_unknown + BCAST_BUFFERS;
        if (decided && left_out(f, k)) {
            set_known(f, k);
            f->next_rack++;
            *moved = true;
            continue;
        }
        struct segbuf *b = rack_ready(f, k);
        if (!b)
            break;
        f->next_rack++;
        *moved = true;
        int rc = leg_post(&b->rack, &f->g->mine, 0, k, b->data, moved_bytes(b), e);
        if (rc)
            return rc;
    }
    return 0;
}

/* The trailer is looked at when the bytes arrive, before they are sent on any further. */
static int drive_leg(struct flow *f, struct segbuf *b, struct leg *l, const struct group *g,
                     uint32_t root, bool *moved, struct err *e)
{
    bool was_here = l->here;
    int rc = leg_step(l, g, root, b->k, b->data, moved_bytes(b), moved, e);
    return rc == 0 && l->here && !was_here ? take_trailer(f, b, e) : rc;
}

static int drive_buf(struct flow *f, struct segbuf *b, bool *moved, struct err *e)
{
    int rc = drive_leg(f, b, &b->lead, &f->g->leaders, reader_of(f, b->k), moved, e);
    return rc ? rc : drive_leg(f, b, &b->rack, &f->g->mine, 0, moved, e);
}

static bool take_stored(struct flow *f)
{
    struct segbuf *b;
    bool moved = false;
    while (f->sink && (b = lane_pop(f->sink))) {
        b->storing = false;
        f->stats->us_hash_write += b->us;
        if (b->store_code && f->own.code == 0)
            f->own = b->store_err;
        moved = true;
    }
    return moved;
}

static bool all_moved(const struct flow *f)
{
    if ((f->g->leader && f->next_lead < f->n_places) || f->next_rack < f->n_places)
        return false;
    for (int i = 0; i < BCAST_BUFFERS; i++)
        if (f->bufs[i] && f->bufs[i]->state == BUF_MOVING &&
            !(f->bufs[i]->lead.done && f->bufs[i]->rack.done))
            return false;
    return true;
}

static int step_end(struct flow *f, bool *moved, bool *done, struct err *e)
{
    if (!all_moved(f))
        return 0;
    f->ending = true;
    bool lead = false, rack = false;
    int rc = leg_end_step(&f->end_lead, &f->g->leaders, moved, &lead, e);
    if (rc == 0)
        rc = leg_end_step(&f->end_rack, &f->g->mine, moved, &rack, e);
    *done = lead && rack && !find_state(f, BUF_MOVING);
    return rc;
}

int flow_step(struct flow *f, bool *moved, bool *done, struct err *e)
{
    *moved = take_reads(f);
    *moved |= take_stored(f);
    int rc = 0;
    for (int i = 0; i < BCAST_BUFFERS && rc == 0; i++) {
        struct segbuf *b = f->bufs[i];
        if (!b || b->state != BUF_MOVING)
            continue;
        rc = drive_buf(f, b, moved, e);
        if (rc == 0 && b->lead.done && b->rack.done && !b->storing)
            b->state = BUF_FREE;
    }
    *moved |= start_reads(f);
    if (rc == 0)
        rc = post_lead(f, moved, e);
    if (rc == 0)
        rc = post_rack(f, moved, e);
    return rc ? rc : step_end(f, moved, done, e);
}

/* --- the end -------------------------------------------------------------------------------------------- */

void flow_describe(const struct flow *f, char *text, size_t cap)
{
    const struct segbuf *oldest = NULL;
    for (int i = 0; i < BCAST_BUFFERS; i++) {
        const struct segbuf *b = f->bufs[i];
        if (b && b->state == BUF_MOVING && (!oldest || b->k < oldest->k))
            oldest = b;
    }
    if (f->ending)
        snprintf(text, cap, "all segments are here, but not all members have finished");
    else if (!oldest)
        snprintf(text, cap, "place %u of %u, nothing under way", f->first_unknown, f->n_places);
    else if (!oldest->lead.done)
        snprintf(text, cap, "segment %u (%s) among the rack leaders, read by rank %u",
                 oldest->segment, oldest->tensor, f->g->leaders.ranks[reader_of(f, oldest->k)]);
    else if (!oldest->rack.done)
        snprintf(text, cap, "segment %u (%s) in the rack of leader rank %u", oldest->segment,
                 oldest->tensor, f->g->mine.ranks[0]);
    else
        snprintf(text, cap, "segment %u (%s) is being written to this node's image",
                 oldest->segment, oldest->tensor);
}

static void end_source(struct flow *f)
{
    struct segbuf *b;
    if (!f->source)
        return;
    while ((b = lane_recall(f->source)))
        b->state = BUF_FREE;
    take_reads(f);
    stop_source(f, SOURCE_STOP_US);
}

/* What has come is kept. No deadline: these are writes to the node's own disk, and the image is the caller's again after. */
static void end_sink(struct flow *f)
{
    for (int i = 0; i < BCAST_BUFFERS; i++)
        while (f->bufs[i] && f->bufs[i]->storing && !take_stored(f))
            clock_sleep_us(DRAIN_POLL_US);
    lane_stop(f->sink, UINT64_MAX);
    f->sink = NULL;
}

void flow_fini(struct flow *f)
{
    end_source(f);
    end_sink(f);
    for (int i = 0; i < BCAST_BUFFERS; i++) {
        struct segbuf *b = f->bufs[i];
        if (!b)
            continue;
        MPI_Request open[2] = {b->lead.request, b->rack.request};
        quarantine_add(f->w, b->data, SEGMENT_BYTES + TENSOR_ALIGN, open, 2);
        b->data = NULL;
        segbuf_free(b);
    }
    free(f->segment_of);
    free(f->needed);
    free(f->known);
    free(f->gave_up_at);
}
