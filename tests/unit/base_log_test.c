/* base_log_test.c - one line an event, whatever the text holds; levels; threads. */
#include "base/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char text[1 << 20];
static int saved_fd, file_fd;

static int capture(void **state)
{
    FILE *f = tmpfile();
    file_fd = dup(fileno(f));
    fclose(f);
    saved_fd = dup(STDERR_FILENO);
    dup2(file_fd, STDERR_FILENO);
    return 0;
}

static const char *captured(void)
{
    ssize_t n = pread(file_fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    return text;
}

static int restore(void **state)
{
    dup2(saved_fd, STDERR_FILENO);
    close(saved_fd);
    close(file_fd);
    return 0;
}

static bool matches(const char *line, const char *pattern)
{
    regex_t re;
    assert_int_equal(regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB), 0);
    bool yes = regexec(&re, line, 0, NULL, 0) == 0;
    regfree(&re);
    return yes;
}

#define STAMP "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3} "

static void one_line(void **state)
{
    unsetenv("EXASERVE_LOG");
    log_init("worker", 7);
    log_info("store: kept %d key=%s", 3, "x");
    log_debug("not shown");
    assert_true(matches(captured(), STAMP "I worker/7 store: kept 3 key=x\n$"));
    assert_false(log_enabled(LOG_DEBUG));
}

static void no_rank_and_controls(void **state)
{
    log_init("cli", -1);
    log_error("two\nlines\tand \x1b[31m colour");
    assert_true(matches(captured(), STAMP "E cli two lines and  \\[31m colour\n$"));
}

static void levels(void **state)
{
    setenv("EXASERVE_LOG", "error", 1);
    log_init("cli", -1);
    log_warn("hidden");
    assert_string_equal(captured(), "");
    setenv("EXASERVE_LOG", "debug", 1);
    log_init("cli", -1);
    log_debug("seen");
    assert_non_null(strstr(captured(), " D cli seen\n"));
    setenv("EXASERVE_LOG", "info", 1);
    log_init("cli", -1);
}

static void long_lines_are_cut(void **state)
{
    char *longest = malloc(10000);
    memset(longest, 'a', 9999);
    longest[9999] = 0;
    log_init("cli", -1);
    log_info("%s", longest);
    free(longest);
    size_t n = strlen(captured());
    assert_true(n > 1000 && n <= 2048);
    assert_int_equal(text[n - 1], '\n');
    assert_ptr_equal(strchr(text, '\n'), text + n - 1);
}

enum { N_THREADS = 4, N_LINES = 500 };

static void *writer(void *arg)
{
    for (int i = 0; i < N_LINES; i++)
        log_info("from %c %04d end", (char)(uintptr_t)arg, i);
    return NULL;
}

static void threads_do_not_mix(void **state)
{
    pthread_t threads[N_THREADS];
    log_init("t", 0);
    for (uintptr_t i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, writer, (void *)('a' + i)), 0);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    captured();
    int n = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), n++)
        assert_true(matches(line, STAMP "I t/0 from [a-d] [0-9]{4} end$"));
    assert_int_equal(n, N_THREADS * N_LINES);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, capture, restore)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(one_line),           CASE(no_rank_and_controls), CASE(levels),
        CASE(long_lines_are_cut), CASE(threads_do_not_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
