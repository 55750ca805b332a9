/* base_queue_test.c - bound, order, the descriptor, deadlines, and many threads at once (also under MODE=tsan). */
#include "base/queue.h"

#include "base/clock.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>

#include <cmocka.h>

static bool readable(struct queue *q)
{
    struct pollfd fd = {.fd = queue_fd(q), .events = POLLIN};
    return poll(&fd, 1, 0) == 1;
}

static void bounded_in_order(void **state)
{
    struct queue *q;
    int items[4];
    assert_int_equal(queue_create(&q, 3, NULL), 0);
    assert_null(queue_pop(q));
    assert_false(readable(q));
    for (int round = 0; round < 5; round++) { /* the ring wraps */
        for (int i = 0; i < 3; i++)
            assert_int_equal(queue_push(q, &items[i]), 0);
        assert_int_equal(queue_push(q, &items[3]), ERR_AGAIN);
        assert_int_equal(queue_depth(q), 3);
        assert_true(readable(q));
        for (int i = 0; i < 2; i++)
            assert_ptr_equal(queue_pop(q), &items[i]);
        assert_true(readable(q)); /* one is left */
        assert_ptr_equal(queue_pop(q), &items[2]);
        assert_false(readable(q));
        assert_null(queue_pop(q));
    }
    queue_destroy(q);
    queue_destroy(NULL);
}

static void waits_to_a_deadline(void **state)
{
    struct queue *q;
    int item;
    assert_int_equal(queue_create(&q, 1, NULL), 0);
    uint64_t from = clock_now_us();
    assert_null(queue_pop_wait(q, 50000));
    assert_true(clock_now_us() - from >= 49000);
    assert_null(queue_pop_wait(q, 0));
    assert_int_equal(queue_push(q, &item), 0);
    assert_ptr_equal(queue_pop_wait(q, 10000000), &item);
    queue_destroy(q);
}

enum { N_THREADS = 4, N_ITEMS = 20000 };

struct shared {
    struct queue *q;
    unsigned seen[N_THREADS][N_ITEMS]; /* by consumers, under lock */
    pthread_mutex_t lock;
    unsigned n_seen;
    bool disorder;
};

struct producer {
    struct shared *s;
    unsigned id;
};

static void *produce(void *arg)
{
    struct producer *p = arg;
    for (unsigned i = 0; i < N_ITEMS; i++) {
        void *item = (void *)(uintptr_t)(p->id * N_ITEMS + i + 1);
        while (queue_push(p->s->q, item) == ERR_AGAIN)
            clock_sleep_us(10);
    }
    return NULL;
}

static void *consume(void *arg)
{
    struct shared *s = arg;
    uintptr_t last[N_THREADS] = {0};
    void *item;
    while ((item = queue_pop_wait(s->q, 10000000)) != NULL) {
        uintptr_t v = (uintptr_t)item - 1;
        if (v == N_THREADS * N_ITEMS) /* the end */
            break;
        unsigned from = (unsigned)(v / N_ITEMS);
        pthread_mutex_lock(&s->lock);
        s->seen[from][v % N_ITEMS]++;
        s->n_seen++;
        if (last[from] > v) /* one consumer sees one producer's items in order */
            s->disorder = true;
        pthread_mutex_unlock(&s->lock);
        last[from] = v;
    }
    return NULL;
}

static void many_threads(void **state)
{
    struct shared *s = calloc(1, sizeof *s);
    pthread_t producers[N_THREADS], consumers[2];
    struct producer args[N_THREADS];
    assert_int_equal(queue_create(&s->q, 64, NULL), 0);
    pthread_mutex_init(&s->lock, NULL);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&consumers[i], NULL, consume, s), 0);
    for (unsigned i = 0; i < N_THREADS; i++) {
        args[i] = (struct producer){s, i};
        assert_int_equal(pthread_create(&producers[i], NULL, produce, &args[i]), 0);
    }
    for (unsigned i = 0; i < N_THREADS; i++)
        pthread_join(producers[i], NULL);
    void *end = (void *)(uintptr_t)(N_THREADS * N_ITEMS + 1);
    for (int i = 0; i < 2; i++)
        while (queue_push(s->q, end) == ERR_AGAIN)
            clock_sleep_us(10);
    for (int i = 0; i < 2; i++)
        pthread_join(consumers[i], NULL);
    assert_int_equal(s->n_seen, N_THREADS * N_ITEMS);
    assert_false(s->disorder);
    for (unsigned t = 0; t < N_THREADS; t++)
        for (unsigned i = 0; i < N_ITEMS; i++)
            assert_int_equal(s->seen[t][i], 1);
    assert_int_equal(queue_depth(s->q), 0);
    queue_destroy(s->q);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounded_in_order),
        cmocka_unit_test(waits_to_a_deadline),
        cmocka_unit_test(many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
