/* text_regex_test.c - regular expressions against Python's re (tests/tools/grammar_judge.py): random expressions and texts, whole
 * matches must be the same; and what is refused is refused by name. */
#include "tests/unit/grammar_judge.h"

static void test_same_as_python(void **state)
{
    json_t *cases = judge(INSTRUMENTED ? "regex 5 150" : "regex 7 3000"), *c, *pair;
    size_t i, k, n_match = 0, n_not = 0, bad = 0;
    json_array_foreach(cases, i, c)
    {
        const char *source = json_string_value(json_object_get(c, "regex"));
        struct grammar *g = NULL;
        struct err e = ERR_INIT;
        if (grammar_create(&g, GRAMMAR_REGEX, source, strlen(source), NULL, &e)) {
            /* an expression that no text matches, [^\s\S] say, is refused */
            json_array_foreach(json_object_get(c, "texts"), k, pair) bad +=
                json_is_true(json_array_get(pair, 1)) || !strstr(e.text, "no text");
            if (bad)
                fail_msg("%s: %s", source, e.text);
            continue;
        }
        json_array_foreach(json_object_get(c, "texts"), k, pair)
        {
            const json_t *text = json_array_get(pair, 0);
            bool want = json_is_true(json_array_get(pair, 1));
            bool have = support_match(g, json_string_value(text), json_string_length(text)) == 1;
            n_match += want;
            n_not += !want;
            if (want != have)
                fail_msg("%s on \"%s\": %d, Python says %d", source, json_string_value(text), have,
                         want);
        }
        grammar_unref(g);
    }
    print_message("%zu expressions: %zu texts match, %zu do not\n", i, n_match, n_not);
    assert_true(n_match > i * 2 && n_not > i * 2);
    json_decref(cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_as_python)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
