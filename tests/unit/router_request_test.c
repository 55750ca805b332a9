/* router_request_test.c - request bodies: what is accepted as what, and which error each fault
 * gives. */
#include "router/api_request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define CHAT "\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define COMP "\"model\":\"m\",\"prompt\":\"hi\""

/* Runs with the body ending at an unreadable byte (asan sees it): no NUL follows. */
static int parse(struct api_request *r, enum api_kind kind, const char *body, size_t n,
                 struct api_error *a)
{
    char *copy = malloc(n ? n : 1);
    memcpy(copy, body, n);
    int rc = api_request_parse(r, kind, copy, n, a);
    free(copy);
    return rc;
}

struct bad {
    const char *body;
    const char *param; /* NULL: none */
    const char *code;
    const char *says; /* part of the message, or NULL */
};

static void expect_bad(enum api_kind kind, const struct bad *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct api_request r;
        struct api_error a;
        int rc = parse(&r, kind, b[i].body, strlen(b[i].body), &a);
        if (rc != -1 || a.status != 400 || strcmp(a.param, b[i].param ? b[i].param : "") ||
            !a.code || strcmp(a.code, b[i].code) || (b[i].says && !strstr(a.message, b[i].says)))
            fail_msg("%s: rc %d status %d param '%s' code '%s' message '%s'", b[i].body, rc,
                     a.status, a.param, a.code ? a.code : "-", a.message);
        api_request_fini(&r);
    }
}

static void test_json_faults(void **state)
{
    static const struct bad BAD[] = {
        {"", NULL, "invalid_json", "empty"},
        {" ", NULL, "invalid_json", "line 1"},
        {"{", NULL, "invalid_json", "line 1 column 1"},
        {"[]", NULL, "invalid_json", "object"},
        {"\"x\"", NULL, "invalid_json", NULL},
        {"null", NULL, "invalid_json", NULL},
        {"{\"model\":\"m\",}", NULL, "invalid_json", "byte 14"},
        {"{\n\"model\":\n  tru}", NULL, "invalid_json", "line 3 column 5"},
        {"{'model':1}", NULL, "invalid_json", NULL},
        {"{" CHAT "} x", NULL, "invalid_json", "end of file"},
        {"{" CHAT "}{", NULL, "invalid_json", NULL},
        {"{\"model\":\"a\",\"model\":\"b\"}", NULL, "invalid_json", "duplicate"},
        {"{" CHAT ",\"metadata\":{\"a\":1,\"a\":2}}", NULL, "invalid_json", "duplicate"},
        {"{" CHAT ",\"seed\":99999999999999999999}", NULL, "invalid_json", "integer"},
        {"{" CHAT ",\"temperature\":1e999}", NULL, "invalid_json", NULL},
        {"{" CHAT ",\"temperature\":NaN}", NULL, "invalid_json", NULL},
        {"{" CHAT ",\"temperature\":01}", NULL, "invalid_json", NULL},
        {"{\"model\":\"\\ud800\"}", NULL, "invalid_json", NULL},
        {"{\"model\":\"a\tb\"}", NULL, "invalid_json", NULL},
        {"{\"model\":\"\xff\"}", NULL, "invalid_utf8", "byte 0xff at line 1 column 11 (byte 10)"},
        {"{\"model\":\n\"\xc0\xaf\"}", NULL, "invalid_utf8", "line 2 column 2 (byte 11)"},
        {"{\"model\":\"\xed\xa0\x80\"}", NULL, "invalid_utf8", NULL},
        {"{\"model\":\"\xf4\x90\x80\x80\"}", NULL, "invalid_utf8", NULL},
        {"{\"model\":\"\xe2\x82\"}", NULL, "invalid_utf8", NULL},
        {"{\"\\u0000\":1}", NULL, "invalid_json", NULL},
    };
    expect_bad(API_CHAT, BAD, sizeof BAD / sizeof BAD[0]);
    expect_bad(API_COMPLETION, BAD, sizeof BAD / sizeof BAD[0]);
}

static void test_depth_and_nul(void **state)
{
    struct api_request r;
    struct api_error a;
    char deep[4096];
    for (int n = 1; n <= 2000; n *= 10) {
        size_t len = (size_t)sprintf(deep, "{" CHAT ",\"metadata\":");
        memset(deep + len, '[', (size_t)n);
        memset(deep + len + n, ']', (size_t)n);
        len += 2 * (size_t)n;
        deep[len++] = '}';
        int rc = parse(&r, API_CHAT, deep, len, &a);
        assert_int_equal(rc, n + 1 > API_MAX_DEPTH ? -1 : 0);
        if (rc)
            assert_non_null(strstr(a.message, "nested deeper than 64 levels"));
        api_request_fini(&r);
    }
    memset(deep, '[', sizeof deep); /* never closed */
    assert_int_equal(parse(&r, API_CHAT, deep, sizeof deep, &a), -1);
    api_request_fini(&r);
    /* a NUL is a character like others in a text, and none in a name */
    static const char NUL[] =
        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\\u0000b\"}]}";
    assert_int_equal(parse(&r, API_CHAT, NUL, sizeof NUL - 1, &a), 0);
    assert_int_equal(r.messages[0].content_bytes, 3);
    api_request_fini(&r);
    static const char NAME[] = "{\"model\":\"m\\u0000\",\"messages\":[]}";
    assert_int_equal(parse(&r, API_CHAT, NAME, sizeof NAME - 1, &a), -1);
    assert_string_equal(a.param, "model");
    api_request_fini(&r);
    static const char RAW[] = "{\"model\":\"m\"\0}";
    assert_int_equal(parse(&r, API_CHAT, RAW, sizeof RAW - 1, &a), -1);
    api_request_fini(&r);
}

#define C(extra)    "{" CHAT "," extra "}"
#define P(extra)    "{" COMP "," extra "}"
#define M(messages) "{\"model\":\"m\",\"messages\":" messages "}"
#define U(content)  M("[{\"role\":\"user\",\"content\":" content "}]")

static void test_bad_both(void **state)
{
#define BOTH_CASES(X)                                                                              \
    {X("\"foo\":1"), "foo", "unknown_parameter", "Unrecognized request argument supplied: foo"},   \
        {X("\"Model\":1"), "Model", "unknown_parameter", NULL},                                    \
        {X("\"\":1"), NULL, "unknown_parameter", NULL},                                            \
        {X("\"foo\":null"), "foo", "unknown_parameter", NULL},                                     \
        {X("\"max_tokens\":0"), "max_tokens", "invalid_value", "got 0"},                           \
        {X("\"max_tokens\":-1"), "max_tokens", "invalid_value", NULL},                             \
        {X("\"max_tokens\":2147483648"), "max_tokens", "invalid_value", NULL},                     \
        {X("\"max_tokens\":1.0"), "max_tokens", "invalid_type", "integer"},                        \
        {X("\"max_tokens\":\"5\""), "max_tokens", "invalid_type", NULL},                           \
        {X("\"max_tokens\":true"), "max_tokens", "invalid_type", NULL},                            \
        {X("\"max_tokens\":[]"), "max_tokens", "invalid_type", NULL},                              \
        {X("\"temperature\":-0.1"), "temperature", "invalid_value", "0 to 2"},                     \
        {X("\"temperature\":2.01"), "temperature", "invalid_value", NULL},                         \
        {X("\"temperature\":\"1\""), "temperature", "invalid_type", NULL},                         \
        {X("\"temperature\":{}"), "temperature", "invalid_type", NULL},                            \
        {X("\"top_p\":1.1"), "top_p", "invalid_value", NULL},                                      \
        {X("\"top_p\":-1"), "top_p", "invalid_value", NULL},                                       \
        {X("\"top_p\":[]"), "top_p", "invalid_type", NULL},                                        \
        {X("\"top_k\":-2"), "top_k", "invalid_value", NULL},                                       \
        {X("\"top_k\":1.5"), "top_k", "invalid_type", NULL},                                       \
        {X("\"seed\":1.5"), "seed", "invalid_type", NULL},                                         \
        {X("\"seed\":\"1\""), "seed", "invalid_type", NULL},                                       \
        {X("\"stop\":1"), "stop", "invalid_type", NULL},                                           \
        {X("\"stop\":\"\""), "stop", "invalid_value", "got 0"},                                    \
        {X("\"stop\":[\"a\",1]"), "stop", "invalid_type", NULL},                                   \
        {X("\"stop\":[\"a\",\"\"]"), "stop", "invalid_value", NULL},                               \
        {X("\"stop\":[null]"), "stop", "invalid_type", NULL},                                      \
        {X("\"stop\":{}"), "stop", "invalid_type", NULL},                                          \
        {X("\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"a\",\"b\",\"c\","    \
           "\"d\",\"e\",\"f\",\"g\",\"h\"]"),                                                      \
         "stop", "array_above_max_length", "got 17"},                                              \
        {X("\"stream\":1"), "stream", "invalid_type", "boolean"},                                  \
        {X("\"stream\":\"true\""), "stream", "invalid_type", NULL},                                \
        {X("\"stream_options\":{}"), "stream_options", "invalid_parameter_combination", NULL},     \
        {X("\"stream\":false,\"stream_options\":{\"include_usage\":true}"), "stream_options",      \
         "invalid_parameter_combination", NULL},                                                   \
        {X("\"stream\":true,\"stream_options\":[]"), "stream_options", "invalid_type", NULL},      \
        {X("\"stream\":true,\"stream_options\":{\"include_usage\":1}"),                            \
         "stream_options.include_usage", "invalid_type", NULL},                                    \
        {X("\"stream\":true,\"stream_options\":{\"x\":1}"), "stream_options", "unknown_parameter", \
         "stream_options.x"},                                                                      \
        {X("\"stream\":true,\"stream_options\":{\"continuous_usage_stats\":true}"),                \
         "stream_options", "unsupported_parameter", NULL},                                         \
        {X("\"n\":0"), "n", "invalid_value", NULL}, {X("\"n\":129"), "n", "invalid_value", NULL},  \
        {X("\"n\":\"1\""), "n", "invalid_type", NULL},                                             \
        {X("\"ignore_eos\":1"), "ignore_eos", "invalid_type", NULL},                               \
        {X("\"frequency_penalty\":\"0\""), "frequency_penalty", "invalid_type", NULL},             \
    {                                                                                              \
        X("\"skip_special_tokens\":false"), "skip_special_tokens", "unsupported_parameter", NULL   \
    }
    static const struct bad CHAT_BAD[] = {BOTH_CASES(C)};
    static const struct bad COMP_BAD[] = {BOTH_CASES(P)};
    expect_bad(API_CHAT, CHAT_BAD, sizeof CHAT_BAD / sizeof CHAT_BAD[0]);
    expect_bad(API_COMPLETION, COMP_BAD, sizeof COMP_BAD / sizeof COMP_BAD[0]);
}

static void test_bad_chat(void **state)
{
    static const struct bad BAD[] = {
        {"{}", "model", "missing_required_parameter", NULL},
        {"{\"model\":\"m\"}", "messages", "missing_required_parameter", NULL},
        {"{\"model\":null,\"messages\":[]}", "messages", "empty_array", NULL},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", "model",
         "missing_required_parameter", NULL},
        {"{\"model\":1}", "model", "invalid_type", NULL},
        {"{\"model\":\"\"}", "model", "invalid_value", NULL},
        {"{\"model\":[\"m\"]}", "model", "invalid_type", NULL},
        {M("null"), "messages", "missing_required_parameter", NULL},
        {M("[]"), "messages", "empty_array", NULL},
        {M("{}"), "messages", "invalid_type", NULL},
        {M("\"hi\""), "messages", "invalid_type", NULL},
        {M("[1]"), "messages[0]", "invalid_type", NULL},
        {M("[{}]"), "messages[0].role", "missing_required_parameter", NULL},
        {M("[{\"role\":1}]"), "messages[0].role", "missing_required_parameter", NULL},
        {M("[{\"role\":\"tool\",\"content\":\"x\"}]"), "messages[0].role", "invalid_value",
         "'tool'"},
        {M("[{\"role\":\"function\",\"content\":\"x\"}]"), "messages[0].role", "invalid_value",
         NULL},
        {M("[{\"role\":\"User\",\"content\":\"x\"}]"), "messages[0].role", "invalid_value", NULL},
        {M("[{\"role\":\"user\"}]"), "messages[0].content", "missing_required_parameter", NULL},
        {U("null"), "messages[0].content", "missing_required_parameter", NULL},
        {U("1"), "messages[0].content", "invalid_type", NULL},
        {U("{}"), "messages[0].content", "invalid_type", NULL},
        {U("[]"), "messages[0].content", "invalid_value", "empty"},
        {U("[\"x\"]"), "messages[0].content[0]", "invalid_type", NULL},
        {U("[{\"text\":\"x\"}]"), "messages[0].content[0]", "missing_required_parameter", NULL},
        {U("[{\"type\":\"text\"}]"), "messages[0].content[0]", "invalid_type", NULL},
        {U("[{\"type\":\"text\",\"text\":1}]"), "messages[0].content[0]", "invalid_type", NULL},
        {U("[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"image_url\",\"image_url\":{}}]"),
         "messages[0].content[1]", "invalid_value", "'image_url' is not supported"},
        {U("[{\"type\":\"input_audio\"}]"), "messages[0].content[0]", "invalid_value", NULL},
        {U("[{\"type\":\"text\",\"text\":\"a\",\"x\":1}]"), "messages[0].content[0]",
         "unknown_parameter", NULL},
        {M("[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"b\",\"x\":1}]"),
         "messages[1].x", "unknown_parameter", NULL},
        {M("[{\"role\":\"user\",\"content\":\"a\",\"name\":5}]"), "messages[0].name",
         "invalid_type", NULL},
        {M("[{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":[{}]}]"),
         "messages[0].tool_calls", "unsupported_parameter", NULL},
        {M("[{\"role\":\"assistant\",\"content\":\"a\",\"audio\":{\"id\":\"x\"}}]"),
         "messages[0].audio", "unsupported_parameter", NULL},
        {C("\"prompt\":\"x\""), "prompt", "unknown_parameter", NULL},
        {C("\"echo\":false"), "echo", "unknown_parameter", NULL},
        {C("\"best_of\":1"), "best_of", "unknown_parameter", NULL},
        {C("\"max_tokens\":5,\"max_completion_tokens\":5"), "max_completion_tokens",
         "invalid_parameter_combination", NULL},
        {C("\"max_completion_tokens\":0"), "max_completion_tokens", "invalid_value", NULL},
        {C("\"tools\":[{\"type\":\"function\"}]"), "tools", "unsupported_parameter", NULL},
        {C("\"tools\":1"), "tools", "unsupported_parameter", NULL},
        {C("\"tool_choice\":\"required\""), "tool_choice", "unsupported_parameter", NULL},
        {C("\"tool_choice\":{\"type\":\"function\"}"), "tool_choice", "unsupported_parameter",
         NULL},
        {C("\"functions\":[{}]"), "functions", "unsupported_parameter", NULL},
        {C("\"function_call\":{\"name\":\"f\"}"), "function_call", "unsupported_parameter", NULL},
        {C("\"logprobs\":1"), "logprobs", "invalid_type", NULL},
        {C("\"audio\":{}"), "audio", "unsupported_parameter", NULL},
        {C("\"modalities\":[\"text\",\"audio\"]"), "modalities", "unsupported_parameter", NULL},
        {C("\"modalities\":\"text\""), "modalities", "invalid_type", NULL},
        {C("\"reasoning_effort\":\"low\""), "reasoning_effort", "unsupported_parameter", NULL},
        {C("\"verbosity\":\"low\""), "verbosity", "unsupported_parameter", NULL},
        {C("\"web_search_options\":{}"), "web_search_options", "unsupported_parameter", NULL},
    };
    expect_bad(API_CHAT, BAD, sizeof BAD / sizeof BAD[0]);
}

static void test_bad_completion(void **state)
{
    static const struct bad BAD[] = {
        {"{\"model\":\"m\"}", "prompt", "missing_required_parameter", NULL},
        {"{\"model\":\"m\",\"prompt\":null}", "prompt", "missing_required_parameter", NULL},
        {"{\"model\":\"m\",\"prompt\":1}", "prompt", "invalid_type", NULL},
        {"{\"model\":\"m\",\"prompt\":{}}", "prompt", "invalid_type", NULL},
        {"{\"model\":\"m\",\"prompt\":[]}", "prompt", "invalid_type", NULL},
        {"{\"model\":\"m\",\"prompt\":[[]]}", "prompt", "invalid_type", NULL},
        {"{\"model\":\"m\",\"prompt\":[true]}", "prompt", "invalid_type", NULL},
        {"{\"model\":\"m\",\"prompt\":[1,-1]}", "prompt", "invalid_value", "prompt[1]"},
        {"{\"model\":\"m\",\"prompt\":[1,\"a\"]}", "prompt", "invalid_value", "prompt[1]"},
        {"{\"model\":\"m\",\"prompt\":[1,4294967296]}", "prompt", "invalid_value", NULL},
        {P("\"messages\":[]"), "messages", "unknown_parameter", NULL},
        {P("\"max_completion_tokens\":5"), "max_completion_tokens", "unknown_parameter", NULL},
        {P("\"tools\":[]"), "tools", "unknown_parameter", NULL},
        {P("\"suffix\":\"x\""), "suffix", "unsupported_parameter", NULL},
    };
    expect_bad(API_COMPLETION, BAD, sizeof BAD / sizeof BAD[0]);
}

static void test_good_neutral(void **state)
{
    static const char *const EXTRA[] = {
        "\"user\":\"me\"",
        "\"metadata\":{\"a\":\"b\"}",
        "\"store\":true",
        "\"store\":null",
        "\"service_tier\":\"auto\"",
        "\"n\":1",
        "\"n\":null",
        "\"logit_bias\":{}",
        "\"presence_penalty\":0",
        "\"frequency_penalty\":0.0",
        "\"repetition_penalty\":1.0",
        "\"min_p\":0",
        "\"min_tokens\":0",
        "\"stop\":null",
        "\"stop\":[]",
        "\"seed\":null",
        "\"max_tokens\":null",
        "\"temperature\":null",
        "\"top_p\":null",
        "\"top_k\":null",
        "\"stream\":null",
        "\"stream_options\":null",
        "\"stream\":true,\"stream_options\":{}",
        "\"logprobs\":null",
        "\"skip_special_tokens\":true",
        "\"ignore_eos\":null",
        "\"stream\":true,\"stream_options\":{\"include_usage\":null}",
        "\"stream\":true,\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":"
        "false}",
    };
    static const char *const CHAT_EXTRA[] = {
        "\"tools\":[]",
        "\"tools\":null",
        "\"tool_choice\":\"none\"",
        "\"tool_choice\":\"auto\"",
        "\"functions\":null",
        "\"function_call\":\"none\"",
        "\"response_format\":{\"type\":\"text\"}",
        "\"logprobs\":false",
        "\"top_logprobs\":0",
        "\"modalities\":[\"text\"]",
        "\"audio\":null",
        "\"parallel_tool_calls\":true",
        "\"reasoning_effort\":null",
        "\"prediction\":null",
    };
    static const char *const COMP_EXTRA[] = {"\"best_of\":1", "\"echo\":false", "\"suffix\":null"};
    struct api_error a;
    struct api_request r;
    char body[512];
    for (int kind = API_CHAT; kind <= API_COMPLETION; kind++) {
        const char *const *own = kind == API_CHAT ? CHAT_EXTRA : COMP_EXTRA;
        size_t n_both = sizeof EXTRA / sizeof EXTRA[0];
        size_t n_own = kind == API_CHAT ? sizeof CHAT_EXTRA / sizeof CHAT_EXTRA[0]
                                        : sizeof COMP_EXTRA / sizeof COMP_EXTRA[0];
        for (size_t i = 0; i < n_both + n_own; i++) {
            int n = snprintf(body, sizeof body, "{%s,%s}", kind == API_CHAT ? CHAT : COMP,
                             i < n_both ? EXTRA[i] : own[i - n_both]);
            if (parse(&r, (enum api_kind)kind, body, (size_t)n, &a))
                fail_msg("%s: %s", body, a.message);
            assert_false(r.has_max_tokens || r.has_seed || r.ignore_eos);
            assert_true(r.sampling.temperature == 1 && r.sampling.top_p == 1 &&
                        r.sampling.top_k == 0);
            assert_int_equal(r.n_stops, 0);
            api_request_fini(&r);
        }
    }
}

static void test_good_values(void **state)
{
    static const char BODY[] =
        "{\"model\":\"org/m\",\"messages\":[{\"role\":\"developer\",\"content\":\"be brief\"},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\\u00e9\"},{\"type\":"
        "\"text\","
        "\"text\":\"\\ud83d\\ude42\"}],\"name\":\"joe\"},{\"role\":\"assistant\",\"content\":\"\","
        "\"refusal\":null,\"annotations\":[],\"tool_calls\":null}],\"max_completion_tokens\":7,"
        "\"temperature\":0,\"top_p\":0.5,\"top_k\":40,\"seed\":-3,\"stop\":[\"x\",\"\\u0000y\"],"
        "\"stream\":true,\"stream_options\":{\"include_usage\":true},\"ignore_eos\":true}";
    struct api_request r;
    struct api_error a;
    assert_int_equal(parse(&r, API_CHAT, BODY, sizeof BODY - 1, &a), 0);
    assert_string_equal(r.model, "org/m");
    assert_int_equal(r.n_messages, 3);
    assert_string_equal(r.messages[0].role, "system");
    assert_string_equal(r.messages[1].content, "a\xc3\xa9\xf0\x9f\x99\x82");
    assert_int_equal(r.messages[1].content_bytes, 7);
    assert_string_equal(r.messages[2].role, "assistant");
    assert_int_equal(r.messages[2].content_bytes, 0);
    assert_true(r.has_max_tokens && r.max_tokens == 7);
    assert_true(r.sampling.temperature == 0 && r.sampling.top_p == 0.5f && r.sampling.top_k == 40);
    assert_true(r.has_seed && r.sampling.seed == (uint64_t)-3);
    assert_int_equal(r.n_stops, 2);
    assert_int_equal(r.stop_bytes[1], 2);
    assert_memory_equal(r.stops[1], "\0y", 2);
    assert_true(r.stream && r.include_usage && r.ignore_eos);
    api_request_fini(&r);

    static const char GREEDY[] = "{\"model\":\"m\",\"prompt\":\"x\",\"top_p\":0}";
    assert_int_equal(parse(&r, API_COMPLETION, GREEDY, sizeof GREEDY - 1, &a), 0);
    assert_true(r.sampling.top_p == 0 && r.sampling.temperature == 1);
    api_request_fini(&r);
}

static void test_good_prompts(void **state)
{
    static const struct {
        const char *prompt;
        size_t n;
        bool is_text;
        size_t last; /* bytes or ids of the last one … */
        uint32_t id; /* … and its first id */
    } CASES[] = {{"\"hello\"", 1, true, 5, 0},      {"[\"hello\"]", 1, true, 5, 0},
                 {"[1,2,3]", 1, false, 3, 1},       {"[[7]]", 1, false, 1, 7},
                 {"\"\"", 1, true, 0, 0},           {"[\"\"]", 1, true, 0, 0},
                 {"[\"a\",\"bc\"]", 2, true, 2, 0}, {"[[1,2],[3],[4,5,6]]", 3, false, 3, 4}};
    struct api_request r;
    struct api_error a;
    char body[128];
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        int n = snprintf(body, sizeof body, "{\"model\":\"m\",\"prompt\":%s}", CASES[i].prompt);
        if (parse(&r, API_COMPLETION, body, (size_t)n, &a))
            fail_msg("%s: %s", body, a.message);
        assert_int_equal(r.n_prompts, CASES[i].n);
        const struct api_prompt *last = &r.prompts[r.n_prompts - 1];
        assert_int_equal(last->text != NULL, CASES[i].is_text);
        assert_int_equal(last->n, CASES[i].last);
        if (!last->text)
            assert_int_equal(r.ids[last->first], CASES[i].id);
        api_request_fini(&r);
    }
}

/* Any cut and any single changed byte of a good body: an answer, never a crash (asan watches). */
static void test_mutations(void **state)
{
    static const char BODY[] = C("\"stop\":[\"a\"],\"stream\":true,\"stream_options\":"
                                 "{\"include_usage\":true},\"seed\":5,\"temperature\":0.5");
    struct api_request r;
    struct api_error a;
    char copy[sizeof BODY];
    for (size_t i = 0; i < sizeof BODY - 1; i++) {
        assert_int_equal(parse(&r, API_CHAT, BODY, i, &a), -1);
        assert_int_equal(a.status, 400);
        api_request_fini(&r);
        for (int c = 0; c < 256; c += 3) {
            memcpy(copy, BODY, sizeof BODY);
            copy[i] = (char)c;
            int rc = parse(&r, API_CHAT, copy, sizeof BODY - 1, &a);
            assert_true(rc == 0 || (a.status == 400 && a.message[0]));
            api_request_fini(&r);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_faults),    cmocka_unit_test(test_depth_and_nul),
        cmocka_unit_test(test_bad_both),       cmocka_unit_test(test_bad_chat),
        cmocka_unit_test(test_bad_completion), cmocka_unit_test(test_good_neutral),
        cmocka_unit_test(test_good_values),    cmocka_unit_test(test_good_prompts),
        cmocka_unit_test(test_mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
