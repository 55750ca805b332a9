/* plane_door.c - see plane_door.h. */
#include "wire/plane_door.h"

#include "wire/plane_addr.h"
#include "wire/plane_hello.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

enum {
    HEAD_BYTES = 4 + 1,
    BACKLOG = 4096, /* a whole world may knock in one moment; the kernel cuts it to somaxconn */
    MAX_FRAME_BYTES = HEAD_BYTES + VIA_MAX_BYTES + HELLO_MAX_BYTES,
    MAX_OUT_BYTES = 2 * HELLO_MAX_BYTES,
    /* A life line to a host that vanished breaks after 12 to 17 s: no sooner than routers give up a silent worker (3 * 4 s by default), or a
     * cable that was cut for some seconds would cost requests that nobody has given up. */
    KEEP_IDLE_S = 5,
    KEEP_STEP_S = 2,
    KEEP_TRIES = 6,
};

int door_listen(int family, uint16_t *port, struct err *e)
{
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        err_sys(e, errno, "cannot make a listening socket");
        return -1;
    }
    const int one = 1;
    struct sockaddr_storage at = {.ss_family = (sa_family_t)family}; /* any address, any port */
    socklen_t len = addr_len(&at);
    if ((family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one) != 0) ||
        bind(fd, (struct sockaddr *)&at, len) != 0 || listen(fd, BACKLOG) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) != 0) {
        err_sys(e, errno, "cannot listen for members");
        close(fd);
        return -1;
    }
    *port = ntohs(family == AF_INET ? ((struct sockaddr_in *)&at)->sin_port
                                    : ((struct sockaddr_in6 *)&at)->sin6_port);
    return fd;
}

static void sock_init(struct door_sock *s, int fd)
{
    const int one = 1, idle = KEEP_IDLE_S, step = KEEP_STEP_S, tries = KEEP_TRIES;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &step, sizeof step);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof tries);
    s->fd = fd;
    s->connecting = s->given = false;
    buf_init(&s->in, MAX_FRAME_BYTES);
    buf_init(&s->out, MAX_OUT_BYTES);
}

int door_accept(int listen_fd, struct door_sock *s)
{
    int fd;
    do
        fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
    if (fd < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : ERR_LIMIT;
    sock_init(s, fd);
    return 1;
}

int sock_dial(struct door_sock *s, const struct sockaddr_storage *to, struct err *e)
{
    int fd = socket(to->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_sys(e, errno, "cannot make a socket");
    if (connect(fd, (const struct sockaddr *)to, addr_len(to)) != 0 && errno != EINPROGRESS) {
        int rc = err_set(e, ERR_PEER, "cannot connect: %s", strerror(errno));
        close(fd);
        return rc;
    }
    sock_init(s, fd);
    s->connecting = true;
    return 0;
}

void sock_close(struct door_sock *s)
{
    if (s->fd >= 0) {
        close(s->fd);
        buf_fini(&s->in);
        buf_fini(&s->out);
    }
    s->fd = -1;
}

/* HELLO frames are few and short: a fresh socket takes them whole, or something is wrong with it. */
static int send_whole(struct door_sock *s, const struct buf *b, struct err *e)
{
    ssize_t k = send(s->fd, b->data, b->len, MSG_NOSIGNAL);
    if (k == (ssize_t)b->len)
        return 0;
    return err_set(e, ERR_PEER, "cannot send HELLO: %s", k < 0 ? strerror(errno) : "stalled");
}

int sock_put(struct door_sock *s, uint8_t kind, const void *body, size_t n, struct err *e)
{
    struct buf b;
    buf_init(&b, MAX_FRAME_BYTES);
    buf_u32(&b, (uint32_t)n);
    buf_u8(&b, kind);
    buf_put(&b, body, n);
    int rc = 0;
    if (s->fd < 0 || !buf_ok(&b)) {
        rc = err_set(e, ERR_PEER, "cannot send HELLO: closed");
    } else if (s->connecting) {
        buf_put(&s->out, b.data, b.len);
        if (!buf_ok(&s->out))
            rc = err_set(e, ERR_LIMIT, "too much said before the connection was there");
    } else {
        rc = send_whole(s, &b, e);
    }
    buf_fini(&b);
    return rc;
}

int sock_connected(struct door_sock *s, struct err *e)
{
    int error = 0;
    socklen_t len = sizeof error;
    if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
        error = errno;
    if (error)
        return err_set(e, ERR_PEER, "cannot connect: %s", strerror(error));
    s->connecting = false;
    int rc = s->out.len ? send_whole(s, &s->out, e) : 0;
    buf_reset(&s->out);
    return rc;
}

/* Read until the buffer holds `want` bytes: 1, 0 not yet, or an error. */
static int read_up_to(struct door_sock *s, size_t want, struct err *e)
{
    while (s->in.len < want) {
        uint8_t *dst = buf_reserve(&s->in, want - s->in.len);
        if (!dst)
            return err_set(e, ERR_NOMEM, "no memory for HELLO");
        ssize_t k = recv(s->fd, dst, want - s->in.len, 0);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return 0;
        if (k <= 0)
            return err_set(e, ERR_PEER, "the connection was closed%s%s", k < 0 ? ": " : "",
                           k < 0 ? strerror(errno) : "");
        s->in.len += (size_t)k;
    }
    return 1;
}

int sock_get(struct door_sock *s, size_t max_body, uint8_t *kind, const uint8_t **body, size_t *n,
             struct err *e)
{
    if (s->given)
        buf_reset(&s->in);
    s->given = false;
    int rc = read_up_to(s, HEAD_BYTES, e);
    if (rc <= 0)
        return rc;
    struct rd r = rd_make(s->in.data, HEAD_BYTES);
    uint32_t len = rd_u32(&r);
    *kind = rd_u8(&r);
    if (len > max_body)
        return err_set(e, ERR_PROTO, "a HELLO frame of %u bytes, at most %zu", len, max_body);
    rc = read_up_to(s, HEAD_BYTES + len, e);
    if (rc <= 0)
        return rc;
    *body = s->in.data + HEAD_BYTES;
    *n = len;
    s->given = true;
    return 1;
}
