/* A replica's life: ready, steps, refusals, deaths with back-off, giving up, a hang, the end. The engine is this very program, started as
 * a worker starts exaserve-engine; the assignment's engine name is what it plays.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "ranks/replica.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
    PATIENCE_US = 20 * 1000000,
    MAX_NOTES = 64,
    N_SLOTS = 2,
    SOON_US = 50000,
    STEP_TIMEOUT_US = 7 * 1000000,
    LOAD_TIMEOUT_US = 400 * 1000000,
    PIECE_BYTES = 64 << 10,
    N_PIECES = 300, /* more than a ring holds */
};

/* --- the engine ------------------------------------------------------------------------------------------ */

static void say_ready(struct channel *c)
{
    struct msg_engine_ready m = {.n_slots = N_SLOTS, .n_ctx = 64, .kernels = "fake"};
    struct buf b;
    buf_init(&b, 4096);
    msg_engine_ready_put(&b, &m);
    channel_send(c, MSG_ENGINE_READY, b.data, b.len, NULL);
    buf_fini(&b);
}

/* One step with one token; finish: the attempt ends by it. It claims to be another replica: nobody must believe it. */
static void say_step(struct channel *c, const struct attempt *a, uint32_t position, uint8_t finish)
{
    const uint8_t token[4] = {42};
    struct step_section s = {.deployment = 9, .replica = 9, .epoch = 9, .step = 1};
    struct step_entry entry = {
        .attempt = *a, .position = position, .n_tokens = 1, .finish = finish, .tokens = token};
    struct buf b;
    buf_init(&b, 4096);
    msg_section_put(&b, &s);
    msg_entry_put(&b, &entry);
    msg_section_patch(&b, 0, 1);
    channel_send(c, MSG_STEPS, b.data, b.len, NULL);
    buf_fini(&b);
}

static void serve(struct channel *c)
{
    struct buf b;
    buf_init(&b, RING_MAX_RECORD);
    for (;;) {
        uint16_t type;
        if (channel_recv(c, &type, &b, NULL) != 1) {
            channel_wait(c, 100000);
            continue;
        }
        struct msg_submit m;
        struct msg_cancel cancel;
        if (type == MSG_SUBMIT && msg_submit_get(&m, b.data, b.len, NULL) == 0)
            say_step(c, &m.attempt, m.start, m.max_tokens == 1 ? FINISH_LENGTH : FINISH_NONE);
        else if (type == MSG_CANCEL && msg_cancel_get(&cancel, b.data, b.len, NULL) == 0)
            say_step(c, &cancel.attempt, 1, FINISH_CANCELED);
    }
}

/* A shard that is ready once it has all that another one has to say, in order. */
static int listen_to_shards(void)
{
    struct channel *c;
    struct buf b;
    buf_init(&b, RING_MAX_RECORD);
    if (channel_attach(&c, CHANNEL_FD_SHARDS, NULL))
        return 97;
    for (uint64_t at = 0; at < (uint64_t)N_PIECES * PIECE_BYTES;) {
        uint16_t type;
        struct msg_shard m;
        if (channel_recv(c, &type, &b, NULL) != 1) {
            channel_wait(c, 100000);
            continue;
        }
        if (type != MSG_SHARD || msg_shard_get(&m, b.data, b.len, NULL) || m.at != at)
            return 96;
        at += m.n_bytes;
    }
    return 0;
}

static int play(const char *part)
{
    struct channel *c;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (channel_attach(&c, CHANNEL_FD_COMMANDS, NULL))
        return 98;
    if (strcmp(part, "dies") == 0) {
        struct msg_text t = {.code = ERR_SYS, .text = "no more of this"};
        struct buf b;
        buf_init(&b, 4096);
        msg_text_put(&b, &t);
        channel_send(c, MSG_ENGINE_FAILED, b.data, b.len, NULL);
        return 7;
    }
    while (strcmp(part, "loads") == 0)
        pause();
    if (strcmp(part, "listens") == 0) {
        int rc = listen_to_shards();
        if (rc)
            return rc;
    }
    say_ready(c);
    if (strcmp(part, "raves") == 0)
        channel_send(c, MSG_STEPS, "nonsense", 8, NULL);
    if (strcmp(part, "hangs") == 0)
        channel_status(c)->step_started_us = clock_now_us();
    serve(c);
    return 0;
}

/* --- the worker ------------------------------------------------------------------------------------------ */

struct note {
    struct attempt attempt;
    uint32_t position;
    uint8_t finish;
    char text[MSG_TEXT_BYTES];
};
struct fixture {
    uv_loop_t loop;
    struct replica *r;
    uint32_t n_changes, n_steps, n_notes;
    struct note notes[MAX_NOTES];
    uint32_t last_position;
};

static void on_steps(void *ctx, struct replica *r, const uint8_t *body, size_t n)
{
    struct fixture *f = ctx;
    struct rd rd = rd_make(body, n);
    struct step_section s;
    struct step_entry entry;
    assert_int_equal(msg_section_get(&rd, &s, NULL), 0);
    assert_int_equal(msg_entry_get(&rd, &entry, NULL), 0);
    f->last_position = entry.position;
    f->n_steps++;
}

static void on_changed(void *ctx, struct replica *r)
{
    ((struct fixture *)ctx)->n_changes++;
}

static void on_refuse(void *ctx, struct replica *r, const struct attempt *a, uint32_t position,
                      uint8_t finish, int code, const char *text)
{
    struct fixture *f = ctx;
    assert_true(f->n_notes < MAX_NOTES);
    struct note *note = &f->notes[f->n_notes++];
    *note = (struct note){.attempt = *a, .position = position, .finish = finish};
    snprintf(note->text, sizeof note->text, "%s", text);
}

static void on_tell(void *ctx, struct replica *r, uint32_t member, uint16_t type,
                    const struct buf *b)
{
    /* the others hear it */
}

static void begin_as(struct fixture *f, const char *part, const uint8_t *peers, uint32_t n_peers)
{
    struct err e = ERR_INIT;
    memset(f, 0, sizeof *f);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    struct replica_host host = {.ctx = f,
                                .loop = &f->loop,
                                .engine_path = "/proc/self/exe",
                                .load_timeout_us = LOAD_TIMEOUT_US,
                                .step_timeout_us = STEP_TIMEOUT_US,
                                .steps = on_steps,
                                .changed = on_changed,
                                .tell = on_tell,
                                .refuse = on_refuse};
    struct msg_assign a = {.deployment = 1,
                           .replica = 4,
                           .epoch = 3,
                           .shard = n_peers ? n_peers - 1 : 0,
                           .n_shards = n_peers ? n_peers : 1,
                           .n_slots = N_SLOTS,
                           .n_ctx = 64,
                           .n_peers = n_peers,
                           .peers = peers};
    snprintf(a.engine, sizeof a.engine, "%s", part);
    assert_int_equal(replica_create(&f->r, &host, &a, "/none", 1, &e), 0);
}

static void begin(struct fixture *f, const char *part)
{
    begin_as(f, part, NULL, 0);
}

static struct replica_load load(const struct fixture *f)
{
    struct replica_load l;
    replica_load(f->r, &l);
    return l;
}

/* Now and then with a clock that is ahead: tests do not sit through back-offs. */
#define AWAIT(f, ahead_us, condition)                                                              \
    do {                                                                                           \
        uint64_t until = clock_now_us() + PATIENCE_US;                                             \
        for (;;) {                                                                                 \
            uv_run(&(f)->loop, UV_RUN_NOWAIT);                                                     \
            if (condition)                                                                         \
                break;                                                                             \
            replica_tick((f)->r, clock_now_us() + (ahead_us));                                     \
            clock_sleep_us(500);                                                                   \
            assert_true(clock_now_us() < until);                                                   \
        }                                                                                          \
    } while (0)

/* Destroyed while it runs: every handle is closed, and the loop has nothing left. */
static void end(struct fixture *f)
{
    uint64_t until = clock_now_us() + PATIENCE_US;
    replica_destroy(f->r);
    while (uv_run(&f->loop, UV_RUN_NOWAIT))
        assert_true(clock_now_us() < until);
    assert_int_equal(uv_loop_close(&f->loop), 0);
}

static void submit(struct fixture *f, uint32_t slot, uint64_t epoch, uint32_t max_tokens)
{
    struct msg_submit m = {.attempt = {1, 2, slot, 7},
                           .deployment = 1,
                           .replica = 4,
                           .epoch = epoch,
                           .max_tokens = max_tokens,
                           .n_tokens = 1,
                           .tokens = (const uint8_t[4]){1}};
    struct buf b;
    buf_init(&b, 4096);
    msg_submit_put(&b, &m);
    replica_submit(f->r, &m, b.data, b.len);
    buf_fini(&b);
}

/* The clock goes on by so much, tick by tick. */
static void pass(struct fixture *f, uint64_t us)
{
    uint64_t from = clock_now_us();
    for (uint64_t t = 0; t <= us; t += 500000)
        replica_tick(f->r, from + t);
}

static void test_serves(void **state)
{
    struct fixture f;
    begin(&f, "good");
    assert_int_equal(load(&f).state, REPLICA_LOADING);
    submit(&f, 0, 3, 8);
    assert_string_equal(f.notes[0].text, "not ready");
    AWAIT(&f, 0, load(&f).state == REPLICA_READY);
    assert_int_equal(load(&f).n_slots, N_SLOTS);
    assert_int_equal(load(&f).incarnation, 1);
    submit(&f, 0, 2, 8);
    assert_string_equal(f.notes[1].text, "another epoch");
    assert_int_equal(f.notes[1].finish, FINISH_REFUSED);
    submit(&f, 0, 3, 8);
    submit(&f, 1, 3, 8);
    submit(&f, 2, 3, 8);
    assert_string_equal(f.notes[2].text, "no slot free");
    AWAIT(&f, 0, f.n_steps == 2);
    /* its router is gone: both are canceled, and their slots are free again */
    replica_router_lost(f.r, 1);
    AWAIT(&f, 0, f.n_steps == 4);
    submit(&f, 3, 3, 1);
    submit(&f, 4, 3, 1);
    AWAIT(&f, 0, f.n_steps == 6);
    assert_int_equal(f.n_notes, 3);
    end(&f);
}

static void test_death_is_told_and_mended(void **state)
{
    struct fixture f;
    begin(&f, "hangs");
    AWAIT(&f, 0, load(&f).state == REPLICA_READY);
    submit(&f, 5, 3, 8);
    AWAIT(&f, 0, f.n_steps == 1);
    replica_tick(f.r, clock_now_us() + STEP_TIMEOUT_US + SOON_US); /* as after a pause of all */
    for (int i = 0; i < 100; i++, clock_sleep_us(1000))
        uv_run(&f.loop, UV_RUN_NOWAIT);
    assert_int_equal(load(&f).state, REPLICA_READY);
    pass(&f, 2ull * STEP_TIMEOUT_US + 1000000);
    AWAIT(&f, 0, load(&f).state == REPLICA_FAILED);
    assert_int_equal(f.n_notes, 1);
    assert_int_equal(f.notes[0].finish, FINISH_ERROR);
    assert_int_equal(f.notes[0].position,
                     1); /* what the client has got: a replay would go on here */
    assert_int_equal(f.notes[0].attempt.slot, 5);
    assert_non_null(strstr(f.notes[0].text, "killed by signal 9"));
    uint64_t died_us = clock_now_us();
    replica_tick(f.r, died_us + 1000); /* not before the back-off */
    assert_int_equal(load(&f).state, REPLICA_FAILED);
    AWAIT(&f, REPLICA_BACKOFF_MS * 1000, load(&f).state == REPLICA_READY);
    assert_int_equal(load(&f).incarnation, 2);
    end(&f);
}

static void test_gives_up_with_last_words(void **state)
{
    struct fixture f;
    begin(&f, "dies");
    AWAIT(&f, REPLICA_BACKOFF_MAX_MS * 1000, load(&f).state == REPLICA_BROKEN);
    assert_int_equal(load(&f).incarnation, REPLICA_MAX_DEATHS);
    for (uint64_t until = clock_now_us() + SOON_US; clock_now_us() < until;) {
        replica_tick(f.r, clock_now_us() + 1000000000);
        uv_run(&f.loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(load(&f).state, REPLICA_BROKEN);
    end(&f);
}

/* Time passes, also for a restart that is due, and it is not started. */
static void stays_down(struct fixture *f, uint32_t incarnation)
{
    replica_hold(f->r, "its image is gone");
    assert_int_equal(load(f).state, REPLICA_FAILED);
    assert_string_equal(replica_trouble(f->r), "its image is gone");
    for (uint64_t until = clock_now_us() + SOON_US; clock_now_us() < until;) {
        replica_tick(f->r, clock_now_us() + 1000000000);
        uv_run(&f->loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(load(f).incarnation, incarnation);
    assert_int_equal(load(f).state, REPLICA_FAILED);
}

/* What it needs is being mended: no restart meanwhile, and then it starts afresh. */
static void test_held_until_released(void **state)
{
    struct fixture f;
    begin(&f, "dies");
    AWAIT(&f, 0, load(&f).state == REPLICA_FAILED);
    assert_non_null(strstr(replica_trouble(f.r), "ended with status 7: no more of this"));
    stays_down(&f, 1);
    replica_release(f.r);
    AWAIT(&f, 0, load(&f).incarnation == 2);
    end(&f);
    begin(&f, "dies");
    AWAIT(&f, REPLICA_BACKOFF_MAX_MS * 1000, load(&f).state == REPLICA_BROKEN);
    stays_down(&f, REPLICA_MAX_DEATHS);
    replica_release(f.r);
    AWAIT(&f, 0, load(&f).incarnation == REPLICA_MAX_DEATHS + 1);
    AWAIT(&f, 0, load(&f).state == REPLICA_FAILED); /* not BROKEN: it has its tries again */
    end(&f);
    begin(&f, "good");
    AWAIT(&f, 0, load(&f).state == REPLICA_READY);
    replica_hold(f.r, "its image is gone"); /* mapped: it runs on */
    assert_int_equal(load(&f).state, REPLICA_READY);
    replica_release(f.r);
    assert_int_equal(load(&f).incarnation, 1);
    end(&f);
}

static void test_nonsense_is_killed(void **state)
{
    struct fixture f;
    begin(&f, "raves");
    AWAIT(&f, 0, load(&f).state == REPLICA_FAILED);
    assert_int_equal(f.n_steps, 0);
    end(&f);
}

static void test_loads_too_long(void **state)
{
    struct fixture f;
    begin(&f, "loads");
    pass(&f, LOAD_TIMEOUT_US / 2);
    assert_string_equal(replica_trouble(f.r), "");
    pass(&f, LOAD_TIMEOUT_US + 1000000);
    AWAIT(&f, 0, load(&f).state == REPLICA_FAILED);
    assert_non_null(strstr(replica_trouble(f.r), "did not become ready in time"));
    end(&f);
}

static void test_no_such_program(void **state)
{
    struct fixture f;
    struct err e = ERR_INIT;
    memset(&f, 0, sizeof f);
    assert_int_equal(uv_loop_init(&f.loop), 0);
    struct replica_host host = {.ctx = &f,
                                .loop = &f.loop,
                                .engine_path = "/no/such/engine",
                                .load_timeout_us = LOAD_TIMEOUT_US,
                                .step_timeout_us = STEP_TIMEOUT_US,
                                .steps = on_steps,
                                .changed = on_changed,
                                .refuse = on_refuse};
    struct msg_assign a = {.replica = 4, .epoch = 3, .n_slots = 1};
    assert_int_equal(replica_create(&f.r, &host, &a, "/none", 1, &e), 0);
    assert_int_equal(load(&f).state, REPLICA_FAILED);
    AWAIT(&f, REPLICA_BACKOFF_MAX_MS * 1000, load(&f).state == REPLICA_BROKEN);
    end(&f);
}

static void test_destroyed_in_every_state(void **state)
{
    struct fixture f;
    begin(&f, "good"); /* at once, while the process starts */
    end(&f);
    begin(&f, "good");
    AWAIT(&f, 0, load(&f).state == REPLICA_READY);
    submit(&f, 0, 3, 8);
    end(&f);
    assert_int_equal(f.n_notes, 1); /* its attempt is not forgotten */
    begin(&f, "dies");
    AWAIT(&f, 0, load(&f).state == REPLICA_FAILED); /* handles of the dead one may be closing */
    end(&f);
    begin(&f, "good");
    AWAIT(&f, 0, load(&f).state == REPLICA_READY);
    replica_kill(f.r);
    AWAIT(&f, 0, replica_is_gone(f.r));
    end(&f);
}

/* Its leader's engine may speak as soon as it runs, faster than this one listens: nothing of it may be lost. */
static void test_a_shard_hears_all_from_the_start(void **state)
{
    static const uint8_t PEERS[8] = {10, 0, 0, 0, 11}, PIECE[PIECE_BYTES];
    const struct shard_name name = {1, 4, 3, 77};
    struct fixture f;
    struct buf b;
    begin_as(&f, "listens", PEERS, 2);
    assert_int_equal(load(&f).incarnation, 0); /* not before its leader says so */
    replica_gang_word(f.r, 10, &(struct msg_gang){.name = name, .word = GANG_START, .shard = 1});
    assert_int_equal(load(&f).state, REPLICA_LOADING);
    buf_init(&b, 2 * PIECE_BYTES);
    for (uint64_t i = 0; i < N_PIECES; i++) {
        struct msg_shard m = {
            .name = name, .to = 1, .at = i * PIECE_BYTES, .n_bytes = PIECE_BYTES, .bytes = PIECE};
        buf_reset(&b);
        msg_shard_put(&b, &m);
        replica_shard_bytes(f.r, 10, &m, b.data, b.len);
    }
    buf_fini(&b);
    AWAIT(&f, 0, load(&f).state == REPLICA_READY);
    assert_int_equal(load(&f).incarnation, 1);
    end(&f);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--stub") == 0)
        for (int i = 2; i + 1 < argc; i++)
            if (strcmp(argv[i], "--kind") == 0)
                _exit(play(argv[i + 1])); /* no leak check of a fake */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_serves),
        cmocka_unit_test(test_death_is_told_and_mended),
        cmocka_unit_test(test_gives_up_with_last_words),
        cmocka_unit_test(test_held_until_released),
        cmocka_unit_test(test_nonsense_is_killed),
        cmocka_unit_test(test_loads_too_long),
        cmocka_unit_test(test_no_such_program),
        cmocka_unit_test(test_destroyed_in_every_state),
        cmocka_unit_test(test_a_shard_hears_all_from_the_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
