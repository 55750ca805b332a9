/* rundir.h - the run directory of a service, and the endpoint file in it.
 *
 * ~/.exaserve/<cluster>/<jobid>/ (or under EXASERVE_RUN_DIR), mode 0700, on a file system all nodes share:
 *   serve.yaml      the configuration as submitted        layout.json, hosts   the world's shape (per attempt)
 *   secret          32 random bytes, hex, 0600: proves members to each other
 *   key             the API key, 0600                     endpoint.json        0600: URLs, key, job, state, progress
 *   attempt-N/      rank0.addr, logs of one start of the world
 * Files are published by rename. Blocking: never on a loop thread.
 */
#ifndef EXA_SLURM_RUNDIR_H
#define EXA_SLURM_RUNDIR_H

#include "base/err.h"

#include <stdint.h>

enum { RUNDIR_PATH_BYTES = 1024, ENDPOINT_MAX_URLS = 64 };

/* Base folder: EXASERVE_RUN_DIR or ~/.exaserve. */
int rundir_base(char *out, size_t cap, struct err *e);
/* <base>/<cluster>/<job>. cluster "local" for `exaserve run`. */
int rundir_path(char *out, size_t cap, const char *cluster, const char *job, struct err *e);
/* Make it, private, with secret and key (kept if they exist: a restart of the world keeps its key). */
int rundir_create(const char *path, struct err *e);
int rundir_secret(const char *path, uint8_t secret[32], struct err *e);
int rundir_key(const char *path, char *key, size_t cap, struct err *e); /* "sk-exa-…" */
/* The user's newest run directory that has the job running (or, failing that, the newest at all). job NULL: newest; else that job.
 * SLURM_JOB_ID is used when job is NULL and it is set (inside a job). ERR_CONFIG: "no job of yours …". */
int rundir_find(const char *job, char *out, size_t cap, struct err *e);

struct endpoint {
    char job[64], cluster[64], name[64];
    char state[16];     /* service_state_name */
    char progress[512]; /* one sentence */
    char key[80];
    uint32_t n_urls;
    char urls[ENDPOINT_MAX_URLS][128]; /* "http://host:port/v1"-less base URLs */
    char model[128];
    uint32_t n_ready, n_wanted, n_min;
    uint32_t attempt;
    uint64_t updated_wall_s, end_wall_s;
};
int endpoint_write(const char *run_dir, const struct endpoint *p, struct err *e);
/* ERR_AGAIN: not there yet. */
int endpoint_read(const char *run_dir, struct endpoint *p, struct err *e);

#endif
