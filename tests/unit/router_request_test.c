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
    assert_int_equal(json_string_length(json_object_get(json_array_get(r.messages, 0), "content")),
                     3);
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
        {M("[{\"role\":\"tool\",\"content\":\"x\"}]"), "messages[0].tool_call_id",
         "missing_required_parameter", NULL},
        {M("[{\"role\":\"tool\",\"tool_call_id\":1,\"content\":\"x\"}]"),
         "messages[0].tool_call_id", "invalid_type", NULL},
        {M("[{\"role\":\"user\",\"tool_call_id\":\"a\",\"content\":\"x\"}]"),
         "messages[0].tool_call_id", "unsupported_parameter", NULL},
        {M("[{\"role\":\"user\",\"tool_calls\":[{}],\"content\":\"x\"}]"), "messages[0].tool_calls",
         "unsupported_parameter", NULL},
        {M("[{\"role\":\"assistant\",\"tool_calls\":{\"a\":1}}]"), "messages[0].tool_calls",
         "invalid_type", NULL},
        {M("[{\"role\":\"assistant\",\"tool_calls\":[{\"type\":\"x\"}]}]"),
         "messages[0].tool_calls[0]", "invalid_value", NULL},
        {M("[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{}"
           "}}]}]"),
         "messages[0].tool_calls[0]", "invalid_type", "'arguments'"},
        {M("[{\"role\":\"assistant\",\"reasoning_content\":1,\"content\":\"x\"}]"),
         "messages[0].reasoning_content", "invalid_type", NULL},
        {C("\"chat_template_kwargs\":1"), "chat_template_kwargs", "invalid_type", NULL},
        {C("\"chat_template_kwargs\":{\"messages\":[]}"), "chat_template_kwargs", "invalid_value",
         "'messages'"},
        {C("\"tools\":[1]"), "tools[0]", "invalid_type", NULL},
        {C("\"tools\":[{\"type\":\"web\"}]"), "tools[0]", "invalid_value", NULL},
        {C("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":1}}]"),
         "tools[0]", "invalid_type", NULL},
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
         "messages[0].tool_calls[0]", "invalid_type", NULL},
        {M("[{\"role\":\"assistant\",\"content\":\"a\",\"audio\":{\"id\":\"x\"}}]"),
         "messages[0].audio", "unsupported_parameter", NULL},
        {C("\"prompt\":\"x\""), "prompt", "unknown_parameter", NULL},
        {C("\"echo\":false"), "echo", "unknown_parameter", NULL},
        {C("\"best_of\":1"), "best_of", "unknown_parameter", NULL},
        {C("\"max_tokens\":5,\"max_completion_tokens\":5"), "max_completion_tokens",
         "invalid_parameter_combination", NULL},
        {C("\"max_completion_tokens\":0"), "max_completion_tokens", "invalid_value", NULL},
        {C("\"tools\":[{\"type\":\"function\"}]"), "tools[0]", "missing_required_parameter", NULL},
        {C("\"tools\":1"), "tools", "invalid_type", NULL},
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

/* What any of them refuses of a number: wrong types, and both ends of its range. */
static void test_bad_numbers(void **state)
{
    static const struct {
        const char *name;
        const char *below, *above; /* NULL: no such end */
        bool is_int, completion_only;
    } FIELDS[] = {
        {"temperature", "-0.001", "2.001", false, false},
        {"top_p", "-0.001", "1.001", false, false},
        {"min_p", "-0.001", "1.001", false, false},
        {"typical_p", "-0.001", "1.001", false, false},
        {"repetition_penalty", "0", "100.1", false, false},
        {"frequency_penalty", "-2.001", "2.001", false, false},
        {"presence_penalty", "-2.001", "2.001", false, false},
        {"top_k", "-2", "2147483648", true, false},
        {"min_tokens", "-1", "2147483648", true, false},
        {"max_tokens", "0", "2147483648", true, false},
        {"n", "0", "129", true, false},
        {"best_of", "0", "129", true, true},
        {"priority", "-128", "129", true, false},
        {"seed", NULL, NULL, true, false},
    };
    static const char *const NOT_NUMBERS[] = {"\"1\"", "true", "[]", "[1]", "{}"};
    char body[256];
    for (size_t i = 0; i < sizeof FIELDS / sizeof FIELDS[0]; i++)
        for (int kind = FIELDS[i].completion_only ? API_COMPLETION : API_CHAT;
             kind <= API_COMPLETION; kind++) {
            const char *base = kind == API_CHAT ? CHAT : COMP;
            const char *ends[] = {FIELDS[i].below, FIELDS[i].above, "1.5"};
            for (int k = 0; k < 3; k++) {
                if (!ends[k] || (k == 2 && !FIELDS[i].is_int))
                    continue;
                snprintf(body, sizeof body, "{%s,\"%s\":%s}", base, FIELDS[i].name, ends[k]);
                struct bad b = {body, FIELDS[i].name, k == 2 ? "invalid_type" : "invalid_value",
                                NULL};
                expect_bad((enum api_kind)kind, &b, 1);
            }
            for (size_t k = 0; k < sizeof NOT_NUMBERS / sizeof NOT_NUMBERS[0]; k++) {
                snprintf(body, sizeof body, "{%s,\"%s\":%s}", base, FIELDS[i].name, NOT_NUMBERS[k]);
                struct bad b = {body, FIELDS[i].name, "invalid_type", NULL};
                expect_bad((enum api_kind)kind, &b, 1);
            }
        }
}

static void test_bad_sampling(void **state)
{
#define SAMPLING_CASES(X)                                                                          \
    {X("\"logit_bias\":[]"), "logit_bias", "invalid_type", NULL},                                  \
        {X("\"logit_bias\":1"), "logit_bias", "invalid_type", NULL},                               \
        {X("\"logit_bias\":{\"a\":1}"), "logit_bias", "invalid_value", "'a' is not a token id"},   \
        {X("\"logit_bias\":{\"\":1}"), "logit_bias", "invalid_value", NULL},                       \
        {X("\"logit_bias\":{\"-1\":1}"), "logit_bias", "invalid_value", NULL},                     \
        {X("\"logit_bias\":{\"1x\":1}"), "logit_bias", "invalid_value", NULL},                     \
        {X("\"logit_bias\":{\"1.0\":1}"), "logit_bias", "invalid_value", NULL},                    \
        {X("\"logit_bias\":{\"99999999999999999999\":1}"), "logit_bias", "invalid_value", NULL},   \
        {X("\"logit_bias\":{\"1\":\"1\"}"), "logit_bias", "invalid_type", "logit_bias.1"},         \
        {X("\"logit_bias\":{\"1\":null}"), "logit_bias", "invalid_type", NULL},                    \
        {X("\"logit_bias\":{\"1\":100.5}"), "logit_bias", "invalid_value", "-100 to 100"},         \
        {X("\"logit_bias\":{\"1\":-101}"), "logit_bias", "invalid_value", NULL},                   \
        {X("\"stop_token_ids\":1"), "stop_token_ids", "invalid_type", NULL},                       \
        {X("\"stop_token_ids\":[\"1\"]"), "stop_token_ids", "invalid_type", NULL},                 \
        {X("\"stop_token_ids\":[-1]"), "stop_token_ids", "invalid_value", "stop_token_ids[0]"},    \
        {X("\"stop_token_ids\":[1,4294967296]"), "stop_token_ids", "invalid_value",                \
         "stop_token_ids[1]"},                                                                     \
        {X("\"min_tokens\":6,\"max_tokens\":5"), "min_tokens", "invalid_value",                    \
         "more than 'max_tokens', 5"},                                                             \
        {X("\"user\":1"), "user", "invalid_type", NULL},                                           \
        {X("\"guided_regex\":1"), "guided_regex", "invalid_type", NULL},                           \
        {X("\"guided_grammar\":[]"), "guided_grammar", "invalid_type", NULL},                      \
        {X("\"guided_choice\":\"a\""), "guided_choice", "invalid_type", NULL},                     \
        {X("\"guided_choice\":[]"), "guided_choice", "invalid_value", NULL},                       \
        {X("\"guided_choice\":[\"a\",1]"), "guided_choice", "invalid_type", NULL},                 \
        {X("\"guided_json\":1"), "guided_json", "invalid_type", NULL},                             \
        {X("\"guided_regex\":\"a\",\"guided_choice\":[\"a\"]"), "guided_choice",                   \
         "invalid_parameter_combination", "'guided_regex' and 'guided_choice' are"},               \
        {X("\"guided_regex\":\"a\",\"ignore_eos\":true"), "ignore_eos",                            \
         "invalid_parameter_combination", NULL},                                                   \
        {X("\"structured_outputs\":1"), "structured_outputs", "invalid_type", NULL},               \
        {X("\"structured_outputs\":{\"xml\":1}"), "structured_outputs", "unknown_parameter",       \
         "structured_outputs.xml"},                                                                \
        {X("\"structured_outputs\":{\"regex\":1}"), "structured_outputs", "invalid_type", NULL},   \
        {X("\"structured_outputs\":{\"json_object\":1}"), "structured_outputs", "invalid_type",    \
         NULL},                                                                                    \
        {X("\"structured_outputs\":{\"regex\":\"a\",\"choice\":[\"a\"]}"), "structured_outputs",   \
         "invalid_parameter_combination", NULL},                                                   \
        {X("\"response_format\":\"text\""), "response_format", "invalid_type", NULL},              \
        {X("\"response_format\":{}"), "response_format.type", "missing_required_parameter", NULL}, \
        {X("\"response_format\":{\"type\":\"xml\"}"), "response_format.type", "invalid_value",     \
         "'xml'"},                                                                                 \
        {X("\"response_format\":{\"type\":\"text\",\"x\":1}"), "response_format",                  \
         "unknown_parameter", "response_format.x"},                                                \
        {X("\"response_format\":{\"type\":\"json_schema\"}"), "response_format.json_schema",       \
         "missing_required_parameter", NULL},                                                      \
        {X("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":1}"),                    \
         "response_format.json_schema", "invalid_type", NULL},                                     \
        {X("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a\"}}"),     \
         "response_format.json_schema.schema", "missing_required_parameter", NULL},                \
        {X("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":true}}"),    \
         "response_format.json_schema.schema", "invalid_type", NULL},                              \
        {X("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"strict\":1,"          \
           "\"schema\":{}}}"),                                                                     \
         "response_format.json_schema", "invalid_type", NULL},                                     \
    {                                                                                              \
        X("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"x\":1,\"schema\":{}}"  \
          "}"),                                                                                    \
            "response_format.json_schema", "unknown_parameter", "json_schema.x"                    \
    }
    static const struct bad CHAT_BAD[] = {
        SAMPLING_CASES(C),
        {C("\"logprobs\":1"), "logprobs", "invalid_type", "boolean"},
        {C("\"top_logprobs\":2"), "top_logprobs", "invalid_parameter_combination", NULL},
        {C("\"logprobs\":false,\"top_logprobs\":2"), "top_logprobs",
         "invalid_parameter_combination", NULL},
        {C("\"logprobs\":true,\"top_logprobs\":21"), "top_logprobs", "invalid_value", "0 to 20"},
        {C("\"logprobs\":true,\"top_logprobs\":-1"), "top_logprobs", "invalid_value", NULL},
        {C("\"logprobs\":true,\"top_logprobs\":\"2\""), "top_logprobs", "invalid_type", NULL},
    };
    static const struct bad COMP_BAD[] = {
        SAMPLING_CASES(P),
        {P("\"logprobs\":true"), "logprobs", "invalid_type", "integer"},
        {P("\"logprobs\":21"), "logprobs", "invalid_value", "0 to 20"},
        {P("\"logprobs\":-1"), "logprobs", "invalid_value", NULL},
        {P("\"top_logprobs\":1"), "top_logprobs", "unknown_parameter", NULL},
        {P("\"echo\":1"), "echo", "invalid_type", NULL},
        {P("\"n\":3,\"best_of\":2"), "best_of", "invalid_value", "less than 'n', 3"},
        {P("\"n\":2,\"best_of\":3,\"stream\":true"), "best_of", "invalid_parameter_combination",
         "streamed"},
        {"{\"model\":\"m\",\"prompt\":[\"a\",1]}", "prompt", "invalid_type", "prompt[1]"},
        {"{\"model\":\"m\",\"prompt\":[\"a\",[1]]}", "prompt", "invalid_type", NULL},
        {"{\"model\":\"m\",\"prompt\":[[1],\"a\"]}", "prompt", "invalid_type", NULL},
        {"{\"model\":\"m\",\"prompt\":[[1],[]]}", "prompt", "invalid_type", "prompt[1]"},
        {"{\"model\":\"m\",\"prompt\":[[1],[1,-2]]}", "prompt", "invalid_value", "prompt[1][1]"},
    };
    expect_bad(API_CHAT, CHAT_BAD, sizeof CHAT_BAD / sizeof CHAT_BAD[0]);
    expect_bad(API_COMPLETION, COMP_BAD, sizeof COMP_BAD / sizeof COMP_BAD[0]);
}

static void test_bad_embedding(void **state)
{
#define E(extra) "{\"model\":\"m\",\"input\":\"a\"," extra "}"
    static const struct bad BAD[] = {
        {"{\"model\":\"m\"}", "input", "missing_required_parameter", NULL},
        {"{\"input\":\"a\"}", "model", "missing_required_parameter", NULL},
        {"{\"model\":\"m\",\"input\":null}", "input", "missing_required_parameter", NULL},
        {"{\"model\":\"m\",\"input\":1}", "input", "invalid_type", NULL},
        {"{\"model\":\"m\",\"input\":[]}", "input", "invalid_type", NULL},
        {"{\"model\":\"m\",\"input\":[1,\"a\"]}", "input", "invalid_value", "input[1]"},
        {"{\"model\":\"m\",\"input\":[true]}", "input", "invalid_type", NULL},
        {E("\"dimensions\":0"), "dimensions", "invalid_value", NULL},
        {E("\"dimensions\":1.5"), "dimensions", "invalid_type", NULL},
        {E("\"encoding_format\":\"int8\""), "encoding_format", "invalid_value", "'base64'"},
        {E("\"encoding_format\":1"), "encoding_format", "invalid_type", NULL},
        {E("\"temperature\":1"), "temperature", "unknown_parameter", NULL},
        {E("\"stream\":true"), "stream", "unknown_parameter", NULL},
        {E("\"prompt\":\"a\""), "prompt", "unknown_parameter", NULL},
        {E("\"user\":[]"), "user", "invalid_type", NULL},
    };
    expect_bad(API_EMBEDDING, BAD, sizeof BAD / sizeof BAD[0]);
}

/* Lists at their bounds and one past them. */
static void test_long_lists(void **state)
{
    static const struct {
        const char *before, *item, *after, *param;
        size_t most;
        enum api_kind kind;
    } LISTS[] = {
        {"{" COMP ",\"stop_token_ids\":[", "1", "]}", "stop_token_ids", MSG_MAX_STOP_IDS,
         API_COMPLETION},
        {"{\"model\":\"m\",\"prompt\":[", "\"a\"", "]}", "prompt", API_MAX_PROMPTS, API_COMPLETION},
        {"{\"model\":\"m\",\"input\":[", "[1]", "]}", "input", API_MAX_PROMPTS, API_EMBEDDING},
        {"{\"model\":\"m\",\"n\":128,\"prompt\":[", "\"a\"", "]}", "n", API_MAX_CHOICES / 128,
         API_COMPLETION},
    };
    struct api_request r;
    struct api_error a;
    struct buf b;
    buf_init(&b, 1 << 20);
    for (size_t i = 0; i < sizeof LISTS / sizeof LISTS[0]; i++)
        for (size_t n = LISTS[i].most; n <= LISTS[i].most + 1; n++) {
            buf_reset(&b);
            buf_puts(&b, LISTS[i].before);
            for (size_t k = 0; k < n; k++)
                buf_printf(&b, k ? ",%s" : "%s", LISTS[i].item);
            buf_puts(&b, LISTS[i].after);
            int rc = parse(&r, LISTS[i].kind, (char *)b.data, b.len, &a);
            if (rc != (n > LISTS[i].most ? -1 : 0) || (rc && strcmp(a.param, LISTS[i].param)))
                fail_msg("%s of %zu: rc %d %s", LISTS[i].param, n, rc, a.message);
            api_request_fini(&r);
        }
    for (int n = MSG_MAX_BIAS; n <= MSG_MAX_BIAS + 1; n++) {
        buf_reset(&b);
        buf_puts(&b, "{" CHAT ",\"logit_bias\":{");
        for (int k = 0; k < n; k++)
            buf_printf(&b, k ? ",\"%d\":%d" : "\"%d\":%d", k, k % 100);
        buf_puts(&b, "}}");
        int rc = parse(&r, API_CHAT, (char *)b.data, b.len, &a);
        assert_int_equal(rc, n > MSG_MAX_BIAS ? -1 : 0);
        assert_true(rc || (r.n_bias == MSG_MAX_BIAS && r.bias[1023].id == 1023 &&
                           r.bias[1023].value == 23));
        api_request_fini(&r);
    }
    buf_fini(&b);
}

static void test_good_sampling(void **state)
{
    static const char BODY[] =
        C("\"n\":3,\"min_p\":0.25,\"typical_p\":0.5,\"repetition_penalty\":1.5,"
          "\"frequency_penalty\":-2,\"presence_penalty\":2,\"min_tokens\":4,\"logprobs\":true,"
          "\"top_logprobs\":20,\"stop_token_ids\":[7,8],\"logit_bias\":{\"5\":-100,\"6\":0.5},"
          "\"priority\":-5,\"user\":\"me\"");
    struct api_request r;
    struct api_error a;
    assert_int_equal(parse(&r, API_CHAT, BODY, sizeof BODY - 1, &a), 0);
    const struct sampling *s = &r.sampling;
    assert_true(s->min_p == 0.25f && s->typical_p == 0.5f && s->repetition_penalty == 1.5f);
    assert_true(s->frequency_penalty == -2 && s->presence_penalty == 2);
    assert_true(s->min_tokens == 4 && s->n_top == 20 && r.want_logprobs && !r.echo);
    assert_true(r.n == 3 && r.best_of == 3);
    assert_true(r.n_stop_ids == 2 && r.stop_ids[1] == 8);
    assert_true(r.n_bias == 2 && r.bias[0].id == 5 && r.bias[0].value == -100);
    assert_true(r.bias[1].value == 0.5f);
    assert_int_equal(r.priority, 133);
    assert_true(r.tenant != 0);
    uint32_t tenant = r.tenant;
    api_request_fini(&r);
    static const char OTHER[] = C("\"user\":\"you\"");
    assert_int_equal(parse(&r, API_CHAT, OTHER, sizeof OTHER - 1, &a), 0);
    assert_true(r.tenant && r.tenant != tenant);
    assert_int_equal(r.priority, 128);
    api_request_fini(&r);
    static const char ECHO[] = P("\"echo\":true,\"logprobs\":0,\"max_tokens\":0,\"best_of\":2");
    assert_int_equal(parse(&r, API_COMPLETION, ECHO, sizeof ECHO - 1, &a), 0);
    assert_true(r.echo && r.want_logprobs && r.sampling.n_top == 0 && r.has_max_tokens &&
                !r.max_tokens && r.n == 1 && r.best_of == 2);
    api_request_fini(&r);
    static const char EMBED[] = "{\"model\":\"m\",\"input\":[[1,2],[3]],\"dimensions\":8,"
                                "\"encoding_format\":\"base64\",\"user\":\"me\"}";
    assert_int_equal(parse(&r, API_EMBEDDING, EMBED, sizeof EMBED - 1, &a), 0);
    assert_true(r.base64 && r.dimensions == 8 && r.n_prompts == 2 && r.tenant == tenant);
    api_request_fini(&r);
}

static void test_good_tools(void **state)
{
    static const char BODY[] =
        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":"
        "\"assistant\","
        "\"content\":null,\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":{"
        "\"name\":"
        "\"f\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":"
        "\"42\"}],"
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}],"
        "\"tool_choice\":\"none\",\"chat_template_kwargs\":{\"enable_thinking\":false}}";
    struct api_request r;
    struct api_error a;
    if (parse(&r, API_CHAT, BODY, sizeof BODY - 1, &a))
        fail_msg("%s", a.message);
    json_t *call = json_array_get(r.messages, 1), *answer = json_array_get(r.messages, 2);
    assert_true(json_is_null(json_object_get(call, "content")));
    assert_int_equal(json_array_size(json_object_get(call, "tool_calls")), 1);
    assert_string_equal(json_string_value(json_object_get(answer, "tool_call_id")), "c1");
    assert_true(json_array_size(r.tools) == 1 && r.hides_tools);
    assert_true(json_is_false(json_object_get(r.template_kwargs, "enable_thinking")));
    api_request_fini(&r);
}

static void test_good_constraints(void **state)
{
    static const struct {
        const char *field;
        enum constraint_kind kind;
        const char *source;
    } CASES[] = {
        {"\"response_format\":{\"type\":\"json_object\"}", CONSTRAINT_JSON_OBJECT, ""},
        {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a\",\"strict\":"
         "true,"
         "\"schema\":{\"b\":1, \"a\":2}}}",
         CONSTRAINT_JSON_SCHEMA, "{\"b\":1,\"a\":2}"},
        {"\"guided_json\":{\"type\":\"object\"}", CONSTRAINT_JSON_SCHEMA, "{\"type\":\"object\"}"},
        {"\"guided_json\":\"{ }\"", CONSTRAINT_JSON_SCHEMA, "{ }"},
        {"\"guided_regex\":\"a+\"", CONSTRAINT_REGEX, "a+"},
        {"\"guided_choice\":[\"a\",\"\\u00e9\"]", CONSTRAINT_CHOICE, "[\"a\",\"\xc3\xa9\"]"},
        {"\"guided_grammar\":\"root ::= x\"", CONSTRAINT_GBNF, "root ::= x"},
        {"\"structured_outputs\":{\"regex\":\"b\",\"json\":null}", CONSTRAINT_REGEX, "b"},
        {"\"structured_outputs\":{\"json_object\":true}", CONSTRAINT_JSON_OBJECT, ""},
        {"\"structured_outputs\":{\"json\":{}}", CONSTRAINT_JSON_SCHEMA, "{}"},
        {"\"response_format\":{\"type\":\"text\"}", CONSTRAINT_NONE, NULL},
        {"\"structured_outputs\":{}", CONSTRAINT_NONE, NULL},
    };
    struct api_request r;
    struct api_error a;
    char body[512];
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++)
        for (int kind = API_CHAT; kind <= API_COMPLETION; kind++) {
            int n = snprintf(body, sizeof body, "{%s,%s}", kind == API_CHAT ? CHAT : COMP,
                             CASES[i].field);
            if (parse(&r, (enum api_kind)kind, body, (size_t)n, &a))
                fail_msg("%s: %s", body, a.message);
            assert_int_equal(r.constraint, CASES[i].kind);
            assert_true(!r.constraint_source == !CASES[i].source);
            if (CASES[i].source) {
                assert_string_equal(r.constraint_source, CASES[i].source);
                assert_int_equal(r.constraint_bytes, strlen(CASES[i].source));
            }
            api_request_fini(&r);
        }
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
    json_t *want =
        json_loads("[{\"role\":\"system\",\"content\":\"be brief\"},{\"role\":\"user\",\"name\":"
                   "\"joe\",\"content\":\"a\xc3\xa9\xf0\x9f\x99\x82\"},{\"role\":"
                   "\"assistant\",\"content\":\"\"}]",
                   0, NULL);
    assert_true(json_equal(r.messages, want));
    json_decref(want);
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
        cmocka_unit_test(test_json_faults),      cmocka_unit_test(test_depth_and_nul),
        cmocka_unit_test(test_bad_both),         cmocka_unit_test(test_bad_chat),
        cmocka_unit_test(test_bad_completion),   cmocka_unit_test(test_good_neutral),
        cmocka_unit_test(test_good_values),      cmocka_unit_test(test_good_prompts),
        cmocka_unit_test(test_mutations),        cmocka_unit_test(test_bad_numbers),
        cmocka_unit_test(test_bad_sampling),     cmocka_unit_test(test_bad_embedding),
        cmocka_unit_test(test_long_lists),       cmocka_unit_test(test_good_sampling),
        cmocka_unit_test(test_good_constraints), cmocka_unit_test(test_good_tools),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
