/* plane_core.c - see plane_core.h: HELLO, and what transports tell. The table of peers and plane.h's calls are in plane.c. */
#include "wire/plane_core.h"

#include "base/log.h"

#include <string.h>

static void refuse(struct plane *p, struct link *l, uint32_t code, const struct err *why)
{
    struct buf b;
    buf_init(&b, HELLO_MAX_BYTES);
    refuse_put(&b, code, why->text);
    bool client = l->client;
    uint32_t member = l->member;
    if (buf_ok(&b))
        core_leave(p, l, FRAME_REFUSE, b.data, b.len);
    else
        core_release(p, l);
    buf_fini(&b);
    if (client)
        core_tell_lost(p, member, 0, why);
    else if (core_stranger_line(p))
        log_warn("plane: refused a connection: %s", why->text);
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
    return !p->closing && p->n_strangers < PLANE_MAX_STRANGERS;
}

bool core_make_room(struct plane *p)
{
    struct link *oldest = NULL;
    for (struct link *l = p->waiting; l; l = l->next)
        if (l->stranger && l->deadline_us && (!oldest || l->deadline_us < oldest->deadline_us))
            oldest = l;
    uint64_t left_us = (PLANE_HELLO_TIMEOUT_MS - PLANE_EVICT_MS) * UINT64_C(1000);
    if (!oldest || oldest->deadline_us > p->now_us + left_us)
        return false;
    if (oldest->state != LINK_LEAVING && core_stranger_line(p))
        log_warn("plane: %d connections have not proved themselves: closed the oldest of them",
                 PLANE_MAX_STRANGERS);
    core_release(p, oldest);
    return true;
}

void core_accepted(struct plane *p, struct link *l)
{
    l->client = false;
    l->state = LINK_ACCEPTED;
    l->stranger = true;
    p->n_strangers++;
    core_wait(p, l, PLANE_HELLO_TIMEOUT_MS);
}

size_t core_max_body(const struct link *l)
{
    if (l->state == LINK_UP)
        return PLANE_MAX_MESSAGE;
    return l->state == LINK_PROVING || l->state == LINK_PROVED ? VIA_MAX_BYTES + HELLO_MAX_BYTES
                                                               : HELLO_MAX_BYTES;
}

/* The link proved itself: it takes the place of what was there under its member id. */
static void link_up(struct plane *p, struct link *l)
{
    struct link *old = core_peer(p, l->member);
    uint64_t old_incarnation = old ? old->them.incarnation : 0;
    if (old)
        core_release(p, old);
    core_detach(p, l);
    l->state = LINK_UP;
    core_peer_add(p, l);
    if (strcmp(l->us.build, l->them.build) != 0)
        log_info("plane: member %u runs another build peer=%s ours=%s", l->member, l->them.build,
                 l->us.build);
    if (old) {
        struct err why = ERR_INIT;
        err_set(&why, ERR_PEER, "member %u was replaced by %s", l->member,
                old_incarnation == l->them.incarnation ? "a new connection of its own"
                                                       : "a new incarnation");
        core_tell_lost(p, l->member, old_incarnation, &why);
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

static enum hello_label way_label(bool of_client)
{
    return of_client ? WAY_OF_CLIENT : WAY_OF_SERVER;
}

static void way_send(struct plane *p, struct link *l)
{
    struct hello_pair pair = pair_of(p, l);
    struct err why = ERR_INIT;
    uint8_t sum[SHA256_BYTES];
    struct buf via, b;
    buf_init(&via, VIA_MAX_BYTES);
    buf_init(&b, VIA_MAX_BYTES + HELLO_MAX_BYTES);
    if (p->ops->via(p, &via, &why) != 0) {
        core_failed(p, l, &why);
    } else {
        hello_sum(sum, way_label(l->client), &pair, via.data, via.len);
        buf_put(&b, sum, sizeof sum);
        buf_put(&b, via.data, via.len);
        link_send(p, l, FRAME_WAY, &b);
    }
    buf_fini(&b);
    buf_fini(&via);
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
    p->n_strangers--;
    l->stranger = false;
    l->state = LINK_PROVED;
    tokens_set(p, l);
    way_send(p, l);
}

/* The other side tells how to reach it: the server first, the client when it stands on the server's way. */
static void on_way(struct plane *p, struct link *l, const uint8_t *body, size_t n)
{
    struct hello_pair pair = pair_of(p, l);
    uint8_t sum[SHA256_BYTES];
    struct err why = ERR_INIT;
    struct rd r = rd_make(body, n);
    const void *proof = rd_bytes(&r, sizeof sum);
    size_t via_bytes = rd_left(&r);
    if (proof)
        hello_sum(sum, way_label(!l->client), &pair, r.p, via_bytes);
    if (!proof || !digest_equal(proof, sum, sizeof sum)) {
        err_set(&why, ERR_PROTO, "the way to member %u is not its own", l->member);
        core_failed(p, l, &why);
        return;
    }
    l->state = LINK_REACHING;
    int rc = p->ops->reach(p, l, r.p, via_bytes, &why);
    if (rc < 0)
        core_failed(p, l, &why);
    else if (rc > 0)
        core_reached(p, l);
}

/* READY is the server's first frame on the client's way, and everything else comes behind it. */
void core_reached(struct plane *p, struct link *l)
{
    struct err why = ERR_INIT;
    if (l->state != LINK_REACHING)
        return;
    if (l->client) {
        l->state = LINK_REACHED;
        way_send(p, l);
    } else if (p->ops->send(p, l, FRAME_READY, 0, NULL, 0, &why) != 0) {
        core_failed(p, l, &why);
    } else {
        link_up(p, l);
    }
}

static void on_ready(struct plane *p, struct link *l, const uint8_t *body, size_t n)
{
    struct err why = ERR_INIT;
    if (n != 0) {
        err_set(&why, ERR_PROTO, "malformed READY of %zu bytes", n);
        core_failed(p, l, &why);
        return;
    }
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
        if (core_stranger_line(p))
            log_warn("plane: whoever connected refused us: %s", text);
        core_release(p, l);
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
    core_release(p, l);
    core_tell_lost(p, member, 0, &why);
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
        {LINK_DIALED, FRAME_CHALLENGE, on_challenge},
        {LINK_DIALED, FRAME_REFUSE, on_refuse},
        {LINK_PROVING, FRAME_WAY, on_way},
        {LINK_PROVING, FRAME_REFUSE, on_refuse},
        {LINK_REACHED, FRAME_READY, on_ready},
        {LINK_ACCEPTED, FRAME_HELLO, on_hello},
        {LINK_CHALLENGED, FRAME_PROOF, on_proof},
        {LINK_CHALLENGED, FRAME_REFUSE, on_refuse},
        {LINK_PROVED, FRAME_WAY, on_way},
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
    bool dialing = core_is_dialing(l), stranger = l->stranger;
    uint32_t member = l->member;
    uint64_t incarnation = was == LINK_UP ? l->them.incarnation : 0;
    if (was == LINK_RELEASED)
        return;
    if (was == LINK_DIALED && p->ops->redial(p, l, why))
        return;
    core_release(p, l);
    if (was == LINK_UP || dialing)
        core_tell_lost(p, member, incarnation, why);
    else if (was != LINK_LEAVING && !stranger)
        log_info("plane: the connection of member %u ended before it was up: %s", member,
                 why->text);
    else if (was != LINK_LEAVING && core_stranger_line(p))
        log_info("plane: a connection ended before it proved itself: %s", why->text);
}
