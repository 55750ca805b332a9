/* job.h - what Slurm knows: submit, cancel, state of a job, the allocation we are in, end time, rack of this node.
 *
 * Commands, environment and files only; libslurm is not linked (versions differ between sites). Output is parsed from marked machine formats; srun's and
 * sbatch's own stderr is never parsed as data, and is passed on when a command fails.
 */
#ifndef EXA_SLURM_JOB_H
#define EXA_SLURM_JOB_H

#include "base/err.h"
#include "config/config.h"

#include <stdbool.h>
#include <stdint.h>

struct job_state {
    char state
        [32]; /* "PENDING", "RUNNING", "COMPLETED", … "GONE" when Slurm knows nothing of it any more */
    char reason[128];
    char nodes[1024];
    uint64_t end_wall_s; /* 0: unknown */
    int exit_code;
};

/* sbatch jobs/serve.sbatch with the options that config asks for. id: the job id alone. nodes_override 0 and time_override NULL: as in config. */
int job_submit(const struct config *c, const char *config_path, uint32_t nodes_override,
               const char *time_override, char *id, size_t cap, struct err *e);
/* The same as a command line for people (--dry-run). */
int job_submit_command(const struct config *c, const char *config_path, uint32_t nodes_override,
                       const char *time_override, char *out, size_t cap, struct err *e);
int job_query(const char *id, struct job_state *s, struct err *e);
/* COMPLETED, FAILED, CANCELLED, TIMEOUT, NODE_FAIL, … or GONE: it will not run any more. */
bool job_state_ended(const char *state);
/* Ask the service to end: SIGTERM to the batch script. */
int job_stop(const char *id, struct err *e);

struct allocation {
    char job[64];
    char cluster[64];
    uint32_t attempt;    /* restart count */
    uint64_t end_wall_s; /* 0: none */
};
/* From the environment (and scontrol for the end time); false: not inside Slurm. */
bool allocation_read(struct allocation *a);
/* Rack and zone of this node: SLURM_TOPOLOGY_ADDR of this task (last switch = rack, the one above = zone), else "", "". */
void topology_of_task(char *rack, size_t rack_cap, char *zone, size_t zone_cap);

#endif
