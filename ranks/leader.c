/* leader.c - see leader.h. */
#include "ranks/leader.h"

#include <stdlib.h>
#include <string.h>

struct member_beat {
    struct msg_heartbeat last;
    bool heard;   /* since the last flush */
    bool changed; /* since the last flush */
};

struct leader {
    uint32_t self;
    uint32_t n, cap;
    struct member_beat **beats; /* owned [n]: each is a few KiB, racks are small */
};

struct leader *leader_create(uint32_t self)
{
    struct leader *l = calloc(1, sizeof *l);
    if (l)
        l->self = self;
    return l;
}

void leader_destroy(struct leader *l)
{
    if (!l)
        return;
    for (uint32_t i = 0; i < l->n; i++)
        free(l->beats[i]);
    free(l->beats);
    free(l);
}

static struct member_beat *find(struct leader *l, uint32_t member)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (l->beats[i]->last.member == member)
            return l->beats[i];
    return NULL;
}

static struct member_beat *add(struct leader *l)
{
    if (l->n == MSG_MAX_MEMBERS)
        return NULL;
    if (l->n == l->cap) {
        uint32_t cap = l->cap ? 2 * l->cap : 16;
        struct member_beat **grown = realloc(l->beats, cap * sizeof *grown);
        if (!grown)
            return NULL;
        l->beats = grown;
        l->cap = cap;
    }
    struct member_beat *b = calloc(1, sizeof *b);
    if (b)
        l->beats[l->n++] = b;
    return b;
}

bool heartbeat_same_state(const struct msg_heartbeat *a, const struct msg_heartbeat *b)
{
    if (a->member != b->member || a->incarnation != b->incarnation || a->draining != b->draining ||
        a->n_replicas != b->n_replicas)
        return false;
    for (uint32_t i = 0; i < a->n_replicas; i++) {
        const struct replica_load *x = &a->replicas[i], *y = &b->replicas[i];
        if (x->deployment != y->deployment || x->replica != y->replica || x->epoch != y->epoch ||
            x->incarnation != y->incarnation || x->state != y->state)
            return false;
    }
    return true;
}

/* What a listener would want to know: state, and load except counters that only say "busy" in other units. */
static bool same_load(const struct msg_heartbeat *a, const struct msg_heartbeat *b)
{
    for (uint32_t i = 0; i < a->n_replicas; i++) {
        const struct replica_load *x = &a->replicas[i], *y = &b->replicas[i];
        if (x->n_active != y->n_active || x->n_queued != y->n_queued ||
            x->kv_free_tokens != y->kv_free_tokens || x->n_tokens != y->n_tokens)
            return false;
    }
    return true;
}

static void copy_beat(struct msg_heartbeat *dst, const struct msg_heartbeat *src)
{
    size_t used =
        offsetof(struct msg_heartbeat, replicas) + src->n_replicas * sizeof src->replicas[0];
    memcpy(dst, src, used);
}

bool leader_take(struct leader *l, const struct msg_heartbeat *h)
{
    if (h->n_replicas > MSG_MAX_REPLICAS)
        return false;
    struct member_beat *b = find(l, h->member);
    bool is_new = !b;
    if (is_new)
        b = add(l);
    if (!b)
        return false;
    if (!is_new && h->incarnation == b->last.incarnation && h->seq <= b->last.seq)
        return false; /* late: it took another way before */
    bool urgent = is_new || !heartbeat_same_state(&b->last, h);
    if (urgent || !same_load(&b->last, h))
        b->changed = true;
    copy_beat(&b->last, h);
    b->heard = true;
    return urgent;
}

void leader_forget(struct leader *l, uint32_t member)
{
    for (uint32_t i = 0; i < l->n; i++) {
        if (l->beats[i]->last.member != member)
            continue;
        free(l->beats[i]);
        l->beats[i] = l->beats[--l->n];
        return;
    }
}

void leader_refresh(struct leader *l)
{
    for (uint32_t i = 0; i < l->n; i++)
        l->beats[i]->changed = true;
}

uint32_t leader_flush(struct leader *l, struct buf *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n; i++)
        n += l->beats[i]->heard;
    if (!n)
        return 0;
    msg_heartbeats_begin_put(b, l->self, n);
    for (uint32_t i = 0; i < l->n; i++) {
        struct member_beat *m = l->beats[i];
        if (!m->heard)
            continue;
        if (m->changed)
            msg_heartbeats_full_put(b, &m->last);
        else
            msg_heartbeats_alive_put(b, m->last.member, m->last.incarnation, m->last.seq);
        m->heard = false;
        m->changed = false;
    }
    return n;
}
