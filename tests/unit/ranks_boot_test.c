/* The start barrier: phases in order, names of who is missing, a loss ends the start. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ranks/boot.h"

#include <stdio.h>
#include <string.h>

static void make(struct layout *l, struct boot *b)
{
    struct layout_node nodes[4] = {
        {"n0", "r0", ""}, {"n1", "r0", ""}, {"n2", "r1", ""}, {"n3", "r1", ""}};
    struct layout_wish w = {0};
    struct err e = ERR_INIT;
    assert_int_equal(layout_make(l, nodes, 4, &w, &e), 0);
    assert_int_equal(boot_init(b, l, 1000, &e), 0);
}

/* n hosts are blamed, `host` among them. */
static void assert_blamed(const struct boot *b, const char *host, uint32_t n)
{
    struct buf hosts;
    uint32_t lines = 0;
    buf_init(&hosts, 4096);
    boot_blame(b, &hosts);
    for (size_t i = 0; i < hosts.len; i++)
        lines += hosts.data[i] == '\n';
    assert_int_equal(lines, n);
    assert_non_null(strstr(buf_cstr(&hosts), host));
    buf_fini(&hosts);
}

static void test_phases_in_order(void **state)
{
    struct layout l;
    struct boot b;
    struct err e = ERR_INIT;
    make(&l, &b);
    for (uint32_t phase = 1; phase <= BOOT_PHASES; phase++) {
        for (uint32_t r = 0; r + 1 < l.n_ranks; r++)
            boot_reach(&b, r, phase);
        assert_int_equal(boot_check(&b, 2000 * phase, &e), 0);
        boot_reach(&b, l.n_ranks - 1, phase);
        assert_int_equal(boot_check(&b, 2000 * phase, &e), 1);
        assert_int_equal(b.phase_us[phase], 2000 * phase);
    }
    assert_int_equal(boot_check(&b, UINT64_MAX, &e), 0);
    boot_fini(&b);
    layout_fini(&l);
}

static void test_deadline_names_the_missing(void **state)
{
    struct layout l;
    struct boot b;
    struct err e = ERR_INIT;
    make(&l, &b);
    for (uint32_t r = 0; r < l.n_ranks; r++)
        if (r != 1 && r != l.n_ranks - 1)
            boot_reach(&b, r, BOOT_OUT_OF_INIT);
    uint64_t limit = boot_phase_limit_us(l.n_ranks);
    assert_int_equal(boot_check(&b, 1000 + limit - 1, &e), 0);
    assert_int_equal(boot_check(&b, 1000 + limit, &e), ERR_TIMEOUT);
    assert_non_null(strstr(e.text, "leaving MPI_Init"));
    char last[16];
    snprintf(last, sizeof last, " %u (n3)", l.n_ranks - 1);
    assert_non_null(strstr(e.text, last));
    assert_non_null(strstr(e.text, "missing 2 of"));
    assert_blamed(&b, "n3", 2);
    assert_true(boot_is_missing(&b, 1));
    assert_false(boot_is_missing(&b, 0));
    boot_fini(&b);
    layout_fini(&l);
}

/* A fault that all share (a slow file system, a hang in MPI) must not leave the job without nodes. */
static void test_nobody_is_blamed_for_waiting_together(void **state)
{
    struct layout l;
    struct boot b;
    struct err e = ERR_INIT;
    make(&l, &b);
    for (uint32_t r = 0; r < l.n_ranks / 2; r++)
        boot_reach(&b, r, BOOT_OUT_OF_INIT);
    assert_int_equal(boot_check(&b, 1000 + boot_phase_limit_us(l.n_ranks), &e), ERR_TIMEOUT);
    assert_blamed(&b, "", 0);
    boot_fini(&b);
    layout_fini(&l);
}

static void test_loss_ends_the_start(void **state)
{
    struct layout l;
    struct boot b;
    struct err e = ERR_INIT;
    make(&l, &b);
    boot_reach(&b, 2, BOOT_OUT_OF_INIT);
    boot_lose(&b, 2);
    assert_int_equal(boot_check(&b, 1001, &e), ERR_PEER);
    assert_blamed(&b, l.nodes[l.ranks[2].node].host, 1); /* not those that were on their way */
    assert_non_null(strstr(e.text, "lost)"));
    boot_reach(&b, 99, 1); /* no such rank: ignored */
    boot_reach(&b, 0, 77); /* no such phase: ignored */
    assert_true(boot_is_missing(&b, 0));
    boot_fini(&b);
    layout_fini(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_phases_in_order),
        cmocka_unit_test(test_deadline_names_the_missing),
        cmocka_unit_test(test_nobody_is_blamed_for_waiting_together),
        cmocka_unit_test(test_loss_ends_the_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
