/* router_table_test.c - heartbeats in, picks out. */
#include "router/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { SUSPECT_MS = 3000, SLOTS = 4, CTX = 1000 };

static struct table *make(uint64_t seed)
{
    struct table *t;
    assert_int_equal(table_create(&t, seed, SUSPECT_MS, NULL), 0);
    return t;
}

static struct msg_heartbeat *beat(uint32_t member, uint64_t seq)
{
    static struct msg_heartbeat h;
    h = (struct msg_heartbeat){.member = member, .incarnation = 1, .seq = seq};
    return &h;
}

static struct replica_load *add(struct msg_heartbeat *h, uint32_t replica, uint64_t epoch)
{
    struct replica_load *l = &h->replicas[h->n_replicas++];
    *l = (struct replica_load){.deployment = 0,
                               .replica = replica,
                               .epoch = epoch,
                               .incarnation = 1,
                               .state = REPLICA_READY,
                               .n_slots = SLOTS,
                               .kv_free_tokens = SLOTS * CTX,
                               .kv_total_tokens = SLOTS * CTX};
    return l;
}

struct losses {
    int n;
    struct table_lost last;
};
static void on_lost(void *ctx, const struct table_lost *l)
{
    struct losses *x = ctx;
    x->n++;
    x->last = *l;
}

static bool pick(struct table *t, uint64_t now_us, struct table_pick *p)
{
    return table_pick(t, 0, now_us, p);
}

static void test_empty(void **state)
{
    struct table *t = make(1);
    struct table_pick p;
    assert_false(pick(t, 0, &p));
    assert_int_equal(table_n_live(t, 0, 0), 0);
    assert_null(table_worker(t, 5));
    assert_null(table_worker(t, UINT32_MAX));
    table_destroy(t);
}

static void test_states_and_suspicion(void **state)
{
    struct table *t = make(1);
    struct table_pick p;
    for (int s = REPLICA_LOADING; s <= REPLICA_BROKEN; s++) {
        struct msg_heartbeat *h = beat(7, (uint64_t)s);
        add(h, 0, 1)->state = (uint8_t)s;
        table_on_heartbeat(t, h, true, 1000, NULL, NULL);
        assert_int_equal(pick(t, 1000, &p), s == REPLICA_READY);
    }
    struct msg_heartbeat *h = beat(7, 10);
    add(h, 0, 1);
    table_on_heartbeat(t, h, true, 1000, NULL, NULL);
    assert_true(pick(t, 1000 + SUSPECT_MS * 1000 - 1, &p));
    assert_false(pick(t, 1000 + SUSPECT_MS * 1000, &p));            /* silent for so long */
    table_on_heartbeat(t, beat(7, 11), false, 5000000, NULL, NULL); /* "alive" is enough */
    assert_true(pick(t, 5000001, &p));
    table_on_heartbeat(t, beat(7, 11), false, 9000000, NULL, NULL); /* the same again is not */
    assert_false(pick(t, 9000000, &p));
    h = beat(7, 12);
    h->draining = true;
    add(h, 0, 1);
    table_on_heartbeat(t, h, true, 9000000, NULL, NULL);
    assert_false(pick(t, 9000000, &p));
    table_destroy(t);
}

static void test_other_deployment(void **state)
{
    struct table *t = make(1);
    struct table_pick p;
    struct msg_heartbeat *h = beat(7, 1);
    add(h, 0, 1)->deployment = 5;
    table_on_heartbeat(t, h, true, 0, NULL, NULL);
    assert_false(pick(t, 0, &p));
    assert_true(table_pick(t, 5, 0, &p));
    assert_int_equal(p.deployment, 5);
    table_destroy(t);
}

static void test_epochs(void **state)
{
    struct table *t = make(1);
    struct table_pick p;
    struct losses lost = {0};
    struct msg_heartbeat *h = beat(7, 1);
    add(h, 0, 5);
    table_on_heartbeat(t, h, true, 0, on_lost, &lost);
    h = beat(8, 1); /* an older owner still reports */
    add(h, 0, 4);
    table_on_heartbeat(t, h, true, 0, on_lost, &lost);
    assert_true(pick(t, 0, &p));
    assert_true(p.worker == 7 && p.epoch == 5);
    assert_int_equal(lost.n, 0);
    h = beat(9, 1); /* placed anew */
    add(h, 0, 6);
    table_on_heartbeat(t, h, true, 0, on_lost, &lost);
    assert_true(pick(t, 0, &p));
    assert_true(p.worker == 9 && p.epoch == 6);
    assert_int_equal(lost.n, 1);
    assert_true(lost.last.worker == 7 && lost.last.epoch == 5);
    table_on_heartbeat(t, beat(7, 2), true, 0, on_lost,
                       &lost); /* the old one lets go: not ours any more */
    assert_int_equal(table_n_rows(t), 1);
    assert_int_equal(lost.n, 1);
    h = beat(9, 2); /* engine started anew under its epoch */
    add(h, 0, 6)->incarnation = 2;
    table_on_heartbeat(t, h, true, 0, on_lost, &lost);
    assert_int_equal(lost.n, 2);
    assert_int_equal(lost.last.incarnation, 1);
    h = beat(9, 3);
    add(h, 0, 6)->incarnation = 2;
    h->replicas[0].state = REPLICA_FAILED;
    table_on_heartbeat(t, h, true, 0, on_lost, &lost);
    assert_int_equal(lost.n, 3);
    h = beat(9, 4);
    add(h, 0, 6)->incarnation = 2;
    h->replicas[0].state = REPLICA_BROKEN;
    table_on_heartbeat(t, h, true, 0, on_lost, &lost);
    assert_int_equal(lost.n, 3);                                /* said already */
    table_on_heartbeat(t, beat(9, 5), true, 0, on_lost, &lost); /* taken away */
    assert_int_equal(lost.n, 4);
    assert_int_equal(table_n_rows(t), 0);
    table_destroy(t);
}

struct releaser {
    struct table *t;
    struct table_pick pick;
};
static void on_lost_release(void *ctx, const struct table_lost *l)
{
    struct releaser *x = ctx;
    table_release(x->t, &x->pick, 10);
}

/* Requests that end because a replica is lost may give back places on rows that move meanwhile. */
static void test_release_while_rows_go(void **state)
{
    struct releaser x = {.t = make(1)};
    struct msg_heartbeat *h = beat(7, 1);
    for (uint32_t i = 0; i < 4; i++)
        add(h, i, 1);
    table_on_heartbeat(x.t, h, true, 0, NULL, NULL);
    x.pick = (struct table_pick){.worker = 7, .replica = 3, .epoch = 1, .incarnation = 1};
    for (int i = 0; i < 3; i++)
        table_commit(x.t, &x.pick, 10);
    h = beat(7, 2);
    add(h, 3, 1);
    table_on_heartbeat(x.t, h, true, 0, on_lost_release, &x);
    assert_int_equal(table_n_rows(x.t), 1);
    assert_int_equal(table_row(x.t, 0)->own_n, 0);
    assert_int_equal(table_row(x.t, 0)->own_tokens, 0);
    table_destroy(x.t);
}

static void test_old_heartbeats(void **state)
{
    struct table *t = make(1);
    struct table_pick p;
    struct msg_heartbeat *h = beat(7, 5);
    add(h, 0, 1);
    table_on_heartbeat(t, h, true, 0, NULL, NULL);
    table_on_heartbeat(t, beat(7, 4), true, 0, NULL, NULL); /* late: would remove the replica */
    assert_true(pick(t, 0, &p));
    h = beat(7, 1); /* the worker was started anew: its numbers begin again */
    h->incarnation = 2;
    table_on_heartbeat(t, h, true, 0, NULL, NULL);
    assert_false(pick(t, 0, &p));
    h = beat(7, 9);
    h->incarnation = 3; /* nothing is known of it */
    table_on_heartbeat(t, h, false, 0, NULL, NULL);
    assert_int_equal(table_worker(t, 7)->incarnation, 2);
    h = beat(MSG_MAX_MEMBERS, 1);
    add(h, 0, 1);
    table_on_heartbeat(t, h, true, 0, NULL, NULL); /* no such member */
    assert_int_equal(table_n_rows(t), 0);
    table_destroy(t);
}

static void test_slots_fill_and_free(void **state)
{
    struct table *t = make(1);
    struct table_pick p;
    struct msg_heartbeat *h = beat(7, 1);
    add(h, 0, 1);
    table_on_heartbeat(t, h, true, 0, NULL, NULL);
    for (int i = 0; i < SLOTS; i++) {
        assert_true(pick(t, 0, &p));
        table_commit(t, &p, 100);
    }
    assert_false(pick(t, 0, &p));
    table_release(t, &p, 100);
    assert_true(pick(t, 0, &p));
    h = beat(7, 2); /* a report from before our submits must not free their slots */
    add(h, 0, 1);
    table_on_heartbeat(t, h, true, 0, NULL, NULL);
    table_commit(t, &p, 100);
    assert_false(pick(t, 0, &p));
    h = beat(7, 3); /* others' requests count too */
    add(h, 0, 1)->n_active = SLOTS;
    table_on_heartbeat(t, h, true, 0, NULL, NULL);
    assert_false(pick(t, 0, &p));
    table_release(t, &p, 100); /* one of ours ends: its place is free at once */
    assert_true(pick(t, 0, &p));
    table_destroy(t);
}

static void test_stale_release_is_ignored(void **state)
{
    struct table *t = make(1);
    struct table_pick p, q;
    struct msg_heartbeat *h = beat(7, 1);
    add(h, 0, 1);
    table_on_heartbeat(t, h, true, 0, NULL, NULL);
    assert_true(pick(t, 0, &p));
    table_commit(t, &p, 10);
    h = beat(8, 1);
    add(h, 0, 2);
    table_on_heartbeat(t, h, true, 0, NULL, NULL);
    assert_true(pick(t, 0, &q));
    table_commit(t, &q, 10);
    table_release(t, &p, 10); /* of the old epoch */
    assert_int_equal(table_row(t, 0)->own_n, 1);
    table_release(t, &q, 10);
    table_release(t, &q, 10); /* never below zero */
    assert_int_equal(table_row(t, 0)->own_n, 0);
    table_destroy(t);
}

static void test_refused_and_unreachable(void **state)
{
    struct table *t = make(1);
    struct table_pick p;
    struct msg_heartbeat *h = beat(7, 1);
    add(h, 0, 1);
    add(h, 1, 1);
    table_on_heartbeat(t, h, true, 0, NULL, NULL);
    struct table_pick q;
    assert_true(pick(t, 0, &p));
    table_on_refused(t, &p);
    for (int i = 0; i < 50; i++) {
        assert_true(pick(t, 0, &q));
        assert_int_not_equal(q.replica, p.replica);
    }
    table_commit(t, &q, 10);
    table_on_refused(t, &q);
    assert_false(pick(t, 0, &q));
    table_release(t, &q, 10); /* one of ours ended there */
    assert_true(pick(t, 0, &p));
    assert_int_equal(p.replica, q.replica);
    table_on_refused(t, &p);
    assert_false(pick(t, 0, &p));
    table_on_heartbeat(t, beat(7, 2), false, 0, NULL, NULL); /* next news: ask again */
    assert_true(pick(t, 0, &p));
    table_on_unreachable(t, 7, 1000000);
    assert_false(pick(t, 1000001, &p));
    assert_int_equal(table_n_live(t, 0, 1000001), 0);
    assert_true(pick(t, 1000000 + TABLE_UNREACHABLE_MS * 1000, &p));
    table_on_unreachable(t, 7, 1000000);
    table_on_host(t, 7, "n1", "r1"); /* connected again */
    assert_true(pick(t, 1000001, &p));
    assert_string_equal(table_worker(t, 7)->host, "n1");
    table_on_worker_lost(t, 7);
    assert_false(pick(t, 1000001, &p));
    table_destroy(t);
}

static void fill(struct table *t, uint32_t n_workers, uint32_t per_worker)
{
    for (uint32_t w = 0; w < n_workers; w++) {
        struct msg_heartbeat *h = beat(w, 1);
        for (uint32_t k = 0; k < per_worker; k++)
            add(h, w * per_worker + k, 1);
        table_on_heartbeat(t, h, true, 0, NULL, NULL);
    }
}

static void test_budget_decides(void **state)
{
    struct table *t = make(1);
    struct table_pick p;
    struct msg_heartbeat *h = beat(7, 1);
    add(h, 0, 1)->kv_free_tokens = 100;
    add(h, 1, 1)->kv_free_tokens = 3000;
    add(h, 2, 1)->kv_free_tokens = 2500;
    table_on_heartbeat(t, h, true, 0, NULL, NULL);
    for (int i = 0; i < 20; i++) { /* with so few rows the sample holds them all, nearly always */
        assert_true(pick(t, 0, &p));
        assert_int_not_equal(p.replica, 0);
    }
    assert_true(pick(t, 0, &p));
    p.replica = 1;
    table_commit(t, &p, 2000); /* now 2 has more left */
    int n2 = 0;
    for (int i = 0; i < 100; i++)
        n2 += pick(t, 0, &p) && p.replica == 2;
    assert_true(n2 > 60);
    table_destroy(t);
}

static void test_spread(void **state)
{
    struct table *t = make(42);
    uint32_t n[256] = {0}, most = 0, least = UINT32_MAX;
    struct table_pick p;
    fill(t, 64, 4);
    for (int i = 0; i < 512; i++) {
        assert_true(pick(t, 0, &p));
        table_commit(t, &p, 100);
        n[p.replica]++;
    }
    for (int i = 0; i < 256; i++) {
        most = n[i] > most ? n[i] : most;
        least = n[i] < least ? n[i] : least;
    }
    /* mean 2: choice of four keeps the heaviest near it (random alone would reach 7 or so) */
    assert_true(most <= 3);
    for (int i = 0; i < 512; i++) { /* every last slot is found */
        assert_true(pick(t, 0, &p));
        table_commit(t, &p, 100);
    }
    assert_false(pick(t, 0, &p));
    table_destroy(t);
}

static void test_same_seed_same_picks(void **state)
{
    struct table *a = make(9), *b = make(9), *c = make(10);
    struct table_pick p, q, r;
    int differ = 0;
    fill(a, 50, 2);
    fill(b, 50, 2);
    fill(c, 50, 2);
    for (int i = 0; i < 200; i++) {
        assert_true(pick(a, 0, &p) && pick(b, 0, &q) && pick(c, 0, &r));
        assert_int_equal(p.replica, q.replica);
        differ += p.replica != r.replica;
        table_commit(a, &p, 10);
        table_commit(b, &q, 10);
        table_commit(c, &r, 10);
    }
    assert_true(differ > 50);
    table_destroy(a);
    table_destroy(b);
    table_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_states_and_suspicion),
        cmocka_unit_test(test_other_deployment),
        cmocka_unit_test(test_epochs),
        cmocka_unit_test(test_release_while_rows_go),
        cmocka_unit_test(test_old_heartbeats),
        cmocka_unit_test(test_slots_fill_and_free),
        cmocka_unit_test(test_stale_release_is_ignored),
        cmocka_unit_test(test_refused_and_unreachable),
        cmocka_unit_test(test_budget_decides),
        cmocka_unit_test(test_spread),
        cmocka_unit_test(test_same_seed_same_picks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
