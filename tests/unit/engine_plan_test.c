/* engine_plan_test.c - what steps are made of, with a simulated model (batch_sim.h): shares, priorities, tenants, waiting, giving way, reuse. */
#include "batch_sim.h"

enum { VOCAB = 50, MAX_JOBS = 64 };

static struct batch_config config(uint32_t n_slots, uint32_t n_ctx, uint32_t n_blocks)
{
    return (struct batch_config){
        .n_slots = n_slots,
        .n_queue = 32,
        .n_ctx = n_ctx,
        .n_vocab = VOCAB,
        .chunk = 32,
        .n_blocks = n_blocks,
        .max_out = n_slots + 32,
        .prefix_cache = true,
    };
}

struct sim_job {
    uint32_t n_out, finish, out[2048], last_step, longest_gap;
};
struct log {
    struct sim_job jobs[MAX_JOBS];
    uint32_t step;
};

static void took(void *ctx, const struct attempt *a, const uint32_t *tokens, uint32_t n, int finish)
{
    struct log *l = ctx;
    struct sim_job *j = &l->jobs[a->slot];
    assert_int_equal(j->finish, FINISH_NONE);
    if (n && j->n_out && l->step - j->last_step > j->longest_gap)
        j->longest_gap = l->step - j->last_step;
    if (n)
        j->last_step = l->step;
    for (uint32_t i = 0; i < n; i++)
        j->out[j->n_out++] = tokens[i];
    j->finish = (uint32_t)finish;
}

static struct log logged;

static void begin(struct sim *s, const struct batch_config *c)
{
    sim_init(s, c);
    memset(&logged, 0, sizeof logged);
    s->took = took;
    s->ctx = &logged;
}

static int put(struct sim *s, uint32_t slot, uint32_t tenant, uint8_t priority,
               const uint32_t *tokens, uint32_t n, uint32_t max_tokens, struct err *e)
{
    struct request *r;
    struct msg_submit m = {
        .attempt = {1, 1, slot, 1},
        .priority = priority,
        .tenant = tenant,
        .max_tokens = max_tokens,
        .ignore_eos = true,
        .n_tokens = n,
        .tokens = (const uint8_t *)tokens,
    };
    memset(&logged.jobs[slot], 0, sizeof logged.jobs[slot]);
    return batch_submit(&s->b, &m, s->now_us, &r, e);
}

static void must_put(struct sim *s, uint32_t slot, uint32_t tenant, uint8_t priority,
                     const uint32_t *tokens, uint32_t n, uint32_t max_tokens)
{
    struct err e = ERR_INIT;
    MUST(put(s, slot, tenant, priority, tokens, n, max_tokens, &e), e);
}

static uint32_t step(struct sim *s)
{
    logged.step++;
    return sim_step(s);
}

static void run_out(struct sim *s, uint32_t most)
{
    while (step(s))
        assert_true(logged.step < most);
}

static void assert_all_free(const struct sim *s)
{
    assert_int_equal(kv_available(s->b.kv), s->b.c.n_blocks);
}

static void text(uint32_t *tokens, uint32_t n, uint32_t salt)
{
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (i * 31 + i * i * 7 + salt * 17) % VOCAB;
}

static void assert_as_alone(uint32_t slot, const uint32_t *prompt, uint32_t n)
{
    static uint32_t want[2048];
    const struct sim_job *j = &logged.jobs[slot];
    sim_alone(want, j->n_out, prompt, n, VOCAB);
    assert_memory_equal(j->out, want, j->n_out * sizeof *want);
}

/* --- shares ---------------------------------------------------------------------------------------------- */

/* Streams get a token in every step, whatever long prompts come; and prompts get on beside many streams. */
static void test_streams_never_wait_for_prompts(void **state)
{
    struct sim s;
    struct batch_config c = config(16, 1024, 16 * 65);
    uint32_t tokens[1024];
    begin(&s, &c);
    for (uint32_t i = 0; i < 12; i++) {
        text(tokens, 20, i);
        must_put(&s, i, i % 3, 128, tokens, 20, 300);
    }
    for (uint32_t i = 0; i < 12; i++)
        step(&s);
    for (uint32_t i = 12; i < 16; i++) {
        text(tokens, 900, i);
        must_put(&s, i, i % 2, (uint8_t)(100 + 20 * i), tokens, 900, 20);
    }
    for (uint32_t i = 0; i < 400 && step(&s); i++)
        assert_true(s.n_prefill + s.n_decode <= 16 + 32);
    for (uint32_t i = 0; i < 12; i++) {
        assert_int_equal(logged.jobs[i].finish, FINISH_LENGTH);
        assert_int_equal(logged.jobs[i].longest_gap, 1);
    }
    for (uint32_t i = 12; i < 16; i++)
        assert_int_equal(logged.jobs[i].finish, FINISH_LENGTH);
    assert_all_free(&s);
    sim_fini(&s);
}

static void test_a_quarter_is_the_prompts(void **state)
{
    struct sim s;
    struct batch_config c = config(40, 256, 2000);
    uint32_t tokens[256];
    begin(&s, &c);
    for (uint32_t i = 0; i < 32; i++) {
        text(tokens, 2, i);
        must_put(&s, i, 0, 128, tokens, 2, 200);
    }
    for (uint32_t i = 0; i < 8; i++)
        step(&s);
    assert_int_equal(s.n_decode, 32);
    text(tokens, 200, 77);
    must_put(&s, 40, 0, 128, tokens, 200, 2);
    step(&s);
    assert_int_equal(s.n_decode, 32); /* the whole budget */
    assert_int_equal(s.n_prefill, 8);
    sim_fini(&s);
}

static void test_priority_goes_first(void **state)
{
    struct sim s;
    struct batch_config c = config(4, 512, 200);
    uint32_t tokens[512];
    begin(&s, &c);
    text(tokens, 400, 1);
    must_put(&s, 0, 0, 100, tokens, 400, 2);
    step(&s);
    text(tokens, 320, 2);
    must_put(&s, 1, 0, 200, tokens, 320, 2);
    for (uint32_t i = 0; i < 10; i++)
        step(&s);
    assert_int_equal(logged.jobs[1].n_out, 1); /* 320 rows in ten steps of 32 */
    assert_int_equal(logged.jobs[0].n_out, 0);
    run_out(&s, 100);
    sim_fini(&s);
}

/* A tenant with one request at a time beside one with many: both are served alike. */
static void test_tenants_share(void **state)
{
    struct sim s;
    struct batch_config c = config(16, 512, 16 * 33);
    static uint32_t tokens[512];
    uint64_t served[2] = {0, 0};
    begin(&s, &c);
    c.n_queue = 32;
    uint32_t next = 100, one = UINT32_MAX;
    for (uint32_t i = 0; i < 600; i++) {
        for (uint32_t k = 0; k < 30; k++) /* the greedy one keeps 30 requests there */
            if (!logged.jobs[k].n_out || logged.jobs[k].finish) {
                struct attempt a = {1, 1, k, 1};
                if (!batch_find(&s.b, &a)) {
                    text(tokens, 200, next++);
                    must_put(&s, k, 1, 128, tokens, 200, 4);
                }
            }
        if (one == UINT32_MAX || logged.jobs[one].finish) {
            one = 40;
            text(tokens, 200, next++);
            must_put(&s, one, 2, 128, tokens, 200, 4);
        }
        step(&s);
        for (uint32_t r = 0; r < s.b.n_rows; r++) {
            uint32_t tenant = s.b.tenants[s.b.requests[s.b.rows[r].seq].tenant].id;
            served[tenant == 2]++;
        }
    }
    print_message("rows served: %u to 30 requests of one tenant, %u to one of another\n",
                  (unsigned)served[0], (unsigned)served[1]);
    /* half, less the steps in which its one request decodes: with one queue for all it would be a 31st */
    assert_true(served[1] * 3 >= served[0] + served[1]);
    sim_fini(&s);
}

/* --- waiting and giving way ------------------------------------------------------------------------------ */

static void test_the_queue_has_a_bound(void **state)
{
    struct sim s;
    struct batch_config c = config(2, 64, 100);
    struct err e = ERR_INIT;
    uint32_t tokens[16];
    c.n_queue = 3;
    begin(&s, &c);
    for (uint32_t i = 0; i < 5; i++) {
        text(tokens, 16, i);
        must_put(&s, i, 0, 128, tokens, 16, 5);
    }
    assert_int_equal(put(&s, 5, 0, 128, tokens, 16, 5, &e), ERR_AGAIN);
    assert_non_null(strstr(e.text, "2 request slots"));
    assert_non_null(strstr(e.text, "3 more"));
    step(&s);
    assert_int_equal(batch_waiting(&s.b), 3);
    run_out(&s, 100);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(logged.jobs[i].n_out, 5);
    sim_fini(&s);
}

/* Blocks for little more than one whole request: everybody gets on in turn, ends, and says what it would have said alone. */
static void test_full_kv_ends(void **state)
{
    enum { N = 12 };
    for (uint32_t spare = 0; spare < 12; spare++) {
        struct sim s;
        struct batch_config c = config(8, 128, 9 + spare);
        uint32_t tokens[N][128], n[N];
        begin(&s, &c);
        assert_int_equal(batch_min_blocks(128), 9);
        for (uint32_t i = 0; i < N; i++) {
            n[i] = 5 + i * 7 % 40;
            text(tokens[i], n[i], i);
            must_put(&s, i, 0, (uint8_t)(128 + i % 3), tokens[i], n[i], 128 - n[i]);
        }
        run_out(&s, 4000);
        for (uint32_t i = 0; i < N; i++) {
            assert_int_equal(logged.jobs[i].finish, FINISH_LENGTH);
            assert_int_equal(logged.jobs[i].n_out, 128 - n[i]);
            assert_as_alone(i, tokens[i], n[i]);
        }
        if (spare > 2 && spare < 8)
            assert_true(s.b.stats.n_preempted > 0);
        assert_all_free(&s);
        sim_fini(&s);
    }
}

static void test_the_lowest_and_youngest_give_way(void **state)
{
    struct sim s;
    struct batch_config c = config(4, 128, 16);
    uint32_t tokens[128];
    begin(&s, &c);
    static const uint8_t PRIORITY[] = {128, 200, 128, 128};
    for (uint32_t i = 0; i < 4; i++) { /* four of two blocks each, then they grow */
        text(tokens, 17, i);
        must_put(&s, i, 0, PRIORITY[i], tokens, 17, 95);
    }
    uint32_t order[4], n_gone = 0;
    bool gone[4] = {false};
    while (n_gone < 2 && logged.step < 500) {
        step(&s);
        for (uint32_t i = 0; i < s.b.n_entries; i++)
            if (s.b.requests[i].state == REQUEST_WAITING && s.b.requests[i].n_drawn &&
                !gone[s.b.requests[i].attempt.slot]) {
                gone[s.b.requests[i].attempt.slot] = true;
                order[n_gone++] = s.b.requests[i].attempt.slot;
            }
    }
    assert_int_equal(n_gone, 2);
    assert_int_equal(order[0], 3);
    assert_int_equal(order[1], 2);
    run_out(&s, 2000);
    assert_int_equal(logged.jobs[1].longest_gap, 1); /* the high one was never disturbed */
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(logged.jobs[i].n_out, 95);
    sim_fini(&s);
}

/* A newcomer of high priority does not wait for blocks that lower ones hold. */
static void test_high_priority_gets_in(void **state)
{
    struct sim s;
    struct batch_config c = config(4, 128, 12);
    uint32_t tokens[128];
    begin(&s, &c);
    for (uint32_t i = 0; i < 3; i++) {
        text(tokens, 50, i);
        must_put(&s, i, 0, 10, tokens, 50, 60);
    }
    for (uint32_t i = 0; i < 8; i++)
        step(&s);
    text(tokens, 60, 9);
    must_put(&s, 9, 0, 200, tokens, 60, 60);
    for (uint32_t i = 0; i < 3; i++)
        step(&s);
    assert_true(logged.jobs[9].n_out >= 1);
    run_out(&s, 2000);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(logged.jobs[i].n_out, 60);
    sim_fini(&s);
}

/* --- reuse ----------------------------------------------------------------------------------------------- */

static void test_a_cached_prefix_is_not_computed_again(void **state)
{
    struct sim s;
    struct batch_config c = config(4, 2048, 400);
    static uint32_t tokens[2048];
    begin(&s, &c);
    text(tokens, 1000, 1);
    must_put(&s, 0, 0, 128, tokens, 1000, 1);
    run_out(&s, 100);
    uint64_t first = s.b.stats.n_prefill_rows;
    assert_int_equal(first, 1000);
    text(tokens + 1000, 3, 2);
    must_put(&s, 1, 0, 128, tokens, 1003, 4);
    run_out(&s, 200);
    uint64_t second = s.b.stats.n_prefill_rows - first;
    print_message("rows of a prompt: %u, of one with its first 1000 tokens cached: %u\n",
                  (unsigned)first, (unsigned)second);
    assert_true(second * 20 <= first);
    assert_as_alone(1, tokens, 1003);
    must_put(&s, 2, 5, 128, tokens, 1003, 4); /* another tenant has nothing of it */
    uint64_t before = s.b.stats.n_prefill_rows;
    run_out(&s, 300);
    assert_int_equal(s.b.stats.n_prefill_rows - before, 1003);
    /* the very same prompt, a multiple of a block: all but its last token */
    must_put(&s, 3, 0, 128, tokens, 992, 4);
    before = s.b.stats.n_prefill_rows;
    run_out(&s, 400);
    assert_true(s.b.stats.n_prefill_rows - before <= 1);
    assert_as_alone(3, tokens, 992);
    assert_all_free(&s);
    sim_fini(&s);
}

/* n choices of one prompt at once: it is computed once, the others wait, and share even its last, half full block. */
static void test_choices_share_their_prompt(void **state)
{
    struct sim s;
    struct batch_config c = config(8, 1024, 400);
    uint32_t tokens[1024];
    begin(&s, &c);
    text(tokens, 500, 1);
    for (uint32_t i = 0; i < 6; i++)
        must_put(&s, i, 0, 128, tokens, 500, 30);
    for (uint32_t i = 0; i < 24; i++)
        step(&s);
    uint32_t held = s.b.c.n_blocks - kv_available(s.b.kv);
    assert_true(held <= 31 + 6 * 2); /* 31 full blocks once, and their own ends */
    run_out(&s, 100);
    assert_true(s.b.stats.n_prefill_rows + s.b.stats.n_decode_rows <= 500 + 6 * 30);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(logged.jobs[i].n_out, 30);
        assert_as_alone(i, tokens, 500);
    }
    assert_all_free(&s);
    sim_fini(&s);
}

static void test_who_waits_for_a_sibling_outlives_it(void **state)
{
    struct sim s;
    struct batch_config c = config(8, 1024, 400);
    uint32_t tokens[1024];
    begin(&s, &c);
    text(tokens, 600, 1);
    for (uint32_t i = 0; i < 3; i++)
        must_put(&s, i, 0, 128, tokens, 600, 3);
    for (uint32_t i = 0; i < 5; i++)
        step(&s);
    batch_cancel(&s.b, &(struct attempt){1, 1, 0, 1});
    run_out(&s, 100);
    assert_int_equal(logged.jobs[0].finish, FINISH_CANCELED);
    for (uint32_t i = 1; i < 3; i++) {
        assert_int_equal(logged.jobs[i].finish, FINISH_LENGTH);
        assert_as_alone(i, tokens, 600);
    }
    assert_true(s.b.stats.n_prefill_rows < 700); /* what was done is found again */
    sim_fini(&s);
}

/* --- speculation ----------------------------------------------------------------------------------------- */

static void test_look_up_finds_repetitions(void **state)
{
    static const uint32_t TEXT[] = {1, 2, 3, 4, 5, 6, 7, 1, 2, 9, 9, 3, 4, 5};
    uint32_t guess[SPEC_MAX];
    assert_int_equal(spec_look_up(guess, 3, TEXT, 14), 3);
    assert_int_equal(guess[0], 6);
    assert_int_equal(guess[1], 7);
    assert_int_equal(guess[2], 1);
    static const uint32_t ODD[] = {1, 2, 3, 4, 5, 6};
    assert_int_equal(spec_look_up(guess, 3, ODD, 6), 0);
    assert_int_equal(spec_look_up(guess, 3, ODD, 1), 0);
    static const uint32_t LOOP[] = {8, 1, 2, 1, 2, 1, 2};
    assert_int_equal(spec_look_up(guess, 5, LOOP, 7), 5);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(guess[i], 1 + i % 2);
}

static void test_guesses_adapt(void **state)
{
    struct spec s;
    spec_init(&s, 12);
    uint32_t n = 0;
    for (uint32_t i = 0; i < 4; i++) {
        n = spec_wish(&s);
        spec_learn(&s, n, n);
    }
    assert_int_equal(n, 12);
    spec_learn(&s, 12, 2);
    assert_int_equal(spec_wish(&s), 3);
    for (uint32_t i = 0; i < 3; i++)
        spec_learn(&s, spec_wish(&s), 0);
    for (uint32_t i = 0; i < SPEC_PAUSE_FIRST; i++)
        assert_int_equal(spec_wish(&s), 0);
    assert_int_equal(spec_wish(&s), 1);
}

static void test_speculation_brings_several_tokens_a_step(void **state)
{
    struct sim s;
    struct batch_config c = config(2, 1024, 140);
    uint32_t tokens[64];
    c.max_drafts = 7;
    c.look_up = true;
    begin(&s, &c);
    for (uint32_t i = 0; i < 64; i++)
        tokens[i] = i % 5;
    must_put(&s, 0, 0, 128, tokens, 64, 600);
    run_out(&s, 700);
    print_message("600 tokens in %u steps, %u of %u guesses held\n", logged.step,
                  (unsigned)s.b.stats.n_accepted, (unsigned)s.b.stats.n_draft_rows);
    assert_int_equal(logged.jobs[0].n_out, 600);
    assert_as_alone(0, tokens, 64);
    assert_true(s.b.stats.n_accepted > 200 && logged.step < 400);
    sim_fini(&s);
}

/* --- random mixes ---------------------------------------------------------------------------------------- */

static uint32_t dice(uint32_t *state, uint32_t n)
{
    return (tiny_random(state) >> 6) % n;
}

struct mix {
    uint32_t tokens[MAX_JOBS][160], n[MAX_JOBS], max[MAX_JOBS];
};

/* A prompt out of a few beginnings, so that prefixes are common, at all kinds of lengths. */
static void mix_prompt(struct mix *m, uint32_t i, uint32_t n_ctx, uint32_t *random)
{
    uint32_t salt = dice(random, 3), n = 1 + dice(random, n_ctx - 2), common = dice(random, n + 1);
    text(m->tokens[i], common, salt);
    for (uint32_t k = common; k < n; k++)
        m->tokens[i][k] = dice(random, VOCAB);
    m->n[i] = n;
    m->max[i] = 1 + dice(random, n_ctx - n);
}

static void one_mix(uint32_t seed)
{
    static struct mix m;
    uint32_t random = seed * 2654435761u + 1, n_ctx = 160;
    struct sim s;
    struct batch_config c = config(1 + dice(&random, 16), n_ctx, 11 + dice(&random, 60));
    c.chunk = 1 + dice(&random, 48);
    c.prefix_cache = dice(&random, 4) > 0;
    c.look_up = dice(&random, 2);
    c.max_drafts = c.look_up ? 1 + dice(&random, SPEC_MAX) : 0;
    c.n_queue = MAX_JOBS;
    begin(&s, &c);
    uint32_t n_jobs = 1 + dice(&random, 16), n_put = 0;
    while (n_put < n_jobs || batch_active(&s.b)) {
        while (n_put < n_jobs && dice(&random, 3)) {
            mix_prompt(&m, n_put, n_ctx, &random);
            must_put(&s, n_put, dice(&random, 3), (uint8_t)(dice(&random, 3) * 100),
                     m.tokens[n_put], m.n[n_put], m.max[n_put]);
            n_put++;
        }
        if (n_put && !dice(&random, 40))
            batch_cancel(&s.b, &(struct attempt){1, 1, dice(&random, n_put), 1});
        step(&s);
        assert_true(logged.step < 100000);
    }
    for (uint32_t i = 0; i < n_jobs; i++) {
        assert_int_not_equal(logged.jobs[i].finish, FINISH_NONE);
        if (logged.jobs[i].finish == FINISH_LENGTH)
            assert_int_equal(logged.jobs[i].n_out, m.max[i]);
        assert_as_alone(i, m.tokens[i], m.n[i]);
    }
    assert_all_free(&s);
    sim_fini(&s);
}

static void test_random_mixes(void **state)
{
    uint32_t n = INSTRUMENTED ? 100 : 1500;
    for (uint32_t i = 0; i < n; i++)
        one_mix(i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams_never_wait_for_prompts),
        cmocka_unit_test(test_a_quarter_is_the_prompts),
        cmocka_unit_test(test_priority_goes_first),
        cmocka_unit_test(test_tenants_share),
        cmocka_unit_test(test_the_queue_has_a_bound),
        cmocka_unit_test(test_full_kv_ends),
        cmocka_unit_test(test_the_lowest_and_youngest_give_way),
        cmocka_unit_test(test_high_priority_gets_in),
        cmocka_unit_test(test_a_cached_prefix_is_not_computed_again),
        cmocka_unit_test(test_choices_share_their_prompt),
        cmocka_unit_test(test_who_waits_for_a_sibling_outlives_it),
        cmocka_unit_test(test_look_up_finds_repetitions),
        cmocka_unit_test(test_guesses_adapt),
        cmocka_unit_test(test_speculation_brings_several_tokens_a_step),
        cmocka_unit_test(test_random_mixes),
    };
    return cmocka_run_group_tests_name("engine_plan", tests, NULL, NULL);
}
