/* watchdog.c - see watchdog.h. */
#include "mpi/watchdog.h"

#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_STUCK = 3 };

struct watchdog {
    const struct world *w;
    const char *doing;
    struct timespec until;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stopped;
};

static void bite(const struct watchdog *d)
{
    char text[240], host[64] = "?", rank[24] = "";
    gethostname(host, sizeof host - 1);
    if (d->w->size)
        snprintf(rank, sizeof rank, "rank %u on ", d->w->rank);
    snprintf(text, sizeof text, "%s%s is stuck in %s: another rank died or did not come", rank,
             host, d->doing);
    log_error("mpi: %s; leaving", text);
    if (d->w->stuck)
        d->w->stuck(d->w->stuck_arg, text);
    _exit(EXIT_STUCK);
}

static void *watch(void *arg)
{
    struct watchdog *d = arg;
    int rc = 0;
    pthread_mutex_lock(&d->lock);
    while (!d->stopped && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&d->changed, &d->lock, &d->until);
    bool late = !d->stopped;
    pthread_mutex_unlock(&d->lock);
    if (late)
        bite(d);
    return NULL;
}

int watchdog_start(struct watchdog **out, const struct world *w, const char *doing,
                   uint64_t after_us, struct err *e)
{
    struct watchdog *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(e, ERR_NOMEM, "no memory for a watchdog");
    d->w = w;
    d->doing = doing;
    clock_gettime(CLOCK_MONOTONIC, &d->until);
    uint64_t ns = (uint64_t)d->until.tv_nsec + after_us % 1000000 * 1000;
    d->until.tv_sec += (time_t)(after_us / 1000000 + ns / 1000000000);
    d->until.tv_nsec = (long)(ns % 1000000000);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&d->changed, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&d->lock, NULL);
    int rc = pthread_create(&d->thread, NULL, watch, d);
    if (rc) {
        pthread_cond_destroy(&d->changed);
        pthread_mutex_destroy(&d->lock);
        free(d);
        return err_sys(e, rc, "cannot start a watchdog");
    }
    *out = d;
    return 0;
}

void watchdog_stop(struct watchdog *d)
{
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    d->stopped = true;
    pthread_cond_signal(&d->changed);
    pthread_mutex_unlock(&d->lock);
    pthread_join(d->thread, NULL);
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->lock);
    free(d);
}
