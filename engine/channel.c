/* channel.c - see ring.h: two rings, two eventfds to wake each other, and the status page.
 *
 * A sender writes its record, then the eventfd; a reader that finds nothing clears the eventfd and looks once more. So a record
 * is never left behind an eventfd that is not readable.
 */
#include "engine/ring_half.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

enum { STATUS_BYTES = 4096 };
_Static_assert(sizeof(struct channel_status) <= STATUS_BYTES, "one page");

struct channel {
    struct ring out, in;
    int wake_peer, wake_me; /* eventfds */
    int fds[CHANNEL_FDS];   /* owned, in the order of enum channel_fd; -1: not open */
    struct channel_status *status;
};

static struct channel *channel_new(struct err *e)
{
    struct channel *c = calloc(1, sizeof *c);
    if (!c) {
        err_set(e, ERR_NOMEM, "channel: out of memory");
        return NULL;
    }
    for (int i = 0; i < CHANNEL_FDS; i++)
        c->fds[i] = -1;
    return c;
}

static int *slot_of(struct channel *c, enum channel_fd fd)
{
    return &c->fds[fd - CHANNEL_FD_COMMANDS];
}

static int new_eventfd(int *fd, struct err *e)
{
    *fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return *fd < 0 ? err_sys(e, errno, "channel: eventfd") : 0;
}

int channel_create(struct channel **out, int fds[CHANNEL_FDS], struct err *e)
{
    struct channel *c = channel_new(e);
    if (!c)
        return ERR_NOMEM;
    int rc = ring_create(&c->out, "exaserve-commands", slot_of(c, CHANNEL_FD_COMMANDS), e);
    if (!rc)
        rc = ring_create(&c->in, "exaserve-events", slot_of(c, CHANNEL_FD_EVENTS), e);
    if (!rc)
        rc = new_eventfd(slot_of(c, CHANNEL_FD_WAKE_ENGINE), e);
    if (!rc)
        rc = new_eventfd(slot_of(c, CHANNEL_FD_WAKE_WORKER), e);
    if (!rc) {
        int fd = ring_memfd("exaserve-status", STATUS_BYTES, e);
        rc = fd < 0 ? fd : 0;
        *slot_of(c, CHANNEL_FD_STATUS) = fd < 0 ? -1 : fd;
    }
    if (!rc &&
        !(c->status = ring_map(*slot_of(c, CHANNEL_FD_STATUS), STATUS_BYTES, "exaserve-status", e)))
        rc = ERR_SYS;
    if (rc) {
        channel_destroy(c);
        return rc;
    }
    c->wake_peer = *slot_of(c, CHANNEL_FD_WAKE_ENGINE);
    c->wake_me = *slot_of(c, CHANNEL_FD_WAKE_WORKER);
    for (int i = 0; i < CHANNEL_FDS; i++)
        fds[i] = c->fds[i];
    *out = c;
    return 0;
}

/* An eventfd is an anonymous inode that takes and gives 8 bytes; anything else on these numbers is a caller's mistake. */
static int check_eventfd(int fd, struct err *e)
{
    char path[64], target[64] = "";
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n < 0 || strcmp(target, "anon_inode:[eventfd]"))
        return err_set(e, ERR_PROTO, "channel: descriptor %d is no eventfd", fd);
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK))
        return err_sys(e, errno, "channel: descriptor %d", fd);
    return 0;
}

int channel_attach(struct channel **out, int first_fd, struct err *e)
{
    struct err local = ERR_INIT;
    e = e ? e : &local;
    struct channel *c = channel_new(e);
    if (!c)
        return ERR_NOMEM;
    int shift = first_fd - CHANNEL_FD_COMMANDS;
    int rc = ring_attach(&c->in, "exaserve-commands", first_fd, true, e);
    if (!rc)
        rc = ring_attach(&c->out, "exaserve-events", CHANNEL_FD_EVENTS + shift, false, e);
    if (!rc)
        rc = check_eventfd(CHANNEL_FD_WAKE_ENGINE + shift, e);
    if (!rc)
        rc = check_eventfd(CHANNEL_FD_WAKE_WORKER + shift, e);
    if (!rc &&
        !(c->status = ring_map(CHANNEL_FD_STATUS + shift, STATUS_BYTES, "exaserve-status", e)))
        rc = e->code ? e->code : ERR_SYS;
    if (rc) { /* the descriptors stay open: they may be somebody else's */
        channel_destroy(c);
        return rc;
    }
    for (int fd = CHANNEL_FD_COMMANDS; fd <= CHANNEL_FD_STATUS; fd++) {
        fcntl(fd + shift, F_SETFD, FD_CLOEXEC);
        *slot_of(c, fd) = fd + shift;
    }
    c->wake_peer = CHANNEL_FD_WAKE_WORKER + shift;
    c->wake_me = CHANNEL_FD_WAKE_ENGINE + shift;
    *out = c;
    return 0;
}

void channel_destroy(struct channel *c)
{
    if (!c)
        return;
    ring_unmap(&c->out);
    ring_unmap(&c->in);
    if (c->status)
        munmap(c->status, STATUS_BYTES);
    for (int i = 0; i < CHANNEL_FDS; i++)
        if (c->fds[i] >= 0)
            close(c->fds[i]);
    free(c);
}

int channel_send(struct channel *c, uint16_t type, const void *body, size_t n, struct err *e)
{
    int rc = ring_write(&c->out, type, body, n, e);
    if (rc)
        return rc;
    /* EAGAIN: the counter is at its top, so the peer is awake anyway */
    if (eventfd_write(c->wake_peer, 1) && errno != EAGAIN)
        return err_sys(e, errno, "channel: waking the other side");
    return 0;
}

int channel_recv(struct channel *c, uint16_t *type, struct buf *b, struct err *e)
{
    int rc = ring_read(&c->in, type, b, e);
    if (rc)
        return rc;
    eventfd_t n;
    if (eventfd_read(c->wake_me, &n))
        return 0; /* nothing to clear, thus nothing was sent since */
    return ring_read(&c->in, type, b, e);
}

int channel_fd(const struct channel *c)
{
    return c->wake_me;
}

int channel_wait(struct channel *c, uint64_t timeout_us)
{
    if (!ring_is_empty(&c->in))
        return 1;
    struct pollfd p = {.fd = c->wake_me, .events = POLLIN};
    struct timespec t = {(time_t)(timeout_us / 1000000), (long)(timeout_us % 1000000) * 1000};
    return ppoll(&p, 1, &t, NULL) > 0;
}

struct channel_status *channel_status(struct channel *c)
{
    return c->status;
}
