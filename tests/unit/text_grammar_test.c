/* text_grammar_test.c - automata from every notation, states as plain values, and masks that equal a trial of every token. */
#include "tests/unit/grammar_support.h"

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

static void masks_agree(struct grammar *g, const struct token_table *t, size_t max_bytes,
                        uint64_t seed, int walks)
{
    struct walk w = {.t = t, .rng = seed};
    struct err e = ERR_INIT;
    MUST(grammar_masks_create(&w.m, g, t, max_bytes, &e), e);
    w.fast = calloc(t->n_words, sizeof *w.fast);
    w.slow = calloc(t->n_words, sizeof *w.slow);
    w.either = calloc(t->n_words, sizeof *w.either);
    for (int i = 0; i < walks; i++)
        walk_once(&w, g, 60);
    free(w.fast);
    free(w.slow);
    free(w.either);
    grammar_masks_destroy(w.m);
}

static void test_masks(void **state)
{
    struct token_table *t = support_table(TEXTS, N_TEXTS);
    static const struct {
        enum grammar_kind kind;
        const char *source;
    } CASES[] = {
        {GRAMMAR_JSON_OBJECT, ""},
        {GRAMMAR_GBNF, "root ::= e\ne ::= t (\"+\" e)?\nt ::= \"(\" e \")\" | n | v\nn ::= "
                       "[0-9]+\nv ::= [0-9a-f]+\n"},
        {GRAMMAR_GBNF, "root ::= [^x]{0,40} \"\\\"\" x\nx ::= [a-z] x? \"}\""},
        {GRAMMAR_GBNF, "root ::= w+\nw ::= \"a\" w \"b\" | [ab] | v\nv ::= \"a\" v \"c\" | \"a\""},
        {GRAMMAR_GBNF, "root ::= .{0,5000} \"}\""},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct grammar *g = support_grammar(CASES[i].kind, CASES[i].source);
        masks_agree(g, t, GRAMMAR_MASKS_BYTES, 17 + i, INSTRUMENTED ? 4 : 40);
        grammar_unref(g);
    }
    token_table_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_json_object),
                                       cmocka_unit_test(test_gbnf), cmocka_unit_test(test_masks)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
