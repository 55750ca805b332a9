/* engine_serving_test.c - an engine under many requests: the same text as alone in every mix, all blocks free at the end, nothing allocated by
 * a step, embeddings and log-probabilities of prompts.
 *
 * EXASERVE_SOAK_SECONDS: only the soak, for so long (`make soak`: ten minutes).
 */
#include "serving_support.h"

#include <math.h>

#include "engine/sampler.h"

enum { MAX_MIX = 16 };

static char tiny_path[4096], draft_path[4096];
static struct kind kinds[N_KINDS];

static int make_tiny(void **state)
{
    tiny_image(tiny_path, &(struct tiny){.type = TENSOR_Q8_0});
    tiny_image(draft_path, &(struct tiny){.type = TENSOR_Q4_1});
    kinds_make(kinds, N_KINDS, tiny_path, TINY_VOCAB);
    return 0;
}

static struct engine_config config(uint32_t n_slots)
{
    return (struct engine_config){.kind = "cpu",
                                  .image_path = tiny_path,
                                  .n_ctx = KIND_CTX,
                                  .n_slots = n_slots,
                                  .n_queue = 64};
}

enum { TINY_BLOCK = 4096 }; /* bytes of a KV block of the tiny model in F16 */

static void assert_all_free(struct engine *g)
{
    struct engine_info info;
    struct engine_load load;
    engine_info(g, &info);
    engine_load(g, &load);
    assert_int_equal(load.n_active, 0);
    assert_int_equal(load.kv_free_tokens, info.kv_total_tokens);
}

/* --- mixes ----------------------------------------------------------------------------------------------- */

static struct engine_config mix_config(uint32_t mix, uint32_t *random)
{
    struct engine_config c = config(1 + dice(random, 16));
    uint64_t n_blocks = 17 + dice(random, 40);
    c.chunk = 1 + dice(random, 64);
    c.n_threads = 1 + dice(random, 2);
    c.no_prefix_cache = mix & 1;
    c.speculation = (uint8_t)(mix / 2 % 3);
    c.max_drafts = 1 + dice(random, 15);
    c.kv_bytes = n_blocks * TINY_BLOCK;
    if (c.speculation == SPECULATE_DRAFT) {
        c.draft_path = dice(random, 2) ? draft_path : tiny_path;
        c.kv_bytes *= 2;
    }
    return c;
}

static struct engine_load one_mix(uint32_t mix)
{
    static struct job all[MAX_MIX];
    struct job *list[MAX_MIX];
    const struct kind *of[MAX_MIX];
    struct jobs jobs = {list, 0};
    uint32_t random = mix * 2654435761u + 7;
    struct engine_config c = mix_config(mix, &random);
    struct engine *g = engine_of(&c);
    struct engine_load load;
    struct err e = ERR_INIT;
    uint32_t n = 1 + dice(&random, MAX_MIX);
    do {
        while (jobs.n < n && dice(&random, 3)) {
            of[jobs.n] = &kinds[dice(&random, N_KINDS)];
            list[jobs.n] = &all[jobs.n];
            kind_job(&all[jobs.n], of[jobs.n], jobs.n);
            all[jobs.n].submit.priority = (uint8_t)(dice(&random, 3) * 100);
            all[jobs.n].submit.tenant = dice(&random, 2);
            MUST(engine_submit(g, &all[jobs.n].submit, clock_now_us(), &e), e);
            jobs.n++;
        }
    } while (jobs_step(g, &jobs) || jobs.n < n);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(all[i].finish, FINISH_LENGTH);
        assert_int_equal(all[i].n_out, of[i]->n_out);
        assert_says(&all[i], of[i], mix);
    }
    engine_load(g, &load);
    assert_all_free(g);
    engine_destroy(g);
    return load;
}

static void test_the_same_text_in_every_mix(void **state)
{
    uint32_t n = INSTRUMENTED ? 24 : 240;
    struct engine_load sum = {0};
    for (uint32_t i = 0; i < n; i++) {
        struct engine_load l = one_mix(i);
        sum.n_tokens += l.n_tokens;
        sum.n_preempted += l.n_preempted;
        sum.n_reused_tokens += l.n_reused_tokens;
        sum.n_drafted += l.n_drafted;
        sum.n_draft_held += l.n_draft_held;
    }
    print_message("%u mixes: %u tokens, %u reused, %u preemptions, %u of %u guesses held\n", n,
                  (unsigned)sum.n_tokens, (unsigned)sum.n_reused_tokens, (unsigned)sum.n_preempted,
                  (unsigned)sum.n_draft_held, (unsigned)sum.n_drafted);
    assert_true(sum.n_reused_tokens && sum.n_preempted &&
                sum.n_draft_held); /* all of it happened */
    assert_true(sum.n_draft_held < sum.n_drafted);
}

static void test_the_real_model_in_mixes(void **state)
{
    enum { N = 6 };
    if (INSTRUMENTED || !support_image())
        skip();
    static struct kind real[N];
    static struct job all[N];
    kinds_make(real, N, support_image(), 49152);
    for (uint32_t mix = 0; mix < 3; mix++) {
        struct job *list[N];
        struct jobs jobs = {list, N};
        struct err e = ERR_INIT;
        struct engine_config c = config(4);
        c.image_path = support_image();
        c.chunk = 20 + 17 * mix;
        c.n_threads = 2;
        c.no_prefix_cache = mix == 2;
        c.speculation = mix ? SPECULATE_LOOK_UP : SPECULATE_OFF;
        struct engine *g = engine_of(&c);
        for (uint32_t i = 0; i < N; i++) {
            list[i] = &all[i];
            kind_job(&all[i], &real[i], i);
            MUST(engine_submit(g, &all[i].submit, clock_now_us(), &e), e);
        }
        while (jobs_step(g, &jobs))
            ;
        for (uint32_t i = 0; i < N; i++) {
            assert_int_equal(all[i].n_out, real[i].n_out);
            assert_says(&all[i], &real[i], mix);
        }
        engine_destroy(g);
    }
}

/* --- soak ------------------------------------------------------------------------------------------------ */

struct soak {
    struct job all[40];
    const struct kind *of[40];
    uint32_t n_done, n_canceled, n_late, n_refused, random, next_generation;
};

static void soak_submit(struct soak *s, struct engine *g, uint32_t i, uint64_t now_us)
{
    struct err e = ERR_INIT;
    s->of[i] = &kinds[dice(&s->random, N_KINDS)];
    kind_job(&s->all[i], s->of[i], i);
    struct msg_submit *m = &s->all[i].submit;
    m->attempt.generation = ++s->next_generation;
    m->priority = (uint8_t)(dice(&s->random, 3) * 100);
    m->tenant = dice(&s->random, 3);
    if (!dice(&s->random, 8))
        m->total_ms = 1 + dice(&s->random, 40);
    int rc = engine_submit(g, m, now_us, &e);
    assert_true(rc == 0 || rc == ERR_AGAIN);
    if (rc) {
        s->all[i].finish = FINISH_REFUSED;
        s->n_refused++;
    }
}

static void soak_check(struct soak *s, uint32_t i)
{
    const struct job *j = &s->all[i];
    if (j->finish != FINISH_REFUSED)
        assert_says(j, s->of[i], i);
    s->n_done += j->finish == FINISH_LENGTH;
    s->n_canceled += j->finish == FINISH_CANCELED;
    s->n_late += j->finish == FINISH_DEADLINE;
}

/* More requests than slots and queue, blocks for two: cancels, deadlines, refusals, preemptions, and the same text all the while. */
static void test_soak_at_full_kv(void **state)
{
    enum { N = 40 };
    static struct soak s;
    struct job *list[N];
    struct jobs jobs = {list, N};
    struct engine_config c = config(8);
    struct engine_load load;
    const char *seconds = env_or("EXASERVE_SOAK_SECONDS", INSTRUMENTED ? "8" : "15");
    uint64_t until = clock_now_us() + 1000000ull * strtoull(seconds, NULL, 10);
    c.n_queue = 24;
    c.kv_bytes = 40 * TINY_BLOCK;
    c.chunk = 48;
    c.speculation = SPECULATE_LOOK_UP;
    struct engine *g = engine_of(&c);
    s = (struct soak){.random = 20261130};
    for (uint32_t i = 0; i < N; i++) {
        list[i] = &s.all[i];
        s.all[i].finish = FINISH_REFUSED; /* nothing there yet */
    }
    uint64_t now_us = 1000000; /* of its own: a millisecond a step */
    for (uint64_t n = 0; n % 64 || clock_now_us() < until; n++, now_us += 1000) {
        for (uint32_t i = 0; i < N; i++)
            if (s.all[i].finish != FINISH_NONE && !dice(&s.random, 4))
                soak_submit(&s, g, i, now_us);
        if (!dice(&s.random, 6))
            engine_cancel(g, &s.all[dice(&s.random, N)].submit.attempt);
        int before[N];
        for (uint32_t i = 0; i < N; i++)
            before[i] = s.all[i].finish;
        struct err e = ERR_INIT;
        if (engine_step(g, now_us, jobs_take, &jobs, &e) < 0)
            fail_msg("%s", e.text);
        for (uint32_t i = 0; i < N; i++)
            if (before[i] == FINISH_NONE && s.all[i].finish != FINISH_NONE)
                soak_check(&s, i);
    }
    while (jobs_step(g, &jobs))
        ;
    engine_load(g, &load);
    print_message("soak: %u whole, %u canceled, %u late, %u refused; %u steps, %u preemptions, "
                  "%u tokens reused, %u blocks evicted\n",
                  s.n_done, s.n_canceled, s.n_late, s.n_refused, (unsigned)load.n_steps,
                  (unsigned)load.n_preempted, (unsigned)load.n_reused_tokens,
                  (unsigned)load.n_evicted);
    assert_true(s.n_done && s.n_canceled && s.n_late && s.n_refused && load.n_preempted);
    assert_all_free(g);
    engine_destroy(g);
}

/* --- nothing is allocated by a step ---------------------------------------------------------------------- */

static volatile bool counting; /* volatile: a compiler knows that malloc looks at nothing of ours */
static volatile uint32_t n_allocations;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

void *malloc(size_t n)
{
    n_allocations += counting;
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    n_allocations += counting;
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    n_allocations += counting;
    return __libc_realloc(p, n);
}
#endif

static void test_a_step_allocates_nothing(void **state)
{
    if (INSTRUMENTED)
        skip(); /* sanitizers have their own malloc */
    void *volatile p;
    counting = true;
    p = malloc(1);
    counting = false;
    free(p);
    assert_int_equal(n_allocations, 1); /* it does count */
    for (uint32_t mix = 1; mix < 6; mix++) {
        static struct job all[12];
        struct job *list[12];
        struct jobs jobs = {list, 12};
        struct err e = ERR_INIT;
        uint32_t random = mix;
        struct engine_config c = mix_config(mix, &random);
        c.n_slots = 6;
        struct engine *g = engine_of(&c);
        for (uint32_t i = 0; i < 12; i++) {
            list[i] = &all[i];
            kind_job(&all[i], &kinds[i], i);
            all[i].submit.sampling.want_logprobs = i & 1;
            all[i].submit.sampling.want_prompt_logprobs = i & 2;
            MUST(engine_submit(g, &all[i].submit, 0, &e), e);
        }
        n_allocations = 0;
        for (int active = 1; active;) {
            counting = true;
            active = engine_step(g, 0, jobs_take, &jobs, &e);
            counting = false;
        }
        assert_int_equal(n_allocations, 0);
        engine_destroy(g);
    }
}

/* --- embeddings ------------------------------------------------------------------------------------------ */

struct vectors {
    uint32_t n;
    float v[MAX_MIX][TINY_EMBD];
    int finish[MAX_MIX];
};

static void take_vector(void *ctx, const struct step_result *r)
{
    struct vectors *v = ctx;
    uint32_t i = r->attempt.slot;
    if (r->error)
        fail_msg("%s", r->error->text);
    if (r->finish == FINISH_NONE)
        return;
    v->finish[i] = r->finish;
    if (r->n_embedding) {
        assert_int_equal(r->n_embedding, TINY_EMBD);
        assert_int_equal(r->n_tokens, 0);
        memcpy(v->v[i], r->embedding, sizeof v->v[i]);
        v->n++;
    }
}

static void embed_all(struct vectors *v, const char *path, uint32_t chunk, uint32_t n_slots)
{
    struct engine_config c = config(n_slots);
    struct err e = ERR_INIT;
    c.image_path = path;
    c.chunk = chunk;
    struct engine *g = engine_of(&c);
    memset(v, 0, sizeof *v);
    for (uint32_t i = 0; i < MAX_MIX; i++) {
        static struct job j;
        kind_job(&j, &kinds[i], i);
        j.submit.kind = SUBMIT_EMBED;
        j.submit.sampling.want_prompt_logprobs = i % 2; /* there are no logits to have them from */
        MUST(engine_submit(g, &j.submit, 0, &e), e);
    }
    int active = 1;
    while (active > 0)
        active = engine_step(g, 0, take_vector, v, &e);
    assert_int_equal(active, 0);
    assert_all_free(g);
    engine_destroy(g);
}

static void test_embeddings(void **state)
{
    static const uint8_t POOLINGS[] = {POOLING_LAST, POOLING_MEAN};
    for (size_t p = 0; p < 2; p++) {
        char path[4096];
        static struct vectors a, b, c;
        tiny_image(path, &(struct tiny){.type = TENSOR_Q8_0, .pooling = POOLINGS[p]});
        embed_all(&a, path, 256, 1);
        embed_all(&b, path, 7, 5);
        embed_all(&c, path, 33, 16);
        assert_int_equal(a.n, MAX_MIX);
        assert_int_equal(c.n, MAX_MIX);
        for (uint32_t i = 0; i < MAX_MIX; i++) {
            double sum = 0;
            for (uint32_t k = 0; k < TINY_EMBD; k++)
                sum += (double)a.v[i][k] * a.v[i][k];
            assert_true(fabs(sum - 1) < 1e-5);
            assert_int_equal(a.finish[i], FINISH_STOP);
            assert_memory_equal(a.v[i], b.v[i], sizeof a.v[i]);
            assert_memory_equal(a.v[i], c.v[i], sizeof a.v[i]);
        }
        assert_memory_not_equal(a.v[0], a.v[1], sizeof a.v[0]);
    }
}

static void refuse_kind(const char *path, uint8_t kind, const char *expect)
{
    struct engine_config c = config(1);
    struct err e = ERR_INIT;
    static struct job j;
    c.image_path = path;
    struct engine *g = engine_of(&c);
    kind_job(&j, &kinds[0], 0);
    j.submit.kind = kind;
    assert_int_equal(engine_submit(g, &j.submit, 0, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, expect));
    assert_all_free(g);
    engine_destroy(g);
}

static void test_a_model_writes_or_makes_vectors(void **state)
{
    char path[4096];
    tiny_image(path, &(struct tiny){.type = TENSOR_Q8_0, .pooling = POOLING_LAST});
    refuse_kind(tiny_path, SUBMIT_EMBED, "no pooling");
    refuse_kind(path, SUBMIT_GENERATE, "writes no text");
    refuse_kind(tiny_path, 7, "kind 7");
}

/* --- log-probabilities of prompts ------------------------------------------------------------------------ */

struct scores {
    uint32_t n[MAX_MIX], n_tokens[MAX_MIX];
    float logprob[MAX_MIX][KIND_CTX];
    int finish[MAX_MIX];
};

static void take_scores(void *ctx, const struct step_result *r)
{
    struct scores *s = ctx;
    uint32_t i = r->attempt.slot;
    if (r->n_prompt_drawn) {
        assert_int_equal(r->prompt_first, s->n[i] + 1); /* in order, without a gap, once */
        assert_int_equal(s->n_tokens[i], 0);            /* and before the first token */
        for (uint32_t k = 0; k < r->n_prompt_drawn; k++) {
            assert_true(r->prompt_drawn[k].logprob <= 0);
            s->logprob[i][s->n[i]++] = r->prompt_drawn[k].logprob;
        }
    }
    if (r->n_tokens && kinds[i].sampling.want_logprobs)
        assert_non_null(r->drawn);
    s->n_tokens[i] += r->n_tokens;
    if (r->finish)
        s->finish[i] = r->finish;
}

static void score_all(struct scores *s, struct engine_config c, uint32_t max_tokens)
{
    struct err e = ERR_INIT;
    struct engine *g = engine_of(&c);
    memset(s, 0, sizeof *s);
    for (uint32_t i = 0; i < MAX_MIX; i++) {
        static struct job j;
        kind_job(&j, &kinds[i], i);
        j.submit.sampling.want_prompt_logprobs = true;
        if (!max_tokens)
            j.submit.max_tokens = 0;
        MUST(engine_submit(g, &j.submit, 0, &e), e);
    }
    int active = 1;
    while (active > 0)
        active = engine_step(g, 0, take_scores, s, &e);
    assert_int_equal(active, 0);
    for (uint32_t i = 0; i < MAX_MIX; i++) {
        assert_int_equal(s->finish[i], FINISH_LENGTH);
        assert_int_equal(s->n[i], kinds[i].n_prompt - 1);
        assert_int_equal(s->n_tokens[i], max_tokens ? kinds[i].n_out : 0);
    }
    assert_all_free(g);
    engine_destroy(g);
}

static void test_prompt_logprobs(void **state)
{
    static struct scores a, b;
    struct engine_config c = config(1);
    c.no_prefix_cache = true;
    score_all(&a, c, 1);
    c = config(6);
    c.chunk = 50;
    c.kv_bytes = 30 * TINY_BLOCK; /* some are preempted on the way */
    c.speculation = SPECULATE_LOOK_UP;
    score_all(&b, c, 1);
    assert_memory_equal(a.logprob, b.logprob, sizeof a.logprob);
    score_all(&b, c, 0); /* the prompt alone */
    assert_memory_equal(a.logprob, b.logprob, sizeof a.logprob);
}

/* --- bad numbers ----------------------------------------------------------------------------------------- */

static void test_bad_numbers_stay_out_of_the_cache(void **state)
{
    char path[4096];
    tiny_image(path, &(struct tiny){.type = TENSOR_Q8_0, .poison = "blk.1.attn_norm.weight"});
    struct engine_config c = config(2);
    c.image_path = path;
    struct engine *g = engine_of(&c);
    struct engine_load load;
    static struct job j;
    struct job *list[] = {&j};
    struct jobs jobs = {list, 1};
    struct err e = ERR_INIT;
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t prompt[100] = {1, 2, 3};
        job_init(&j, i, prompt, 100, 4);
        MUST(engine_submit(g, &j.submit, 0, &e), e);
        while (jobs_step(g, &jobs))
            ;
        assert_int_equal(j.finish, FINISH_ERROR);
        assert_non_null(strstr(j.error.text, "layer 1 of 2"));
    }
    engine_load(g, &load);
    assert_int_equal(load.n_reused_tokens, 0);
    assert_int_equal(load.n_prefill_rows, 300);
    assert_all_free(g);
    engine_destroy(g);
}

/* --- configurations -------------------------------------------------------------------------------------- */

static void test_settings_are_refused_by_name(void **state)
{
    static const struct {
        struct engine_config c;
        const char *expect;
    } CASES[] = {
        {{.n_queue = 5000}, "queue: 5000"},
        {{.kv_type = 9}, "KV format 9"},
        {{.memory_permille = 1001}, "1001 permille"},
        {{.speculation = 7}, "speculation 7"},
        {{.speculation = SPECULATE_DRAFT}, "none is named"},
        {{.draft_path = "x"}, "does not use one"},
        {{.max_drafts = 16, .speculation = SPECULATE_LOOK_UP}, "drafts: 16"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct engine_config c = CASES[i].c;
        struct engine *g;
        struct err e = ERR_INIT;
        c.kind = "cpu";
        c.image_path = tiny_path;
        c.n_slots = 1;
        assert_int_equal(engine_create(&g, &c, &e), ERR_CONFIG);
        if (!strstr(e.text, CASES[i].expect))
            fail_msg("\"%s\" does not say %s", e.text, CASES[i].expect);
    }
}

static void test_step_times_are_counted(void **state)
{
    struct engine_load load = {.step_times = {[2] = 90, [5] = 9, [9] = 1}};
    assert_int_equal(engine_step_quantile_us(&load, 500), 256);
    assert_int_equal(engine_step_quantile_us(&load, 990), 2048);
    assert_int_equal(engine_step_quantile_us(&load, 1000), 32768);
    load = (struct engine_load){0};
    assert_int_equal(engine_step_quantile_us(&load, 500), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_text_in_every_mix),
        cmocka_unit_test(test_the_real_model_in_mixes),
        cmocka_unit_test(test_soak_at_full_kv),
        cmocka_unit_test(test_a_step_allocates_nothing),
        cmocka_unit_test(test_embeddings),
        cmocka_unit_test(test_a_model_writes_or_makes_vectors),
        cmocka_unit_test(test_prompt_logprobs),
        cmocka_unit_test(test_bad_numbers_stay_out_of_the_cache),
        cmocka_unit_test(test_settings_are_refused_by_name),
        cmocka_unit_test(test_step_times_are_counted),
    };
    if (getenv("EXASERVE_SOAK_SECONDS"))
        cmocka_set_test_filter("test_soak*");
    return cmocka_run_group_tests_name("engine_serving", tests, make_tiny, NULL);
}
