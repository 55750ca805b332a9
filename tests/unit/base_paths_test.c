/* base_paths_test.c - the cache folder by its settings, and the machine's short name. */
#include "base/paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka needs these before it */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void test_cache_dir(void **state)
{
    char got[256], want[256];
    setenv("EXASERVE_CACHE", "/c", 1);
    setenv("TMPDIR", "/t", 1);
    assert_int_equal(path_cache_dir(got, sizeof got, NULL), 0);
    assert_string_equal(got, "/c");
    setenv("EXASERVE_CACHE", "", 1);
    assert_int_equal(path_cache_dir(got, sizeof got, NULL), 0);
    snprintf(want, sizeof want, "/t/exaserve-%u", (unsigned)geteuid());
    assert_string_equal(got, want);
    unsetenv("EXASERVE_CACHE");
    setenv("TMPDIR", "", 1);
    assert_int_equal(path_cache_dir(got, sizeof got, NULL), 0);
    snprintf(want, sizeof want, "/tmp/exaserve-%u", (unsigned)geteuid());
    assert_string_equal(got, want);
    assert_int_not_equal(path_cache_dir(got, 4, NULL), 0);
}

static void test_host_name(void **state)
{
    char got[256], whole[256];
    struct err e = ERR_INIT;
    assert_int_equal(gethostname(whole, sizeof whole), 0);
    assert_int_equal(path_host_name(got, sizeof got, &e), 0);
    assert_int_equal(strlen(got), strcspn(whole, "."));
    assert_memory_equal(got, whole, strlen(got));
    if (strlen(whole) > 1)
        assert_int_not_equal(path_host_name(got, 1, &e), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache_dir),
        cmocka_unit_test(test_host_name),
    };
    return cmocka_run_group_tests_name("base_paths", tests, NULL, NULL);
}
