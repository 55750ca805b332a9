/* ranks_fixture.h - a whole world in one process for tests: daemons over plane_mem, without threads, MPI and engines.
 *
 * The test is the mover: it pops what a rank hands to its mover, and answers or not (on_task). Roles by rank: 0 scheduler, 1 router, then one
 * worker a node, all in one rack.
 */
#ifndef EXA_TESTS_RANKS_FIXTURE_H
#define EXA_TESTS_RANKS_FIXTURE_H

#include "base/clock.h"
#include "ranks/daemon.h"
#include "ranks/ending.h"
#include "ranks/members.h"
#include "ranks/mover.h"
#include "ranks/router_role.h"
#include "ranks/scheduler_role.h"
#include "ranks/worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WORLD_NODES = 4,
    WORLD_RANKS = 2 + WORLD_NODES,
    WORLD_ROUTER = 1,
    WORLD_FIRST_WORKER = 2,
    WORLD_MAX = 16,
    WORLD_PATIENCE_US = 10 * 1000000,
};

struct test_world {
    struct plane_hub *hub;
    struct daemon *d[WORLD_RANKS];
    bool dead[WORLD_RANKS];
    uint32_t phase[WORLD_RANKS];    /* last BOOT_ phase that was released */
    struct task *word[WORLD_RANKS]; /* owned: TASK_ABORTED or TASK_LEAVE, or NULL */
    struct task *publication;       /* owned: rank 0's, while `hold` */
    bool hold;                      /* leave publications unanswered */
    char state[32];                 /* of the last publication answered */
    char progress[512];             /* the same */
    uint32_t n_publications;
    bool (*on_task)(struct test_world *w, uint32_t rank, struct task *t); /* or NULL; true: taken */
    void *ctx;
    const char *bin_dir; /* where exaserve-engine lies, or NULL */
};

static const char WORLD_YAML[] = "models:\n  - pack: /p.h5\nlisten: 127.0.0.1\n";

static inline struct daemon *world_daemon(struct test_world *w, uint32_t rank)
{
    struct err e = ERR_INIT;
    struct layout_node nodes[WORLD_NODES] = {
        {"n0", "r0", ""}, {"n1", "r0", ""}, {"n2", "r0", ""}, {"n3", "r0", ""}};
    struct layout_wish wish = {.routers = 1};
    struct daemon *d = calloc(1, sizeof *d);
    assert_int_equal(layout_make(&d->layout, nodes, WORLD_NODES, &wish, &e), 0);
    assert_int_equal(d->layout.n_ranks, WORLD_RANKS);
    assert_int_equal(config_parse(&d->config, WORLD_YAML, sizeof WORLD_YAML - 1, "t.yaml", &e), 0);
    d->config->heartbeat_ms = 20;
    d->rank = rank;
    d->n_ranks = WORLD_RANKS;
    d->role = d->layout.ranks[rank].role;
    d->incarnation = 100 + rank;
    snprintf(d->host, sizeof d->host, "%s", nodes[d->layout.ranks[rank].node].host);
    snprintf(d->key, sizeof d->key, "sk-exa-%d", 1);
    snprintf(d->bin_dir, sizeof d->bin_dir, "%s", w->bin_dir ? w->bin_dir : "");
    assert_int_equal(queue_create(&d->to_loop, 64, &e), 0);
    assert_int_equal(queue_create(&d->to_mover, 64, &e), 0);
    struct mover_config mc = {.rank = rank};
    assert_int_equal(mover_create(&d->mover, &mc, NULL, d->to_mover, d->to_loop, &e), 0);
    assert_int_equal(uv_loop_init(&d->loop), 0);
    assert_int_equal(members_init(d, &e), 0);
    struct plane_self self = {
        .member = rank, .incarnation = d->incarnation, .secret = "s", .secret_bytes = 1};
    struct plane_events ev = daemon_events(d);
    assert_int_equal(plane_mem_create(&d->plane, w->hub, &self, &ev, &e), 0);
    if (d->role == ROLE_SCHEDULER) {
        assert_int_equal(boot_init(&d->boot, &d->layout, clock_now_us(), &e), 0);
        assert_int_equal(scheduler_role_create(&d->scheduler, d, &e), 0);
    } else if (d->role == ROLE_ROUTER) {
        assert_int_equal(router_role_create(&d->router, d, &e), 0);
    } else {
        assert_int_equal(worker_create(&d->worker, d, &e), 0);
    }
    return d;
}

/* A world lives as long as the test program, as a daemon lives as long as its process. */
static inline struct test_world *world_make_with(const char *bin_dir)
{
    static struct test_world *kept[WORLD_MAX];
    static uint32_t n;
    struct err e = ERR_INIT;
    assert_true(n < WORLD_MAX);
    struct test_world *w = kept[n++] = calloc(1, sizeof *w);
    w->bin_dir = bin_dir;
    assert_int_equal(plane_hub_create(&w->hub, &e), 0);
    for (uint32_t r = 0; r < WORLD_RANKS; r++)
        w->d[r] = world_daemon(w, r);
    return w;
}

static inline struct test_world *world_make(void)
{
    return world_make_with(NULL);
}

static inline void world_answer(struct test_world *w, struct task *t)
{
    snprintf(w->state, sizeof w->state, "%s", t->endpoint.state);
    snprintf(w->progress, sizeof w->progress, "%s", t->endpoint.progress);
    w->n_publications++;
    scheduler_role_task(w->d[0]->scheduler, t);
    task_destroy(t);
}

static inline void world_mover(struct test_world *w, uint32_t r)
{
    struct task *t;
    while ((t = queue_pop(w->d[r]->to_mover)) != NULL) {
        if (t->kind == TASK_RELEASED)
            w->phase[r] = t->phase;
        if (w->on_task && w->on_task(w, r, t)) {
            continue;
        } else if (t->kind == TASK_PUBLISH && w->hold) {
            assert_null(w->publication); /* one at a time */
            w->publication = t;
        } else if (t->kind == TASK_PUBLISH) {
            world_answer(w, t);
        } else if ((t->kind == TASK_ABORTED || t->kind == TASK_LEAVE) && !w->word[r]) {
            w->word[r] = t;
        } else {
            task_destroy(t);
        }
    }
}

/* The process is gone: its peers see the connection break. */
static inline void world_kill(struct test_world *w, uint32_t r)
{
    w->dead[r] = true;
    plane_hub_kill(w->hub, r);
}

/* What the loop thread of each rank does in one turn, ticks included. */
static inline void world_turn(struct test_world *w)
{
    for (uint32_t r = 0; r < WORLD_RANKS; r++) {
        struct daemon *d = w->d[r];
        if (w->dead[r])
            continue;
        uint64_t now = clock_now_us();
        uv_run(&d->loop, UV_RUN_NOWAIT);
        plane_progress(d->plane, now);
        members_tick(d, now);
        if (d->serving && d->scheduler)
            scheduler_role_tick(d->scheduler, now);
        if (d->serving && d->router)
            router_role_tick(d->router, now);
        if (d->serving && d->worker) {
            worker_tick(d->worker, now);
            worker_flush(d->worker);
        }
        ending_tick(d, now);
        world_mover(w, r);
    }
}

#define WORLD_AWAIT(w, condition)                                                                  \
    do {                                                                                           \
        uint64_t world_until = clock_now_us() + WORLD_PATIENCE_US;                                 \
        while (!(condition)) {                                                                     \
            world_turn(w);                                                                         \
            assert_true(clock_now_us() < world_until);                                             \
        }                                                                                          \
    } while (0)

/* A rank's main thread says that it reached a phase. */
static inline void world_reach(struct test_world *w, uint32_t r, uint32_t phase)
{
    struct task *t = task_create(TASK_REACHED);
    t->phase = phase;
    members_task(w->d[r], t);
    task_destroy(t);
}

static inline void world_connect(struct test_world *w, uint32_t r)
{
    struct err e = ERR_INIT;
    struct task *t = task_create(TASK_CONNECT);
    assert_int_equal(plane_address(w->d[0]->plane, &t->a, &e), 0);
    members_task(w->d[r], t);
    task_destroy(t);
}

static inline bool world_at(const struct test_world *w, uint32_t phase)
{
    for (uint32_t r = 0; r < WORLD_RANKS; r++)
        if (!w->dead[r] && w->phase[r] != phase)
            return false;
    return true;
}

/* Every rank has left MPI_Init; phase: released before this returns. */
static inline void world_start_to(struct test_world *w, uint32_t phase)
{
    for (uint32_t r = 1; r < WORLD_RANKS; r++)
        world_connect(w, r);
    for (uint32_t p = BOOT_OUT_OF_INIT; p <= phase; p++) {
        for (uint32_t r = 0; r < WORLD_RANKS; r++)
            if (p > BOOT_OUT_OF_INIT || r == 0) /* others say it by registering */
                world_reach(w, r, p);
        WORLD_AWAIT(w, world_at(w, p));
    }
}

#endif
