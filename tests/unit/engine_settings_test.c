/* engine_settings_test.c - the line of settings: every key is taken, and whatever is wrong is refused by its name. */
#include "engine_support.h"

#include "engine/ops.h"
#include "engine/settings.h"

static void test_all_keys(void **state)
{
    struct engine_config c = {0};
    char store[MSG_SETTINGS_BYTES];
    struct err e = ERR_INIT;
    MUST(settings_read(
             &c, store,
             "kv_type=q8 memory_fraction=0.25 kv_bytes=12345678901 token_budget=512 queue=7 "
             "prefix_cache=off speculation=draft max_drafts=5 draft=/a b/c=d",
             &e),
         e);
    assert_int_equal(c.kv_type, KV_Q8);
    assert_int_equal(c.memory_permille, 250);
    assert_true(c.kv_bytes == 12345678901);
    assert_int_equal(c.chunk, 512);
    assert_int_equal(c.n_queue, 7);
    assert_true(c.no_prefix_cache);
    assert_int_equal(c.speculation, SPECULATE_DRAFT);
    assert_int_equal(c.max_drafts, 5);
    assert_string_equal(c.draft_path, "/a b/c=d");
    MUST(settings_read(&c, store, "prefix_cache=on speculation=lookup", &e), e);
    assert_false(c.no_prefix_cache);
    assert_int_equal(c.speculation, SPECULATE_LOOK_UP);
    assert_int_equal(c.n_queue, 7); /* as it was */
    MUST(settings_read(&c, store, "", &e), e);
}

static void test_wrong_ones_are_named(void **state)
{
    static const struct {
        const char *text, *expect;
    } CASES[] = {
        {"kv_type=f8", "kv_type: \"f8\", expected one of f32, f16, q8"},
        {"memory_fraction=0", "memory_fraction: \"0\""},
        {"memory_fraction=1.5", "memory_fraction: \"1.5\""},
        {"memory_fraction=nan", "memory_fraction: \"nan\""},
        {"memory_fraction=", "memory_fraction: \"\""},
        {"kv_bytes=0", "kv_bytes: \"0\""},
        {"kv_bytes=99999999999999999999", "kv_bytes: \"99999999999999999999\""},
        {"token_budget=0", "token_budget: \"0\""},
        {"token_budget=4097", "from 1 to 4096"},
        {"token_budget=-1", "token_budget: \"-1\""},
        {"queue=4097", "queue: \"4097\""},
        {"queue=1x", "queue: \"1x\""},
        {"prefix_cache=yes", "prefix_cache: \"yes\""},
        {"speculation=magic", "speculation: \"magic\""},
        {"max_drafts=16", "max_drafts: \"16\""},
        {"draft=", "draft: expected the path"},
        {"paged=on", "paged: unknown engine setting"},
        {"queue=3  kv_type=q8", " kv_type: unknown engine setting"},
        {"queue", "\"queue\": expected key=value"},
        {"queue=3 off", "\"off\": expected key=value"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct engine_config c = {0};
        char store[MSG_SETTINGS_BYTES];
        struct err e = ERR_INIT;
        int rc = settings_read(&c, store, CASES[i].text, &e);
        if (rc != ERR_CONFIG || !strstr(e.text, CASES[i].expect))
            fail_msg("%s: %d, \"%s\"", CASES[i].text, rc, e.text);
    }
    char longest[2 * MSG_SETTINGS_BYTES];
    struct engine_config c = {0};
    char store[MSG_SETTINGS_BYTES];
    struct err e = ERR_INIT;
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    assert_int_equal(settings_read(&c, store, longest, &e), ERR_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_keys),
        cmocka_unit_test(test_wrong_ones_are_named),
    };
    return cmocka_run_group_tests_name("engine_settings", tests, NULL, NULL);
}
