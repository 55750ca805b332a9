/* engine_cpu_test.c - what the engine does besides computing: refusals, ends, cancels, deadlines, replaced attempts, bad models. */
#include "engine_support.h"

#include <math.h>

#include "engine/graph.h"

static char tiny_path[4096];

static int make_tiny(void **state)
{
    tiny_image(tiny_path, &(struct tiny){.type = TENSOR_Q4_1});
    return 0;
}

static const uint32_t PROMPT[] = {3, 1, 4, 1, 5, 9, 2, 6};
enum { N_PROMPT = 8 };

static struct engine *tiny_engine(uint32_t n_slots, uint32_t n_ctx, uint32_t chunk)
{
    return support_engine(tiny_path, NULL, n_slots, n_ctx, 1, chunk);
}

static int submit(struct engine *g, struct job *j, struct err *e)
{
    return engine_submit(g, &j->submit, 0, e);
}

static void run_out(struct engine *g, struct jobs *jobs)
{
    while (jobs_step(g, jobs))
        ;
}

/* --- refusals -------------------------------------------------------------------------------------------- */

static void test_refusals_name_the_numbers(void **state)
{
    struct engine *g = tiny_engine(1, 16, 0);
    static struct job j;
    uint32_t tokens[17] = {0};
    struct err e = ERR_INIT;
    job_init(&j, 0, tokens, 17, 4);
    assert_int_equal(submit(g, &j, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "17"));
    assert_non_null(strstr(e.text, "16"));
    tokens[2] = TINY_VOCAB;
    job_init(&j, 0, tokens, 4, 4);
    assert_int_equal(submit(g, &j, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "97"));
    job_init(&j, 0, PROMPT, 0, 4);
    assert_int_equal(submit(g, &j, &e), ERR_FORMAT);
    job_init(&j, 0, PROMPT, 4, 4);
    j.submit.start = 4; /* a log without a prompt */
    assert_int_equal(submit(g, &j, &e), ERR_FORMAT);
    job_init(&j, 0, PROMPT, 4, 4);
    j.submit.sampling.temperature = -1;
    assert_int_equal(submit(g, &j, &e), ERR_FORMAT);
    job_init(&j, 0, PROMPT, 4, 4);
    assert_int_equal(submit(g, &j, &e), 0);
    assert_int_equal(submit(g, &j, &e), ERR_PROTO); /* the same attempt again */
    j.submit.attempt.slot = 1;
    assert_int_equal(submit(g, &j, &e), ERR_AGAIN);
    engine_destroy(g);
}

static int create(const char *path, struct engine_config c, struct err *e)
{
    struct engine *g = NULL;
    c.kind = c.kind ? c.kind : "cpu";
    c.image_path = path;
    c.n_slots = c.n_slots ? c.n_slots : 2;
    int rc = engine_create(&g, &c, e);
    if (!rc)
        engine_destroy(g);
    return rc;
}

static void test_configurations_are_refused_by_name(void **state)
{
    struct err e = ERR_INIT;
    assert_int_equal(create(tiny_path, (struct engine_config){.kind = "gpu"}, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "gpu"));
    assert_int_equal(create(tiny_path, (struct engine_config){.kernels = "avx3"}, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "avx3"));
    assert_int_equal(create(tiny_path, (struct engine_config){.n_ctx = 1000}, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "256"));
    assert_int_equal(create(tiny_path, (struct engine_config){.n_slots = 257}, &e), ERR_CONFIG);
    assert_int_equal(create(tiny_path, (struct engine_config){.n_threads = 1000}, &e), ERR_CONFIG);
    assert_int_equal(create(tiny_path, (struct engine_config){.n_shards = 2}, &e), ERR_CONFIG);
    assert_true(create("/nonexistent/image", (struct engine_config){0}, &e) < 0);
    assert_int_equal(create(tiny_path, (struct engine_config){0}, &e), 0);
}

static void test_memory_is_asked_for_before_it_is_taken(void **state)
{
    struct err e = ERR_INIT;
    /* a tebibyte for KV: too much for the machines that run tests */
    struct engine_config c = {.kv_bytes = 1ull << 40};
    assert_int_equal(create(tiny_path, c, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "weights of 1 MiB"));
    assert_non_null(strstr(e.text, "KV of 1048577 MiB"));
    assert_non_null(strstr(e.text, "MiB are available"));
    /* less than one request needs: 17 blocks of 4 KiB */
    assert_int_equal(create(tiny_path, (struct engine_config){.kv_bytes = 65536}, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "too little for one request"));
    assert_int_equal(create(tiny_path, (struct engine_config){.kv_bytes = 17 * 4096}, &e), 0);
}

static void refuse_model(const struct tiny *o, const char *expect)
{
    char path[4096];
    struct err e = ERR_INIT;
    tiny_image(path, o);
    assert_int_equal(create(path, (struct engine_config){0}, &e), ERR_FORMAT);
    if (!strstr(e.text, expect))
        fail_msg("\"%s\" does not name %s", e.text, expect);
}

static void test_wrong_tensors_are_refused_by_name(void **state)
{
    refuse_model(&(struct tiny){.type = TENSOR_F16, .drop = "blk.1.ffn_up.weight"},
                 "blk.1.ffn_up.weight: missing");
    refuse_model(&(struct tiny){.type = TENSOR_F16, .drop = "output_norm.weight"},
                 "output_norm.weight: missing");
    refuse_model(&(struct tiny){.type = TENSOR_F16, .narrow = "blk.0.attn_k.weight"},
                 "blk.0.attn_k.weight: expected 32 rows of 64, found 16 of 64");
    refuse_model(&(struct tiny){.type = TENSOR_F16, .narrow = "token_embd.weight"},
                 "token_embd.weight: expected 97 rows of 64, found 48 of 64");
    refuse_model(&(struct tiny){.type = TENSOR_F16, .extra = "blk.0.attn_sub_norm.weight"},
                 "blk.0.attn_sub_norm.weight: this engine's llama graph has no use for it");
    refuse_model(&(struct tiny){.type = TENSOR_F16, .extra = "blk.2.attn_norm.weight"},
                 "blk.2.attn_norm.weight: expected layers up to 1, found layer 2");
    refuse_model(&(struct tiny){.type = TENSOR_F16, .extra = "blk.1.attn_k.bias"},
                 "blk.1.attn_k.bias: expected 32 F32 values, found 64 of type F32");
}

static void test_odd_shapes_are_refused_with_their_numbers(void **state)
{
    const struct model_params good = {.arch = "llama",
                                      .n_layers = 2,
                                      .n_embd = 64,
                                      .n_ff = 96,
                                      .n_heads = 4,
                                      .n_kv_heads = 2,
                                      .head_dim = 16,
                                      .rope_dim = 16,
                                      .n_ctx = 256,
                                      .n_vocab = 97,
                                      .rope_base = 10000,
                                      .norm_eps = 1e-5f};
    struct model_params p = good;
    struct err e = ERR_INIT;
    MUST(graph_check(&p, &e), e);
#define REFUSED(field, value, expect)                                                              \
    do {                                                                                           \
        p = good;                                                                                  \
        p.field = value;                                                                           \
        assert_int_equal(graph_check(&p, &e), ERR_FORMAT);                                         \
        if (!strstr(e.text, expect))                                                               \
            fail_msg("\"%s\" does not name %s", e.text, expect);                                   \
    } while (0)
    REFUSED(n_heads, 5, "5 heads cannot share 2 kv heads");
    REFUSED(n_heads, 0, "0 heads");
    REFUSED(n_heads, 130, "130 heads cannot share 2");
    REFUSED(n_kv_heads, 8, "4 heads cannot share 8 kv heads");
    REFUSED(n_kv_heads, 0, "0 kv heads");
    REFUSED(n_embd, 60, "widths 60 and 96");
    REFUSED(n_ff, 0, "widths 64 and 0");
    REFUSED(head_dim, 12, "head size 12");
    REFUSED(head_dim, 512, "head size 512");
    REFUSED(rope_dim, 15, "rotary size 15");
    REFUSED(rope_dim, 32, "rotary size 32: expected an even number up to 16");
    REFUSED(rope_dim, 0, "rotary size 0");
    REFUSED(rope_base, NAN, "rotary base");
    REFUSED(rope_base, INFINITY, "rotary base");
    REFUSED(norm_eps, 0, "norm epsilon 0");
    REFUSED(n_layers, 1025, "layers: expected at most 1024, found 1025");
    REFUSED(n_vocab, 0, "0 tokens");
#undef REFUSED
}

/* --- ends ------------------------------------------------------------------------------------------------ */

static void test_length_stop_and_context_end_a_request(void **state)
{
    struct engine *g = tiny_engine(4, 16, 0);
    static struct job a, b, c, d;
    struct job *list[] = {&a, &b, &c, &d};
    struct jobs jobs = {list, 1};
    struct err e = ERR_INIT;
    job_init(&a, 0, PROMPT, N_PROMPT, 5);
    MUST(submit(g, &a, &e), e);
    run_out(g, &jobs);
    assert_int_equal(a.finish, FINISH_LENGTH);
    assert_int_equal(a.n_out, 5);

    uint32_t at = 0; /* where a stop id, the third token, is met first */
    while (a.out[at] != a.out[2])
        at++;
    jobs.n = 4;
    job_init(&b, 1, PROMPT, N_PROMPT, 5);
    b.submit.ignore_eos = false;
    b.submit.n_stop_ids = 1;
    b.submit.stop_ids = (const uint8_t *)&a.out[at];
    job_init(&c, 2, PROMPT, N_PROMPT, 5);
    c.submit.n_stop_ids = 1; /* but ignored */
    c.submit.stop_ids = (const uint8_t *)&a.out[at];
    job_init(&d, 3, PROMPT, N_PROMPT, 100);
    MUST(submit(g, &b, &e), e);
    MUST(submit(g, &c, &e), e);
    MUST(submit(g, &d, &e), e);
    run_out(g, &jobs);
    assert_int_equal(b.finish, FINISH_STOP);
    assert_int_equal(b.n_out, at + 1);
    assert_int_equal(c.finish, FINISH_LENGTH);
    assert_int_equal(c.n_out, 5);
    assert_int_equal(d.finish, FINISH_LENGTH);
    assert_int_equal(d.n_out, 16 - N_PROMPT); /* prompt and answer fill the context */
    engine_destroy(g);
}

/* A replay of a log that was complete already brings no token more. */
static void test_a_full_log_ends_at_once(void **state)
{
    struct engine *g = tiny_engine(1, 16, 0);
    static struct job a;
    struct job *list[] = {&a};
    struct jobs jobs = {list, 1};
    struct err e = ERR_INIT;
    job_init(&a, 0, PROMPT, N_PROMPT, 3);
    a.submit.start = 3;
    MUST(submit(g, &a, &e), e);
    run_out(g, &jobs);
    assert_int_equal(a.finish, FINISH_LENGTH);
    assert_int_equal(a.n_out, 0);
    job_init(&a, 0, PROMPT, N_PROMPT, 9);
    a.submit.start = 3;
    a.submit.ignore_eos = false;
    a.submit.n_stop_ids = 1;
    a.submit.stop_ids = (const uint8_t *)&PROMPT[N_PROMPT - 1];
    MUST(submit(g, &a, &e), e);
    run_out(g, &jobs);
    assert_int_equal(a.finish, FINISH_STOP);
    assert_int_equal(a.n_out, 0);
    engine_destroy(g);
}

static void test_cancel_takes_one_step(void **state)
{
    struct engine *g = tiny_engine(2, 64, 0);
    static struct job a, b;
    struct job *list[] = {&a, &b};
    struct jobs jobs = {list, 2};
    struct err e = ERR_INIT;
    struct engine_load load;
    job_init(&a, 0, PROMPT, N_PROMPT, 50);
    job_init(&b, 1, PROMPT, N_PROMPT, 10);
    MUST(submit(g, &a, &e), e);
    MUST(submit(g, &b, &e), e);
    jobs_step(g, &jobs);
    jobs_step(g, &jobs);
    struct attempt other = a.submit.attempt;
    other.generation++;
    engine_cancel(g, &other); /* not this one */
    jobs_step(g, &jobs);
    assert_int_equal(a.finish, FINISH_NONE);
    engine_cancel(g, &a.submit.attempt);
    uint32_t n = a.n_out;
    assert_int_equal(jobs_step(g, &jobs), 1);
    assert_int_equal(a.finish, FINISH_CANCELED);
    assert_int_equal(a.n_out, n);
    assert_null(engine_logits(g, &a.submit.attempt));
    engine_load(g, &load);
    assert_int_equal(load.n_active, 1);
    assert_int_equal(load.kv_free_tokens, 128 - 16); /* b's one block; what a had is free */
    run_out(g, &jobs);
    assert_int_equal(b.finish, FINISH_LENGTH);
    engine_destroy(g);
}

static void test_cancel_during_prefill(void **state)
{
    struct engine *g = tiny_engine(1, 256, 4);
    static struct job a;
    struct job *list[] = {&a};
    struct jobs jobs = {list, 1};
    struct err e = ERR_INIT;
    uint32_t tokens[200];
    for (uint32_t i = 0; i < 200; i++)
        tokens[i] = i % TINY_VOCAB;
    job_init(&a, 0, tokens, 200, 10);
    MUST(submit(g, &a, &e), e);
    assert_int_equal(jobs_step(g, &jobs), 1);
    engine_cancel(g, &a.submit.attempt);
    assert_int_equal(jobs_step(g, &jobs), 0);
    assert_int_equal(a.finish, FINISH_CANCELED);
    assert_int_equal(a.n_out, 0);
    engine_destroy(g);
}

static void test_deadlines(void **state)
{
    struct engine *g = tiny_engine(3, 256, 4);
    static struct job a, b, c;
    struct job *list[] = {&a, &b, &c};
    struct jobs jobs = {list, 3};
    struct err e = ERR_INIT;
    uint32_t tokens[100] = {0};
    job_init(&a, 0, tokens, 100, 10); /* long prompt: no token within its time */
    a.submit.ttft_ms = 5;
    job_init(&b, 1, PROMPT, 1, 200); /* a first token in time, but no end */
    b.submit.ttft_ms = 5;
    b.submit.total_ms = 50;
    job_init(&c, 2, PROMPT, 1, 4);
    MUST(engine_submit(g, &a.submit, 1000000, &e), e);
    MUST(engine_submit(g, &b.submit, 1000000, &e), e);
    MUST(engine_submit(g, &c.submit, 1000000, &e), e);
    for (uint64_t us = 0; us < 60000; us += 1000) {
        engine_step(g, 1000000 + us, jobs_take, &jobs, &e);
        assert_int_equal(a.finish, us < 5000 ? FINISH_NONE : FINISH_DEADLINE);
        assert_int_equal(b.finish, us < 50000 ? FINISH_NONE : FINISH_DEADLINE);
    }
    assert_int_equal(a.n_out, 0);
    assert_int_equal(b.n_out, 50);
    assert_int_equal(c.finish, FINISH_LENGTH);
    engine_destroy(g);
}

static void test_a_newer_attempt_replaces_the_old_one(void **state)
{
    struct engine *g = tiny_engine(1, 64, 0);
    static struct job a, b;
    struct job *list[] = {&a, &b};
    struct jobs jobs = {list, 2};
    struct err e = ERR_INIT;
    job_init(&a, 5, PROMPT, N_PROMPT, 20);
    job_init(&b, 5, PROMPT, N_PROMPT, 20);
    b.submit.attempt.generation = 2;
    MUST(submit(g, &a, &e), e);
    for (int i = 0; i < 4; i++)
        jobs_step(g, &jobs);
    MUST(submit(g, &b, &e), e); /* although the only slot is taken */
    assert_int_equal(a.finish, FINISH_NONE);
    jobs_step(g, &jobs);
    assert_int_equal(a.finish, FINISH_CANCELED);
    assert_int_equal(b.n_out, 1);
    run_out(g, &jobs);
    assert_int_equal(b.finish, FINISH_LENGTH);
    assert_memory_equal(a.out, b.out,
                        a.n_out *
                            sizeof *a.out); /* nothing of the old one is left in the KV region */
    engine_destroy(g);
}

/* Replacing without a step between is bounded: past the bound it is refused, and every replaced one is reported. */
static void test_replacing_is_bounded(void **state)
{
    enum { MANY = 12 };
    struct engine *g = tiny_engine(1, 64, 0);
    static struct job j[MANY];
    struct job *list[MANY];
    struct jobs jobs = {list, MANY};
    struct err e = ERR_INIT;
    uint32_t n_taken = 0;
    for (uint32_t i = 0; i < MANY; i++) {
        list[i] = &j[i];
        job_init(&j[i], 0, PROMPT, 2, 1);
        j[i].submit.attempt.generation = i + 1;
        int rc = submit(g, &j[i], &e);
        assert_true(rc == 0 || rc == ERR_AGAIN);
        n_taken += rc == 0;
    }
    assert_int_equal(n_taken, 5);
    run_out(g, &jobs);
    for (uint32_t i = 0; i < MANY; i++)
        assert_int_equal(j[i].finish, i < 4    ? FINISH_CANCELED
                                      : i == 4 ? FINISH_LENGTH
                                               : FINISH_NONE);
    engine_destroy(g);
}

static void test_decoding_does_not_wait_for_a_long_prompt(void **state)
{
    struct engine *g = tiny_engine(3, 256, 4);
    static struct job a, b, c;
    struct job *list[] = {&a, &b, &c};
    struct jobs jobs = {list, 3};
    struct err e = ERR_INIT;
    uint32_t tokens[200] = {0};
    job_init(&a, 0, PROMPT, 1, 100);
    job_init(&b, 1, tokens, 200, 2);
    job_init(&c, 2, PROMPT, N_PROMPT, 2);
    MUST(submit(g, &a, &e), e);
    jobs_step(g, &jobs);
    MUST(submit(g, &b, &e), e);
    MUST(submit(g, &c, &e), e);
    for (uint32_t i = 0; i < 20; i++) {
        uint32_t before = a.n_out;
        jobs_step(g, &jobs);
        assert_int_equal(a.n_out, before + 1);
    }
    assert_int_equal(b.n_out, 0);
    assert_int_equal(c.n_out, 2); /* a short prompt beside a long one gets its share */
    run_out(g, &jobs);
    assert_int_equal(b.n_out, 2);
    engine_destroy(g);
}

static void test_bad_numbers_end_the_request_and_name_the_layer(void **state)
{
    char path[4096];
    static struct job a, b;
    struct job *list[] = {&a, &b};
    struct jobs jobs = {list, 2};
    struct err e = ERR_INIT;
    static const struct {
        const char *tensor, *expect;
    } CASES[] = {{"blk.1.attn_norm.weight", "layer 1 of 2"},
                 {"blk.0.ffn_norm.weight", "layer 0 of 2"},
                 {"output_norm.weight", "output layer"}};
    for (size_t i = 0; i < 3; i++) {
        tiny_image(path, &(struct tiny){.type = TENSOR_Q8_0, .poison = CASES[i].tensor});
        struct engine *g = support_engine(path, NULL, 2, 64, 1, 4);
        job_init(&a, 0, PROMPT, N_PROMPT, 4);
        job_init(&b, 1, PROMPT, 1, 4);
        MUST(submit(g, &a, &e), e);
        MUST(submit(g, &b, &e), e);
        run_out(g, &jobs);
        assert_int_equal(a.finish, FINISH_ERROR);
        assert_int_equal(b.finish, FINISH_ERROR);
        assert_int_equal(a.n_out, 0);
        if (!strstr(a.error.text, CASES[i].expect))
            fail_msg("\"%s\" does not say %s", a.error.text, CASES[i].expect);
        engine_destroy(g);
    }
}

static void test_info_and_load(void **state)
{
    struct engine *ref = support_engine(tiny_path, "ref", 3, 64, 2, 0);
    struct engine *again = support_engine(tiny_path, "ref", 1, 32, 1, 5);
    struct engine_info a, b;
    struct engine_load load;
    engine_info(ref, &a);
    engine_info(again, &b);
    assert_string_equal(a.kernels, "ref");
    assert_int_equal(a.kv_total_tokens, 192);
    assert_int_equal(a.n_vocab, TINY_VOCAB);
    assert_true(a.memory_bytes > 3u * 64 * TINY_LAYERS * 2 * 32 * 4);
    assert_memory_equal(a.numerics, b.numerics, SHA256_BYTES); /* shapes do not change bits */
    if (support_avx2()) {
        struct engine *fast = support_engine(tiny_path, "avx2", 3, 64, 2, 0);
        engine_info(fast, &b);
        assert_memory_not_equal(a.numerics, b.numerics, SHA256_BYTES);
        engine_destroy(fast);
    }
    static struct job j;
    struct err e = ERR_INIT;
    job_init(&j, 0, PROMPT, N_PROMPT, 4);
    MUST(submit(ref, &j, &e), e);
    engine_load(ref, &load);
    assert_int_equal(load.n_active, 1);
    assert_int_equal(load.n_queued, 1);
    assert_int_equal(load.kv_free_tokens, 192 - 16); /* promised, though not taken */
    engine_destroy(ref);
    engine_destroy(again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals_name_the_numbers),
        cmocka_unit_test(test_configurations_are_refused_by_name),
        cmocka_unit_test(test_memory_is_asked_for_before_it_is_taken),
        cmocka_unit_test(test_wrong_tensors_are_refused_by_name),
        cmocka_unit_test(test_odd_shapes_are_refused_with_their_numbers),
        cmocka_unit_test(test_length_stop_and_context_end_a_request),
        cmocka_unit_test(test_a_full_log_ends_at_once),
        cmocka_unit_test(test_cancel_takes_one_step),
        cmocka_unit_test(test_cancel_during_prefill),
        cmocka_unit_test(test_deadlines),
        cmocka_unit_test(test_a_newer_attempt_replaces_the_old_one),
        cmocka_unit_test(test_replacing_is_bounded),
        cmocka_unit_test(test_decoding_does_not_wait_for_a_long_prompt),
        cmocka_unit_test(test_bad_numbers_end_the_request_and_name_the_layer),
        cmocka_unit_test(test_info_and_load),
    };
    return cmocka_run_group_tests_name("engine_cpu", tests, make_tiny, NULL);
}
