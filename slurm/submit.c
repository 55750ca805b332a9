/* submit.c - job_submit of job.h: the argument vector of sbatch, and running it. Never through a shell. */
#include "slurm/job.h"

#include "base/buf.h"
#include "base/file.h"
#include "config/walltime.h"
#include "slurm/capacity.h"
#include "slurm/cluster.h"
#include "slurm/command.h"
#include "slurm/rundir.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SUBMIT_TIMEOUT_US = 60 * 1000 * 1000,
    MAX_ARGS = 96,    /* ours and the 64 of sbatch_args */
    LEAD_MAX_S = 300, /* a fifth of the time limit, at most this */
};

struct vector { /* arguments, owned */
    char *at[MAX_ARGS + 1];
    size_t n;
    bool failed;
};

__attribute__((format(printf, 2, 3))) static void add(struct vector *v, const char *fmt, ...)
{
    char *s = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&s, fmt, ap);
    va_end(ap);
    if (n < 0 || v->n == MAX_ARGS) {
        v->failed = true;
        if (n >= 0)
            free(s);
        return;
    }
    v->at[v->n++] = s;
}

static void add_text(struct vector *v, const char *option, const char *value)
{
    if (value)
        add(v, "--%s=%s", option, value);
}

static void vector_fini(struct vector *v)
{
    for (size_t i = 0; i < v->n; i++)
        free(v->at[i]);
}

/* The folder that has jobs/serve.sbatch: EXASERVE_HOME, the installation, or the source tree of build/MODE/bin. */
static int home_find(char home[PATH_MAX], char bin[PATH_MAX], struct err *e)
{
    char self[PATH_MAX], file[PATH_MAX];
    int rc = file_self_dir(self, sizeof self, e);
    if (rc)
        return rc;
    const char *set = getenv("EXASERVE_HOME");
    bool has_set = set && *set;
    static const char *const BELOW[] = {"", "/../.."};
    for (size_t i = 0; i < (has_set ? 1 : 2); i++) {
        rc = path_join(home, PATH_MAX, e, "%s%s", has_set ? set : self, BELOW[i]);
        if (!rc)
            rc = path_join(file, sizeof file, e, "%s/jobs/serve.sbatch", home);
        if (rc)
            return rc;
        if (access(file, R_OK) == 0 && realpath(home, file))
            return (rc = path_join(home, PATH_MAX, e, "%s", file))
                       ? rc
                       : path_join(bin, PATH_MAX, e, "%s/bin", self);
    }
    if (has_set)
        return err_set(e, ERR_CONFIG, "EXASERVE_HOME: cannot read %s", file);
    return err_set(e, ERR_CONFIG, "cannot find jobs/serve.sbatch near %s: set EXASERVE_HOME", self);
}

/* BASE/CLUSTER/%j.log, with sbatch's own mark % doubled in our part. The folder must be there before the job. */
static int log_path(char *out, size_t cap, char *folder, size_t folder_cap, struct err *e)
{
    char base[RUNDIR_PATH_BYTES], cluster[64];
    int rc = rundir_base(base, sizeof base, e);
    if (rc)
        return rc;
    cluster_name(cluster, sizeof cluster);
    rc = path_join(folder, folder_cap, e, "%s/%s", base, cluster);
    size_t n = 0;
    for (const char *p = folder; !rc && *p; p++) {
        if (n + 16 > cap)
            return err_set(e, ERR_LIMIT, "path is too long: %.200s", folder);
        out[n++] = *p;
        if (*p == '%')
            out[n++] = '%';
    }
    if (!rc)
        strcpy(out + n, "/%j.log");
    return rc;
}

static unsigned lead_of(const char *time)
{
    uint64_t limit = 0;
    if (!time || !walltime_parse(time, &limit) || !limit)
        return LEAD_MAX_S;
    uint64_t lead = limit / 5;
    return lead > LEAD_MAX_S ? LEAD_MAX_S : lead ? (unsigned)lead : 1;
}

/* bin and home: what the job must find again. folder: where its log goes. */
static int vector_make(struct vector *v, const struct config *c, const char *config_path,
                       uint32_t nodes, const char *time, const char *home, const char *log,
                       struct err *e)
{
    uint64_t unused;
    char path[PATH_MAX];
    nodes = nodes ? nodes : c->nodes;
    time = time ? time : c->time;
    if (time && !walltime_parse(time, &unused))
        return err_set(e, ERR_CONFIG, "not a Slurm time: %.60s (1:00:00, 30, 2-12)", time);
    if (!realpath(config_path, path))
        return err_set(e, ERR_CONFIG, "%s: %s", config_path, strerror(errno));
    add(v, "sbatch");
    add(v, "--parsable");
    add(v, "--job-name=%s", c->name);
    add(v, "--nodes=%" PRIu32, nodes);
    add_text(v, "time", time);
    add_text(v, "partition", c->partition);
    add_text(v, "account", c->account);
    add_text(v, "qos", c->qos);
    add_text(v, "reservation", c->reservation);
    add_text(v, "constraint", c->constraint);
    if (c->exclusive)
        add(v, "--exclusive");
    add(v, "--no-kill");
    add(v, "--signal=B:TERM@%u", lead_of(time));
    add(v, "--output=%s", log);
    for (unsigned i = 0; i < c->sbatch_args_count; i++)
        add(v, "%s", c->sbatch_args[i]);
    add(v, "%s/jobs/serve.sbatch", home);
    add(v, "%s", path);
    return v->failed ? err_set(e, ERR_NOMEM, "too many arguments for sbatch") : 0;
}

/* stdout of sbatch --parsable: "ID" or "ID;CLUSTER". */
static int id_read(const char *out, char *id, size_t cap, struct err *e)
{
    size_t n = strspn(out, "0123456789");
    if (n == 0 || n >= cap || (out[n] != '\n' && out[n] != ';' && out[n] != 0))
        return err_set(e, ERR_PROTO, "sbatch --parsable must print a job id, and printed \"%.40s\"",
                       out);
    memcpy(id, out, n);
    id[n] = 0;
    return 0;
}

static int sbatch_run(const struct vector *v, const char *home, const char *bin, char *id,
                      size_t cap, struct err *e)
{
    char home_set[PATH_MAX + 32], bin_set[PATH_MAX + 32];
    snprintf(home_set, sizeof home_set, "EXASERVE_HOME=%s", home);
    snprintf(bin_set, sizeof bin_set, "EXASERVE_BIN=%s", bin);
    const char *const env[] = {home_set, bin_set, NULL};
    const struct command c = {
        .argv = (const char *const *)v->at, .env = env, .timeout_us = SUBMIT_TIMEOUT_US};
    struct command_result r;
    int rc = command_run(&r, &c, e);
    if (rc)
        return rc;
    char why[400];
    command_complaint(&r, why, sizeof why);
    if (r.status != 0)
        rc = err_set(e, ERR_CONFIG, "sbatch refused the job (exit %d): %s", r.status,
                     *why ? why : "it gave no reason");
    else
        rc = id_read(buf_cstr(&r.out), id, cap, e);
    if (!rc && r.err.len)
        fprintf(stderr, "%s", buf_cstr(&r.err)); /* warnings */
    command_result_fini(&r);
    return rc;
}

int job_submit(const struct config *c, const char *config_path, uint32_t nodes_override,
               const char *time_override, char *id, size_t cap, struct err *e)
{
    char home[PATH_MAX], bin[PATH_MAX], log[2 * RUNDIR_PATH_BYTES], folder[RUNDIR_PATH_BYTES];
    struct vector v = {.n = 0};
    int rc = home_find(home, bin, e);
    if (!rc)
        rc = log_path(log, sizeof log, folder, sizeof folder, e);
    if (!rc)
        rc = capacity_check(c, nodes_override ? nodes_override : c->nodes, e);
    if (!rc)
        rc = dir_make_private(folder, e);
    if (!rc)
        rc = vector_make(&v, c, config_path, nodes_override, time_override, home, log, e);
    if (!rc)
        rc = sbatch_run(&v, home, bin, id, cap, e);
    vector_fini(&v);
    return rc;
}

/* One argument as a shell would need it. */
static void quote(struct buf *out, const char *arg)
{
    if (*arg && !arg[strspn(arg, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                 "_-+=./:,@%")]) {
        buf_puts(out, arg);
        return;
    }
    buf_puts(out, "'");
    for (; *arg; arg++)
        if (*arg == '\'')
            buf_puts(out, "'\\''");
        else
            buf_put(out, arg, 1);
    buf_puts(out, "'");
}

int job_submit_command(const struct config *c, const char *config_path, uint32_t nodes_override,
                       const char *time_override, char *out, size_t cap, struct err *e)
{
    char home[PATH_MAX], bin[PATH_MAX], log[2 * RUNDIR_PATH_BYTES], folder[RUNDIR_PATH_BYTES];
    struct vector v = {.n = 0};
    int rc = home_find(home, bin, e);
    if (!rc)
        rc = log_path(log, sizeof log, folder, sizeof folder, e);
    if (!rc)
        rc = vector_make(&v, c, config_path, nodes_override, time_override, home, log, e);
    struct buf line;
    buf_init(&line, cap > 1 ? cap - 1 : 1);
    for (size_t i = 0; !rc && i < v.n; i++) {
        buf_puts(&line, i ? " " : "");
        quote(&line, v.at[i]);
    }
    if (!rc && !buf_ok(&line))
        rc = err_set(e, ERR_LIMIT, "the sbatch command is longer than %zu bytes", cap);
    if (!rc) {
        memcpy(out, line.data, line.len);
        out[line.len] = 0;
    }
    buf_fini(&line);
    vector_fini(&v);
    return rc;
}
