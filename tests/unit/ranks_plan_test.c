/* What the job script asks for before the world exists: nodes as srun prints them in, layout and host file out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/file.h"
#include "config/config.h"
#include "mpi/layout.h"
#include "ranks/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[128], yaml[160], nodes[160], run[160];

static void put(const char *path, const char *text)
{
    struct err e = ERR_INIT;
    assert_int_equal(file_publish(path, text, strlen(text), 0600, &e), 0);
}

static int setup(void **state)
{
    snprintf(dir, sizeof dir, "/tmp/exa-plan-test-XXXXXX");
    assert_non_null(mkdtemp(dir));
    setenv("EXASERVE_RUN_DIR", dir, 1);
    snprintf(yaml, sizeof yaml, "%s/s.yaml", dir);
    snprintf(nodes, sizeof nodes, "%s/nodes", dir);
    snprintf(run, sizeof run, "%s/run", dir);
    put(yaml, "models:\n  - pack: m.h5\n");
    return 0;
}

static int teardown(void **state)
{
    return dir_remove(dir, NULL);
}

/* plan_make with its standard output into a file: the job script reads two numbers there. */
static int plan(const char *exclude, struct layout *l, unsigned *n_ranks, unsigned *n_nodes,
                struct err *e)
{
    char out[200], json[200];
    snprintf(out, sizeof out, "%s/out", dir);
    fflush(stdout);
    int saved = dup(STDOUT_FILENO);
    assert_non_null(freopen(out, "w", stdout));
    int rc = plan_make(yaml, run, 2, nodes, exclude, e);
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    memset(l, 0, sizeof *l);
    if (rc)
        return rc;
    FILE *f = fopen(out, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%u %u", n_ranks, n_nodes), 2);
    fclose(f);
    snprintf(json, sizeof json, "%s/attempt-2/layout.json", run);
    assert_int_equal(layout_read(l, json, e), 0);
    return 0;
}

static void test_prepare_makes_a_private_folder(void **state)
{
    struct err e = ERR_INIT;
    struct stat st;
    struct config *c;
    char file[200];
    assert_int_equal(plan_prepare(yaml, run, &e), 0);
    assert_int_equal(stat(run, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    static const char *const FILES[] = {"secret", "key", "serve.yaml"};
    for (int i = 0; i < 3; i++) {
        snprintf(file, sizeof file, "%s/%s", run, FILES[i]);
        assert_int_equal(stat(file, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
    }
    /* the copy says where the pack is, whoever reads it from wherever */
    snprintf(file, sizeof file, "%s/serve.yaml", run);
    assert_int_equal(config_load(&c, file, &e), 0);
    snprintf(file, sizeof file, "%s/m.h5", dir);
    assert_string_equal(c->models[0].pack, file);
    config_free(c);
    put(yaml, "modles: []\n");
    assert_int_equal(plan_prepare(yaml, run, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "s.yaml:1: unknown key \"modles\""));
}

static void test_srun_mixes_other_lines_in(void **state)
{
    struct err e = ERR_INIT;
    struct layout l;
    unsigned n_ranks, n_nodes;
    assert_int_equal(plan_prepare(yaml, run, &e), 0);
    put(nodes, "srun: job 7 queued\nEXASERVE-NODE n10 r1 z1\nwelcome to n2\n"
               "EXASERVE-NODE n2 r0 z1\nEXASERVE-NODE n1 r0 -\n");
    assert_int_equal(plan(NULL, &l, &n_ranks, &n_nodes, &e), 0);
    assert_int_equal(n_nodes, 3);
    assert_int_equal(n_ranks, l.n_ranks);
    assert_string_equal(l.nodes[0].host, "n1"); /* as people count: n2 before n10 */
    assert_string_equal(l.nodes[1].host, "n2");
    assert_string_equal(l.nodes[2].host, "n10");
    assert_string_equal(l.nodes[0].zone, "");
    assert_int_equal(l.n_racks, 2);
    layout_fini(&l);
    /* the host file has a line for each rank, which is what srun starts them by */
    char file[200];
    struct buf b;
    unsigned lines = 0;
    buf_init(&b, 4096);
    snprintf(file, sizeof file, "%s/attempt-2/hosts", run);
    assert_int_equal(file_read(file, &b, &e), 0);
    for (size_t i = 0; i < b.len; i++)
        lines += b.data[i] == '\n';
    assert_int_equal(lines, n_ranks);
    buf_fini(&b);
}

static void test_exclusion_is_by_whole_names(void **state)
{
    struct err e = ERR_INIT;
    struct layout l;
    unsigned n_ranks, n_nodes;
    assert_int_equal(plan_prepare(yaml, run, &e), 0);
    put(nodes, "n1 - -\nn10 - -\nn100 - -\nn2\n");
    assert_int_equal(plan("n10,n3", &l, &n_ranks, &n_nodes, &e), 0);
    assert_int_equal(n_nodes, 3);
    assert_string_equal(l.nodes[0].host, "n1");
    assert_string_equal(l.nodes[2].host, "n100");
    layout_fini(&l);
    assert_int_equal(plan("n1,n10,n100,n2", &l, &n_ranks, &n_nodes, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "names no node"));
    put(nodes, "n1\nn1\n");
    assert_int_equal(plan(NULL, &l, &n_ranks, &n_nodes, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "n1 is named twice"));
}

/* Where the world is smaller than wished, it is said before anything is started. */
static void test_wishes_that_do_not_fit(void **state)
{
    struct err e = ERR_INIT;
    struct layout l;
    unsigned n_ranks, n_nodes;
    put(yaml, "models:\n  - pack: m.h5\ncontrol: dedicated\n");
    assert_int_equal(plan_prepare(yaml, run, &e), 0);
    put(nodes, "n1\nn2\n");
    assert_int_equal(plan(NULL, &l, &n_ranks, &n_nodes, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "dedicated needs"));
    put(yaml, "models:\n  - pack: m.h5\nrouters: 2\n");
    put(nodes, "n1\n");
    assert_int_equal(plan(NULL, &l, &n_ranks, &n_nodes, &e), ERR_CONFIG);
    assert_string_equal(e.text, "2 routers asked for, but there are 1 nodes");
}

/* What `submit` lets through, the job can lay out: config/check.c counts as mpi/layout.c does. */
static void test_submit_and_job_agree(void **state)
{
    static const char *const WISHES[] = {"control: dedicated\n",
                                         "control: dedicated\nrouters: 1\n",
                                         "control: dedicated\nrouters: 1\nstandbys: no\n",
                                         "control: dedicated\nrouters: 5\n",
                                         "routers: 3\n",
                                         ""};
    struct layout_node *all = calloc(70, sizeof *all);
    for (int i = 0; i < 70; i++)
        snprintf(all[i].host, sizeof all[i].host, "n%d", i);
    for (size_t i = 0; i < sizeof WISHES / sizeof WISHES[0]; i++) {
        char text[200];
        snprintf(text, sizeof text, "models:\n  - pack: m.h5\n%s", WISHES[i]);
        put(yaml, text);
        for (uint32_t n = 1; n <= 70; n++) {
            struct config *c;
            struct layout l;
            struct err e = ERR_INIT;
            assert_int_equal(config_load(&c, yaml, &e), 0);
            struct layout_wish wish = {c->control == CONTROL_DEDICATED, c->routers, c->standbys};
            config_free(c);
            bool fits = layout_make(&l, all, n, &wish, &e) == 0;
            if (fits)
                layout_fini(&l);
            bool allowed = config_load_for(&c, yaml, n, &e) == 0;
            if (allowed)
                config_free(c);
            if (fits != allowed)
                fail_msg("%u nodes, %s: submit %s", n, WISHES[i], e.text);
        }
    }
    free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_prepare_makes_a_private_folder, setup, teardown),
        cmocka_unit_test_setup_teardown(test_srun_mixes_other_lines_in, setup, teardown),
        cmocka_unit_test_setup_teardown(test_exclusion_is_by_whole_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wishes_that_do_not_fit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_submit_and_job_agree, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
