/* engine_bind_test.c - engines of a node run on processors of their own, out of those that they are allowed. */
#include "engine_support.h"

#include <sched.h>
#include <sys/wait.h>

#include "engine/bind.h"

static void test_shares_are_disjoint(void **state)
{
    uint32_t first, last = 2;
    for (uint32_t i = 0; i < 5;
         i++, last += 6) { /* 32 processors, five engines of six threads: two are left */
        assert_true(bind_share(32, i, 5, 6, &first));
        assert_int_equal(first, last);
    }
    assert_true(bind_share(4, 3, 4, 1, &first));
    assert_int_equal(first, 3);
    assert_false(bind_share(4, 0, 3, 2, &first)); /* too few */
    assert_false(bind_share(4, 2, 2, 1, &first));
    assert_false(bind_share(4, 0, 1, 0, &first));
}

/* In a child: bind as engine `index`, and say where we are. */
static void bound_set(uint32_t index, uint32_t count, cpu_set_t *set)
{
    int p[2], status;
    assert_int_equal(pipe(p), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        uint32_t bound;
        cpu_set_t mine;
        if (bind_cores(index, count, 1, &bound, NULL) || sched_getaffinity(0, sizeof mine, &mine))
            _exit(1);
        _exit(write(p[1], &mine, sizeof mine) != sizeof mine);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(read(p[0], set, sizeof *set), sizeof *set);
    close(p[0]);
    close(p[1]);
}

static void test_the_process_is_bound(void **state)
{
    cpu_set_t all, a, b, both;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    if (CPU_COUNT(&all) < 2)
        skip();
    bound_set(0, 2, &a);
    bound_set(1, 2, &b);
    CPU_AND(&both, &a, &b);
    assert_int_equal(CPU_COUNT(&a), 1);
    assert_int_equal(CPU_COUNT(&b), 1);
    assert_int_equal(CPU_COUNT(&both), 0);
    CPU_OR(&both, &a, &b);
    CPU_AND(&both, &both, &all);
    assert_int_equal(CPU_COUNT(&both), 2); /* both out of what is allowed */
    bound_set(0, (uint32_t)CPU_COUNT(&all) + 1, &a);
    assert_true(CPU_EQUAL(&a, &all)); /* too few: they share */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares_are_disjoint),
        cmocka_unit_test(test_the_process_is_bound),
    };
    return cmocka_run_group_tests_name("engine_bind", tests, NULL, NULL);
}
