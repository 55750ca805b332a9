/* wire_plane_test.c - the same cases over both planes: in one process (mem) and over UCX on TCP. What only UCX can show is in wire_ucx_test.c. */
#include "tests/unit/wire_fixture.h"

/* --- cases for both ---------------------------------------------------------------------------------------- */
static void up_and_talk(void **state)
{
    struct node *low, *high;
    pair_up(&low, &high);
    assert_int_equal(low->last_up.member, 7);
    assert_int_equal(low->last_up.incarnation, 700);
    assert_string_equal(low->last_up.build, "test-7");
    assert_int_equal(high->last_up.member, 1);
    assert_int_equal(high->last_up.incarnation, 100);
    assert_string_equal(high->last_up.build, "test");
    assert_true(plane_is_up(low->plane, 7));
    assert_true(plane_is_up(high->plane, 1));
    assert_false(plane_is_up(high->plane, 2));
    assert_int_equal(plane_send(low->plane, 2, 0, "x", 1, NULL), ERR_PEER);
    send_pattern(low, 7, 0, 10);
    send_pattern(high, 1, 0, 0);
    WAIT_FOR(low->n_messages == 1 && high->n_messages == 1);
    assert_false(low->bad || high->bad);
    assert_int_equal(high->bytes, 10);
    /* the lower one never dials */
    assert_int_equal(plane_connect(low->plane, 7, "x", 1, NULL), ERR_CONFIG);
    assert_true(plane_connect(high->plane, 1, "x", 1, NULL) != 0);
}

static void keeps_order(void **state)
{
    static const size_t SIZES[] = {0,     1,     20,    500, 4000,   8192, 9000, 32767, 32768,
                                   32769, 65536, 70001, 3,   300000, 12,   0,    131072};
    struct node *low, *high;
    pair_up(&low, &high);
    size_t total = 0;
    for (uint32_t i = 0; i < 3000; i++) {
        size_t n = SIZES[i % (sizeof SIZES / sizeof SIZES[0])];
        if (n > 1000 && i % 10)
            n = 37;
        total += n;
        send_pattern(high, 1, i, n);
        send_pattern(low, 7, i, n);
        if (i % 50 == 0)
            turn();
    }
    WAIT_FOR(low->n_messages == 3000 && high->n_messages == 3000);
    assert_false(low->bad || high->bad);
    assert_int_equal(low->bytes, total);
    assert_int_equal(high->bytes, total);
    WAIT_FOR(plane_queued_bytes(low->plane, 7) == 0);
}

static void big_messages(void **state)
{
    struct node *low, *high;
    pair_up(&low, &high);
    size_t n = 64 << 20;
    uint8_t *body = malloc(n);
    for (size_t i = 0; i < n; i++)
        body[i] = pattern(0, i);
    assert_int_equal(plane_send(high->plane, 1, 0, body, n, NULL), 0);
    assert_int_equal(plane_send(low->plane, 7, 0, body, n, NULL), 0);
    assert_int_equal(plane_send(high->plane, 1, 0, body, (size_t)PLANE_MAX_MESSAGE + 1, NULL),
                     ERR_LIMIT);
    free(body); /* it was copied */
    send_pattern(high, 1, 1, 5);
    uint64_t from_us = clock_now_us();
    WAIT_FOR(low->n_messages == 2 && high->n_messages == 1);
    print_message("64 MiB each way in %.0f ms\n", (double)(clock_now_us() - from_us) / 1e3);
    assert_false(low->bad || high->bad);
    assert_int_equal(low->bytes, n + 5);
}

static void wrong_secret(void **state)
{
    struct node *low = node_make(1, 100, SECRET);
    struct node *high = node_make(7, 700, "another secret");
    dial(high, 1, low);
    WAIT_FOR(high->n_lost);
    assert_int_equal(high->lost_member, 1);
    assert_int_equal(high->lost_why.code, ERR_PROTO);
    assert_non_null(strstr(high->lost_why.text, "secret"));
    for (int i = 0; i < 20; i++)
        turn();
    assert_string_equal(low->events, "");
    assert_string_equal(high->events, "l");
}

static void wrong_protocol(void **state)
{
    struct node *low = node_make(1, 100, SECRET);
    struct node *high = node_make(7, 700, SECRET);
    plane_set_protocol(high->plane, 41);
    dial(high, 1, low);
    WAIT_FOR(high->n_lost);
    assert_non_null(strstr(high->lost_why.text, "protocol 41"));
    assert_non_null(strstr(high->lost_why.text, "protocol 2"));
    assert_string_equal(low->events, "");
    plane_set_protocol(high->plane, PLANE_PROTOCOL);
    dial(high, 1, low);
    WAIT_FOR(high->n_up && low->n_up);
}

static void new_incarnation(void **state)
{
    struct node *low, *high;
    pair_up(&low, &high);
    struct node *again = node_make(7, 701, SECRET);
    dial(again, 1, low);
    WAIT_FOR(again->n_up && low->n_up == 2 && high->n_lost);
    assert_string_equal(low->events, "ulu");
    assert_int_equal(low->lost_incarnation, 700);
    assert_int_equal(low->last_up.incarnation, 701);
    assert_true(plane_is_up(low->plane, 7));
    assert_int_equal(plane_send(high->plane, 1, 0, "x", 1, NULL), ERR_PEER);
    send_pattern(low, 7, 0, 9);
    WAIT_FOR(again->n_messages == 1);
    assert_int_equal(high->n_messages, 0);
    /* the other way: the lower member comes anew while the old one is still there */
    struct node *low2 = node_make(1, 101, SECRET);
    dial(again, 1, low2);
    WAIT_FOR(low2->n_up && again->n_up == 2);
    assert_string_equal(again->events, "umlu");
    assert_int_equal(again->lost_incarnation, 100);
    assert_int_equal(again->last_up.incarnation, 101);
}

static void last_words(void **state)
{
    struct node *low, *high;
    pair_up(&low, &high);
    for (uint32_t i = 0; i < 20; i++)
        send_pattern(high, 1, i, i == 10 ? 400000 : 100);
    if (rig.ucx) { /* closing sends what is queued while the other side reads: another process does, here a plane cannot */
        WAIT_FOR(plane_queued_bytes(high->plane, 1) == 0);
    }
    uint64_t from_us = clock_now_us();
    node_close(high);
    assert_true(clock_now_us() - from_us < 5 * 1000 * 1000);
    WAIT_FOR(low->n_lost);
    assert_int_equal(low->n_messages, 20);
    assert_false(low->bad);
    assert_int_equal(low->events[strlen(low->events) - 1], 'l');
    assert_int_equal(low->lost_incarnation, 700);
    assert_false(plane_is_up(low->plane, 7));
}

static void queue_limit(void **state)
{
    struct node *low, *high;
    pair_up(&low, &high);
    static uint8_t body[1 << 20];
    for (size_t i = 0; i < sizeof body; i++)
        body[i] = pattern(0, i);
    int rc = 0, sent = 0;
    while (sent < 1000 && (rc = plane_send(high->plane, 1, 0, body, sizeof body, NULL)) == 0)
        sent++;
    assert_int_equal(rc, ERR_LIMIT);
    assert_true(sent >= 127 && sent < 300);
    assert_true(plane_queued_bytes(high->plane, 1) <= PLANE_MAX_QUEUED_BYTES);
    WAIT_FOR(low->n_messages == (unsigned)sent);
    assert_int_equal(low->bytes, (size_t)sent << 20);
    WAIT_FOR(plane_queued_bytes(high->plane, 1) == 0);
    assert_int_equal(plane_send(high->plane, 1, 0, body, sizeof body, NULL), 0);
}

/* Messages without a body take memory too. */
static void queue_limit_of_empty_messages(void **state)
{
    struct node *low, *high;
    pair_up(&low, &high);
    static uint8_t body[1 << 20];
    unsigned n = 0;
    while (plane_send(high->plane, 1, 0, body, sizeof body, NULL) == 0) /* the way is full */
        n++;
    unsigned room = 0;
    while (room <= sizeof body / PLANE_MESSAGE_COST &&
           plane_send(high->plane, 1, 0, NULL, 0, NULL) == 0)
        room++;
    assert_true(room <= sizeof body / PLANE_MESSAGE_COST);
    assert_int_equal(plane_send(high->plane, 1, 0, NULL, 0, NULL), ERR_LIMIT);
    WAIT_FOR(low->n_messages == n + room);
    assert_int_equal(low->bytes, (size_t)n << 20);
    WAIT_FOR(plane_queued_bytes(high->plane, 1) == 0);
}

static void drop(void **state)
{
    struct node *low, *high;
    pair_up(&low, &high);
    plane_drop(low->plane, 7);
    assert_false(plane_is_up(low->plane, 7));
    WAIT_FOR(high->n_lost);
    for (int i = 0; i < 5; i++)
        turn();
    assert_int_equal(low->n_lost, 0);
    dial(high, 1, low);
    WAIT_FOR(low->n_up == 2 && high->n_up == 2);
    /* from a handler, with more on the way */
    low->drop_on_message = 7 + 1;
    for (uint32_t i = 0; i < 10; i++)
        send_pattern(high, 1, i, 50);
    WAIT_FOR(high->n_lost == 2);
    assert_int_equal(low->n_messages, 1);
    assert_int_equal(low->n_lost, 0);
    /* a connect that is given up says nothing */
    dial(high, 1, low);
    plane_drop(high->plane, 1);
    for (int i = 0; i < 20; i++)
        turn();
    assert_int_equal(high->n_up, 2);
    assert_int_equal(high->n_lost, 2);
}

/* A connection given up at any step leaves nothing behind that stands in the way of the next one. */
static void drop_while_connecting(void **state)
{
    enum { STEPS = 20, BIG = 300000 };
    struct node *low = node_make(1, 100, SECRET);
    struct node *high = node_make(7, 700, SECRET);
    for (int i = 0; i < STEPS; i++) {
        dial(high, 1, low);
        for (int k = 0; k < i; k++)
            turn();
        plane_drop(high->plane, 1);
        dial(high, 1, low);
        WAIT_FOR(plane_is_up(high->plane, 1));
        send_pattern(high, 1, low->next, BIG);
        WAIT_FOR(low->n_messages == (unsigned)i + 1);
        send_pattern(low, 7, high->next, BIG);
        WAIT_FOR(high->n_messages == (unsigned)i + 1);
        plane_drop(high->plane, 1);
        WAIT_FOR(low->n_lost == low->n_up);
    }
    assert_false(low->bad || high->bad);
    assert_int_equal(high->n_lost, 0);
    WAIT_FOR(!low->plane->waiting && !high->plane->waiting);
}

static void many_members(void **state)
{
    enum { N = 20 };
    for (uint32_t i = 0; i < N; i++)
        node_make(i, 1000 + i, SECRET);
    for (uint32_t i = 0; i < N; i++)
        for (uint32_t j = 0; j < i; j++)
            dial(&rig.nodes[i], j, &rig.nodes[j]);
    for (uint32_t i = 0; i < N; i++)
        WAIT_FOR(rig.nodes[i].n_up == N - 1);
    for (uint32_t i = 0; i < N; i++)
        for (uint32_t j = 0; j < N; j++)
            if (i != j)
                assert_int_equal(plane_send(rig.nodes[i].plane, j, 0, "", 0, NULL), 0);
    for (uint32_t i = 0; i < N; i++)
        WAIT_FOR(rig.nodes[i].n_messages == N - 1);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(rig.nodes[i].n_lost, 0);
    node_close(&rig.nodes[0]);
    for (uint32_t i = 1; i < N; i++)
        WAIT_FOR(rig.nodes[i].n_lost == 1 && rig.nodes[i].lost_member == 0);
}

static void dead_address(void **state)
{
    struct node *low = node_make(1, 100, SECRET);
    struct node *high = node_make(7, 700, SECRET);
    struct buf b;
    buf_init(&b, 65535);
    assert_int_equal(plane_address(low->plane, &b, NULL), 0);
    node_close(low);
    uint64_t from_us = clock_now_us();
    assert_int_equal(plane_connect(high->plane, 1, b.data, b.len, NULL), 0);
    buf_fini(&b);
    WAIT_FOR(high->n_lost);
    assert_true(clock_now_us() - from_us < (PLANE_HELLO_TIMEOUT_MS + 2000) * UINT64_C(1000));
    assert_int_equal(high->lost_member, 1);
    assert_int_equal(high->lost_incarnation, 0);
}

static void wrong_member(void **state)
{
    struct node *low = node_make(2, 200, SECRET);
    struct node *high = node_make(7, 700, SECRET);
    dial(high, 1, low); /* somebody else got the address meanwhile */
    WAIT_FOR(high->n_lost);
    assert_int_equal(high->lost_member, 1);
    assert_string_equal(low->events, "");
}

static void rejoin_after_loss(void **state)
{
    struct node *low, *high;
    pair_up(&low, &high);
    for (int i = 0; i < 5; i++) {
        node_close(high);
        WAIT_FOR(low->n_lost == (unsigned)i + 1);
        high = node_make(7, 701 + (uint64_t)i, SECRET);
        dial(high, 1, low);
        WAIT_FOR(low->n_up == (unsigned)i + 2 && high->n_up == 1);
    }
}

/* --- only in one process ----------------------------------------------------------------------------------- */
static void mem_cut_and_kill(void **state)
{
    struct node *low, *high;
    pair_up(&low, &high);
    plane_hub_cut(rig.hub, 7, 1, true);
    send_pattern(low, 7, 0, 5);
    for (int i = 0; i < 10; i++)
        turn();
    assert_int_equal(high->n_messages, 0);
    plane_hub_cut(rig.hub, 1, 7, false);
    send_pattern(low, 7, 0, 5);
    WAIT_FOR(high->n_messages == 1);
    plane_hub_cut(rig.hub, 1, 7, true);
    struct node *third = node_make(9, 900, SECRET);
    dial(third, 1, low);
    WAIT_FOR(third->n_up);
    plane_hub_kill(rig.hub, 1);
    WAIT_FOR(high->n_lost && third->n_lost);
    assert_int_equal(plane_send(low->plane, 9, 0, "x", 1, NULL), ERR_PEER);
    assert_int_equal(high->lost_member, 1);
}

static void mem_hello_timeout(void **state)
{
    struct node *low = node_make(1, 100, SECRET);
    struct node *high = node_make(7, 700, SECRET);
    plane_hub_cut(rig.hub, 1, 7, true);
    dial(high, 1, low);
    turn();
    assert_int_equal(high->n_lost, 0);
    rig.skew_us = (PLANE_HELLO_TIMEOUT_MS + 100) * UINT64_C(1000);
    turn();
    assert_int_equal(high->n_lost, 1);
    assert_int_equal(high->lost_why.code, ERR_TIMEOUT);
    assert_string_equal(low->events, "");
}

#define BOTH(f) CASE(#f " (mem)", f, set_up_mem), CASE(#f " (ucx)", f, set_up_ucx)
#define MEM(f)  CASE(#f, f, set_up_mem)

int main(int argc, char **argv)
{
    ucx_settle(argv);
    log_init("test", -1);
    const struct CMUnitTest tests[] = {
        BOTH(up_and_talk),
        BOTH(keeps_order),
        BOTH(big_messages),
        BOTH(wrong_secret),
        BOTH(wrong_protocol),
        BOTH(new_incarnation),
        BOTH(last_words),
        BOTH(queue_limit),
        BOTH(queue_limit_of_empty_messages),
        BOTH(drop),
        BOTH(drop_while_connecting),
        BOTH(many_members),
        BOTH(dead_address),
        BOTH(wrong_member),
        BOTH(rejoin_after_loss),
        MEM(mem_cut_and_kill),
        MEM(mem_hello_timeout),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
