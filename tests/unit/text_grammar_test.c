/* text_grammar_test.c - automata from every notation, states as plain values, and masks that equal a trial of every token. */
#include "tests/unit/grammar_support.h"

#include "base/clock.h"

static const char *const TEXTS[] = {
    "{\"",
    "\":",
    "\": ",
    "\",",
    "\", \"",
    "\"}",
    "\"}}",
    "\"}]}",
    "}}",
    "}}}",
    "[[",
    "]]",
    "],",
    "true",
    "false",
    "null",
    "tru",
    "e,",
    "12",
    "123",
    "-1",
    "0.5",
    "e+",
    "E-1",
    "},",
    "}, {\"",
    "{\"a\":",
    " \"",
    "\n  ",
    "\n    \"",
    "    ",
    "\t",
    "hello",
    "a b c",
    "\\",
    "\\\"",
    "\\u00",
    "\\ud83d\\ude00",
    "gr\xC3\xBC\xC3\x9F",
    "\xF0\x9F",
    "\x98\x80",
    "\xE2\x82\xAC",
    "\xC3",
    "abcdefghijklmnopqrstuvwxyz",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "a",
    "\"a\"",
    "\"b",
    "ab\"",
};
enum { N_TEXTS = sizeof TEXTS / sizeof *TEXTS };

static void check_language(enum grammar_kind kind, const char *source, const char *const *in,
                           const char *const *out)
{
    struct grammar *g = support_grammar(kind, source);
    for (; *in; in++)
        if (support_match(g, *in, strlen(*in)) != 1)
            fail_msg("%s should admit %s", source, *in);
    for (; *out; out++)
        if (support_match(g, *out, strlen(*out)) == 1)
            fail_msg("%s should not admit %s", source, *out);
    grammar_unref(g);
}
#define LIST(...)                                                                                  \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

static void test_json_object(void **state)
{
    check_language(
        GRAMMAR_JSON_OBJECT, "",
        LIST("{}", "{\"a\":1}", "{\"a\": [1, 2.5e-3, {\"b\": null}], \"c\": \"\\u00e9\\\"\"}",
             "{\n  \"a\": {\n    \"b\": [\n      true\n    ]\n  }\n}", "{ }",
             "{\"gr\xC3\xBC\xC3\x9F\":\"\xF0\x9F\x98\x80\"}", "{\"\\ud83d\\ude00\":[]}"),
        LIST("", "[]", "{", "{\"a\":01}", "{\"a\":1,}", "{'a':1}", "{\"a\" :1}", "{  }",
             "{\"\\ud83d\":1}", "{\"a\":\"\n\"}", "{\"\xC3\":1}", "{\"a\":tru}", "{}{}"));
}

static void test_gbnf(void **state)
{
    check_language(GRAMMAR_GBNF, "root ::= \"a\" b* # comment\nb ::= [x-z] | \"(\" b \")\"\n",
                   LIST("a", "ax", "a(x)z", "a((y))"), LIST("", "b", "a(", "a(x", "aw"));
    check_language(GRAMMAR_GBNF, "root ::= (\n \"a\" |\n  \"\\u00e4\" ){2,3} [^a\\]]?",
                   LIST("aa", "aaa", "a\xC3\xA4", "aab", "aa\xE2\x82\xAC"),
                   LIST("a", "aaaa", "aa]"));
    /* two readings of one text, and calls within calls */
    check_language(GRAMMAR_GBNF,
                   "root ::= e\ne ::= t (\"+\" e)?\nt ::= \"(\" e \")\" | n | v\nn ::= [0-9]+\nv "
                   "::= [0-9a-f]+\n",
                   LIST("1+2", "((1)+(a))+0", "12", "fe"), LIST("(", "1+", "g", "())"));
}

struct walk {
    struct grammar_masks *m;
    const struct token_table *t;
    uint32_t *fast, *slow, *either;
    uint64_t rng;
    size_t states, tokens;
};

static void masks_equal(struct walk *w, const struct grammar_state *s, struct buf *text)
{
    support_mask_slow(s, w->t, w->slow, w->either);
    for (uint32_t id = 0; id < w->t->n_vocab; id++)
        if (mask_has(w->fast, id) != mask_has(w->slow, id) && !mask_has(w->either, id)) {
            size_t len;
            const uint8_t *p = token_table_get(w->t, id, &len);
            fail_msg("after \"%s\" token %u \"%.*s\": mask %d, trial %d", buf_cstr(text), id,
                     (int)len, p, mask_has(w->fast, id), mask_has(w->slow, id));
        }
    w->states++;
}

static void walk_once(struct walk *w, const struct grammar *g, int steps)
{
    struct grammar_state s;
    struct buf text;
    buf_init(&text, 1 << 16);
    grammar_state_init(&s, g);
    for (int step = 0; step < steps; step++) {
        uint32_t n = grammar_mask(w->m, &s, w->fast);
        masks_equal(w, &s, &text);
        assert_true(n > 0);
        uint32_t id = support_pick(w->fast, n, &w->rng);
        if (token_table_is_eog(w->t, id))
            break;
        size_t len;
        const uint8_t *p = token_table_get(w->t, id, &len);
        buf_put(&text, p, len);
        if (grammar_accept(&s, w->t, id, NULL))
            break; /* one of `either` */
        w->tokens++;
    }
    buf_fini(&text);
}

static size_t masks_agree(struct grammar *g, const struct token_table *t, size_t max_bytes,
                          uint64_t seed, int walks)
{
    struct walk w = {.t = t, .rng = seed};
    struct err e = ERR_INIT;
    MUST(grammar_masks_create(&w.m, g, t, max_bytes, &e), e);
    w.fast = calloc(t->n_words, sizeof *w.fast);
    w.slow = calloc(t->n_words, sizeof *w.slow);
    w.either = calloc(t->n_words, sizeof *w.either);
    for (int i = 0; i < walks; i++)
        walk_once(&w, g, INSTRUMENTED ? 25 : 60);
    free(w.fast);
    free(w.slow);
    free(w.either);
    grammar_masks_destroy(w.m);
    return w.states;
}

static const struct {
    enum grammar_kind kind;
    const char *source;
} CASES[] = {
    {GRAMMAR_JSON_OBJECT, ""},
    {GRAMMAR_GBNF, "root ::= e\ne ::= t (\"+\" e)?\nt ::= \"(\" e \")\" | n | v\nn ::= [0-9]+\nv "
                   "::= [0-9a-f]+\n"},
    {GRAMMAR_GBNF, "root ::= [^x]{0,40} \"\\\"\" x\nx ::= [a-z] x? \"}\""},
    {GRAMMAR_GBNF, "root ::= w+\nw ::= \"a\" w \"b\" | [ab] | v\nv ::= \"a\" v \"c\" | \"a\""},
    {GRAMMAR_GBNF, "root ::= s+\ns ::= \"\\\"\" .{0,3000} \"\\\"\" ([a-z]{3000} | s) \"}\""},
    {GRAMMAR_GBNF,
     "root ::= p \"}\"\np ::= q{300} (p \"x\")? .{0,2}\nq ::= [^}] | \"}\" q \"{\"\n"},
    {GRAMMAR_REGEX,
     "(?:[A-Z][a-z]+ ){1,6}x: [^\\n]{10,120}\\n(?:\\d{4}-\\d{2}|gr\xC3\xBC\xC3\x9F)"},
    {GRAMMAR_REGEX, "[^\"]{0,400}\"(?:\\}|\xF0\x9F\x98\x80)?[^\"]{7,90}"},
    {GRAMMAR_CHOICE,
     "[\"a\",\"aaaaaaaaaaaa\",\"gr\xC3\xBC\xC3\x9F\",\"\xF0\x9F\x98\x80\",\"{\\\"a\\\":\",\"\"]"},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"minLength\":3,\"maxLength\":900}}"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\","
                          "\"maxLength\":12},\"b\":{\"pattern\":"
                          "\"^[a-z]*$\",\"maxLength\":30},\"c\":{\"type\":\"number\",\"minimum\":-"
                          "3,\"maximum\":12.5},\"d\":{}}}"},
    {GRAMMAR_JSON_SCHEMA, "{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":"
                          "\"string\",\"maxLength\":5},\"b\":"
                          "{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
                          "n\"}}},\"required\":[\"b\"]}},\"$ref\":\"#/$defs/n\"}"},
};
enum { N_CASES = sizeof CASES / sizeof *CASES };

static void test_masks(void **state)
{
    struct token_table *t = support_table(TEXTS, N_TEXTS);
    size_t states = 0;
    for (size_t i = 0; i < N_CASES; i++) {
        struct grammar *g = support_grammar(CASES[i].kind, CASES[i].source);
        states += masks_agree(g, t, GRAMMAR_MASKS_BYTES, 17 + i, INSTRUMENTED ? 3 : 60);
        grammar_unref(g);
    }
    print_message("%zu states\n", states);
    assert_true(states > (INSTRUMENTED ? 300 : 8000));
    token_table_destroy(t);
}

/* The least memory that is allowed: the cache is emptied again and again, and when even one mask does not fit, it is found token by
 * token. Nothing of that shows in the masks. */
static void test_masks_without_room(void **state)
{
    struct token_table *t = support_table(TEXTS, N_TEXTS);
    for (size_t i = 0; i < N_CASES; i++) {
        struct grammar *g = support_grammar(CASES[i].kind, CASES[i].source);
        struct grammar_masks *m;
        struct err e = ERR_INIT;
        size_t least = 1 << 20;
        assert_int_equal(grammar_masks_create(&m, g, t, 1000, &e), ERR_LIMIT);
        assert_non_null(strstr(e.text, "at least"));
        while (grammar_masks_create(&m, g, t, least, &e))
            least += 4096;
        grammar_masks_destroy(m);
        masks_agree(g, t, least, 99 + i, INSTRUMENTED ? 1 : 15);
        grammar_unref(g);
    }
    token_table_destroy(t);
}

/* Every 9th token of the real vocabulary and all short ones. */
static struct token_table *real_sample(void)
{
    struct err e = ERR_INIT;
    struct gguf file;
    struct tokenizer *tok;
    const char *path = getenv("EXASERVE_TEST_MODEL");
    MUST(gguf_open(&file, path ? path : "build/model/SmolLM2-135M-Instruct.Q4_1.gguf", &e), e);
    MUST(tokenizer_create(&tok, &file.meta.tok, &e), e);
    uint32_t n_vocab = tokenizer_vocab(tok), eog = tokenizer_eog_ids(tok, &eog, 1) ? eog : 0;
    uint32_t *offsets = calloc(n_vocab + 1, sizeof *offsets);
    struct buf bytes;
    buf_init(&bytes, 1 << 24);
    for (uint32_t id = 0; id < n_vocab; id++) {
        size_t n;
        const char *p = tokenizer_bytes(tok, id, false, &n);
        offsets[id] = (uint32_t)bytes.len;
        if (id % 9 == 0 || n < 3)
            buf_put(&bytes, p, n);
    }
    offsets[n_vocab] = (uint32_t)bytes.len;
    struct token_table *t = NULL;
    MUST(token_table_from_arrays(&t, n_vocab, offsets, bytes.data, &eog, 1, &e), e);
    buf_fini(&bytes);
    free(offsets);
    tokenizer_destroy(tok);
    gguf_close(&file);
    return t;
}

static void test_masks_of_real_tokens(void **state)
{
    struct token_table *t = real_sample();
    size_t states = 0;
    for (size_t i = 0; i < N_CASES; i++) {
        if (INSTRUMENTED && i % 6)
            continue;
        struct grammar *g = support_grammar(CASES[i].kind, CASES[i].source);
        states += masks_agree(g, t, GRAMMAR_MASKS_BYTES, 5 + i, INSTRUMENTED ? 1 : 5);
        grammar_unref(g);
    }
    print_message("%zu states\n", states);
    token_table_destroy(t);
}

/* A state rebuilt from any beginning of the token log equals the live one, also byte by byte and from a copy. */
/* Two lines, but every token of a large vocabulary leads somewhere else: refused at once, whatever is cached, and not tried
 * token by token, which would keep all other streams waiting. */
static void test_masks_too_ambiguous(void **state)
{
    enum { N = 60000, LONGEST = 9 };
    char(*texts)[LONGEST + 1] = calloc(N, sizeof *texts);
    const char **list = calloc(N, sizeof *list);
    uint64_t rng = 7;
    for (int i = 0; i < N; i++) {
        for (uint32_t k = 0, n = 2 + rng_below(&rng, LONGEST - 1); k < n; k++)
            texts[i][k] = (char)('a' + rng_below(&rng, 16));
        list[i] = texts[i];
    }
    struct token_table *t = support_table(list, N);
    struct grammar *g =
        support_grammar(GRAMMAR_GBNF, "root ::= s*\ns ::= \"a\" s \"b\" | [a-p] s [a-p] | [a-p]");
    struct grammar_masks *m;
    struct grammar_state s, first;
    struct err e = ERR_INIT;
    uint32_t *mask = calloc(t->n_words, sizeof *mask);
    for (size_t least = 1 << 20; grammar_masks_create(&m, g, t, least, &e);)
        least += 4096;
    grammar_state_init(&s, g);
    first = s;
    uint64_t start = clock_now_us();
    for (int i = 0; i < 20; i++) {
        assert_int_equal(grammar_mask(m, i % 2 ? &s : &first, mask), GRAMMAR_MASK_OVER);
        if (i % 2)
            MUST(grammar_accept_bytes(&s, "ac", 2, &e), e);
    }
    assert_true(clock_now_us() - start < 30000000); /* one by one: minutes */
    grammar_masks_destroy(m);
    grammar_unref(g);
    token_table_destroy(t);
    free(mask);
    free(list);
    free(texts);
}

static void test_replay(void **state)
{
    struct token_table *t = support_table(TEXTS, N_TEXTS);
    struct err e = ERR_INIT;
    for (size_t i = 0; i < N_CASES; i++) {
        struct grammar *g = support_grammar(CASES[i].kind, CASES[i].source);
        struct grammar_masks *m;
        MUST(grammar_masks_create(&m, g, t, GRAMMAR_MASKS_BYTES, &e), e);
        uint32_t *mask = calloc(t->n_words, sizeof *mask), log[200];
        uint64_t rng = 1000 + i;
        struct grammar_state live, again, bytewise;
        grammar_state_init(&live, g);
        for (size_t n = 0; n < (INSTRUMENTED ? 60 : 200); n++) {
            grammar_state_init(&again, g);
            grammar_state_init(&bytewise, g);
            for (size_t k = 0; k < n; k++) {
                size_t len;
                const uint8_t *p = token_table_get(t, log[k], &len);
                MUST(grammar_accept(&again, t, log[k], &e), e);
                for (size_t b = 0; b < len; b++)
                    MUST(grammar_accept_bytes(&bytewise, p + b, 1, &e), e);
            }
            assert_true(grammar_state_equal(&live, &again));
            assert_true(grammar_state_equal(&live, &bytewise));
            struct grammar_state copy = live;
            uint32_t count = grammar_mask(m, &live, mask);
            log[n] = support_pick(mask, count, &rng);
            if (token_table_is_eog(t, log[n]) || grammar_accept(&live, t, log[n], &e))
                break;
            /* a draft that is thrown away leaves no trace, and a refused token none either */
            struct grammar_state before = live;
            assert_int_not_equal(grammar_accept(&live, t, t->n_vocab, &e), 0);
            assert_true(grammar_state_equal(&live, &before));
            MUST(grammar_accept(&copy, t, log[n], &e), e);
            assert_true(grammar_state_equal(&live, &copy));
        }
        free(mask);
        grammar_masks_destroy(m);
        grammar_unref(g);
    }
    token_table_destroy(t);
}

static void test_ends(void **state)
{
    struct token_table *t = support_table(TEXTS, N_TEXTS);
    struct grammar *g = support_grammar(GRAMMAR_REGEX, "a(?:bc)?");
    struct grammar_masks *m;
    struct err e = ERR_INIT;
    MUST(grammar_masks_create(&m, g, t, GRAMMAR_MASKS_BYTES, &e), e);
    uint32_t *mask = calloc(t->n_words, sizeof *mask);
    struct grammar_state s;
    grammar_state_init(&s, g);
    assert_false(grammar_is_complete(&s));
    grammar_mask(m, &s, mask);
    assert_false(mask_has(mask, 0)); /* the end of generation */
    assert_int_equal(grammar_accept(&s, t, 0, &e), ERR_FORMAT);
    MUST(grammar_accept_bytes(&s, "a", 1, &e), e);
    assert_true(grammar_is_complete(&s) && !grammar_is_finished(&s));
    grammar_mask(m, &s, mask);
    assert_true(mask_has(mask, 0) && mask_has(mask, 1 + 'b'));
    MUST(grammar_accept(&s, t, 0, &e), e);
    MUST(grammar_accept_bytes(&s, "bc", 2, &e), e);
    assert_true(grammar_is_finished(&s));
    assert_int_equal(grammar_mask(m, &s, mask), 1);
    assert_int_equal(grammar_accept_bytes(&s, "d", 1, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "0x64"));
    free(mask);
    grammar_masks_destroy(m);
    grammar_unref(g);
    token_table_destroy(t);
}

/* A vocabulary without the bytes that a grammar needs next: the mask is empty, and says so. */
static void test_dead_end(void **state)
{
    static const uint32_t OFFSETS[] = {0, 0, 1, 3}, EOG[] = {0};
    struct token_table *t;
    struct err e = ERR_INIT;
    MUST(token_table_from_arrays(&t, 3, OFFSETS, "abb", EOG, 1, &e), e);
    struct grammar *g = support_grammar(GRAMMAR_REGEX, "a(?:bb|c)d");
    struct grammar_masks *m;
    MUST(grammar_masks_create(&m, g, t, GRAMMAR_MASKS_BYTES, &e), e);
    struct grammar_state s;
    uint32_t mask[1];
    grammar_state_init(&s, g);
    assert_int_equal(grammar_mask(m, &s, mask), 1);
    MUST(grammar_accept(&s, t, 1, &e), e);
    assert_int_equal(grammar_mask(m, &s, mask), 1);
    MUST(grammar_accept(&s, t, 2, &e), e);
    assert_int_equal(grammar_mask(m, &s, mask), 0);
    assert_int_equal(mask[0], 0);
    grammar_masks_destroy(m);
    grammar_unref(g);
    token_table_destroy(t);
}

/* Nesting beyond what a state holds ends with an error and leaves the state as it was; before that it goes deep. */
static void test_too_deep(void **state)
{
    struct grammar *g = support_grammar(GRAMMAR_JSON_OBJECT, "");
    struct grammar_state s, before;
    struct err e = ERR_INIT;
    int depth = 0, rc;
    grammar_state_init(&s, g);
    MUST(grammar_accept_bytes(&s, "{\"a\":", 5, &e), e);
    do {
        before = s;
        rc = grammar_accept_bytes(&s, "[", 1, &e);
    } while (rc == 0 && ++depth < 100000);
    assert_int_equal(rc, ERR_LIMIT);
    assert_non_null(strstr(e.text, "nested too deeply"));
    assert_true(depth >= 200 && grammar_state_equal(&s, &before));
    for (int i = 0; i < depth; i++)
        MUST(grammar_accept_bytes(&s, "]", 1, &e), e);
    MUST(grammar_accept_bytes(&s, "}", 1, &e), e);
    assert_true(grammar_is_finished(&s));
    grammar_unref(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_json_object),
                                       cmocka_unit_test(test_gbnf),
                                       cmocka_unit_test(test_masks),
                                       cmocka_unit_test(test_masks_without_room),
                                       cmocka_unit_test(test_masks_too_ambiguous),
                                       cmocka_unit_test(test_replay),
                                       cmocka_unit_test(test_ends),
                                       cmocka_unit_test(test_dead_end),
                                       cmocka_unit_test(test_too_deep),
                                       cmocka_unit_test(test_masks_of_real_tokens)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
