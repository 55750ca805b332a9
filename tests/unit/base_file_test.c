/* base_file_test.c - whole reads under a cap, publishing by rename, private folders, removal that follows no link. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char root[PATH_MAX / 2];

static int set_up(void **state)
{
    snprintf(root, sizeof root, "/tmp/base_file_test.XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state)
{
    return dir_remove(root, NULL);
}

static const char *in_root(const char *name)
{
    static char paths[4][PATH_MAX];
    static int turn;
    char *p = paths[turn++ % 4];
    snprintf(p, PATH_MAX, "%s/%s", root, name);
    return p;
}

static unsigned count_entries(const char *path)
{
    unsigned n = 0;
    DIR *d = opendir(path);
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

static void publishes(void **state)
{
    const char *path = in_root("f");
    struct stat st;
    assert_int_equal(file_publish(path, "one", 3, 0600, NULL), 0);
    assert_int_equal(file_publish(path, "other", 5, 0640, NULL), 0);
    struct buf b;
    buf_init(&b, 100);
    assert_int_equal(file_read(path, &b, NULL), 0);
    assert_string_equal(buf_cstr(&b), "other");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_int_equal(count_entries(root), 1); /* nothing temporary is left */
    /* a link at the target is replaced, what it points to is not written */
    assert_int_equal(symlink(path, in_root("link")), 0);
    assert_int_equal(file_publish(in_root("link"), "x", 1, 0600, NULL), 0);
    buf_reset(&b);
    assert_int_equal(file_read(path, &b, NULL), 0);
    assert_string_equal(buf_cstr(&b), "other");
    struct err e = ERR_INIT;
    assert_int_equal(file_publish(in_root("none/f"), "x", 1, 0600, &e), ERR_SYS);
    assert_non_null(strstr(e.text, "none/f"));
    /* a folder at the target: refused, and nothing is left */
    assert_int_equal(mkdir(in_root("dir"), 0700), 0);
    assert_int_equal(file_publish(in_root("dir"), "x", 1, 0600, NULL), ERR_SYS);
    assert_int_equal(count_entries(root), 3);
    buf_fini(&b);
}

static void reads_under_a_cap(void **state)
{
    size_t n = 200000;
    uint8_t *data = malloc(n);
    for (size_t i = 0; i < n; i++)
        data[i] = (uint8_t)(i * 7);
    assert_int_equal(file_publish(in_root("big"), data, n, 0600, NULL), 0);
    static const long long SPARE[] = {1000000, 1, 0, -1, -199999};
    for (size_t i = 0; i < sizeof SPARE / sizeof SPARE[0]; i++) {
        struct buf b;
        struct err e = ERR_INIT;
        buf_init(&b, (size_t)((long long)n + SPARE[i]));
        int rc = file_read(in_root("big"), &b, &e);
        if (SPARE[i] >= 0) {
            assert_int_equal(rc, 0);
            assert_true(buf_ok(&b));
            assert_int_equal(b.len, n);
            assert_memory_equal(b.data, data, n);
        } else {
            assert_int_equal(rc, ERR_LIMIT);
            assert_non_null(strstr(e.text, "big"));
        }
        buf_fini(&b);
    }
    free(data);
    struct buf b;
    buf_init(&b, 10);
    buf_puts(&b, "ab"); /* appends */
    assert_int_equal(file_publish(in_root("s"), "cd", 2, 0600, NULL), 0);
    assert_int_equal(file_read(in_root("s"), &b, NULL), 0);
    assert_string_equal(buf_cstr(&b), "abcd");
    assert_int_equal(file_read(in_root("none"), &b, NULL), ERR_SYS);
    assert_int_equal(file_read(root, &b, NULL), ERR_SYS); /* a folder */
    buf_fini(&b);
}

static void makes_folders(void **state)
{
    struct stat st;
    assert_int_equal(dir_make(in_root("a/b/c"), NULL), 0);
    assert_int_equal(dir_make(in_root("a/b/c"), NULL), 0);
    assert_int_equal(stat(in_root("a/b"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(file_publish(in_root("plain"), "", 0, 0600, NULL), 0);
    assert_int_equal(dir_make(in_root("plain/x"), NULL), ERR_SYS);
}

static void private_folders(void **state)
{
    struct stat st;
    struct err e = ERR_INIT;
    assert_int_equal(dir_make_private(in_root("p"), NULL), 0);
    assert_int_equal(chmod(in_root("p"), 0755), 0);
    assert_int_equal(dir_make_private(in_root("p"), NULL), 0); /* ours, and empty: tightened */
    assert_int_equal(stat(in_root("p"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    /* a folder that others use (EXASERVE_CACHE=$HOME): closing it would lock them out */
    assert_int_equal(mkdir(in_root("used"), 0755), 0);
    assert_int_equal(chmod(in_root("used"), 0755), 0);
    assert_int_equal(file_publish(in_root("used/f"), "", 0, 0644, NULL), 0);
    assert_int_equal(dir_make_private(in_root("used"), &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "0755"));
    assert_int_equal(stat(in_root("used"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0755);
    assert_int_equal(dir_keep_private(in_root("used"), &e), 0); /* by its name ours alone */
    assert_int_equal(stat(in_root("used"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(symlink(in_root("p"), in_root("l")), 0);
    assert_int_equal(dir_make_private(in_root("l"), &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "symbolic link"));
    assert_int_equal(file_publish(in_root("f"), "", 0, 0600, NULL), 0);
    assert_int_not_equal(dir_make_private(in_root("f"), NULL), 0);
    if (geteuid() == 0) { /* only root can give a folder away */
        assert_int_equal(mkdir(in_root("other"), 0700), 0);
        assert_int_equal(chown(in_root("other"), 12345, 12345), 0);
        assert_int_equal(dir_make_private(in_root("other"), &e), ERR_CONFIG);
        assert_non_null(strstr(e.text, "12345"));
    }
}

static void removes_trees(void **state)
{
    assert_int_equal(dir_make(in_root("keep"), NULL), 0);
    assert_int_equal(file_publish(in_root("keep/f"), "x", 1, 0600, NULL), 0);
    assert_int_equal(dir_make(in_root("tree/a/b"), NULL), 0);
    assert_int_equal(file_publish(in_root("tree/a/f"), "x", 1, 0600, NULL), 0);
    assert_int_equal(symlink(in_root("keep"), in_root("tree/a/link")), 0);
    assert_int_equal(dir_remove(in_root("tree"), NULL), 0);
    assert_int_equal(access(in_root("tree"), F_OK), -1);
    assert_int_equal(access(in_root("keep/f"), F_OK), 0);
    assert_int_equal(dir_remove(in_root("tree"), NULL), 0); /* missing is fine */
}

static void paths(void **state)
{
    char out[8];
    struct err e = ERR_INIT;
    assert_int_equal(path_join(out, sizeof out, &e, "%s/%d", "abcd", 12), 0);
    assert_string_equal(out, "abcd/12");
    assert_int_equal(path_join(out, sizeof out, &e, "%s/%d", "abcd", 123), ERR_LIMIT);
    char self[PATH_MAX], exe[PATH_MAX];
    assert_int_equal(file_self_dir(self, sizeof self, NULL), 0);
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    assert_true(n > 0);
    exe[n] = 0;
    assert_memory_equal(exe, self, strlen(self));
    assert_int_equal(exe[strlen(self)], '/');
    assert_int_equal(file_self_dir(out, sizeof out, NULL), ERR_LIMIT);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(publishes),       CASE(reads_under_a_cap), CASE(makes_folders),
        CASE(private_folders), CASE(removes_trees),     CASE(paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
