/* Shards of a gang: they start together, end together, and start again together, whatever is lost on the way. A small world of shards whose
 * words are delivered, held back or dropped by the test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "ranks/shard.h"

enum { N = 3, MAIL = 256 };

struct world;
struct seat {
    struct world *w;
    uint32_t number;
    struct shard *s;
    bool runs;      /* its engine */
    uint64_t gang;  /* of the engine */
    uint32_t kills; /* asked for */
};
struct mail {
    uint32_t from_member, to;
    struct msg_gang m;
};
struct world {
    struct seat seats[N];
    struct mail mails[MAIL];
    uint32_t n_mails;
    uint64_t now;
    bool drop; /* words vanish */
};

static void on_send(void *ctx, uint32_t member, const struct msg_gang *m)
{
    struct seat *from = ctx;
    struct world *w = from->w;
    if (w->drop)
        return;
    assert_true(w->n_mails < MAIL);
    w->mails[w->n_mails++] = (struct mail){10 + from->number, member - 10, *m};
}

static void world_make(struct world *w)
{
    uint8_t peers[4 * N] = {0};
    memset(w, 0, sizeof *w);
    w->now = 1000000;
    for (uint32_t i = 0; i < N; i++)
        peers[4 * i] = (uint8_t)(10 + i);
    for (uint32_t i = 0; i < N; i++) {
        struct err e = ERR_INIT;
        struct msg_assign a = {.deployment = 1,
                               .replica = 7,
                               .epoch = 1,
                               .shard = i,
                               .n_shards = N,
                               .n_peers = N,
                               .peers = peers};
        w->seats[i] = (struct seat){.w = w, .number = i};
        assert_int_equal(shard_create(&w->seats[i].s, &a, on_send, &w->seats[i], &e), 0);
    }
}

static void world_end(struct world *w)
{
    for (uint32_t i = 0; i < N; i++)
        shard_destroy(w->seats[i].s);
}

static void engine_ends(struct world *w, uint32_t i, const char *why)
{
    struct seat *t = &w->seats[i];
    assert_true(t->runs);
    t->runs = false;
    shard_ended(t->s, why);
}

static void deliver(struct world *w)
{
    for (uint32_t k = 0; k < w->n_mails; k++) { /* what is said meanwhile comes too */
        struct mail m = w->mails[k];
        struct seat *t = &w->seats[m.to];
        const char *why = shard_word(t->s, m.from_member, &m.m, w->now);
        if (why) {
            t->kills++;
            engine_ends(w, m.to, why);
        }
    }
    w->n_mails = 0;
}

/* One round of ticks, half a second later: whoever may start, starts. */
static void tick(struct world *w)
{
    w->now += SHARD_HERE_US;
    for (uint32_t i = 0; i < N; i++)
        if (!w->seats[i].runs)
            shard_tick(w->seats[i].s, w->now);
    deliver(w);
    for (uint32_t i = 0; i < N; i++) {
        struct seat *t = &w->seats[i];
        if (t->runs || !shard_may_start(t->s, w->now))
            continue;
        shard_started(t->s, w->now);
        t->runs = true;
        t->gang = shard_gang(t->s);
    }
    deliver(w);
}

static void assert_all_run(const struct world *w)
{
    for (uint32_t i = 0; i < N; i++) {
        assert_true(w->seats[i].runs);
        assert_true(w->seats[i].gang == w->seats[0].gang);
    }
}

static void run_until_all(struct world *w)
{
    for (int i = 0; i < 20; i++) {
        bool all = true;
        tick(w);
        for (uint32_t k = 0; k < N; k++)
            all = all && w->seats[k].runs && w->seats[k].gang == w->seats[0].gang;
        if (all)
            return;
    }
    fail_msg("the gang did not come together");
}

static void test_starts_together(void **state)
{
    struct world w;
    char text[128];
    world_make(&w);
    assert_false(shard_may_start(w.seats[0].s, w.now));
    assert_false(shard_may_start(w.seats[1].s, w.now));
    shard_awaited(w.seats[0].s, w.now, text, sizeof text);
    assert_string_equal(text, "shard 1 of member 11, shard 2 of member 12");
    shard_tick(w.seats[1].s, w.now);
    deliver(&w);
    assert_false(shard_may_start(w.seats[0].s, w.now)); /* shard 2 was not heard */
    shard_awaited(w.seats[0].s, w.now, text, sizeof text);
    assert_string_equal(text, "shard 2 of member 12");
    run_until_all(&w);
    assert_all_run(&w);
    world_end(&w);
}

static void test_old_news_are_no_news(void **state)
{
    struct world w;
    world_make(&w);
    shard_tick(w.seats[1].s, w.now);
    shard_tick(w.seats[2].s, w.now);
    deliver(&w);
    assert_true(shard_may_start(w.seats[0].s, w.now));
    assert_false(shard_may_start(w.seats[0].s, w.now + SHARD_HEARD_US)); /* silent since */
    world_end(&w);
}

static void test_any_end_ends_all(void **state)
{
    for (uint32_t dead = 0; dead < N; dead++) {
        struct world w;
        world_make(&w);
        run_until_all(&w);
        uint64_t before = w.seats[0].gang;
        engine_ends(&w, dead, "was killed by signal 9");
        deliver(&w);
        for (uint32_t i = 0; i < N; i++) {
            assert_false(w.seats[i].runs);
            assert_int_equal(w.seats[i].kills, i != dead);
        }
        run_until_all(&w);
        assert_true(w.seats[0].gang > before);
        world_end(&w);
    }
}

static void test_a_lost_worker_ends_all(void **state)
{
    struct world w;
    world_make(&w);
    run_until_all(&w);
    /* shard 2's worker dies: the leader sees it, shard 1 hears of it */
    assert_null(shard_lost(w.seats[1].s, 12));
    assert_null(shard_lost(w.seats[0].s, 99));
    const char *why = shard_lost(w.seats[0].s, 12);
    assert_non_null(why);
    assert_non_null(strstr(why, "member 12"));
    engine_ends(&w, 0, why);
    deliver(&w);
    assert_false(w.seats[1].runs);
    world_end(&w);
    /* the leader's: every other shard sees it by itself */
    world_make(&w);
    run_until_all(&w);
    assert_non_null(shard_lost(w.seats[1].s, 10));
    assert_non_null(shard_lost(w.seats[2].s, 10));
    world_end(&w);
}

/* The leader's END to the others is lost, or theirs to it: HERE, or the next START, says the same later. */
static void test_lost_words_do_not_part_the_gang(void **state)
{
    for (uint32_t dead = 0; dead < N; dead++) {
        struct world w;
        world_make(&w);
        run_until_all(&w);
        w.drop = true;
        engine_ends(&w, dead, "was killed by signal 9");
        w.drop = false;
        if (dead ==
            0) { /* a lost word to a worker that lives means a lost link: the plane says so */
            for (uint32_t i = 1; i < N; i++)
                if (shard_lost(w.seats[i].s, 10))
                    engine_ends(&w, i, "the leader is lost");
        }
        run_until_all(&w);
        assert_all_run(&w);
        world_end(&w);
    }
}

/* Words of another start, of another epoch, of somebody else's worker. */
static void test_strange_words_are_dropped(void **state)
{
    struct world w;
    world_make(&w);
    run_until_all(&w);
    struct msg_gang end = {.name = {1, 7, 1, w.seats[0].gang}, .word = GANG_END, .shard = 1};
    struct msg_gang m = end;
    m.name.gang--;
    assert_null(shard_word(w.seats[0].s, 11, &m, w.now));
    m = end;
    m.name.epoch = 2;
    assert_null(shard_word(w.seats[0].s, 11, &m, w.now));
    m = end;
    m.name.replica = 8;
    assert_null(shard_word(w.seats[0].s, 11, &m, w.now));
    m = end;
    m.shard = 77;
    assert_null(shard_word(w.seats[0].s, 11, &m, w.now));
    assert_null(shard_word(w.seats[0].s, 12, &end, w.now)); /* not its worker */
    assert_null(shard_word(w.seats[1].s, 12, &end, w.now)); /* not the leader's */
    assert_non_null(shard_word(w.seats[0].s, 11, &end, w.now));
    world_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_starts_together),
        cmocka_unit_test(test_old_news_are_no_news),
        cmocka_unit_test(test_any_end_ends_all),
        cmocka_unit_test(test_a_lost_worker_ends_all),
        cmocka_unit_test(test_lost_words_do_not_part_the_gang),
        cmocka_unit_test(test_strange_words_are_dropped),
    };
    return cmocka_run_group_tests_name("ranks_shard", tests, NULL, NULL);
}
