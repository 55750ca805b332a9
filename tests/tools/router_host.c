/* router_host.c - a router with one engine in one process: something to talk to without Slurm, MPI
 * or UCX.
 *
 *   router_host --fake            an engine that says the prompt back, byte-level tokens
 *   router_host --fake --embed    the same as an embedding model
 *   router_host --model GGUF      the model itself (its image in --cache DIR)
 *   router_host --model GGUF --fake   the model's tokenizer, but the engine says the prompt back
 *
 * Prints "listening PORT" once bound. SIGUSR1: the worker is lost (and comes back with the next
 * heartbeat). SIGUSR2: heartbeats stop or go on. SIGTERM: drain, then exit 0. The engine has a
 * thread of its own; two bounded queues lie between.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/queue.h"
#include "engine/result.h"
#include "model/gguf.h"
#include "model/image.h"
#include "router/router.h"
#include "tests/tools/byte_model.h"
#include "tests/tools/fake_engine.h"

#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>

enum { WORKER = 7, EPOCH = 3, QUEUE_ITEMS = 4096, HEARTBEAT_MS = 100, IDLE_WAIT_US = 200000 };

struct item {
    bool is_cancel;
    size_t n;
    uint8_t bytes[];
};

struct host {
    /* options */
    bool fake, embed;
    const char *model, *cache, *state, *name;
    uint32_t n_ctx, n_slots, n_threads, step_us, grace_ms;
    struct router_config config;
    /* loop thread */
    uv_loop_t loop;
    uv_timer_t heartbeat;
    uv_poll_t frames_poll;
    uv_signal_t sig_term, sig_int, sig_usr1, sig_usr2;
    struct router *router;
    bool silent, leaving;
    uint64_t seq;
    /* between the threads */
    struct queue *commands, *frames;
    _Atomic uint32_t n_active, kv_free;
    _Atomic uint64_t n_steps, n_tokens;
    _Atomic bool stop;
    /* engine thread */
    pthread_t thread;
    struct fake_engine *fake_engine;
    struct engine *engine;
    struct buf frame;
    uint32_t n_entries;
};

static struct item *item_make(const void *data, size_t n)
{
    struct item *it = malloc(sizeof *it + n);
    if (it) {
        *it = (struct item){.n = n};
        memcpy(it->bytes, data, n);
    }
    return it;
}

/* --- engine thread ---------------------------------------------------------------------------- */

static void put_result(void *ctx, const struct step_result *r)
{
    struct host *h = ctx;
    struct buf ext;
    buf_init(&ext, RESULT_MAX_EXT_BYTES);
    h->n_entries += result_put(&h->frame, &ext, r);
    buf_fini(&ext);
}

static void frame_begin(struct host *h)
{
    buf_reset(&h->frame);
    h->n_entries = 0;
    msg_section_put(&h->frame, &(struct step_section){.epoch = EPOCH, .step = h->n_steps});
}

static void frame_send(struct host *h)
{
    if (!h->n_entries)
        return;
    msg_section_patch(&h->frame, 0, h->n_entries);
    struct item *it = item_make(h->frame.data, h->frame.len);
    while (queue_push(h->frames, it) && !h->stop)
        clock_sleep_us(1000);
}

static void take_submit(struct host *h, const struct item *it)
{
    struct msg_submit s;
    struct err e = ERR_INIT;
    if (msg_submit_get(&s, it->bytes, it->n, &e)) {
        log_error("router_host: %s", e.text);
        return;
    }
    int rc = h->fake ? fake_engine_submit(h->fake_engine, &s, &e)
                     : engine_submit(h->engine, &s, clock_now_us(), &e);
    if (!rc)
        return;
    struct step_result r = {.attempt = s.attempt,
                            .finish = rc == ERR_AGAIN ? FINISH_REFUSED : FINISH_ERROR,
                            .error = rc == ERR_AGAIN ? NULL : &e};
    frame_begin(h);
    put_result(h, &r);
    frame_send(h);
}

static void take_command(struct host *h, struct item *it)
{
    struct msg_cancel c;
    if (!it->is_cancel)
        take_submit(h, it);
    else if (!msg_cancel_get(&c, it->bytes, it->n, NULL))
        h->fake ? fake_engine_cancel(h->fake_engine, &c.attempt)
                : engine_cancel(h->engine, &c.attempt);
    free(it);
}

static void publish_load(struct host *h)
{
    struct engine_load load;
    h->fake ? fake_engine_load(h->fake_engine, &load) : engine_load(h->engine, &load);
    h->n_active = load.n_active;
    h->kv_free = load.kv_free_tokens;
    h->n_steps = load.n_steps;
    h->n_tokens = load.n_tokens;
}

static void *engine_thread(void *arg)
{
    struct host *h = arg;
    struct err e = ERR_INIT;
    int n_active = 0;
    while (!h->stop) {
        struct item *it =
            n_active ? queue_pop(h->commands) : queue_pop_wait(h->commands, IDLE_WAIT_US);
        for (; it; it = queue_pop(h->commands))
            take_command(h, it);
        frame_begin(h);
        n_active = h->fake ? fake_engine_step(h->fake_engine, put_result, h)
                           : engine_step(h->engine, clock_now_us(), put_result, h, &e);
        if (n_active < 0) {
            log_error("router_host: engine failed: %s", e.text);
            return NULL;
        }
        frame_send(h);
        publish_load(h);
        if (n_active && (h->step_us || !h->n_entries)) /* a silent request must not burn a core */
            clock_sleep_us(h->step_us ? h->step_us : 1000);
    }
    return NULL;
}

/* --- loop thread ------------------------------------------------------------------------------ */

static int link_send(struct host *h, const void *body, size_t n, bool is_cancel, struct err *e)
{
    struct item *it = item_make(body, n);
    if (!it)
        return err_set(e, ERR_NOMEM, "out of memory");
    it->is_cancel = is_cancel;
    if (!queue_push(h->commands, it))
        return 0;
    free(it);
    return err_set(e, ERR_LIMIT, "the engine's queue is full");
}

static int link_submit(void *ctx, uint32_t worker, const void *body, size_t n, struct err *e)
{
    return link_send(ctx, body, n, false, e);
}

static int link_cancel(void *ctx, uint32_t worker, const void *body, size_t n, struct err *e)
{
    return link_send(ctx, body, n, true, e);
}

static void on_frames(uv_poll_t *p, int status, int events)
{
    struct host *h = p->data;
    for (struct item *it; (it = queue_pop(h->frames));) {
        router_on_steps(h->router, WORKER, it->bytes, it->n);
        free(it);
    }
}

static void on_heartbeat(uv_timer_t *t)
{
    struct host *h = t->data;
    static struct msg_heartbeat hb;
    if (h->silent)
        return;
    hb = (struct msg_heartbeat){
        .member = WORKER, .incarnation = 1, .seq = ++h->seq, .n_replicas = 1};
    hb.replicas[0] = (struct replica_load){.epoch = EPOCH,
                                           .incarnation = 1,
                                           .state = REPLICA_READY,
                                           .n_active = h->n_active,
                                           .n_slots = h->n_slots,
                                           .kv_free_tokens = h->kv_free,
                                           .kv_total_tokens = h->n_slots * h->n_ctx,
                                           .n_steps = h->n_steps,
                                           .n_tokens = h->n_tokens};
    router_on_heartbeat(h->router, &hb, true, clock_now_us());
}

static void on_closed(void *ctx)
{
    struct host *h = ctx;
    uv_close((uv_handle_t *)&h->heartbeat, NULL);
    uv_close((uv_handle_t *)&h->frames_poll, NULL);
    uv_close((uv_handle_t *)&h->sig_term, NULL);
    uv_close((uv_handle_t *)&h->sig_int, NULL);
    uv_close((uv_handle_t *)&h->sig_usr1, NULL);
    uv_close((uv_handle_t *)&h->sig_usr2, NULL);
}

static void on_drained(void *ctx)
{
    struct host *h = ctx;
    router_close(h->router, on_closed, h);
}

static void on_signal(uv_signal_t *s, int signum)
{
    struct host *h = s->data;
    if (signum == SIGUSR1) {
        router_on_worker_lost(h->router, WORKER, "asked for by SIGUSR1");
    } else if (signum == SIGUSR2) {
        h->silent = !h->silent;
    } else if (!h->leaving) {
        h->leaving = true;
        router_drain(h->router, h->grace_ms, on_drained, h);
    }
}

/* --- start ------------------------------------------------------------------------------------ */

static int build_image(struct host *h, struct gguf *g, char *path, size_t cap, struct err *e)
{
    struct model_index *x = &g->index;
    struct buf meta;
    struct image_writer *w = NULL;
    buf_init(&meta, META_MAX_BYTES);
    for (uint32_t s = 0; s < x->n_segments; s++) {
        struct segment seg = index_segment(x, s);
        sha256_of(g->tensor_data[seg.tensor] + seg.offset, seg.n_bytes, x->hashes[s]);
    }
    int rc = meta_encode(&g->meta, &meta, e);
    sha256_of(meta.data, meta.len, x->meta_hash);
    if (!rc)
        rc = index_seal(x, e);
    if (!rc)
        rc = image_writer_open(&w, h->cache, x, meta.data, meta.len, 60000000, e);
    for (uint32_t s = 0; !rc && s < x->n_segments; s++) {
        struct segment seg = index_segment(x, s);
        if (!(image_writer_have(w)[s / 8] >> (s % 8) & 1))
            rc = image_writer_put(w, s, g->tensor_data[seg.tensor] + seg.offset, seg.n_bytes, e);
    }
    if (!rc)
        rc = image_writer_finish(w, path, cap, e);
    if (w)
        image_writer_close(w);
    buf_fini(&meta);
    return rc;
}

static int start_engine(struct host *h, struct gguf *g, struct err *e)
{
    char path[4096];
    if (h->fake) {
        h->fake_engine = fake_engine_create(h->n_slots, h->n_ctx, h->model ? 17 : BYTE_MODEL_FIRST);
        return 0;
    }
    int rc = build_image(h, g, path, sizeof path, e);
    if (rc)
        return rc;
    struct engine_config c = {.kind = "cpu",
                              .image_path = path,
                              .n_ctx = h->n_ctx,
                              .n_slots = h->n_slots,
                              .n_threads = h->n_threads,
                              .n_shards = 1};
    return engine_create(&h->engine, &c, e);
}

static int announce_model(struct host *h, const struct model_meta *meta,
                          const struct model_index *x, struct err *e)
{
    struct buf mb, xb;
    buf_init(&mb, META_MAX_BYTES);
    buf_init(&xb, INDEX_MAX_BYTES);
    int rc = meta_encode(meta, &mb, e);
    if (!rc && x)
        rc = index_encode(x, &xb, e);
    struct msg_model m = {.n_ctx = h->n_ctx,
                          .index_bytes = (uint32_t)xb.len,
                          .meta_bytes = (uint32_t)mb.len,
                          .index = xb.data,
                          .meta = mb.data};
    snprintf(m.name, sizeof m.name, "%s", h->name ? h->name : meta->name);
    if (!rc)
        router_on_model(h->router, &m);
    buf_fini(&mb);
    buf_fini(&xb);
    return rc;
}

static int start(struct host *h, struct err *e)
{
    struct gguf g = {0};
    struct model_meta bytes;
    byte_model_meta(&bytes);
    if (h->embed)
        bytes.params.pooling = POOLING_LAST;
    int rc = h->model ? gguf_open(&g, h->model, e) : 0;
    if (!rc)
        rc = start_engine(h, &g, e);
    struct router_link link = {h, link_submit, link_cancel};
    if (!rc)
        rc = router_create(&h->router, &h->loop, &h->config, &link, e);
    if (!rc)
        rc = announce_model(h, h->model ? &g.meta : &bytes, h->model ? &g.index : NULL, e);
    if (h->model && g.map)
        gguf_close(&g);
    meta_fini(&bytes);
    return rc;
}

static uint8_t state_of(const char *name)
{
    for (int s = SERVICE_STARTING; s <= SERVICE_STOPPED; s++)
        if (!strcmp(service_state_name(s), name))
            return (uint8_t)s;
    fprintf(stderr, "router_host: unknown state %s\n", name);
    exit(4);
}

static void begin_handles(struct host *h)
{
    struct msg_service s = {.state = state_of(h->state), .n_ready = 1, .n_wanted = 1, .n_min = 1};
    snprintf(s.progress, sizeof s.progress, "%s", "1 of 1 replicas ready");
    h->heartbeat.data = h->frames_poll.data = h;
    uv_timer_init(&h->loop, &h->heartbeat);
    uv_timer_start(&h->heartbeat, on_heartbeat, 0, HEARTBEAT_MS);
    uv_poll_init(&h->loop, &h->frames_poll, queue_fd(h->frames));
    uv_poll_start(&h->frames_poll, UV_READABLE, on_frames);
    uv_signal_t *sigs[] = {&h->sig_term, &h->sig_int, &h->sig_usr1, &h->sig_usr2};
    int nums[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2};
    for (int i = 0; i < 4; i++) {
        uv_signal_init(&h->loop, sigs[i]);
        sigs[i]->data = h;
        uv_signal_start(sigs[i], on_signal, nums[i]);
    }
    router_on_worker_host(h->router, WORKER, "node007", "rack0");
    router_on_scheduler(h->router, true);
    router_on_service(h->router, &s);
}

static uint32_t number(const char *s)
{
    return (uint32_t)strtoul(s, NULL, 10);
}

static void parse_options(struct host *h, int argc, char **argv)
{
    static const struct option OPTIONS[] = {
        {"fake", 0, NULL, 'f'},       {"model", 1, NULL, 'm'},      {"cache", 1, NULL, 'c'},
        {"port", 1, NULL, 'p'},       {"key", 1, NULL, 'k'},        {"state", 1, NULL, 's'},
        {"ctx", 1, NULL, 'x'},        {"slots", 1, NULL, 'n'},      {"threads", 1, NULL, 't'},
        {"step-us", 1, NULL, 'u'},    {"body-max", 1, NULL, 'b'},   {"connections", 1, NULL, 'C'},
        {"header-ms", 1, NULL, 'H'},  {"bodies-max", 1, NULL, 'B'}, {"idle-ms", 1, NULL, 'I'},
        {"request-ms", 1, NULL, 'R'}, {"suspect-ms", 1, NULL, 'S'}, {"grace-ms", 1, NULL, 'g'},
        {"name", 1, NULL, 'N'},       {"embed", 0, NULL, 'E'},      {NULL, 0, NULL, 0},
    };
    for (int c; (c = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1;) {
        switch (c) {
        case 'f':
            h->fake = true;
            break;
        case 'E':
            h->embed = true;
            break;
        case 'm':
            h->model = optarg;
            break;
        case 'c':
            h->cache = optarg;
            break;
        case 'p':
            h->config.port = (uint16_t)number(optarg);
            break;
        case 'k':
            h->config.key = optarg;
            break;
        case 's':
            h->state = optarg;
            break;
        case 'x':
            h->n_ctx = number(optarg);
            break;
        case 'n':
            h->n_slots = number(optarg);
            break;
        case 't':
            h->n_threads = number(optarg);
            break;
        case 'u':
            h->step_us = number(optarg);
            break;
        case 'b':
            h->config.max_body_bytes = number(optarg);
            break;
        case 'B':
            h->config.max_bodies_bytes = number(optarg);
            break;
        case 'C':
            h->config.max_connections = number(optarg);
            break;
        case 'H':
            h->config.header_timeout_ms = number(optarg);
            break;
        case 'I':
            h->config.idle_timeout_ms = number(optarg);
            break;
        case 'R':
            h->config.request_timeout_ms = number(optarg);
            break;
        case 'S':
            h->config.suspect_ms = number(optarg);
            break;
        case 'g':
            h->grace_ms = number(optarg);
            break;
        case 'N':
            h->name = optarg;
            break;
        default:
            exit(4);
        }
    }
    if (!h->fake && (!h->model || !h->cache)) {
        fprintf(stderr, "router_host: --fake, or --model FILE and --cache DIR\n");
        exit(4);
    }
}

int main(int argc, char **argv)
{
    struct err e = ERR_INIT;
    static struct host h = {
        .state = "READY",
        .n_ctx = 2048,
        .n_slots = 8,
        .n_threads = 1,
        .grace_ms = 60000,
        .config = {
            .listen = "127.0.0.1", .key = "test-key", .member = 1, .incarnation = 0x1234567890}};
    parse_options(&h, argc, argv);
    log_init("router_host", -1);
    signal(SIGPIPE, SIG_IGN);
    uv_loop_init(&h.loop);
    buf_init(&h.frame, 64 << 20);
    h.kv_free = h.n_slots * h.n_ctx;
    if (queue_create(&h.commands, QUEUE_ITEMS, &e) || queue_create(&h.frames, QUEUE_ITEMS, &e) ||
        start(&h, &e)) {
        fprintf(stderr, "router_host: %s\n", e.text);
        return err_exit_code(e.code);
    }
    begin_handles(&h);
    if (pthread_create(&h.thread, NULL, engine_thread, &h))
        return 1;
    printf("listening %u\n", router_port(h.router));
    fflush(stdout);
    uv_run(&h.loop, UV_RUN_DEFAULT);
    h.stop = true;
    pthread_join(h.thread, NULL);
    for (struct item *it; (it = queue_pop(h.frames)) || (it = queue_pop(h.commands));)
        free(it);
    queue_destroy(h.commands);
    queue_destroy(h.frames);
    fake_engine_destroy(h.fake_engine);
    if (h.engine)
        engine_destroy(h.engine);
    buf_fini(&h.frame);
    uv_loop_close(&h.loop);
    return 0;
}
