/* pool.c - see pool.h.
 *
 * A job is published by its number: in `job_no`, which workers wait on, and in the upper half of `take`, whose lower half is the next
 * item. A grain is taken by compare-and-swap on both at once, so a thread that wakes late can never touch a later job's
 * items with an old job's eyes, and the caller need not wait for threads that took nothing. `fn` and `ctx` are read only after
 * a grain was taken: the caller cannot change them before that grain is done.
 */
#include "engine/cpu/pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* About 20 µs of pauses: longer than the gap between two operations of a step, far shorter than a scheduler's time slice. */
enum { SPIN_ROUNDS = 500 };

struct worker {
    struct pool *pool;
    uint32_t number;
    pthread_t thread;
};

struct pool {
    uint32_t n_threads, n_started;
    struct worker *workers; /* [n_threads - 1] */

    pool_fn fn;
    void *ctx;
    _Atomic uint32_t n_items, grain;
    _Atomic uint64_t take;   /* job number << 32 | next item */
    _Atomic uint32_t job_no; /* futex: workers sleep on it */
    _Atomic uint32_t n_done; /* items; futex: the caller sleeps on it */
    _Atomic uint32_t n_workers_asleep, caller_asleep;
    _Atomic bool stop;
};

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static void spin_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Wait until *word is not `seen`; returns the new value. n_asleep tells the other side whether to wake. */
static uint32_t wait_change(_Atomic uint32_t *word, uint32_t seen, _Atomic uint32_t *n_asleep)
{
    uint32_t now;
    for (int i = 0; i < SPIN_ROUNDS; i++) {
        now = atomic_load_explicit(word, memory_order_acquire);
        if (now != seen)
            return now;
        spin_pause();
    }
    atomic_fetch_add(n_asleep, 1);
    while ((now = atomic_load(word)) == seen)
        futex_wait(word, seen);
    atomic_fetch_sub(n_asleep, 1);
    return now;
}

static void take_grains(struct pool *p, uint32_t job_no, uint32_t thread)
{
    uint64_t take = atomic_load(&p->take);
    while ((uint32_t)(take >> 32) == job_no) {
        uint32_t begin = (uint32_t)take, n_items = atomic_load(&p->n_items);
        uint32_t grain = atomic_load(&p->grain);
        if (begin >= n_items)
            return;
        if (!atomic_compare_exchange_weak(&p->take, &take, take + grain))
            continue;
        uint32_t n = n_items - begin < grain ? n_items - begin : grain;
        p->fn(p->ctx, begin, begin + n, thread);
        if (atomic_fetch_add(&p->n_done, n) + n == n_items && atomic_load(&p->caller_asleep))
            futex_wake_all(&p->n_done);
        take = atomic_load(&p->take);
    }
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    for (uint32_t seen = 0;;) {
        seen = wait_change(&p->job_no, seen, &p->n_workers_asleep);
        if (atomic_load(&p->stop))
            return NULL;
        take_grains(p, seen, w->number);
    }
}

int pool_create(struct pool **out, uint32_t n_threads, struct err *e)
{
    if (n_threads < 1 || n_threads > POOL_MAX_THREADS)
        return err_set(e, ERR_CONFIG, "threads: %u, expected 1 to %d", n_threads, POOL_MAX_THREADS);
    struct pool *p = calloc(1, sizeof *p);
    struct worker *workers = calloc(n_threads, sizeof *workers);
    if (!p || !workers) {
        free(p);
        free(workers);
        return err_set(e, ERR_NOMEM, "pool of %u threads: out of memory", n_threads);
    }
    p->n_threads = n_threads;
    p->workers = workers;
    /* signals belong to the thread that owns the engine */
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = 0;
    for (uint32_t i = 0; i + 1 < n_threads && !rc; i++) {
        workers[i] = (struct worker){.pool = p, .number = i + 1};
        rc = pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]);
        p->n_started += !rc;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc) {
        uint32_t n = p->n_started;
        pool_destroy(p);
        return err_sys(e, rc, "starting compute thread %u of %u", n + 1, n_threads - 1);
    }
    *out = p;
    return 0;
}

void pool_destroy(struct pool *p)
{
    if (!p)
        return;
    atomic_store(&p->stop, true);
    atomic_fetch_add(&p->job_no, 1);
    futex_wake_all(&p->job_no);
    for (uint32_t i = 0; i < p->n_started; i++)
        pthread_join(p->workers[i].thread, NULL);
    free(p->workers);
    free(p);
}

uint32_t pool_threads(const struct pool *p)
{
    return p->n_threads;
}

void pool_for(struct pool *p, uint32_t n_items, uint32_t grain, pool_fn fn, void *ctx)
{
    if (p->n_threads == 1 || n_items <= grain) {
        if (n_items)
            fn(ctx, 0, n_items, 0);
        return;
    }
    uint32_t job_no = atomic_load(&p->job_no) + 1;
    /* close the old job first: a thread still looking at it must not see this one's n_items */
    atomic_store(&p->take, (uint64_t)job_no << 32 | UINT32_MAX);
    p->fn = fn;
    p->ctx = ctx;
    atomic_store(&p->n_items, n_items);
    atomic_store(&p->grain, grain);
    atomic_store(&p->n_done, 0);
    atomic_store(&p->take, (uint64_t)job_no << 32);
    atomic_store(&p->job_no, job_no);
    if (atomic_load(&p->n_workers_asleep))
        futex_wake_all(&p->job_no);
    take_grains(p, job_no, 0);
    for (uint32_t done; (done = atomic_load(&p->n_done)) != n_items;)
        wait_change(&p->n_done, done, &p->caller_asleep);
}
