/* The end of a service: routers drain, workers follow, the scheduler is last and its last word is in the file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ranks_fixture.h"

#include <signal.h>

static struct test_world *world_serving(void)
{
    struct test_world *w = world_make();
    world_start_to(w, BOOT_DETACHED);
    for (uint32_t r = WORLD_FIRST_WORKER; r < WORLD_RANKS; r++)
        WORLD_AWAIT(w, w->d[r]->members[WORLD_ROUTER].up);
    return w;
}

/* Ranks that were told to leave are gone. */
static void bury(struct test_world *w)
{
    world_turn(w);
    for (uint32_t r = 0; r < WORLD_RANKS; r++)
        if (w->word[r] && !w->dead[r])
            world_kill(w, r);
}

static uint32_t n_left(const struct test_world *w)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < WORLD_RANKS; r++)
        n += w->word[r] && w->word[r]->kind == TASK_LEAVE && w->word[r]->status == 0;
    return n;
}

static void test_one_signal_ends_all(void **state)
{
    struct test_world *w = world_serving();
    ending_signal(w->d[WORLD_RANKS - 1], SIGUSR1); /* any rank will do */
    WORLD_AWAIT(w, w->d[0]->draining && w->d[WORLD_ROUTER]->draining && w->d[2]->draining);
    uint64_t until = clock_now_us() + WORLD_PATIENCE_US;
    while (n_left(w) < WORLD_RANKS) {
        bool scheduler_first = w->word[0] && n_left(w) < WORLD_RANKS - 1;
        assert_false(scheduler_first);
        bury(w);
        assert_true(clock_now_us() < until);
    }
    assert_string_equal(w->state, "STOPPED");
    for (uint32_t r = 0; r < WORLD_RANKS; r++) /* a few tell the job script */
        assert_int_equal(w->word[r]->ends, r < WORLD_FIRST_WORKER);
}

static void test_last_word_waits_for_the_one_before(void **state)
{
    struct test_world *w = world_serving();
    world_turn(w);
    w->hold = true;
    daemon_drain(w->d[0], 1000, "asked to");
    WORLD_AWAIT(w, w->publication); /* DRAINING, on a slow file system */
    assert_string_equal(w->publication->endpoint.state, "DRAINING");
    for (uint32_t r = 1; r < WORLD_RANKS; r++)
        world_kill(w, r);
    for (int i = 0; i < 100; i++)
        world_turn(w);
    assert_null(w->word[0]);
    w->hold = false;
    world_answer(w, w->publication);
    WORLD_AWAIT(w, w->word[0]);
    assert_int_equal(w->word[0]->kind, TASK_LEAVE);
    assert_string_equal(w->state, "STOPPED");
}

/* A worker computes what routers still stream: it stays until every one of them has drained or is gone. */
static void test_workers_wait_for_routers(void **state)
{
    struct test_world *w = world_serving();
    struct daemon *worker = w->d[WORLD_FIRST_WORKER];
    daemon_drain(worker, 3600000, "asked to");
    assert_true(worker->members[WORLD_ROUTER].up);
    worker->members[WORLD_ROUTER].drained = false;
    for (int i = 0; i < 3; i++) {
        ending_tick(worker, clock_now_us());
        assert_int_equal(worker->leave_at_us, 0);
    }
    worker->members[WORLD_ROUTER].drained = true;
    ending_tick(worker, clock_now_us());
    assert_int_not_equal(worker->leave_at_us, 0);
}

/* A router whose link broke and came back long ago is waited for like any other. */
static void test_workers_wait_for_a_router_that_came_back(void **state)
{
    struct test_world *w = world_serving();
    struct daemon *worker = w->d[WORLD_FIRST_WORKER];
    struct member *router = &worker->members[WORLD_ROUTER];
    plane_drop(worker->plane, WORLD_ROUTER);
    struct err why = {ERR_PEER, "a cut cable"};
    if (router->up)
        daemon_events(worker).on_lost(worker, WORLD_ROUTER, router->incarnation, &why);
    assert_false(router->up);
    WORLD_AWAIT(w, router->up);
    daemon_drain(worker, 3600000, "asked to");
    ending_tick(worker, clock_now_us());
    assert_int_equal(worker->leave_at_us, 0);
}

static void test_signal_while_starting(void **state)
{
    struct test_world *w = world_make();
    world_start_to(w, BOOT_WARM);
    ending_signal(w->d[0], SIGTERM);
    ending_signal(w->d[3], SIGTERM);
    world_turn(w);
    assert_int_equal(w->word[0]->kind, TASK_ABORTED);
    assert_int_equal(w->word[0]->err.code, ERR_CANCELED);
    assert_int_equal(w->word[0]->a.len, 0); /* no node is to blame for it */
    assert_int_equal(w->word[3]->kind, TASK_ABORTED);
}

/* SIGTERM after SIGUSR1: Slurm kills soon. The shorter grace reaches everybody, and a longer one does not lengthen it. */
static void test_shorter_grace_wins(void **state)
{
    struct test_world *w = world_serving();
    daemon_drain(w->d[0], 3600000, "a long one");
    WORLD_AWAIT(w, w->d[3]->draining);
    uint64_t was = w->d[3]->drain_deadline_us;
    daemon_drain(w->d[0], 60000, "a short one");
    WORLD_AWAIT(w, w->d[3]->drain_deadline_us < was);
    was = w->d[3]->drain_deadline_us;
    daemon_drain(w->d[3], 3600000, "a long one again");
    assert_int_equal(w->d[3]->drain_deadline_us, was);
}

/* Without a scheduler this service will never be ready: it ends at the start deadline, with an error, and not before. */
static void test_orphans_end(void **state)
{
    struct test_world *w = world_serving();
    world_kill(w, 0);
    for (int i = 0; i < 100; i++)
        world_turn(w);
    assert_false(w->d[WORLD_ROUTER]->draining);
    w->d[WORLD_ROUTER]->config->start_deadline_s = 0;
    WORLD_AWAIT(w, w->word[WORLD_ROUTER]);
    assert_int_equal(w->word[WORLD_ROUTER]->kind, TASK_LEAVE);
    assert_int_equal(w->word[WORLD_ROUTER]->status, 1);
    for (uint32_t r = WORLD_FIRST_WORKER; r < WORLD_RANKS; r++)
        WORLD_AWAIT(w, w->word[r]);
}

static void beat_ready(struct test_world *w, uint32_t n)
{
    struct msg_heartbeat *h = calloc(1, sizeof *h);
    struct buf b;
    buf_init(&b, 1 << 16);
    msg_heartbeats_begin_put(&b, WORLD_FIRST_WORKER, 1);
    *h = (struct msg_heartbeat){.member = WORLD_FIRST_WORKER,
                                .incarnation = w->d[WORLD_FIRST_WORKER]->incarnation,
                                .seq = 1ull << 40,
                                .n_replicas = n};
    for (uint32_t i = 0; i < n; i++)
        h->replicas[i] = (struct replica_load){
            .deployment = 1, .replica = i, .epoch = 1, .state = REPLICA_READY};
    msg_heartbeats_full_put(&b, h);
    router_role_message(w->d[WORLD_ROUTER]->router, WORLD_FIRST_WORKER, MSG_HEARTBEATS, b.data,
                        b.len);
    buf_fini(&b);
    free(h);
}

static void say_service(struct test_world *w, uint8_t state, uint32_t n_min)
{
    struct msg_service m = {.state = state, .n_min = n_min, .n_wanted = 4};
    struct buf b;
    buf_init(&b, 4096);
    msg_service_put(&b, &m);
    router_role_message(w->d[WORLD_ROUTER]->router, SCHEDULER_MEMBER, MSG_SERVICE, b.data, b.len);
    buf_fini(&b);
}

/* Rank 0 dies before READY: the world is started again, and rank 0's node named; but not when its replicas answer already. */
static void test_world_without_rank_0(void **state)
{
    enum { UNLED_US = 20 * 1000000, LITTLE_US = 100000 };
    for (uint32_t n_ready = 0; n_ready <= 2; n_ready++) {
        struct test_world *w = world_serving();
        struct daemon *d = w->d[WORLD_ROUTER];
        if (n_ready) /* else: rank 0 never said how many there are to be */
            say_service(w, SERVICE_STARTING, 2);
        world_kill(w, 0);
        WORLD_AWAIT(w, !d->members[0].up);
        uint64_t lost_us = clock_now_us();
        router_role_tick(d->router, lost_us + UNLED_US - LITTLE_US * 10);
        assert_false(d->draining);
        beat_ready(w, n_ready);
        router_role_tick(d->router, lost_us + UNLED_US + LITTLE_US);
        assert_int_equal(d->draining, n_ready < 2);
        assert_int_equal(d->exit_status, n_ready < 2 ? 75 : 0);
        struct task *t;
        bool said = false, restated = false;
        while ((t = queue_pop(d->to_mover)) != NULL) {
            restated = restated || (t->kind == TASK_RESTATE && t->endpoint.n_ready == n_ready &&
                                    strcmp(t->endpoint.state, "DEGRADED") == 0);
            said = said || (t->kind == TASK_UNLED && strcmp(buf_cstr(&t->a), "n0\n") == 0);
            task_destroy(t);
        }
        assert_int_equal(said, n_ready < 2);
        assert_int_equal(restated, n_ready == 2); /* for those who wait for the service */
    }
}

/* Rank 0 hangs: its link stays, and it has not decided at the start deadline. */
static void test_rank_0_hangs_at_the_start(void **state)
{
    enum { UNLED_US = 20 * 1000000 };
    struct test_world *w = world_serving();
    struct daemon *d = w->d[WORLD_ROUTER];
    uint64_t deadline_us = clock_now_us() + 1000000ull * d->config->start_deadline_s;
    router_role_tick(d->router, deadline_us + UNLED_US / 2);
    assert_false(d->draining);
    router_role_tick(d->router, deadline_us + UNLED_US);
    assert_true(d->draining);
    assert_int_equal(d->exit_status, 75);
    w->dead[0] = true; /* it hangs on */
    WORLD_AWAIT(w, w->word[WORLD_ROUTER] && w->word[WORLD_FIRST_WORKER]);
    assert_true(w->word[WORLD_ROUTER]->ends); /* and the job script ends it */
    assert_false(w->word[WORLD_FIRST_WORKER]->ends);
}

/* What the mover makes of it: all else in endpoint.json stays. */
static void test_endpoint_restated(void **state)
{
    struct test_world *w = world_make();
    struct daemon *d = w->d[WORLD_ROUTER];
    struct err e = ERR_INIT;
    char dir[] = "/tmp/exa-ending-XXXXXX";
    static struct mover *m; /* as long as the program, as everywhere */
    struct endpoint p = {
        .job = "7", .state = "STARTING", .key = "sk-exa-1", .model = "tiny", .n_wanted = 4};
    assert_non_null(mkdtemp(dir));
    assert_int_equal(endpoint_write(dir, &p, &e), 0);
    struct mover_config mc = {.run_dir = dir, .attempt_dir = dir};
    assert_int_equal(mover_create(&m, &mc, NULL, d->to_mover, d->to_loop, &e), 0);
    struct task *t = daemon_task(d, TASK_RESTATE);
    t->endpoint = (struct endpoint){.state = "DEGRADED", .progress = "no scheduler", .n_ready = 3};
    assert_true(daemon_give(d, t));
    assert_true(daemon_give(d, t = daemon_task(d, TASK_LEAVE)));
    t->ends = true;
    assert_int_equal(mover_run(m), 0);
    assert_int_equal(endpoint_read(dir, &p, &e), 0);
    assert_string_equal(p.state, "DEGRADED");
    assert_string_equal(p.progress, "no scheduler");
    assert_string_equal(p.key, "sk-exa-1");
    assert_int_equal(p.n_ready, 3);
    assert_int_equal(p.n_wanted, 4);
    char file[64];
    snprintf(file, sizeof file, "%s/ended", dir);
    assert_int_equal(remove(file), 0); /* for the job script */
    snprintf(file, sizeof file, "%s/endpoint.json", dir);
    remove(file);
    rmdir(dir);
}

/* Who misses most of the workers too is cut off itself: no reason to start the others again. Its part ends at the start deadline. */
static void test_router_cut_off_at_the_start(void **state)
{
    enum { UNLED_US = 20 * 1000000 };
    struct test_world *w = world_serving();
    struct daemon *d = w->d[WORLD_ROUTER];
    for (uint32_t r = 0; r < WORLD_RANKS; r++)
        if (r != WORLD_ROUTER && r != WORLD_RANKS - 1)
            world_kill(w, r);
    WORLD_AWAIT(w, !d->members[0].up && !d->members[WORLD_FIRST_WORKER].up);
    uint64_t now_us = clock_now_us();
    router_role_tick(d->router, now_us + 2ull * UNLED_US);
    assert_false(d->draining);
    router_role_tick(d->router, now_us + 1000000ull * d->config->start_deadline_s);
    assert_true(d->draining);
    assert_int_equal(d->exit_status, 1);
    assert_false(d->ends); /* others may serve: no word to the job script */
    struct task *t;
    while ((t = queue_pop(d->to_mover)) != NULL) {
        assert_int_not_equal(t->kind, TASK_UNLED);
        task_destroy(t);
    }
}

/* Rank 0 is gone, and all routers or all workers too: the others do not wait for ever. A cut that is healed in time does not count. */
static void nobody_left_for(uint32_t rank, uint32_t first_lost, uint32_t last_lost)
{
    enum { ALONE_US = 300 * 1000000 };
    struct test_world *w = world_serving();
    struct daemon *d = w->d[rank];
    WORLD_AWAIT(w, d->members[first_lost].up && d->members[last_lost].up);
    for (uint32_t r = first_lost; r <= last_lost; r++)
        world_kill(w, r);
    WORLD_AWAIT(w, !d->members[first_lost].up && !d->members[last_lost].up);
    ending_tick(d, clock_now_us() + 2ull * ALONE_US); /* rank 0 is there: it decides */
    assert_false(d->draining);
    d->alone_us = 0;
    world_kill(w, 0);
    WORLD_AWAIT(w, !d->members[0].up);
    uint64_t since_us = clock_now_us();
    ending_tick(d, since_us);
    ending_tick(d, since_us +
                       ALONE_US / 2); /* the world's own ticks may have begun to count earlier */
    assert_false(d->draining);
    ending_tick(d, since_us + ALONE_US + 1000000);
    assert_true(d->draining);
    WORLD_AWAIT(w, w->word[rank]);
    assert_int_equal(w->word[rank]->kind, TASK_LEAVE);
    assert_int_equal(w->word[rank]->status, 1);
    assert_false(w->word[rank]->ends); /* it may be cut off: others go on */
}

static void test_nobody_left_to_serve(void **state)
{
    nobody_left_for(WORLD_RANKS - 1, WORLD_ROUTER, WORLD_ROUTER);
    nobody_left_for(WORLD_ROUTER, WORLD_FIRST_WORKER, WORLD_RANKS - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_signal_ends_all),
        cmocka_unit_test(test_last_word_waits_for_the_one_before),
        cmocka_unit_test(test_workers_wait_for_routers),
        cmocka_unit_test(test_workers_wait_for_a_router_that_came_back),
        cmocka_unit_test(test_signal_while_starting),
        cmocka_unit_test(test_shorter_grace_wins),
        cmocka_unit_test(test_orphans_end),
        cmocka_unit_test(test_world_without_rank_0),
        cmocka_unit_test(test_rank_0_hangs_at_the_start),
        cmocka_unit_test(test_endpoint_restated),
        cmocka_unit_test(test_router_cut_off_at_the_start),
        cmocka_unit_test(test_nobody_left_to_serve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
