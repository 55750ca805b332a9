/* shard.c - see shard.h. */
#include "ranks/shard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shard {
    shard_send_fn send;
    void *ctx;
    struct shard_name name; /* gang 0: none yet */
    uint32_t number, n_shards;
    uint32_t *members;  /* owned [n_shards] */
    uint64_t *heard_us; /* owned [n_shards]: leader; 0: not since the last end */
    bool start_came, running;
    uint64_t running_gang;
    uint64_t here_us;
    char why[MSG_TEXT_BYTES];
};

int shard_create(struct shard **out, const struct msg_assign *a, shard_send_fn send, void *ctx,
                 struct err *e)
{
    struct shard *s = calloc(1, sizeof *s);
    uint32_t n = a->n_shards;
    if (s) {
        s->members = calloc(n, sizeof *s->members);
        s->heard_us = calloc(n, sizeof *s->heard_us);
    }
    if (!s || !s->members || !s->heard_us) {
        shard_destroy(s);
        return err_set(e, ERR_NOMEM, "no memory for shard %u of replica %u", a->shard, a->replica);
    }
    s->send = send;
    s->ctx = ctx;
    s->name = (struct shard_name){a->deployment, a->replica, a->epoch, 0};
    s->number = a->shard;
    s->n_shards = n;
    for (uint32_t i = 0; i < n; i++)
        s->members[i] = u32_at(a->peers, i);
    *out = s;
    return 0;
}

void shard_destroy(struct shard *s)
{
    if (!s)
        return;
    free(s->members);
    free(s->heard_us);
    free(s);
}

bool shard_is_leader(const struct shard *s)
{
    return s->number == 0;
}

uint64_t shard_gang(const struct shard *s)
{
    return s->name.gang;
}

uint32_t shard_member(const struct shard *s, uint32_t shard)
{
    return s->members[shard];
}

bool shard_on_one_node(const struct shard *s)
{
    for (uint32_t i = 1; i < s->n_shards; i++)
        if (s->members[i] != s->members[0])
            return false;
    return true;
}

static void say(struct shard *s, uint32_t to, uint8_t word, uint32_t shard, uint64_t gang,
                const char *text)
{
    struct msg_gang m = {.name = s->name, .word = word, .shard = shard};
    m.name.gang = gang;
    snprintf(m.text, sizeof m.text, "%s", text);
    s->send(s->ctx, s->members[to], &m);
}

void shard_tick(struct shard *s, uint64_t now_us)
{
    if (shard_is_leader(s) || s->running || s->start_came || now_us < s->here_us + SHARD_HERE_US)
        return;
    s->here_us = now_us;
    say(s, 0, GANG_HERE, s->number, s->name.gang, "");
}

static bool is_heard(const struct shard *s, uint32_t shard, uint64_t now_us)
{
    return s->heard_us[shard] && now_us < s->heard_us[shard] + SHARD_HEARD_US;
}

bool shard_may_start(const struct shard *s, uint64_t now_us)
{
    if (s->running)
        return false;
    if (!shard_is_leader(s))
        return s->start_came;
    for (uint32_t i = 1; i < s->n_shards; i++)
        if (!is_heard(s, i, now_us))
            return false;
    return true;
}

void shard_awaited(const struct shard *s, uint64_t now_us, char *text, size_t cap)
{
    size_t at = 0;
    text[0] = 0;
    for (uint32_t i = 1; i < s->n_shards && at < cap; i++)
        if (!is_heard(s, i, now_us))
            at += (size_t)snprintf(text + at, cap - at, "%sshard %u of member %u", at ? ", " : "",
                                   i, s->members[i]);
}

void shard_started(struct shard *s, uint64_t now_us)
{
    s->running = true;
    s->start_came = false;
    if (shard_is_leader(s)) /* never twice */
        s->name.gang = now_us > s->name.gang ? now_us : s->name.gang + 1;
    s->running_gang = s->name.gang;
    if (!shard_is_leader(s))
        return;
    memset(s->heard_us, 0, s->n_shards * sizeof *s->heard_us);
    for (uint32_t i = 1; i < s->n_shards; i++)
        say(s, i, GANG_START, i, s->name.gang, "");
}

void shard_ended(struct shard *s, const char *why)
{
    if (!s->running)
        return;
    s->running = false;
    s->here_us = 0;
    if (!shard_is_leader(s)) {
        say(s, 0, GANG_END, s->number, s->running_gang, why);
        return;
    }
    for (uint32_t i = 1; i < s->n_shards; i++)
        say(s, i, GANG_END, 0, s->running_gang, why);
}

/* What the leader hears from another shard's worker. */
static const char *leader_word(struct shard *s, uint32_t from_member, const struct msg_gang *m,
                               uint64_t now_us)
{
    if (!m->shard || m->shard >= s->n_shards || s->members[m->shard] != from_member)
        return NULL;
    if (m->word == GANG_HERE) {
        s->heard_us[m->shard] = now_us;
        if (!s->running || m->name.gang != s->name.gang)
            return NULL;
        /* of this very gang, and without a process: its END was lost */
        snprintf(s->why, sizeof s->why, "shard %u has ended", m->shard);
        return s->why;
    }
    if (m->word != GANG_END || m->name.gang != s->name.gang || !s->running)
        return NULL;
    snprintf(s->why, sizeof s->why, "shard %u: %.400s", m->shard, m->text);
    return s->why;
}

const char *shard_word(struct shard *s, uint32_t from_member, const struct msg_gang *m,
                       uint64_t now_us)
{
    if (m->name.deployment != s->name.deployment || m->name.replica != s->name.replica ||
        m->name.epoch != s->name.epoch)
        return NULL;
    if (shard_is_leader(s))
        return leader_word(s, from_member, m, now_us);
    if (from_member != s->members[0])
        return NULL;
    if (m->word == GANG_START && m->shard == s->number && m->name.gang > s->name.gang) {
        s->name.gang = m->name.gang;
        s->start_came = true;
        if (!s->running)
            return NULL;
        snprintf(s->why, sizeof s->why, "the gang starts again");
        return s->why;
    }
    if (m->word != GANG_END)
        return NULL;
    if (m->name.gang == s->name.gang)
        s->start_came = false;
    snprintf(s->why, sizeof s->why, "shard %u: %.400s", m->shard, m->text);
    return s->running && m->name.gang == s->running_gang ? s->why : NULL;
}

const char *shard_lost(struct shard *s, uint32_t member)
{
    for (uint32_t i = 0; i < s->n_shards; i++) {
        if (s->members[i] != member || i == s->number)
            continue;
        s->heard_us[i] = 0;
        if (!shard_is_leader(s) && i != 0)
            continue; /* the leader will say so */
        if (i == 0)
            s->start_came = false;
        snprintf(s->why, sizeof s->why, "the worker of shard %u (member %u) is lost", i, member);
        if (s->running)
            return s->why;
    }
    return NULL;
}
