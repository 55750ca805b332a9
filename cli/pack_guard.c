/* pack_guard.c - see pack_guard.h. */
#include "cli/pack_guard.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static char unfinished[PATH_MAX + 8];
static volatile sig_atomic_t owned;
static const int ENDS[] = {SIGINT, SIGTERM, SIGHUP};

static void on_end(int sig)
{
    if (owned)
        unlink(unfinished);
    raise(sig); /* the default is back (SA_RESETHAND), and comes when this returns */
}

void pack_guard_begin(const char *path)
{
    struct sigaction sa = {.sa_handler = on_end, .sa_flags = SA_RESETHAND}, old;
    snprintf(unfinished, sizeof unfinished, "%s.tmp", path);
    for (unsigned i = 0; i < sizeof ENDS / sizeof ENDS[0]; i++)
        if (sigaction(ENDS[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL) /* nohup stays */
            sigaction(ENDS[i], &sa, NULL);
}

void pack_guard_own(void)
{
    owned = 1;
}

void pack_guard_end(void)
{
    struct sigaction old;
    owned = 0;
    for (unsigned i = 0; i < sizeof ENDS / sizeof ENDS[0]; i++)
        if (sigaction(ENDS[i], NULL, &old) == 0 && old.sa_handler == on_end)
            signal(ENDS[i], SIG_DFL);
}
