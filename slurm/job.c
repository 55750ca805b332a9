/* job.c - see job.h: squeue, scancel, scontrol, and the environment of a job. */
#include "slurm/job.h"

#include "slurm/cluster.h"
#include "slurm/command.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { QUERY_TIMEOUT_US = 30 * 1000 * 1000 };

/* Times as seconds since the epoch, whatever the user's own setting. */
static const char *const QUERY_ENV[] = {"SLURM_TIME_FORMAT=%s", NULL};

/* 0: it ran and exited 0, and *r is the caller's. ERR_AGAIN: it says that it failed. */
static int query(struct command_result *r, const char *const *argv, struct err *e)
{
    const struct command c = {.argv = argv, .env = QUERY_ENV, .timeout_us = QUERY_TIMEOUT_US};
    int rc = command_run(r, &c, e);
    if (rc || r->status == 0)
        return rc;
    char why[300];
    rc = err_set(e, ERR_AGAIN, "%s failed (exit %d): %s", argv[0], r->status,
                 command_complaint(r, why, sizeof why));
    command_result_fini(r);
    return rc;
}

static bool is_job_id(const char *id)
{
    size_t n = strlen(id);
    return n > 0 && n < 20 && strspn(id, "0123456789") == n;
}

static void copy(char *dst, size_t cap, const char *src)
{
    snprintf(dst, cap, "%s", src);
}

/* "id|state|reason|end|nodes" */
static void row_read(struct job_state *s, char *row)
{
    char *field[5] = {row, "", "", "", ""};
    for (int i = 1; i < 5; i++) {
        char *bar = strchr(field[i - 1], '|');
        if (!bar)
            break;
        *bar = 0;
        field[i] = bar + 1;
    }
    copy(s->state, sizeof s->state, field[1]);
    copy(s->reason, sizeof s->reason, strcmp(field[2], "None") == 0 ? "" : field[2]);
    s->end_wall_s = isdigit((unsigned char)field[3][0]) ? strtoull(field[3], NULL, 10) : 0;
    copy(s->nodes, sizeof s->nodes, field[4]);
}

/* "… ExitCode=STATUS:SIGNAL …" of a job that ended. */
static int exit_code_of(const char *id)
{
    struct command_result r;
    const char *const argv[] = {"scontrol", "--oneliner", "show", "job", id, NULL};
    int status = 0, sig = 0;
    if (query(&r, argv, NULL) != 0)
        return -1;
    const char *at = strstr(buf_cstr(&r.out), " ExitCode=");
    int n = at ? sscanf(at, " ExitCode=%d:%d", &status, &sig) : 0;
    command_result_fini(&r);
    return n != 2 ? -1 : sig ? 128 + sig : status;
}

bool job_state_ended(const char *state)
{
    static const char *const LIVE[] = {"PENDING",      "CONFIGURING",  "RUNNING",     "COMPLETING",
                                       "SUSPENDED",    "RESIZING",     "SIGNALING",   "STAGE_OUT",
                                       "REQUEUED",     "REQUEUE_HOLD", "REQUEUE_FED", "STOPPED",
                                       "SPECIAL_EXIT", "RESV_DEL_HOLD"};
    for (size_t i = 0; i < sizeof LIVE / sizeof LIVE[0]; i++)
        if (strcmp(state, LIVE[i]) == 0)
            return false;
    return true;
}

int job_query(const char *id, struct job_state *s, struct err *e)
{
    if (!is_job_id(id))
        return err_set(e, ERR_CONFIG, "not a job id: %.40s", id);
    struct command_result r;
    /* All jobs of the user: asking for one that is gone would fail just as a controller that is down does. */
    const char *const argv[] = {
        "squeue", "--me", "--states=all", "--noheader", "--format=%A|%T|%r|%e|%N", NULL};
    int rc = query(&r, argv, e);
    if (rc)
        return rc;
    memset(s, 0, sizeof *s);
    copy(s->state, sizeof s->state, "GONE");
    size_t n = strlen(id);
    char *rest = NULL;
    for (char *row = strtok_r((char *)buf_cstr(&r.out), "\n", &rest); row;
         row = strtok_r(NULL, "\n", &rest))
        if (strncmp(row, id, n) == 0 && row[n] == '|') {
            row_read(s, row);
            break;
        }
    command_result_fini(&r);
    if (job_state_ended(s->state) && strcmp(s->state, "GONE") != 0)
        s->exit_code = exit_code_of(id);
    return 0;
}

int job_stop(const char *id, struct err *e)
{
    struct job_state s;
    int rc = job_query(id, &s, e);
    if (rc)
        return rc;
    if (job_state_ended(s.state))
        return 0;
    bool pending = strcmp(s.state, "PENDING") == 0 || strncmp(s.state, "REQUEUE", 7) == 0;
    const char *const argv[] = {"scancel", pending ? id : "--batch",
                                pending ? NULL : "--signal=TERM", id, NULL};
    struct command_result r;
    rc = query(&r, argv, e);
    if (!rc)
        command_result_fini(&r);
    return rc;
}

static uint64_t end_time_of(const char *job)
{
    const char *set = getenv("SLURM_JOB_END_TIME"); /* newer Slurm has it */
    if (set && isdigit((unsigned char)*set))
        return strtoull(set, NULL, 10);
    struct job_state s;
    return job_query(job, &s, NULL) == 0 ? s.end_wall_s : 0;
}

bool allocation_read(struct allocation *a)
{
    const char *job = getenv("SLURM_JOB_ID"), *restarts = getenv("SLURM_RESTART_COUNT");
    if (!job || !is_job_id(job))
        return false;
    memset(a, 0, sizeof *a);
    copy(a->job, sizeof a->job, job);
    cluster_name(a->cluster, sizeof a->cluster);
    a->attempt = restarts ? (uint32_t)strtoul(restarts, NULL, 10) : 0;
    a->end_wall_s = end_time_of(job);
    return true;
}

void topology_of_task(char *rack, size_t rack_cap, char *zone, size_t zone_cap)
{
    const char *addr = getenv("SLURM_TOPOLOGY_ADDR");
    const char *pattern = getenv("SLURM_TOPOLOGY_ADDR_PATTERN");
    copy(rack, rack_cap, "");
    copy(zone, zone_cap, "");
    /* "zone.rack.node" beside "switch.switch.node": walk both, part by part, while the pattern says switch. */
    while (addr && pattern && strncmp(pattern, "switch.", 7) == 0) {
        size_t n = strcspn(addr, ".");
        if (!addr[n])
            break;
        copy(zone, zone_cap, rack);
        snprintf(rack, rack_cap, "%.*s", (int)n, addr);
        addr += n + 1;
        pattern += 7;
    }
}
