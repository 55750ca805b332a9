/* The rack leader's merge: whole when changed, twenty bytes when only alive, nothing when silent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ranks/leader.h"

#include <stdlib.h>
#include <string.h>

static struct msg_heartbeat *beat(uint32_t member, uint64_t seq, uint8_t state, uint32_t n_active)
{
    static struct msg_heartbeat h;
    memset(&h, 0, sizeof h);
    h.member = member;
    h.incarnation = 7;
    h.seq = seq;
    h.n_replicas = 1;
    h.replicas[0] = (struct replica_load){
        .deployment = 1, .replica = member, .epoch = 1, .state = state, .n_active = n_active};
    return &h;
}

/* Flush and read back: *n_full whole ones of *n. */
static void flush(struct leader *l, uint32_t *n, uint32_t *n_full)
{
    struct buf b;
    struct err e = ERR_INIT;
    buf_init(&b, 1 << 20);
    *n = leader_flush(l, &b);
    *n_full = 0;
    if (*n) {
        struct rd r;
        uint32_t leader, count;
        struct msg_heartbeat *h = malloc(sizeof *h);
        assert_int_equal(msg_heartbeats_begin(&r, b.data, b.len, &leader, &count, &e), 0);
        assert_int_equal(leader, 3);
        assert_int_equal(count, *n);
        for (uint32_t i = 0; i < count; i++) {
            bool full;
            assert_int_equal(msg_heartbeats_next(&r, h, &full, &e), 0);
            assert_int_equal(h->incarnation, 7);
            *n_full += full;
        }
        assert_true(rd_done(&r));
        free(h);
    }
    buf_fini(&b);
}

static void test_deltas(void **state)
{
    struct leader *l = leader_create(3);
    uint32_t n, full;
    flush(l, &n, &full);
    assert_int_equal(n, 0);
    assert_true(leader_take(l, beat(3, 1, REPLICA_LOADING, 0)));
    assert_true(leader_take(l, beat(4, 1, REPLICA_LOADING, 0)));
    flush(l, &n, &full);
    assert_int_equal(n, 2);
    assert_int_equal(full, 2);
    assert_false(leader_take(l, beat(3, 2, REPLICA_LOADING, 0))); /* only alive */
    assert_false(
        leader_take(l, beat(4, 2, REPLICA_LOADING, 5))); /* another load: told, not urgent */
    flush(l, &n, &full);
    assert_int_equal(n, 2);
    assert_int_equal(full, 1);
    assert_true(leader_take(l, beat(4, 3, REPLICA_READY, 5))); /* another state: urgent */
    flush(l, &n, &full);                                       /* member 3 was silent */
    assert_int_equal(n, 1);
    assert_int_equal(full, 1);
    leader_destroy(l);
}

static void test_late_and_forgotten(void **state)
{
    struct leader *l = leader_create(3);
    uint32_t n, full;
    leader_take(l, beat(4, 5, REPLICA_READY, 0));
    flush(l, &n, &full);
    assert_false(leader_take(l, beat(4, 4, REPLICA_FAILED, 0))); /* overtaken: ignored */
    flush(l, &n, &full);
    assert_int_equal(n, 0);
    leader_forget(l, 4);
    assert_true(leader_take(l, beat(4, 1, REPLICA_READY, 0)));
    flush(l, &n, &full);
    leader_take(l, beat(4, 2, REPLICA_READY, 0));
    leader_refresh(l); /* somebody new listens */
    flush(l, &n, &full);
    assert_int_equal(full, 1);
    leader_destroy(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deltas),
        cmocka_unit_test(test_late_and_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
