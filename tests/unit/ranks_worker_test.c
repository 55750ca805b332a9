/* A node's image that is lost while its engine dies: its worker notices, says so, and starts the engine again when a round has brought it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ranks_fixture.h"
#include "ranks_pack.h"

#include <sys/stat.h>
#include <unistd.h>

static struct tiny_pack pack;
static char dir[] = "/tmp/exa-worker-XXXXXX";

struct movers {
    bool lost[WORLD_RANKS]; /* the image */
    bool no_check;          /* it cannot be looked at, but it is whole */
    uint32_t n_opens[WORLD_RANKS], n_checks[WORLD_RANKS];
    struct task *round; /* owned: not answered yet */
};

static void write_file(const char *name, mode_t mode, const char *text)
{
    char path[128], tmp[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    snprintf(tmp, sizeof tmp, "%s/tmp", dir);
    FILE *f = fopen(tmp, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(tmp, mode), 0);
    assert_int_equal(rename(tmp, path), 0); /* an engine may be reading it */
}

static int make_engine(void **state)
{
    char script[256];
    tiny_pack_make(&pack);
    assert_non_null(mkdtemp(dir));
    snprintf(script, sizeof script,
             "#!/bin/sh\ncase \" $* \" in *\" --replica $(cat %s/dies) \"*) exit 7 ;; esac\n"
             "exec sleep 60\n",
             dir);
    write_file("exaserve-engine", 0700, script);
    return 0;
}

static int drop_engine(void **state)
{
    static const char *const NAMES[] = {"/exaserve-engine", "/dies", ""};
    char path[128];
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        snprintf(path, sizeof path, "%s%s", dir, NAMES[i]);
        remove(path);
    }
    tiny_pack_free(&pack);
    return 0;
}

/* What the node holds, as its mover says it. */
static void answer_have(struct test_world *w, uint32_t rank, struct task *t, uint32_t round)
{
    const struct movers *m = w->ctx;
    buf_reset(&t->c);
    buf_u8(&t->c, !m->lost[rank]);
    t->have = (struct msg_have){
        .member = rank, .round = round, .n_segments = pack.x.n_segments, .bits = t->c.data};
    memcpy(t->have.digest, pack.x.digest, sizeof t->have.digest);
    snprintf(t->path, sizeof t->path, "%s", m->lost[rank] ? "" : "/image");
    worker_task(w->d[rank]->worker, t);
    task_destroy(t);
}

static bool on_task(struct test_world *w, uint32_t rank, struct task *t)
{
    struct movers *m = w->ctx;
    switch (t->kind) {
    case TASK_OPEN_PACK:
        buf_put(&t->a, pack.index.data, pack.index.len);
        buf_put(&t->b, pack.meta.data, pack.meta.len);
        buf_u64(&t->c, 0);
        t->n = 1;
        scheduler_role_task(w->d[rank]->scheduler, t);
        task_destroy(t);
        return true;
    case TASK_OPEN_CACHE:
        m->n_opens[rank]++;
        answer_have(w, rank, t, 0);
        return true;
    case TASK_CHECK_IMAGE:
        m->n_checks[rank]++;
        assert_string_equal(t->path, "/image");
        if (m->no_check || m->lost[rank])
            err_set(&t->err, ERR_SYS, "no such image");
        worker_task(w->d[rank]->worker, t);
        task_destroy(t);
        return true;
    case TASK_ROUND:
        assert_null(m->round);
        m->round = t;
        return true;
    default:
        return false;
    }
}

static bool progress_has(const struct test_world *w, const char *words)
{
    return strstr(w->progress, words) != NULL;
}

static uint32_t who_checks(const struct movers *m)
{
    for (uint32_t r = WORLD_FIRST_WORKER; r < WORLD_RANKS; r++)
        if (m->n_checks[r])
            return r;
    return 0;
}

static struct test_world *world_with(struct movers *m)
{
    struct test_world *w = world_make_with(dir);
    w->ctx = m;
    w->on_task = on_task;
    write_file("dies", 0600, "0");
    world_start_to(w, BOOT_DETACHED);
    WORLD_AWAIT(w, who_checks(m));
    return w;
}

/* A round brings the image, and the engine has nothing to die of any more. */
static void mend(struct test_world *w, uint32_t rank)
{
    struct movers *m = w->ctx;
    uint32_t n_checks = m->n_checks[rank];
    m->lost[rank] = false;
    write_file("dies", 0600, "none");
    answer_have(w, rank, m->round, 1);
    WORLD_AWAIT(w, progress_has(w, "0 on n") && progress_has(w, "(its engine is starting: "
                                                                "its image was lost: no such"));
    assert_int_equal(m->n_checks[rank], n_checks);
    for (uint32_t r = WORLD_FIRST_WORKER; r < WORLD_RANKS; r++)
        WORLD_AWAIT(w, worker_stop(w->d[r]->worker));
}

static void test_lost_image(void **state)
{
    struct movers m = {.no_check = false};
    struct test_world *w = world_with(&m);
    uint32_t rank = who_checks(&m);
    WORLD_AWAIT(w, progress_has(w, "being restarted: engine of replica 0 ended with status 7)"));
    assert_int_equal(m.n_opens[rank], 1); /* its image was there */
    m.lost[rank] = true;
    WORLD_AWAIT(w, m.round);
    assert_int_equal(m.n_opens[rank], 2);
    WORLD_AWAIT(w, progress_has(w, "weights: 75 %"));
    mend(w, rank);
}

/* The link between the two breaks, or is there again. */
static void link_is(struct test_world *w, uint32_t a, uint32_t b, bool up)
{
    struct err why = ERR_INIT;
    err_set(&why, ERR_PEER, "a cut cable");
    plane_hub_cut(w->hub, a, b, !up);
    for (int i = 0; i < 2; i++) {
        struct plane_events ev = daemon_events(w->d[i ? a : b]);
        uint32_t other = i ? b : a;
        struct plane_peer peer = {.member = other, .incarnation = w->d[other]->incarnation};
        if (up)
            ev.on_up(ev.ctx, &peer);
        else
            ev.on_lost(ev.ctx, other, peer.incarnation, &why);
    }
}

/* The scheduler was out of reach when the image was found lost: it hears of it when it is back. */
static void test_lost_while_cut_off(void **state)
{
    struct movers m = {.no_check = false};
    struct test_world *w = world_with(&m);
    uint32_t rank = who_checks(&m);
    link_is(w, SCHEDULER_MEMBER, rank, false);
    m.lost[rank] = true;
    WORLD_AWAIT(w, m.n_opens[rank] == 2);
    assert_null(m.round);
    link_is(w, SCHEDULER_MEMBER, rank, true);
    WORLD_AWAIT(w, m.round);
    mend(w, rank);
}

/* The check fails for another reason, of which the engine dies too: one full look at the image, and it is BROKEN in the end. */
static void test_image_is_whole(void **state)
{
    struct movers m = {.no_check = true};
    struct test_world *w = world_with(&m);
    uint32_t rank = who_checks(&m);
    WORLD_AWAIT(
        w, progress_has(w, "(its engine keeps dying: engine of replica 0 ended with status 7)"));
    assert_int_equal(m.n_opens[rank], 2);
    assert_null(m.round);
    for (uint32_t r = WORLD_FIRST_WORKER; r < WORLD_RANKS; r++)
        WORLD_AWAIT(w, worker_stop(w->d[r]->worker));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lost_image),
        cmocka_unit_test(test_lost_while_cut_off),
        cmocka_unit_test(test_image_is_whole),
    };
    return cmocka_run_group_tests(tests, make_engine, drop_engine);
}
