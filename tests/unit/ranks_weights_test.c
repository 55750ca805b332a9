/* Who holds which segments: hits, rounds, losses, full disks, bad packs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ranks/scheduler/weights.h"

#include <string.h>

enum { SEGMENTS = 20, SECOND = 1000000 };

static void have(struct weights *w, uint32_t member, uint32_t round, uint32_t n_held, int code,
                 const char *text)
{
    uint8_t bits[3] = {0};
    for (uint32_t s = 0; s < n_held; s++)
        bits[s / 8] |= (uint8_t)(1u << s % 8);
    struct msg_have h = {
        .member = member, .round = round, .code = code, .n_segments = SEGMENTS, .bits = bits};
    strcpy(h.text, text);
    weights_have(w, &h, SECOND);
}

static void make(struct weights *w)
{
    const uint32_t members[] = {3, 4, 5, 6}, racks[] = {0, 0, 1, 1};
    struct err e = ERR_INIT;
    assert_int_equal(weights_init(w, members, racks, 4, SEGMENTS, 100 << 20, 0, &e), 0);
}

/* Every member from the first on holds nothing. */
static void have_nothing(struct weights *w, uint32_t first)
{
    for (uint32_t m = first; m <= 6; m++)
        have(w, m, 0, 0, 0, "");
}

static void expect_told(struct weights *w, uint32_t member, uint8_t state)
{
    uint32_t which;
    assert_int_equal(weights_next(w, SECOND, &which), WEIGHTS_TELL);
    assert_int_equal(w->nodes[which].member, member);
    assert_int_equal(w->nodes[which].state, state);
}

static void expect_round(struct weights *w)
{
    uint32_t which;
    assert_int_equal(weights_next(w, SECOND, &which), WEIGHTS_ROUND);
}

static void round_from(struct weights *w, uint32_t first)
{
    have_nothing(w, first);
    expect_round(w);
}

static void test_hits_need_no_round(void **state)
{
    struct weights w;
    uint32_t which;
    make(&w);
    assert_int_equal(weights_next(&w, SECOND, &which), WEIGHTS_WAIT);
    for (uint32_t m = 3; m <= 6; m++) {
        have(&w, m, 0, SEGMENTS, 0, "");
        expect_told(&w, m, WEIGHTS_COMPLETE); /* at once: it does not wait for the others */
    }
    assert_int_equal(weights_next(&w, SECOND, &which), WEIGHTS_WAIT);
    assert_int_equal(w.round, 0);
    assert_true(weights_progress(&w) == 1.0);
    weights_fini(&w);
}

static void test_round_sends_only_what_is_missing(void **state)
{
    struct weights w;
    uint32_t which;
    make(&w);
    have(&w, 3, 0, SEGMENTS, 0, "");
    have(&w, 4, 0, 12, 0, "");
    have(&w, 5, 0, 15, 0, "");
    expect_told(&w, 3, WEIGHTS_COMPLETE);
    assert_int_equal(weights_next(&w, SECOND, &which), WEIGHTS_WAIT); /* 6 has not answered */
    have(&w, 6, 0, 18, 0, "");
    expect_round(&w);
    assert_int_equal(w.round, 1);
    assert_int_equal(weights_find(&w, 3)->state, WEIGHTS_COMPLETE); /* takes no part */
    assert_int_equal(weights_find(&w, 4)->state, WEIGHTS_IN_ROUND);
    for (uint32_t s = 0; s < SEGMENTS; s++)
        assert_int_equal(w.missing[s / 8] >> s % 8 & 1, s >= 12);
    have(&w, 4, 1, SEGMENTS, 0, "");
    have(&w, 5, 1, SEGMENTS, 0, "");
    have(&w, 6, 0, 0, 0, ""); /* a late answer to round 0 */
    assert_int_equal(weights_find(&w, 6)->state, WEIGHTS_IN_ROUND);
    have(&w, 6, 1, SEGMENTS, 0, "");
    for (uint32_t m = 4; m <= 6; m++)
        expect_told(&w, m, WEIGHTS_COMPLETE);
    weights_fini(&w);
}

static void test_loss_gives_up_and_survivors_go_on(void **state)
{
    struct weights w;
    uint32_t which;
    make(&w);
    round_from(&w, 3);
    weights_lose(&w, 5);
    assert_int_equal(weights_next(&w, SECOND, &which), WEIGHTS_GIVE_UP);
    assert_int_equal(weights_next(&w, SECOND, &which), WEIGHTS_WAIT);
    have(&w, 3, 1, 4, ERR_PEER, "stuck");
    have(&w, 4, 1, 5, ERR_PEER, "stuck");
    have(&w, 6, 1, 6, ERR_PEER, "stuck");
    expect_round(&w);
    assert_int_equal(w.round, 2);
    assert_int_equal(w.missing[0], 0xf0);
    assert_int_equal(weights_find(&w, 5)->state, WEIGHTS_FAILED);
    weights_fini(&w);
}

static void test_full_disk_is_that_node_only(void **state)
{
    struct weights w;
    make(&w);
    have(&w, 3, 0, 0, ERR_LIMIT, "disk full");
    expect_told(&w, 3, WEIGHTS_FAILED);
    assert_string_equal(weights_find(&w, 3)->text, "disk full");
    round_from(&w, 4);
    weights_fini(&w);
}

/* Its cache cannot be opened, for whatever reason: it stays out, or each round would wait for it in vain. */
static void test_no_cache_is_that_node_only(void **state)
{
    static const int CODES[] = {ERR_TIMEOUT, ERR_FORMAT, ERR_AGAIN, ERR_PROTO};
    for (size_t i = 0; i < sizeof CODES / sizeof CODES[0]; i++) {
        struct weights w;
        make(&w);
        have(&w, 3, 0, 0, CODES[i], "another job fills the image");
        expect_told(&w, 3, WEIGHTS_FAILED);
        round_from(&w, 4);
        assert_int_equal(weights_find(&w, 3)->state, WEIGHTS_FAILED);
        assert_int_equal(weights_find(&w, 4)->state, WEIGHTS_IN_ROUND);
        weights_fini(&w);
    }
}

static void test_reader_that_cannot_read_stays_out(void **state)
{
    struct weights w;
    make(&w);
    round_from(&w, 3);
    have(&w, 3, 1, 2, ERR_SYS, "pack /p.h5: cannot open");
    for (uint32_t m = 4; m <= 6; m++)
        have(&w, m, 1, 2, ERR_PEER, "pack /p.h5: cannot open");
    expect_told(&w, 3, WEIGHTS_FAILED);
    expect_round(&w);
    assert_int_equal(weights_find(&w, 4)->state, WEIGHTS_IN_ROUND);
    weights_fini(&w);
}

static void test_bad_pack_fails_all(void **state)
{
    struct weights w;
    make(&w);
    round_from(&w, 3);
    have(&w, 5, 1, 3, ERR_FORMAT, "tensor x segment 4: wrong hash");
    for (uint32_t m = 3; m <= 6; m++) {
        expect_told(&w, m, WEIGHTS_FAILED);
        assert_string_equal(weights_find(&w, m)->text, "tensor x segment 4: wrong hash");
    }
    weights_fini(&w);
}

/* Somebody cleaned a node's cache: only that node gets only what it lacks, and its rounds are counted anew. */
static void test_lost_image_is_fetched_again(void **state)
{
    struct weights w;
    uint32_t which;
    make(&w);
    for (uint32_t m = 3; m <= 6; m++) {
        have(&w, m, 0, SEGMENTS, 0, "");
        expect_told(&w, m, WEIGHTS_COMPLETE);
    }
    have(&w, 4, 0, SEGMENTS, 0, ""); /* it still has it */
    assert_int_equal(weights_next(&w, SECOND, &which), WEIGHTS_WAIT);
    for (uint32_t round = 1; round <= WEIGHTS_MAX_ROUNDS + 2; round++) {
        have(&w, 4, 0, 15, 0, "");
        assert_int_equal(weights_find(&w, 4)->state, WEIGHTS_INCOMPLETE);
        assert_int_equal(weights_next(&w, SECOND, &which), WEIGHTS_ROUND);
        assert_int_equal(w.round, round);
        assert_int_equal(weights_find(&w, 3)->state, WEIGHTS_COMPLETE);
        assert_int_equal(w.missing[1], 0x80);
        have(&w, 4, round, SEGMENTS, 0, "");
        expect_told(&w, 4, WEIGHTS_COMPLETE);
    }
    have(&w, 4, 0, 0, ERR_LIMIT, "disk full");
    expect_told(&w, 4, WEIGHTS_FAILED);
    weights_fini(&w);
}

static void test_rounds_and_waits_end(void **state)
{
    struct weights w;
    uint32_t which;
    make(&w);
    have_nothing(&w, 3);
    for (uint32_t round = 1; round <= WEIGHTS_MAX_ROUNDS; round++) {
        expect_round(&w);
        for (uint32_t m = 3; m <= 6; m++)
            have(&w, m, round, 0, ERR_TIMEOUT, "no progress");
    }
    expect_told(&w, 3, WEIGHTS_FAILED);
    weights_fini(&w);
    make(&w);
    assert_int_equal(weights_next(&w, UINT64_MAX / 2, &which),
                     WEIGHTS_TELL); /* silent for ever: failed */
    assert_int_equal(w.nodes[which].state, WEIGHTS_FAILED);
    weights_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hits_need_no_round),
        cmocka_unit_test(test_round_sends_only_what_is_missing),
        cmocka_unit_test(test_loss_gives_up_and_survivors_go_on),
        cmocka_unit_test(test_full_disk_is_that_node_only),
        cmocka_unit_test(test_no_cache_is_that_node_only),
        cmocka_unit_test(test_reader_that_cannot_read_stays_out),
        cmocka_unit_test(test_bad_pack_fails_all),
        cmocka_unit_test(test_lost_image_is_fetched_again),
        cmocka_unit_test(test_rounds_and_waits_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
