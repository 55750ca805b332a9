/* plane_ucx.c - the message plane over UCX active messages: see plane.h. Links, dialing and progress; endpoints and frames are in
 * plane_ucx_conn.c, sockets in plane_door.c. No other files know UCX.
 *
 * Members meet at a TCP socket, say HELLO there, then exchange UCX worker addresses; messages go over UCX. The socket stays
 * open as the link's life line: its end tells either side at once that the other process is gone.
 *
 * UCX 1.13 aborts a process that was asked for a connection by a peer which dies before the answer left. So both sides connect first, one
 * after the other, and the first message, with which UCX asks, goes when both stand: the answer leaves in the moment of the question
 * (docs/decisions/0004-ucx-asks-late.md).
 *
 * UCX callbacks run inside ucp_worker_progress. They hand frames to the core at once (no copy), but only note failures: endpoints are
 * closed outside, and everything that arrived before a failure is handled before it is told.
 */
#include "wire/plane_ucx.h"

#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    POLL_ROUNDS = 1024, /* progress calls in one plane_progress: the loop has other work too */
    MAX_EVENTS = 64,    /* of sockets in one plane_progress */
    MAX_ACCEPTS = 64,
    MAX_FRAMES =
        8, /* of one socket, which may be filled faster than we read: the rest waits for the next progress */
    DIAL_CHECK_US = 50 * 1000,
    DIAL_MIN_US = 1000 * 1000, /* for one of several addresses */
    DOORS_SHUT_US = 20 * 1000,
    BUSY_RETRY_US = 100 * 1000, /* the other side had too many strangers */
};

void link_fail(struct plane_ucx *u, struct ucx_link *l, int code, const char *text)
{
    if (l->failed)
        return;
    l->failed = u->any_failed = true;
    err_set(&l->why, code, "%s", text);
}

/* --- life lines -------------------------------------------------------------------------------------------- */
static int watch(struct plane_ucx *u, int op, int fd, uint32_t events, enum source *source)
{
    struct epoll_event ev = {.events = events, .data.ptr = source};
    return epoll_ctl(u->epoll_fd, op, fd, &ev);
}

static void line_cut(struct plane_ucx *u, struct ucx_link *l)
{
    if (l->sock.fd >= 0) /* also where a child of ours still holds a copy of it */
        epoll_ctl(u->epoll_fd, EPOLL_CTL_DEL, l->sock.fd, NULL);
    sock_close(&l->sock);
}

static struct ucx_link *link_make(struct plane_ucx *u)
{
    struct ucx_link *l = calloc(1, sizeof *l);
    if (l) {
        l->source = SOURCE_LINK;
        l->sock.fd = -1;
        l->next = u->links;
        u->links = l;
    }
    return l;
}

static void link_discard(struct plane_ucx *u, struct ucx_link *l)
{
    line_cut(u, l);
    l->released = u->any_released = true;
}

/* --- dialing ----------------------------------------------------------------------------------------------- */
/* The next address that the kernel is willing to try. */
static bool link_attempt(struct plane_ucx *u, struct ucx_link *l, struct err *e)
{
    while (l->next_addr < l->addrs.n) {
        const struct sockaddr_storage *a = &l->addrs.a[l->next_addr++];
        l->attempt_us = u->core.now_us;
        if (sock_dial(&l->sock, a, e) != 0)
            continue;
        if (watch(u, EPOLL_CTL_ADD, l->sock.fd, EPOLLOUT, &l->source) == 0)
            return true;
        err_sys(e, errno, "cannot watch a socket");
        line_cut(u, l);
    }
    return false;
}

static int ucx_dial(struct plane *p, struct link **out, const void *address, size_t n,
                    struct err *e)
{
    struct plane_ucx *u = ucx_of(p);
    struct addr_list addrs;
    int rc = addr_choose(&addrs, address, n, e);
    if (rc)
        return rc;
    struct ucx_link *l = link_make(u);
    if (!l)
        return err_set(e, ERR_NOMEM, "no memory for a connection");
    l->addrs = addrs;
    struct err why = ERR_INIT;
    if (!link_attempt(u, l, &why))
        link_fail(u, l, why.code, why.text); /* told by the next progress */
    *out = &l->core;
    return 0;
}

static bool ucx_redial(struct plane *p, struct link *core, const struct err *why)
{
    struct plane_ucx *u = ucx_of(p);
    struct ucx_link *l = ucx_link_of(core);
    struct err e = ERR_INIT;
    char where[ADDR_TEXT_BYTES] = "?";
    if (l->next_addr > 0)
        addr_text(&l->addrs.a[l->next_addr - 1], where);
    log_debug("plane: no way to member %u at %s: %s", core->member, where, why->text);
    line_cut(u, l);
    l->failed = false;
    if (link_attempt(u, l, &e)) {
        core_hello(p, core);
        return true;
    }
    if (!l->busy)
        return false;
    l->busy = false;
    /* apart from others that were turned away in the same moment */
    l->retry_us = u->core.now_us + BUSY_RETRY_US + (p->self.member * 2654435761u) % BUSY_RETRY_US;
    return true;
}

/* Attempts that take too long go on to the next address; those turned away begin anew. */
static void check_dials(struct plane_ucx *u)
{
    uint64_t now = u->core.now_us;
    if (now < u->next_dial_check_us)
        return;
    u->next_dial_check_us = now + DIAL_CHECK_US;
    for (struct ucx_link *l = u->links; l; l = l->next) {
        if (l->released || l->core.state != LINK_DIALED)
            continue;
        if (l->retry_us && now >= l->retry_us) {
            struct err why = ERR_INIT;
            l->retry_us = 0;
            l->next_addr = 0;
            if (link_attempt(u, l, &why))
                core_hello(&u->core, &l->core);
            else
                link_fail(u, l, why.code, why.text);
            continue;
        }
        if (!l->attempt_us)
            l->attempt_us = now;
        uint64_t share = PLANE_HELLO_TIMEOUT_MS * UINT64_C(1000) / (l->addrs.n + 1);
        uint64_t patience = share > DIAL_MIN_US ? share : DIAL_MIN_US;
        if (l->sock.fd >= 0 && l->next_addr < l->addrs.n && now >= l->attempt_us + patience)
            link_fail(u, l, ERR_TIMEOUT, "no answer");
    }
}

/* --- accepting --------------------------------------------------------------------------------------------- */
static void doors_set(struct plane_ucx *u, bool shut)
{
    u->shut_until_us = u->core.now_us + DOORS_SHUT_US;
    for (int i = 0; i < N_DOORS; i++)
        if (u->door_fds[i] >= 0)
            watch(u, EPOLL_CTL_MOD, u->door_fds[i], shut ? 0 : EPOLLIN, &u->door_sources[i]);
    u->doors_shut = shut;
}

static void door_open(struct plane_ucx *u, int fd)
{
    for (int i = 0; i < MAX_ACCEPTS; i++) {
        if (!core_may_accept(&u->core) && !core_make_room(&u->core)) {
            doors_set(u, true);
            return;
        }
        struct door_sock sock;
        int rc = door_accept(fd, &sock);
        if (rc < 0) {
            log_warn("plane: cannot take a connection: no descriptor is left");
            doors_set(u, true); /* the loop would spin on it */
        }
        if (rc <= 0)
            return;
        struct ucx_link *l = link_make(u);
        if (!l || watch(u, EPOLL_CTL_ADD, sock.fd, EPOLLIN, &l->source) != 0) {
            sock_close(&sock);
            if (l)
                link_discard(u, l);
            return;
        }
        l->sock = sock;
        core_accepted(&u->core, &l->core);
    }
}

/* --- HELLO over the sockets -------------------------------------------------------------------------------- */
/* The others take the way of messages. */
static bool is_hello(uint8_t kind)
{
    return kind >= FRAME_HELLO && kind <= FRAME_REFUSE && kind != FRAME_READY;
}

static void line_event(struct plane_ucx *u, struct ucx_link *l)
{
    struct err why = ERR_INIT;
    if (l->released || l->failed || l->sock.fd < 0)
        return;
    if (l->sock.connecting) {
        if (sock_connected(&l->sock, &why) != 0)
            link_fail(u, l, why.code, why.text);
        else
            watch(u, EPOLL_CTL_MOD, l->sock.fd, EPOLLIN, &l->source);
        return;
    }
    uint8_t kind;
    const uint8_t *body;
    size_t n;
    int rc = 0;
    for (int i = 0; i < MAX_FRAMES && !l->released; i++) {
        rc = sock_get(&l->sock, core_max_body(&l->core), &kind, &body, &n, &why);
        if (rc <= 0)
            break;
        if (!is_hello(kind) || l->core.state == LINK_UP) {
            link_fail(u, l, ERR_PROTO, "a frame that does not belong to HELLO");
            break;
        }
        core_received(&u->core, &l->core, kind, 0, body, n);
    }
    if (l->released || rc >= 0)
        return;
    l->busy = l->core.state == LINK_DIALED && rc == ERR_PEER;
    link_fail(u, l, rc, why.text);
    /* watched on, its end would wake the loop until the failure is told */
    epoll_ctl(u->epoll_fd, EPOLL_CTL_DEL, l->sock.fd, NULL);
}

static void sockets_poll(struct plane_ucx *u)
{
    struct epoll_event events[MAX_EVENTS];
    int n = epoll_wait(u->epoll_fd, events, MAX_EVENTS, 0);
    for (int i = 0; i < n; i++) {
        enum source *source = events[i].data.ptr;
        if (*source == SOURCE_LINK) {
            line_event(u, (struct ucx_link *)source);
        } else if (*source == SOURCE_DOOR) {
            door_open(u, u->door_fds[source - u->door_sources]);
        } else if (*source == SOURCE_KICK) {
            eventfd_t drained;
            eventfd_read(u->kick_fd, &drained);
            u->kicked = false;
        }
    }
    if (u->doors_shut && u->core.now_us >= u->shut_until_us)
        doors_set(u, false);
}

/* --- what the core asks for -------------------------------------------------------------------------------- */
static int ucx_send(struct plane *p, struct link *core, uint8_t kind, uint16_t type,
                    const void *body, size_t n, struct err *e)
{
    struct ucx_link *l = ucx_link_of(core);
    if (is_hello(kind))
        return sock_put(&l->sock, kind, body, n, e);
    if (!l->conn)
        return err_set(e, ERR_PEER, "member %u is not reached yet", core->member);
    return conn_send(l->conn, core->tx_token, kind, type, body, n, e);
}

static size_t ucx_queued(const struct link *core)
{
    const struct conn *c = ucx_link_of((struct link *)core)->conn;
    return c ? c->queued_bytes : 0;
}

static int ucx_via(struct plane *p, struct buf *out, struct err *e)
{
    struct plane_ucx *u = ucx_of(p);
    ucp_address_t *address;
    size_t n;
    ucs_status_t status = ucp_worker_get_address(u->worker, &address, &n);
    if (status != UCS_OK)
        return err_set(e, ERR_SYS, "UCX tells no address: %s", ucs_status_string(status));
    buf_put(out, address, n);
    ucp_worker_release_address(u->worker, address);
    return buf_ok(out) ? 0 : err_set(e, ERR_LIMIT, "a UCX address of %zu bytes", n);
}

static void ucx_bind(struct plane *p, struct link *core)
{
    link_bind(ucx_of(p), ucx_link_of(core));
}

static int ucx_reach(struct plane *p, struct link *core, const void *via, size_t n, struct err *e)
{
    return conn_open(ucx_of(p), ucx_link_of(core), via, n, e);
}

static void ucx_release(struct plane *p, struct link *core)
{
    struct plane_ucx *u = ucx_of(p);
    struct ucx_link *l = ucx_link_of(core);
    conn_part(l->conn);
    link_unbind(u, l);
    free(l->whole);
    l->whole = NULL;
    link_discard(u, l);
}

static int ucx_address(struct plane *p, struct buf *out, struct err *e)
{
    const struct plane_ucx *u = ucx_of(p);
    return addr_publish(out, u->ports[0], u->ports[1], e);
}

static int ucx_fd(struct plane *p)
{
    return ucx_of(p)->epoll_fd;
}

/* --- progress ---------------------------------------------------------------------------------------------- */
static void tell_failures(struct plane_ucx *u)
{
    while (u->any_failed) { /* handlers may send, and that may fail too */
        u->any_failed = false;
        for (struct ucx_link *l = u->links; l; l = l->next) {
            if (!l->failed || l->released)
                continue;
            struct err why = l->why;
            core_failed(&u->core, &l->core, &why);
        }
    }
}

static void links_sweep(struct plane_ucx *u)
{
    if (!u->any_released)
        return;
    u->any_released = false;
    for (struct ucx_link **at = &u->links; *at;) {
        struct ucx_link *l = *at;
        if (l->released) {
            *at = l->next;
            free(l);
        } else {
            at = &l->next;
        }
    }
}

static unsigned tell_reached(struct plane_ucx *u)
{
    unsigned told = 0;
    while (u->any_reached) {
        u->any_reached = false;
        for (struct ucx_link *l = u->links; l; l = l->next) {
            if (!l->conn || !l->conn->reached)
                continue;
            l->conn->reached = false;
            core_reached(&u->core, &l->core);
            told++;
        }
    }
    return told;
}

static void ucx_poll(struct plane *p, uint64_t now_us)
{
    struct plane_ucx *u = ucx_of(p);
    sockets_poll(u);
    check_dials(u);
    bool armed = false;
    for (int round = 0; round < POLL_ROUNDS && !armed; round++) {
        unsigned did = ucp_worker_progress(u->worker) + tell_reached(u);
        conns_pump(u);
        if (did)
            continue;
        tell_failures(u);
        conns_sweep(u);
        /* BUSY: something came in between; progress again, or it is never told */
        armed = ucp_worker_arm(u->worker) == UCS_OK;
    }
    tell_failures(u);
    links_sweep(u);
    if (!armed && !u->kicked) {
        eventfd_write(u->kick_fd, 1);
        u->kicked = true;
    }
}

/* A member of a large world needs about three descriptors for each other one (life line, UCX's own); the soft limit is often 1,024. */
static void raise_descriptor_limit(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
        r.rlim_cur = r.rlim_max;
        setrlimit(RLIMIT_NOFILE, &r); /* refused: a smaller world still works */
    }
}

/* --- set-up and end ---------------------------------------------------------------------------------------- */
static int worker_make(struct plane_ucx *u, struct err *e)
{
    ucp_config_t *config;
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK)
        return err_set(e, ERR_SYS, "cannot read the UCX configuration: %s",
                       ucs_status_string(status));
    /* Copies only: UCX 1.13 aborts the process when a peer dies under a TCP send without copy. */
    ucp_config_modify(config, "ZCOPY_THRESH", "inf");
    /* Else it connects with the loop at a stand, minutes for a host that is cut off; and aborts when the peer dies between that connect and
     * its first send (tcp_ep.c:478), as it then fails an endpoint that it has not yet made wholly. */
    unsigned major, minor, release;
    ucp_get_version(&major, &minor, &release);
    bool bare = major == 1 && minor <= 13; /* knows the name without the transport's prefix */
    ucp_config_modify(config, bare ? "CONN_NB" : "TCP_CONN_NB", "y");
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                 .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP};
    status = ucp_init(&params, config, &u->context);
    ucp_config_release(config);
    if (status != UCS_OK)
        return err_set(e, ERR_SYS, "cannot start UCX: %s", ucs_status_string(status));
    const ucp_worker_params_t worker_params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                               .thread_mode = UCS_THREAD_MODE_SINGLE};
    status = ucp_worker_create(u->context, &worker_params, &u->worker);
    if (status != UCS_OK)
        return err_set(e, ERR_SYS, "cannot make a UCX worker: %s", ucs_status_string(status));
    const ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = AM_ID,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = am_received,
        .arg = u,
    };
    status = ucp_worker_set_am_recv_handler(u->worker, &handler);
    if (status != UCS_OK)
        return err_set(e, ERR_SYS, "cannot set the UCX handler: %s", ucs_status_string(status));
    return 0;
}

static int doors_make(struct plane_ucx *u, struct err *e)
{
    int worker_fd;
    ucs_status_t status = ucp_worker_get_efd(u->worker, &worker_fd);
    if (status != UCS_OK)
        return err_set(e, ERR_SYS, "UCX has no event descriptor here: %s",
                       ucs_status_string(status));
    u->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    u->kick_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    u->ucx_source = SOURCE_UCX;
    u->kick_source = SOURCE_KICK;
    if (u->epoll_fd < 0 || u->kick_fd < 0 ||
        watch(u, EPOLL_CTL_ADD, worker_fd, EPOLLIN, &u->ucx_source) != 0 ||
        watch(u, EPOLL_CTL_ADD, u->kick_fd, EPOLLIN, &u->kick_source) != 0)
        return err_sys(e, errno, "cannot make the plane's descriptor");
    static const int FAMILIES[N_DOORS] = {AF_INET, AF_INET6};
    bool any = false;
    for (int i = 0; i < N_DOORS; i++) {
        u->door_sources[i] = SOURCE_DOOR;
        u->door_fds[i] = door_listen(FAMILIES[i], &u->ports[i], e);
        if (u->door_fds[i] < 0)
            continue;
        any = true;
        if (watch(u, EPOLL_CTL_ADD, u->door_fds[i], EPOLLIN, &u->door_sources[i]) != 0)
            return err_sys(e, errno, "cannot watch a listening socket");
    }
    return any ? 0 : ERR_SYS; /* the text is of the last that failed */
}

static void fd_close(int fd)
{
    if (fd >= 0)
        close(fd);
}

static void ucx_destroy(struct plane *p)
{
    struct plane_ucx *u = ucx_of(p);
    for (struct conn *c = u->conns; c; c = c->next)
        conn_part(c);
    for (int round = 0; round < POLL_ROUNDS && u->conns; round++) {
        u->any_closing = true;
        conns_sweep(u);
        if (u->conns)
            ucp_worker_progress(u->worker);
    }
    if (u->worker)
        ucp_worker_destroy(u->worker);
    if (u->context)
        ucp_cleanup(u->context);
    while (u->conns) { /* UCX kept requests of them to the end */
        struct conn *c = u->conns;
        u->conns = c->next;
        free(c);
    }
    while (u->links) {
        struct ucx_link *l = u->links;
        u->links = l->next;
        sock_close(&l->sock);
        free(l->whole);
        free(l);
    }
    for (int i = 0; i < N_DOORS; i++)
        fd_close(u->door_fds[i]);
    fd_close(u->kick_fd);
    fd_close(u->epoll_fd);
    free(u);
}

static const struct plane_ops UCX_OPS = {
    .address = ucx_address,
    .dial = ucx_dial,
    .redial = ucx_redial,
    .send = ucx_send,
    .queued = ucx_queued,
    .via = ucx_via,
    .bind = ucx_bind,
    .reach = ucx_reach,
    .release = ucx_release,
    .fd = ucx_fd,
    .poll = ucx_poll,
    .destroy = ucx_destroy,
    .lingers = true,
};

int plane_ucx_create(struct plane **out, const struct plane_self *self,
                     const struct plane_events *ev, struct err *e)
{
    struct plane_ucx *u = calloc(1, sizeof *u);
    if (!u)
        return err_set(e, ERR_NOMEM, "no memory for a plane");
    u->epoll_fd = u->kick_fd = -1;
    for (int i = 0; i < N_DOORS; i++)
        u->door_fds[i] = -1;
    raise_descriptor_limit();
    int rc = core_init(&u->core, &UCX_OPS, self, ev, e);
    if (!rc)
        rc = worker_make(u, e);
    if (!rc)
        rc = doors_make(u, e);
    if (rc) {
        ucx_destroy(&u->core);
        return rc;
    }
    *out = &u->core;
    return 0;
}
