/* flow.c - see flow.h. */
#include "mpi/flow.h"
#include "mpi/flow_priv.h"

#include "mpi/quarantine.h"
#include "mpi/sink.h"
#include "mpi/source.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DRAIN_POLL_US = 500,
};

static bool bit(const uint8_t *bits, uint32_t i)
{
    return bits[i / 8] >> (i % 8) & 1;
}

/* --- set-up
 * --------------------------------------------------------------------------------------------- */

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

/* --- who has what
 * --------------------------------------------------------------------------------------- */

uint32_t flow_reader_of(const struct flow *f, uint32_t k)
{
    return k % f->g->n_racks;
}

bool flow_is_own(const struct flow *f, uint32_t k)
{
    return f->g->leader && flow_reader_of(f, k) == f->g->rack;
}

bool flow_left_out(const struct flow *f, uint32_t k)
{
    uint32_t at = f->gave_up_at[flow_reader_of(f, k)];
    return at < k && k - at >= BCAST_BUFFERS;
}

static void set_known(struct flow *f, uint32_t k)
{
    f->known[k] = 1;
    while (f->first_unknown < f->n_places && f->known[f->first_unknown])
        f->first_unknown++;
}

struct segbuf *flow_find_state(const struct flow *f, enum buf_state state)
{
    for (int i = 0; i < BCAST_BUFFERS; i++)
        if (f->bufs[i] && f->bufs[i]->state == state)
            return f->bufs[i];
    return NULL;
}

struct segbuf *flow_find_place(const struct flow *f, uint32_t k)
{
    for (int i = 0; i < BCAST_BUFFERS; i++)
        if (f->bufs[i] && f->bufs[i]->state != BUF_FREE && f->bufs[i]->k == k)
            return f->bufs[i];
    return NULL;
}

void flow_claim(struct flow *f, struct segbuf *b, uint32_t k, enum buf_state state)
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

/* --- trailers
 * ------------------------------------------------------------------------------------------- */

static void note_failure(struct flow *f, uint32_t k, const struct trailer *t)
{
    uint32_t *at = &f->gave_up_at[flow_reader_of(f, k)];
    if (t->state == READ_GAVE_UP && k < *at)
        *at = k;
    f->read_failed = f->read_failed || flow_is_own(f, k);
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
    if (!flow_is_own(f, b->k))
        f->stats->bytes_received += b->at.n_bytes;
    if (f->sink && bit(f->needed, b->segment) && (f->own.code == 0 || f->own.code == ERR_FORMAT)) {
        b->storing = true;
        lane_push(f->sink, b);
    }
    return 0;
}

/* --- moving
 * --------------------------------------------------------------------------------------------- */

static size_t moved_bytes(const struct segbuf *b)
{
    return (size_t)b->at.n_bytes + TRAILER_BYTES;
}

static int begin_lead(struct flow *f, struct segbuf *b, struct err *e)
{
    b->state = BUF_MOVING;
    int rc = flow_is_own(f, b->k) ? take_trailer(f, b, e) : 0;
    return rc ? rc
              : leg_post(&b->lead, &f->g->leaders, flow_reader_of(f, b->k), b->k, b->data,
                         moved_bytes(b), e);
}

/* Leaders: the next places among themselves. */
static int post_lead(struct flow *f, bool *moved, struct err *e)
{
    while (f->g->leader && f->next_lead < f->n_places) {
        uint32_t k = f->next_lead;
        if (k - f->first_unknown >= BCAST_BUFFERS && k > f->first_unknown)
            break;
        if (flow_left_out(f, k)) {
            struct segbuf *ahead = flow_find_place(f, k);
            if (ahead && ahead->state == BUF_READ)
                ahead->state = BUF_FREE; /* read before we gave up */
            set_known(f, k);
            f->next_lead++;
            *moved = true;
            continue;
        }
        struct segbuf *b = flow_is_own(f, k) ? flow_own_ready(f, k) : flow_find_state(f, BUF_FREE);
        if (!b)
            break;
        if (!flow_is_own(f, k))
            flow_claim(f, b, k, BUF_MOVING);
        f->next_lead++;
        *moved = true;
        int rc = begin_lead(f, b, e);
        if (rc)
            return rc;
    }
    return 0;
}

/* The buffer whose place goes through the rack next: a leader's when its bytes are here, a
 * member's as soon as one is free. */
static struct segbuf *rack_ready(struct flow *f, uint32_t k)
{
    if (f->g->leader) {
        struct segbuf *b = k < f->next_lead ? flow_find_place(f, k) : NULL;
        return b && b->lead.here ? b : NULL;
    }
    if (k - f->first_unknown >= BCAST_BUFFERS && k > f->first_unknown)
        return NULL;
    struct segbuf *b = flow_find_state(f, BUF_FREE);
    if (b) {
        flow_claim(f, b, k, BUF_MOVING);
        b->lead.posted = b->lead.here = b->lead.done = true; /* no leader: nothing to do there */
    }
    return b;
}

static int post_rack(struct flow *f, bool *moved, struct err *e)
{
    while (f->next_rack < f->n_places) {
        uint32_t k = f->next_rack;
        bool decided = f->g->leader ? k < f->next_lead : k < f->first_unknown + BCAST_BUFFERS;
        if (decided && flow_left_out(f, k)) {
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
    int rc = drive_leg(f, b, &b->lead, &f->g->leaders, flow_reader_of(f, b->k), moved, e);
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
    *done = lead && rack && !flow_find_state(f, BUF_MOVING);
    return rc;
}

int flow_step(struct flow *f, bool *moved, bool *done, struct err *e)
{
    *moved = flow_take_reads(f);
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
    *moved |= flow_start_reads(f);
    if (rc == 0)
        rc = post_lead(f, moved, e);
    if (rc == 0)
        rc = post_rack(f, moved, e);
    return rc ? rc : step_end(f, moved, done, e);
}

/* --- the end
 * -------------------------------------------------------------------------------------------- */

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
                 oldest->segment, oldest->tensor,
                 f->g->leaders.ranks[flow_reader_of(f, oldest->k)]);
    else if (!oldest->rack.done)
        snprintf(text, cap, "segment %u (%s) in the rack of leader rank %u", oldest->segment,
                 oldest->tensor, f->g->mine.ranks[0]);
    else
        snprintf(text, cap, "segment %u (%s) is being written to this node's image",
                 oldest->segment, oldest->tensor);
}

/* What has come is kept. No deadline: these are writes to the node's own disk, and the image is
 * the caller's again after. */
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
    flow_end_source(f);
    end_sink(f);
    for (int i = 0; i < BCAST_BUFFERS; i++) {
        struct segbuf *b = f->bufs[i];
        if (!b)
            continue;
        MPI_Request open[2] = {b->lead.request, b->rack.request};
        quarantine_add(f->w, b->data, SEGMENT_BYTES + TENSOR_ALIGN, open, 2,
                       b->lead.broken || b->rack.broken);
        b->data = NULL;
        segbuf_free(b);
    }
    free(f->segment_of);
    free(f->needed);
    free(f->known);
    free(f->gave_up_at);
}
