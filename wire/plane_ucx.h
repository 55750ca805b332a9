/* plane_ucx.h - inside wire/ only: what plane_ucx.c (links, dialing, progress) and plane_ucx_conn.c (endpoints, frames) share. */
#ifndef EXA_WIRE_PLANE_UCX_H
#define EXA_WIRE_PLANE_UCX_H

#include "wire/plane_addr.h"
#include "wire/plane_core.h"
#include "wire/plane_door.h"

#include <ucp/api/ucp.h>

enum { TOKEN_BUCKETS = 1024, N_DOORS = 2 /* IPv4, IPv6 */ };

/* What an epoll event is about; first field of those that have one. */
enum source { SOURCE_UCX, SOURCE_KICK, SOURCE_DOOR, SOURCE_LINK };

struct frame;

struct conn {          /* a UCX endpoint: made when the other side has proved itself */
    struct conn *next; /* of plane_ucx.conns */
    struct plane_ucx *plane;
    struct ucx_link *link;       /* NULL: closing */
    ucp_ep_h ep;                 /* NULL: closed */
    void *closing;               /* UCX's close request */
    struct frame *first, **last; /* not wholly issued yet */
    size_t
        queued_bytes; /* what UCX has not finished: payload and PLANE_MESSAGE_COST for each message */
    unsigned n_in_flight; /* pieces, and the flush of conn_open */
    bool reached;         /* that flush is done: to be told */
    uint32_t tx_seq;
    bool broken; /* send no more */
};

struct ucx_link {
    enum source source;
    struct link core;
    struct ucx_link *next; /* of plane_ucx.links */
    bool released;
    bool failed; /* `why` is to be told when all that arrived before was handled */
    bool deaf;   /* it broke the protocol: hear nothing more */
    struct err why;

    struct door_sock sock;
    struct addr_list addrs; /* client: where to reach it */
    unsigned next_addr;
    uint64_t attempt_us; /* when the attempt began; 0: not known yet */
    bool busy;           /* the other side closed at once: it may have had too many strangers */
    uint64_t retry_us;   /* when to begin anew; 0: not waiting */

    struct conn *conn;
    struct ucx_link *next_token; /* bucket chain by core.rx_token */
    bool bound;
    uint32_t rx_seq;
    uint8_t *whole; /* a message that comes in pieces; NULL: none */
    size_t whole_bytes, whole_have;
    uint16_t whole_type;
};

struct plane_ucx {
    struct plane core;
    ucp_context_h context;
    ucp_worker_h worker;
    int epoll_fd, kick_fd;
    int door_fds[N_DOORS]; /* -1: none of this family */
    uint16_t ports[N_DOORS];
    enum source ucx_source, kick_source, door_sources[N_DOORS];
    bool doors_shut; /* too many strangers, or no descriptor left: connections wait in the kernel */
    uint64_t shut_until_us;
    bool kicked;
    bool any_failed, any_released, any_closing, any_backlog, any_reached;
    uint64_t next_dial_check_us;
    struct ucx_link *by_token[TOKEN_BUCKETS];
    struct conn *conns;
    struct ucx_link *links;
};

static inline struct plane_ucx *ucx_of(struct plane *p)
{
    return (struct plane_ucx *)p; /* core is the first field */
}

static inline struct ucx_link *ucx_link_of(struct link *l)
{
    return (struct ucx_link *)((char *)l - offsetof(struct ucx_link, core));
}

void link_fail(struct plane_ucx *u, struct ucx_link *l, int code, const char *text);

/* 1: connected; 0: not yet, conn->reached will say so, or the link fails. */
int conn_open(struct plane_ucx *u, struct ucx_link *l, const void *via, size_t n, struct err *e);
/* Part the connection from its link; conns_sweep closes it. Frames that UCX holds stay until it is done with them. */
void conn_part(struct conn *c);
void conns_sweep(struct plane_ucx *u);
/* Give UCX what it may hold, on all connections that have a backlog. */
void conns_pump(struct plane_ucx *u);
int conn_send(struct conn *c, uint64_t token, uint8_t kind, uint16_t type, const void *body,
              size_t n, struct err *e);
void link_bind(struct plane_ucx *u, struct ucx_link *l);
void link_unbind(struct plane_ucx *u, struct ucx_link *l);
/* The worker's handler of active messages; arg is the plane. */
ucs_status_t am_received(void *arg, const void *header, size_t header_bytes, void *data, size_t n,
                         const ucp_am_recv_param_t *param);
enum { AM_ID = 1 };

#endif
