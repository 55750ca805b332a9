/* The roster: the start over the message plane, who is told when it fails, who leads a rack when the leader dies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ranks_fixture.h"

static void test_start_in_order(void **state)
{
    struct test_world *w = world_make();
    world_start_to(w, BOOT_DETACHED);
    for (uint32_t r = 0; r < WORLD_RANKS; r++)
        assert_true(w->d[r]->serving);
    /* workers reach the router and the leader of their rack, by addresses from the roster */
    for (uint32_t r = WORLD_FIRST_WORKER; r < WORLD_RANKS; r++) {
        WORLD_AWAIT(w, w->d[r]->members[WORLD_ROUTER].up);
        WORLD_AWAIT(w, r == WORLD_FIRST_WORKER || w->d[r]->members[WORLD_FIRST_WORKER].up);
    }
    assert_int_equal(daemon_rack_leader(w->d[4], 0), WORLD_FIRST_WORKER);
    assert_true(w->d[4]->members[WORLD_ROUTER].url[0] != 0);
}

/* Nobody passes a phase before the last one has reached it. */
static void test_the_last_one_is_waited_for(void **state)
{
    struct test_world *w = world_make();
    for (uint32_t r = 1; r + 1 < WORLD_RANKS; r++)
        world_connect(w, r);
    world_reach(w, 0, BOOT_OUT_OF_INIT);
    WORLD_AWAIT(w, w->d[0]->members[WORLD_RANKS - 2].known);
    for (int i = 0; i < 100; i++)
        world_turn(w);
    for (uint32_t r = 0; r < WORLD_RANKS; r++)
        assert_int_equal(w->phase[r], 0);
    world_connect(w, WORLD_RANKS - 1);
    WORLD_AWAIT(w, world_at(w, BOOT_OUT_OF_INIT));
}

static void test_a_loss_ends_the_start_for_all(void **state)
{
    struct test_world *w = world_make();
    world_start_to(w, BOOT_OUT_OF_INIT);
    world_reach(w, 1, BOOT_WARM); /* the others are on their way */
    world_kill(w, WORLD_RANKS - 1);
    for (uint32_t r = 0; r + 1 < WORLD_RANKS; r++) {
        WORLD_AWAIT(w, w->word[r]);
        assert_int_equal(w->word[r]->kind, TASK_ABORTED);
        assert_int_equal(w->word[r]->err.code, ERR_PEER);
        assert_non_null(strstr(w->word[r]->err.text, "5 (n3, lost)"));
    }
    assert_string_equal(buf_cstr(&w->word[0]->a), "n3\n"); /* the one to blame, and nobody else */
    assert_int_equal(w->word[1]->a.len, 0);
}

static void test_rank_0_lost_at_the_start(void **state)
{
    struct test_world *w = world_make();
    world_start_to(w, BOOT_WARM);
    world_kill(w, 0);
    for (uint32_t r = 1; r < WORLD_RANKS; r++) {
        WORLD_AWAIT(w, w->word[r]);
        assert_int_equal(w->word[r]->kind, TASK_ABORTED);
        assert_non_null(strstr(w->word[r]->err.text, "rank 0 was lost"));
    }
}

/* On a busy machine rank 0 may not answer in time: try again, the phase has its own deadline. A refusal is final. */
static void test_first_connection_is_tried_again(void **state)
{
    struct test_world *w = world_make();
    struct err late = {ERR_TIMEOUT, "no answer"}, refused = {ERR_PROTO, "another protocol"};
    struct daemon *d = w->d[3];
    world_connect(w, 3);
    plane_drop(d->plane, 0);
    daemon_events(d).on_lost(d, 0, 0, &late);
    assert_null(queue_pop(d->to_mover));
    WORLD_AWAIT(w, d->members[0].up); /* after RETRY_US */
    w = world_make();
    d = w->d[3];
    daemon_events(d).on_lost(d, 0, 0, &refused);
    world_turn(w);
    assert_non_null(w->word[3]);
    assert_string_equal(w->word[3]->err.text, "another protocol");
}

static bool follows(const struct daemon *d, uint32_t leader)
{
    return daemon_rack_leader((struct daemon *)d, 0) == leader && d->members[leader].up;
}

/* The next worker leads, and it alone: members connect to it though they never heard of it before. */
static void test_next_worker_leads(void **state)
{
    struct test_world *w = world_make();
    world_start_to(w, BOOT_DETACHED);
    for (uint32_t r = WORLD_FIRST_WORKER + 1; r < WORLD_RANKS; r++)
        WORLD_AWAIT(w, w->d[r]->members[WORLD_FIRST_WORKER].up);
    uint64_t silent_us = 20000 * (w->d[0]->config->missed_heartbeats + 2);
    for (uint64_t until = clock_now_us() + silent_us; clock_now_us() < until;)
        world_turn(w);
    world_kill(w, WORLD_FIRST_WORKER);
    for (uint32_t r = WORLD_FIRST_WORKER + 2; r < WORLD_RANKS; r++)
        WORLD_AWAIT(w, follows(w->d[r], WORLD_FIRST_WORKER + 1));
    for (uint64_t until = clock_now_us() + silent_us; clock_now_us() < until;)
        world_turn(w);
    assert_int_equal(daemon_rack_leader(w->d[3], 0), 3);
    assert_int_equal(daemon_rack_leader(w->d[5], 0), 3);
}

/* A leader that hangs: its members find another while the scheduler still waits for their own beats. */
static void test_silent_leader(void **state)
{
    struct test_world *w = world_make();
    world_start_to(w, BOOT_DETACHED);
    struct daemon *d = w->d[WORLD_RANKS - 1];
    struct member *leader = &d->members[WORLD_FIRST_WORKER];
    WORLD_AWAIT(w, leader->up);
    uint64_t beat_us = 1000ull * d->config->heartbeat_ms;
    uint64_t suspect_us = beat_us * (d->config->missed_heartbeats + 1);
    leader->heard_us = clock_now_us() - (suspect_us - beat_us);
    assert_int_equal(daemon_rack_leader(d, 0), WORLD_FIRST_WORKER + 1);
    d->config->heartbeat_ms = 3600000;
    assert_int_equal(daemon_rack_leader(d, 0), WORLD_FIRST_WORKER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_start_in_order),
        cmocka_unit_test(test_the_last_one_is_waited_for),
        cmocka_unit_test(test_a_loss_ends_the_start_for_all),
        cmocka_unit_test(test_rank_0_lost_at_the_start),
        cmocka_unit_test(test_first_connection_is_tried_again),
        cmocka_unit_test(test_next_worker_leads),
        cmocka_unit_test(test_silent_leader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
