/* shield.c - see shield.h.
 *
 * Open MPI 4 calls readv, writev and ompi_rte_abort through the dynamic linker, so the definitions
 * here stand before the libraries' own. Calls that do not come from btl tcp, or come before the
 * detach, are passed on. Other versions may not call them: then these are only never used.
 */
#include "mpi/shield.h"

#include "base/log.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { ABORT_STATUS = 1 };

static _Atomic bool raised;
static int hole[2] = {-1, -1}; /* a pair of sockets: hole[1] is never read */
static uintptr_t tcp_from, tcp_to;

/* --- connections
 * --------------------------------------------------------------------------------------------- */

static int find_btl_tcp(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    (void)arg;
    if (!strstr(info->dlpi_name, "mca_btl_tcp"))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_LOAD && (p->p_flags & PF_X)) {
            tcp_from = info->dlpi_addr + p->p_vaddr;
            tcp_to = tcp_from + p->p_memsz;
        }
    }
    return 1;
}

/* The transport may have sent or received nothing: then the connection has nothing more to say, now
 * or ever. The hole in its place leaves the library's epoll set, takes what is written until it is
 * full, and never becomes readable. */
static ssize_t silence(int fd, ssize_t n, bool reading, const void *caller)
{
    uintptr_t from = (uintptr_t)caller;
    if (n > 0 || (n == 0 && !reading))
        return n;
    /* other threads call, too: where the transport lies is set before `raised` is */
    if (!atomic_load(&raised) || from < tcp_from || from >= tcp_to)
        return n;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return n;
    log_info("mpi: a rank's connection broke: %s", n < 0 ? strerror(errno) : "closed by the peer");
    if (dup2(hole[0], fd) < 0)
        log_warn("mpi: connection %d stays broken: %s", fd, strerror(errno));
    errno = EAGAIN;
    return -1;
}

typedef ssize_t (*vector_fn)(int fd, const struct iovec *v, int n);

static vector_fn next_of(const char *name)
{
    vector_fn fn;
    *(void **)&fn = dlsym(RTLD_NEXT, name);
    return fn;
}

ssize_t readv(int fd, const struct iovec *v, int n)
{
    static _Atomic(vector_fn) next;
    vector_fn fn = atomic_load(&next);
    if (!fn)
        atomic_store(&next, fn = next_of("readv"));
    return silence(fd, fn(fd, v, n), true, __builtin_return_address(0));
}

ssize_t writev(int fd, const struct iovec *v, int n)
{
    static _Atomic(vector_fn) next;
    vector_fn fn = atomic_load(&next);
    if (!fn)
        atomic_store(&next, fn = next_of("writev"));
    return silence(fd, fn(fd, v, n), false, __builtin_return_address(0));
}

/* --- the abort
 * ----------------------------------------------------------------------------------------------- */

typedef void (*rte_abort_fn)(int code, char *fmt, ...);

void ompi_rte_abort(int code, char *fmt, ...);

void ompi_rte_abort(int code, char *fmt, ...)
{
    char why[256] = "no reason given";
    if (fmt) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(why, sizeof why, fmt, ap);
        va_end(ap);
    }
    if (atomic_load(&raised)) {
        log_warn("mpi: the library wanted to abort, the round's deadline decides instead: %s", why);
        return;
    }
    rte_abort_fn next;
    *(void **)&next = dlsym(RTLD_NEXT, "ompi_rte_abort");
    if (next)
        next(code, "%s", why);
    log_error("mpi: aborted: %s", why);
    _exit(ABORT_STATUS);
}

void shield_raise(void)
{
    /* Without the hole a broken connection would stay readable: better the transport learns of it than it asks for ever. */
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, hole) == 0)
        dl_iterate_phdr(find_btl_tcp, NULL);
    else
        log_warn("mpi: no socket to stand for broken connections: %s", strerror(errno));
    atomic_store(&raised, true);
}
