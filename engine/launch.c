/* launch.c - see launch.h. */
#include "engine/launch.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
    MIN_FDS = 3,
    MAX_FDS = 1024,
    /* Where cores are shared, the ranks' loops (heartbeats, every token of every stream) go before computing: without it heartbeats were
     * seen to come seconds late on a full machine. Where an engine has cores of its own it changes nothing. */
    ENGINE_NICE = 5,
};

extern char **environ;

/* What a launcher put there for its own task: an engine that saw it would take itself for that task. */
static const char *const DROPPED[] = {"PMIX_", "OMPI_", "UCX_", "SLURM_"};

static bool is_dropped(const char *variable)
{
    for (size_t i = 0; i < sizeof DROPPED / sizeof DROPPED[0]; i++)
        if (!strncmp(variable, DROPPED[i], strlen(DROPPED[i])))
            return true;
    return false;
}

static void clean_environment(void)
{
    char **to = environ;
    for (char **from = environ; from && *from; from++)
        if (!is_dropped(*from))
            *to++ = *from;
    if (to)
        *to = NULL;
}

/* Kernels before 5.9 have no close_range. */
static int close_one_by_one(int first, struct err *e)
{
    DIR *d = opendir("/proc/self/fd");
    if (!d)
        return err_sys(e, errno, "stub: reading /proc/self/fd");
    for (struct dirent *entry; (entry = readdir(d));) {
        int fd = atoi(entry->d_name);
        if (fd >= first && fd != dirfd(d))
            close(fd);
    }
    closedir(d);
    return 0;
}

static int close_from(int first, struct err *e)
{
    if (!close_range((unsigned)first, ~0u, 0))
        return 0;
    if (errno != ENOSYS && errno != EPERM)
        return err_sys(e, errno, "stub: closing descriptors from %d", first);
    return close_one_by_one(first, e);
}

/* A loop thread blocks and ignores signals for itself; its child starts clean. */
static void reset_signals(void)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    struct sigaction usual = {.sa_handler = SIG_DFL};
    for (int s = 1; s < NSIG; s++)
        sigaction(s, &usual, NULL); /* fails for KILL, STOP and the C library's own: as it should */
    /* Slurm signals every process of a task. What asks a rank to drain must not end its engine. */
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGUSR1, &ignore, NULL);
    sigaction(SIGUSR2, &ignore, NULL);
    sigaction(SIGINT, &ignore, NULL);
    sigaction(SIGHUP, &ignore, NULL);
}

int launch_stub(int parent_pid, int n_fds, char *const argv[], struct err *e)
{
    if (n_fds < MIN_FDS || n_fds > MAX_FDS)
        return err_set(e, ERR_CONFIG, "stub: %d descriptors, expected %d to %d", n_fds, MIN_FDS,
                       MAX_FDS);
    if (!argv || !argv[0])
        return err_set(e, ERR_CONFIG, "stub: no command");
    if (prctl(PR_SET_PDEATHSIG, SIGKILL))
        return err_sys(e, errno, "stub: PR_SET_PDEATHSIG");
    /* asked after: a parent that died before the prctl will send nothing */
    if (getppid() != parent_pid)
        return err_set(e, ERR_PEER, "stub: parent %d is gone, %d took its place", parent_pid,
                       (int)getppid());
    int rc = close_from(n_fds, e);
    if (rc)
        return rc;
    clean_environment();
    reset_signals();
    int priority = nice(ENGINE_NICE);
    (void)priority; /* best effort */
    execvp(argv[0], argv);
    return err_sys(e, errno, "stub: running %s", argv[0]);
}
