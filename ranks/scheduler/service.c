/* service.c - STARTING, READY, DEGRADED, FAILED: what the service is, in one word and one sentence.
 *
 * READY: a real completion came out of every replica. DEGRADED: at the start deadline, or as soon as nothing more can come, at least
 * n_min are ready; or later, when some were lost. What is missing is named by node. Once reached, the service never goes back
 * to STARTING.
 */
#include "ranks/patience.h"
#include "ranks/scheduler/internal.h"

#include <stdio.h>
#include <string.h>

enum {
    NAMED_MAX = 6,
    RETURN_US = 20 * 1000000, /* a node that is out of reach may come back: a cut cable, a pause */
};

/* Can this replica still become ready without anybody's help? */
static bool may_come(const struct sched *s, const struct sched_replica *r, uint64_t now_us)
{
    const struct sched_node *n = &s->nodes[r->node];
    return (n->live || now_us < n->gone_us + RETURN_US) && !n->why[0] && r->state != REPLICA_BROKEN;
}

/* Why it is missing, in a few words, and in its worker's own when it has said more. */
static void put_trouble(const struct sched *s, const struct sched_replica *r, char *out, size_t cap)
{
    const struct sched_node *n = &s->nodes[r->node];
    const char *words = "its engine is starting", *more = r->trouble;
    if (!n->live)
        words = "lost", more = NULL;
    else if (n->why[0])
        words = n->why, more = NULL;
    else if (!n->weights)
        words = "waiting for weights";
    else if (r->state == REPLICA_BROKEN)
        words = "its engine keeps dying";
    else if (r->state == REPLICA_FAILED)
        words = "its engine died and is being restarted";
    snprintf(out, cap, "%s%s%s", words, more ? ": " : "", more ? more : "");
}

static uint32_t count_ready(const struct sched *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_replicas; i++)
        n += s->replicas[i].state == REPLICA_READY && s->nodes[s->replicas[i].node].live;
    return n;
}

static void name_missing(const struct sched *s, char *out, size_t cap)
{
    size_t at = 0;
    uint32_t named = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < s->n_replicas && at < cap; i++) {
        const struct sched_replica *r = &s->replicas[i];
        if (r->state == REPLICA_READY && s->nodes[r->node].live)
            continue;
        if (named++ == NAMED_MAX) {
            snprintf(out + at, cap - at, ", …");
            return;
        }
        char trouble[2 * MSG_TEXT_BYTES + 8];
        put_trouble(s, r, trouble, sizeof trouble);
        at += (size_t)snprintf(out + at, cap - at, "%s%u on %s (%.220s)", named > 1 ? ", " : "", i,
                               s->nodes[r->node].host, trouble);
    }
}

static void name_routers(const struct sched *s, struct msg_service *out)
{
    size_t at = strlen(out->progress);
    if (s->n_routers < s->n_routers_wanted)
        snprintf(out->progress + at, sizeof out->progress - at, "; %u of %u routers answer",
                 s->n_routers, s->n_routers_wanted);
}

static void describe(const struct sched *s, struct msg_service *out)
{
    char names[MSG_TEXT_BYTES - 96];
    switch (s->state) {
    case SERVICE_FAILED:
        snprintf(out->progress, sizeof out->progress, "%s", s->failed);
        return;
    case SERVICE_READY:
        snprintf(out->progress, sizeof out->progress, "all %u replicas answer", s->n_replicas);
        name_routers(s, out);
        return;
    case SERVICE_DRAINING:
        snprintf(out->progress, sizeof out->progress,
                 "no new requests; running ones are being finished");
        return;
    case SERVICE_DEGRADED:
        name_missing(s, names, sizeof names);
        snprintf(out->progress, sizeof out->progress, "%u of %u replicas answer; missing: %s",
                 out->n_ready, out->n_wanted, names);
        name_routers(s, out);
        return;
    default:
        break;
    }
    if (!s->begun)
        snprintf(out->progress, sizeof out->progress, "the world is starting");
    else if (!s->packed)
        snprintf(out->progress, sizeof out->progress, "opening the pack");
    else if (weights_progress(&s->weights) < 1)
        snprintf(out->progress, sizeof out->progress,
                 "weights: %.0f %% on %u nodes, %u of %u replicas answer",
                 100 * weights_progress(&s->weights), s->n_nodes, out->n_ready, out->n_wanted);
    else {
        name_missing(s, names, sizeof names);
        snprintf(out->progress, sizeof out->progress, "%u of %u replicas answer; waiting for %s",
                 out->n_ready, out->n_wanted, names);
    }
}

void sched_service(const struct sched *s, struct msg_service *out)
{
    memset(out, 0, sizeof *out);
    out->state = s->state;
    out->job_end_wall_s = s->wish.job_end_wall_s;
    out->n_ready = count_ready(s);
    out->n_wanted = s->n_replicas;
    out->n_min = s->n_min;
    describe(s, out);
}

void sched_fail(struct sched *s, const char *why)
{
    if (s->state == SERVICE_FAILED || s->state == SERVICE_DRAINING)
        return;
    s->state = SERVICE_FAILED;
    snprintf(s->failed, sizeof s->failed, "%s", why);
    sched_act(s, SCHED_FAIL);
}

static uint32_t count_live(const struct sched *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_nodes; i++)
        n += s->nodes[i].live;
    return n;
}

/* No client reaches the replicas any more. Whoever misses most of the workers too is cut off itself, and waits on for as long again
 * when they are back. */
static bool routers_gone(struct sched *s, uint32_t n_live, uint64_t now_us)
{
    if (s->n_routers || !s->n_routers_wanted || 2 * n_live <= s->n_nodes)
        s->routers_gone_us = now_us;
    return now_us >= s->routers_gone_us + RETURN_US;
}

/* Nothing is left to answer, or nobody to ask, and not for a short cut or pause. It may be this process that is cut off: then the others
 * serve without it, and after so long it ends as any member does (ending.c). */
static bool is_useless(struct sched *s, uint32_t n_live, uint64_t now_us)
{
    if (n_live && (s->n_routers || !s->n_routers_wanted))
        s->useless_us = now_us;
    return now_us >= s->useless_us + ALONE_US;
}

static void judge_start(struct sched *s, uint32_t n_ready, uint32_t n_coming, uint64_t now_us)
{
    bool late = now_us >= s->begun_us + s->wish.start_deadline_us;
    if (n_ready == s->n_replicas) {
        s->state = SERVICE_READY;
    } else if (late || !n_coming) {
        if (n_ready >= s->n_min && n_ready > 0) {
            s->state = SERVICE_DEGRADED;
        } else if (late || n_ready + n_coming < s->n_min) {
            char names[MSG_TEXT_BYTES - 160], why[MSG_TEXT_BYTES];
            name_missing(s, names, sizeof names);
            snprintf(why, sizeof why,
                     "%u of %u replicas answer and at least %u must%s; missing: %s", n_ready,
                     s->n_replicas, s->n_min,
                     late ? " at the start deadline" : ", and no more can come", names);
            sched_fail(s, why);
        }
    }
}

void sched_judge(struct sched *s, uint64_t now_us)
{
    uint32_t n_ready = count_ready(s), n_coming = 0, n_live = count_live(s);
    /* Asked while it starts, too: what was long ago must not count when it is up. */
    bool no_router = routers_gone(s, n_live, now_us), useless = is_useless(s, n_live, now_us);
    if (s->state == SERVICE_STARTING && s->begun && !s->placed &&
        now_us >= s->begun_us + s->wish.start_deadline_us)
        sched_fail(s, "the pack could not be opened before the start deadline: its file system "
                      "does not answer");
    for (uint32_t i = 0; i < s->n_replicas; i++)
        n_coming += s->replicas[i].state != REPLICA_READY && may_come(s, &s->replicas[i], now_us);
    if (s->state == SERVICE_STARTING && s->placed)
        judge_start(s, n_ready, n_coming, now_us);
    else if (no_router || (useless && n_live))
        sched_fail(s, "every router is lost: no client reaches the replicas any more");
    else if (useless)
        sched_fail(s, "every worker is lost: no replica is left and none will come");
    else if (s->state == SERVICE_READY && n_ready < s->n_replicas)
        s->state = SERVICE_DEGRADED;
    else if (s->state == SERVICE_DEGRADED && n_ready == s->n_replicas)
        s->state = SERVICE_READY;

    struct msg_service now;
    sched_service(s, &now);
    if (memcmp(&now, &s->told, sizeof now) == 0)
        return;
    s->told = now;
    sched_act(s, SCHED_PUBLISH);
    for (uint32_t i = 0; i < s->n_routers; i++)
        sched_tell_service(s, s->routers[i]);
}
