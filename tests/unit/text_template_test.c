/* text_template_test.c - chat templates: what is refused and how it is said, the limits, and use
 * from several threads. What templates render to is judged by Jinja2 itself in
 * text_judge_test.c. */
#include "base/clock.h"
#include "text/template.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const struct chat_message HELLO[] = {{"user", "Hello", 5}};

/* Compile and render; the code of whichever fails. */
static int render(const char *source, size_t max_out, struct buf *out, struct err *e)
{
    struct chat_template *t = NULL;
    int rc = chat_template_create(&t, source, strlen(source), e);
    buf_init(out, max_out);
    if (rc == 0)
        rc = chat_template_render(t, HELLO, 1, "<s>", NULL, true, out, e);
    chat_template_destroy(t);
    return rc;
}

static void expect_output(const char *source, const char *want)
{
    struct buf out;
    struct err e = ERR_INIT;
    if (render(source, 1 << 16, &out, &e) != 0)
        fail_msg("%s: %s", source, e.text);
    assert_string_equal(buf_cstr(&out), want);
    buf_fini(&out);
}

static void expect_error(const char *source, int code, const char *text)
{
    struct buf out;
    struct err e = ERR_INIT;
    int rc = render(source, 1 << 16, &out, &e);
    if (rc != code || e.code != code || !strstr(e.text, text))
        fail_msg("%.60s: %d \"%s\", expected %d \"%s\"", source, rc, e.text, code, text);
    assert_int_equal(out.len, 0);
    buf_fini(&out);
}

static void test_variables(void **state)
{
    expect_output("{{ bos_token }}|{{ eos_token }}|{{ eos_token is defined }}", "<s>||False");
    expect_output("{{ add_generation_prompt }} {{ tools is none }} {{ documents is none }}",
                  "True True True");
    expect_output("{{ messages }}", "[{'role': 'user', 'content': 'Hello'}]");
    expect_output("", "");
    expect_output("\n", "");
}

static void test_syntax_errors_name_line_and_find(void **state)
{
    expect_error("a\nb\n{% if %}", ERR_FORMAT, "line 3: expected an expression, found %}");
    expect_error("{% if x %}", ERR_FORMAT, "endif");
    expect_error("{% for x in y %}{% endif %}", ERR_FORMAT, "\"endif\"");
    expect_error("{{ a b }}", ERR_FORMAT, "expected }}, found \"b\"");
    expect_error("{{ 'abc }}", ERR_FORMAT, "a string has no end");
    expect_error("\n{# abc", ERR_FORMAT, "line 2: a comment has no end");
    expect_error("{{ (1 }}", ERR_FORMAT, "bracket");
    expect_error("{{ 1 ? 2 }}", ERR_FORMAT, "unexpected character");
    expect_error("{% include 'x' %}", ERR_FORMAT, "\"include\" is not supported");
    expect_error("{% break %}", ERR_FORMAT, "outside of a loop");
    expect_error("{% for x in y %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", ERR_FORMAT,
                 "outside of a loop");
    expect_error("{% set true = 1 %}", ERR_FORMAT, "cannot assign");
    expect_error("{{ \xFF }}", ERR_FORMAT, "byte 3");
    expect_error("{{ '\\uD800' }}", ERR_FORMAT, "escape");
}

static void test_runtime_errors_name_line(void **state)
{
    expect_error("\n{{ x.y }}", ERR_FORMAT, "line 2: \"x\" is undefined");
    expect_error("\n\n{{ 'a' + 1 }}", ERR_FORMAT, "line 3: cannot apply + to str and int");
    expect_error("{{ 1 // 0 }}", ERR_FORMAT, "division by zero");
    expect_error("{{ 'x'|frobnicate }}", ERR_FORMAT, "no filter named \"frobnicate\"");
    expect_error("{{ 'x' is frobnicated }}", ERR_FORMAT, "no test named \"frobnicated\"");
    expect_error("{{ frobnicate(1) }}", ERR_FORMAT, "\"frobnicate\" is undefined");
    expect_error("{{ 'a'.upper(1) }}", ERR_FORMAT, "upper takes at most 0 arguments");
    expect_error("{{ 'a'|trim(nope=1) }}", ERR_FORMAT, "\"nope\" is not known");
    expect_error("{{ messages|tojson(indent=x) }}", ERR_FORMAT, "integer");
    expect_error("{% for a, b in [[1]] %}{% endfor %}", ERR_FORMAT, "1 values for 2 names");
    expect_error("{% set messages.x = 1 %}", ERR_FORMAT, "only of a namespace");
    /* an unknown filter that is never reached does no harm */
    expect_output("{% if false %}{{ 'x'|frobnicate }}{% endif %}ok", "ok");
}

static void test_raise_exception(void **state)
{
    expect_error("{{ raise_exception('Roles must alternate') }}", ERR_CONFIG,
                 "Roles must alternate");
    expect_error("{% macro m() %}{{ raise_exception('é' * 400) }}{% endmacro %}{{ m() }}",
                 ERR_CONFIG, "éé");
}

static void test_limits(void **state)
{
    static const char *const HOSTILE[] = {
        "{% macro m(n) %}{{ m(n) }}{% endmacro %}{{ m(0) }}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}"
        "{% endfor %}",
        "{% set ns = namespace(l=[]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}"
        "{% endfor %}{{ ns.l }}",
        "{% set ns = namespace(l=[], m=[]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}"
        "{% set ns.m = [ns.m, ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
        "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}",
        "{{ 'x' * 9223372036854775807 }}",
        "{{ [1] * 9223372036854775807 }}",
        "{{ 9223372036854775807 + 1 }}",
        "{{ 3 ** 999999999999 }}",
        "{{ range(1000000)|list }}",
        "{{ 'a\nb'|indent(9000000000000) }}",
        "{{ ('a' * 100000)|replace('a', 'b' * 100000) }}",
        "{{ 'x' * 70000 }}", /* more than the caller's buffer may hold */
        "{{ 99999999999999999999 }}",
        "{% set s = 'a' * 4000000 %}{% for i in range(99999) %}{{ s.startswith(s) }}{% endfor %}",
        "{% set s = 'a' * 4000000 %}{% for i in range(99999) %}{{ s == s }}{% endfor %}",
        "{% set s = 'a' * 4000000 %}{{ s.rfind('a' * 2000000 ~ 'b') }}",
        "{% set s = 'a' * 4000000 %}{{ s.rsplit('a' * 2000000 ~ 'b') }}",
        "{% set s = 'a' * 4000000 %}{% for i in range(99999) %}{{ s|length }}{% endfor %}",
        "{% set s = 'a' * 4000000 %}{% for i in range(99999) %}{{ s[3999999] }}{% endfor %}",
        "{% set s = 'a' * 4000000 %}{% for i in range(99999) %}{{ 'b' in s }}{% endfor %}",
        "{% set s = 'a' * 4000000 %}{% for i in range(99999) %}{% if s|upper %}{% endif %}"
        "{% endfor %}",
    };
    uint64_t start = clock_now_us();
    for (size_t i = 0; i < sizeof HOSTILE / sizeof HOSTILE[0]; i++)
        expect_error(HOSTILE[i], ERR_LIMIT, "");
    assert_true(clock_now_us() - start < 60000000);
}

static void expect_nested(const char *open, const char *middle, const char *close, int times)
{
    struct buf b;
    buf_init(&b, 1 << 20);
    buf_puts(&b, "{{ ");
    for (int i = 0; i < times; i++)
        buf_puts(&b, open);
    buf_puts(&b, middle);
    for (int i = 0; i < times; i++)
        buf_puts(&b, close);
    buf_puts(&b, " }}");
    struct buf out;
    struct err e = ERR_INIT;
    int rc = render(buf_cstr(&b), 1 << 16, &out, &e);
    assert_true(times > 100 ? rc == ERR_LIMIT || rc == ERR_FORMAT : rc == 0);
    buf_fini(&out);
    buf_fini(&b);
}

static void test_nesting(void **state)
{
    for (int times = 30; times <= 30000; times *= 1000) {
        expect_nested("(", "1", ")", times);
        expect_nested("[", "1", "]", times);
        expect_nested("not ", "1", "", times);
        expect_nested("- ", "1", "", times);
        expect_nested("1 + ", "1", "", times);
        expect_nested("1 if 1 else ", "1", "", times);
        expect_nested("", "'a'", "|trim", times);
        expect_nested("", "'a'", ".upper()", times);
    }
}

static void test_source_too_large(void **state)
{
    size_t n = 300 << 10;
    char *source = malloc(n);
    memset(source, 'x', n);
    struct chat_template *t = NULL;
    assert_int_equal(chat_template_create(&t, source, n, NULL), ERR_LIMIT);
    free(source);
}

static void test_messages_are_checked(void **state)
{
    const struct chat_message bad[] = {{"user", "ok", 2}, {"user", "a\xC3", 2}};
    struct chat_template *t = NULL;
    struct buf out;
    struct err e = ERR_INIT;
    buf_init(&out, 100);
    assert_int_equal(chat_template_create(&t, "x", 1, &e), 0);
    assert_int_equal(chat_template_render(t, bad, 2, "", "", true, &out, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "message 1"));
    assert_non_null(strstr(e.text, "byte 1"));
    chat_template_destroy(t);
    buf_fini(&out);
}

/* A long conversation and a large message stay inside the budgets. */
static void test_large_conversation(void **state)
{
    enum { MESSAGES = 4000, LARGE = 4 << 20 };
    static const char SOURCE[] =
        "{% for m in messages %}{% if m.role == 'user' %}{{ '<u>' + m.content|trim + '</u>\n' }}"
        "{% else %}{{ '<a>' + m['content'].strip() + '</a>\n' }}{% endif %}{% endfor %}";
    struct chat_message *m = calloc(MESSAGES, sizeof *m);
    char *large = malloc(LARGE);
    memset(large, 'y', LARGE);
    for (int i = 0; i < MESSAGES; i++)
        m[i] = (struct chat_message){i % 2 ? "assistant" : "user", "  hello there  ", 15};
    m[0] = (struct chat_message){"user", large, LARGE};
    struct chat_template *t = NULL;
    struct buf out;
    struct err e = ERR_INIT;
    buf_init(&out, 64 << 20);
    assert_int_equal(chat_template_create(&t, SOURCE, sizeof SOURCE - 1, &e), 0);
    if (chat_template_render(t, m, MESSAGES, "", "", true, &out, &e) != 0)
        fail_msg("%s", e.text);
    assert_int_equal(out.len, LARGE + 8 + (MESSAGES - 1) * (11 + 8));
    chat_template_destroy(t);
    buf_fini(&out);
    free(large);
    free(m);
}

static void *render_often(void *arg)
{
    const struct chat_template *t = arg;
    for (int i = 0; i < 200; i++) {
        struct buf out;
        buf_init(&out, 1 << 16);
        int rc = chat_template_render(t, HELLO, 1, "<s>", "</s>", true, &out, NULL);
        bool same = rc == 0 && strcmp(buf_cstr(&out), "<s>[0]user: HELLO;") == 0;
        buf_fini(&out);
        if (!same)
            return "differs";
    }
    return NULL;
}

static void test_threads(void **state)
{
    enum { THREADS = 4 };
    static const char SOURCE[] =
        "{% macro show(m, i) %}[{{ i }}]{{ m.role }}: {{ m.content|upper }}"
        "{% endmacro %}{{ bos_token }}{% for m in messages %}"
        "{{ show(m, loop.index0) }};{% endfor %}";
    struct chat_template *t = NULL;
    assert_int_equal(chat_template_create(&t, SOURCE, sizeof SOURCE - 1, NULL), 0);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, render_often, t), 0);
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        assert_null(result);
    }
    chat_template_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variables),
        cmocka_unit_test(test_syntax_errors_name_line_and_find),
        cmocka_unit_test(test_runtime_errors_name_line),
        cmocka_unit_test(test_raise_exception),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_source_too_large),
        cmocka_unit_test(test_messages_are_checked),
        cmocka_unit_test(test_large_conversation),
        cmocka_unit_test(test_threads),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
