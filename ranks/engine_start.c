/* engine_start.c - see engine_start.h. */
#include "ranks/engine_start.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

enum { STDIO_FDS = 3, MAX_ARGS = 64, NUMBER_BYTES = 24 };

struct args {
    char *v[MAX_ARGS + 1];
    uint32_t n;
    char numbers[MAX_ARGS][NUMBER_BYTES];
};

/* libuv's argv is not const; nobody writes to it. */
static void add(struct args *a, const char *text)
{
    CHECK(a->n < MAX_ARGS);
    a->v[a->n++] = (char *)text;
}

static void add_number(struct args *a, const char *name, uint64_t value)
{
    if (name)
        add(a, name);
    CHECK(a->n < MAX_ARGS);
    char *text = a->numbers[a->n];
    snprintf(text, NUMBER_BYTES, "%" PRIu64, value);
    add(a, text);
}

static void args_fill(struct args *a, const struct engine_start *o)
{
    const struct msg_assign *m = o->assign;
    add(a, o->engine_path);
    add(a, "--stub");
    add_number(a, NULL, (uint64_t)getpid());
    add_number(a, NULL, (uint64_t)(STDIO_FDS + o->n_fds));
    add(a, "--");
    add(a, o->engine_path);
    add(a, "--serve");
    add(a, "--kind");
    add(a, m->engine);
    add(a, "--image");
    add(a, o->image_path);
    add_number(a, "--deployment", m->deployment);
    add_number(a, "--replica", m->replica);
    add_number(a, "--epoch", m->epoch);
    add_number(a, "--ctx", m->n_ctx);
    add_number(a, "--slots", m->n_slots);
    add_number(a, "--threads", o->n_threads);
    if (m->settings[0]) {
        add(a, "--settings");
        add(a, m->settings);
    }
    if (o->node_count) {
        add_number(a, "--node-index", o->node_index);
        add_number(a, "--node-count", o->node_count);
    }
    if (m->n_shards > 1) {
        add_number(a, "--shard", m->shard);
        add_number(a, "--shards", m->n_shards);
        add_number(a, "--tp", m->tp ? m->tp : 1);
        add_number(a, "--gang", o->gang);
        add(a, "--coll");
        add(a, o->shared_segment ? "shm" : "relay");
    }
}

int engine_start(uv_loop_t *loop, uv_process_t *p, const struct engine_start *o, struct err *e)
{
    struct args args = {.n = 0};
    uv_stdio_container_t stdio[STDIO_FDS + ENGINE_MAX_FDS];
    CHECK(o->n_fds <= ENGINE_MAX_FDS);
    args_fill(&args, o);
    stdio[0].flags = UV_IGNORE;
    for (int i = 1; i < STDIO_FDS; i++) {
        stdio[i].flags = UV_INHERIT_FD;
        stdio[i].data.fd = 2;
    }
    for (int i = 0; i < o->n_fds; i++) {
        stdio[STDIO_FDS + i].flags = UV_INHERIT_FD;
        stdio[STDIO_FDS + i].data.fd = o->fds[i];
    }
    uv_process_options_t options = {.file = o->engine_path,
                                    .args = args.v,
                                    .exit_cb = o->on_exit,
                                    .stdio = stdio,
                                    .stdio_count = STDIO_FDS + o->n_fds};
    int rc = uv_spawn(loop, p, &options);
    return rc ? err_set(e, ERR_SYS, "cannot start %s: %s", o->engine_path, uv_strerror(rc)) : 0;
}
