/* engine_invariance_test.c - a request's tokens and logits are the same bits whatever surrounds it.
 *
 * One request is run alone, one thread, default chunk; then again in company, in other chunks, token by token, on two threads, and
 * resumed from the middle of its own output. Every logit of every position is compared, for both kernel sets, on a tiny model (each block
 * format) and, without sanitizers, on the real one.
 */
#include "engine_support.h"

enum { MAX_OUT = 24, MAX_COMPANY = 7 };

struct run {
    const char *image, *kernels;
    uint32_t n_vocab, n_prompt, n_out;
    struct sampling sampling;
    float *logits; /* [n_out][n_vocab] of the undisturbed run */
    uint32_t tokens[MAX_OUT];
};

struct way {
    const char *name;
    uint32_t n_threads, chunk, n_company, late_by; /* late_by: steps the company runs before us */
    uint32_t start;                                /* resumed after so many tokens */
};

static void make_prompt(uint32_t *tokens, uint32_t n, uint32_t n_vocab, uint32_t salt)
{
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (i * 7919 + salt * 104729 + 11) % n_vocab;
}

static void run_way(struct run *r, const struct way *w, bool keep)
{
    static struct job us, company[MAX_COMPANY];
    struct job *list[1 + MAX_COMPANY];
    struct jobs jobs = {list, 0};
    uint32_t tokens[256];
    struct err e = ERR_INIT;
    struct engine *g =
        support_engine(r->image, r->kernels, 1 + MAX_COMPANY, 160, w->n_threads, w->chunk);
    for (uint32_t i = 0; i < w->n_company; i++) {
        uint32_t n = 1 + i * 13 % 40;
        make_prompt(tokens, n, r->n_vocab, i + 2);
        job_init(&company[i], i + 1, tokens, n, 60);
        company[i].submit.sampling = (struct sampling){.temperature = 1, .top_p = 1, .seed = i};
        list[jobs.n++] = &company[i];
        MUST(engine_submit(g, &company[i].submit, clock_now_us(), &e), e);
    }
    for (uint32_t i = 0; i < w->late_by; i++)
        jobs_step(g, &jobs);
    make_prompt(tokens, r->n_prompt, r->n_vocab, 1);
    memcpy(tokens + r->n_prompt, r->tokens, w->start * sizeof *tokens);
    job_init(&us, 0, tokens, r->n_prompt + w->start, r->n_out);
    us.submit.start = w->start;
    us.submit.sampling = r->sampling;
    list[jobs.n++] = &us;
    MUST(engine_submit(g, &us.submit, clock_now_us(), &e), e);
    for (uint32_t seen = 0; us.finish == FINISH_NONE;) {
        jobs_step(g, &jobs);
        const float *logits = engine_logits(g, &us.submit.attempt);
        if (us.n_out == seen || us.finish != FINISH_NONE)
            continue;
        uint32_t at = w->start + seen;
        seen = us.n_out;
        assert_non_null(logits);
        if (keep)
            memcpy(r->logits + (size_t)at * r->n_vocab, logits, r->n_vocab * sizeof *logits);
        else if (memcmp(r->logits + (size_t)at * r->n_vocab, logits, r->n_vocab * sizeof *logits))
            fail_msg("%s, %s: logits of token %u differ", r->kernels, w->name, at);
    }
    assert_int_equal(us.finish, FINISH_LENGTH);
    assert_int_equal(w->start + us.n_out, r->n_out);
    if (keep)
        memcpy(r->tokens, us.out, r->n_out * sizeof *us.out);
    else
        for (uint32_t i = 0; i < us.n_out; i++)
            assert_int_equal(us.out[i], r->tokens[w->start + i]);
    engine_destroy(g);
}

/* every: which of the ways; the real model has time for some only (engine_serving_test.c has it in mixes). */
static void run_all(const char *image, const char *kernels, uint32_t n_vocab, uint32_t n_prompt,
                    uint32_t n_out, struct sampling sampling, size_t every)
{
    static const struct way ALONE = {"alone", 1, 0, 0, 0, 0};
    static const struct way WAYS[] = {
        {"chunks of 7", 1, 7, 0, 0, 0},
        {"token by token", 1, 1, 0, 0, 0},
        {"two threads", 2, 0, 0, 0, 0},
        {"in a batch of 8", 1, 0, 7, 0, 0},
        {"late in a batch of 8, two threads, chunks of 5", 2, 5, 7, 3, 0},
        {"resumed after 1", 1, 0, 0, 0, 1},
        {"resumed after 5 in a batch of 4", 2, 3, 3, 2, 5},
    };
    struct run r = {
        .image = image,
        .kernels = kernels,
        .n_vocab = n_vocab,
        .n_prompt = n_prompt,
        .n_out = n_out,
        .sampling = sampling,
    };
    r.logits = calloc((size_t)n_out * n_vocab, sizeof *r.logits);
    run_way(&r, &ALONE, true);
    for (size_t i = 0; i < sizeof WAYS / sizeof WAYS[0]; i += every)
        run_way(&r, &WAYS[i], false);
    free(r.logits);
}

static const struct sampling GREEDY = {.top_p = 1};
static const struct sampling WARM = {
    .temperature = 0.9f, .top_p = 0.95f, .top_k = 40, .seed = 20240229};

static void tiny_of(const char *kernels, struct sampling sampling)
{
    static const int TYPES[] = {TENSOR_Q4_1, TENSOR_Q4_0, TENSOR_Q8_0,
                                TENSOR_F16,  TENSOR_BF16, TENSOR_F32};
    for (size_t i = 0; i < sizeof TYPES / sizeof TYPES[0]; i++) {
        char path[4096];
        tiny_image(path, &(struct tiny){.type = TYPES[i]});
        run_all(path, kernels, TINY_VOCAB, 37, 12, sampling, 1);
    }
}

static void test_tiny_ref(void **state)
{
    tiny_of("ref", GREEDY);
    tiny_of("ref", WARM);
}

static void test_tiny_avx2(void **state)
{
    if (!support_avx2())
        skip();
    tiny_of("avx2", GREEDY);
    tiny_of("avx2", WARM);
}

static void test_real_ref(void **state)
{
    if (INSTRUMENTED || !support_image())
        skip();
    run_all(support_image(), "ref", 49152, 9, 4, WARM, 4);
}

static void test_real_avx2(void **state)
{
    if (INSTRUMENTED || !support_avx2() || !support_image())
        skip();
    run_all(support_image(), "avx2", 49152, 37, 8, GREEDY, 2);
    run_all(support_image(), "avx2", 49152, 21, 8, WARM, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiny_ref),
        cmocka_unit_test(test_tiny_avx2),
        cmocka_unit_test(test_real_ref),
        cmocka_unit_test(test_real_avx2),
    };
    return cmocka_run_group_tests_name("engine_invariance", tests, NULL, NULL);
}
