/* text_chat_test.c - what a conversation brings to a template beside a role and a text: tools, tool
 * calls, parts, named variables, the clock; how what clients send is made to fit a template; and the
 * limits that hostile data meet. What templates render to is judged in text_judge_test.c. */
#include "base/clock.h"
#include "tests/tools/byte_model.h"
#include "text/prompt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum { MAX_OUT = 1 << 16 };

static json_t *parse(const char *text)
{
    json_error_t error;
    json_t *j = text ? json_loads(text, JSON_ALLOW_NUL | JSON_DECODE_ANY, &error) : NULL;
    if (text && !j)
        fail_msg("%s: %s", text, error.text);
    return j;
}

struct given {
    const char *messages, *tools, *documents, *kwargs; /* JSON */
};

static struct chat_template *compile(const char *source)
{
    struct chat_template *t = NULL;
    struct err e = ERR_INIT;
    if (chat_template_create(&t, source, strlen(source), &e) != 0)
        fail_msg("%s: %s", source, e.text);
    return t;
}

static int render(const char *source, const struct given *g, struct buf *out, struct err *e)
{
    struct chat_template *t = compile(source);
    json_t *parts[] = {parse(g->messages ? g->messages : "[]"), parse(g->tools),
                       parse(g->documents), parse(g->kwargs)};
    struct chat_inputs in = {
        .messages = parts[0],
        .tools = parts[1],
        .documents = parts[2],
        .kwargs = parts[3],
        .bos = "<s>",
        .unk = "<unk>",
        .add_generation_prompt = true,
        .now_s = 1750000000,
    };
    buf_init(out, MAX_OUT);
    int rc = chat_template_render_inputs(t, &in, out, e);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        json_decref(parts[i]);
    chat_template_destroy(t);
    return rc;
}

static void expect(const char *source, const struct given *g, const char *want)
{
    struct buf out;
    struct err e = ERR_INIT;
    if (render(source, g, &out, &e) != 0)
        fail_msg("%s: %s", source, e.text);
    assert_string_equal(buf_cstr(&out), want);
    buf_fini(&out);
}

static void expect_error(const char *source, const struct given *g, int code, const char *text)
{
    struct buf out;
    struct err e = ERR_INIT;
    int rc = render(source, g, &out, &e);
    if (rc != code || e.code != code || !strstr(e.text, text))
        fail_msg("%.80s: %d \"%s\", expected %d \"%s\"", source, rc, e.text, code, text);
    assert_int_equal(out.len, 0);
    buf_fini(&out);
}

static void test_data_keeps_its_order(void **state)
{
    const struct given g = {
        .messages =
            "[{\"role\": \"user\", \"z\": 1, \"content\": [{\"type\": \"text\", \"text\": \"é\"}], "
            "\"a\": null, \"f\": 1.0}]",
        .tools = "[{\"b\": true, \"a\": {\"y\": [], \"x\": {}}}]",
        .documents = "[{\"title\": \"t\"}]",
        .kwargs = "{\"enable_thinking\": false, \"level\": \"high\"}",
    };
    expect("{{ messages[0]|tojson }}", &g,
           "{\"role\": \"user\", \"z\": 1, \"content\": [{\"type\": \"text\", \"text\": \"é\"}], "
           "\"a\": null, \"f\": 1.0}");
    expect("{{ tools|tojson(indent=1) }}", &g,
           "[\n {\n  \"b\": true,\n  \"a\": {\n   \"y\": [],\n   \"x\": {}\n  }\n }\n]");
    expect("{{ documents[0].title }}{{ enable_thinking }}{{ level }}", &g, "tFalsehigh");
    expect("{{ bos_token }}{{ unk_token }}{{ eos_token is defined }}", &g, "<s><unk>False");
    expect("{{ tools }}{{ documents }}", &(struct given){0}, "NoneNone");
}

static void test_clock_is_the_callers(void **state)
{
    expect("{{ strftime_now('%d %b %Y %H:%M') }}|{{ strftime_now('%Z%z%f%%') }}",
           &(struct given){0}, "15 Jun 2025 15:06|000000%");
}

static void test_bad_data_is_named(void **state)
{
    expect_error("x", &(struct given){.messages = "{}"}, ERR_FORMAT, "messages: expected an array");
    expect_error("x", &(struct given){.tools = "\"x\""}, ERR_FORMAT, "tools: expected an array");
    expect_error("x", &(struct given){.kwargs = "[]"}, ERR_FORMAT,
                 "chat_template_kwargs: expected an object");
    expect_error("x", &(struct given){.kwargs = "{\"messages\": 1}"}, ERR_CONFIG,
                 "\"messages\" is set elsewhere");
    struct chat_template *t = compile("x");
    struct err e = ERR_INIT;
    struct buf out;
    buf_init(&out, MAX_OUT);
    json_t *bad = json_pack("[{s:o}]", "content", json_stringn_nocheck("a\xC3", 2));
    struct chat_inputs in = {.messages = bad};
    assert_int_equal(chat_template_render_inputs(t, &in, &out, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "messages: not valid UTF-8 at byte 1"));
    json_decref(bad);
    json_t *deep = json_array();
    for (int i = 0; i < 200; i++) {
        json_t *outer = json_array();
        json_array_append_new(outer, deep);
        deep = outer;
    }
    in.messages = deep;
    assert_int_equal(chat_template_render_inputs(t, &in, &out, &e), ERR_LIMIT);
    json_decref(deep);
    buf_fini(&out);
    chat_template_destroy(t);
}

/* ---- what clients send, as a template wants it ---- */

static void expect_adapted(const char *source, const char *messages, bool as_objects,
                           const char *want)
{
    struct chat_template *t = compile(source);
    struct err e = ERR_INIT;
    json_t *in = parse(messages), *out = NULL;
    if (chat_template_adapt(t, in, as_objects, &out, &e) != 0)
        fail_msg("%s: %s", messages, e.text);
    char *have = json_dumps(out, 0), *after = json_dumps(in, 0);
    json_t *original = parse(messages);
    assert_string_equal(have, want);
    assert_true(json_equal(in, original)); /* nothing of the caller's changed */
    free(have);
    free(after);
    json_decref(original);
    json_decref(in);
    json_decref(out);
    chat_template_destroy(t);
}

static const char TEXTS[] = "{% for m in messages %}{{ m.role + m['content'] }}{% endfor %}";
static const char PRINTS[] = "{% for m in messages %}{{ m.content }}{% endfor %}";
static const char PARTS[] =
    "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}";
static const char BOTH[] = "{% for m in messages %}{% if m.content is string %}{{ m.content }}"
                           "{% else %}{% for p in m.content %}{{ p['text'] }}{% endfor %}"
                           "{% endif %}{% endfor %}";

static void test_contents(void **state)
{
    static const char TWO[] = "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": "
                              "\"a\"}, {\"type\": \"text\", \"text\": \"b\"}]}]";
    static const char ONE[] = "[{\"role\": \"user\", \"content\": \"a\"}]";
    static const char JOINED[] = "[{\"role\": \"user\", \"content\": \"a\\nb\"}]";
    expect_adapted(TEXTS, TWO, true, JOINED);
    expect_adapted(PRINTS, TWO, true, JOINED);
    expect_adapted(PARTS, TWO, true, TWO);
    expect_adapted(BOTH, TWO, true, TWO);
    expect_adapted(TEXTS, ONE, true, ONE);
    expect_adapted(BOTH, ONE, true, ONE);
    expect_adapted(PARTS, ONE, true,
                   "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}]}]");
    expect_adapted(TEXTS, "[{\"role\": \"x\", \"content\": null}, {\"role\": \"y\"}]", true,
                   "[{\"role\": \"x\", \"content\": \"\"}, {\"role\": \"y\", \"content\": \"\"}]");
    expect_adapted(PARTS, "[{\"role\": \"x\", \"content\": null}]", true,
                   "[{\"role\": \"x\", \"content\": []}]");
    struct chat_template *t = compile(TEXTS);
    struct err e = ERR_INIT;
    json_t *in = parse("[{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]");
    json_t *out = NULL;
    assert_int_equal(chat_template_adapt(t, in, true, &out, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "message 0"));
    assert_non_null(strstr(e.text, "image_url"));
    json_decref(in);
    in = parse("[1]");
    assert_int_equal(chat_template_adapt(t, in, true, &out, &e), ERR_FORMAT);
    json_decref(in);
    chat_template_destroy(t);
}

#define CALL(arguments)                                                                            \
    "[{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": \"1\", "              \
    "\"function\": {\"name\": \"f\", \"arguments\": " arguments "}}]}]"

static void test_arguments(void **state)
{
    expect_adapted(TEXTS, CALL("\"{\\\"b\\\": 1, \\\"a\\\": {}}\""), true,
                   CALL("{\"b\": 1, \"a\": {}}"));
    expect_adapted(TEXTS, CALL("\"{\\\"b\\\": 1}\""), false, CALL("\"{\\\"b\\\": 1}\""));
    expect_adapted(TEXTS, CALL("{\"b\": 1}"), true, CALL("{\"b\": 1}"));
    expect_adapted(TEXTS, CALL("\"no object\""), true, CALL("\"no object\""));
    expect_adapted(TEXTS, CALL("\"[1]\""), true, CALL("\"[1]\""));
}

static void expect_prompt(const char *source, const char *messages, int code, const char *want)
{
    struct model_meta meta;
    struct tokenizer *tok = NULL;
    struct err e = ERR_INIT;
    struct token_vec ids = {0};
    byte_model_meta(&meta);
    assert_int_equal(tokenizer_create(&tok, &meta.tok, &e), 0);
    struct chat_template *t = compile(source);
    json_t *m = parse(messages);
    struct chat_inputs in = {.messages = m, .add_generation_prompt = true};
    int rc = prompt_from_request(t, tok, &in, 1 << 16, 1 << 16, &ids, &e);
    if (rc != code || e.code != code)
        fail_msg("%s: %d %s", source, rc, e.text);
    struct buf text;
    buf_init(&text, 1 << 16);
    for (size_t i = 0; i < ids.n; i++) {
        size_t n;
        const char *bytes = tokenizer_bytes(tok, ids.ids[i], true, &n);
        buf_put(&text, bytes, n);
    }
    assert_string_equal(buf_cstr(&text), want);
    buf_fini(&text);
    json_decref(m);
    token_vec_fini(&ids);
    chat_template_destroy(t);
    tokenizer_destroy(tok);
    meta_fini(&meta);
}

static void test_prompt_from_request(void **state)
{
    static const char SENT[] = CALL("\"{\\\"b\\\": 1}\"");
    expect_prompt(
        "{% for m in messages %}{{ m.tool_calls[0].function.arguments|tojson }}{% endfor %}"
        "{{ eos_token }}",
        SENT, 0, "{\"b\": 1}<|im_end|>");
    /* a template that joins arguments to a text gets them as they were sent */
    expect_prompt("{% for m in messages %}{{ '>' + m.tool_calls[0].function.arguments }}"
                  "{% endfor %}",
                  SENT, 0, ">{\"b\": 1}");
    expect_prompt("{{ messages[0].nothing.here }}", SENT, ERR_FORMAT, "");
    expect_prompt("{{ raise_exception('no') }}", SENT, ERR_CONFIG, "");
}

/* ---- limits ---- */

static void test_hostile_templates(void **state)
{
    static const char *const HOSTILE[] = {
        "{{ 'x'.center(10 ** 12) }}",
        "{{ 'x'.ljust(10 ** 12) }}",
        "{{ 'x'.zfill(10 ** 12) }}",
        "{{ 'x'|center(10 ** 12) }}",
        "{{ '\t'.expandtabs(10 ** 12) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%.1000000000f' % 1 }}",
        "{{ '%*d' % (10 ** 12, 1) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '{:.1000000000f}'.format(1.5) }}",
        "{{ ('%16000000s' * 20) % (('x',) * 20) }}",
        "{{ 'a' ~ ('%s' * 90000) % (('x' * 90000,) * 90000) }}",
        "{{ range(99999)|slice(10 ** 12)|list }}",
        "{{ [1]|batch(10 ** 12, 0)|list }}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% macro m() %}{{ caller() }}{% endmacro %}"
        "{% macro n() %}{% call m() %}{{ n() }}{% endcall %}{% endmacro %}{{ n() }}",
        "{% macro m() %}{{ m(*varargs) }}{% endmacro %}{{ m(*range(99999)) }}",
        "{% set ns = namespace(d={}) %}{% for i in range(99) %}{% set ns.d = {'a': ns.d, 'b': "
        "ns.d} %}"
        "{% endfor %}{{ ns.d|tojson }}",
        "{% set ns = namespace(t=(1,)) %}{% for i in range(60) %}{% set ns.t = (ns.t, ns.t) %}"
        "{% endfor %}{{ {ns.t: 1} }}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}"
        "{% endfor %}",
        "{{ range(99999)|map('string')|join('x' * 100000) }}",
        "{{ (range(99999)|list * 99999)|sort }}",
        "{% for i in range(99999) %}{{ dict(range(99999)|map('string')|batch(2)) }}{% endfor %}",
        "{{ (range(99999)|list)|unique|list|length }}",
    };
    uint64_t start = clock_now_us();
    for (size_t i = 0; i < sizeof HOSTILE / sizeof HOSTILE[0]; i++)
        expect_error(HOSTILE[i], &(struct given){0}, ERR_LIMIT, "");
    assert_true(clock_now_us() - start < 120000000);
}

/* A template that is cheap for a short conversation may be costly for the one a client sends. */
static void test_hostile_data(void **state)
{
    struct buf b;
    buf_init(&b, 4 << 20);
    buf_puts(&b, "[");
    for (int i = 0; i < 20000; i++)
        buf_printf(&b, "%s{\"role\": \"user\", \"content\": \"%d\"}", i ? ", " : "", i);
    buf_puts(&b, "]");
    const struct given g = {.messages = buf_cstr(&b)};
    expect_error("{% for m in messages %}{% for n in messages %}{% if m == n %}{% endif %}"
                 "{% endfor %}{% endfor %}",
                 &g, ERR_LIMIT, "the template takes");
    expect("{{ messages|length }}{{ messages[-1].content }}", &g, "2000019999");
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_data_keeps_its_order),
        cmocka_unit_test(test_clock_is_the_callers),
        cmocka_unit_test(test_bad_data_is_named),
        cmocka_unit_test(test_contents),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_prompt_from_request),
        cmocka_unit_test(test_hostile_templates),
        cmocka_unit_test(test_hostile_data),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    setenv("TZ", "UTC", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
