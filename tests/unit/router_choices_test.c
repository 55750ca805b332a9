/* router_choices_test.c - what a request's parameters become: choices side by side, submits, and what
 * is refused of them by the model. */
#include "tests/unit/router_world.h"

/* --- several choices -------------------------------------------------------------------------- */

static void test_choices_stream(void **state)
{
    start((struct router_config){0});
    ready(7, 4);
    client_open(&c,
                post("/v1/completions",
                     "{\"model\":\"bytes\",\"prompt\":\"hello\",\"n\":3,\"seed\":9,\"stream\":true,"
                     "\"max_tokens\":20,\"stream_options\":{\"include_usage\":true}}"));
    TURN_UNTIL(w.n_sent == 3);
    assert_int_equal(w.sent[0].seed, 9); /* the first one's is the request's own */
    assert_true(w.sent[1].seed != 9 && w.sent[2].seed != 9 && w.sent[1].seed != w.sent[2].seed);
    step(&w.sent[1], 0, "b", FINISH_NONE);
    EXPECT(&c, "{\"index\":1,\"text\":\"b\"");
    step(&w.sent[0], 0, "aa$", FINISH_STOP);
    EXPECT(&c, "{\"index\":0,\"text\":\"aa\"");
    EXPECT(&c, "{\"index\":0,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"stop\"}");
    assert_null(strstr(c.text, "[DONE]"));
    step(&w.sent[2], 0, "c", FINISH_LENGTH);
    step(&w.sent[1], 1, "d", FINISH_LENGTH);
    EXPECT(&c, "data: [DONE]\n\n");
    assert_non_null(strstr(c.text, "\"prompt_tokens\":5,\"completion_tokens\":6,"));
    assert_int_equal(w.n_sent, 3); /* all ended by themselves */
    assert_int_equal(router_n_running(w.router), 0);
    close(c.fd);
    stop();
}

static void test_choices_whole(void **state)
{
    start((struct router_config){0});
    ready(7, 8);
    client_open(&c, post("/v1/completions",
                         "{\"model\":\"bytes\",\"prompt\":[\"one\",\"three\"],\"n\":2,\"seed\":9,"
                         "\"max_tokens\":20}"));
    TURN_UNTIL(w.n_sent == 4);
    assert_true(w.sent[0].n_tokens == 3 && w.sent[1].n_tokens == 3 && w.sent[3].n_tokens == 5);
    assert_true(w.sent[2].seed == 9 && w.sent[3].seed == w.sent[1].seed);
    for (int i = 3; i >= 0; i--) {
        char text[3] = {(char)('A' + i), '$', 0};
        assert_null(strstr((client_read(&c), c.text), "HTTP"));
        step(&w.sent[i], 0, text, FINISH_STOP);
    }
    EXPECT(&c, "\"total_tokens\":16}}");
    assert_non_null(strstr(c.text, "{\"index\":0,\"text\":\"A\""));
    assert_non_null(strstr(c.text, "{\"index\":3,\"text\":\"D\""));
    close(c.fd);
    stop();
}

/* One choice fails: the request fails, and the others are told to stop. */
static void test_choices_fail_together(void **state)
{
    start((struct router_config){0});
    ready(7, 4);
    client_open(&c, post("/v1/completions", "{\"model\":\"bytes\",\"prompt\":\"hello\",\"n\":3}"));
    TURN_UNTIL(w.n_sent == 3);
    step(&w.sent[0], 0, "fine$", FINISH_STOP);
    step(&w.sent[1], 0, "", FINISH_ERROR);
    EXPECT(&c, "HTTP/1.1 500 ");
    assert_int_equal(w.n_sent, 4);
    assert_true(w.sent[3].is_cancel && w.sent[3].attempt.slot == w.sent[2].attempt.slot);
    close(c.fd);
    /* the client leaves: each that runs is told, those that wait are forgotten */
    heartbeat(7, 5, 1, REPLICA_READY, 2);
    w.n_sent = 0;
    client_open(&c, post("/v1/completions", "{\"model\":\"bytes\",\"prompt\":\"hello\",\"n\":5}"));
    TURN_UNTIL(w.n_sent == 2 && w.router->n_waiting == 3);
    close(c.fd);
    TURN_UNTIL(w.n_sent == 4);
    assert_true(w.sent[2].is_cancel && w.sent[3].is_cancel);
    assert_int_equal(w.router->n_waiting, 0);
    stop();
}

/* The n best of best_of by the mean of their log-probabilities. */
static void scored_step(const struct sent *s, const char *text, float logprob)
{
    struct buf b, ids, ext;
    struct step_section sec = {.deployment = DEPLOYMENT, .replica = s->replica, .epoch = s->epoch};
    buf_init(&b, 1 << 16);
    buf_init(&ids, 1 << 16);
    buf_init(&ext, 1 << 16);
    msg_logprobs_begin_put(&ext, 0, (uint32_t)strlen(text));
    for (const char *p = text; *p; p++) {
        buf_u32(&ids, BYTE_MODEL_FIRST + (uint8_t)*p);
        msg_logprob_put(&ext, logprob, 0, 0, NULL);
    }
    msg_section_put(&b, &sec);
    msg_entry_put(&b, &(struct step_entry){.attempt = s->attempt,
                                           .n_tokens = (uint16_t)strlen(text),
                                           .tokens = ids.data,
                                           .finish = FINISH_LENGTH,
                                           .ext_type = EXT_LOGPROBS,
                                           .ext = ext.data,
                                           .ext_bytes = (uint32_t)ext.len});
    msg_section_patch(&b, 0, 1);
    router_on_steps(w.router, s->worker, b.data, b.len);
    buf_fini(&b);
    buf_fini(&ids);
    buf_fini(&ext);
}

static void test_best_of(void **state)
{
    start((struct router_config){0});
    ready(7, 4);
    client_open(&c, post("/v1/completions",
                         "{\"model\":\"bytes\",\"prompt\":\"hello\",\"n\":2,\"best_of\":4}"));
    TURN_UNTIL(w.n_sent == 4);
    scored_step(&w.sent[0], "aaaa", -2);
    scored_step(&w.sent[1], "b", -1.5f);
    scored_step(&w.sent[2], "cc", -0.5f);
    scored_step(&w.sent[3], "ddd", -1.75f);
    EXPECT(&c, "\"completion_tokens\":10,");
    EXPECT(&c, "\"choices\":[{\"index\":0,\"text\":\"cc\",\"logprobs\":null,");
    assert_non_null(strstr(c.text, "{\"index\":1,\"text\":\"b\""));
    assert_null(strstr(c.text, "aaaa"));
    close(c.fd);
    stop();
}

/* A second attempt says all that the first one did: every field but attempt and replica is the same. */
static void test_resubmitted_alike(void **state)
{
    enum { ATTEMPT = 16, REPLICA_AT = 20, REPLICA_END = 24 };
    start((struct router_config){0});
    ready(7, 4);
    ready(8, 4);
    client_open(
        &c, post("/v1/completions",
                 "{\"model\":\"bytes\",\"prompt\":\"hello\",\"max_tokens\":40,\"temperature\":0.7,"
                 "\"top_k\":9,\"min_p\":0.1,\"typical_p\":0.9,\"repetition_penalty\":1.1,"
                 "\"frequency_penalty\":0.2,\"presence_penalty\":-0.3,\"min_tokens\":3,"
                 "\"logit_bias\":{\"9\":5},\"stop_token_ids\":[70],\"logprobs\":4,\"echo\":true,"
                 "\"guided_regex\":\"[a-z]*\",\"user\":\"me\",\"priority\":-7}"));
    TURN_UNTIL(w.n_sent == 1);
    step(&w.sent[0], 0, "", FINISH_REFUSED);
    TURN_UNTIL(w.n_sent == 2);
    struct sent *a = &w.sent[0], *b = &w.sent[1];
    struct msg_submit m;
    assert_int_equal(a->n_body, b->n_body);
    assert_memory_equal(a->body + ATTEMPT, b->body + ATTEMPT, REPLICA_AT - ATTEMPT);
    /* the deadline that travels is what is left of it: blank it */
    assert_int_equal(msg_submit_get(&m, a->body, a->n_body, NULL), 0);
    size_t total_ms_at = REPLICA_END + 8 + 6 + 47 + 12;
    memset(a->body + total_ms_at, 0, 4);
    memset(b->body + total_ms_at, 0, 4);
    assert_memory_equal(a->body + REPLICA_END, b->body + REPLICA_END, a->n_body - REPLICA_END);
    const struct sampling *s = &m.sampling;
    assert_true(s->top_k == 9 && s->min_p == 0.1f && s->typical_p == 0.9f);
    assert_true(s->repetition_penalty == 1.1f && s->frequency_penalty == 0.2f);
    assert_true(s->presence_penalty == -0.3f && s->min_tokens == 3 && s->n_top == 4);
    assert_true(s->want_logprobs && s->want_prompt_logprobs);
    assert_true(m.n_bias == 1 && u32_at(m.bias, 0) == 9 && f32_at(m.bias, 1) == 5);
    assert_int_equal(u32_at(m.stop_ids, m.n_stop_ids - 1), 70);
    assert_true(m.constraint == CONSTRAINT_REGEX && m.constraint_bytes == 6);
    assert_true(m.priority == 135 && m.tenant && m.kind == SUBMIT_GENERATE && !m.start);
    close(c.fd);
    stop();
}

static void test_bad_for_the_model(void **state)
{
    static const struct {
        const char *path, *fields, *param, *says;
    } CASES[] = {
        {"/v1/completions", "\"stop_token_ids\":[5,259]", "stop_token_ids", "stop_token_ids[1]"},
        {"/v1/completions", "\"logit_bias\":{\"259\":1}", "logit_bias", "token id 259"},
        {"/v1/completions", "\"guided_regex\":\"(\"", "guided_regex", "guided_regex"},
        {"/v1/completions", "\"guided_grammar\":\"root ::= x\"", "guided_grammar", "x"},
        {"/v1/completions",
         "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{"
         "\"type\":\"nothing\"}}}",
         "response_format", "nothing"},
        {"/v1/embeddings", NULL, "model", "not an embedding model"},
    };
    char body[512];
    start((struct router_config){0});
    ready(7, 4);
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        snprintf(body, sizeof body, "{\"model\":\"bytes\",\"%s\":\"hi\"%s%s}",
                 CASES[i].fields ? "prompt" : "input", CASES[i].fields ? "," : "",
                 CASES[i].fields ? CASES[i].fields : "");
        client_open(&c, post(CASES[i].path, body));
        EXPECT(&c, "}}");
        char param[64];
        snprintf(param, sizeof param, "\"param\":\"%s\"", CASES[i].param);
        if (!strstr(c.text, "HTTP/1.1 400 ") || !strstr(c.text, param) ||
            !strstr(c.text, CASES[i].says))
            fail_msg("%s: %s", body, c.text);
        close(c.fd);
    }
    assert_int_equal(w.n_sent, 0);
    stop();
}

/* Higher priorities wait before lower ones, equals in their order. */
static void test_priorities_in_the_queue(void **state)
{
    static struct client clients[4];
    static const int PRIORITIES[] = {0, 5, -5, 0};
    char body[128];
    start((struct router_config){0});
    ready(7, 1);
    client_open(&c, ask(false));
    TURN_UNTIL(w.n_sent == 1);
    for (int i = 0; i < 4; i++) {
        snprintf(body, sizeof body,
                 "{\"model\":\"bytes\",\"prompt\":\"%.*s\",\"max_tokens\":5,\"priority\":%d}",
                 i + 1, "abcd", PRIORITIES[i]);
        client_open(&clients[i], post("/v1/completions", body));
        TURN_UNTIL(w.router->n_waiting == (uint32_t)i + 1);
    }
    static const uint32_t ORDER[] = {3, 1, 4, 2}; /* by the length of their prompts */
    for (int i = 0; i < 4; i++) {
        step(&w.sent[i], 0, "x$", FINISH_STOP);
        assert_int_equal(w.n_sent, i + 2);
        assert_int_equal(w.sent[i + 1].n_tokens, ORDER[i]);
    }
    step(&w.sent[4], 0, "x$", FINISH_STOP);
    for (int i = 0; i < 4; i++)
        close(clients[i].fd);
    close(c.fd);
    stop();
}

/* Tools, their calls and answers, and a template's own variables are in the prompt as the template writes them. */
static void test_tools_reach_the_template(void **state)
{
    static const char TOOLS[] =
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"add\"}}]";
    static const char MESSAGES[] = "\"messages\":[{\"role\":\"user\",\"content\":\"u\"},{\"role\":"
                                   "\"assistant\",\"tool_calls\":[{"
                                   "\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":"
                                   "\"add\",\"arguments\":\"{}\"}}]},"
                                   "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"42\"}]";
    static const struct {
        const char *choice, *prompt;
    } CASES[] = {{"", "[add]u;>add;42;x"}, {",\"tool_choice\":\"none\"", "u;>add;42;x"}};
    char body[1024], prompt[64];
    chat_template =
        "{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}{% for m in messages %}"
        "{{ m.content or '' }}{% for c in m.tool_calls or [] %}>{{ c.function.name }}{% endfor %};"
        "{% endfor %}{{ tail }}";
    start((struct router_config){0});
    ready(7, 4);
    for (int i = 0; i < 2; i++) {
        snprintf(body, sizeof body,
                 "{\"model\":\"bytes\",%s,%s,\"chat_template_kwargs\":{\"tail\":\"x\"}%s}",
                 MESSAGES, TOOLS, CASES[i].choice);
        client_open(&c, post("/v1/chat/completions", body));
        TURN_UNTIL(w.n_sent == i + 1);
        struct msg_submit m;
        assert_int_equal(msg_submit_get(&m, w.sent[i].body, w.sent[i].n_body, NULL), 0);
        for (uint32_t k = 0; k < m.n_tokens; k++)
            prompt[k] = (char)(u32_at(m.tokens, k) - BYTE_MODEL_FIRST);
        prompt[m.n_tokens] = 0;
        assert_string_equal(prompt, CASES[i].prompt);
        step(&w.sent[i], 0, "ok$", FINISH_STOP);
        EXPECT(&c, "\"content\":\"ok\"");
        close(c.fd);
    }
    stop();
    chat_template = NULL; /* one that shows none refuses them */
    start((struct router_config){0});
    ready(7, 4);
    client_open(&c, post("/v1/chat/completions", body));
    EXPECT(&c, "\"param\":\"tools\"");
    close(c.fd);
    stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choices_stream),
        cmocka_unit_test(test_choices_whole),
        cmocka_unit_test(test_choices_fail_together),
        cmocka_unit_test(test_best_of),
        cmocka_unit_test(test_resubmitted_alike),
        cmocka_unit_test(test_bad_for_the_model),
        cmocka_unit_test(test_priorities_in_the_queue),
        cmocka_unit_test(test_tools_reach_the_template),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
