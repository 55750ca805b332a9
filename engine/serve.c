/* serve.c - see serve.h. */
#include "engine/serve.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/bind.h"
#include "engine/engine.h"
#include "engine/result.h"
#include "engine/ring.h"
#include "engine/settings.h"

enum {
    IDLE_WAIT_US = 200000, /* how late a signal between two looks is noticed */
    /* A worker loop that does not read for this long hangs; its streams are replayed elsewhere. */
    EVENTS_FULL_US = 10000000,
    EVENTS_FULL_POLL_US = 1000,
    SIGTERM_DRAIN_US = 25000000, /* Slurm sends KILL 30 s after TERM (KillWait) */
    STOP_DRAIN_US = 600000000,   /* a worker that wants it shorter kills */
    FLUSH_BYTES = 1 << 20,
    WARM_TOKENS = 8,
    WARM_PROMPT = 64,
};
/* The warm-up's router: no member has this id (MSG_MAX_MEMBERS). */
static const struct attempt WARM_ATTEMPT = {UINT32_MAX, 0, 0, 1};

struct serve {
    const struct serve_options *o;
    struct channel *channel;
    struct channel_status *status;
    struct shards shards;
    struct engine *engine;
    char settings[MSG_SETTINGS_BYTES];
    struct buf in;  /* the command at hand */
    struct buf out; /* the STEPS body that is being written */
    struct buf ext; /* one extension of an entry */
    uint32_t n_entries;
    uint64_t step, n_computed; /* the engine's count of computed steps */
    bool stop_seen;
    uint64_t drain_until_us;
    struct err unsent; /* results of the step at hand could not be sent; code 0: none */
};

/* --- sending --------------------------------------------------------------------------------------------- */

static int send_record(struct serve *s, uint16_t type, const struct buf *body, struct err *e)
{
    if (!buf_ok(body))
        return err_set(e, ERR_NOMEM, "a record of type %u outgrew its bound", type);
    uint64_t end = clock_now_us() + EVENTS_FULL_US;
    for (;;) {
        int rc = channel_send(s->channel, type, body->data, body->len, e);
        if (rc != ERR_AGAIN)
            return rc;
        if (clock_now_us() >= end)
            return err_set(e, ERR_TIMEOUT, "the worker has not read its events for %d s",
                           EVENTS_FULL_US / 1000000);
        clock_sleep_us(EVENTS_FULL_POLL_US);
    }
}

static void section_begin(struct serve *s)
{
    buf_reset(&s->out);
    s->n_entries = 0;
    msg_section_put(&s->out, &(struct step_section){
                                 .deployment = s->o->deployment,
                                 .replica = s->o->replica,
                                 .epoch = s->o->epoch,
                                 .step = s->step,
                             });
}

static int section_send(struct serve *s, struct err *e)
{
    if (!s->n_entries)
        return 0;
    msg_section_patch(&s->out, 0, s->n_entries);
    int rc = send_record(s, MSG_STEPS, &s->out, e);
    section_begin(s);
    return rc;
}

static void on_result(void *ctx, const struct step_result *r)
{
    struct serve *s = ctx;
    s->n_entries += result_put(&s->out, &s->ext, r);
    /* wide embeddings of a full step are more than a record holds */
    if (s->out.len > FLUSH_BYTES && !s->unsent.code)
        section_send(s, &s->unsent);
}

static void publish_load(struct serve *s)
{
    struct engine_load load;
    struct channel_status *st = s->status;
    engine_load(s->engine, &load);
    atomic_store_explicit(&st->n_steps, load.n_steps, memory_order_relaxed);
    atomic_store_explicit(&st->n_tokens, load.n_tokens, memory_order_relaxed);
    atomic_store_explicit(&st->n_active, load.n_active - load.n_queued, memory_order_relaxed);
    atomic_store_explicit(&st->n_queued, load.n_queued, memory_order_relaxed);
    atomic_store_explicit(&st->kv_free_tokens, load.kv_free_tokens, memory_order_relaxed);
    atomic_store_explicit(&st->step_p50_us, (uint32_t)engine_step_quantile_us(&load, 500),
                          memory_order_relaxed);
    atomic_store_explicit(&st->step_p99_us, (uint32_t)engine_step_quantile_us(&load, 990),
                          memory_order_relaxed);
    atomic_store_explicit(&st->n_prefill, load.n_prefill_rows, memory_order_relaxed);
    atomic_store_explicit(&st->n_reused, load.n_reused_tokens, memory_order_relaxed);
    atomic_store_explicit(&st->n_preempted, load.n_preempted, memory_order_relaxed);
    atomic_store_explicit(&st->n_drafted, load.n_drafted, memory_order_relaxed);
    atomic_store_explicit(&st->n_draft_held, load.n_draft_held, memory_order_relaxed);
}

/* --- coming up ------------------------------------------------------------------------------------------- */

struct warm_up {
    uint32_t n_tokens, n_embedding;
    int finish;
    struct err error;
};

static void on_warm_result(void *ctx, const struct step_result *r)
{
    struct warm_up *w = ctx;
    w->n_tokens += r->n_tokens;
    w->n_embedding += r->n_embedding;
    w->finish = r->finish;
    if (r->error)
        w->error = *r->error;
}

/* One real answer: a prompt that is computed in one piece, and with text one token after the other. */
static int warm_up_one(struct serve *s, const struct engine_info *info, uint32_t n_prompt,
                       struct err *e)
{
    struct warm_up w = {0};
    static const uint8_t tokens[4 * WARM_PROMPT]; /* of token 0, which every vocabulary has */
    uint32_t room = info->n_ctx - n_prompt;
    struct msg_submit submit = {
        .attempt = WARM_ATTEMPT,
        .kind = info->embeds ? SUBMIT_EMBED : SUBMIT_GENERATE,
        .sampling = {.top_p = 1},
        .max_tokens = room < WARM_TOKENS ? room : WARM_TOKENS,
        .ignore_eos = true,
        .n_tokens = n_prompt,
        .tokens = tokens,
    };
    int rc = engine_submit(s->engine, &submit, clock_now_us(), e);
    while (!rc && w.finish == FINISH_NONE) {
        int n = engine_step(s->engine, clock_now_us(), on_warm_result, &w, e);
        rc = n < 0 ? n : 0;
    }
    if (rc)
        return rc;
    if (w.error.code)
        return err_set(e, w.error.code, "warm-up: %s", w.error.text);
    bool ok = info->embeds ? w.finish == FINISH_STOP && w.n_embedding
                           : w.finish == FINISH_LENGTH && w.n_tokens == submit.max_tokens;
    if (!ok)
        return err_set(e, ERR_DEVICE, "warm-up: %u of %u tokens, finish %d", w.n_tokens,
                       submit.max_tokens, w.finish);
    return 0;
}

/* READY is a promise: real answers have come out of this process, by steps of both kinds. */
static int warm_up(struct serve *s, const struct engine_info *info, struct err *e)
{
    uint32_t n_prompt = info->n_ctx - 1 < WARM_PROMPT ? info->n_ctx - 1 : WARM_PROMPT;
    int rc = warm_up_one(s, info, 1, e);
    return rc ? rc : warm_up_one(s, info, n_prompt, e);
}

static int send_ready(struct serve *s, const struct engine_info *info, uint64_t load_us,
                      uint64_t warm_us, struct err *e)
{
    struct msg_engine_ready m = {
        .n_slots = info->n_slots + info->n_queue,
        .n_ctx = info->n_ctx,
        .kv_total_tokens = info->kv_total_tokens,
        .n_threads = info->n_threads,
        .load_us = load_us,
        .warm_us = warm_us,
        .memory_bytes = info->memory_bytes,
    };
    memcpy(m.kernels, info->kernels, sizeof m.kernels);
    memcpy(m.numerics, info->numerics, sizeof m.numerics);
    buf_reset(&s->ext);
    msg_engine_ready_put(&s->ext, &m);
    return send_record(s, MSG_ENGINE_READY, &s->ext, e);
}

static int come_up(struct serve *s, struct err *e)
{
    const struct serve_options *o = s->o;
    struct engine_config c = {
        .kind = o->kind,
        .image_path = o->image,
        .n_ctx = o->n_ctx,
        .n_slots = o->n_slots,
        .n_threads = o->n_threads,
        .chunk = o->chunk,
        .kernels = o->kernels,
        .node_index = o->node_index,
        .node_count = o->node_count,
        .shard = o->shards.shard,
        .n_shards = o->shards.n_shards,
        .tp = o->shards.tp,
        .shards = &s->shards,
    };
    uint64_t start = clock_now_us();
    uint32_t n_bound = 0;
    int rc = o->settings ? settings_read(&c, s->settings, o->settings, e) : 0;
    if (!rc && o->node_count)
        rc = bind_cores(o->node_index, o->node_count, o->n_threads, &n_bound, e);
    if (!rc)
        rc = shards_open(&s->shards, &o->shards, e);
    c.all = s->shards.all;
    c.tp_group = s->shards.tp;
    if (!rc)
        rc = engine_create(&s->engine, &c, e);
    if (rc)
        return rc;
    struct engine_info info;
    engine_info(s->engine, &info);
    uint64_t loaded = clock_now_us();
    if (!o->shards.shard)
        rc = warm_up(s, &info, e);
    if (rc)
        return rc;
    uint64_t warm = clock_now_us();
    publish_load(s);
    log_info("engine: ready deployment=%u replica=%u epoch=%" PRIu64
             " kernels=%s threads=%u slots=%u context=%u load_ms=%" PRIu64 " warm_ms=%" PRIu64,
             o->deployment, o->replica, o->epoch, info.kernels, info.n_threads, info.n_slots,
             info.n_ctx, (loaded - start) / 1000, (warm - loaded) / 1000);
    return send_ready(s, &info, loaded - start, warm - loaded, e);
}

/* --- commands -------------------------------------------------------------------------------------------- */

static void drain_begin(struct serve *s, uint64_t within_us, const char *why)
{
    if (!s->drain_until_us)
        log_info("engine: finishing why=%s", why);
    uint64_t until = clock_now_us() + within_us;
    if (!s->drain_until_us || until < s->drain_until_us)
        s->drain_until_us = until;
}

static int submit_try(struct serve *s, const struct msg_submit *m, struct err *why)
{
    const struct serve_options *o = s->o;
    if (m->deployment != o->deployment || m->replica != o->replica)
        return err_set(why, ERR_FENCED, "this is replica %u of deployment %u, not %u of %u",
                       o->replica, o->deployment, m->replica, m->deployment);
    if (m->epoch != o->epoch)
        return err_set(why, ERR_FENCED,
                       "replica %u runs under epoch %" PRIu64 ", the request says %" PRIu64,
                       o->replica, o->epoch, m->epoch);
    if (s->drain_until_us)
        return err_set(why, ERR_AGAIN, "replica %u is draining", o->replica);
    return engine_submit(s->engine, m, clock_now_us(), why);
}

static int take_submit(struct serve *s, struct err *e)
{
    struct msg_submit m;
    struct err why = ERR_INIT;
    if (msg_submit_get(&m, s->in.data, s->in.len, &why)) {
        log_warn("engine: dropped a command: %s", why.text);
        return 0;
    }
    int rc = submit_try(s, &m, &why);
    if (rc == ERR_PROTO) { /* the attempt runs already: an answer would end that one */
        log_warn("engine: %s", why.text);
        return 0;
    }
    if (rc) {
        bool elsewhere = rc == ERR_AGAIN || rc == ERR_FENCED;
        on_result(s, &(struct step_result){
                         .attempt = m.attempt,
                         .position = m.start,
                         .finish = elsewhere ? FINISH_REFUSED : FINISH_ERROR,
                         .error = &why,
                     });
    }
    return s->out.len > FLUSH_BYTES ? section_send(s, e) : 0;
}

/* A command that cannot be read is dropped: it may come from far, and must not take this replica's streams with it. */
static int take_command(struct serve *s, uint16_t type, struct err *e)
{
    struct msg_cancel cancel;
    struct err why = ERR_INIT;
    switch (type) {
    case MSG_SUBMIT:
        return take_submit(s, e);
    case MSG_CANCEL:
        if (!msg_cancel_get(&cancel, s->in.data, s->in.len, &why))
            engine_cancel(s->engine, &cancel.attempt);
        break;
    case MSG_ENGINE_STOP:
        drain_begin(s, STOP_DRAIN_US, "stop");
        break;
    default:
        err_set(&why, ERR_PROTO, "a record of type %u is no command", type);
    }
    if (why.code)
        log_warn("engine: dropped a command: %s", why.text);
    return 0;
}

static int take_commands(struct serve *s, struct err *e)
{
    uint16_t type;
    for (;;) {
        int rc = channel_recv(s->channel, &type, &s->in, e);
        if (rc <= 0)
            return rc;
        rc = take_command(s, type, e);
        if (rc)
            return rc;
    }
}

/* --- the loop -------------------------------------------------------------------------------------------- */

/* Returns the number of active requests, or a negative error. */
static int one_step(struct serve *s, struct err *e)
{
    uint64_t start = clock_now_us();
    atomic_store_explicit(&s->status->step_started_us, start, memory_order_relaxed);
    int n = engine_step(s->engine, start, on_result, s, e);
    if (n < 0)
        return n;
    uint64_t end = clock_now_us();
    atomic_store_explicit(&s->status->step_started_us, 0, memory_order_relaxed);
    publish_load(s);
    struct engine_load load;
    engine_load(s->engine, &load);
    if (load.n_steps != s->n_computed) { /* not an idle look */
        s->n_computed = load.n_steps;
        s->step++;
        atomic_store_explicit(&s->status->last_step_us, end, memory_order_relaxed);
        atomic_store_explicit(&s->status->step_us, (uint32_t)(end - start), memory_order_relaxed);
    }
    if (s->unsent.code)
        return err_set(e, s->unsent.code, "%s", s->unsent.text);
    int rc = section_send(s, e);
    return rc ? rc : n;
}

static int loop(struct serve *s, const volatile sig_atomic_t *stop, struct err *e)
{
    section_begin(s);
    for (int active = 0;;) {
        if (*stop && !s->stop_seen) {
            s->stop_seen = true;
            drain_begin(s, SIGTERM_DRAIN_US, "signal");
        }
        int rc = take_commands(s, e);
        if (rc)
            return rc;
        active = one_step(s, e);
        if (active < 0)
            return active;
        if (s->drain_until_us && (!active || clock_now_us() >= s->drain_until_us))
            return 0;
        if (!active)
            channel_wait(s->channel, IDLE_WAIT_US);
    }
}

/* Steps that shard 0 hands out, until it says that there are no more. It decides when to stop. */
static int follow(struct serve *s, struct err *e)
{
    for (;;) {
        int n = engine_step(s->engine, clock_now_us(), on_result, s, e);
        if (n <= 0)
            return n;
        publish_load(s);
    }
}

static void last_words(struct serve *s, const struct err *why)
{
    struct msg_text m = {.code = why->code};
    snprintf(m.text, sizeof m.text, "%s", why->text);
    buf_reset(&s->ext);
    msg_text_put(&s->ext, &m);
    if (buf_ok(&s->ext))
        channel_send(s->channel, MSG_ENGINE_FAILED, s->ext.data, s->ext.len, NULL);
}

int serve_run(const struct serve_options *o, const volatile sig_atomic_t *stop, struct err *e)
{
    struct err local = ERR_INIT;
    e = e ? e : &local;
    struct serve s = {.o = o, .unsent = ERR_INIT};
    int rc = channel_attach(&s.channel, CHANNEL_FD_COMMANDS, e);
    if (rc)
        return rc;
    s.status = channel_status(s.channel);
    buf_init(&s.in, RING_MAX_RECORD);
    buf_init(&s.out, RING_MAX_RECORD);
    buf_init(&s.ext, RESULT_MAX_EXT_BYTES);
    rc = come_up(&s, e);
    if (!rc)
        rc = o->shards.shard ? follow(&s, e) : loop(&s, stop, e);
    if (rc)
        last_words(&s, e);
    engine_destroy(s.engine);
    shards_close(&s.shards);
    buf_fini(&s.in);
    buf_fini(&s.out);
    buf_fini(&s.ext);
    channel_destroy(s.channel);
    return rc;
}
