/* table.c - see table.h. Rows lie in an array in no order; a small hash finds them by (deployment,
 * replica). */
#include "router/table.h"

#include <stdio.h>
#include <stdlib.h>

enum { NO_ROW = UINT32_MAX, FIRST_BUCKETS = 64, PROBES = 4 * TABLE_SAMPLES };

struct table {
    struct table_row *rows;
    uint32_t n_rows, cap_rows;
    uint32_t *buckets; /* row number or NO_ROW; open addressing, at most half full */
    uint32_t n_buckets;
    struct table_worker **workers; /* [MSG_MAX_MEMBERS], made when first heard of */
    uint64_t random;
    uint64_t suspect_us;
};

/* splitmix64 (Steele, Lea, Flood 2014) */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static uint32_t draw(struct table *t, uint32_t below)
{
    t->random += 0x9E3779B97F4A7C15u;
    return (uint32_t)((mix(t->random) >> 32) * below >> 32);
}

int table_create(struct table **out, uint64_t seed, uint32_t suspect_ms, struct err *e)
{
    struct table *t = calloc(1, sizeof *t);
    if (t)
        t->workers = calloc(MSG_MAX_MEMBERS, sizeof *t->workers);
    if (!t || !t->workers) {
        free(t);
        return err_set(e, ERR_NOMEM, "out of memory for the replica table");
    }
    t->random = seed;
    t->suspect_us = (uint64_t)suspect_ms * 1000;
    *out = t;
    return 0;
}

void table_destroy(struct table *t)
{
    if (!t)
        return;
    for (uint32_t i = 0; i < MSG_MAX_MEMBERS; i++)
        free(t->workers[i]);
    free(t->workers);
    free(t->rows);
    free(t->buckets);
    free(t);
}

/* --- rows ------------------------------------------------------------------------------------- */

static uint32_t bucket_of(const struct table *t, uint32_t deployment, uint32_t replica)
{
    return (uint32_t)mix((uint64_t)deployment << 32 | replica) & (t->n_buckets - 1);
}

static uint32_t row_find(const struct table *t, uint32_t deployment, uint32_t replica)
{
    if (!t->n_buckets)
        return NO_ROW;
    for (uint32_t b = bucket_of(t, deployment, replica);; b = (b + 1) & (t->n_buckets - 1)) {
        uint32_t i = t->buckets[b];
        if (i == NO_ROW ||
            (t->rows[i].load.deployment == deployment && t->rows[i].load.replica == replica))
            return i;
    }
}

static void bucket_add(struct table *t, uint32_t i)
{
    uint32_t b = bucket_of(t, t->rows[i].load.deployment, t->rows[i].load.replica);
    while (t->buckets[b] != NO_ROW)
        b = (b + 1) & (t->n_buckets - 1);
    t->buckets[b] = i;
}

/* Removal is rare (a replica is re-placed or its worker lost): building anew keeps the probing
 * simple. */
static void buckets_rebuild(struct table *t)
{
    for (uint32_t b = 0; b < t->n_buckets; b++)
        t->buckets[b] = NO_ROW;
    for (uint32_t i = 0; i < t->n_rows; i++)
        bucket_add(t, i);
}

static bool rows_grow(struct table *t)
{
    if (t->n_rows == TABLE_MAX_ROWS)
        return false;
    if (t->n_rows < t->cap_rows)
        return true;
    uint32_t cap = t->cap_rows ? 2 * t->cap_rows : FIRST_BUCKETS / 2;
    struct table_row *rows = realloc(t->rows, cap * sizeof *rows);
    if (!rows)
        return false;
    t->rows = rows;
    uint32_t *buckets = realloc(t->buckets, 2 * cap * sizeof *buckets);
    if (!buckets)
        return false;
    t->buckets = buckets;
    t->n_buckets = 2 * cap;
    t->cap_rows = cap;
    buckets_rebuild(t);
    return true;
}

static void row_say_lost(const struct table_row *r, const char *why, table_lost_fn lost, void *ctx)
{
    struct table_lost l = {r->worker,     r->load.deployment,  r->load.replica,
                           r->load.epoch, r->load.incarnation, why};
    if (lost)
        lost(ctx, &l);
}

static bool state_is_gone(uint8_t state)
{
    return state == REPLICA_FAILED || state == REPLICA_BROKEN;
}

/* One replica's report from the worker that has it. */
static void row_update(struct table *t, const struct msg_heartbeat *h, const struct replica_load *l,
                       table_lost_fn lost, void *ctx)
{
    uint32_t i = row_find(t, l->deployment, l->replica);
    if (i == NO_ROW) {
        if (!rows_grow(t))
            return;
        i = t->n_rows++;
        t->rows[i] = (struct table_row){
            .worker = h->member, .worker_incarnation = h->incarnation, .load = *l};
        bucket_add(t, i);
        return;
    }
    struct table_row *r = &t->rows[i];
    if (l->epoch < r->load.epoch)
        return;
    bool other = l->epoch != r->load.epoch || l->incarnation != r->load.incarnation ||
                 r->worker != h->member || r->worker_incarnation != h->incarnation;
    if (other || (state_is_gone(l->state) && !state_is_gone(r->load.state))) {
        row_say_lost(r, other ? "the replica was started anew" : "the engine failed", lost, ctx);
        r->own_n = r->own_tokens = 0;
    }
    r->worker = h->member;
    r->worker_incarnation = h->incarnation;
    r->load = *l;
    r->own_n_then = r->own_n;
    r->own_tokens_then = r->own_tokens;
    r->refused = false;
}

static void row_remove(struct table *t, uint32_t i)
{
    t->rows[i] = t->rows[--t->n_rows];
}

static bool heartbeat_has(const struct msg_heartbeat *h, const struct table_row *r)
{
    for (uint32_t k = 0; k < h->n_replicas; k++)
        if (h->replicas[k].deployment == r->load.deployment &&
            h->replicas[k].replica == r->load.replica)
            return true;
    return false;
}

/* Forget the worker's rows that `keep` (NULL: nothing) does not list. */
static void rows_forget(struct table *t, uint32_t worker, const struct msg_heartbeat *keep,
                        table_lost_fn lost, void *ctx)
{
    for (uint32_t i = 0; i < t->n_rows;) {
        struct table_row *r = &t->rows[i];
        if (r->worker != worker || (keep && heartbeat_has(keep, r))) {
            i++;
            continue;
        }
        row_say_lost(r, "the replica was taken away", lost, ctx);
        row_remove(t, i);
        buckets_rebuild(t); /* at once: `lost` may release picks of other rows */
    }
}

/* --- workers ---------------------------------------------------------------------------------- */

static struct table_worker *worker_get(struct table *t, uint32_t member)
{
    if (member >= MSG_MAX_MEMBERS)
        return NULL;
    if (!t->workers[member]) {
        t->workers[member] = calloc(1, sizeof *t->workers[member]);
        if (t->workers[member])
            t->workers[member]->member = member;
    }
    return t->workers[member];
}

const struct table_worker *table_worker(const struct table *t, uint32_t member)
{
    return member < MSG_MAX_MEMBERS ? t->workers[member] : NULL;
}

void table_on_heartbeat(struct table *t, const struct msg_heartbeat *h, bool full, uint64_t now_us,
                        table_lost_fn lost, void *ctx)
{
    struct table_worker *w = worker_get(t, h->member);
    if (!w)
        return;
    bool same = w->known && w->incarnation == h->incarnation;
    if (same && h->seq <= w->seq)
        return;
    if (!full) {
        if (!same)
            return; /* nothing is known of this incarnation yet */
        w->seq = h->seq;
        w->heard_us = now_us;
        return;
    }
    w->known = true;
    w->incarnation = h->incarnation;
    w->seq = h->seq;
    w->heard_us = now_us;
    w->draining = h->draining;
    for (uint32_t i = 0; i < h->n_replicas; i++)
        row_update(t, h, &h->replicas[i], lost, ctx);
    rows_forget(t, h->member, h, lost, ctx);
}

void table_on_host(struct table *t, uint32_t worker, const char *host, const char *rack)
{
    struct table_worker *w = worker_get(t, worker);
    if (!w)
        return;
    snprintf(w->host, sizeof w->host, "%s", host);
    snprintf(w->rack, sizeof w->rack, "%s", rack);
    w->unreachable_until_us = 0;
}

void table_on_worker_lost(struct table *t, uint32_t worker)
{
    rows_forget(t, worker, NULL, NULL, NULL);
}

void table_on_unreachable(struct table *t, uint32_t worker, uint64_t now_us)
{
    struct table_worker *w = worker_get(t, worker);
    if (w)
        w->unreachable_until_us = now_us + TABLE_UNREACHABLE_MS * 1000u;
}

/* --- picking ---------------------------------------------------------------------------------- */

static bool row_is_live(const struct table *t, const struct table_row *r, uint64_t now_us)
{
    const struct table_worker *w = t->workers[r->worker];
    return r->load.state == REPLICA_READY && !w->draining && now_us < w->heard_us + t->suspect_us &&
           now_us >= w->unreachable_until_us;
}

static bool row_refused(const struct table *t, const struct table_row *r)
{
    return r->refused && r->refused_seq == t->workers[r->worker]->seq;
}

static bool row_can_take(const struct table *t, const struct table_row *r, uint32_t deployment,
                         uint64_t now_us)
{
    if (r->load.deployment != deployment || row_refused(t, r) || !row_is_live(t, r, now_us))
        return false;
    int64_t since = (int64_t)r->own_n - r->own_n_then;
    int64_t used = (int64_t)r->load.n_active + r->load.n_queued + since;
    if (used < r->own_n) /* the report may be older than our latest submits */
        used = r->own_n;
    return used < r->load.n_slots;
}

static int64_t row_budget(const struct table_row *r)
{
    int64_t free = (int64_t)r->load.kv_free_tokens - ((int64_t)r->own_tokens - r->own_tokens_then);
    int64_t most = (int64_t)r->load.kv_total_tokens - r->own_tokens;
    return free < most ? free : most;
}

static bool row_is_better(const struct table_row *a, const struct table_row *b)
{
    int64_t x = row_budget(a), y = row_budget(b);
    if (x != y)
        return x > y;
    if (a->own_n != b->own_n)
        return a->own_n < b->own_n;
    return a->load.replica < b->load.replica;
}

bool table_pick(struct table *t, uint32_t deployment, uint64_t now_us, struct table_pick *out)
{
    const struct table_row *best = NULL;
    uint32_t n_found = 0;
    if (!t->n_rows)
        return false;
    /* A few random probes usually find enough; a nearly full table is walked once from a random
     * start. */
    for (uint32_t k = 0; k < PROBES && n_found < TABLE_SAMPLES; k++) {
        const struct table_row *r = &t->rows[draw(t, t->n_rows)];
        if (!row_can_take(t, r, deployment, now_us))
            continue;
        n_found++;
        if (!best || row_is_better(r, best))
            best = r;
    }
    uint32_t from = n_found < TABLE_SAMPLES ? draw(t, t->n_rows) : 0;
    for (uint32_t k = 0; k < t->n_rows && n_found < TABLE_SAMPLES; k++) {
        const struct table_row *r = &t->rows[(from + k) % t->n_rows];
        if (!row_can_take(t, r, deployment, now_us))
            continue;
        n_found++;
        if (!best || row_is_better(r, best))
            best = r;
    }
    if (!best)
        return false;
    *out = (struct table_pick){best->worker, best->load.deployment, best->load.replica,
                               best->load.epoch, best->load.incarnation};
    return true;
}

static struct table_row *row_of_pick(struct table *t, const struct table_pick *p)
{
    uint32_t i = row_find(t, p->deployment, p->replica);
    if (i == NO_ROW)
        return NULL;
    struct table_row *r = &t->rows[i];
    bool same = r->worker == p->worker && r->load.epoch == p->epoch &&
                r->load.incarnation == p->incarnation;
    return same ? r : NULL;
}

void table_commit(struct table *t, const struct table_pick *p, uint32_t tokens)
{
    struct table_row *r = row_of_pick(t, p);
    if (!r)
        return;
    r->own_n++;
    r->own_tokens += tokens;
}

void table_release(struct table *t, const struct table_pick *p, uint32_t tokens)
{
    struct table_row *r = row_of_pick(t, p);
    if (!r || !r->own_n)
        return;
    r->own_n--;
    r->refused = false; /* a place is free again */
    r->own_tokens -= tokens < r->own_tokens ? tokens : r->own_tokens;
}

void table_on_refused(struct table *t, const struct table_pick *p)
{
    struct table_row *r = row_of_pick(t, p);
    if (!r)
        return;
    r->refused = true;
    r->refused_seq = t->workers[r->worker]->seq;
}

uint32_t table_n_live(const struct table *t, uint32_t deployment, uint64_t now_us)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_rows; i++)
        n += (deployment == UINT32_MAX || t->rows[i].load.deployment == deployment) &&
             row_is_live(t, &t->rows[i], now_us);
    return n;
}

uint32_t table_n_rows(const struct table *t)
{
    return t->n_rows;
}

const struct table_row *table_row(const struct table *t, uint32_t i)
{
    return i < t->n_rows ? &t->rows[i] : NULL;
}
