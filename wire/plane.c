/* plane.c - see plane.h: the table of peers, the links that wait, deadlines and the end, over whatever transport.
 * HELLO is in plane_core.c. */
#include "wire/plane_core.h"

#include "base/clock.h"
#include "base/log.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHECK_US = 20 * 1000, /* deadlines are looked at this often */
    LINES_US = 10 * 1000 * 1000,
    CLOSE_STEP_MS = 5, /* plane_close polls at least this often */
};

/* --- the table of peers and the list of links that wait ---------------------------------------------------- */
static struct link **bucket_of(struct plane *p, uint32_t member)
{
    return &p->peers[(member * 2654435761u) >> 24];
}

struct link *core_peer(const struct plane *p, uint32_t member)
{
    struct link *l = p->peers[(member * 2654435761u) >> 24];
    while (l && l->member != member)
        l = l->next_peer;
    return l;
}

void core_peer_add(struct plane *p, struct link *l)
{
    struct link **at = bucket_of(p, l->member);
    l->next_peer = *at;
    *at = l;
}

static void peer_remove(struct plane *p, struct link *l)
{
    struct link **at = bucket_of(p, l->member);
    while (*at != l)
        at = &(*at)->next_peer;
    *at = l->next_peer;
}

void core_wait(struct plane *p, struct link *l, uint64_t timeout_ms)
{
    l->deadline_us = p->now_us ? p->now_us + timeout_ms * 1000 : 0;
    l->prev = NULL;
    l->next = p->waiting;
    if (l->next)
        l->next->prev = l;
    p->waiting = l;
}

static void wait_remove(struct plane *p, struct link *l)
{
    if (l->prev)
        l->prev->next = l->next;
    else
        p->waiting = l->next;
    if (l->next)
        l->next->prev = l->prev;
    l->prev = l->next = NULL;
}

bool core_is_dialing(const struct link *l)
{
    return l->client && l->state < LINK_UP;
}

/* Take the link out of wherever it stands; the caller gives it its next state. */
void core_detach(struct plane *p, struct link *l)
{
    if (l->state == LINK_UP)
        peer_remove(p, l);
    else if (l->state != LINK_RELEASED)
        wait_remove(p, l);
}

void core_release(struct plane *p, struct link *l)
{
    core_detach(p, l);
    l->state = LINK_RELEASED;
    p->n_strangers -= l->stranger;
    l->stranger = false;
    p->ops->release(p, l);
}

/* Say a last frame and wait for the other side to close. */
void core_leave(struct plane *p, struct link *l, uint8_t kind, const void *body, size_t n)
{
    if (p->ops->send(p, l, kind, 0, body, n, NULL) != 0) {
        core_release(p, l);
        return;
    }
    core_detach(p, l);
    l->state = LINK_LEAVING;
    core_wait(p, l, PLANE_LEAVE_MS);
}

void core_tell_lost(struct plane *p, uint32_t member, uint64_t incarnation, const struct err *why)
{
    if (p->ev.on_lost && !p->closing)
        p->ev.on_lost(p->ev.ctx, member, incarnation, why);
}

bool core_stranger_line(struct plane *p)
{
    if (p->now_us >= p->lines_until_us) {
        if (p->n_lines_left_out)
            log_warn("plane: %u more lines on connections without a proof were left out",
                     p->n_lines_left_out);
        p->lines_until_us = p->now_us + LINES_US;
        p->n_lines = p->n_lines_left_out = 0;
    }
    if (p->n_lines < PLANE_STRANGER_LINES) {
        p->n_lines++;
        return true;
    }
    p->n_lines_left_out++;
    return false;
}

/* --- interface --------------------------------------------------------------------------------------------- */
int core_init(struct plane *p, const struct plane_ops *ops, const struct plane_self *self,
              const struct plane_events *ev, struct err *e)
{
    if (self->incarnation == 0)
        return err_set(e, ERR_CONFIG, "member %u: the incarnation must not be 0", self->member);
    if (self->secret_bytes == 0 || self->secret_bytes > PLANE_MAX_SECRET)
        return err_set(e, ERR_CONFIG, "member %u: the job secret has %zu bytes, expected 1 to %d",
                       self->member, self->secret_bytes, PLANE_MAX_SECRET);
    p->ops = ops;
    p->self = *self;
    p->self.build[PLANE_BUILD_BYTES - 1] = 0;
    p->ev = *ev;
    p->protocol = PLANE_PROTOCOL;
    return 0;
}

void plane_set_protocol(struct plane *p, uint32_t protocol)
{
    p->protocol = protocol;
}

int plane_address(struct plane *p, struct buf *out, struct err *e)
{
    return p->ops->address(p, out, e);
}

static struct link *dialing_to(const struct plane *p, uint32_t member)
{
    for (struct link *l = p->waiting; l; l = l->next)
        if (core_is_dialing(l) && l->member == member)
            return l;
    return NULL;
}

int plane_connect(struct plane *p, uint32_t member, const void *address, size_t n, struct err *e)
{
    if (member >= p->self.member)
        return err_set(e, ERR_CONFIG,
                       "member %u does not connect to member %u: the higher id connects",
                       p->self.member, member);
    struct link *l = NULL;
    int rc = p->ops->dial(p, &l, address, n, e);
    if (rc)
        return rc;
    struct link *older = dialing_to(p, member);
    if (older) /* the newer address counts; its outcome is the one that is told */
        core_release(p, older);
    l->client = true;
    l->member = member;
    l->state = LINK_DIALED;
    core_wait(p, l, PLANE_HELLO_TIMEOUT_MS);
    core_hello(p, l);
    return 0;
}

int plane_send(struct plane *p, uint32_t member, uint16_t type, const void *body, size_t n,
               struct err *e)
{
    struct link *l = core_peer(p, member);
    if (!l)
        return err_set(e, ERR_PEER, "member %u is not connected", member);
    if (n > PLANE_MAX_MESSAGE)
        return err_set(e, ERR_LIMIT, "a message of %zu bytes to member %u: at most %d", n, member,
                       PLANE_MAX_MESSAGE);
    size_t queued = p->ops->queued(l);
    if (queued + n + PLANE_MESSAGE_COST > PLANE_MAX_QUEUED_BYTES)
        return err_set(e, ERR_LIMIT, "%zu bytes wait for member %u already: at most %d", queued,
                       member, PLANE_MAX_QUEUED_BYTES);
    return p->ops->send(p, l, FRAME_MESSAGE, type, body, n, e);
}

void plane_drop(struct plane *p, uint32_t member)
{
    struct link *l = core_peer(p, member);
    if (l)
        core_leave(p, l, FRAME_BYE, NULL, 0);
    l = dialing_to(p, member);
    if (l)
        core_release(p, l);
}

bool plane_is_up(const struct plane *p, uint32_t member)
{
    return core_peer(p, member) != NULL;
}

size_t plane_queued_bytes(const struct plane *p, uint32_t member)
{
    const struct link *l = core_peer(p, member);
    return l ? p->ops->queued(l) : 0;
}

int plane_fd(struct plane *p)
{
    return p->ops->fd(p);
}

static void deadline_passed(struct plane *p, struct link *l)
{
    struct err why = ERR_INIT;
    bool dialing = core_is_dialing(l);
    uint32_t member = l->member;
    if (dialing)
        err_set(&why, ERR_TIMEOUT, "member %u did not answer HELLO within %d ms", member,
                PLANE_HELLO_TIMEOUT_MS);
    else if (l->state != LINK_LEAVING && !l->stranger)
        log_warn("plane: closed a connection of member %u that was not up within %d ms", member,
                 PLANE_HELLO_TIMEOUT_MS);
    else if (l->state != LINK_LEAVING && core_stranger_line(p))
        log_warn("plane: closed a connection that did not prove itself within %d ms",
                 PLANE_HELLO_TIMEOUT_MS);
    core_release(p, l);
    if (dialing)
        core_tell_lost(p, member, 0, &why);
}

static uint64_t timeout_of(const struct link *l)
{
    return (l->state == LINK_LEAVING ? PLANE_LEAVE_MS : PLANE_HELLO_TIMEOUT_MS) * UINT64_C(1000);
}

static void check_deadlines(struct plane *p)
{
    /* A handler may connect or drop while we walk: start again after each that was told. */
    for (bool again = true; again;) {
        again = false;
        for (struct link *l = p->waiting; l && !again; l = l->next) {
            if (l->deadline_us == 0)
                l->deadline_us = p->now_us + timeout_of(l);
            if (p->now_us >= l->deadline_us) {
                deadline_passed(p, l);
                again = true;
            }
        }
    }
}

void plane_progress(struct plane *p, uint64_t now_us)
{
    p->now_us = now_us ? now_us : 1;
    if (p->now_us >= p->next_check_us) {
        p->next_check_us = p->now_us + CHECK_US;
        check_deadlines(p);
    }
    p->ops->poll(p, p->now_us);
}

void plane_close(struct plane *p)
{
    if (!p)
        return;
    p->closing = true;
    for (int i = 0; i < PLANE_BUCKETS; i++)
        while (p->peers[i])
            core_leave(p, p->peers[i], FRAME_BYE, NULL, 0);
    for (struct link *l = p->waiting, *next; l; l = next) {
        next = l->next;
        if (l->state != LINK_LEAVING)
            core_release(p, l);
    }
    uint64_t until_us = clock_now_us() + PLANE_LEAVE_MS * 1000;
    while (p->ops->lingers && p->waiting && clock_now_us() < until_us) {
        p->ops->poll(p, p->now_us);
        if (!p->waiting)
            break;
        struct pollfd fd = {.fd = p->ops->fd(p), .events = POLLIN};
        poll(&fd, 1, CLOSE_STEP_MS);
    }
    while (p->waiting)
        core_release(p, p->waiting);
    p->ops->destroy(p);
}
