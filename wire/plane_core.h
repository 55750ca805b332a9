/* plane_core.h - inside wire/ only: what plane_ucx and plane_mem share. The core knows members, HELLO, events and deadlines;
 * a transport knows links: two-way, in order, whole frames.
 *
 * A link belongs to its transport, which embeds struct link. The core uses it until it calls ops->release; the transport then closes and
 * frees it, but not before the running poll ends (a handler may drop the very link whose message it is handling).
 */
#ifndef EXA_WIRE_PLANE_CORE_H
#define EXA_WIRE_PLANE_CORE_H

#include "wire/plane_hello.h"

enum {
    PLANE_BUCKETS = 256,       /* of the table of peers; 4,096 members give 16 a bucket */
    PLANE_MAX_STRANGERS = 64,  /* at once */
    PLANE_STRANGER_LINES = 50, /* of the log, in 10 s: whoever knocks must not fill a disk */
    PLANE_EVICT_MS = 1000, /* the age from which a stranger gives way when there are that many */
    PLANE_LEAVE_MS = 1000, /* for queued frames and BYE to arrive before a link is cut */
};

enum link_state {
    LINK_DIALED,     /* client: HELLO sent, CHALLENGE awaited */
    LINK_PROVING,    /* client: PROOF sent, the server's WAY awaited */
    LINK_ACCEPTED,   /* server: HELLO awaited */
    LINK_CHALLENGED, /* server: CHALLENGE sent, PROOF awaited */
    LINK_PROVED,     /* server: PROOF was right, own WAY sent, the client's awaited */
    LINK_REACHING,   /* WAY came: the transport connects to where it leads */
    LINK_REACHED,    /* client: own WAY sent, READY awaited */
    LINK_UP,
    LINK_LEAVING, /* BYE or REFUSE sent; the other side closes, or the deadline does */
    LINK_RELEASED,
};

struct link {
    enum link_state state;
    bool client;     /* we dialed */
    bool stranger;   /* we accepted it, and it has not proved itself */
    uint32_t member; /* client: whom we want; server: valid from CHALLENGED */
    struct hello_side us, them;
    uint64_t tx_token, rx_token; /* 0 until proved */
    uint64_t deadline_us;        /* 0: to be set by the next progress */
    struct link *next_peer;      /* bucket chain, while UP */
    struct link *prev, *next;    /* list of all others that wait for something: p->waiting */
};

struct plane_ops {
    int (*address)(struct plane *p, struct buf *out, struct err *e);
    /* Make a client link and start to reach the address. Frames may be sent at once; they wait. */
    int (*dial)(struct plane *p, struct link **out, const void *address, size_t n, struct err *e);
    /* Another way to the same member, if there is one: true, and the transport calls core_hello when it has a
     * link again. `why` is what broke. */
    bool (*redial)(struct plane *p, struct link *l, const struct err *why);
    int (*send)(struct plane *p, struct link *l, uint8_t kind, uint16_t type, const void *body,
                size_t n, struct err *e);
    size_t (*queued)(const struct link *l);
    /* How the other side reaches us for messages, once it proved itself. */
    int (*via)(struct plane *p, struct buf *out, struct err *e);
    /* l->rx_token is known: frames that carry it belong to this link. */
    void (*bind)(struct plane *p, struct link *l);
    /* The other side's `via`: messages go there from now on. 1: reached at once; 0: core_reached will tell. */
    int (*reach)(struct plane *p, struct link *l, const void *via, size_t n, struct err *e);
    void (*release)(struct plane *p, struct link *l);
    int (*fd)(struct plane *p);
    /* Do what there is: calls core_accepted, core_received, core_failed. */
    void (*poll)(struct plane *p, uint64_t now_us);
    void (*destroy)(struct plane *p);
    bool
        lingers; /* queued frames leave only while this side polls: plane_close must wait for them */
};

struct plane {
    const struct plane_ops *ops;
    struct plane_self self;
    struct plane_events ev;
    uint32_t protocol;
    uint64_t now_us;        /* of the last progress */
    uint64_t next_check_us; /* of deadlines */
    struct link *peers[PLANE_BUCKETS];
    struct link *waiting;
    unsigned n_strangers;    /* those that were refused too, until they are gone */
    uint64_t lines_until_us; /* PLANE_STRANGER_LINES may be logged until then */
    unsigned n_lines, n_lines_left_out;
    bool closing;
};

int core_init(struct plane *p, const struct plane_ops *ops, const struct plane_self *self,
              const struct plane_events *ev, struct err *e);

/* May one more stranger come? */
bool core_may_accept(const struct plane *p);
/* Close the stranger that has taken the longest, if that is long: a slow one must not hold up the others. */
bool core_make_room(struct plane *p);
void core_accepted(struct plane *p, struct link *l);
/* A client link reached somebody new (after redial): say HELLO anew. */
void core_hello(struct plane *p, struct link *l);
/* The transport stands on the way that ops->reach began. */
void core_reached(struct plane *p, struct link *l);
/* How long a frame of this link may be now. */
size_t core_max_body(const struct link *l);
void core_received(struct plane *p, struct link *l, uint8_t kind, uint16_t type,
                   const uint8_t *body, size_t n);
void core_failed(struct plane *p, struct link *l, const struct err *why);
/* --- plane.c for plane_core.c ------------------------------------------------------------------------------ */
struct link *core_peer(const struct plane *p, uint32_t member); /* NULL: none is up */
/* May one more line about a stranger be logged? */
bool core_stranger_line(struct plane *p);
void core_peer_add(struct plane *p, struct link *l);
void core_wait(struct plane *p, struct link *l, uint64_t timeout_ms);
bool core_is_dialing(const struct link *l);
/* Take the link out of wherever it stands; the caller gives it its next state. */
void core_detach(struct plane *p, struct link *l);
void core_release(struct plane *p, struct link *l);
/* Say a last frame and wait for the other side to close. */
void core_leave(struct plane *p, struct link *l, uint8_t kind, const void *body, size_t n);
void core_tell_lost(struct plane *p, uint32_t member, uint64_t incarnation, const struct err *why);

/* Tests only: speak another version. */
void plane_set_protocol(struct plane *p, uint32_t protocol);

#endif
