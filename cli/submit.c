/* submit.c - `exaserve submit`: check the configuration, hand the job to sbatch, and with --wait stay until it serves. */
#include "base/clock.h"
#include "cli/commands.h"
#include "cli/fits.h"
#include "cli/say.h"
#include "cli/target.h"
#include "config/config.h"
#include "slurm/capacity.h"
#include "slurm/cluster.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    POLL_US = 300 * 1000,
    SLURM_POLL_US = 3 * 1000 * 1000, /* each is a squeue: gentle to the controller */
    LOG_LINES = 15,
};

struct args {
    uint64_t nodes, timeout_s;
    const char *time;
    bool wait, dry_run;
};

/* Without the pack, or with one that cannot be served so, the job could only fail, after waiting in the queue. */
static int packs_check(const struct config *c, const char *file, struct err *e)
{
    int rc = 0;
    for (unsigned i = 0; i < c->models_count && !rc; i++) {
        rc = model_fits(&c->models[i], e);
        if (rc && !strstr(e->text, c->models[i].pack))
            err_prefix(e, "%s: models[%u] with pack %s: ", file, i, c->models[i].pack);
    }
    return rc;
}

/* What would be done: the command as a comment, then the whole configuration. */
static int dry_run(const struct config *c, const char *path, const struct args *a, struct err *e)
{
    char *line = malloc(64 * 1024), *text = NULL;
    int rc = capacity_check(c, a->nodes ? (uint32_t)a->nodes : c->nodes, e);
    if (rc) {
        free(line);
        return rc;
    }
    rc = line ? job_submit_command(c, path, (uint32_t)a->nodes, a->time, line, 64 * 1024, e)
              : err_set(e, ERR_NOMEM, "out of memory");
    if (!rc)
        rc = config_dump(c, &text, e);
    if (!rc)
        printf("# %s\n%s", line, text);
    free(text);
    free(line);
    return rc;
}

/* One look at the job. 0: it serves; ERR_AGAIN: not yet; else it will not. */
static int look(struct target *t, bool ask_slurm, struct progress_line *line, struct err *e)
{
    struct err why = ERR_INIT;
    int rc = target_endpoint(t, &why);
    if (rc && rc != ERR_AGAIN)
        return err_set(e, rc, "%s", why.text);
    if (target_serves(t))
        return 0;
    if (t->has_endpoint && strcmp(t->endpoint.state, "FAILED") == 0)
        return err_set(e, ERR_PEER, "the service failed: %s", t->endpoint.progress);
    if (ask_slurm && target_state(t, &why) != 0)
        say_progress(line, "%s", why.text);
    else if (target_ended(t) && target_fault(t, &why) == 0)
        return err_set(e, ERR_PEER, "job %s ended before it was ready: %s", t->job, why.text);
    else if (target_ended(t))
        return err_set(e, ERR_PEER, "job %s ended before it was ready: %s, exit code %d", t->job,
                       t->state.state, t->state.exit_code);
    else if (t->has_endpoint)
        say_progress(line, "%s: %s", t->endpoint.state, t->endpoint.progress);
    else if (t->has_state && t->state.reason[0])
        say_progress(line, "job %s is %s (%s)", t->job, t->state.state, t->state.reason);
    else if (t->has_state)
        say_progress(line, "job %s is %s", t->job, t->state.state);
    return ERR_AGAIN;
}

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
    interrupted = 1;
    signal(SIGINT, SIG_DFL); /* a second one ends it wherever it is */
}

static int wait_ready(struct target *t, const struct args *a, struct err *e)
{
    struct progress_line line = {""};
    uint64_t begin = clock_now_us(), asked = 0;
    for (;;) {
        uint64_t now = clock_now_us();
        bool ask_slurm = !asked || now - asked >= SLURM_POLL_US;
        if (ask_slurm)
            asked = now;
        int rc = look(t, ask_slurm, &line, e);
        if (rc != ERR_AGAIN)
            return rc;
        if (interrupted)
            return err_set(e, ERR_CANCELED,
                           "no longer waiting; job %s goes on: exaserve status %s, or "
                           "exaserve stop %s",
                           t->job, t->job, t->job);
        if (a->timeout_s && now - begin >= a->timeout_s * 1000000)
            return err_set(e, ERR_TIMEOUT, "job %s is not ready after %" PRIu64 " s; it goes on",
                           t->job, a->timeout_s);
        clock_sleep_us(POLL_US);
    }
}

static int wait_and_tell(struct target *t, const struct args *a)
{
    struct err e = ERR_INIT;
    if (wait_ready(t, a, &e) == 0) {
        fprintf(stderr,
                "%s: %s\n  url  %s/v1\n  key  exaserve url --key %s\n  try  exaserve chat %s\n",
                t->endpoint.state, t->endpoint.progress,
                t->endpoint.n_urls ? t->endpoint.urls[0] : "", t->job, t->job);
        return EXIT_READY;
    }
    int code = say_error("submit", &e);
    if (e.code == ERR_CANCELED) { /* as the shell expects of a program that Ctrl-C ended */
        signal(SIGINT, SIG_DFL);
        raise(SIGINT);
    }
    if (e.code == ERR_PEER)
        say_log_tail(t->log, LOG_LINES);
    return code;
}

static int submit(const struct config *c, const char *path, const struct args *a, struct target *t,
                  struct err *e)
{
    int rc = job_submit(c, path, (uint32_t)a->nodes, a->time, t->job, sizeof t->job, e);
    if (rc)
        return rc;
    printf("%s\n", t->job);
    fflush(stdout); /* whatever happens now, the job id is out */
    /* The job makes its run directory too; making it here lets the other commands find a job that still waits. */
    cluster_name(t->cluster, sizeof t->cluster);
    rc = rundir_path(t->dir, sizeof t->dir, t->cluster, t->job, e);
    if (!rc)
        rc = rundir_create(t->dir, e);
    if (!rc)
        snprintf(t->log, sizeof t->log, "%s.log", t->dir);
    return rc;
}

static int run(int argc, char **argv)
{
    struct args a = {0};
    const struct opt opts[] = {
        {"nodes", 'N', OPT_UINT, "N", &a.nodes, 1, 4096, "nodes, over slurm.nodes"},
        {"time", 't', OPT_TEXT, "TIME", &a.time, .help = "time limit, over slurm.time"},
        {"wait", 'w', OPT_FLAG, .value = &a.wait, .help = "stay until it is ready, with progress"},
        {"timeout", 0, OPT_UINT, "SECONDS", &a.timeout_s, 1, 8640000,
         "with --wait: give up waiting (not the job) after so long"},
        {"dry-run", 'n', OPT_FLAG, .value = &a.dry_run,
         .help = "check all, print the sbatch command and the configuration, submit nothing"},
        {.name = NULL},
    };
    const char *operand[OPT_MAX_OPERANDS];
    int code = opt_parse(&COMMAND_SUBMIT, opts, argc, argv, operand);
    if (code != OPT_GO_ON)
        return code;
    struct err e = ERR_INIT;
    struct config *c = NULL;
    struct target *t = calloc(1, sizeof *t);
    int rc = t ? config_load_for(&c, operand[0], (uint32_t)a.nodes, &e)
               : err_set(&e, ERR_NOMEM, "out of memory");
    if (!rc)
        rc = packs_check(c, operand[0], &e);
    if (!a.dry_run)
        signal(SIGINT, on_interrupt); /* not between sbatch and its job id */
    if (!rc)
        rc = a.dry_run ? dry_run(c, operand[0], &a, &e) : submit(c, operand[0], &a, t, &e);
    if (rc)
        code = say_error("submit", &e);
    else
        code = a.wait && !a.dry_run ? wait_and_tell(t, &a) : EXIT_READY;
    config_free(c);
    free(t);
    return code;
}

const struct command COMMAND_SUBMIT = {
    .name = "submit",
    .operands = "FILE.yaml",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "start a service as a Slurm job",
    .details = "Check FILE.yaml (docs/configuration.md) and its pack, submit the job, and print "
               "the job id\n"
               "alone on standard output. With --wait: exit code 0 when the service is READY or\n"
               "DEGRADED, 2 when it failed, 3 at the timeout.\n",
    .run = run,
};
