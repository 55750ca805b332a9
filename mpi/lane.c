/* lane.c - see lane.h. */
#include "mpi/lane.h"

#include "base/clock.h"
#include "base/queue.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { RUNNING, ENDED, LEFT };
enum { WAKE_US = 200000, STOP_POLL_US = 500 };

struct lane {
    struct queue *in, *out;
    pthread_t thread;
    struct lane_spec spec;
    atomic_bool closing;
    atomic_int phase;
    atomic_int owners; /* the thread and the mover */
};

static char WAKE; /* a job that is none: its address only wakes the thread */

static void lane_release(struct lane *l)
{
    if (atomic_fetch_sub(&l->owners, 1) != 1)
        return;
    queue_destroy(l->in);
    queue_destroy(l->out);
    l->spec.free_ctx(l->spec.ctx);
    free(l);
}

static void *lane_main(void *arg)
{
    struct lane *l = arg;
    while (!atomic_load(&l->closing)) {
        void *job = queue_pop_wait(l->in, WAKE_US);
        if (!job || job == &WAKE || atomic_load(&l->closing))
            continue;
        l->spec.work(l->spec.ctx, job);
        CHECK(queue_push(l->out, job) == 0);
    }
    int phase = RUNNING;
    if (!atomic_compare_exchange_strong(&l->phase, &phase, ENDED)) {
        void *job; /* left behind: nobody else takes it any more */
        while ((job = queue_pop(l->out)))
            l->spec.free_job(job);
    }
    lane_release(l);
    return NULL;
}

/* Signals belong to the process's own threads, never to a helper's system call. */
static int thread_start(struct lane *l)
{
    sigset_t all, old;
    pthread_attr_t attr;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    int rc = pthread_create(&l->thread, &attr, lane_main, l);
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

int lane_start(struct lane **out, const struct lane_spec *spec, struct err *e)
{
    struct lane *l = calloc(1, sizeof *l);
    if (!l) {
        spec->free_ctx(spec->ctx);
        return err_set(e, ERR_NOMEM, "no memory for a helper thread");
    }
    l->spec = *spec;
    atomic_store(&l->owners, 2);
    int rc = queue_create(&l->in, spec->capacity + 1, e);
    if (rc == 0)
        rc = queue_create(&l->out, spec->capacity, e);
    if (rc == 0) {
        int failed = thread_start(l);
        if (failed)
            rc = err_sys(e, failed, "cannot start a helper thread");
    }
    if (rc) {
        atomic_store(&l->owners, 1);
        lane_release(l);
        return rc;
    }
    *out = l;
    return 0;
}

void lane_push(struct lane *l, void *job)
{
    CHECK(queue_push(l->in, job) == 0);
}

void *lane_pop(struct lane *l)
{
    return queue_pop(l->out);
}

void *lane_recall(struct lane *l)
{
    return queue_pop(l->in);
}

bool lane_stop(struct lane *l, uint64_t timeout_us)
{
    if (!l)
        return true;
    uint64_t from = clock_now_us();
    atomic_store(&l->closing, true);
    queue_push(l->in, &WAKE);
    while (atomic_load(&l->phase) == RUNNING && clock_now_us() - from < timeout_us)
        clock_sleep_us(STOP_POLL_US);
    int phase = RUNNING;
    bool left = atomic_compare_exchange_strong(&l->phase, &phase, LEFT);
    lane_release(l);
    return !left;
}
