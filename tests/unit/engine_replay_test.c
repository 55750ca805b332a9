/* engine_replay_test.c - a request given up at any position and begun again with prompt and log goes on with the same tokens and the
 * same log-probabilities, whatever its parameters: all restarts of one request run beside each other, in chunks, on one engine. */
#include "tests/unit/engine_support.h"

#include "engine/sampler.h"

enum { N_PROMPT = 11, N_ANSWER = 20, N_CTX_REPLAY = 128, CHUNK = 7 };

/* One request, from position `start` of its answer on. */
struct run {
    struct msg_submit submit;
    uint32_t tokens[N_PROMPT + N_ANSWER]; /* as submitted */
    uint32_t n;
    struct drawn drawn[N_ANSWER];
    int finish;
    struct err error;
};
struct runs {
    struct run *list;
    uint32_t n;
};

static void take(void *ctx, const struct step_result *r)
{
    struct runs *runs = ctx;
    assert_true(r->attempt.slot < runs->n);
    struct run *run = &runs->list[r->attempt.slot];
    assert_int_equal(r->position, run->submit.start + run->n);
    assert_true(!r->n_tokens || r->drawn);
    for (uint32_t i = 0; i < r->n_tokens; i++)
        run->drawn[run->n++] = r->drawn[i];
    run->finish = r->finish;
    if (r->error)
        run->error = *r->error;
}

static void run_init(struct run *run, uint32_t slot, const struct msg_submit *what,
                     const struct run *whole, uint32_t start)
{
    *run = (struct run){.submit = *what};
    for (uint32_t i = 0; i < N_PROMPT; i++)
        run->tokens[i] = (7 * i + 3) % TINY_VOCAB;
    for (uint32_t i = 0; i < start; i++)
        run->tokens[N_PROMPT + i] = whole->drawn[i].token;
    run->submit.attempt = (struct attempt){1, 1, slot, 1 + start};
    run->submit.max_tokens = N_ANSWER;
    run->submit.start = start;
    run->submit.n_tokens = N_PROMPT + start;
    run->submit.tokens = (const uint8_t *)run->tokens;
    run->submit.sampling.want_logprobs = true;
    run->submit.sampling.n_top = 3;
}

static void run_all(struct engine *g, struct run *list, uint32_t n, const char *name)
{
    struct runs runs = {list, n};
    struct err e = ERR_INIT;
    for (uint32_t i = 0; i < n; i++)
        MUST(engine_submit(g, &list[i].submit, clock_now_us(), &e), e);
    int active;
    do
        active = engine_step(g, clock_now_us(), take, &runs, &e);
    while (active > 0);
    if (active < 0)
        fail_msg("%s: %s", name, e.text);
    for (uint32_t i = 0; i < n; i++)
        if (list[i].finish == FINISH_ERROR)
            fail_msg("%s: %s", name, list[i].error.text);
}

static void check(struct engine *g, const struct msg_submit *what, const char *name)
{
    static struct run whole, again[N_ANSWER];
    run_init(&whole, 0, what, NULL, 0);
    run_all(g, &whole, 1, name);
    assert_true(whole.n > 0);
    for (uint32_t k = 0; k < whole.n; k++)
        run_init(&again[k], k, what, &whole, k);
    run_all(g, again, whole.n, name);
    for (uint32_t k = 0; k < whole.n; k++) {
        if (again[k].n != whole.n - k || again[k].finish != whole.finish)
            fail_msg("%s: from %u on: %u tokens and finish %d, were %u and %d", name, k, again[k].n,
                     again[k].finish, whole.n - k, whole.finish);
        for (uint32_t i = k; i < whole.n; i++)
            if (memcmp(&again[k].drawn[i - k], &whole.drawn[i], sizeof whole.drawn[i]))
                fail_msg("%s: from %u on, position %u: token %u, was %u", name, k, i,
                         again[k].drawn[i - k].token, whole.drawn[i].token);
    }
}

static void test_every_position(void **state)
{
    static const uint8_t BIAS[16] = {5, 0, 0, 0, 0, 0, 0, 0x40, 6, 0, 0, 0, 0, 0, 0xc8, 0xc2};
    static const uint8_t STOPS[8] = {4, 0, 0, 0, 9, 0, 0, 0};
    const struct {
        const char *name;
        struct msg_submit m;
    } CASES[] = {
        {"greedy", {.sampling = {.temperature = 0}}},
        {"drawn", {.sampling = {.temperature = 1, .seed = 5}}},
        {"filters",
         {.sampling = {.temperature = 1.3f,
                       .top_k = 60,
                       .top_p = 0.9f,
                       .min_p = 0.01f,
                       .typical_p = 0.95f,
                       .seed = 6}}},
        {"penalties",
         {.sampling = {.temperature = 1,
                       .repetition_penalty = 1.4f,
                       .frequency_penalty = 0.7f,
                       .presence_penalty = -0.4f,
                       .seed = 7}}},
        {"greedy penalties",
         {.sampling = {.repetition_penalty = 1.2f, .frequency_penalty = 1, .presence_penalty = 1}}},
        {"bias", {.sampling = {.temperature = 1, .seed = 8}, .n_bias = 2, .bias = BIAS}},
        {"stop ids behind min_tokens",
         {.sampling = {.temperature = 1.5f, .min_tokens = 9, .seed = 9},
          .n_stop_ids = 2,
          .stop_ids = STOPS}},
        {"all",
         {.sampling = {.temperature = 1.1f,
                       .top_k = 70,
                       .top_p = 0.97f,
                       .min_p = 0.001f,
                       .typical_p = 0.99f,
                       .repetition_penalty = 1.1f,
                       .frequency_penalty = 0.3f,
                       .presence_penalty = 0.2f,
                       .min_tokens = 12,
                       .seed = 10},
          .n_stop_ids = 2,
          .stop_ids = STOPS,
          .n_bias = 2,
          .bias = BIAS}},
    };
    char path[4096];
    tiny_image(path, &(struct tiny){.type = TENSOR_Q4_1});
    struct engine *g = support_engine(path, NULL, N_ANSWER, N_CTX_REPLAY, 2, CHUNK);
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++)
        check(g, &CASES[i].m, CASES[i].name);
    engine_destroy(g);
}

/* Constraints need a tokenizer: the real model. */
static void test_constraints_at_every_position(void **state)
{
    const struct {
        enum constraint_kind kind;
        const char *source;
    } CASES[] = {
        {CONSTRAINT_JSON_OBJECT, ""},
        {CONSTRAINT_JSON_SCHEMA,
         "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":"
         "[\"a\"],\"additionalProperties\":false}"},
        {CONSTRAINT_REGEX, "([a-c]+ [0-9]{2},? ){1,9}"},
        {CONSTRAINT_CHOICE, "[\"one\",\"two and a half\"]"},
        {CONSTRAINT_GBNF, "root ::= \"<\" [a-z ]+ \">\" | \"(\" root \")\""},
    };
    const char *image = INSTRUMENTED ? NULL : support_image();
    if (!image) {
        skip();
        return;
    }
    static const uint8_t STOP[4] = {2, 0, 0, 0}; /* <|im_end|> */
    struct engine *g = support_engine(image, NULL, N_ANSWER, N_CTX_REPLAY, 2, 64);
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct msg_submit m = {
            .sampling = {.temperature = 1, .repetition_penalty = 1.1f, .seed = i},
            .n_stop_ids = 1,
            .stop_ids = STOP,
            .constraint = CASES[i].kind,
            .constraint_source = CASES[i].source,
            .constraint_bytes = (uint32_t)strlen(CASES[i].source)};
        check(g, &m, CASES[i].source);
    }
    engine_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_position),
        cmocka_unit_test(test_constraints_at_every_position),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
