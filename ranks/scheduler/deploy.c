/* deploy.c - what members are told of the deployment: the model, rounds of weights and their outcome, their replicas. */
#include "ranks/scheduler/internal.h"

#include <stdio.h>
#include <string.h>

enum { MODEL_MAX_BYTES = 1 << 30 };

/* The body of MSG_MODEL among the actions; *n: its bytes. */
static size_t put_model(struct sched *s, size_t *n)
{
    struct msg_model m = {.deployment = 1,
                          .version = 1,
                          .n_ctx = s->wish.n_ctx,
                          .index = s->index_bytes,
                          .index_bytes = (uint32_t)s->index_n,
                          .meta = s->meta_bytes,
                          .meta_bytes = (uint32_t)s->meta_n};
    snprintf(m.name, sizeof m.name, "%s", s->model_name);
    struct buf b;
    buf_init(&b, MODEL_MAX_BYTES);
    msg_model_put(&b, &m);
    size_t at = sched_body(s, &b);
    *n = b.len;
    buf_fini(&b);
    return at;
}

void sched_tell_model(struct sched *s)
{
    size_t n, at = put_model(s, &n);
    for (uint32_t i = 0; i < s->n_routers; i++)
        sched_send_body(s, s->routers[i], MSG_MODEL, at, n);
    for (uint32_t i = 0; i < s->n_nodes; i++)
        if (s->nodes[i].live)
            sched_send_body(s, s->nodes[i].member, MSG_MODEL, at, n);
}

void sched_tell_model_to(struct sched *s, uint32_t member)
{
    size_t n, at = put_model(s, &n);
    sched_send_body(s, member, MSG_MODEL, at, n);
}

static void assign(struct sched *s, uint32_t replica, uint32_t shard)
{
    const uint32_t *nodes = s->shard_nodes + (size_t)replica * s->n_shards;
    struct msg_assign a = {.deployment = 1,
                           .version = 1,
                           .replica = replica,
                           .epoch = s->replicas[replica].epoch,
                           .shard = shard,
                           .n_shards = s->n_shards,
                           .tp = s->wish.tp ? s->wish.tp : 1,
                           .n_ctx = s->wish.n_ctx,
                           .n_slots = s->wish.n_slots,
                           .n_threads = s->wish.n_threads};
    struct buf peers, b;
    buf_init(&peers, 4 * MSG_MAX_MEMBERS);
    buf_init(&b, PLANE_BODY_SMALL);
    for (uint32_t i = 0; i < s->n_shards && s->n_shards > 1; i++)
        buf_u32(&peers, s->nodes[nodes[i]].member);
    a.n_peers = (uint32_t)(peers.len / 4);
    a.peers = peers.data;
    memcpy(a.digest, s->index.digest, sizeof a.digest);
    snprintf(a.engine, sizeof a.engine, "%s", s->wish.engine);
    snprintf(a.settings, sizeof a.settings, "%s", s->wish.settings);
    msg_assign_put(&b, &a);
    sched_send(s, s->nodes[nodes[shard]].member, MSG_ASSIGN, &b);
    buf_fini(&b);
    buf_fini(&peers);
}

void sched_assign_node(struct sched *s, uint32_t node)
{
    for (uint32_t i = 0; i < s->n_replicas * s->n_shards; i++)
        if (s->shard_nodes[i] == node)
            assign(s, i / s->n_shards, i % s->n_shards);
}

/* Outcome for one node: complete (it gets its replicas) or failed (its replicas cannot come). */
static void tell_weights(struct sched *s, uint32_t which)
{
    const struct weights_node *w = &s->weights.nodes[which];
    struct sched_node *n = sched_find_node(s, w->member);
    bool ok = w->state == WEIGHTS_COMPLETE;
    struct msg_weights m = {.code = ok ? 0 : ERR_FORMAT};
    memcpy(m.digest, s->index.digest, sizeof m.digest);
    snprintf(m.text, sizeof m.text, "%s", w->text);
    struct buf b;
    buf_init(&b, PLANE_BODY_SMALL);
    msg_weights_put(&b, &m);
    sched_send(s, w->member, MSG_WEIGHTS, &b);
    buf_fini(&b);
    n->weights = ok;
    if (!ok)
        snprintf(n->why, sizeof n->why, "%s", w->text);
    else
        sched_assign_node(s, (uint32_t)(n - s->nodes));
}

static void send_to_round(struct sched *s, uint16_t type, const struct buf *b)
{
    size_t at = sched_body(s, b);
    for (uint32_t i = 0; i < s->weights.n_nodes; i++)
        if (s->weights.nodes[i].state == WEIGHTS_IN_ROUND)
            sched_send_body(s, s->weights.nodes[i].member, type, at, b->len);
}

static void begin_round(struct sched *s)
{
    struct weights *w = &s->weights;
    struct buf members, b;
    buf_init(&members, 8 * MSG_MAX_MEMBERS);
    buf_init(&b, INDEX_MAX_BYTES);
    struct msg_round m = {.round = w->round,
                          .n_segments = w->n_segments,
                          .missing = w->missing,
                          .n_tensors = s->n_offsets,
                          .file_offsets = s->offsets};
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        if (w->nodes[i].state != WEIGHTS_IN_ROUND)
            continue;
        buf_u32(&members, w->nodes[i].member);
        buf_u32(&members, w->nodes[i].rack);
        m.n_members++;
    }
    m.members = members.data;
    memcpy(m.digest, s->index.digest, sizeof m.digest);
    snprintf(m.pack_path, sizeof m.pack_path, "%s", s->wish.pack_path);
    msg_round_put(&b, &m);
    send_to_round(s, MSG_ROUND, &b);
    buf_fini(&b);
    buf_fini(&members);
}

static void give_up_round(struct sched *s)
{
    struct msg_weights m = {.code = ERR_AGAIN};
    memcpy(m.digest, s->index.digest, sizeof m.digest);
    snprintf(m.text, sizeof m.text, "a node of the broadcast round was lost");
    struct buf b;
    buf_init(&b, PLANE_BODY_SMALL);
    msg_weights_put(&b, &m);
    send_to_round(s, MSG_WEIGHTS, &b);
    buf_fini(&b);
}

void sched_run_weights(struct sched *s, uint64_t now_us)
{
    uint32_t which;
    enum weights_action act;
    if (s->state == SERVICE_FAILED || s->state == SERVICE_DRAINING)
        return;
    while (s->placed && (act = weights_next(&s->weights, now_us, &which)) != WEIGHTS_WAIT) {
        if (act == WEIGHTS_TELL)
            tell_weights(s, which);
        else if (act == WEIGHTS_ROUND)
            begin_round(s);
        else
            give_up_round(s);
    }
}
