/* router_answer_test.c - step entries in, text and finish out; and what comes out as JSON and
 * events. */
#include "router/answer.h"
#include "router/api_response.h"
#include "router/attempts.h"
#include "router/json_text.h"
#include "tests/tools/byte_model.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct model *model;

static int setup(void **state)
{
    struct model_meta meta;
    struct buf b;
    struct err e = ERR_INIT;
    byte_model_meta(&meta);
    buf_init(&b, META_MAX_BYTES);
    assert_int_equal(meta_encode(&meta, &b, NULL), 0);
    struct msg_model m = {
        .name = "bytes", .meta = b.data, .meta_bytes = (uint32_t)b.len, .n_ctx = 64};
    if (model_build(&model, &m, 1700000000, &e))
        fail_msg("%s", e.text);
    assert_int_equal(model->n_ctx, 64);
    assert_true(model->n_eog >= 1);
    assert_string_equal(model->fingerprint, "fp_e3b0c44298"); /* SHA-256 of no index */
    buf_fini(&b);
    meta_fini(&meta);
    return 0;
}

static int teardown(void **state)
{
    model_unref(model);
    return 0;
}

/* One entry whose tokens are the bytes of text ("$" stands for the end-of-generation id). */
static enum answer_event push(struct answer *a, const char *text, uint8_t finish,
                              struct api_error *error)
{
    struct buf ids;
    buf_init(&ids, 4096);
    for (const char *p = text; *p; p++)
        buf_u32(&ids, *p == '$' ? BYTE_MODEL_EOS : BYTE_MODEL_FIRST + (uint8_t)*p);
    struct step_entry entry = {.position = (uint32_t)a->log.n,
                               .n_tokens = (uint16_t)(ids.len / 4),
                               .tokens = ids.data,
                               .finish = finish};
    enum answer_event ev = answer_push(a, &entry, error);
    buf_fini(&ids);
    return ev;
}

static void begin(struct answer *a, uint32_t max_tokens, const char *stop, bool ignore_eos)
{
    struct stops *stops;
    size_t n = stop ? strlen(stop) : 0;
    assert_int_equal(stops_create(&stops, &stop, &n, stop != NULL, NULL), 0);
    answer_init(a, model, stops, ignore_eos, max_tokens);
}

static void expect_text(struct answer *a, const char *text)
{
    assert_string_equal(buf_cstr(&a->text), text);
}

static void test_plain(void **state)
{
    struct answer a;
    struct api_error e;
    begin(&a, 10, NULL, false);
    assert_int_equal(push(&a, "he", FINISH_NONE, &e), ANSWER_MORE);
    expect_text(&a, "he");
    assert_int_equal(push(&a, "y$", FINISH_STOP, &e), ANSWER_DONE);
    expect_text(&a, "hey");
    assert_string_equal(a.finish_reason, "stop");
    assert_int_equal(a.n_counted, 4);
    assert_int_equal(push(&a, "x", FINISH_NONE, &e), ANSWER_DROPPED);
    answer_fini(&a);
    begin(&a, 3, NULL, true);
    assert_int_equal(push(&a, "a$b", FINISH_LENGTH, &e), ANSWER_DONE);
    expect_text(&a, "ab"); /* the id that ignore_eos passes over has no text */
    assert_string_equal(a.finish_reason, "length");
    answer_fini(&a);
    begin(&a, 3, NULL, false);
    assert_int_equal(push(&a, "", FINISH_LENGTH, &e), ANSWER_DONE); /* no token at all */
    answer_fini(&a);
}

static void test_split_characters(void **state)
{
    struct answer a;
    struct api_error e;
    begin(&a, 10, NULL, false);
    push(&a, "\xf0\x9f", FINISH_NONE, &e);
    expect_text(&a, "");
    push(&a, "\x99", FINISH_NONE, &e);
    expect_text(&a, "");
    push(&a, "\x82\xc3", FINISH_NONE, &e);
    expect_text(&a, "\xf0\x9f\x99\x82");
    push(&a, "", FINISH_LENGTH, &e); /* cut inside a character */
    expect_text(&a, "\xf0\x9f\x99\x82\xef\xbf\xbd");
    answer_fini(&a);
}

static void test_stop_strings(void **state)
{
    struct answer a;
    struct api_error e;
    begin(&a, 20, "END", false);
    push(&a, "aE", FINISH_NONE, &e);
    expect_text(&a, "a");
    push(&a, "NE", FINISH_NONE, &e);
    expect_text(&a, "aEN");
    assert_int_equal(push(&a, "NDxyz", FINISH_NONE, &e), ANSWER_STOPPED);
    expect_text(&a, "aEN");
    assert_string_equal(a.finish_reason, "stop");
    assert_int_equal(a.n_counted, 6); /* a E N E N D: what is past the match does not count */
    answer_fini(&a);
    begin(&a, 20, "END", false); /* never completed: shown at the end */
    assert_int_equal(push(&a, "aEN", FINISH_LENGTH, &e), ANSWER_DONE);
    expect_text(&a, "aEN");
    assert_string_equal(a.finish_reason, "length");
    answer_fini(&a);
    begin(&a, 20, "END", false); /* met in the engine's own last step: nothing to cancel */
    assert_int_equal(push(&a, "aENDb", FINISH_LENGTH, &e), ANSWER_DONE);
    expect_text(&a, "a");
    assert_string_equal(a.finish_reason, "stop");
    answer_fini(&a);
    begin(&a, 20, "\xef\xbf\xbd",
          false); /* completed only by what the end makes of a cut character */
    assert_int_equal(push(&a, "a\xc3", FINISH_LENGTH, &e), ANSWER_DONE);
    expect_text(&a, "a");
    assert_string_equal(a.finish_reason, "stop");
    answer_fini(&a);
}

static void test_positions(void **state)
{
    struct answer a;
    struct api_error e;
    uint8_t ids[8] = {BYTE_MODEL_FIRST + 'x', 0, 0, 0, BYTE_MODEL_FIRST + 'y', 0, 0, 0};
    struct step_entry entry = {.n_tokens = 2, .tokens = ids};
    begin(&a, 5, NULL, false);
    entry.position = 1;
    assert_int_equal(answer_push(&a, &entry, &e), ANSWER_DROPPED); /* one was lost before it */
    entry.position = 0;
    assert_int_equal(answer_push(&a, &entry, &e), ANSWER_MORE);
    assert_int_equal(answer_push(&a, &entry, &e), ANSWER_DROPPED); /* twice */
    entry.position = 2;
    assert_int_equal(answer_push(&a, &entry, &e), ANSWER_MORE);
    entry.position = 4;
    assert_int_equal(answer_push(&a, &entry, &e), ANSWER_DROPPED); /* past max_tokens */
    expect_text(&a, "xyxy");
    entry.position = 1; /* the end, but not of what we have: it must not hang until its deadline */
    entry.finish = FINISH_STOP;
    struct api_error e2 = {0};
    assert_int_equal(answer_push(&a, &entry, &e2), ANSWER_FAILED);
    assert_string_equal(e2.code, "engine_error");
    answer_fini(&a);
    begin(&a, 5, NULL, false);
    entry = (struct step_entry){.position = 3, .finish = FINISH_ERROR};
    assert_int_equal(answer_push(&a, &entry, &e2), ANSWER_FAILED);
    answer_fini(&a);
}

static void test_bad_ends(void **state)
{
    static const struct {
        uint8_t finish;
        const char *before;
        enum answer_event event;
        int status;
        const char *code;
    } CASES[] = {
        {FINISH_REFUSED, "", ANSWER_REFUSED, 0, NULL},
        {FINISH_REFUSED, "a", ANSWER_FAILED, 502, "engine_error"},
        {FINISH_CANCELED, "a", ANSWER_FAILED, 503, "replica_lost"},
        {FINISH_DEADLINE, "a", ANSWER_FAILED, 504, "request_timeout"},
        {FINISH_ERROR, "a", ANSWER_FAILED, 500, "engine_error"},
        {77, "a", ANSWER_FAILED, 500, "engine_error"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct answer a;
        struct api_error e = {0};
        begin(&a, 10, NULL, false);
        if (CASES[i].before[0])
            push(&a, CASES[i].before, FINISH_NONE, &e);
        assert_int_equal(push(&a, "", CASES[i].finish, &e), CASES[i].event);
        assert_int_equal(e.status, CASES[i].status);
        if (CASES[i].code)
            assert_string_equal(e.code, CASES[i].code);
        answer_fini(&a);
    }
    struct answer a;
    struct api_error e;
    uint8_t id[4] = {0xff, 0xff, 0, 0};
    struct step_entry entry = {.n_tokens = 1, .tokens = id};
    begin(&a, 10, NULL, false);
    assert_int_equal(answer_push(&a, &entry, &e), ANSWER_FAILED); /* no such token */
    assert_int_equal(e.status, 502);
    answer_fini(&a);
    struct buf ext;
    buf_init(&ext, 4096);
    msg_text_put(&ext, &(struct msg_text){.code = ERR_DEVICE, .text = "device fell off the bus"});
    entry = (struct step_entry){.finish = FINISH_ERROR,
                                .ext_type = EXT_ERROR,
                                .ext = ext.data,
                                .ext_bytes = (uint32_t)ext.len};
    begin(&a, 10, NULL, false);
    assert_int_equal(answer_push(&a, &entry, &e), ANSWER_FAILED);
    assert_string_equal(e.message, "device fell off the bus");
    answer_fini(&a);
    buf_fini(&ext);
}

static void test_escaping(void **state)
{
    struct buf b;
    buf_init(&b, 1 << 16);
    json_put_string_n(&b, "a\"\\\n\r\t\b\f\x01\x7f/\0\xc3\xa9\xf0\x9f\x99\x82", 18);
    assert_string_equal(buf_cstr(&b),
                        "\"a\\\"\\\\\\n\\r\\t\\u0008\\u000c\\u0001\\u007f/\\u0000\xc3\xa9"
                        "\xf0\x9f\x99\x82\"");
    buf_reset(&b);
    json_put_string(&b, "\xff\xc0\xaf x\xed\xa0\x80\xf0\x9f"); /* repaired */
    json_t *v = json_loadb((char *)b.data, b.len, JSON_DECODE_ANY, NULL);
    assert_non_null(v);
    assert_non_null(strstr(json_string_value(v), " x"));
    json_decref(v);
    buf_reset(&b);
    json_put_string(&b, NULL);
    assert_string_equal(buf_cstr(&b), "null");
    /* every byte pair: always valid JSON */
    for (int i = 0; i < 65536; i += 7) {
        char s[2] = {(char)(i >> 8), (char)i};
        buf_reset(&b);
        json_put_string_n(&b, s, 2);
        v = json_loadb((char *)b.data, b.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        assert_non_null(v);
        json_decref(v);
    }
    buf_fini(&b);
}

static void test_golden_output(void **state)
{
    struct reply chat = {.kind = API_CHAT, .id = "chatcmpl-1", .model = model, .created_s = 5};
    struct reply comp = {.kind = API_COMPLETION,
                         .id = "cmpl-1",
                         .model = model,
                         .created_s = 5,
                         .include_usage = true};
    struct usage u = {3, 4};
    struct buf b;
    buf_init(&b, 1 << 16);
    struct reply_choice whole = {.text = "h\"i", .n = 3, .finish_reason = "stop"};
    struct reply_choice text = {.text = "x", .n = 1};
    reply_put_head(&b, &chat);
    reply_put_choice(&b, &chat, &whole);
    reply_put_tail(&b, &u);
    assert_string_equal(
        buf_cstr(&b),
        "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":5,\"model\":\"bytes\","
        "\"system_fingerprint\":\"fp_e3b0c44298\",\"choices\":[{\"index\":0,\"message\":{\"role\":"
        "\"assistant\",\"content\":\"h\\\"i\",\"refusal\":null},\"logprobs\":null,\"finish_"
        "reason\":"
        "\"stop\"}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\"total_tokens\":7}}");
    buf_reset(&b);
    reply_put_role(&b, &chat, 0);
    reply_put_text(&b, &chat, &text);
    reply_put_finish(&b, &chat, 0, "length");
    reply_put_done(&b);
#define CHUNK                                                                                      \
    "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":5,\"model\":"   \
    "\"bytes\",\"system_fingerprint\":\"fp_e3b0c44298\",\"choices\":["
    assert_string_equal(
        buf_cstr(&b),
        CHUNK "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
              "\"finish_reason\":null}]}\n\n" CHUNK
              "{\"index\":0,\"delta\":{\"content\":\"x\"},\"logprobs\":null,\"finish_reason\":null}"
              "]}\n\n" CHUNK
              "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"length\"}]}\n\n"
              "data: [DONE]\n\n");
    buf_reset(&b);
    reply_put_role(&b, &comp, 0);
    reply_put_text(&b, &comp, &text);
    reply_put_finish(&b, &comp, 0, "stop");
    reply_put_usage(&b, &comp, &u);
#define TEXT                                                                                       \
    "data: {\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"created\":5,\"model\":\"bytes\","   \
    "\"system_fingerprint\":\"fp_e3b0c44298\",\"choices\":["
    assert_string_equal(
        buf_cstr(&b), TEXT
        "{\"index\":0,\"text\":\"x\",\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}"
        "\n\n" TEXT
        "{\"index\":0,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":"
        "null}\n\n" TEXT
        "],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\"total_tokens\":7}}\n\n");
    struct api_error e;
    api_fail(&e, 503, API_SERVER_ERROR, NULL, "not_ready", "The service is %s", "\"new\"");
    e.state = "STARTING";
    e.progress = "2 of 3";
    buf_reset(&b);
    api_error_put(&b, &e);
    assert_string_equal(
        buf_cstr(&b),
        "{\"error\":{\"message\":\"The service is \\\"new\\\"\",\"type\":"
        "\"server_error\",\"param\":null,\"code\":\"not_ready\",\"state\":\"STARTING\","
        "\"progress\":\"2 of 3\"}}");
    buf_fini(&b);
}

/* --- log-probabilities ------------------------------------------------------------------------ */

/* Token i of the entry has log-probability -(i + 1), and one other. */
static enum answer_event push_scored(struct answer *a, const char *text, uint8_t finish,
                                     uint32_t first, uint32_t n_scores, struct api_error *error)
{
    struct buf ids, ext;
    buf_init(&ids, 4096);
    buf_init(&ext, 4096);
    for (const char *p = text; *p; p++)
        buf_u32(&ids, *p == '$' ? BYTE_MODEL_EOS : BYTE_MODEL_FIRST + (uint8_t)*p);
    msg_logprobs_begin_put(&ext, first, n_scores);
    for (uint32_t i = 0; i < n_scores; i++)
        msg_logprob_put(&ext, -(float)(i + 1), 1, 1,
                        &(struct token_logprob){BYTE_MODEL_FIRST + 'q', -0.5f});
    struct step_entry entry = {.position = (uint32_t)a->log.n,
                               .n_tokens = (uint16_t)(ids.len / 4),
                               .tokens = ids.data,
                               .finish = finish,
                               .ext_type = EXT_LOGPROBS,
                               .ext = ext.data,
                               .ext_bytes = (uint32_t)ext.len};
    enum answer_event ev = answer_push(a, &entry, error);
    buf_fini(&ids);
    buf_fini(&ext);
    return ev;
}

static size_t ready(const struct answer *a)
{
    return scores_ready(&a->scores, a->n_shown, a->finish_reason != NULL);
}

/* A token's log-probability is shown with its text: not while it may be part of a stop string, nor
 * if it is. */
static void test_scores_go_with_the_text(void **state)
{
    struct answer a;
    struct api_error e;
    begin(&a, 20, "END", false);
    a.want_scores = true;
    push_scored(&a, "aE", FINISH_NONE, 0, 2, &e);
    assert_int_equal(ready(&a), 1);
    push_scored(&a, "N", FINISH_NONE, 2, 1, &e);
    assert_int_equal(ready(&a), 1);
    push_scored(&a, "b", FINISH_NONE, 3, 1, &e);
    assert_int_equal(ready(&a), 4);
    assert_int_equal(push_scored(&a, "cENDx", FINISH_NONE, 4, 5, &e), ANSWER_STOPPED);
    assert_int_equal(ready(&a), 5); /* a E N b c */
    assert_true(a.logprob_sum == -1 - 2 - 1 - 1 - 1 - 2 - 3 - 4);
    assert_int_equal(a.scores.items[4].chars, 4);
    answer_fini(&a);
    begin(&a, 20, NULL, false); /* a character of three tokens, and the end */
    a.want_scores = true;
    push_scored(&a, "a\xe4\xb8", FINISH_NONE, 0, 3, &e);
    assert_int_equal(ready(&a), 3); /* no text is held by them: they have none yet */
    push_scored(&a, "\x96z$", FINISH_STOP, 3, 3, &e);
    assert_int_equal(ready(&a), 6);
    static const uint32_t CHARS[] = {0, 1, 1, 1, 2, 3};
    for (int i = 0; i < 6; i++)
        assert_int_equal(a.scores.items[i].chars, CHARS[i]);
    assert_true(a.scores.items[5].is_end && !a.scores.items[4].is_end);
    answer_fini(&a);
    static const uint32_t STOP = BYTE_MODEL_FIRST + 'z'; /* an ordinary token that ends it */
    begin(&a, 20, NULL, false);
    a.want_scores = true;
    a.stop_ids = &STOP;
    a.n_stop_ids = 1;
    assert_int_equal(push_scored(&a, "zaz", FINISH_STOP, 0, 3, &e), ANSWER_DONE);
    expect_text(&a, "za");
    assert_true(a.scores.items[2].is_end && !a.scores.items[0].is_end);
    answer_fini(&a);
}

static void test_scores_that_are_lost(void **state)
{
    struct answer a;
    struct api_error e;
    for (int i = 0; i < 4; i++) {
        begin(&a, 20, NULL, false);
        a.want_scores = true;
        enum answer_event ev = i == 0   ? push(&a, "ab", FINISH_NONE, &e)
                               : i == 1 ? push_scored(&a, "ab", FINISH_NONE, 1, 2, &e)
                               : i == 2 ? push_scored(&a, "ab", FINISH_NONE, 0, 1, &e)
                                        : push_scored(&a, "ab", FINISH_NONE, 0, 3, &e);
        assert_int_equal(ev, ANSWER_FAILED);
        assert_int_equal(e.status, 502);
        answer_fini(&a);
    }
}

static enum answer_event push_prompt(struct answer *a, uint32_t first, uint32_t n,
                                     struct api_error *error)
{
    struct buf ext;
    buf_init(&ext, 4096);
    msg_logprobs_begin_put(&ext, first, n);
    for (uint32_t i = 0; i < n; i++)
        msg_logprob_put(&ext, -(float)(first + i), 0, 0, NULL);
    struct step_entry entry = {
        .ext_type = EXT_PROMPT_LOGPROBS, .ext = ext.data, .ext_bytes = (uint32_t)ext.len};
    enum answer_event ev = answer_push(a, &entry, error);
    buf_fini(&ext);
    return ev;
}

/* In parts, in order, and again from the start when a replica begins again. */
static void test_prompt_scores(void **state)
{
    static const uint32_t IDS[] = {BYTE_MODEL_FIRST + 'a', BYTE_MODEL_FIRST + 0xc3,
                                   BYTE_MODEL_FIRST + 0xa9, BYTE_MODEL_FIRST + 'b', 1};
    struct answer a;
    struct api_error e;
    begin(&a, 20, NULL, false);
    assert_true(answer_knows_prompt(&a));
    assert_int_equal(answer_expect_prompt(&a, IDS, 5), 0);
    assert_false(answer_knows_prompt(&a));
    assert_int_equal(push_prompt(&a, 1, 2, &e), ANSWER_MORE);
    assert_int_equal(push_prompt(&a, 1, 3, &e), ANSWER_MORE);
    assert_int_equal(push_prompt(&a, 4, 1, &e), ANSWER_MORE);
    assert_true(answer_knows_prompt(&a));
    static const uint32_t CHARS[] = {0, 1, 1, 2, 3};
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(a.prompt.items[i].has_logprob, i > 0);
        assert_true(a.prompt.items[i].logprob == -(float)i);
        assert_int_equal(a.prompt.items[i].chars, CHARS[i]);
    }
    assert_int_equal(push(&a, "x", FINISH_NONE, &e), ANSWER_MORE);
    answer_fini(&a);
    begin(&a, 20, NULL, false);
    answer_expect_prompt(&a, IDS, 5);
    assert_int_equal(push_prompt(&a, 2, 1, &e), ANSWER_FAILED); /* 1 was lost */
    answer_fini(&a);
    begin(&a, 20, NULL, false);
    answer_expect_prompt(&a, IDS, 5);
    assert_int_equal(push_prompt(&a, 1, 5, &e), ANSWER_FAILED); /* more than there are */
    answer_fini(&a);
    begin(&a, 20, NULL, false);
    answer_expect_prompt(&a, IDS, 5);
    assert_int_equal(push(&a, "x", FINISH_NONE, &e), ANSWER_FAILED); /* an answer before them */
    answer_fini(&a);
}

static void test_golden_logprobs(void **state)
{
    static const struct token_logprob TOPS[] = {{BYTE_MODEL_FIRST + 'a', -0.25f},
                                                {BYTE_MODEL_FIRST + 0xc3, -2.5f}};
    struct scores s = {0};
    struct score items[] = {{.id = BYTE_MODEL_FIRST + 'a'},
                            {.id = BYTE_MODEL_FIRST + '"', .chars = 1},
                            {.id = BYTE_MODEL_EOS, .chars = 2, .is_end = true}};
    struct msg_logprob m = {.logprob = -0.25f, .n_top = 2};
    memcpy(m.top, TOPS, sizeof TOPS);
    scores_push(&s, &items[0], &m);
    m.logprob = -3;
    m.n_top = 1;
    scores_push(&s, &items[1], &m);
    m.logprob = 0;
    scores_push(&s, &items[2], &m);
    struct logprobs l = {.parts = {{&s, 0, 0, 0}, {&s, 0, 3, 10}}, .has_top = true};
    struct buf b;
    buf_init(&b, 4096);
    logprobs_put(&b, API_CHAT, model, &l);
    assert_string_equal(
        buf_cstr(&b),
        "{\"content\":[{\"token\":\"a\",\"logprob\":-0.25,\"bytes\":[97],\"top_logprobs\":[{"
        "\"token\":"
        "\"a\",\"logprob\":-0.25,\"bytes\":[97]},{\"token\":\"\xef\xbf\xbd\",\"logprob\":-2.5,"
        "\"bytes\":[195]}]},{\"token\":\"\\\"\",\"logprob\":-3,\"bytes\":[34],\"top_logprobs\":"
        "[{\"token\":\"a\",\"logprob\":-0.25,\"bytes\":[97]}]}],\"refusal\":null}");
    buf_reset(&b);
    logprobs_put(&b, API_COMPLETION, model, &l);
    assert_string_equal(
        buf_cstr(&b),
        "{\"tokens\":[\"a\",\"\\\"\",\"<|im_end|>\"],\"token_logprobs\":[-0.25,-3,0],"
        "\"top_logprobs\":[{\"a\":-0.25,\"bytes:\\\\xc3\":-2.5},{\"a\":-0.25,\"\\\"\":-3},"
        "{\"a\":-0.25,\"<|im_end|>\":0}],\"text_offset\":[10,11,12]}");
    l.has_top = false;
    s.items[0].has_logprob = false;
    buf_reset(&b);
    logprobs_put(&b, API_COMPLETION, model, &l);
    assert_non_null(strstr(buf_cstr(&b), "\"token_logprobs\":[null,-3,0],\"top_logprobs\":null,"));
    buf_fini(&b);
    scores_fini(&s);
}

static void test_golden_embedding(void **state)
{
    struct buf f, b;
    buf_init(&f, 64);
    buf_init(&b, 4096);
    buf_f32(&f, 0.6f);
    buf_f32(&f, 0);
    buf_f32(&f, -0.8f);
    struct reply r = {.kind = API_EMBEDDING, .model = model};
    reply_put_embeddings_head(&b);
    reply_put_embedding(&b, 0, f.data, 3, 3, false);
    reply_put_comma(&b);
    reply_put_embedding(&b, 1, f.data, 3, 3, true);
    reply_put_comma(&b);
    reply_put_embedding(&b, 2, f.data, 3, 2, false); /* cut, and of length 1 again */
    reply_put_embeddings_tail(&b, &r, 7);
    assert_string_equal(
        buf_cstr(&b),
        "{\"object\":\"list\",\"data\":[{\"object\":\"embedding\",\"index\":0,\"embedding\":["
        "0.600000024,0,-0.800000012]},{\"object\":\"embedding\",\"index\":1,\"embedding\":"
        "\"mpkZPwAAAADNzEy/"
        "\"},{\"object\":\"embedding\",\"index\":2,\"embedding\":[1,0]}],\"model\":"
        "\"bytes\",\"usage\":{\"prompt_tokens\":7,\"total_tokens\":7}}");
    buf_fini(&f);
    buf_fini(&b);
}

static void test_attempts(void **state)
{
    struct attempts *t;
    struct choice *f = (struct choice *)&t, *g = (struct choice *)&f; /* never looked into */
    uint32_t slot[4], gen[4];
    assert_int_equal(attempts_create(&t, 3, NULL), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(attempts_take(t, f, &slot[i], &gen[i], NULL), 0);
    assert_int_equal(attempts_take(t, f, &slot[3], &gen[3], NULL), ERR_LIMIT);
    assert_ptr_equal(attempts_find(t, slot[1], gen[1]), f);
    attempts_give(t, slot[1]);
    assert_null(attempts_find(t, slot[1], gen[1]));
    assert_int_equal(attempts_take(t, g, &slot[3], &gen[3], NULL), 0);
    assert_int_equal(slot[3], slot[1]);
    assert_int_not_equal(gen[3], gen[1]);
    assert_null(attempts_find(t, slot[1], gen[1])); /* a late frame of the old one */
    assert_ptr_equal(attempts_find(t, slot[3], gen[3]), g);
    assert_null(attempts_find(t, 3, 1));
    assert_null(attempts_find(t, UINT32_MAX, 0));
    for (int i = 0; i < 1000; i++) {
        attempts_give(t, slot[3]);
        assert_int_equal(attempts_take(t, g, &slot[3], &gen[3], NULL), 0);
    }
    attempts_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_split_characters),
        cmocka_unit_test(test_stop_strings),
        cmocka_unit_test(test_positions),
        cmocka_unit_test(test_bad_ends),
        cmocka_unit_test(test_escaping),
        cmocka_unit_test(test_golden_output),
        cmocka_unit_test(test_attempts),
        cmocka_unit_test(test_scores_go_with_the_text),
        cmocka_unit_test(test_scores_that_are_lost),
        cmocka_unit_test(test_prompt_scores),
        cmocka_unit_test(test_golden_logprobs),
        cmocka_unit_test(test_golden_embedding),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
