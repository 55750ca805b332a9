/* slurm_job_test.c - the command lines for Slurm, what is read back from it, and the environment of a job. The commands are small
 * scripts that note their arguments. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "slurm/command.h"
#include "slurm/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
/* cmocka needs these before it */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static char dir[256];

static void script(const char *name, const char *body)
{
    char path[512], text[4096];
    snprintf(path, sizeof path, "%s/bin/%s", dir, name);
    int n = snprintf(text, sizeof text,
                     "#!/bin/sh\nfor a in \"$@\"; do echo \"$a\" >>%s/%s.args; done\n%s\n", dir,
                     name, body);
    assert_int_equal(file_publish(path, text, (size_t)n, 0755, NULL), 0);
}

/* The arguments a script got, one a line; forgotten then. */
static const char *args_of(const char *name)
{
    static char text[8192];
    char path[512];
    struct buf b;
    buf_init(&b, sizeof text);
    snprintf(path, sizeof path, "%s/%s.args", dir, name);
    text[0] = 0;
    if (file_read(path, &b, NULL) == 0)
        snprintf(text, sizeof text, "%s", buf_cstr(&b));
    buf_fini(&b);
    unlink(path);
    return text;
}

static void put(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(file_publish(path, text, strlen(text), 0644, NULL), 0);
}

static int setup(void **state)
{
    char path[600];
    snprintf(dir, sizeof dir, "/tmp/exa-job-test-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/bin", dir);
    assert_int_equal(dir_make(path, NULL), 0);
    snprintf(path, sizeof path, "%s/home/jobs", dir);
    assert_int_equal(dir_make(path, NULL), 0);
    put("home/jobs/serve.sbatch", "#!/bin/bash\n");
    snprintf(path, sizeof path, "%s/bin:/usr/bin:/bin", dir);
    setenv("PATH", path, 1);
    snprintf(path, sizeof path, "%s/home", dir);
    setenv("EXASERVE_HOME", path, 1);
    snprintf(path, sizeof path, "%s/run%%x", dir);
    setenv("EXASERVE_RUN_DIR", path, 1);
    static const char *const UNSET[] = {"SLURM_JOB_ID",        "SLURM_CLUSTER_NAME",
                                        "SLURM_RESTART_COUNT", "SLURM_JOB_END_TIME",
                                        "SLURM_TOPOLOGY_ADDR", "SLURM_TOPOLOGY_ADDR_PATTERN",
                                        "SLURM_TIME_FORMAT"};
    for (size_t i = 0; i < sizeof UNSET / sizeof UNSET[0]; i++)
        unsetenv(UNSET[i]);
    script("sinfo", "exit 1");
    script("scontrol", "printf 'Configuration data as of x\\nClusterName             = vc1\\n"
                       "JobId=1 JobState=FAILED ExitCode=3:0 x\\n'");
    return 0;
}

static int teardown(void **state)
{
    return dir_remove(dir, NULL);
}

static struct config *config_of(const char *yaml, char *path, size_t cap)
{
    snprintf(path, cap, "%s/a b.yaml", dir);
    assert_int_equal(file_publish(path, yaml, strlen(yaml), 0644, NULL), 0);
    struct config *c = NULL;
    struct err e = ERR_INIT;
    if (config_load(&c, path, &e))
        fail_msg("%s", e.text);
    return c;
}

static void submits_with_all_options(void **state)
{
    char path[512], id[32], want[4096];
    struct err e = ERR_INIT;
    struct config *c = config_of("name: svc\nmodels: [{pack: a.h5}]\n"
                                 "slurm: {nodes: 3, time: \"0:10:00\", partition: p, account: a,\n"
                                 "  qos: q, reservation: r, constraint: \"x&y\",\n"
                                 "  sbatch_args: [\"--comment=$(touch evil); 'x'\"]}\n",
                                 path, sizeof path);
    script("sbatch", "env | grep '^EXASERVE_HOME=' >>$0.env; echo warning >&2; echo '4711;vc1'");
    if (job_submit(c, path, 0, NULL, id, sizeof id, &e))
        fail_msg("%s", e.text);
    assert_string_equal(id, "4711");
    snprintf(want, sizeof want,
             "--parsable\n--job-name=svc\n--nodes=3\n--time=0:10:00\n--partition=p\n--account=a\n"
             "--qos=q\n--reservation=r\n--constraint=x&y\n--exclusive\n--no-kill\n"
             "--signal=B:TERM@120\n--output=%s/run%%%%x/vc1/%%j.log\n"
             "--comment=$(touch evil); 'x'\n%s/home/jobs/serve.sbatch\n%s\n",
             dir, dir, path);
    assert_string_equal(args_of("sbatch"), want);
    /* the folder of the log is there, and private */
    char folder[512];
    struct stat st;
    snprintf(folder, sizeof folder, "%s/run%%x/vc1", dir);
    assert_int_equal(stat(folder, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    /* command line over the file */
    assert_int_equal(job_submit(c, path, 8, "2-0", id, sizeof id, &e), 0);
    const char *args = args_of("sbatch");
    assert_non_null(strstr(args, "--nodes=8\n--time=2-0\n"));
    assert_non_null(strstr(args, "--signal=B:TERM@300\n"));
    assert_int_equal(job_submit(c, path, 0, "tomorrow", id, sizeof id, &e), ERR_CONFIG);
    assert_string_equal(args_of("sbatch"), "");
    /* for people: one line that a shell reads back as the same words */
    char line[4096];
    assert_int_equal(job_submit_command(c, path, 0, NULL, line, sizeof line, &e), 0);
    assert_non_null(strstr(line, "sbatch --parsable --job-name=svc --nodes=3"));
    assert_non_null(strstr(line, "'--comment=$(touch evil); '\\''x'\\'''"));
    assert_non_null(strstr(line, "'--constraint=x&y'"));
    assert_string_equal(args_of("sbatch"), "");
    int status = system(line); /* the script notes what the shell made of it */
    assert_int_equal(status, 0);
    assert_string_equal(args_of("sbatch"), want);
    char small[16];
    assert_int_equal(job_submit_command(c, path, 0, NULL, small, sizeof small, &e), ERR_LIMIT);
    config_free(c);
}

static void defaults_ask_for_little(void **state)
{
    char path[512], id[32];
    struct config *c =
        config_of("models: [{pack: a.h5}]\nslurm: {exclusive: false}\n", path, sizeof path);
    script("sbatch", "echo 12");
    assert_int_equal(job_submit(c, path, 0, NULL, id, sizeof id, NULL), 0);
    const char *args = args_of("sbatch");
    assert_null(strstr(args, "--time"));
    assert_null(strstr(args, "--partition"));
    assert_null(strstr(args, "--exclusive"));
    assert_non_null(strstr(args, "--nodes=1\n"));
    assert_non_null(strstr(args, "--signal=B:TERM@300\n"));
    config_free(c);
}

static void refusals_are_passed_on(void **state)
{
    char path[512], id[32] = "old";
    struct err e = ERR_INIT;
    struct config *c = config_of("models: [{pack: a.h5}]\n", path, sizeof path);
    script("sbatch",
           "echo 'sbatch: error: Batch job submission failed: too many nodes' >&2; exit 1");
    assert_int_equal(job_submit(c, path, 0, NULL, id, sizeof id, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "Batch job submission failed: too many nodes"));
    script("sbatch", "echo 'Submitted batch job 12'");
    assert_int_equal(job_submit(c, path, 0, NULL, id, sizeof id, &e), ERR_PROTO);
    assert_string_equal(id, "old");
    char file[512];
    snprintf(file, sizeof file, "%s/bin/sbatch", dir);
    unlink(file);
    setenv("PATH", "/nonexistent", 1);
    assert_int_equal(job_submit(c, path, 0, NULL, id, sizeof id, &e), ERR_SYS);
    assert_non_null(strstr(e.text, "sbatch was not found"));
    setenv("EXASERVE_HOME", "/nonexistent", 1);
    assert_int_equal(job_submit(c, path, 0, NULL, id, sizeof id, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "EXASERVE_HOME"));
    config_free(c);
}

static void more_nodes_than_exist(void **state)
{
    char path[512], id[32];
    struct err e = ERR_INIT;
    struct config *c = config_of("models: [{pack: a.h5}]\n", path, sizeof path);
    script("sbatch", "echo 12");
    script("sinfo", "echo 'small|2'; echo 'all*|8'; echo 'big|64'");
    assert_int_equal(job_submit(c, path, 8, NULL, id, sizeof id, &e), 0);
    args_of("sbatch");
    assert_int_equal(job_submit(c, path, 9, NULL, id, sizeof id, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "9 nodes are more than the default partition has (8)"));
    assert_string_equal(args_of("sbatch"), "");
    config_free(c);
    c = config_of("models: [{pack: a.h5}]\nslurm: {partition: \"small,big\"}\n", path, sizeof path);
    assert_int_equal(job_submit(c, path, 64, NULL, id, sizeof id, &e), 0);
    assert_int_equal(job_submit(c, path, 65, NULL, id, sizeof id, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "partition small,big has (64)"));
    config_free(c);
    c = config_of("models: [{pack: a.h5}]\nslurm: {sbatch_args: [--partition=x]}\n", path,
                  sizeof path);
    assert_int_equal(job_submit(c, path, 100, NULL, id, sizeof id, &e), 0); /* not ours to know */
    config_free(c);
    c = config_of("models: [{pack: a.h5}]\nslurm: {partition: unknown}\n", path, sizeof path);
    assert_int_equal(job_submit(c, path, 100, NULL, id, sizeof id, &e), 0); /* sbatch will say it */
    script("sinfo", "exit 1");
    assert_int_equal(job_submit(c, path, 100, NULL, id, sizeof id, &e), 0);
    config_free(c);
}

static void states_are_read(void **state)
{
    struct job_state s;
    struct err e = ERR_INIT;
    script("squeue", "[ \"$SLURM_TIME_FORMAT\" = %s ] || exit 9\n"
                     "echo '112|RUNNING|None|1796000000|n[1-3]'\n"
                     "echo '12|PENDING|Nodes required for job are DOWN, DRAINED|N/A|'\n"
                     "echo '13|FAILED|NonZeroExitCode|1796000001|n1'\n");
    if (job_query("12", &s, &e))
        fail_msg("%s", e.text);
    assert_string_equal(s.state, "PENDING");
    assert_string_equal(s.reason, "Nodes required for job are DOWN, DRAINED");
    assert_string_equal(s.nodes, "");
    assert_int_equal(s.end_wall_s, 0);
    assert_int_equal(job_query("112", &s, &e), 0);
    assert_string_equal(s.state, "RUNNING");
    assert_string_equal(s.reason, "");
    assert_string_equal(s.nodes, "n[1-3]");
    assert_int_equal(s.end_wall_s, 1796000000);
    assert_false(job_state_ended(s.state));
    assert_int_equal(job_query("13", &s, &e), 0);
    assert_true(job_state_ended(s.state));
    assert_int_equal(s.exit_code, 3);
    assert_int_equal(job_query("2", &s, &e), 0);
    assert_string_equal(s.state, "GONE");
    assert_true(job_state_ended(s.state));
    assert_int_equal(job_query("12; rm", &s, &e), ERR_CONFIG);
    script("squeue", "echo 'Unable to contact slurm controller' >&2; exit 1");
    assert_int_equal(job_query("12", &s, &e), ERR_AGAIN);
    assert_non_null(strstr(e.text, "Unable to contact"));
}

static void stop_by_state(void **state)
{
    script("scancel", "");
    script("squeue", "echo '5|RUNNING|None|1|n1'; echo '6|PENDING|Resources|N/A|'; "
                     "echo '7|COMPLETED|None|1|n1'");
    assert_int_equal(job_stop("5", NULL), 0);
    assert_string_equal(args_of("scancel"), "--batch\n--signal=TERM\n5\n");
    assert_int_equal(job_stop("6", NULL), 0); /* has no batch script to signal yet */
    assert_string_equal(args_of("scancel"), "6\n");
    assert_int_equal(job_stop("7", NULL), 0);
    assert_int_equal(job_stop("8", NULL), 0);
    assert_string_equal(args_of("scancel"), "");
    script("scancel", "echo no >&2; exit 1");
    assert_int_equal(job_stop("5", NULL), ERR_AGAIN);
}

static void commands_end_in_time(void **state)
{
    struct command_result r;
    struct err e = ERR_INIT;
    script("slow", "sleep 60 & echo $! >>$0.pid; sleep 60");
    const char *const slow[] = {"slow", NULL};
    const struct command c = {.argv = slow, .timeout_us = 1000 * 1000};
    uint64_t begin = clock_now_us();
    assert_int_equal(command_run(&r, &c, &e), ERR_TIMEOUT);
    assert_true(clock_now_us() - begin < 30 * 1000 * 1000);
    /* more output than a pipe holds, on both sides; a status; a child that outlives it and holds the pipes */
    script("loud",
           "head -c 300000 /dev/zero | tr '\\0' a\nhead -c 300000 /dev/zero | tr '\\0' b >&2\n"
           "sleep 3 &\nexit 7");
    const char *const loud[] = {"loud", NULL};
    const struct command d = {.argv = loud, .timeout_us = 60 * 1000 * 1000};
    begin = clock_now_us();
    assert_int_equal(command_run(&r, &d, &e), 0);
    assert_true(clock_now_us() - begin < 2900 * 1000);
    assert_int_equal(r.status, 7);
    assert_int_equal(r.out.len, 300000);
    assert_int_equal(r.err.len, 300000);
    command_result_fini(&r);
    script("dies", "kill -9 $$");
    const char *const dies[] = {"dies", NULL};
    const struct command k = {.argv = dies, .timeout_us = 60 * 1000 * 1000};
    assert_int_equal(command_run(&r, &k, &e), 0);
    assert_int_equal(r.status, 128 + 9);
    command_result_fini(&r);
}

static void allocation_and_topology(void **state)
{
    struct allocation a;
    char rack[64], zone[64];
    assert_false(allocation_read(&a));
    setenv("SLURM_JOB_ID", "77", 1);
    setenv("SLURM_RESTART_COUNT", "2", 1);
    script("squeue", "echo '77|RUNNING|None|1796000000|n1'");
    assert_true(allocation_read(&a));
    assert_string_equal(a.job, "77");
    assert_string_equal(a.cluster, "vc1"); /* asked of the controller */
    assert_int_equal(a.attempt, 2);
    assert_int_equal(a.end_wall_s, 1796000000);
    setenv("SLURM_CLUSTER_NAME", "big", 1);
    setenv("SLURM_JOB_END_TIME", "1800000000", 1);
    assert_true(allocation_read(&a));
    assert_string_equal(a.cluster, "big");
    assert_int_equal(a.end_wall_s, 1800000000);

    static const struct {
        const char *addr, *pattern, *rack, *zone;
    } ROWS[] = {
        {"s0.s1.n1", "switch.switch.node", "s1", "s0"},
        {"top.z.r.n1", "switch.switch.switch.node", "r", "z"},
        {"s1.n1.example.org", "switch.node", "s1", ""},
        {"n1", "node", "", ""},
        {"n1", "switch.node", "", ""},
        {NULL, NULL, "", ""},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        unsetenv("SLURM_TOPOLOGY_ADDR");
        unsetenv("SLURM_TOPOLOGY_ADDR_PATTERN");
        if (ROWS[i].addr) {
            setenv("SLURM_TOPOLOGY_ADDR", ROWS[i].addr, 1);
            setenv("SLURM_TOPOLOGY_ADDR_PATTERN", ROWS[i].pattern, 1);
        }
        topology_of_task(rack, sizeof rack, zone, sizeof zone);
        assert_string_equal(rack, ROWS[i].rack);
        assert_string_equal(zone, ROWS[i].zone);
    }
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(submits_with_all_options), T(defaults_ask_for_little), T(refusals_are_passed_on),
        T(more_nodes_than_exist),    T(states_are_read),         T(stop_by_state),
        T(commands_end_in_time),     T(allocation_and_topology),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
