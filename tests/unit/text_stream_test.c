/* text_stream_test.c - the detokenizer and stop strings: results must not depend on how the
 * stream is cut. */
#include "text/stops.h"
#include "text/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* ---- detokenizer ---- */

static void expect_text(const char *bytes, size_t n, const char *want)
{
    for (size_t cut = 1; cut <= n; cut++) {
        struct detok d;
        struct buf out;
        detok_init(&d);
        buf_init(&out, 1 << 16);
        for (size_t i = 0; i < n; i += cut)
            detok_push(&d, bytes + i, n - i < cut ? n - i : cut, &out);
        detok_finish(&d, &out);
        assert_string_equal(buf_cstr(&out), want);
        buf_fini(&out);
    }
}
#define EXPECT_TEXT(bytes, want) expect_text(bytes, sizeof(bytes) - 1, want)

#define R "\xEF\xBF\xBD"

static void test_whole_characters(void **state)
{
    EXPECT_TEXT("plain", "plain");
    EXPECT_TEXT("gr\xC3\xBC\xC3\x9F \xE4\xB8\x96 \xF0\x9F\x98\x80!", "grüß 世 😀!");
    EXPECT_TEXT("\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF",
                "\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF");
}

/* What Python's bytes.decode("utf-8", "replace") gives. */
static void test_wrong_bytes(void **state)
{
    EXPECT_TEXT("a\xFF"
                "b",
                "a" R "b");
    EXPECT_TEXT("\x80\x81", R R);
    EXPECT_TEXT("\xC3", R);
    EXPECT_TEXT("\xC3(", R "(");
    EXPECT_TEXT("\xE4\xB8", R);
    EXPECT_TEXT("\xE4\xB8x", R "x");
    EXPECT_TEXT("\xF0\x9F\x98", R);
    EXPECT_TEXT("\xF0\x9F\x98\xF0\x9F\x98\x80", R "😀");
    EXPECT_TEXT("\xF0\x9F\xC3\xBC", R "ü");
    EXPECT_TEXT("\xC0\x80", R R);
    EXPECT_TEXT("\xE0\x80\x80", R R R);
    EXPECT_TEXT("\xED\xA0\x80", R R R);
    EXPECT_TEXT("\xF0\x80\x80\x80", R R R R);
    EXPECT_TEXT("\xF4\x90\x80\x80", R R R R);
    EXPECT_TEXT("\xF5\x80", R R);
}

static void test_held_until_decided(void **state)
{
    struct detok d;
    struct buf out;
    detok_init(&d);
    buf_init(&out, 64);
    detok_push(&d, "\xF0\x9F", 2, &out);
    assert_int_equal(out.len, 0);
    detok_push(&d, "", 0, &out);
    detok_push(&d, "\x98", 1, &out);
    assert_int_equal(out.len, 0);
    detok_push(&d, "\x80", 1, &out);
    assert_string_equal(buf_cstr(&out), "😀");
    detok_finish(&d, &out);
    assert_string_equal(buf_cstr(&out), "😀");
    buf_fini(&out);
}

/* ---- stop strings ---- */

static struct stops *make_stops(const char *const *strings, size_t n)
{
    size_t lens[STOPS_MAX];
    struct stops *s = NULL;
    for (size_t i = 0; i < n; i++)
        lens[i] = strlen(strings[i]);
    assert_int_equal(stops_create(&s, strings, lens, n, NULL), 0);
    return s;
}

static bool run(const char *const *strings, size_t n, const char *text, size_t cut, struct buf *out)
{
    struct stops *s = make_stops(strings, n);
    size_t len = strlen(text);
    bool met = false;
    for (size_t i = 0; i < len && !met; i += cut)
        met = stops_push(s, text + i, len - i < cut ? len - i : cut, out);
    stops_finish(s, out);
    stops_destroy(s);
    return met;
}

/* The first end of any string; of those that end there the longest. */
static size_t shown_by_definition(const char *const *strings, size_t n, const char *text, bool *met)
{
    size_t len = strlen(text);
    for (size_t end = 1; end <= len; end++) {
        size_t longest = 0;
        for (size_t k = 0; k < n; k++) {
            size_t m = strlen(strings[k]);
            if (m <= end && memcmp(text + end - m, strings[k], m) == 0 && m > longest)
                longest = m;
        }
        if (longest) {
            *met = true;
            return end - longest;
        }
    }
    *met = false;
    return len;
}

static void test_stops_by_definition(void **state)
{
    srand(3);
    for (int round = 0; round < 3000; round++) {
        char strings[4][8], text[40];
        const char *pointers[4];
        size_t n = (size_t)rand() % 5, len = (size_t)rand() % 39;
        for (size_t k = 0; k < n; k++) {
            size_t m = 1 + (size_t)rand() % 6;
            for (size_t i = 0; i < m; i++)
                strings[k][i] = (char)('a' + rand() % 2);
            strings[k][m] = 0;
            pointers[k] = strings[k];
        }
        for (size_t i = 0; i < len; i++)
            text[i] = (char)('a' + rand() % 3 % 2);
        text[len] = 0;
        bool want_met;
        size_t want = shown_by_definition(pointers, n, text, &want_met);
        for (size_t cut = 1; cut <= 7; cut += 2) {
            struct buf out;
            buf_init(&out, 1 << 10);
            assert_int_equal(run(pointers, n, text, cut, &out), want_met);
            assert_int_equal(out.len, want);
            assert_true(want == 0 || memcmp(out.data, text, want) == 0);
            buf_fini(&out);
        }
    }
}

/* No more than what may still become a stop string is held back. */
static void test_shown_at_once(void **state)
{
    static const char *const STOPS[] = {"\n\nUser:", "END"};
    struct stops *s = make_stops(STOPS, 2);
    struct buf out;
    buf_init(&out, 1 << 10);
    assert_false(stops_push(s, "Hello", 5, &out));
    assert_string_equal(buf_cstr(&out), "Hello");
    assert_false(stops_push(s, " E", 2, &out));
    assert_string_equal(buf_cstr(&out), "Hello ");
    assert_false(stops_push(s, "NE", 2, &out)); /* "EN" cannot be END any more, "E" can */
    assert_string_equal(buf_cstr(&out), "Hello EN");
    assert_false(stops_push(s, "x\n\n", 3, &out));
    assert_string_equal(buf_cstr(&out), "Hello ENEx");
    assert_true(stops_push(s, "User: hi", 8, &out));
    stops_finish(s, &out);
    assert_string_equal(buf_cstr(&out), "Hello ENEx");
    buf_fini(&out);
    stops_destroy(s);
}

static void test_finish_shows_the_rest(void **state)
{
    static const char *const STOPS[] = {"abcd"};
    struct buf out;
    buf_init(&out, 1 << 10);
    assert_false(run(STOPS, 1, "xxabc", 1, &out));
    assert_string_equal(buf_cstr(&out), "xxabc");
    buf_fini(&out);
}

static void test_stop_limits(void **state)
{
    static char long_text[STOPS_MAX_BYTES + 2];
    const char *strings[STOPS_MAX + 1];
    size_t lens[STOPS_MAX + 1];
    struct stops *s = NULL;
    struct err e = ERR_INIT;
    memset(long_text, 'a', STOPS_MAX_BYTES + 1);
    for (int i = 0; i <= STOPS_MAX; i++) {
        strings[i] = long_text;
        lens[i] = STOPS_MAX_BYTES;
    }
    assert_int_equal(stops_create(&s, strings, lens, STOPS_MAX + 1, &e), ERR_LIMIT);
    lens[3] = STOPS_MAX_BYTES + 1;
    assert_int_equal(stops_create(&s, strings, lens, STOPS_MAX, &e), ERR_LIMIT);
    lens[3] = 0;
    assert_int_equal(stops_create(&s, strings, lens, STOPS_MAX, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "4"));
    lens[3] = STOPS_MAX_BYTES;
    assert_int_equal(stops_create(&s, strings, lens, STOPS_MAX, &e), 0);
    struct buf out; /* one byte short of a match, held back; then the match */
    buf_init(&out, 1 << 12);
    assert_false(stops_push(s, long_text, STOPS_MAX_BYTES - 1, &out));
    assert_int_equal(out.len, 0);
    assert_true(stops_push(s, "a", 1, &out));
    assert_int_equal(out.len, 0);
    buf_fini(&out);
    stops_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_characters),   cmocka_unit_test(test_wrong_bytes),
        cmocka_unit_test(test_held_until_decided), cmocka_unit_test(test_stops_by_definition),
        cmocka_unit_test(test_shown_at_once),      cmocka_unit_test(test_finish_shows_the_rest),
        cmocka_unit_test(test_stop_limits),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
