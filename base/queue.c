/* queue.c - see queue.h. A ring under one mutex: hand-over between threads is rare here (control, not tokens). */
#include "base/queue.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    void **ring; /* [capacity] */
    size_t capacity, head, depth;
    int fd;
};

int queue_create(struct queue **out, size_t capacity, struct err *e)
{
    struct queue *q = calloc(1, sizeof *q);
    if (q)
        q->ring = calloc(capacity, sizeof *q->ring);
    if (!q || !q->ring) {
        free(q);
        return err_set(e, ERR_NOMEM, "no memory for a queue of %zu", capacity);
    }
    q->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (q->fd < 0) {
        int rc = err_sys(e, errno, "cannot make an eventfd");
        free(q->ring);
        free(q);
        return rc;
    }
    q->capacity = capacity;
    pthread_mutex_init(&q->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&q->filled, &attr);
    pthread_condattr_destroy(&attr);
    *out = q;
    return 0;
}

void queue_destroy(struct queue *q)
{
    if (!q)
        return;
    close(q->fd);
    pthread_cond_destroy(&q->filled);
    pthread_mutex_destroy(&q->lock);
    free(q->ring);
    free(q);
}

int queue_push(struct queue *q, void *item)
{
    int rc = 0;
    pthread_mutex_lock(&q->lock);
    if (q->depth == q->capacity) {
        rc = ERR_AGAIN;
    } else {
        q->ring[(q->head + q->depth) % q->capacity] = item;
        if (q->depth++ == 0)
            eventfd_write(q->fd, 1);
        pthread_cond_signal(&q->filled);
    }
    pthread_mutex_unlock(&q->lock);
    return rc;
}

static void *pop_locked(struct queue *q)
{
    if (!q->depth)
        return NULL;
    void *item = q->ring[q->head];
    q->head = (q->head + 1) % q->capacity;
    if (--q->depth == 0) {
        eventfd_t drained;
        eventfd_read(q->fd, &drained);
    }
    return item;
}

void *queue_pop(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    void *item = pop_locked(q);
    pthread_mutex_unlock(&q->lock);
    return item;
}

void *queue_pop_wait(struct queue *q, uint64_t timeout_us)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t nsec = (uint64_t)until.tv_nsec + timeout_us % 1000000u * 1000u;
    until.tv_sec += (time_t)(timeout_us / 1000000u + nsec / 1000000000u);
    until.tv_nsec = (long)(nsec % 1000000000u);
    pthread_mutex_lock(&q->lock);
    while (!q->depth && pthread_cond_timedwait(&q->filled, &q->lock, &until) != ETIMEDOUT) {
    }
    void *item = pop_locked(q);
    pthread_mutex_unlock(&q->lock);
    return item;
}

size_t queue_depth(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    size_t depth = q->depth;
    pthread_mutex_unlock(&q->lock);
    return depth;
}

int queue_fd(struct queue *q)
{
    return q->fd;
}
