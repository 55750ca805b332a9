/* abort.c - see abort.h.
 *
 * Open MPI 4 calls ompi_rte_abort through the dynamic linker, so the definition here stands before
 * the library's own. Other versions do not call it: then it is only never used.
 */
#include "mpi/abort.h"

#include "base/log.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

enum { ABORT_STATUS = 1 };

static _Atomic int disarmed;

/* Open MPI takes its locks only while this is set, and the mover is the only thread that calls it
 * (MPI_THREAD_FUNNELED). With them, btl tcp locks itself out when a peer is killed while it sends:
 * frag_send → endpoint_close → ob1 send_fin → endpoint_send wants the lock that frag_send holds. */
static void unlock_library(void)
{
    bool *uses_threads = dlsym(RTLD_DEFAULT, "opal_uses_threads");
    if (uses_threads)
        *uses_threads = false;
}

void abort_disarm(void)
{
    unlock_library();
    atomic_store(&disarmed, 1);
}

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
    if (atomic_load(&disarmed)) {
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
