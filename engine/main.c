/* main.c - exaserve-engine: one replica's model execution, a child process of its node's worker.
 *
 *   exaserve-engine --stub PARENT_PID N_FDS -- COMMAND ARG…      see launch.h
 *   exaserve-engine --serve --image PATH --deployment D --replica R --epoch E …   see serve.h
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "engine/launch.h"
#include "engine/serve.h"

static volatile sig_atomic_t stop_requested;

static void on_term(int sig)
{
    stop_requested = 1;
}

static int parse_number(uint64_t *out, const char *name, const char *text, uint64_t most,
                        struct err *e)
{
    char *end;
    errno = 0;
    unsigned long long v = text && *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
    if (!text || *text < '0' || *text > '9' || *end || errno || v > most)
        return err_set(e, ERR_CONFIG, "%s %s: expected a number up to %" PRIu64, name,
                       text ? text : "(missing)", most);
    *out = v;
    return 0;
}

static int run_stub(int argc, char **argv, struct err *e)
{
    uint64_t parent, n_fds;
    if (argc < 6 || strcmp(argv[4], "--"))
        return err_set(e, ERR_CONFIG, "expected --stub PARENT_PID N_FDS -- COMMAND ARG…");
    int rc = parse_number(&parent, "PARENT_PID", argv[2], INT32_MAX, e);
    if (!rc)
        rc = parse_number(&n_fds, "N_FDS", argv[3], INT32_MAX, e);
    return rc ? rc : launch_stub((int)parent, (int)n_fds, argv + 5, e);
}

/* The command line of --serve: each option has one value, text or number. */
struct option {
    const char *name;
    bool required;
    const char **text;
    uint32_t *u32;
    uint64_t *u64;
    bool seen;
};

static int option_set(struct option *o, const char *value, struct err *e)
{
    uint64_t v;
    if (!value)
        return err_set(e, ERR_CONFIG, "%s: its value is missing", o->name);
    if (o->seen)
        return err_set(e, ERR_CONFIG, "%s: given twice", o->name);
    o->seen = true;
    if (o->text) {
        *o->text = value;
        return 0;
    }
    int rc = parse_number(&v, o->name, value, o->u32 ? UINT32_MAX : UINT64_MAX, e);
    if (!rc && o->u32)
        *o->u32 = (uint32_t)v;
    else if (!rc)
        *o->u64 = v;
    return rc;
}

static int shards_finish(struct serve_options *s, const char *coll, struct err *e)
{
    bool shm = coll && !strcmp(coll, "shm");
    if (coll && !shm && strcmp(coll, "relay"))
        return err_set(e, ERR_CONFIG, "--coll %s: expected shm or relay", coll);
    if ((s->shards.n_shards > 1) != (coll != NULL))
        return err_set(e, ERR_CONFIG, "--shards above 1 and --coll go together");
    s->shards.shared_memory = shm;
    s->shards.name.deployment = s->deployment;
    s->shards.name.replica = s->replica;
    s->shards.name.epoch = s->epoch;
    return 0;
}

static int parse_serve(struct serve_options *s, int argc, char **argv, struct err *e)
{
    const char *coll = NULL;
    *s = (struct serve_options){.kind = "cpu", .n_slots = 8, .n_threads = 1};
    struct option options[] = {
        {"--image", true, .text = &s->image},
        {"--deployment", true, .u32 = &s->deployment},
        {"--replica", true, .u32 = &s->replica},
        {"--epoch", true, .u64 = &s->epoch},
        {"--ctx", false, .u32 = &s->n_ctx},
        {"--slots", false, .u32 = &s->n_slots},
        {"--threads", false, .u32 = &s->n_threads},
        {"--chunk", false, .u32 = &s->chunk},
        {"--kernels", false, .text = &s->kernels},
        {"--kind", false, .text = &s->kind},
        {"--settings", false, .text = &s->settings},
        {"--node-index", false, .u32 = &s->node_index},
        {"--node-count", false, .u32 = &s->node_count},
        {"--shard", false, .u32 = &s->shards.shard},
        {"--shards", false, .u32 = &s->shards.n_shards},
        {"--tp", false, .u32 = &s->shards.tp},
        {"--gang", false, .u64 = &s->shards.name.gang},
        {"--coll", false, .text = &coll},
    };
    size_t n = sizeof options / sizeof options[0];
    for (int i = 2; i < argc; i += 2) {
        size_t k = 0;
        while (k < n && strcmp(options[k].name, argv[i]))
            k++;
        if (k == n)
            return err_set(e, ERR_CONFIG, "%s: unknown option of --serve", argv[i]);
        int rc = option_set(&options[k], argv[i + 1], e);
        if (rc)
            return rc;
    }
    if (s->node_count && s->node_index >= s->node_count)
        return err_set(e, ERR_CONFIG, "--node-index %u of --node-count %u", s->node_index,
                       s->node_count);
    for (size_t k = 0; k < n; k++)
        if (options[k].required && !options[k].seen)
            return err_set(e, ERR_CONFIG, "%s: missing", options[k].name);
    return shards_finish(s, coll, e);
}

static int run_serve(int argc, char **argv, struct err *e)
{
    struct serve_options s;
    int rc = parse_serve(&s, argc, argv, e);
    if (rc)
        return rc;
    /* no SA_RESTART: a signal ends a wait */
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_term}, NULL);
    sigaction(SIGINT, &(struct sigaction){.sa_handler = on_term}, NULL);
    return serve_run(&s, &stop_requested, e);
}

int main(int argc, char **argv)
{
    struct err e = ERR_INIT;
    int rc;
    log_init("engine", -1);
    if (argc > 1 && !strcmp(argv[1], "--stub"))
        rc = run_stub(argc, argv, &e);
    else if (argc > 1 && !strcmp(argv[1], "--serve"))
        rc = run_serve(argc, argv, &e);
    else
        rc = err_set(&e, ERR_CONFIG, "expected --stub or --serve; workers start this program");
    if (!rc)
        return 0;
    log_error("engine: %s", e.text);
    return err_exit_code(rc);
}
