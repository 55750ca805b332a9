/* mpi_lane_test.c - helper threads: jobs through, a hanging one left behind, nothing lost or
 * freed twice. */
#include "mpi/lane.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { WAIT_US = 20 * 1000 * 1000, JOBS = 4 };

struct ctx {
    sem_t go, freed; /* what a test waits for must outlive the lane: ctx is static */
    atomic_int n_worked, n_freed_jobs;
};
static struct ctx ctx;

static void ctx_reset(void)
{
    sem_init(&ctx.go, 0, 0);
    sem_init(&ctx.freed, 0, 0);
    atomic_store(&ctx.n_worked, 0);
    atomic_store(&ctx.n_freed_jobs, 0);
}

static void work(void *c, void *job)
{
    *(int *)job += 1;
    atomic_fetch_add(&((struct ctx *)c)->n_worked, 1);
}

static void work_when_told(void *c, void *job)
{
    sem_wait(&((struct ctx *)c)->go);
    work(c, job);
}

static void free_ctx(void *c)
{
    sem_post(&((struct ctx *)c)->freed);
}

static void free_job(void *job)
{
    free(job);
    atomic_fetch_add(&ctx.n_freed_jobs, 1);
}

static struct lane *start(lane_work_fn *fn)
{
    struct lane *l = NULL;
    struct lane_spec spec = {JOBS, fn, free_ctx, free_job, &ctx};
    ctx_reset();
    assert_int_equal(lane_start(&l, &spec, NULL), 0);
    return l;
}

static void *pop(struct lane *l)
{
    uint64_t until = clock_now_us() + WAIT_US;
    void *job = NULL;
    while (!(job = lane_pop(l)) && clock_now_us() < until)
        clock_sleep_us(100);
    return job;
}

static void jobs_come_back_in_order(void **state)
{
    int jobs[JOBS] = {0, 10, 20, 30};
    struct lane *l = start(work);
    for (int round = 1; round <= 50; round++) {
        for (int i = 0; i < JOBS; i++)
            lane_push(l, &jobs[i]);
        for (int i = 0; i < JOBS; i++)
            assert_ptr_equal(pop(l), &jobs[i]);
        for (int i = 0; i < JOBS; i++)
            assert_int_equal(jobs[i], 10 * i + round);
    }
    assert_null(lane_pop(l));
    assert_true(lane_stop(l, WAIT_US));
    assert_int_equal(sem_trywait(&ctx.freed), 0);
}

static void waiting_jobs_can_be_recalled(void **state)
{
    int jobs[3] = {0, 10, 20};
    struct lane *l = start(work_when_told);
    for (int i = 0; i < 3; i++)
        lane_push(l, &jobs[i]);
    uint64_t until = clock_now_us() + WAIT_US;
    void *job, *last = NULL;
    int n = 0;
    /* the thread takes one sooner or later; whatever it has not begun comes back */
    while ((job = lane_recall(l)) && clock_now_us() < until) {
        last = job;
        n++;
    }
    assert_in_range(n, 2, 3);
    assert_ptr_equal(last, &jobs[2]);
    sem_post(&ctx.go);
    if (n == 2) {
        void *begun = pop(l);
        assert_true(begun == &jobs[0] || begun == &jobs[1]);
    }
    assert_true(lane_stop(l, WAIT_US));
}

static void a_hanging_job_is_left_behind(void **state)
{
    int *job = calloc(1, sizeof *job);
    struct lane *l = start(work_when_told);
    lane_push(l, job);
    while (lane_recall(l) == job) { /* until the thread has begun it */
        lane_push(l, job);
        clock_sleep_us(1000);
    }
    assert_false(lane_stop(l, 10000));
    assert_int_equal(atomic_load(&ctx.n_freed_jobs), 0); /* the thread works in it */
    assert_int_not_equal(sem_trywait(&ctx.freed), 0);
    sem_post(&ctx.go); /* the call returns at last */
    sem_wait(&ctx.freed);
    assert_int_equal(atomic_load(&ctx.n_freed_jobs), 1);
}

static void stopping_nothing_is_fine(void **state)
{
    assert_true(lane_stop(NULL, 0));
    struct lane *l = start(work);
    assert_true(lane_stop(l, WAIT_US));
    assert_int_equal(atomic_load(&ctx.n_worked), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_come_back_in_order),
        cmocka_unit_test(waiting_jobs_can_be_recalled),
        cmocka_unit_test(a_hanging_job_is_left_behind),
        cmocka_unit_test(stopping_nothing_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
