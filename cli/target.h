/* target.h - the service that a command is about: its job, its run directory, and what both say now.
 */
#ifndef EXA_CLI_TARGET_H
#define EXA_CLI_TARGET_H

#include "cli/opt.h"
#include "slurm/job.h"
#include "slurm/rundir.h"

#include <stdbool.h>
#include <sys/types.h>

struct target {
    char dir[RUNDIR_PATH_BYTES]; /* "": a job that Slurm knows, without a run directory yet */
    char cluster[64], job[64];
    char log[RUNDIR_PATH_BYTES + 96]; /* of the job script; of mpirun for a local run */
    bool local;                       /* started by `exaserve run` */
    bool has_endpoint;
    struct endpoint endpoint;
    bool has_state; /* Slurm answered (never for a local run) */
    struct job_state state;
    pid_t owner; /* a local run's process; 0: it is gone */
};

/* job NULL: the newest. ERR_CONFIG: no such job. */
int target_find(struct target *t, const char *job, struct err *e);
/* For commands whose one operand is [JOB]: the line parsed and its service found. OPT_GO_ON, and *out is the caller's to
 * free(); or the exit code, as opt_parse. */
int target_of_line(struct target **out, const struct command *c, const struct opt *opts, int argc,
                   char **argv);
/* Read endpoint.json again. ERR_AGAIN: not there yet. */
int target_endpoint(struct target *t, struct err *e);
/* Ask Slurm, or look for the process. */
int target_state(struct target *t, struct err *e);
/* It will not come (back) up: by target_state's last answer. */
bool target_ended(const struct target *t);
/* What a rank said that could not join, in the last start that had one: 0, or ERR_AGAIN when there is none. */
int target_fault(const struct target *t, struct err *why);
/* READY or DEGRADED by its own word. */
bool target_serves(const struct target *t);
/* For commands that need URLs: both of the above, or ERR_AGAIN with the reason in one sentence. */
int target_urls(struct target *t, struct err *e);
/* After a request: where its result rc is ERR_PEER (nobody answered) and the job is over, say that instead (ERR_AGAIN). */
int target_silent(struct target *t, int rc, struct err *e);

#endif
