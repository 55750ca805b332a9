/* plane.c - see plane.h and plane_core.h: members, HELLO, events and deadlines over whatever transport. */
#include "wire/plane_core.h"

#include "base/clock.h"
#include "base/log.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHECK_US = 20 * 1000, /* deadlines are looked at this often */
    CLOSE_STEP_MS = 5,    /* plane_close polls at least this often */
};

/* --- the table of peers and the list of links that wait ---------------------------------------------------- */
static struct link **bucket_of(struct plane *p, uint32_t member)
{
    return &p->peers[(member * 2654435761u) >> 24];
}

static struct link *peer_of(const struct plane *p, uint32_t member)
{
    struct link *l = p->peers[(member * 2654435761u) >> 24];
    while (l && l->member != member)
        l = l->next_peer;
    return l;
}

static void peer_add(struct plane *p, struct link *l)
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

static void wait_add(struct plane *p, struct link *l, uint64_t timeout_ms)
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

static bool is_half_open(const struct link *l)
{
    return l->state == LINK_ACCEPTED || l->state == LINK_CHALLENGED;
}

static bool is_dialing(const struct link *l)
{
    return l->state == LINK_DIALED || l->state == LINK_PROVING;
}

/* Take the link out of wherever it stands; the caller gives it its next state. */
static void link_detach(struct plane *p, struct link *l)
{
    if (l->state == LINK_UP)
        peer_remove(p, l);
    else if (l->state != LINK_RELEASED)
        wait_remove(p, l);
    if (is_half_open(l))
        p->n_half_open--;
}

static void link_release(struct plane *p, struct link *l)
{
    link_detach(p, l);
    l->state = LINK_RELEASED;
    p->ops->release(p, l);
}

/* Say a last frame and wait for the other side to close. */
static void link_leave(struct plane *p, struct link *l, uint8_t kind, const void *body, size_t n)
{
    link_detach(p, l);
    if (p->ops->send(p, l, kind, 0, body, n, NULL) != 0) {
        l->state = LINK_RELEASED;
        p->ops->release(p, l);
        return;
    }
    l->state = LINK_LEAVING;
    wait_add(p, l, PLANE_LEAVE_MS);
}

static void tell_lost(struct plane *p, uint32_t member, uint64_t incarnation, const struct err *why)
{
    if (p->ev.on_lost && !p->closing)
        p->ev.on_lost(p->ev.ctx, member, incarnation, why);
}

static void refuse(struct plane *p, struct link *l, uint32_t code, const struct err *why)
{
    struct buf b;
    buf_init(&b, HELLO_MAX_BYTES);
    refuse_put(&b, code, why->text);
    bool client = l->client;
    uint32_t member = l->member;
    if (buf_ok(&b))
        link_leave(p, l, FRAME_REFUSE, b.data, b.len);
    else
        link_release(p, l);
    buf_fini(&b);
    if (client)
        tell_lost(p, member, 0, why);
    else
        log_warn("plane: refused a connection: %s", why->text);
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
        if (is_dialing(l) && l->member == member)
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
        link_release(p, older);
    l->client = true;
    l->member = member;
    l->state = LINK_DIALED;
    wait_add(p, l, PLANE_HELLO_TIMEOUT_MS);
    core_hello(p, l);
    return 0;
}

int plane_send(struct plane *p, uint32_t member, uint16_t type, const void *body, size_t n,
               struct err *e)
{
    struct link *l = peer_of(p, member);
    if (!l)
        return err_set(e, ERR_PEER, "member %u is not connected", member);
    if (n > PLANE_MAX_MESSAGE)
        return err_set(e, ERR_LIMIT, "a message of %zu bytes to member %u: at most %d", n, member,
                       PLANE_MAX_MESSAGE);
    size_t queued = p->ops->queued(l);
    if (queued + n > PLANE_MAX_QUEUED_BYTES)
        return err_set(e, ERR_LIMIT, "%zu bytes wait for member %u already: at most %d", queued,
                       member, PLANE_MAX_QUEUED_BYTES);
    return p->ops->send(p, l, FRAME_MESSAGE, type, body, n, e);
}

void plane_drop(struct plane *p, uint32_t member)
{
    struct link *l = peer_of(p, member);
    if (l)
        link_leave(p, l, FRAME_BYE, NULL, 0);
    l = dialing_to(p, member);
    if (l)
        link_release(p, l);
}

bool plane_is_up(const struct plane *p, uint32_t member)
{
    return peer_of(p, member) != NULL;
}

size_t plane_queued_bytes(const struct plane *p, uint32_t member)
{
    const struct link *l = peer_of(p, member);
    return l ? p->ops->queued(l) : 0;
}

int plane_fd(struct plane *p)
{
    return p->ops->fd(p);
}

static void deadline_passed(struct plane *p, struct link *l)
{
    struct err why = ERR_INIT;
    switch (l->state) {
    case LINK_DIALED:
    case LINK_PROVING:
        err_set(&why, ERR_TIMEOUT, "member %u did not answer HELLO within %d ms", l->member,
                PLANE_HELLO_TIMEOUT_MS);
        uint32_t member = l->member;
        link_release(p, l);
        tell_lost(p, member, 0, &why);
        break;
    case LINK_ACCEPTED:
    case LINK_CHALLENGED:
    case LINK_WELCOMED:
        log_warn("plane: closed a connection that did not prove itself within %d ms",
                 PLANE_HELLO_TIMEOUT_MS);
        link_release(p, l);
        break;
    default:
        link_release(p, l);
    }
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
            link_leave(p, p->peers[i], FRAME_BYE, NULL, 0);
    for (struct link *l = p->waiting, *next; l; l = next) {
        next = l->next;
        if (l->state != LINK_LEAVING)
            link_release(p, l);
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
        link_release(p, p->waiting);
    p->ops->destroy(p);
}

/* --- HELLO ------------------------------------------------------------------------------------------------- */
static void side_fill(const struct plane *p, struct hello_side *s)
{
    s->member = p->self.member;
    s->incarnation = p->self.incarnation;
    memcpy(s->build, p->self.build, sizeof s->build);
    random_bytes(s->nonce, sizeof s->nonce);
}

static void link_send(struct plane *p, struct link *l, uint8_t kind, const struct buf *b)
{
    struct err why = ERR_INIT;
    if (!buf_ok(b)) {
        err_set(&why, ERR_NOMEM, "no memory for HELLO");
        core_failed(p, l, &why);
    } else if (p->ops->send(p, l, kind, 0, b->data, b->len, &why) != 0) {
        core_failed(p, l, &why);
    }
}

void core_hello(struct plane *p, struct link *l)
{
    struct hello h = {.protocol = p->protocol, .to = l->member};
    side_fill(p, &l->us);
    h.side = l->us;
    struct buf b;
    buf_init(&b, HELLO_MAX_BYTES);
    hello_put(&b, &h);
    if (buf_ok(&b)) /* a transport that cannot send yet says so by core_failed later */
        p->ops->send(p, l, FRAME_HELLO, 0, b.data, b.len, NULL);
    buf_fini(&b);
}

bool core_may_accept(const struct plane *p)
{
    return !p->closing && p->n_half_open < PLANE_MAX_HALF_OPEN;
}

bool core_make_room(struct plane *p)
{
    struct link *oldest = NULL;
    for (struct link *l = p->waiting; l; l = l->next)
        if (is_half_open(l) && l->deadline_us && (!oldest || l->deadline_us < oldest->deadline_us))
            oldest = l;
    uint64_t left_us = (PLANE_HELLO_TIMEOUT_MS - PLANE_EVICT_MS) * UINT64_C(1000);
    if (!oldest || oldest->deadline_us > p->now_us + left_us)
        return false;
    log_warn("plane: %d connections have not proved themselves: closed the oldest of them",
             PLANE_MAX_HALF_OPEN);
    link_release(p, oldest);
    return true;
}

void core_accepted(struct plane *p, struct link *l)
{
    l->client = false;
    l->state = LINK_ACCEPTED;
    p->n_half_open++;
    wait_add(p, l, PLANE_HELLO_TIMEOUT_MS);
}

size_t core_max_body(const struct link *l)
{
    if (l->state == LINK_UP)
        return PLANE_MAX_MESSAGE;
    return l->state == LINK_PROVING || l->state == LINK_WELCOMED ? VIA_MAX_BYTES + HELLO_MAX_BYTES
                                                                 : HELLO_MAX_BYTES;
}

/* The link proved itself: it takes the place of what was there under its member id. */
static void link_up(struct plane *p, struct link *l)
{
    struct link *old = peer_of(p, l->member);
    uint64_t old_incarnation = old ? old->them.incarnation : 0;
    if (old)
        link_release(p, old);
    link_detach(p, l);
    l->state = LINK_UP;
    peer_add(p, l);
    if (strcmp(l->us.build, l->them.build) != 0)
        log_info("plane: member %u runs another build peer=%s ours=%s", l->member, l->them.build,
                 l->us.build);
    if (old) {
        struct err why = ERR_INIT;
        err_set(&why, ERR_PEER, "member %u was replaced by %s", l->member,
                old_incarnation == l->them.incarnation ? "a new connection of its own"
                                                       : "a new incarnation");
        tell_lost(p, l->member, old_incarnation, &why);
    }
    /* the handler may have dropped it again */
    if (l->state == LINK_UP && p->ev.on_up) {
        struct plane_peer peer = {.member = l->member, .incarnation = l->them.incarnation};
        memcpy(peer.build, l->them.build, sizeof peer.build);
        p->ev.on_up(p->ev.ctx, &peer);
    }
}

static struct hello_pair pair_of(const struct plane *p, const struct link *l)
{
    return (struct hello_pair){.key = &p->self,
                               .protocol = p->protocol,
                               .client = l->client ? &l->us : &l->them,
                               .server = l->client ? &l->them : &l->us};
}

/* Both sides are known and one has proved itself: from here on frames can be told apart. */
static void tokens_set(struct plane *p, struct link *l)
{
    struct hello_pair pair = pair_of(p, l);
    l->tx_token = hello_token(l->client ? TOKEN_TO_SERVER : TOKEN_TO_CLIENT, &pair);
    l->rx_token = hello_token(l->client ? TOKEN_TO_CLIENT : TOKEN_TO_SERVER, &pair);
    p->ops->bind(p, l);
}

static void refuse_secret(struct plane *p, struct link *l)
{
    struct err why = ERR_INIT;
    err_set(&why, ERR_PROTO, "member %u (build %s) does not know the job secret of member %u",
            l->them.member, l->them.build, p->self.member);
    refuse(p, l, REFUSE_SECRET, &why);
}

static void on_hello(struct plane *p, struct link *l, const uint8_t *body, size_t n)
{
    struct err why = ERR_INIT;
    struct hello h;
    if (hello_get(&h, p->protocol, body, n, &why) != 0) {
        refuse(p, l, h.protocol && h.protocol != p->protocol ? REFUSE_PROTOCOL : REFUSE_FORMAT,
               &why);
        return;
    }
    if (h.to != p->self.member || h.side.member <= p->self.member) {
        err_set(&why, ERR_PROTO, "member %u asked for member %u, this is member %u", h.side.member,
                h.to, p->self.member);
        refuse(p, l, REFUSE_MEMBER, &why);
        return;
    }
    l->them = h.side;
    l->member = h.side.member;
    l->state = LINK_CHALLENGED;
    side_fill(p, &l->us);
    struct hello answer = {.protocol = p->protocol, .side = l->us};
    struct hello_pair pair = pair_of(p, l);
    uint8_t proof[SHA256_BYTES];
    hello_sum(proof, PROOF_SERVER, &pair, NULL, 0);
    struct buf b;
    buf_init(&b, HELLO_MAX_BYTES);
    challenge_put(&b, &answer, proof);
    link_send(p, l, FRAME_CHALLENGE, &b);
    buf_fini(&b);
}

static void on_challenge(struct plane *p, struct link *l, const uint8_t *body, size_t n)
{
    struct err why = ERR_INIT;
    struct hello h;
    uint8_t proof[SHA256_BYTES], expected[SHA256_BYTES];
    if (challenge_get(&h, proof, p->protocol, body, n, &why) != 0) {
        err_prefix(&why, "member %u: ", l->member);
        refuse(p, l, h.protocol && h.protocol != p->protocol ? REFUSE_PROTOCOL : REFUSE_FORMAT,
               &why);
        return;
    }
    if (h.side.member != l->member) {
        err_set(&why, ERR_PEER, "member %u answered at the address of member %u", h.side.member,
                l->member);
        core_failed(p, l, &why);
        return;
    }
    l->them = h.side;
    struct hello_pair pair = pair_of(p, l);
    hello_sum(expected, PROOF_SERVER, &pair, NULL, 0);
    if (!digest_equal(proof, expected, sizeof proof)) {
        refuse_secret(p, l);
        return;
    }
    hello_sum(proof, PROOF_CLIENT, &pair, NULL, 0);
    if (p->ops->send(p, l, FRAME_PROOF, 0, proof, sizeof proof, &why) != 0) {
        core_failed(p, l, &why);
        return;
    }
    l->state = LINK_PROVING;
    tokens_set(p, l);
}

static void on_proof(struct plane *p, struct link *l, const uint8_t *body, size_t n)
{
    struct hello_pair pair = pair_of(p, l);
    uint8_t sum[SHA256_BYTES];
    hello_sum(sum, PROOF_CLIENT, &pair, NULL, 0);
    if (n != sizeof sum || !digest_equal(body, sum, n)) {
        refuse_secret(p, l);
        return;
    }
    p->n_half_open--;
    l->state = LINK_WELCOMED;
    struct err why = ERR_INIT;
    struct buf via, b;
    buf_init(&via, VIA_MAX_BYTES);
    buf_init(&b, VIA_MAX_BYTES + HELLO_MAX_BYTES);
    if (p->ops->via(p, &via, &why) != 0) {
        core_failed(p, l, &why);
    } else {
        hello_sum(sum, SUM_WELCOME, &pair, via.data, via.len);
        buf_put(&b, sum, sizeof sum);
        buf_put(&b, via.data, via.len);
        link_send(p, l, FRAME_WELCOME, &b);
        if (l->state == LINK_WELCOMED)
            tokens_set(p, l);
    }
    buf_fini(&b);
    buf_fini(&via);
}

static void on_welcome(struct plane *p, struct link *l, const uint8_t *body, size_t n)
{
    struct hello_pair pair = pair_of(p, l);
    uint8_t sum[SHA256_BYTES];
    struct err why = ERR_INIT;
    struct rd r = rd_make(body, n);
    const void *proof = rd_bytes(&r, sizeof sum);
    size_t via_bytes = rd_left(&r);
    if (proof)
        hello_sum(sum, SUM_WELCOME, &pair, r.p, via_bytes);
    if (!proof || !digest_equal(proof, sum, sizeof sum)) {
        err_set(&why, ERR_PROTO, "the WELCOME of member %u is not its own", l->member);
        core_failed(p, l, &why);
        return;
    }
    struct buf via;
    buf_init(&via, VIA_MAX_BYTES);
    if (p->ops->reach(p, l, r.p, via_bytes, &why) != 0 || p->ops->via(p, &via, &why) != 0 ||
        p->ops->send(p, l, FRAME_READY, 0, via.data, via.len, &why) != 0)
        core_failed(p, l, &why);
    else
        link_up(p, l);
    buf_fini(&via);
}

static void on_ready(struct plane *p, struct link *l, const uint8_t *body, size_t n)
{
    struct err why = ERR_INIT;
    if (p->ops->reach(p, l, body, n, &why) != 0)
        core_failed(p, l, &why);
    else
        link_up(p, l);
}

static void on_refuse(struct plane *p, struct link *l, const uint8_t *body, size_t n)
{
    struct err why = ERR_INIT;
    uint32_t code;
    char text[HELLO_TEXT_BYTES];
    if (refuse_get(&code, text, body, n, &why) != 0) {
        core_failed(p, l, &why);
        return;
    }
    if (!l->client) {
        log_warn("plane: a member that connected refused us: %s", text);
        link_release(p, l);
        return;
    }
    /* Somebody else has this address now: the member may have another one. Any other answer is final. */
    err_set(&why, code == REFUSE_MEMBER ? ERR_PEER : ERR_PROTO, "refused by member %u: %s",
            l->member, text);
    if (code == REFUSE_MEMBER) {
        core_failed(p, l, &why);
        return;
    }
    uint32_t member = l->member;
    link_release(p, l);
    tell_lost(p, member, 0, &why);
}

static void on_bye(struct plane *p, struct link *l)
{
    struct err why = ERR_INIT;
    err_set(&why, ERR_PEER, "member %u left", l->member);
    core_failed(p, l, &why);
}

/* --- what transports tell ---------------------------------------------------------------------------------- */
void core_received(struct plane *p, struct link *l, uint8_t kind, uint16_t type,
                   const uint8_t *body, size_t n)
{
    static const struct {
        enum link_state state;
        uint8_t kind;
        void (*handle)(struct plane *, struct link *, const uint8_t *, size_t);
    } TABLE[] = {
        {LINK_DIALED, FRAME_CHALLENGE, on_challenge}, {LINK_DIALED, FRAME_REFUSE, on_refuse},
        {LINK_PROVING, FRAME_WELCOME, on_welcome},    {LINK_PROVING, FRAME_REFUSE, on_refuse},
        {LINK_ACCEPTED, FRAME_HELLO, on_hello},       {LINK_CHALLENGED, FRAME_PROOF, on_proof},
        {LINK_CHALLENGED, FRAME_REFUSE, on_refuse},   {LINK_WELCOMED, FRAME_READY, on_ready},
    };
    if (l->state == LINK_UP && kind == FRAME_MESSAGE) {
        if (p->ev.on_message)
            p->ev.on_message(p->ev.ctx, l->member, type, body, n);
        return;
    }
    if (l->state == LINK_RELEASED)
        return;
    if (kind == FRAME_BYE && (l->state == LINK_UP || l->state == LINK_LEAVING)) {
        on_bye(p, l);
        return;
    }
    if (l->state == LINK_LEAVING)
        return; /* what was on its way when we left */
    for (size_t i = 0; i < sizeof TABLE / sizeof TABLE[0]; i++) {
        if (TABLE[i].state == l->state && TABLE[i].kind == kind) {
            TABLE[i].handle(p, l, body, n);
            return;
        }
    }
    struct err why = ERR_INIT;
    err_set(&why, ERR_PROTO, "a frame of kind %u came in state %d", kind, (int)l->state);
    core_failed(p, l, &why);
}

void core_failed(struct plane *p, struct link *l, const struct err *why)
{
    enum link_state was = l->state;
    uint32_t member = l->member;
    uint64_t incarnation = was == LINK_UP ? l->them.incarnation : 0;
    if (was == LINK_RELEASED)
        return;
    if (was == LINK_DIALED && p->ops->redial(p, l, why))
        return;
    link_release(p, l);
    if (was == LINK_UP || was == LINK_DIALED || was == LINK_PROVING)
        tell_lost(p, member, incarnation, why);
    else if (was != LINK_LEAVING)
        log_info("plane: a connection ended before it proved itself: %s", why->text);
}
