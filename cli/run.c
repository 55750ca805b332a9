/* run.c - `exaserve run`: the same service on this machine alone, by mpirun, in the foreground. No Slurm, no root. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/fits.h"
#include "cli/run_pack.h"
#include "cli/run_world.h"
#include "cli/say.h"
#include "cli/target.h"
#include "config/config.h"
#include "slurm/fault.h"
#include "slurm/owner.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    POLL_US = 200 * 1000,
    START_SLACK_S = 60, /* the service itself keeps start_deadline; this is for one that hangs */
    END_SLACK_S = 30,
    LOG_LINES = 20,
    MAX_ATTEMPTS = 4,     /* as jobs/serve.sbatch */
    EXIT_NOT_FOUND = 127, /* no mpirun */
};

struct args {
    uint64_t port, replicas, context, slots, threads, start_deadline_s, grace_s;
    const char *listen, *name;
    bool keep;
};

static int text_set(char **field, const char *text, struct err *e)
{
    char *own = strdup(text);
    if (!own)
        return err_set(e, ERR_NOMEM, "out of memory");
    free(*field);
    *field = own;
    return 0;
}

/* What config_load would say of a file that nobody wrote, in the words of the command line; before a model is packed for it. */
static int args_check(const struct args *a, struct err *e)
{
    struct in6_addr any;
    if (inet_pton(AF_INET, a->listen, &any) != 1 && inet_pton(AF_INET6, a->listen, &any) != 1)
        return err_set(e, ERR_CONFIG,
                       "--listen must be an IP address such as 127.0.0.1 or 0.0.0.0, and is \"%s\"",
                       a->listen);
    return world_check(e);
}

/* serve.yaml of this run: what a person would have written for it. */
static int config_write(const struct args *a, const char *pack, const char *dir, struct err *e)
{
    static const char BASE[] = "models: [{pack: x}]\n";
    char path[RUNDIR_PATH_BYTES], *text = NULL;
    struct config *c = NULL, *again = NULL;
    int rc = config_parse(&c, BASE, sizeof BASE - 1, "exaserve run", e);
    if (rc)
        return rc;
    struct config_model *m = &c->models[0];
    m->replicas = (uint32_t)a->replicas;
    m->context = (uint32_t)a->context;
    m->slots = (uint32_t)a->slots;
    m->threads = (uint32_t)a->threads;
    c->port = (uint32_t)a->port;
    c->start_deadline_s = (uint32_t)a->start_deadline_s;
    c->grace_s = (uint32_t)a->grace_s;
    rc = text_set(&m->pack, pack, e);
    if (!rc && a->name)
        rc = text_set(&m->name, a->name, e);
    if (!rc)
        rc = text_set(&c->listen, a->listen, e);
    if (!rc)
        rc = config_dump(c, &text, e);
    if (!rc)
        rc = path_join(path, sizeof path, e, "%s/serve.yaml", dir);
    if (!rc)
        rc = file_publish(path, text, strlen(text), 0600, e);
    if (!rc)
        rc = config_load(&again, path, e); /* a name or address that no file may have either */
    config_free(again);
    config_free(c);
    free(text);
    return rc;
}

/* Said now: a router that finds it out takes the whole start with it, and the next tries as well. */
static int port_check(const struct args *a, struct err *e)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)a->port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)a->port)};
    bool is_v6 = inet_pton(AF_INET, a->listen, &v4.sin_addr) != 1;
    if (is_v6 && inet_pton(AF_INET6, a->listen, &v6.sin6_addr) != 1)
        return 0; /* no address: config_load says so */
    const int on = 1;
    int fd = socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_sys(e, errno, "cannot make a socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on); /* as the router does */
    int rc = is_v6 ? bind(fd, (struct sockaddr *)&v6, sizeof v6)
                   : bind(fd, (struct sockaddr *)&v4, sizeof v4);
    if (!rc)
        rc = listen(fd, 1);
    if (rc)
        rc = err_set(e, ERR_CONFIG, "cannot listen on %s port %" PRIu64 ": %s", a->listen, a->port,
                     strerror(errno));
    close(fd);
    return rc;
}

/* BASE/local/run-PID. A directory of that name belongs to a process that is gone. */
static int dir_create(struct target *t, struct err *e)
{
    t->local = true;
    snprintf(t->cluster, sizeof t->cluster, "local");
    snprintf(t->job, sizeof t->job, "run-%d", (int)getpid());
    int rc = rundir_path(t->dir, sizeof t->dir, t->cluster, t->job, e);
    if (!rc)
        rc = dir_remove(t->dir, e);
    if (!rc)
        rc = rundir_create(t->dir, e);
    if (!rc)
        rc = owner_write(t->dir, e);
    snprintf(t->log, sizeof t->log, "%s/world.log", t->dir);
    return rc;
}

/* The body of the example request, quoted for JSON and for a shell: a model's name may hold anything. */
static char *example_body(const char *model)
{
    json_t *o = json_pack("{s:s, s:i, s:[{s:s, s:s}]}", "model", model, "max_tokens", 100,
                          "messages", "role", "user", "content", "Hello");
    char *text = o ? json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    struct buf quoted;
    buf_init(&quoted, 4096);
    for (const char *p = text ? text : "{}"; *p; p++)
        if (*p == '\'')
            buf_puts(&quoted, "'\\''");
        else
            buf_put(&quoted, p, 1);
    buf_u8(&quoted, 0);
    json_decref(o);
    free(text);
    size_t n;
    return (char *)buf_take(&quoted, &n);
}

static void tell_ready(const struct target *t)
{
    const struct endpoint *p = &t->endpoint;
    char *body = example_body(p->model);
    printf("%s: %s\n  url  %s/v1\n  key  %s\n  try  exaserve chat %s\n"
           "  or   curl %s/v1/chat/completions -H 'Authorization: Bearer %s' \\\n"
           "         -H 'Content-Type: application/json' \\\n"
           "         -d '%s'\n"
           "Ctrl-C ends it.\n",
           p->state, p->progress, p->urls[0], p->key, t->job, p->urls[0], p->key, body ? body : "");
    fflush(stdout);
    free(body);
}

/* From the start until a signal (0), or until the world fails. ERR_AGAIN: it ended before it was ready, and gave no reason. */
static int watch(struct target *t, struct world *w, const struct args *a, struct err *e)
{
    struct progress_line line = {""};
    bool ready = false;
    uint64_t deadline = clock_now_us() + (a->start_deadline_s + START_SLACK_S) * 1000000;
    for (;;) {
        if (world_signal(w, POLL_US))
            return 0;
        struct err why = ERR_INIT;
        int rc = target_endpoint(t, &why);
        if (rc && rc != ERR_AGAIN)
            return err_set(e, rc, "%s", why.text);
        if (!rc && !ready && target_serves(t) && t->endpoint.n_urls) {
            ready = true;
            tell_ready(t);
        } else if (!rc) {
            say_progress(&line, "%s: %s", t->endpoint.state, t->endpoint.progress);
        }
        if (!rc && strcmp(t->endpoint.state, "FAILED") == 0)
            return err_set(e, ERR_PEER, "the service failed: %s", t->endpoint.progress);
        if (!world_running(w)) {
            if (!rc && strcmp(t->endpoint.state, "STOPPED") == 0)
                return 0;
            if (ready)
                return err_set(e, ERR_SYS, "the service ended by itself (mpirun: exit %d)",
                               w->status);
            return err_set(e, w->status == EXIT_NOT_FOUND ? ERR_SYS : ERR_AGAIN,
                           "the service ended before it was ready (mpirun: exit %d)", w->status);
        }
        if (!ready && clock_now_us() >= deadline)
            return err_set(e, ERR_TIMEOUT, "the service is not ready after %" PRIu64 " s",
                           a->start_deadline_s + START_SLACK_S);
    }
}

/* Running requests finish; a second signal ends them. */
static int drain(struct target *t, struct world *w, const struct args *a, struct err *e)
{
    struct progress_line line = {""};
    uint64_t deadline = clock_now_us() + (a->grace_s + END_SLACK_S) * 1000000;
    if (!world_running(w))
        return 0;
    say_progress(&line, "ending: running requests have %" PRIu64 " s (again: at once)", a->grace_s);
    world_drain(w);
    while (world_running(w)) {
        if (world_signal(w, POLL_US)) {
            say_progress(&line, "ending at once");
            return 0;
        }
        if (target_endpoint(t, NULL) == 0 && !target_serves(t))
            say_progress(&line, "%s: %s", t->endpoint.state, t->endpoint.progress);
        if (clock_now_us() >= deadline)
            return err_set(e, ERR_TIMEOUT, "the service did not end by itself in %" PRIu64 " s",
                           a->grace_s + END_SLACK_S);
    }
    return 0;
}

/* A rank that could not join said why: on one machine it would only say it again. */
static int own_fault(const struct target *t, uint32_t number, int rc, struct err *e)
{
    char dir[RUNDIR_PATH_BYTES + 32], host[FAULT_HOST_BYTES];
    struct err why = ERR_INIT;
    if (path_join(dir, sizeof dir, NULL, "%s/attempt-%" PRIu32, t->dir, number) ||
        fault_read(dir, host, &why))
        return rc;
    return err_set(e, why.code == ERR_CONFIG ? ERR_CONFIG : ERR_SYS, "%s", why.text);
}

/* One start of the world, up to its end. ERR_AGAIN: it was lost while it started. The ranks' own exit status says so too, but mpirun
 * --enable-recovery hides it. */
static int attempt(struct target *t, const struct args *a, const char *name, uint32_t number,
                   struct err *e)
{
    struct world w = {0};
    uint32_t n_ranks;
    int rc = world_plan(t->dir, number, &n_ranks, e);
    if (rc)
        return rc;
    fprintf(stderr, "starting %s: %" PRIu32 " processes on this machine, log %s\n", name, n_ranks,
            t->log);
    rc = world_start(&w, t->dir, number, n_ranks, e);
    if (rc)
        return rc;
    rc = watch(t, &w, a, e);
    if (rc == ERR_AGAIN)
        rc = own_fault(t, number, rc, e);
    if (!rc)
        rc = drain(t, &w, a, e);
    world_kill(&w);
    return rc;
}

static int serve(struct target *t, const struct args *a, const char *model, struct err *e)
{
    char pack[PATH_MAX], name[160];
    int rc = args_check(a, e);
    if (!rc)
        rc = port_check(a, e);
    if (!rc)
        rc = run_pack(model, pack, sizeof pack, name, sizeof name, e);
    if (!rc)
        rc = model_fits(&(struct config_model){.pack = pack,
                                               .context = (uint32_t)a->context,
                                               .tensor_parallel = 1,
                                               .pipeline_parallel = 1},
                        e);
    if (rc)
        return rc;
    world_block_signals();
    rc = dir_create(t, e);
    if (!rc)
        rc = config_write(a, pack, t->dir, e);
    if (rc)
        return rc;
    uint32_t number = 1;
    while ((rc = attempt(t, a, name, number, e)) == ERR_AGAIN && number < MAX_ATTEMPTS) {
        fprintf(stderr, "%s: starting it again\n", e->text);
        number++;
    }
    return rc;
}

static int run(int argc, char **argv)
{
    struct args a = {
        .replicas = 1, .slots = 8, .start_deadline_s = 900, .grace_s = 30, .listen = "127.0.0.1"};
    const struct opt opts[] = {
        {"port", 'p', OPT_UINT, "PORT", &a.port, 0, 65535, "TCP port (any free one)"},
        {"listen", 0, OPT_TEXT, "ADDRESS", &a.listen,
         .help = "address to listen on (127.0.0.1; 0.0.0.0: reachable from outside)"},
        {"replicas", 'r', OPT_UINT, "N", &a.replicas, 1, 1024, "replicas of the model (1)"},
        {"context", 'c', OPT_UINT, "N", &a.context, 16, 1 << 20,
         "longest prompt and answer, in tokens (the model's, at most 4096)"},
        {"slots", 's', OPT_UINT, "N", &a.slots, 1, 256, "requests at once in a replica (8)"},
        {"threads", 't', OPT_UINT, "N", &a.threads, 1, 1024,
         "compute threads of a replica (its share of the cores)"},
        {"name", 'n', OPT_TEXT, "NAME", &a.name, .help = "model name (the one in the file)"},
        {"start-deadline", 0, OPT_UINT, "SECONDS", &a.start_deadline_s, 10, 86400,
         "give up when it is not ready by then (900)"},
        {"grace", 0, OPT_UINT, "SECONDS", &a.grace_s, 0, 3600,
         "how long running requests may go on at the end (30)"},
        {"keep", 'k', OPT_FLAG, .value = &a.keep, .help = "keep the run directory with its logs"},
        {.name = NULL},
    };
    const char *operand[OPT_MAX_OPERANDS];
    int code = opt_parse(&COMMAND_RUN, opts, argc, argv, operand);
    if (code != OPT_GO_ON)
        return code;
    struct err e = ERR_INIT;
    struct target *t = calloc(1, sizeof *t);
    int rc = t ? serve(t, &a, operand[0], &e) : err_set(&e, ERR_NOMEM, "out of memory");
    code = rc ? say_error("run", &e) : EXIT_READY;
    if (rc && t && t->log[0] && access(t->log, R_OK) == 0) {
        say_log_tail(t->log, LOG_LINES);
        fprintf(stderr, "kept for you: %s\n", t->dir);
    } else if (rc && t && t->dir[0]) {
        dir_remove(t->dir, NULL); /* nothing was started: nothing to look into */
    } else if (!rc && !a.keep) {
        dir_remove(t->dir, NULL);
    }
    free(t);
    return code;
}

const struct command COMMAND_RUN = {
    .name = "run",
    .operands = "MODEL.gguf|FOLDER|MODEL.h5",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "serve a model on this machine, without Slurm",
    .details = "Serve a model on this machine: the same processes as in a Slurm job, started by "
               "mpirun. It\n"
               "stays in the foreground; Ctrl-C or SIGTERM lets running requests finish and ends "
               "it (exit\n"
               "code 0). A GGUF file or a Hugging Face folder is packed once into the cache "
               "(EXASERVE_CACHE, default\n"
               "${TMPDIR:-/tmp}/exaserve-UID). `exaserve chat` in another terminal talks to it.\n",
    .run = run,
};
