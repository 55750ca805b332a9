/* plane_mem.c - the message plane inside one process: see plane.h. For tests and the simulator.
 *
 * All planes of a hub belong to one thread. A frame goes straight into the receiver's inbox, one queue in order of arrival, and is
 * handled in the receiver's plane_progress: a run depends on the order of progress calls alone. HELLO is the real one.
 */
#include "wire/plane_core.h"

#include <stdlib.h>
#include <string.h>

enum { ADDRESS_BYTES = 4 + 8 };

struct mem_link {
    struct link core;
    struct plane_mem *owner;
    struct mem_link *other; /* NULL: closed, killed, or dialed into the void */
    bool failed;            /* to be told by the next poll: nobody was there */
    size_t tx_bytes; /* of our frames in the other's inbox, with PLANE_MESSAGE_COST for each */
    struct mem_link *next; /* of the owner's links */
    bool released;
};

struct frame {
    struct frame *next;
    struct mem_link *to; /* NULL: its link is gone, skip */
    enum { ARRIVED, DATA, CLOSED } event;
    uint8_t kind;
    uint16_t type;
    size_t n;
    uint8_t body[];
};

struct plane_mem {
    struct plane core;
    struct plane_hub *hub; /* NULL: killed */
    struct plane_mem *next;
    struct mem_link *links;
    bool any_failed, any_released; /* among the links: work for the end of a poll */
    struct frame *first, **last;
};

struct plane_hub {
    struct plane_mem *planes;
    uint64_t *cuts; /* [n_cuts] ascending: lower id << 32 | higher id */
    size_t n_cuts, cap_cuts;
};

static struct plane_mem *mem_of(struct plane *p)
{
    return (struct plane_mem *)p; /* core is the first field */
}

static struct mem_link *mem_link_of(struct link *l)
{
    return (struct mem_link *)l;
}

static uint64_t pair_of(uint32_t a, uint32_t b)
{
    return a < b ? (uint64_t)a << 32 | b : (uint64_t)b << 32 | a;
}

/* Where the pair is, or belongs, among the cuts. */
static size_t cut_find(const struct plane_hub *h, uint64_t pair)
{
    size_t low = 0, high = h->n_cuts;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (h->cuts[mid] < pair)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static bool is_cut(const struct plane_hub *h, uint32_t a, uint32_t b)
{
    if (!h->n_cuts)
        return false;
    size_t at = cut_find(h, pair_of(a, b));
    return at < h->n_cuts && h->cuts[at] == pair_of(a, b);
}

/* --- frames ------------------------------------------------------------------------------------------------ */
static struct frame *frame_make(struct mem_link *to, int event, size_t n)
{
    struct frame *f = malloc(sizeof *f + n);
    if (f)
        *f = (struct frame){.to = to, .event = event, .n = n};
    return f;
}

static void frame_append(struct plane_mem *m, struct frame *f)
{
    *m->last = f;
    m->last = &f->next;
}

static struct frame *frame_take(struct plane_mem *m)
{
    struct frame *f = m->first;
    if (f) {
        m->first = f->next;
        if (!m->first)
            m->last = &m->first;
    }
    return f;
}

/* --- transport --------------------------------------------------------------------------------------------- */
static int mem_address(struct plane *p, struct buf *out, struct err *e)
{
    buf_u32(out, p->self.member);
    buf_u64(out, p->self.incarnation);
    return buf_ok(out) ? 0 : err_set(e, ERR_LIMIT, "no room for an address");
}

static struct mem_link *link_make(struct plane_mem *owner)
{
    struct mem_link *l = calloc(1, sizeof *l);
    if (l) {
        l->owner = owner;
        l->next = owner->links;
        owner->links = l;
    }
    return l;
}

static struct plane_mem *hub_find(struct plane_hub *h, uint32_t member, uint64_t incarnation)
{
    for (struct plane_mem *m = h ? h->planes : NULL; m; m = m->next)
        if (m->core.self.member == member && m->core.self.incarnation == incarnation)
            return m;
    return NULL;
}

static int mem_dial(struct plane *p, struct link **out, const void *address, size_t n,
                    struct err *e)
{
    struct plane_mem *m = mem_of(p);
    struct rd r = rd_make(address, n);
    uint32_t member = rd_u32(&r);
    uint64_t incarnation = rd_u64(&r);
    if (!rd_done(&r))
        return err_set(e, ERR_FORMAT, "an address of %zu bytes, expected %d", n, ADDRESS_BYTES);
    struct mem_link *l = link_make(m);
    if (!l)
        return err_set(e, ERR_NOMEM, "no memory for a connection to member %u", member);
    struct plane_mem *there = hub_find(m->hub, member, incarnation);
    if (!there) {
        l->failed = m->any_failed = true;
    } else if (!is_cut(m->hub, p->self.member, member)) {
        struct mem_link *other = link_make(there);
        struct frame *f = other ? frame_make(other, ARRIVED, 0) : NULL;
        if (!f) {
            if (other)
                other->released = there->any_released = true;
            l->failed = m->any_failed = true;
        } else {
            l->other = other;
            other->other = l;
            other->core.state = LINK_RELEASED; /* until the core takes it */
            frame_append(there, f);
        }
    }
    *out = &l->core;
    return 0;
}

static bool mem_redial(struct plane *p, struct link *l, const struct err *why)
{
    return false;
}

static int mem_send(struct plane *p, struct link *core, uint8_t kind, uint16_t type,
                    const void *body, size_t n, struct err *e)
{
    struct plane_mem *m = mem_of(p);
    struct mem_link *l = mem_link_of(core);
    if (!m->hub)
        return err_set(e, ERR_PEER, "member %u is dead itself", p->self.member);
    if (!l->other || is_cut(m->hub, p->self.member, l->other->owner->core.self.member))
        return 0; /* into the void, as on a cut cable */
    struct frame *f = frame_make(l->other, DATA, n);
    if (!f)
        return err_set(e, ERR_NOMEM, "no memory for a message of %zu bytes", n);
    f->kind = kind;
    f->type = type;
    if (n)
        memcpy(f->body, body, n);
    l->tx_bytes += n + PLANE_MESSAGE_COST;
    frame_append(l->other->owner, f);
    return 0;
}

static size_t mem_queued(const struct link *core)
{
    return ((const struct mem_link *)core)->tx_bytes;
}

/* Messages take the way of HELLO here. */
static int mem_via(struct plane *p, struct buf *out, struct err *e)
{
    return 0;
}

static void mem_bind(struct plane *p, struct link *core)
{
}

static int mem_reach(struct plane *p, struct link *core, const void *via, size_t n, struct err *e)
{
    return n == 0 ? 1 : err_set(e, ERR_PROTO, "a way of %zu bytes inside one process", n);
}

/* The other end learns it after the frames that are on their way. */
static void link_part(struct mem_link *l)
{
    if (!l->other)
        return;
    struct frame *f = frame_make(l->other, CLOSED, 0);
    CHECK(f); /* a few bytes; without it the other side would wait for ever */
    frame_append(l->other->owner, f);
    l->other->other = NULL;
    l->other = NULL;
}

static void mem_release(struct plane *p, struct link *core)
{
    struct mem_link *l = mem_link_of(core);
    link_part(l);
    l->released = mem_of(p)->any_released = true;
}

static int mem_fd(struct plane *p)
{
    return -1;
}

static void fail(struct plane *p, struct mem_link *l, const char *text)
{
    struct err why = ERR_INIT;
    err_set(&why, ERR_PEER, "%s", text);
    core_failed(p, &l->core, &why);
}

static void frame_handle(struct plane *p, struct frame *f)
{
    struct mem_link *l = f->to;
    if (l->released)
        return;
    switch (f->event) {
    case ARRIVED:
        if (core_may_accept(p))
            core_accepted(p, &l->core);
        else
            mem_release(p, &l->core);
        break;
    case DATA:
        if (l->other)
            l->other->tx_bytes -= f->n + PLANE_MESSAGE_COST;
        if (f->n > core_max_body(&l->core))
            fail(p, l, "a frame was too long");
        else
            core_received(p, &l->core, f->kind, f->type, f->body, f->n);
        break;
    case CLOSED:
        fail(p, l, "the connection was closed");
        break;
    }
}

/* Links that the core released, once no frame in the inbox names them. */
static void links_sweep(struct plane_mem *m)
{
    if (!m->any_released)
        return;
    m->any_released = false;
    for (struct frame *f = m->first; f; f = f->next)
        if (f->to && f->to->released)
            f->to = NULL;
    for (struct mem_link **at = &m->links; *at;) {
        struct mem_link *l = *at;
        if (l->released) {
            *at = l->next;
            free(l);
        } else {
            at = &l->next;
        }
    }
}

static void mem_poll(struct plane *p, uint64_t now_us)
{
    struct plane_mem *m = mem_of(p);
    if (!m->hub)
        return;
    while (m->any_failed) { /* its handler may dial: walk anew until a walk finds none */
        m->any_failed = false;
        for (struct mem_link *l = m->links; l; l = l->next) {
            if (l->failed && !l->released) {
                l->failed = false;
                fail(p, l, "nobody is at this address");
            }
        }
    }
    for (struct frame *f; m->hub && (f = frame_take(m)) != NULL;) {
        if (f->to)
            frame_handle(p, f);
        free(f);
    }
    links_sweep(m);
}

static void inbox_purge(struct plane_mem *m)
{
    for (struct frame *f; (f = frame_take(m)) != NULL;)
        free(f);
}

static void hub_leave(struct plane_mem *m)
{
    if (!m->hub)
        return;
    struct plane_mem **at = &m->hub->planes;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    m->hub = NULL;
}

static void mem_destroy(struct plane *p)
{
    struct plane_mem *m = mem_of(p);
    for (struct mem_link *l = m->links; l; l = l->next)
        link_part(l); /* also those the core never took */
    hub_leave(m);
    inbox_purge(m);
    while (m->links) {
        struct mem_link *l = m->links;
        m->links = l->next;
        free(l);
    }
    free(m);
}

static const struct plane_ops MEM_OPS = {
    .address = mem_address,
    .dial = mem_dial,
    .redial = mem_redial,
    .send = mem_send,
    .queued = mem_queued,
    .via = mem_via,
    .bind = mem_bind,
    .reach = mem_reach,
    .release = mem_release,
    .fd = mem_fd,
    .poll = mem_poll,
    .destroy = mem_destroy,
};

int plane_mem_create(struct plane **out, struct plane_hub *hub, const struct plane_self *self,
                     const struct plane_events *ev, struct err *e)
{
    struct plane_mem *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(e, ERR_NOMEM, "no memory for a plane");
    int rc = core_init(&m->core, &MEM_OPS, self, ev, e);
    if (rc) {
        free(m);
        return rc;
    }
    m->last = &m->first;
    m->hub = hub;
    m->next = hub->planes;
    hub->planes = m;
    *out = &m->core;
    return 0;
}

/* --- hub --------------------------------------------------------------------------------------------------- */
int plane_hub_create(struct plane_hub **out, struct err *e)
{
    *out = calloc(1, sizeof **out);
    return *out ? 0 : err_set(e, ERR_NOMEM, "no memory for a hub");
}

/* Planes that still live are on their own from here: they reach nobody. */
void plane_hub_destroy(struct plane_hub *h)
{
    if (!h)
        return;
    while (h->planes)
        hub_leave(h->planes);
    free(h->cuts);
    free(h);
}

void plane_hub_cut(struct plane_hub *h, uint32_t a, uint32_t b, bool cut)
{
    uint64_t pair = pair_of(a, b);
    size_t at = cut_find(h, pair);
    bool there = at < h->n_cuts && h->cuts[at] == pair;
    if (cut == there)
        return;
    if (cut) {
        if (h->n_cuts == h->cap_cuts) {
            h->cap_cuts = h->cap_cuts ? h->cap_cuts * 2 : 16;
            h->cuts = realloc(h->cuts, h->cap_cuts * sizeof *h->cuts);
            CHECK(h->cuts); /* a test's tool: it has no way to go on */
        }
        memmove(&h->cuts[at + 1], &h->cuts[at], (h->n_cuts - at) * sizeof *h->cuts);
        h->cuts[at] = pair;
        h->n_cuts++;
    } else {
        h->n_cuts--;
        memmove(&h->cuts[at], &h->cuts[at + 1], (h->n_cuts - at) * sizeof *h->cuts);
    }
}

void plane_hub_kill(struct plane_hub *h, uint32_t member)
{
    for (struct plane_mem *m = h->planes, *next; m; m = next) {
        next = m->next;
        if (m->core.self.member != member)
            continue;
        for (struct mem_link *l = m->links; l; l = l->next)
            link_part(l);
        inbox_purge(m);
        hub_leave(m);
    }
}
