/* The scheduler as a whole: from registered workers to READY, DEGRADED with names, FAILED with a reason. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ranks/scheduler/placement.h"
#include "ranks/scheduler/scheduler.h"
#include "ranks_pack.h"

#include <stdio.h>

enum { N_WORKERS = 4, FIRST_WORKER = 2, ROUTER = 1, SECOND = 1000000 };

struct fixture {
    struct sched *s;
    uint64_t now;
    struct tiny_pack p;
};

static uint32_t count(struct sched *s, uint16_t type, uint32_t member)
{
    struct sched_actions *a = sched_actions(s);
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->n; i++)
        n += a->list[i].kind == SCHED_SEND && a->list[i].type == type &&
             (member == UINT32_MAX || a->list[i].member == member);
    return n;
}

static bool failed(struct sched *s)
{
    struct sched_actions *a = sched_actions(s);
    for (uint32_t i = 0; i < a->n; i++)
        if (a->list[i].kind == SCHED_FAIL)
            return true;
    return false;
}

static void begin(struct fixture *f, uint32_t replicas, uint32_t min_replicas)
{
    struct err e = ERR_INIT;
    struct sched_wish w = {.pack_path = "/p.h5",
                           .engine = "cpu",
                           .replicas = replicas,
                           .min_replicas = min_replicas,
                           .n_slots = 4,
                           .start_deadline_us = 100 * SECOND,
                           .suspect_us = 4 * SECOND};
    memset(f, 0, sizeof *f);
    tiny_pack_make(&f->p);
    assert_int_equal(sched_create(&f->s, &w, &e), 0);
    f->now = SECOND;
    struct msg_register r = {.member = ROUTER, .incarnation = 1, .role = ROLE_ROUTER};
    sched_register(f->s, &r, 0, f->now);
    for (uint32_t i = N_WORKERS; i-- > 0;) { /* any order */
        r = (struct msg_register){
            .member = FIRST_WORKER + i, .incarnation = 10 + i, .role = ROLE_WORKER};
        snprintf(r.host, sizeof r.host, "n%u", i);
        sched_register(f->s, &r, i / 2, f->now);
    }
    sched_begin(f->s, f->now);
    sched_actions_clear(sched_actions(f->s));
}

static void pack(struct fixture *f)
{
    uint8_t offset[8] = {0};
    sched_pack(f->s, f->p.index.data, f->p.index.len, f->p.meta.data, f->p.meta.len, offset, 1,
               f->now);
}

static void have(struct fixture *f, uint32_t member, uint8_t bits, int code, const char *text)
{
    struct msg_have h = {.member = member, .code = code, .n_segments = 1, .bits = &bits};
    memcpy(h.digest, f->p.x.digest, sizeof h.digest);
    snprintf(h.text, sizeof h.text, "%s", text);
    sched_have(f->s, &h, f->now);
}

static void beat(struct fixture *f, uint32_t member, uint32_t replica, uint8_t state)
{
    struct msg_heartbeat *h = calloc(1, sizeof *h);
    h->member = member;
    h->incarnation = 10 + member - FIRST_WORKER;
    h->n_replicas = 1;
    h->replicas[0] =
        (struct replica_load){.deployment = 1, .replica = replica, .epoch = 1, .state = state};
    sched_heartbeat(f->s, h, true, f->now);
    free(h);
}

static struct msg_service service(struct fixture *f)
{
    struct msg_service v;
    sched_service(f->s, &v);
    return v;
}

static void end(struct fixture *f)
{
    sched_destroy(f->s);
    tiny_pack_free(&f->p);
}

/* owner of replica r with one replica a node: found in the assignment actions */
static uint32_t owner_of(struct fixture *f, uint32_t replica)
{
    struct sched_actions *a = sched_actions(f->s);
    for (uint32_t i = 0; i < a->n; i++) {
        struct msg_assign m;
        struct err e = ERR_INIT;
        if (a->list[i].kind != SCHED_SEND || a->list[i].type != MSG_ASSIGN)
            continue;
        assert_int_equal(msg_assign_get(&m, a->bodies.data + a->list[i].at, a->list[i].n, &e), 0);
        if (m.replica == replica)
            return a->list[i].member;
    }
    return UINT32_MAX;
}

static void all_ready(struct fixture *f, uint32_t owners[N_WORKERS])
{
    pack(f);
    assert_int_equal(count(f->s, MSG_MODEL, UINT32_MAX), N_WORKERS + 1);
    sched_actions_clear(sched_actions(f->s));
    for (uint32_t i = 0; i < N_WORKERS; i++)
        have(f, FIRST_WORKER + i, 1, 0, "");
    for (uint32_t r = 0; r < N_WORKERS; r++) {
        owners[r] = owner_of(f, r);
        assert_true(owners[r] >= FIRST_WORKER && owners[r] < FIRST_WORKER + N_WORKERS);
    }
    sched_actions_clear(sched_actions(f->s));
    for (uint32_t r = 0; r < N_WORKERS; r++) {
        assert_int_equal(service(f).state, SERVICE_STARTING);
        beat(f, owners[r], r, REPLICA_READY);
    }
}

static void test_ready_then_degraded_then_ready(void **state)
{
    struct fixture f;
    uint32_t owners[N_WORKERS];
    begin(&f, 0, 0);
    assert_int_equal(service(&f).state, SERVICE_STARTING);
    all_ready(&f, owners);
    assert_int_equal(service(&f).state, SERVICE_READY);
    assert_true(count(f.s, MSG_SERVICE, ROUTER) > 0);
    assert_string_equal(sched_model_name(f.s), "tiny");
    beat(&f, owners[2], 2, REPLICA_FAILED);
    struct msg_service v = service(&f);
    assert_int_equal(v.state, SERVICE_DEGRADED);
    assert_int_equal(v.n_ready, 3);
    assert_non_null(strstr(v.progress, "2 on n"));
    beat(&f, owners[2], 2, REPLICA_READY);
    assert_int_equal(service(&f).state, SERVICE_READY);
    sched_lost(f.s, owners[0], f.now);
    v = service(&f);
    assert_int_equal(v.state, SERVICE_DEGRADED);
    assert_non_null(strstr(v.progress, "(lost)"));
    end(&f);
}

static bool missing_is(struct fixture *f, uint32_t owner, uint32_t replica, const char *why)
{
    char words[128];
    snprintf(words, sizeof words, "%u on n%u (%s)", replica, owner - FIRST_WORKER, why);
    return strstr(service(f).progress, words) != NULL;
}

/* Why a replica does not serve, in its worker's words; and a node that lost its image gets it again. */
static void test_trouble_is_named_and_weights_come_again(void **state)
{
    struct fixture f;
    uint32_t owners[N_WORKERS];
    begin(&f, 0, 0);
    all_ready(&f, owners);
    beat(&f, owners[2], 2, REPLICA_FAILED);
    sched_trouble(f.s, owners[1], 2, "of another's replica", f.now);
    sched_trouble(f.s, owners[2], N_WORKERS, "no such replica", f.now);
    sched_trouble(f.s, owners[2], 2, "no more of this", f.now);
    assert_non_null(strstr(service(&f).progress, "being restarted: no more of this)"));
    beat(&f, owners[2], 2, REPLICA_BROKEN);
    assert_non_null(strstr(service(&f).progress, "(its engine keeps dying: no more of this)"));
    sched_actions_clear(sched_actions(f.s));
    have(&f, owners[2], 0, 0, "");
    sched_trouble(f.s, owners[2], 2, "its image is gone", f.now);
    assert_int_equal(count(f.s, MSG_ROUND, UINT32_MAX), 1);
    assert_int_equal(count(f.s, MSG_ROUND, owners[2]), 1);
    assert_non_null(strstr(service(&f).progress, "(waiting for weights: its image is gone)"));
    beat(&f, owners[2], 2, REPLICA_READY);
    beat(&f, owners[2], 2, REPLICA_FAILED);
    assert_null(strstr(service(&f).progress, "its image is gone")); /* that is over */
    sched_lost(f.s, owners[1],
               f.now); /* cut off and healed: nothing is asked of it, nothing awaited */
    sched_returned(f.s, owners[1], 10 + owners[1] - FIRST_WORKER, f.now);
    f.now += 1000 * SECOND;
    beat(&f, owners[1], 1, REPLICA_LOADING);
    sched_tick(f.s, f.now);
    assert_true(missing_is(&f, owners[1], 1, "its engine is starting"));
    have(&f, owners[1], 0, 0, ""); /* it may lose its image afterwards */
    assert_true(missing_is(&f, owners[1], 1, "waiting for weights"));
    end(&f);
}

static void test_silence_is_suspicion(void **state)
{
    struct fixture f;
    uint32_t owners[N_WORKERS];
    begin(&f, 0, 0);
    all_ready(&f, owners);
    f.now += 5 * SECOND;
    for (uint32_t r = 1; r < N_WORKERS; r++)
        beat(&f, owners[r], r, REPLICA_READY);
    sched_tick(f.s, f.now);
    assert_int_equal(service(&f).n_ready, N_WORKERS - 1);
    beat(&f, owners[0], 0, REPLICA_READY);
    assert_int_equal(service(&f).state, SERVICE_READY);
    end(&f);
}

static void test_no_router_is_no_service(void **state)
{
    struct fixture f;
    uint32_t owners[N_WORKERS];
    begin(&f, 0, 0);
    all_ready(&f, owners);
    sched_lost(f.s, ROUTER, f.now);
    assert_non_null(strstr(service(&f).progress, "0 of 1 routers answer"));
    f.now += 10 * SECOND;
    sched_router_returned(f.s, ROUTER, f.now);
    assert_string_equal(service(&f).progress, "all 4 replicas answer");
    sched_lost(f.s, ROUTER, f.now);
    for (uint32_t r = 0; r < N_WORKERS; r++)
        sched_lost(f.s, owners[r], f.now);
    f.now += 40 * SECOND; /* everybody: it is cut off itself */
    sched_tick(f.s, f.now);
    assert_int_equal(service(&f).state, SERVICE_DEGRADED);
    for (uint32_t r = 0; r < N_WORKERS; r++) {
        sched_returned(f.s, owners[r], 10 + owners[r] - FIRST_WORKER, f.now);
        beat(&f, owners[r], r, REPLICA_READY);
    }
    sched_router_returned(f.s, ROUTER, f.now);
    assert_int_equal(service(&f).state, SERVICE_READY);
    sched_lost(f.s, ROUTER, f.now);
    sched_tick(f.s, f.now);
    f.now += 19 * SECOND;
    for (uint32_t r = 0; r < N_WORKERS; r++)
        beat(&f, owners[r], r, REPLICA_READY);
    assert_int_equal(service(&f).state, SERVICE_READY);
    f.now += 2 * SECOND;
    sched_tick(f.s, f.now);
    assert_int_equal(service(&f).state, SERVICE_FAILED);
    assert_true(failed(f.s));
    end(&f);
}

/* No worker at all, or no router and few workers: it waits as long as Slurm would, then gives the nodes back. */
static void test_nobody_to_serve_is_no_service(void **state)
{
    enum { OTHER_ROUTER = 99 };
    struct msg_register r = {.member = OTHER_ROUTER, .incarnation = 1, .role = ROLE_ROUTER};
    for (uint32_t n_lost = N_WORKERS - 1; n_lost <= N_WORKERS; n_lost++)
        for (uint32_t n_routers = 0; n_routers < 2; n_routers++) {
            struct fixture f;
            uint32_t owners[N_WORKERS];
            begin(&f, 0, 0);
            all_ready(&f, owners);
            sched_register(f.s, &r, 0, f.now);
            sched_lost(f.s, OTHER_ROUTER, f.now); /* and the service goes on with one */
            for (uint32_t i = 0; i < n_lost; i++)
                sched_lost(f.s, owners[i], f.now);
            if (!n_routers)
                sched_lost(f.s, ROUTER, f.now);
            for (uint32_t t = 1; t < 300; t++) {
                f.now += SECOND;
                if (n_lost < N_WORKERS)
                    beat(&f, owners[n_lost], n_lost, REPLICA_READY);
                sched_tick(f.s, f.now);
                assert_int_equal(service(&f).state, SERVICE_DEGRADED);
            }
            bool serves = n_lost < N_WORKERS && n_routers;
            f.now += SECOND;
            sched_tick(f.s, f.now);
            assert_int_equal(service(&f).state, serves ? SERVICE_DEGRADED : SERVICE_FAILED);
            assert_int_equal(failed(f.s), !serves);
            if (!serves)
                assert_non_null(strstr(service(&f).progress,
                                       n_lost < N_WORKERS ? "every router" : "every worker"));
            end(&f);
        }
}

/* A cut that is healed in time does not count, nor what was while the service started. */
static void test_patience_begins_anew(void **state)
{
    struct fixture f;
    uint32_t owners[N_WORKERS];
    begin(&f, 0, 0);
    f.now += 60 * SECOND;
    all_ready(&f, owners);
    sched_lost(f.s, ROUTER, f.now);
    assert_int_equal(service(&f).state, SERVICE_READY);
    for (uint32_t i = 0; i < N_WORKERS; i++)
        sched_lost(f.s, owners[i], f.now);
    f.now += 299 * SECOND;
    sched_tick(f.s, f.now);
    sched_router_returned(f.s, ROUTER, f.now);
    sched_returned(f.s, owners[0], 10 + owners[0] - FIRST_WORKER, f.now);
    sched_lost(f.s, owners[0], f.now);
    f.now += 299 * SECOND;
    sched_tick(f.s, f.now);
    assert_int_equal(service(&f).state, SERVICE_DEGRADED);
    f.now += SECOND;
    sched_tick(f.s, f.now);
    assert_int_equal(service(&f).state, SERVICE_FAILED);
    end(&f);
}

/* The scheduler's own pause is nobody's silence; a node out of reach at the start may come back, for a while. */
static void test_pauses_and_returns(void **state)
{
    struct fixture f;
    uint32_t owners[N_WORKERS];
    begin(&f, 0, 0);
    all_ready(&f, owners);
    sched_tick(f.s, f.now);
    f.now += 30 * SECOND;
    sched_tick(f.s, f.now);
    assert_int_equal(service(&f).n_ready, N_WORKERS);
    end(&f);

    begin(&f, 0, 0);
    pack(&f);
    for (uint32_t i = 1; i < N_WORKERS; i++)
        have(&f, FIRST_WORKER + i, 1, 0, "");
    sched_lost(f.s, FIRST_WORKER, f.now);     /* before it said what it holds */
    sched_lost(f.s, FIRST_WORKER + 1, f.now); /* with its assignment on the way */
    sched_lost(f.s, ROUTER, f.now);
    assert_int_equal(service(&f).state, SERVICE_STARTING);
    f.now += 10 * SECOND;
    sched_actions_clear(sched_actions(f.s));
    sched_returned(f.s, FIRST_WORKER, 99, f.now); /* another process */
    assert_int_equal(count(f.s, MSG_MODEL, FIRST_WORKER), 0);
    sched_returned(f.s, FIRST_WORKER, 10, f.now);
    assert_int_equal(count(f.s, MSG_MODEL, FIRST_WORKER), 1);
    sched_returned(f.s, FIRST_WORKER + 1, 11, f.now);
    assert_int_equal(count(f.s, MSG_ASSIGN, FIRST_WORKER + 1), 1);
    sched_router_returned(f.s, ROUTER, f.now);
    assert_int_equal(count(f.s, MSG_MODEL, ROUTER), 1);
    assert_int_equal(count(f.s, MSG_SERVICE, ROUTER), 1);
    have(&f, FIRST_WORKER, 1, 0, "");
    assert_int_equal(count(f.s, MSG_ASSIGN, FIRST_WORKER), 1);
    sched_actions_clear(sched_actions(f.s));
    sched_lost(f.s, FIRST_WORKER, f.now);
    for (uint32_t at = 0; at <= 25; at += 5) {
        for (uint32_t i = 1; i < N_WORKERS; i++)
            for (uint32_t r = 0; r < N_WORKERS; r++)
                beat(&f, FIRST_WORKER + i, r, REPLICA_READY); /* its own one counts */
        sched_tick(f.s, f.now);
        assert_int_equal(service(&f).state, at < 20 ? SERVICE_STARTING : SERVICE_FAILED);
        f.now += 5 * SECOND;
    }
    end(&f);
}

static void test_deadline_decides(void **state)
{
    struct fixture f;
    uint32_t owners[N_WORKERS];
    begin(&f, 0, 3);
    pack(&f);
    for (uint32_t i = 0; i < N_WORKERS; i++)
        have(&f, FIRST_WORKER + i, 1, 0, "");
    for (uint32_t r = 0; r < N_WORKERS; r++)
        owners[r] = owner_of(&f, r);
    for (uint32_t r = 0; r < 3; r++)
        beat(&f, owners[r], r, REPLICA_READY);
    f.now += 99 * SECOND;
    for (uint32_t r = 0; r < 3; r++)
        beat(&f, owners[r], r, REPLICA_READY);
    beat(&f, owners[3], 3, REPLICA_LOADING);
    sched_tick(f.s, f.now);
    assert_int_equal(service(&f).state, SERVICE_STARTING);
    f.now += 2 * SECOND;
    sched_tick(f.s, f.now);
    assert_int_equal(service(&f).state, SERVICE_DEGRADED);
    assert_false(failed(f.s));
    end(&f);

    begin(&f, 0, 3);
    pack(&f);
    f.now += 101 * SECOND;
    sched_tick(f.s, f.now);
    assert_int_equal(service(&f).state, SERVICE_FAILED);
    assert_true(failed(f.s));
    assert_non_null(strstr(service(&f).progress, "start deadline"));
    end(&f);
}

static void test_hopeless_fails_at_once(void **state)
{
    struct fixture f;
    begin(&f, 0, 0);
    pack(&f);
    for (uint32_t i = 0; i < N_WORKERS; i++)
        have(&f, FIRST_WORKER + i, 0, ERR_LIMIT, "no space left in /cache");
    assert_int_equal(service(&f).state, SERVICE_FAILED);
    assert_non_null(strstr(service(&f).progress, "no space left in /cache"));
    end(&f);

    begin(&f, 0, 0);
    struct err e = {ERR_FORMAT, "not a pack"};
    sched_pack_failed(f.s, &e, f.now);
    assert_true(failed(f.s));
    assert_string_equal(service(&f).progress, "pack /p.h5: not a pack");
    end(&f);
}

static void test_one_full_disk_degrades(void **state)
{
    struct fixture f;
    begin(&f, 0, 3);
    pack(&f);
    have(&f, FIRST_WORKER, 0, ERR_LIMIT, "disk full");
    for (uint32_t i = 1; i < N_WORKERS; i++)
        have(&f, FIRST_WORKER + i, 1, 0, "");
    uint32_t owner[N_WORKERS];
    for (uint32_t r = 0; r < N_WORKERS; r++)
        owner[r] = owner_of(&f, r);
    for (uint32_t r = 0; r < N_WORKERS; r++)
        if (owner[r] != UINT32_MAX)
            beat(&f, owner[r], r, REPLICA_READY);
    assert_int_equal(
        service(&f).state,
        SERVICE_DEGRADED); /* nothing more can come: no need to wait for the deadline */
    assert_non_null(strstr(service(&f).progress, "disk full"));
    end(&f);
}

/* A file system that does not answer: the start deadline holds for the pack too. */
static void test_pack_that_never_opens(void **state)
{
    struct fixture f;
    begin(&f, 0, 0);
    f.now += 99 * SECOND;
    sched_tick(f.s, f.now);
    assert_int_equal(service(&f).state, SERVICE_STARTING);
    f.now += 2 * SECOND;
    sched_tick(f.s, f.now);
    assert_true(failed(f.s));
    assert_non_null(strstr(service(&f).progress, "pack could not be opened"));
    sched_actions_clear(sched_actions(f.s));
    pack(&f); /* it came after all */
    assert_int_equal(service(&f).state, SERVICE_FAILED);
    assert_int_equal(count(f.s, MSG_MODEL, UINT32_MAX), 0);
    end(&f);
}

/* The model's metadata has MiB: one copy of it, not one for each of thousands of members. */
static void test_members_share_the_body(void **state)
{
    struct fixture f;
    begin(&f, 0, 0);
    pack(&f);
    struct sched_actions *a = sched_actions(f.s);
    size_t at = SIZE_MAX;
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        if (a->list[i].kind != SCHED_SEND || a->list[i].type != MSG_MODEL)
            continue;
        assert_true(at == SIZE_MAX || at == a->list[i].at);
        at = a->list[i].at;
        n++;
    }
    assert_int_equal(n, N_WORKERS + 1);
    end(&f);
}

static void test_router_that_comes_back(void **state)
{
    struct fixture f;
    uint32_t owners[N_WORKERS];
    begin(&f, 0, 0);
    all_ready(&f, owners);
    sched_lost(f.s, ROUTER, f.now);
    sched_actions_clear(sched_actions(f.s));
    beat(&f, owners[2], 2, REPLICA_FAILED);
    assert_int_equal(count(f.s, MSG_SERVICE, ROUTER), 0);
    sched_router_returned(f.s, ROUTER, f.now);
    assert_int_equal(count(f.s, MSG_MODEL, ROUTER), 1);
    assert_true(count(f.s, MSG_SERVICE, ROUTER) >= 1);
    sched_actions_clear(sched_actions(f.s));
    sched_router_returned(f.s, ROUTER, f.now); /* twice: still one listener */
    sched_actions_clear(sched_actions(f.s));
    beat(&f, owners[2], 2, REPLICA_READY);
    assert_int_equal(count(f.s, MSG_SERVICE, ROUTER), 1);
    end(&f);
}

/* Lost before it had the weights: when its link is back it is asked and told again, and the service gets whole. */
static void test_back_without_weights(void **state)
{
    struct fixture f;
    uint32_t owner[N_WORKERS];
    begin(&f, 0, 3);
    pack(&f);
    sched_lost(f.s, FIRST_WORKER, f.now);
    for (uint32_t i = 1; i < N_WORKERS; i++)
        have(&f, FIRST_WORKER + i, 1, 0, "");
    for (uint32_t r = 0; r < N_WORKERS; r++)
        if ((owner[r] = owner_of(&f, r)) != UINT32_MAX)
            beat(&f, owner[r], r, REPLICA_READY);
    assert_int_equal(service(&f).state, SERVICE_STARTING); /* it may come back */
    sched_actions_clear(sched_actions(f.s));
    sched_returned(f.s, FIRST_WORKER, 10, f.now);
    assert_int_equal(count(f.s, MSG_MODEL, FIRST_WORKER), 1);
    have(&f, FIRST_WORKER, 1, 0, "");
    assert_int_equal(count(f.s, MSG_ASSIGN, FIRST_WORKER), 1);
    for (uint32_t r = 0; r < N_WORKERS; r++)
        if (owner[r] == UINT32_MAX)
            beat(&f, FIRST_WORKER, r, REPLICA_READY);
    assert_int_equal(service(&f).state, SERVICE_READY);
    end(&f);
}

static void test_placement_spreads(void **state)
{
    struct placement_node nodes[6];
    struct err e = ERR_INIT;
    const struct placement_wish whole = {.max_per_node = 2, .n_shards = 1};
    uint32_t owner[12], n = 3;
    for (uint32_t i = 0; i < 6; i++)
        nodes[i] = (struct placement_node){i, i / 2};
    assert_int_equal(placement_make(nodes, 6, &whole, &n, owner, 12, &e), 0);
    assert_true(nodes[owner[0]].rack != nodes[owner[1]].rack &&
                nodes[owner[1]].rack != nodes[owner[2]].rack &&
                nodes[owner[0]].rack != nodes[owner[2]].rack);
    n = 0;
    assert_int_equal(placement_make(nodes, 6, &whole, &n, owner, 12, &e), 0);
    assert_int_equal(n, 6);
    n = 12;
    assert_int_equal(placement_make(nodes, 6, &whole, &n, owner, 12, &e), 0);
    uint32_t load[6] = {0};
    for (uint32_t r = 0; r < 12; r++)
        load[owner[r]]++;
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(load[i], 2);
    n = 13;
    assert_int_equal(placement_make(nodes, 6, &whole, &n, owner, 12, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "13 replicas do not fit on 6 nodes"));
}

static void test_placement_of_gangs(void **state)
{
    struct placement_node nodes[4];
    struct err e = ERR_INIT;
    uint32_t owner[64], n = 0;
    for (uint32_t i = 0; i < 4; i++)
        nodes[i] = (struct placement_node){i, i / 2};
    /* all shards of a replica on one node; one replica a node */
    struct placement_wish wish = {.max_per_node = 64, .n_shards = 4};
    assert_int_equal(placement_make(nodes, 4, &wish, &n, owner, 64, &e), 0);
    assert_int_equal(n, 4);
    uint32_t load[4] = {0};
    for (uint32_t i = 0; i < 16; i++) {
        assert_int_equal(owner[i], owner[i / 4 * 4]);
        load[owner[i]]++;
    }
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(load[i], 4);
    /* two a node: neighbours stand together, the halves on two nodes */
    wish.per_node = 2;
    n = 0;
    assert_int_equal(placement_make(nodes, 4, &wish, &n, owner, 64, &e), 0);
    assert_int_equal(n, 2);
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(owner[4 * r], owner[4 * r + 1]);
        assert_int_equal(owner[4 * r + 2], owner[4 * r + 3]);
        assert_int_not_equal(owner[4 * r], owner[4 * r + 2]);
    }
    /* one a node: all four, and no replica of five fits */
    wish.per_node = 1;
    n = 3;
    assert_int_equal(placement_make(nodes, 4, &wish, &n, owner, 64, &e), 0);
    for (uint32_t r = 0; r < 3; r++)
        for (uint32_t s = 0; s < 4; s++)
            for (uint32_t t = 0; t < s; t++)
                assert_int_not_equal(owner[4 * r + s], owner[4 * r + t]);
    wish.n_shards = 5;
    assert_int_equal(placement_make(nodes, 4, &wish, &n, owner, 64, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "5 shards with at most 1 a node needs 5 nodes, there are 4"));
    wish = (struct placement_wish){.max_per_node = 8, .n_shards = 4};
    n = 9;
    assert_int_equal(placement_make(nodes, 4, &wish, &n, owner, 64, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "9 replicas do not fit on 4 nodes with at most 2 a node"));
}

/* Over all small shapes: a replica's parts stand on nodes of their own, full but for the last. */
static void test_placement_of_gangs_everywhere(void **state)
{
    struct placement_node nodes[6];
    struct err e = ERR_INIT;
    uint32_t owner[16 * 16];
    for (uint32_t n_nodes = 1; n_nodes <= 6; n_nodes++)
        for (uint32_t racks = 1; racks <= n_nodes; racks++)
            for (uint32_t shards = 2; shards <= 16; shards++)
                for (uint32_t per_node = 1; per_node <= shards; per_node++) {
                    const struct placement_wish wish = {64, shards, per_node};
                    uint32_t n = 16;
                    for (uint32_t i = 0; i < n_nodes; i++)
                        nodes[i] = (struct placement_node){i, i % racks};
                    if (placement_make(nodes, n_nodes, &wish, &n, owner, 16 * 16, &e))
                        continue;
                    for (uint32_t i = 0; i < n * shards; i++)
                        for (uint32_t k = i / shards * shards; k < i; k++)
                            assert_int_equal(owner[i] == owner[k],
                                             i % shards / per_node == k % shards / per_node);
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ready_then_degraded_then_ready),
        cmocka_unit_test(test_trouble_is_named_and_weights_come_again),
        cmocka_unit_test(test_silence_is_suspicion),
        cmocka_unit_test(test_pauses_and_returns),
        cmocka_unit_test(test_no_router_is_no_service),
        cmocka_unit_test(test_nobody_to_serve_is_no_service),
        cmocka_unit_test(test_patience_begins_anew),
        cmocka_unit_test(test_deadline_decides),
        cmocka_unit_test(test_hopeless_fails_at_once),
        cmocka_unit_test(test_one_full_disk_degrades),
        cmocka_unit_test(test_pack_that_never_opens),
        cmocka_unit_test(test_members_share_the_body),
        cmocka_unit_test(test_router_that_comes_back),
        cmocka_unit_test(test_back_without_weights),
        cmocka_unit_test(test_placement_spreads),
        cmocka_unit_test(test_placement_of_gangs),
        cmocka_unit_test(test_placement_of_gangs_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
