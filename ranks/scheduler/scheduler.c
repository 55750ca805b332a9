/* scheduler.c - events of the scheduler; see scheduler.h. The service's state is judged in service.c after each event. */
#include "ranks/scheduler/scheduler.h"

#include "model/meta.h"
#include "ranks/patience.h"
#include "ranks/scheduler/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ACTIONS_MAX = 1 << 16,
    BODIES_MAX_BYTES =
        1 << 30, /* a model's metadata, once; a few bytes for each member of a large world */
    FIRST_EPOCH = 1,
};

int sched_create(struct sched **out, const struct sched_wish *wish, struct err *e)
{
    struct sched *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_NOMEM, "no memory for the scheduler");
    s->wish = *wish;
    s->state = SERVICE_STARTING;
    buf_init(&s->actions.bodies, BODIES_MAX_BYTES);
    *out = s;
    return 0;
}

void sched_destroy(struct sched *s)
{
    if (!s)
        return;
    weights_fini(&s->weights);
    index_fini(&s->index);
    buf_fini(&s->actions.bodies);
    free(s->actions.list);
    free(s->nodes);
    free(s->routers);
    free(s->index_bytes);
    free(s->meta_bytes);
    free(s->offsets);
    for (uint32_t r = 0; r < s->n_replicas; r++)
        free(s->replicas[r].trouble);
    free(s->replicas);
    free(s->shard_nodes);
    free(s);
}

struct sched_actions *sched_actions(struct sched *s)
{
    return &s->actions;
}

void sched_actions_clear(struct sched_actions *a)
{
    a->n = 0;
    buf_reset(&a->bodies);
}

const char *sched_model_name(const struct sched *s)
{
    return s->model_name;
}

static struct sched_action *add_action(struct sched *s, enum sched_action_kind kind)
{
    struct sched_actions *a = &s->actions;
    if (a->n == a->cap) {
        uint32_t cap = a->cap ? 2 * a->cap : 64;
        struct sched_action *grown =
            cap > ACTIONS_MAX ? NULL : realloc(a->list, cap * sizeof *grown);
        CHECK(grown); /* the caller clears the list after every event */
        a->list = grown;
        a->cap = cap;
    }
    struct sched_action *act = &a->list[a->n++];
    *act = (struct sched_action){.kind = kind};
    return act;
}

void sched_act(struct sched *s, enum sched_action_kind kind)
{
    add_action(s, kind);
}

size_t sched_body(struct sched *s, const struct buf *body)
{
    size_t at = s->actions.bodies.len;
    buf_put(&s->actions.bodies, body->data, body->len);
    CHECK(buf_ok(&s->actions.bodies) && buf_ok(body));
    return at;
}

void sched_send_body(struct sched *s, uint32_t member, uint16_t type, size_t at, size_t n)
{
    struct sched_action *act = add_action(s, SCHED_SEND);
    act->member = member;
    act->type = type;
    act->at = at;
    act->n = n;
}

void sched_send(struct sched *s, uint32_t member, uint16_t type, const struct buf *body)
{
    sched_send_body(s, member, type, sched_body(s, body), body->len);
}

struct sched_node *sched_find_node(struct sched *s, uint32_t member)
{
    for (uint32_t i = 0; i < s->n_nodes; i++)
        if (s->nodes[i].member == member)
            return &s->nodes[i];
    return NULL;
}

void sched_tell_service(struct sched *s, uint32_t router)
{
    struct buf b;
    buf_init(&b, PLANE_BODY_SMALL);
    msg_service_put(&b, &s->told);
    sched_send(s, router, MSG_SERVICE, &b);
    buf_fini(&b);
}

static bool add_router(struct sched *s, uint32_t member)
{
    for (uint32_t i = 0; i < s->n_routers; i++)
        if (s->routers[i] == member)
            return true;
    if (s->n_routers == s->routers_cap) {
        uint32_t cap = s->routers_cap ? 2 * s->routers_cap : 8;
        uint32_t *grown = realloc(s->routers, cap * sizeof *grown);
        if (!grown)
            return false;
        s->routers = grown;
        s->routers_cap = cap;
    }
    s->routers[s->n_routers++] = member;
    return true;
}

void sched_register(struct sched *s, const struct msg_register *m, uint32_t rack, uint64_t now_us)
{
    if (m->role == ROLE_ROUTER) {
        if (add_router(s, m->member) && s->n_routers > s->n_routers_wanted)
            s->n_routers_wanted = s->n_routers;
        return;
    }
    if (m->role != ROLE_WORKER || sched_find_node(s, m->member))
        return;
    if (s->n_nodes == s->nodes_cap) {
        uint32_t cap = s->nodes_cap ? 2 * s->nodes_cap : 16;
        struct sched_node *grown = realloc(s->nodes, cap * sizeof *grown);
        if (!grown)
            return;
        s->nodes = grown;
        s->nodes_cap = cap;
    }
    uint32_t at = s->n_nodes++;
    while (at > 0 && s->nodes[at - 1].member > m->member) {
        s->nodes[at] = s->nodes[at - 1];
        at--;
    }
    struct sched_node *n = &s->nodes[at];
    *n = (struct sched_node){.member = m->member,
                             .incarnation = m->incarnation,
                             .rack = rack,
                             .live = true,
                             .heard_us = now_us};
    snprintf(n->host, sizeof n->host, "%s", m->host);
}

void sched_begin(struct sched *s, uint64_t now_us)
{
    s->begun = true;
    s->begun_us = s->routers_gone_us = s->useless_us = now_us;
    for (uint32_t i = 0; i < s->n_nodes; i++)
        s->nodes[i].heard_us = now_us;
    sched_judge(s, now_us);
}

static int place(struct sched *s, struct err *e)
{
    uint32_t n = s->wish.replicas ? s->wish.replicas : s->n_nodes;
    uint32_t tp = s->wish.tp ? s->wish.tp : 1, pp = s->wish.pp ? s->wish.pp : 1;
    struct placement_wish wish = {SCHED_MAX_ON_NODE, tp * pp, s->wish.shards_per_node};
    if (n > SCHED_MAX_REPLICAS)
        return err_set(e, ERR_CONFIG, "%u replicas are wanted, at most %d are possible", n,
                       SCHED_MAX_REPLICAS);
    uint32_t cap = n * wish.n_shards;
    struct placement_node *nodes = calloc(s->n_nodes + 1, sizeof *nodes);
    s->shard_nodes = calloc(cap + 1, sizeof *s->shard_nodes);
    s->replicas = calloc(n + 1, sizeof *s->replicas);
    int rc = nodes && s->shard_nodes && s->replicas
                 ? 0
                 : err_set(e, ERR_NOMEM, "no memory to place %u replicas", n);
    for (uint32_t i = 0; !rc && i < s->n_nodes; i++)
        nodes[i] = (struct placement_node){s->nodes[i].member, s->nodes[i].rack};
    n = s->wish.replicas;
    if (!rc)
        rc = placement_make(nodes, s->n_nodes, &wish, &n, s->shard_nodes, cap, e);
    free(nodes);
    if (rc)
        return rc;
    s->n_shards = wish.n_shards;
    for (uint32_t r = 0; r < n; r++)
        s->replicas[r] =
            (struct sched_replica){.node = s->shard_nodes[r * s->n_shards], .epoch = FIRST_EPOCH};
    s->n_replicas = n;
    s->n_min = s->wish.min_replicas ? s->wish.min_replicas : n - n / 20; /* all but 5 % */
    if (s->n_min > n)
        return err_set(e, ERR_CONFIG, "min_replicas is %u, and only %u replicas are placed",
                       s->n_min, n);
    s->placed = true;
    return 0;
}

static int take_pack(struct sched *s, const void *index, size_t index_bytes, const void *meta,
                     size_t meta_bytes, const void *offsets, uint32_t n_tensors, struct err *e)
{
    int rc = index_decode(&s->index, index, index_bytes, e);
    if (rc)
        return rc;
    struct model_meta m;
    rc = meta_decode(&m, meta, meta_bytes, e);
    if (rc)
        return rc;
    rc = meta_check(&m, e);
    snprintf(s->model_name, sizeof s->model_name, "%s",
             s->wish.model_name ? s->wish.model_name : m.name);
    meta_fini(&m);
    if (rc)
        return rc;
    if (n_tensors != s->index.n_tensors)
        return err_set(e, ERR_FORMAT, "the pack has %u tensors and %u offsets", s->index.n_tensors,
                       n_tensors);
    s->index_bytes = malloc(index_bytes);
    s->meta_bytes = malloc(meta_bytes);
    s->offsets = malloc(8 * (size_t)n_tensors + 1);
    if (!s->index_bytes || !s->meta_bytes || !s->offsets)
        return err_set(e, ERR_NOMEM, "no memory for the pack's index");
    memcpy(s->index_bytes, index, index_bytes);
    memcpy(s->meta_bytes, meta, meta_bytes);
    memcpy(s->offsets, offsets, 8 * (size_t)n_tensors);
    s->index_n = index_bytes;
    s->meta_n = meta_bytes;
    s->n_offsets = n_tensors;
    return 0;
}

void sched_pack(struct sched *s, const void *index, size_t index_bytes, const void *meta,
                size_t meta_bytes, const void *offsets, uint32_t n_tensors, uint64_t now_us)
{
    struct err e = ERR_INIT;
    if (s->packed || s->state != SERVICE_STARTING)
        return; /* too late: the start deadline came first, or the end */
    uint32_t *members = calloc(2 * (size_t)s->n_nodes + 1, sizeof *members);
    int rc = members ? 0 : err_set(&e, ERR_NOMEM, "no memory for %u nodes", s->n_nodes);
    if (!rc)
        rc = take_pack(s, index, index_bytes, meta, meta_bytes, offsets, n_tensors, &e);
    if (!rc)
        rc = place(s, &e);
    for (uint32_t i = 0; !rc && i < s->n_nodes; i++) {
        members[i] = s->nodes[i].member;
        members[s->n_nodes + i] = s->nodes[i].rack;
    }
    if (!rc)
        rc = weights_init(&s->weights, members, members + s->n_nodes, s->n_nodes,
                          s->index.n_segments, s->index.data_bytes, now_us, &e);
    free(members);
    if (rc) {
        sched_pack_failed(s, &e, now_us);
        return;
    }
    s->packed = true;
    for (uint32_t i = 0; i < s->n_nodes; i++)
        if (!s->nodes[i].live)
            weights_lose(&s->weights, s->nodes[i].member);
    sched_tell_model(s);
    sched_run_weights(s, now_us);
    sched_judge(s, now_us);
}

void sched_pack_failed(struct sched *s, const struct err *why, uint64_t now_us)
{
    char text[MSG_TEXT_BYTES];
    if (strstr(why->text, s->wish.pack_path))
        snprintf(text, sizeof text, "%.450s", why->text);
    else
        snprintf(text, sizeof text, "pack %.150s: %.300s", s->wish.pack_path, why->text);
    sched_fail(s, text);
    sched_judge(s, now_us);
}

void sched_have(struct sched *s, const struct msg_have *h, uint64_t now_us)
{
    if (!s->packed || memcmp(h->digest, s->index.digest, sizeof h->digest) != 0)
        return;
    weights_have(&s->weights, h, now_us);
    const struct weights_node *w = weights_find(&s->weights, h->member);
    if (w && w->state != WEIGHTS_COMPLETE) /* had it, and has lost it: a new round will say */
        sched_find_node(s, h->member)->weights = false;
    sched_run_weights(s, now_us);
    sched_judge(s, now_us);
}

static void forget_trouble(struct sched_replica *r)
{
    free(r->trouble);
    r->trouble = NULL;
}

void sched_trouble(struct sched *s, uint32_t member, uint32_t replica, const char *text,
                   uint64_t now_us)
{
    if (replica >= s->n_replicas || s->nodes[s->replicas[replica].node].member != member)
        return;
    struct sched_replica *r = &s->replicas[replica];
    forget_trouble(r);
    r->trouble = strdup(text);
    sched_judge(s, now_us);
}

void sched_heartbeat(struct sched *s, const struct msg_heartbeat *h, bool full, uint64_t now_us)
{
    struct sched_node *n = sched_find_node(s, h->member);
    if (!n || n->incarnation != h->incarnation)
        return;
    n->heard_us = now_us;
    n->live = true; /* if it was not: silent, not dead, the same process speaks again */
    for (uint32_t i = 0; full && i < h->n_replicas; i++) {
        const struct replica_load *l = &h->replicas[i];
        if (l->deployment != 1 || l->replica >= s->n_replicas)
            continue;
        struct sched_replica *r = &s->replicas[l->replica];
        if (l->epoch != r->epoch || &s->nodes[r->node] != n)
            continue;
        r->state = l->state;
        if (r->state == REPLICA_READY)
            forget_trouble(r);
    }
    sched_judge(s, now_us);
}

void sched_lost(struct sched *s, uint32_t member, uint64_t now_us)
{
    struct sched_node *n = sched_find_node(s, member);
    if (n) {
        if (n->live)
            n->gone_us = now_us;
        n->live = false;
        n->unlinked = true;
        if (s->packed)
            weights_lose(&s->weights, member);
        for (uint32_t r = 0; r < s->n_replicas; r++)
            if (&s->nodes[s->replicas[r].node] == n)
                s->replicas[r].state = 0;
        sched_run_weights(s, now_us);
        sched_judge(s, now_us);
        return;
    }
    for (uint32_t i = 0; i < s->n_routers; i++)
        if (s->routers[i] == member)
            s->routers[i] = s->routers[--s->n_routers];
    sched_judge(s, now_us);
}

/* What was sent while the link was down never arrived. Members drop what they know already. */
static void tell_again(struct sched *s, struct sched_node *n, uint64_t now_us)
{
    if (n->weights) {
        sched_assign_node(s, (uint32_t)(n - s->nodes));
        weights_return(&s->weights, n->member, false, now_us);
    } else if (!n->why[0]) {
        sched_tell_model_to(s, n->member);
        weights_return(&s->weights, n->member, true, now_us);
    }
}

void sched_returned(struct sched *s, uint32_t member, uint64_t incarnation, uint64_t now_us)
{
    struct sched_node *n = sched_find_node(s, member);
    if (n) {
        if (n->incarnation != incarnation || !n->unlinked)
            return;
        n->unlinked = false;
        n->live = true;
        n->heard_us = now_us;
        if (s->packed)
            tell_again(s, n, now_us);
    }
    sched_run_weights(s, now_us);
    sched_judge(s, now_us);
}

void sched_router_returned(struct sched *s, uint32_t member, uint64_t now_us)
{
    if (!add_router(s, member))
        return;
    if (s->packed)
        sched_tell_model_to(s, member);
    sched_tell_service(s, member);
    sched_judge(s, now_us);
}

void sched_tick(struct sched *s, uint64_t now_us)
{
    if (!s->begun)
        return;
    /* Whoever was stopped itself has heard nobody meanwhile: that is no silence of the workers. */
    uint64_t gap_us = s->ticked_us ? now_us - s->ticked_us : 0;
    s->ticked_us = now_us;
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        struct sched_node *n = &s->nodes[i];
        if (gap_us > PAUSE_US)
            n->heard_us += gap_us;
        if (n->live && s->wish.suspect_us && now_us > n->heard_us + s->wish.suspect_us) {
            n->live = false; /* suspect: counts as missing until it is heard again */
            n->gone_us = now_us;
        }
    }
    sched_run_weights(s, now_us);
    sched_judge(s, now_us);
}

void sched_drain(struct sched *s, uint64_t now_us)
{
    if (s->state != SERVICE_FAILED)
        s->state = SERVICE_DRAINING;
    sched_judge(s, now_us);
}
