/* text_schema_test.c - JSON schemas against jsonschema (tests/tools/grammar_judge.py): valid instances are accepted byte for byte,
 * broken ones are not, and whatever random sampling under the masks of the real model's vocabulary writes is valid. */
#include "tests/unit/grammar_judge.h"

struct real {
    struct gguf gguf;
    struct tokenizer *tok;
    struct token_table *table;
};

static void open_real(struct real *r)
{
    struct err e = ERR_INIT;
    const char *path = getenv("EXASERVE_TEST_MODEL");
    path = path ? path : "build/model/SmolLM2-135M-Instruct.Q4_1.gguf";
    MUST(gguf_open(&r->gguf, path, &e), e);
    MUST(tokenizer_create(&r->tok, &r->gguf.meta.tok, &e), e);
    MUST(token_table_from_tokenizer(&r->table, r->tok, &e), e);
}

static void close_real(struct real *r)
{
    token_table_destroy(r->table);
    tokenizer_destroy(r->tok);
    gguf_close(&r->gguf);
}

static void test_instances(void **state)
{
    json_t *cases = judge(INSTRUMENTED ? "schemas 3 10" : "schemas 3 60"), *c, *text;
    size_t i, k, n_valid = 0, n_broken = 0;
    json_array_foreach(cases, i, c)
    {
        const char *source = json_string_value(json_object_get(c, "schema"));
        struct grammar *g = support_grammar(GRAMMAR_JSON_SCHEMA, source);
        json_array_foreach(json_object_get(c, "valid"), k, text)
        {
            if (support_match(g, json_string_value(text), json_string_length(text)) != 1)
                fail_msg("%s\nshould admit\n%s", source, json_string_value(text));
            n_valid++;
        }
        if (k == 0)
            fail_msg("no valid instance of %s", source);
        json_array_foreach(json_object_get(c, "invalid"), k, text)
        {
            if (support_match(g, json_string_value(text), json_string_length(text)) == 1)
                fail_msg("%s\nshould not admit\n%s", source, json_string_value(text));
            n_broken++;
        }
        grammar_unref(g);
    }
    print_message("%zu schemas: %zu valid texts, %zu broken ones\n", i, n_valid, n_broken);
    json_decref(cases);
}

/* Of the tokens that may come, mostly one that begins with what ends things: else strings never end. */
static uint32_t pick(const struct token_table *t, const uint32_t *mask, uint32_t n, int step,
                     uint32_t *some, uint64_t *rng)
{
    uint32_t n_some = 0;
    if (rng_below(rng, 100) < (step < 20 ? 30u : 90u)) {
        memset(some, 0, t->n_words * sizeof *some);
        for (uint32_t id = 0; id < t->n_vocab; id++) {
            size_t len;
            const uint8_t *p = token_table_get(t, id, &len);
            if (mask_has(mask, id) &&
                (token_table_is_eog(t, id) || (len && strchr("\"}],", p[0])))) {
                some[id / 32] |= 1u << (id % 32);
                n_some++;
            }
        }
    }
    return n_some ? support_pick(some, n_some, rng) : support_pick(mask, n, rng);
}

/* false: it did not come to an end in time */
static bool sample(struct grammar_masks *m, const struct grammar *g, const struct token_table *t,
                   uint64_t *rng, struct buf *out)
{
    uint32_t *mask = calloc(t->n_words, sizeof *mask), *some = calloc(t->n_words, sizeof *some);
    struct grammar_state s;
    struct err e = ERR_INIT;
    bool ended = false;
    grammar_state_init(&s, g);
    for (int step = 0; step < 500 && !ended; step++) {
        uint32_t n = grammar_mask(m, &s, mask);
        assert_true(n > 0);
        uint32_t id = pick(t, mask, n, step, some, rng);
        MUST(grammar_accept(&s, t, id, &e), e);
        ended = token_table_is_eog(t, id);
        size_t len;
        const uint8_t *p = token_table_get(t, id, &len);
        buf_put(out, p, len);
    }
    free(mask);
    free(some);
    return ended;
}

static void test_samples(void **state)
{
    struct real r = {0};
    open_real(&r);
    json_t *cases = judge("schemas 1 1"), *c, *file = json_array();
    size_t i, n = 0, n_long = 0;
    uint64_t rng = 99;
    json_array_foreach(cases, i, c)
    {
        if (INSTRUMENTED && i % 5)
            continue;
        const char *source = json_string_value(json_object_get(c, "schema"));
        struct grammar *g = support_grammar(GRAMMAR_JSON_SCHEMA, source);
        struct grammar_masks *m = NULL;
        struct err e = ERR_INIT;
        MUST(grammar_masks_create(&m, g, r.table, GRAMMAR_MASKS_BYTES, &e), e);
        json_t *texts = json_array();
        for (int k = 0; k < (INSTRUMENTED ? 3 : 30); k++) {
            struct buf out;
            buf_init(&out, 1 << 20);
            if (sample(m, g, r.table, &rng, &out)) {
                json_t *text = json_stringn((char *)out.data, out.len);
                assert_non_null(text); /* valid UTF-8 */
                json_array_append_new(texts, text);
                n++;
            } else {
                n_long++;
            }
            buf_fini(&out);
        }
        json_array_append_new(file, json_pack("{s:s,s:o}", "schema", source, "texts", texts));
        grammar_masks_destroy(m);
        grammar_unref(g);
    }
    print_message("%zu samples, %zu more did not end in time\n", n, n_long);
    assert_true(n > 4 * n_long);
    judge_validates(file);
    json_decref(file);
    json_decref(cases);
    close_real(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_instances),
                                       cmocka_unit_test(test_samples)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
