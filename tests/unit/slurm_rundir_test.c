/* slurm_rundir_test.c - the run directory is private, keeps its secret and key, and is found again. */
#include "base/buf.h"
#include "base/file.h"
#include "slurm/endpoint.h"
#include "slurm/fault.h"
#include "slurm/owner.h"
#include "slurm/rundir.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
/* cmocka needs these before it */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static char base[256];

static int setup(void **state)
{
    snprintf(base, sizeof base, "/tmp/exa-rundir-test-XXXXXX");
    assert_non_null(mkdtemp(base));
    setenv("EXASERVE_RUN_DIR", base, 1);
    unsetenv("SLURM_JOB_ID");
    unsetenv("SLURM_CLUSTER_NAME");
    return 0;
}

static int teardown(void **state)
{
    return dir_remove(base, NULL);
}

static void make(char *path, size_t cap, const char *cluster, const char *job)
{
    struct err e = ERR_INIT;
    assert_int_equal(rundir_path(path, cap, cluster, job, NULL), 0);
    if (rundir_create(path, &e))
        fail_msg("%s", e.text);
}

static unsigned mode_of(const char *dir, const char *name)
{
    char path[RUNDIR_PATH_BYTES];
    struct stat st;
    snprintf(path, sizeof path, "%s%s%s", dir, name ? "/" : "", name ? name : "");
    assert_int_equal(lstat(path, &st), 0);
    return st.st_mode & 07777;
}

static void base_and_paths(void **state)
{
    char out[RUNDIR_PATH_BYTES];
    struct err e = ERR_INIT;
    assert_int_equal(rundir_base(out, sizeof out, NULL), 0);
    assert_string_equal(out, base);
    setenv("EXASERVE_RUN_DIR", "relative", 1);
    assert_int_equal(rundir_base(out, sizeof out, &e), ERR_CONFIG);
    unsetenv("EXASERVE_RUN_DIR");
    setenv("HOME", "/home/someone", 1);
    assert_int_equal(rundir_path(out, sizeof out, "vc", "17", NULL), 0);
    assert_string_equal(out, "/home/someone/.exaserve/vc/17");
    static const char *const BAD[] = {"", ".", "..", "a/b", "../x", "a b", "x\n", ".hidden"};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        assert_int_equal(rundir_path(out, sizeof out, "vc", BAD[i], NULL), ERR_CONFIG);
        assert_int_equal(rundir_path(out, sizeof out, BAD[i], "1", NULL), ERR_CONFIG);
    }
    char small[8];
    assert_int_equal(rundir_path(small, sizeof small, "vc", "17", NULL), ERR_LIMIT);
}

static void private_and_kept(void **state)
{
    char dir[RUNDIR_PATH_BYTES], key[80], again[80];
    uint8_t secret[32], secret2[32];
    umask(0);
    make(dir, sizeof dir, "vc", "17");
    assert_int_equal(mode_of(dir, NULL), 0700);
    assert_int_equal(mode_of(dir, ".."), 0700);
    assert_int_equal(mode_of(dir, "secret"), 0600);
    assert_int_equal(mode_of(dir, "key"), 0600);
    assert_int_equal(rundir_key(dir, key, sizeof key, NULL), 0);
    assert_memory_equal(key, "sk-exa-", 7);
    assert_int_equal(strlen(key), 7 + 48);
    assert_int_equal(rundir_secret(dir, secret, NULL), 0);
    make(dir, sizeof dir, "vc", "17");
    assert_int_equal(rundir_key(dir, again, sizeof again, NULL), 0);
    assert_string_equal(key, again);
    assert_int_equal(rundir_secret(dir, secret2, NULL), 0);
    assert_memory_equal(secret, secret2, 32);
    make(dir, sizeof dir, "vc", "18");
    assert_int_equal(rundir_key(dir, again, sizeof again, NULL), 0);
    assert_string_not_equal(key, again);
    char small[10];
    assert_int_equal(rundir_key(dir, small, sizeof small, NULL), ERR_LIMIT);
    /* a run directory that others could enter is made private again */
    assert_int_equal(chmod(dir, 0755), 0);
    make(dir, sizeof dir, "vc", "18");
    assert_int_equal(mode_of(dir, NULL), 0700);
}

static void *create_again(void *arg)
{
    for (int i = 0; i < 20; i++)
        rundir_create(arg, NULL);
    return NULL;
}

static void two_creators_agree(void **state)
{
    for (int round = 0; round < 10; round++) {
        char dir[RUNDIR_PATH_BYTES], job[16], first[80], last[80];
        snprintf(job, sizeof job, "%d", 100 + round);
        assert_int_equal(rundir_path(dir, sizeof dir, "vc", job, NULL), 0);
        pid_t child = fork();
        if (child == 0) {
            create_again(dir);
            _exit(0);
        }
        struct err e = ERR_INIT;
        if (rundir_create(dir, &e))
            fail_msg("%s", e.text);
        assert_int_equal(rundir_key(dir, first, sizeof first, NULL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        assert_int_equal(rundir_key(dir, last, sizeof last, NULL), 0);
        assert_string_equal(first, last);
    }
}

static void refuses_what_is_not_ours_alone(void **state)
{
    char dir[RUNDIR_PATH_BYTES], file[RUNDIR_PATH_BYTES + 16], other[RUNDIR_PATH_BYTES + 16],
        key[80];
    struct err e = ERR_INIT;
    make(dir, sizeof dir, "vc", "1");
    snprintf(file, sizeof file, "%s/key", dir);
    snprintf(other, sizeof other, "%s/elsewhere", dir);
    /* open to the group */
    assert_int_equal(chmod(file, 0640), 0);
    assert_int_equal(rundir_key(dir, key, sizeof key, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "0600"));
    assert_int_equal(rundir_create(dir, &e), ERR_CONFIG);
    assert_int_equal(chmod(file, 0600), 0);
    assert_int_equal(rundir_key(dir, key, sizeof key, &e), 0);
    /* a link in its place */
    assert_int_equal(rename(file, other), 0);
    assert_int_equal(symlink(other, file), 0);
    assert_int_equal(rundir_key(dir, key, sizeof key, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "link"));
    assert_int_equal(rundir_create(dir, &e), ERR_CONFIG);
    unlink(file);
    /* a pipe: must not hang */
    assert_int_equal(mkfifo(file, 0600), 0);
    assert_int_equal(rundir_key(dir, key, sizeof key, &e), ERR_CONFIG);
    unlink(file);
    assert_int_equal(rundir_key(dir, key, sizeof key, &e), ERR_AGAIN);
    /* not a key */
    assert_int_equal(file_publish(file, "sk-exa-xyz\n", 11, 0600, NULL), 0);
    assert_int_equal(rundir_key(dir, key, sizeof key, &e), ERR_FORMAT);
    snprintf(file, sizeof file, "%s/secret", dir);
    assert_int_equal(file_publish(file, "1234\n", 5, 0600, NULL), 0);
    uint8_t secret[32];
    assert_int_equal(rundir_secret(dir, secret, &e), ERR_FORMAT);
    /* somebody else's (only root can make one) */
    if (geteuid() == 0) {
        assert_int_equal(chown(file, 12345, 0), 0);
        assert_int_equal(rundir_secret(dir, secret, &e), ERR_CONFIG);
        assert_non_null(strstr(e.text, "12345"));
        assert_int_equal(chown(dir, 12345, 0), 0);
        assert_int_equal(rundir_create(dir, &e), ERR_CONFIG);
    }
    /* the run directory itself, or its parent, is a link */
    char link_to[RUNDIR_PATH_BYTES], path[RUNDIR_PATH_BYTES];
    make(dir, sizeof dir, "vc", "2");
    snprintf(link_to, sizeof link_to, "%s/vc/3", base);
    assert_int_equal(symlink(dir, link_to), 0);
    assert_int_equal(rundir_create(link_to, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "symbolic link"));
    snprintf(link_to, sizeof link_to, "%s/vcl", base);
    snprintf(path, sizeof path, "%s/vc", base);
    assert_int_equal(symlink(path, link_to), 0);
    assert_int_equal(rundir_path(path, sizeof path, "vcl", "9", NULL), 0);
    assert_int_equal(rundir_create(path, &e), ERR_CONFIG);
}

static void fill(struct endpoint *p, const char *state)
{
    memset(p, 0, sizeof *p);
    strcpy(p->job, "17");
    strcpy(p->cluster, "vc");
    strcpy(p->name, "svc");
    strcpy(p->state, state);
    strcpy(p->progress, "3 of 4 replicas are \"ready\" – ok");
    strcpy(p->key, "sk-exa-00");
    strcpy(p->model, "org/model");
    p->n_urls = 2;
    strcpy(p->urls[0], "http://n1:1234");
    strcpy(p->urls[1], "http://[::1]:99");
    p->n_ready = 3;
    p->n_wanted = 4;
    p->n_min = 3;
    p->attempt = 2;
    p->updated_wall_s = 1796000000;
    p->end_wall_s = 5000000000;
}

static void endpoint_round_trip(void **state)
{
    char dir[RUNDIR_PATH_BYTES];
    make(dir, sizeof dir, "vc", "17");
    struct endpoint a, b, untouched;
    memset(&b, 7, sizeof b);
    untouched = b;
    struct err e = ERR_INIT;
    assert_int_equal(endpoint_read(dir, &b, &e), ERR_AGAIN);
    assert_memory_equal(&b, &untouched, sizeof b);
    fill(&a, "DEGRADED");
    assert_int_equal(endpoint_write(dir, &a, &e), 0);
    assert_int_equal(mode_of(dir, "endpoint.json"), 0600);
    if (endpoint_read(dir, &b, &e))
        fail_msg("%s", e.text);
    assert_memory_equal(&a, &b, sizeof a);
    /* a sentence that was cut inside a character stays readable */
    memset(a.progress, 'x', sizeof a.progress);
    memcpy(a.progress + sizeof a.progress - 3, "\xe2\x80", 3);
    assert_int_equal(endpoint_write(dir, &a, &e), 0);
    assert_int_equal(endpoint_read(dir, &b, &e), 0);
    assert_int_equal(strlen(b.progress), sizeof a.progress - 3);
    /* as does one with such a cut in its midst: a quoted error, shortened */
    strcpy(a.progress, "1 on n3 (no /caf\xc3), 2 on n4 (lost) \xe2\x80\xa6");
    assert_int_equal(endpoint_write(dir, &a, &e), 0);
    assert_int_equal(endpoint_read(dir, &b, &e), 0);
    assert_string_equal(b.progress, "1 on n3 (no /caf?), 2 on n4 (lost) ???");
    /* open to others: the key would leak */
    char file[RUNDIR_PATH_BYTES + 16];
    snprintf(file, sizeof file, "%s/endpoint.json", dir);
    assert_int_equal(chmod(file, 0644), 0);
    assert_int_equal(endpoint_read(dir, &b, &e), ERR_CONFIG);
}

static void endpoint_refuses_damage(void **state)
{
    char dir[RUNDIR_PATH_BYTES], file[RUNDIR_PATH_BYTES + 16];
    make(dir, sizeof dir, "vc", "17");
    snprintf(file, sizeof file, "%s/endpoint.json", dir);
    struct endpoint a, b;
    struct err e = ERR_INIT;
    fill(&a, "READY");
    assert_int_equal(endpoint_write(dir, &a, &e), 0);
    struct buf good;
    buf_init(&good, 1 << 20);
    assert_int_equal(file_read(file, &good, NULL), 0);
    for (size_t n = 0; n + 1 < good.len; n += 7) { /* cut anywhere */
        assert_int_equal(file_publish(file, good.data, n, 0600, NULL), 0);
        assert_int_equal(endpoint_read(dir, &b, &e), ERR_FORMAT);
    }
    static const struct {
        const char *from, *to;
    } EDITS[] = {{"\"version\": 1", "\"version\": 9"}, {"\"n_ready\": 3", "\"n_ready\": -"},
                 {"\"n_ready\": 3", "\"n_ready\":-3"}, {"\"state\"", "\"stare\""},
                 {"http://n1", "gopher://"},           {"\"urls\": [", "\"urls\": {"},
                 {"\"n_min\": 3", "\"n_min\":{}"}};
    for (size_t i = 0; i < sizeof EDITS / sizeof EDITS[0]; i++) {
        char *text = strdup(buf_cstr(&good)), *at = strstr(text, EDITS[i].from);
        assert_non_null(at);
        memcpy(at, EDITS[i].to, strlen(EDITS[i].to));
        assert_int_equal(file_publish(file, text, strlen(text), 0600, NULL), 0);
        assert_int_equal(endpoint_read(dir, &b, &e), ERR_FORMAT);
        free(text);
    }
    char *big = calloc(1, 1 << 20);
    memset(big, ' ', (1 << 20) - 1);
    assert_int_equal(file_publish(file, big, 1 << 20, 0600, NULL), 0);
    assert_int_equal(endpoint_read(dir, &b, &e), ERR_FORMAT);
    free(big);
    buf_fini(&good);
}

/* The start time of a job is that of its key. */
static void started(const char *dir, long when)
{
    char file[RUNDIR_PATH_BYTES + 16];
    snprintf(file, sizeof file, "%s/key", dir);
    struct timespec t[2] = {{when, 0}, {when, 0}};
    assert_int_equal(utimensat(AT_FDCWD, file, t, 0), 0);
}

static void finds_the_newest(void **state)
{
    char a[RUNDIR_PATH_BYTES], b[RUNDIR_PATH_BYTES], c[RUNDIR_PATH_BYTES], out[RUNDIR_PATH_BYTES];
    struct err e = ERR_INIT;
    assert_int_equal(rundir_find(NULL, out, sizeof out, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "no job of yours"));
    setenv("PATH", "/nonexistent", 1); /* no squeue to ask */
    make(a, sizeof a, "vc", "7");
    make(b, sizeof b, "other", "8");
    make(c, sizeof c, "local", "9");
    started(a, 1000);
    started(b, 3000);
    started(c, 2000);
    assert_int_equal(rundir_find(NULL, out, sizeof out, &e), 0);
    assert_string_equal(out, b); /* nobody knows of a running one: the newest */
    assert_int_equal(owner_write(c, &e), 0);
    assert_int_equal(rundir_find(NULL, out, sizeof out, &e), 0);
    assert_string_equal(out, c); /* the one that runs */
    struct endpoint p;
    fill(&p, "STOPPED");
    assert_int_equal(endpoint_write(c, &p, &e), 0);
    assert_int_equal(rundir_find(NULL, out, sizeof out, &e), 0);
    assert_string_equal(out, b); /* it said that it is over */
    assert_int_equal(rundir_find("7", out, sizeof out, &e), 0);
    assert_string_equal(out, a);
    assert_int_equal(rundir_find("70", out, sizeof out, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "no job 70 of yours"));
    assert_int_equal(rundir_find("../7", out, sizeof out, &e), ERR_CONFIG);
    setenv("SLURM_JOB_ID", "7", 1); /* inside a job: that one */
    assert_int_equal(rundir_find(NULL, out, sizeof out, &e), 0);
    assert_string_equal(out, a);
}

static void owner_is_this_process_only(void **state)
{
    char dir[RUNDIR_PATH_BYTES], file[RUNDIR_PATH_BYTES + 16];
    struct err e = ERR_INIT;
    pid_t pid = 0;
    make(dir, sizeof dir, "local", "1");
    assert_int_equal(owner_find(dir, &pid, &e), ERR_AGAIN);
    assert_int_equal(owner_write(dir, &e), 0);
    assert_int_equal(owner_find(dir, &pid, &e), 0);
    assert_int_equal(pid, getpid());
    /* another process got the pid of one that is gone */
    snprintf(file, sizeof file, "%s/owner", dir);
    char text[128];
    snprintf(text, sizeof text, "%d 1 00000000-0000-0000-0000-000000000000\n", (int)getpid());
    assert_int_equal(file_publish(file, text, strlen(text), 0600, NULL), 0);
    assert_int_equal(owner_find(dir, &pid, &e), ERR_AGAIN);
    static const char *const BAD[] = {"", "x\n", "1 1 a\n", "-5 1 a\n"};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(file_publish(file, BAD[i], strlen(BAD[i]), 0600, NULL), 0);
        assert_int_equal(owner_find(dir, &pid, &e), ERR_FORMAT);
    }
}

static void a_rank_leaves_word(void **state)
{
    char dir[RUNDIR_PATH_BYTES], host[FAULT_HOST_BYTES];
    struct err why = ERR_INIT, e = ERR_INIT;
    make(dir, sizeof dir, "vc", "9");
    assert_int_equal(fault_read(dir, host, &why), ERR_AGAIN);
    err_set(&e, ERR_CONFIG, "cannot listen on 0.0.0.0 port 80: 100 %% taken");
    assert_int_equal(fault_write(dir, "n7", "router 1", &e, NULL), 0);
    assert_int_equal(fault_read(dir, host, &why), 0);
    assert_string_equal(host, "n7");
    assert_int_equal(why.code, ERR_CONFIG);
    assert_string_equal(why.text, "router 1 on n7: cannot listen on 0.0.0.0 port 80: 100 % taken");
    char file[RUNDIR_PATH_BYTES + 16];
    static const char *const BAD[] = {"", "\n", "-6\n", "-6 n7\n", "7 n7 fine\n"};
    snprintf(file, sizeof file, "%s/fault", dir);
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        assert_int_equal(file_publish(file, BAD[i], strlen(BAD[i]), 0600, NULL), 0);
        assert_int_equal(fault_read(dir, host, &why), ERR_AGAIN);
    }
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(base_and_paths),      T(private_and_kept),
        T(two_creators_agree),  T(refuses_what_is_not_ours_alone),
        T(endpoint_round_trip), T(endpoint_refuses_damage),
        T(finds_the_newest),    T(owner_is_this_process_only),
        T(a_rank_leaves_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
