/* store.c - see store.h. */
#include "ranks/store.h"

#include "base/clock.h"
#include "base/log.h"
#include "model/index.h"
#include "ranks/replica.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MODEL_MAX_BYTES = 2 * INDEX_MAX_BYTES, /* index and meta */
    /* So long a look at every hash is believed: an engine that dies meanwhile dies of something else. */
    WHOLE_US = REPLICA_DEATHS_US,
};

struct store {
    struct daemon *d;
    struct store_events events;
    struct buf model; /* the last MSG_MODEL: to ask the mover again */
    char path[1024];
    uint8_t digest[SHA256_BYTES];
    uint32_t round; /* the last one that the mover was given */
    bool checking;  /* the mover looks at it */
    uint64_t whole_until_us;
    char trouble[MSG_TEXT_BYTES];
};

int store_create(struct store **out, struct daemon *d, const struct store_events *ev, struct err *e)
{
    struct store *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_NOMEM, "no memory for the node's image");
    s->d = d;
    s->events = *ev;
    buf_init(&s->model, MODEL_MAX_BYTES);
    *out = s;
    return 0;
}

void store_destroy(struct store *s)
{
    if (!s)
        return;
    buf_fini(&s->model);
    free(s);
}

/* What the node's cache holds, and all of it when it does: to the mover. */
static void open_cache(struct store *s)
{
    struct msg_model m;
    struct err e = ERR_INIT;
    if (msg_model_get(&m, s->model.data, s->model.len, &e)) {
        log_error("store: %s", e.text);
        return;
    }
    struct task *t = daemon_task(s->d, TASK_OPEN_CACHE);
    if (!t)
        return;
    buf_put(&t->a, m.index, m.index_bytes);
    buf_put(&t->b, m.meta, m.meta_bytes);
    daemon_give(s->d, t);
}

static void take_model(struct store *s, const uint8_t *body, size_t n)
{
    buf_reset(&s->model);
    buf_put(&s->model, body, n);
    open_cache(s);
}

static void take_round(struct store *s, const uint8_t *body, size_t n)
{
    struct msg_round m;
    struct err e = ERR_INIT;
    if (msg_round_get(&m, body, n, &e)) {
        log_error("store: %s", e.text);
        return;
    }
    struct task *t = daemon_task(s->d, TASK_ROUND);
    if (!t)
        return;
    s->round = m.round;
    buf_put(&t->a, body, n);
    daemon_give(s->d, t);
}

static void take_weights(struct store *s, const uint8_t *body, size_t n)
{
    struct msg_weights m;
    if (msg_weights_get(&m, body, n, NULL))
        return;
    if (m.code == ERR_AGAIN)
        mover_give_up(s->d->mover, s->round);
    else if (m.code)
        log_error("store: this node gets no weights: %s", m.text);
}

void store_message(struct store *s, uint16_t type, const uint8_t *body, size_t n)
{
    if (type == MSG_MODEL)
        take_model(s, body, n);
    else if (type == MSG_ROUND)
        take_round(s, body, n);
    else
        take_weights(s, body, n);
}

void store_check(struct store *s)
{
    if (s->checking || !s->path[0] || clock_now_us() < s->whole_until_us)
        return;
    struct task *t = daemon_task(s->d, TASK_CHECK_IMAGE);
    if (!t)
        return;
    snprintf(t->path, sizeof t->path, "%s", s->path);
    s->checking = daemon_give(s->d, t);
}

/* The image is gone or damaged: what is left of it counts, the rest comes by a round of weights. */
static void fetch_again(struct store *s, const char *why)
{
    log_error("store: the image is fetched again: %s", why);
    snprintf(s->trouble, sizeof s->trouble, "its image was lost: %.400s", why);
    s->path[0] = 0;
    s->events.lost(s->events.ctx, s->trouble);
    open_cache(s);
}

void store_task(struct store *s, struct task *t)
{
    if (t->kind == TASK_CHECK_IMAGE) {
        s->checking = false;
        if (t->err.code && s->path[0])
            fetch_again(s, t->err.text);
        return;
    }
    if (t->path[0]) {
        if (s->trouble[0] && t->kind == TASK_OPEN_CACHE)
            s->whole_until_us = clock_now_us() + WHOLE_US;
        snprintf(s->path, sizeof s->path, "%s", t->path);
        memcpy(s->digest, t->have.digest, sizeof s->digest);
        s->trouble[0] = 0;
        s->events.ready(s->events.ctx);
    }
    struct buf b;
    buf_init(&b, INDEX_MAX_BYTES);
    msg_have_put(&b, &t->have);
    daemon_send(s->d, SCHEDULER_MEMBER, MSG_HAVE, &b);
    buf_fini(&b);
}

void store_scheduler_up(struct store *s)
{
    if (s->trouble[0])
        open_cache(s);
}

const char *store_path(const struct store *s)
{
    return s->path;
}

const uint8_t *store_digest(const struct store *s)
{
    return s->digest;
}

const char *store_trouble(const struct store *s)
{
    return s->trouble;
}
