/* status.c - `exaserve status`: what Slurm and the service say. */
#include "base/clock.h"
#include "cli/commands.h"
#include "cli/say.h"
#include "cli/target.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* When it ends, by whoever knows; 0: nobody. */
static uint64_t end_of(const struct target *t)
{
    if (t->has_state && t->state.end_wall_s)
        return t->state.end_wall_s;
    return t->has_endpoint ? t->endpoint.end_wall_s : 0;
}

static uint64_t time_left(const struct target *t, uint64_t now_s)
{
    uint64_t end = end_of(t);
    return end > now_s && !target_ended(t) ? end - now_s : 0;
}

static json_t *slurm_json(const struct target *t)
{
    if (!t->has_state)
        return json_null();
    return json_pack("{s:s, s:s, s:s, s:I, s:i}", "state", t->state.state, "reason",
                     t->state.reason, "nodes", t->state.nodes, "end",
                     (json_int_t)t->state.end_wall_s, "exit_code", t->state.exit_code);
}

static json_t *service_json(const struct target *t)
{
    const struct endpoint *p = &t->endpoint;
    if (!t->has_endpoint)
        return json_null();
    json_t *urls = json_array();
    for (uint32_t i = 0; i < p->n_urls; i++)
        json_array_append_new(urls, json_string(p->urls[i]));
    return json_pack("{s:s, s:s, s:s, s:o, s:{s:I, s:I, s:I}, s:I, s:I}", "state", p->state,
                     "progress", p->progress, "model", p->model, "urls", urls, "replicas", "ready",
                     (json_int_t)p->n_ready, "wanted", (json_int_t)p->n_wanted, "min",
                     (json_int_t)p->n_min, "attempt", (json_int_t)p->attempt, "updated",
                     (json_int_t)p->updated_wall_s);
}

static int print_json(const struct target *t, uint64_t now_s)
{
    json_t *o =
        json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "job", t->job, "cluster", t->cluster, "run_dir",
                  t->dir, "slurm", slurm_json(t), "service", service_json(t), "time_left_s",
                  end_of(t) ? json_integer((json_int_t)time_left(t, now_s)) : json_null());
    if (o && t->local)
        json_object_set_new(o, "pid", json_integer(t->owner));
    char *text = o ? json_dumps(o, JSON_INDENT(2)) : NULL;
    if (text)
        puts(text);
    free(text);
    json_decref(o);
    return text ? 0 : ERR_NOMEM;
}

static void print_service(const struct target *t)
{
    const struct endpoint *p = &t->endpoint;
    printf("service   %s%s%s\n", p->state, p->progress[0] ? ": " : "", p->progress);
    if (p->model[0])
        printf("model     %s\n", p->model);
    printf("replicas  %" PRIu32 " of %" PRIu32 " ready (at least %" PRIu32 ")\n", p->n_ready,
           p->n_wanted, p->n_min);
    for (uint32_t i = 0; i < p->n_urls && !target_ended(t); i++)
        printf("%-9s %s/v1\n", i ? "" : "url", p->urls[i]);
}

static void print_text(const struct target *t, uint64_t now_s)
{
    char left[32];
    struct err why = ERR_INIT;
    if (t->local) {
        printf("run       %s, %s\n", t->job, t->owner ? "running on this machine" : "ended");
    } else {
        printf("job       %s on %s: %s", t->job, t->cluster,
               t->has_state ? t->state.state : "unknown to Slurm now");
        if (t->has_state && t->state.reason[0])
            printf(" (%s)", t->state.reason);
        printf("\n");
        if (t->has_state && t->state.nodes[0])
            printf("nodes     %s\n", t->state.nodes);
    }
    if (t->has_endpoint)
        print_service(t);
    else if (target_fault(t, &why) == 0)
        printf("service   not started: %s\n", why.text);
    else
        printf("service   %s\n", target_ended(t) ? "did not start" : "not started yet");
    if (time_left(t, now_s))
        printf("time left %s\n", say_duration(time_left(t, now_s), left));
    if (t->dir[0])
        printf("files     %s\n", t->dir);
}

static int run(int argc, char **argv)
{
    bool json = false;
    const struct opt opts[] = {
        {"json", 'j', OPT_FLAG, .value = &json, .help = "one JSON object, for programs"},
        {.name = NULL},
    };
    struct target *t;
    int code = target_of_line(&t, &COMMAND_STATUS, opts, argc, argv);
    if (code != OPT_GO_ON)
        return code;
    struct err e = ERR_INIT;
    int rc = target_endpoint(t, &e);
    if (rc && rc != ERR_AGAIN) { /* AGAIN: not started yet, that is what we say */
        code = say_error("status", &e);
        free(t);
        return code;
    }
    if (target_state(t, &e) != 0) /* Slurm may be down while the service serves on */
        fprintf(stderr, "exaserve status: %s\n", e.text);
    uint64_t now_s = clock_wall_us() / 1000000;
    if (!json)
        print_text(t, now_s);
    else if (print_json(t, now_s) != 0)
        fprintf(stderr, "exaserve status: out of memory\n");
    code = target_serves(t) && !target_ended(t) ? EXIT_READY : EXIT_NOT_READY;
    free(t);
    return code;
}

const struct command COMMAND_STATUS = {
    .name = "status",
    .operands = "[JOB]",
    .max_operands = 1,
    .summary = "state of the job and of the service in it",
    .details = "Show the job's state in Slurm, the service's own state, replicas, URLs and the "
               "time left.\n"
               "Exit code 0: the service takes requests (READY or DEGRADED); 2: it does not.\n",
    .run = run,
};
