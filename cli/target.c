/* target.c - see target.h. */
#include "cli/target.h"

#include "base/file.h"
#include "cli/say.h"
#include "slurm/cluster.h"
#include "slurm/fault.h"
#include "slurm/owner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ATTEMPTS = 4 }; /* of jobs/serve.sbatch */

/* cluster and job are the last two parts of the run directory. */
static void names_from_dir(struct target *t)
{
    char path[RUNDIR_PATH_BYTES];
    snprintf(path, sizeof path, "%s", t->dir);
    char *job = strrchr(path, '/');
    if (!job)
        return;
    *job++ = 0;
    char *cluster = strrchr(path, '/');
    snprintf(t->job, sizeof t->job, "%.63s", job);
    snprintf(t->cluster, sizeof t->cluster, "%.63s", cluster ? cluster + 1 : "");
    t->local = strcmp(t->cluster, "local") == 0;
    if (t->local)
        snprintf(t->log, sizeof t->log, "%s/world.log", t->dir);
    else
        snprintf(t->log, sizeof t->log, "%s/%s.log", path, t->job);
}

int target_find(struct target *t, const char *job, struct err *e)
{
    memset(t, 0, sizeof *t);
    int rc = rundir_find(job, t->dir, sizeof t->dir, e);
    if (!rc) {
        names_from_dir(t);
        return 0;
    }
    /* A job that was not submitted by this command, and has not begun: Slurm alone knows it. */
    t->dir[0] = 0;
    if (rc != ERR_CONFIG || !job || job_query(job, &t->state, NULL) != 0 ||
        strcmp(t->state.state, "GONE") == 0)
        return rc;
    t->has_state = true;
    snprintf(t->job, sizeof t->job, "%.63s", job);
    cluster_name(t->cluster, sizeof t->cluster);
    if (e)
        *e = (struct err)ERR_INIT;
    return 0;
}

int target_of_line(struct target **out, const struct command *c, const struct opt *opts, int argc,
                   char **argv)
{
    const char *operand[OPT_MAX_OPERANDS];
    int code = opt_parse(c, opts, argc, argv, operand);
    if (code != OPT_GO_ON)
        return code;
    struct err e = ERR_INIT;
    struct target *t = calloc(1, sizeof *t);
    int rc = t ? target_find(t, operand[0], &e) : err_set(&e, ERR_NOMEM, "out of memory");
    if (rc) {
        free(t);
        return say_error(c->name, &e);
    }
    *out = t;
    return OPT_GO_ON;
}

int target_endpoint(struct target *t, struct err *e)
{
    if (!t->dir[0])
        return err_set(e, ERR_AGAIN, "job %s has not begun", t->job);
    int rc = endpoint_read(t->dir, &t->endpoint, e);
    t->has_endpoint = rc == 0;
    return rc;
}

int target_state(struct target *t, struct err *e)
{
    if (t->local) {
        t->owner = 0;
        int rc = owner_find(t->dir, &t->owner, e);
        return rc == ERR_AGAIN ? 0 : rc;
    }
    int rc = job_query(t->job, &t->state, e);
    t->has_state = rc == 0;
    return rc;
}

bool target_ended(const struct target *t)
{
    return t->local ? t->owner == 0 : t->has_state && job_state_ended(t->state.state);
}

int target_fault(const struct target *t, struct err *why)
{
    char dir[RUNDIR_PATH_BYTES + 32], host[FAULT_HOST_BYTES];
    for (int n = MAX_ATTEMPTS; t->dir[0] && n > 0; n--)
        if (path_join(dir, sizeof dir, NULL, "%s/attempt-%d", t->dir, n) == 0 &&
            fault_read(dir, host, why) == 0)
            return 0;
    return ERR_AGAIN;
}

bool target_serves(const struct target *t)
{
    return t->has_endpoint &&
           (strcmp(t->endpoint.state, "READY") == 0 || strcmp(t->endpoint.state, "DEGRADED") == 0);
}

int target_urls(struct target *t, struct err *e)
{
    int rc = target_endpoint(t, e);
    if (rc && rc != ERR_AGAIN)
        return rc;
    if (!rc && strcmp(t->endpoint.state, "FAILED") == 0)
        return err_set(e, ERR_AGAIN, "job %s failed: %s", t->job, t->endpoint.progress);
    /* endpoint.json outlives the service; of a process on this machine it costs nothing to know */
    bool gone = !rc && (strcmp(t->endpoint.state, "STOPPED") == 0 ||
                        (t->local && target_state(t, NULL) == 0 && target_ended(t)));
    if (gone)
        return err_set(e, ERR_AGAIN, "job %s has ended", t->job);
    if (!rc && t->endpoint.n_urls)
        return 0;
    if (!rc)
        return err_set(e, ERR_AGAIN, "job %s has no URL yet: %s: %s", t->job, t->endpoint.state,
                       t->endpoint.progress);
    if (target_state(t, NULL) == 0 && target_ended(t))
        return err_set(e, ERR_AGAIN, "job %s has ended", t->job);
    return err_set(e, ERR_AGAIN, "job %s has no URL yet%s%s%s", t->job, t->has_state ? " (" : "",
                   t->has_state ? t->state.state : "", t->has_state ? ")" : "");
}

int target_silent(struct target *t, int rc, struct err *e)
{
    if (rc == ERR_PEER && target_state(t, NULL) == 0 && target_ended(t))
        return err_set(e, ERR_AGAIN, "job %s has ended", t->job);
    return rc;
}
