/* base_err_test.c - codes, texts that are cut and never overrun, prefixes, and CHECK. */
#include "base/err.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void sets(void **state)
{
    struct err e = ERR_INIT;
    assert_int_equal(err_set(&e, ERR_LIMIT, "%s has %d", "x", 7), ERR_LIMIT);
    assert_int_equal(e.code, ERR_LIMIT);
    assert_string_equal(e.text, "x has 7");
    assert_int_equal(err_set(NULL, ERR_AGAIN, "nobody listens"), ERR_AGAIN);
    assert_int_equal(err_set(&e, ERR_PEER, "again: %s", e.text), ERR_PEER); /* from its own text */
    assert_string_equal(e.text, "again: x has 7");
}

static void cuts(void **state)
{
    struct {
        struct err e;
        uint8_t guard[16];
    } s;
    char longest[2000];
    memset(&s, 0x5a, sizeof s);
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    err_set(&s.e, ERR_SYS, "%s", longest);
    assert_int_equal(strlen(s.e.text), sizeof s.e.text - 1);
    err_prefix(&s.e, "%s", longest);
    assert_int_equal(strlen(s.e.text), sizeof s.e.text - 1);
    err_sys(&s.e, EIO, "%s", longest);
    assert_int_equal(strlen(s.e.text), sizeof s.e.text - 1);
    for (size_t i = 0; i < sizeof s.guard; i++)
        assert_int_equal(s.guard[i], 0x5a);
}

static void system_errors(void **state)
{
    struct err e = ERR_INIT;
    assert_int_equal(err_sys(&e, ENOENT, "cannot open %s", "/x"), ERR_SYS);
    assert_string_equal(e.text, "cannot open /x: No such file or directory");
    assert_int_equal(err_sys(&e, ENOMEM, "no luck"), ERR_NOMEM);
    assert_int_equal(err_sys(NULL, ENOMEM, "no luck"), ERR_NOMEM);
}

static void prefixes(void **state)
{
    struct err e = ERR_INIT;
    err_set(&e, ERR_FORMAT, "bad magic");
    assert_int_equal(err_prefix(&e, "loading %s: ", "m"), ERR_FORMAT);
    assert_string_equal(e.text, "loading m: bad magic");
    struct err none = ERR_INIT;
    assert_int_equal(err_prefix(&none, "x: "), ERR_SYS);
    assert_int_equal(err_prefix(NULL, "x: "), ERR_SYS);
}

static void maps(void **state)
{
    assert_string_equal(err_name(ERR_AGAIN), "AGAIN");
    assert_string_equal(err_name(ERR_FENCED), "FENCED");
    assert_string_equal(err_name(0), "UNKNOWN");
    assert_string_equal(err_name(-99), "UNKNOWN");
    assert_int_equal(err_http_status(ERR_TIMEOUT), 504);
    assert_int_equal(err_http_status(ERR_LIMIT), 400);
    assert_int_equal(err_http_status(-99), 500);
    assert_int_equal(err_exit_code(ERR_AGAIN), 2);
    assert_int_equal(err_exit_code(ERR_TIMEOUT), 3);
    assert_int_equal(err_exit_code(ERR_CONFIG), 4);
    assert_int_equal(err_exit_code(-99), 1);
    for (int code = ERR_AGAIN; code >= ERR_FENCED; code--) { /* the table has every code */
        assert_string_not_equal(err_name(code), "UNKNOWN");
        assert_in_range(err_http_status(code), 400, 599);
        assert_in_range(err_exit_code(code), 1, 4);
    }
}

static void check_aborts(void **state)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL);
        dup2(fds[1], STDERR_FILENO);
        CHECK(1 + 1 == 3);
        _exit(0);
    }
    close(fds[1]);
    char text[256] = "";
    assert_true(read(fds[0], text, sizeof text - 1) > 0);
    close(fds[0]);
    int status;
    waitpid(pid, &status, 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(text, "base_err_test.c"));
    assert_non_null(strstr(text, "1 + 1 == 3"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets),     cmocka_unit_test(cuts), cmocka_unit_test(system_errors),
        cmocka_unit_test(prefixes), cmocka_unit_test(maps), cmocka_unit_test(check_aborts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
