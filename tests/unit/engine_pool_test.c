/* engine_pool_test.c - every item exactly once, for any count, grain and number of threads; also right after a longer job. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/cpu/pool.h"

enum { MAX_ITEMS = 4096, ROUNDS = 100000 };

struct seen {
    _Atomic uint32_t times[MAX_ITEMS];
    uint32_t n_threads;
    _Atomic uint32_t bad;
};

static void count(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    struct seen *s = ctx;
    if (thread >= s->n_threads || begin >= end || end > MAX_ITEMS)
        atomic_fetch_add(&s->bad, 1);
    for (uint32_t i = begin; i < end && i < MAX_ITEMS; i++)
        atomic_fetch_add(&s->times[i], 1);
}

static void check_round(struct pool *p, struct seen *s, uint32_t n_items, uint32_t grain)
{
    memset((void *)s->times, 0, sizeof s->times);
    pool_for(p, n_items, grain, count, s);
    for (uint32_t i = 0; i < MAX_ITEMS; i++)
        if (atomic_load(&s->times[i]) != (i < n_items))
            fail_msg("%u items by %u: item %u ran %u times", n_items, grain, i,
                     atomic_load(&s->times[i]));
    assert_int_equal(atomic_load(&s->bad), 0);
}

static void test_every_item_once(void **state)
{
    static struct seen s;
    for (uint32_t threads = 1; threads <= 5; threads++) {
        struct pool *p;
        assert_int_equal(pool_create(&p, threads, NULL), 0);
        s.n_threads = threads;
        for (uint32_t n = 0; n <= MAX_ITEMS; n = n * 2 + 1)
            for (uint32_t grain = 1; grain <= 64; grain *= 4)
                check_round(p, &s, n, grain);
        pool_destroy(p);
    }
}

static void tally(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    atomic_fetch_add((_Atomic uint32_t *)ctx, end - begin);
}

/* Short and long jobs in turn, one right after the other: a thread that is late for one must not take items of the next with the old
 * one's bounds. Such a fault shows as a wrong count or as a caller that waits for ever, which the alarm ends. */
static void test_jobs_in_quick_succession(void **state)
{
    struct pool *p;
    assert_int_equal(pool_create(&p, 4, NULL), 0);
    alarm(120);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        _Atomic uint32_t n = 0;
        uint32_t items = i % 2 ? 40 + i % 5 : 960 + i % 7;
        pool_for(p, items, i % 2 ? 8 : 32, tally, &n);
        if (atomic_load(&n) != items)
            fail_msg("round %u: %u items ran of %u", i, atomic_load(&n), items);
    }
    alarm(0);
    pool_destroy(p);
}

static void test_an_idle_pool_sleeps(void **state)
{
    static struct seen s;
    struct pool *p;
    struct timespec before, after;
    assert_int_equal(pool_create(&p, 4, NULL), 0);
    s.n_threads = 4;
    check_round(p, &s, 100, 1);
    clock_sleep_us(50000); /* past every bounded spin */
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    clock_sleep_us(200000);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    int64_t ns = (after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec;
    assert_true(ns < 50000000); /* four spinning threads would burn 200 ms or more */
    check_round(p, &s, 100, 1);
    pool_destroy(p);
}

static void test_refuses_no_threads(void **state)
{
    struct pool *p;
    assert_int_equal(pool_create(&p, 0, NULL), ERR_CONFIG);
    assert_int_equal(pool_create(&p, POOL_MAX_THREADS + 1, NULL), ERR_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_item_once),
        cmocka_unit_test(test_jobs_in_quick_succession),
        cmocka_unit_test(test_an_idle_pool_sleeps),
        cmocka_unit_test(test_refuses_no_threads),
    };
    return cmocka_run_group_tests_name("engine_pool", tests, NULL, NULL);
}
