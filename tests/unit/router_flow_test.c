/* router_flow_test.c - a request's way through a router: its frames, its ends, losses, queues and
 * deadlines. */
#include "tests/unit/router_world.h"

static struct client d;

/* --- tests ------------------------------------------------------------------------------------ */

static void test_stream(void **state)
{
    start((struct router_config){0});
    ready(7, 4);
    client_open(&c, ask(true));
    TURN_UNTIL(w.n_sent == 1);
    assert_int_equal(w.sent[0].worker, 7);
    assert_int_equal(w.sent[0].epoch, 5);
    assert_int_equal(w.sent[0].seed, 9);
    assert_int_equal(w.sent[0].n_tokens, 5);
    assert_int_equal(w.sent[0].max_tokens, 50);
    assert_true(w.sent[0].n_stop_ids >= 1);
    assert_int_equal(w.sent[0].attempt.router, 3);
    assert_int_equal(w.sent[0].attempt.router_inc, 0x55667788);
    turn(20);
    client_read(&c);
    assert_int_equal(
        c.n,
        0); /* the status is not sent before the first token: an error can still have its own */
    step(&w.sent[0], 0, "one", FINISH_NONE);
    EXPECT(&c, "\"text\":\"one\"");
    assert_non_null(strstr(c.text, "HTTP/1.1 200 OK\r\n"));
    assert_non_null(strstr(c.text, "x-request-id: my-id\r\n"));
    step(&w.sent[0], 3, "t", FINISH_NONE);
    EXPECT(&c, "\"text\":\"t\"");
    step(&w.sent[0], 4, "wo$", FINISH_STOP);
    EXPECT(&c, "data: [DONE]\n\n\r\n0\r\n\r\n");
    assert_non_null(strstr(c.text, "\"finish_reason\":\"stop\""));
    assert_int_equal(router_n_running(w.router), 0);
    assert_int_equal(w.n_sent, 1); /* ended by itself: no cancel */
    step(&w.sent[0], 7, "late", FINISH_NONE);
    assert_int_equal(w.router->counters.n_entries_stale, 1);
    close(c.fd);
    stop();
}

static void test_stop_string_cancels(void **state)
{
    start((struct router_config){0});
    ready(7, 4);
    client_open(&c, ask(false));
    TURN_UNTIL(w.n_sent == 1);
    step(&w.sent[0], 0, "abcE", FINISH_NONE);
    step(&w.sent[0], 4, "NDx", FINISH_NONE);
    EXPECT(&c, "\"text\":\"abc\"");
    assert_int_equal(w.n_sent, 2);
    assert_true(w.sent[1].is_cancel);
    assert_memory_equal(&w.sent[1].attempt, &w.sent[0].attempt, sizeof w.sent[0].attempt);
    assert_non_null(strstr(c.text, "\"completion_tokens\":6,"));
    close(c.fd);
    stop();
}

static void test_client_leaves(void **state)
{
    start((struct router_config){0});
    ready(7, 4);
    for (int reset = 0; reset < 2; reset++) {
        w.n_sent = 0;
        client_open(&c, ask(true));
        TURN_UNTIL(w.n_sent == 1);
        step(&w.sent[0], 0, "one", FINISH_NONE);
        EXPECT(&c, "one");
        if (reset) {
            struct linger l = {1, 0};
            setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
        }
        close(c.fd);
        TURN_UNTIL(w.n_sent == 2);
        assert_true(w.sent[1].is_cancel);
        assert_int_equal(router_n_running(w.router), 0);
        step(&w.sent[0], 3, "x", FINISH_NONE);
    }
    /* one that sent a pile of pipelined requests and left: reading had stopped, no EOF was seen */
    static char pile[200000];
    size_t n = 0;
    w.n_sent = 0;
    n += (size_t)sprintf(pile, "%s", ask(true));
    while (n < 150000)
        n += (size_t)sprintf(pile + n, "GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n");
    client_open(&c, pile);
    TURN_UNTIL(w.n_sent == 1);
    turn(50);
    close(c.fd);
    TURN_UNTIL(w.n_sent == 2);
    assert_true(w.sent[1].is_cancel);
    assert_int_equal(w.router->counters.n_canceled, 3);
    stop();
}

static void test_foreign_and_late_entries(void **state)
{
    start((struct router_config){0});
    ready(7, 4);
    client_open(&c, ask(true));
    TURN_UNTIL(w.n_sent == 1);
    struct sent s = w.sent[0], x = s;
    x.attempt.generation++;
    step(&x, 0, "BAD", FINISH_NONE);
    x = s;
    x.attempt.slot++;
    step(&x, 0, "BAD", FINISH_NONE);
    x = s;
    x.attempt.router_inc++;
    step(&x, 0, "BAD", FINISH_NONE);
    x = s;
    x.attempt.router++;
    step(&x, 0, "BAD", FINISH_NONE);
    x = s;
    x.replica++;
    step(&x, 0, "BAD", FINISH_NONE);
    step_from(8, 5, &s, 0, "BAD", FINISH_NONE); /* another worker */
    step_from(7, 4, &s, 0, "BAD", FINISH_NONE); /* an old epoch */
    assert_int_equal(w.router->counters.n_entries_stale, 7);
    step(&s, 1, "BAD", FINISH_NONE);
    assert_int_equal(w.router->counters.n_entries_dropped, 1);
    router_on_steps(w.router, 7, "garbage", 7);
    router_on_steps(w.router, 7, "", 0);
    assert_int_equal(w.router->counters.n_frames_bad, 1);
    step(&s, 0, "good$", FINISH_STOP);
    EXPECT(&c, "[DONE]");
    assert_non_null(strstr(c.text, "\"text\":\"good\""));
    assert_null(strstr(c.text, "BAD"));
    close(c.fd);
    stop();
}

static void test_refused_goes_elsewhere(void **state)
{
    start((struct router_config){0});
    ready(7, 4);
    ready(8, 4);
    client_open(&c, ask(false));
    TURN_UNTIL(w.n_sent == 1);
    step(&w.sent[0], 0, "", FINISH_REFUSED);
    assert_int_equal(w.n_sent, 2);
    assert_int_not_equal(w.sent[1].worker, w.sent[0].worker);
    assert_true(w.sent[1].attempt.generation != w.sent[0].attempt.generation ||
                w.sent[1].attempt.slot != w.sent[0].attempt.slot);
    assert_int_equal(w.sent[1].seed, 9);
    step(&w.sent[0], 0, "BAD", FINISH_NONE);
    step(&w.sent[1], 0, "ok$", FINISH_STOP);
    EXPECT(&c, "\"text\":\"ok\"");
    close(c.fd);
    /* a worker that cannot be reached is left alone; the request waits until one can */
    w.submit_rc = ERR_PEER;
    client_open(&c, ask(false));
    TURN_UNTIL(w.n_sent == 4);
    assert_int_equal(w.router->n_waiting, 1);
    w.submit_rc = 0;
    router_on_worker_host(w.router, 8, "n8", "r1"); /* it is back */
    TURN_UNTIL(w.n_sent == 5);
    /* 8, or 7 when its second of being left alone is over on a slow machine */
    assert_true(w.sent[4].worker == 8 || w.sent[4].worker == 7);
    step(&w.sent[4], 0, "ok2$", FINISH_STOP);
    EXPECT(&c, "\"text\":\"ok2\"");
    close(c.fd);
    stop();
}

/* Another router took the last place of the only replica: as soon as that one reports again, or ends one of ours, it is
 * asked again. */
static void test_refused_by_the_only_replica(void **state)
{
    start((struct router_config){0});
    ready(7, 2);
    client_open(&c, ask(false));
    TURN_UNTIL(w.n_sent == 1);
    client_open(&d, ask(false));
    TURN_UNTIL(w.n_sent == 2);
    step(&w.sent[1], 0, "", FINISH_REFUSED);
    assert_int_equal(w.n_sent, 2);
    assert_int_equal(w.router->n_waiting, 1);
    ready(7, 2);
    assert_int_equal(w.n_sent, 3);
    step(&w.sent[2], 0, "", FINISH_REFUSED);
    assert_int_equal(w.n_sent, 3);
    step(&w.sent[0], 0, "first$", FINISH_STOP);
    assert_int_equal(w.n_sent, 4);
    step(&w.sent[3], 0, "second$", FINISH_STOP);
    EXPECT(&c, "first");
    EXPECT(&d, "second");
    close(c.fd);
    close(d.fd);
    stop();
}

static void test_waits_for_a_place(void **state)
{
    start((struct router_config){0});
    ready(7, 1);
    client_open(&c, ask(false));
    TURN_UNTIL(w.n_sent == 1);
    client_open(&d, ask(false));
    TURN_UNTIL(w.router->n_waiting == 1);
    step(&w.sent[0], 0, "first$", FINISH_STOP);
    assert_int_equal(w.n_sent, 2); /* at once, not at the next tick */
    step(&w.sent[1], 0, "second$", FINISH_STOP);
    EXPECT(&c, "first");
    EXPECT(&d, "second");
    close(c.fd);
    close(d.fd);
    stop();
}

static void test_losses(void **state)
{
    start((struct router_config){0});
    ready(7, 4);
    client_open(&c, ask(true));
    client_open(&d, ask(false));
    TURN_UNTIL(w.n_sent == 2);
    step(&w.sent[0], 0, "part", FINISH_NONE);
    step(&w.sent[1], 0, "part", FINISH_NONE);
    router_on_worker_lost(w.router, 7, "the test lost it");
    struct client *streamed = &c, *whole = &d;
    TURN_UNTIL((client_read(&c), client_read(&d), c.n && d.n));
    if (strstr(d.text, "event-stream")) {
        streamed = &d;
        whole = &c;
    }
    EXPECT(streamed, "data: {\"error\":{");
    assert_non_null(strstr(streamed->text, "\"type\":\"server_error\""));
    assert_non_null(strstr(streamed->text, "\"code\":\"replica_lost\""));
    TURN_UNTIL((client_read(streamed), streamed->eof)); /* and no end mark */
    assert_null(strstr(streamed->text, "[DONE]"));
    assert_null(strstr(streamed->text, "\r\n0\r\n"));
    EXPECT(whole, "HTTP/1.1 502 Bad Gateway\r\n");
    EXPECT(whole, "\"code\":\"replica_lost\"");
    assert_int_equal(w.n_sent, 4); /* it may be silent and not dead */
    assert_true(w.sent[2].is_cancel && w.sent[3].is_cancel);
    assert_int_equal(router_n_running(w.router), 0);
    close(c.fd);
    close(d.fd);
    static const struct {
        uint64_t epoch;
        uint32_t incarnation;
        uint8_t state;
    } NEWS[] = {{5, 2, REPLICA_WARMING}, {6, 1, REPLICA_READY}, {5, 1, REPLICA_FAILED}};
    for (size_t i = 0; i < 3; i++) {
        uint32_t worker = 20 + (uint32_t)i;
        w.n_sent = 0;
        ready(worker, 4);
        client_open(&c, ask(false));
        TURN_UNTIL(w.n_sent == 1);
        assert_int_equal(w.sent[0].worker, worker);
        heartbeat(worker, NEWS[i].epoch, NEWS[i].incarnation, NEWS[i].state, 4);
        EXPECT(&c, "\"code\":\"replica_lost\"");
        close(c.fd);
        router_on_worker_lost(w.router, worker, "done with it");
    }
    stop();
}

static void test_not_ready(void **state)
{
    start((struct router_config){0});
    w.router->reached = false; /* as before READY */
    service(SERVICE_STARTING);
    client_open(&c, ask(false));
    EXPECT(&c, "HTTP/1.1 503 Service Unavailable\r\n");
    EXPECT(&c,
           "\"code\":\"not_ready\",\"state\":\"STARTING\",\"progress\":\"1 of 2 replicas ready\"");
    assert_non_null(strstr(c.text, "retry-after: 5\r\n"));
    close(c.fd);
    client_open(&c, "GET /health/ready HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT(&c, "HTTP/1.1 503 ");
    EXPECT(&c, "\"state\":\"STARTING\"");
    assert_null(strstr(c.text, "replicas\":["));
    close(c.fd);
    service(SERVICE_DEGRADED);
    client_open(&c, "GET /health/ready HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT(&c, "\"n_live\":0"); /* the service may be, but no replica is in reach of this router */
    assert_non_null(strstr(c.text, "HTTP/1.1 503 "));
    close(c.fd);
    ready(7, 1);
    client_open(&c, "GET /health/ready HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k\r\n\r\n");
    EXPECT(&c, "HTTP/1.1 200 ");
    EXPECT(&c, "\"replicas\":[{\"deployment\":1,\"replica\":7,\"state\":\"READY\"");
    close(c.fd);
    /* once reached, no state of the service but its end refuses a request */
    service(SERVICE_STARTING);
    client_open(&c, ask(false));
    TURN_UNTIL(w.n_sent == 1);
    step(&w.sent[0], 0, "ok$", FINISH_STOP);
    EXPECT(&c, "\"text\":\"ok\"");
    close(c.fd);
    service(SERVICE_DRAINING);
    client_open(&c, ask(false));
    EXPECT(&c, "\"code\":\"draining\"");
    close(c.fd);
    stop();
}

static void test_request_timeout(void **state)
{
    start((struct router_config){.request_timeout_ms = 1500});
    ready(7, 1);
    client_open(&c, ask(false));
    TURN_UNTIL(w.n_sent == 1);
    EXPECT(&c, "HTTP/1.1 504 ");
    EXPECT(&c, "\"code\":\"request_timeout\"");
    assert_true(w.n_sent == 2 && w.sent[1].is_cancel);
    close(c.fd);
    heartbeat(7, 5, 1, REPLICA_WARMING, 1); /* nobody there: waits, then says so */
    client_open(&c, ask(false));
    EXPECT(&c, "HTTP/1.1 503 ");
    EXPECT(&c, "\"code\":\"no_replica\"");
    assert_non_null(strstr(c.text, "retry-after: "));
    close(c.fd);
    stop();
}

static void test_silent_worker(void **state)
{
    start((struct router_config){.suspect_ms = 1500});
    ready(7, 4);
    client_open(&c, ask(false));
    TURN_UNTIL(w.n_sent == 1);
    turn(1600);
    client_open(&d, ask(false));
    TURN_UNTIL(w.router->n_waiting == 1); /* no new ones for it … */
    step(&w.sent[0], 0, "slow$", FINISH_STOP);
    EXPECT(&c, "slow"); /* … and the old one may still come */
    ready(7, 4);
    TURN_UNTIL(w.n_sent == 2);
    close(c.fd);
    close(d.fd);
    TURN_UNTIL(w.n_sent == 3);
    stop();
}

static void on_drained(void *ctx)
{
    w.drained = true;
}

static void test_drain(void **state)
{
    start((struct router_config){0});
    ready(7, 4);
    client_open(&c, ask(true));
    TURN_UNTIL(w.n_sent == 1);
    router_drain(w.router, 60000, on_drained, NULL);
    client_open(&d, ask(false));
    EXPECT(&d, "HTTP/1.1 503 ");
    EXPECT(&d, "\"code\":\"draining\",\"state\":\"DRAINING\"");
    close(d.fd);
    turn(100);
    assert_false(w.drained);
    step(&w.sent[0], 0, "end$", FINISH_STOP);
    EXPECT(&c, "[DONE]");
    TURN_UNTIL(w.drained);
    TURN_UNTIL((client_read(&c), c.eof)); /* no keep-alive any more */
    close(c.fd);
    stop();
    /* the grace time ends */
    start((struct router_config){0});
    ready(7, 4);
    client_open(&c, ask(true));
    TURN_UNTIL(w.n_sent == 1);
    step(&w.sent[0], 0, "begun", FINISH_NONE);
    EXPECT(&c, "begun");
    router_drain(w.router, 100, on_drained, NULL);
    EXPECT(&c, "\"code\":\"shutting_down\"");
    TURN_UNTIL(w.drained);
    assert_true(w.n_sent == 2 && w.sent[1].is_cancel);
    close(c.fd);
    stop();
}

static void test_close_with_running(void **state)
{
    static char big[60000];
    start((struct router_config){0});
    ready(7, 4);
    client_open(&c, ask(true));
    TURN_UNTIL(w.n_sent == 1);
    /* and one on the thread pool */
    memset(big, 'x', 40000);
    strcpy(big, "{\"model\":\"bytes\",\"prompt\":\"");
    memset(big + strlen(big), 'x', 30000);
    strcpy(big + 30000, "\"}");
    client_open(&d, post("/v1/completions", big));
    TURN_UNTIL(w.router->n_jobs == 1 || (client_read(&d), d.n));
    stop();
    assert_true(w.sent[1].is_cancel);
    close(c.fd);
    close(d.fd);
}

static void test_big_body_on_the_pool(void **state)
{
    static char big[60000];
    start((struct router_config){0});
    ready(7, 4);
    int n = sprintf(big, "{\"model\":\"bytes\",\"prompt\":\"");
    memset(big + n, 'x', 30000);
    strcpy(big + n + 30000, "\"}");
    client_open(&c, post("/v1/completions", big));
    EXPECT(&c, "HTTP/1.1 400 ");
    EXPECT(&c,
           "maximum context length is 100 tokens. However, your prompt resulted in 30000 tokens");
    EXPECT(&c, "\"code\":\"context_length_exceeded\"");
    close(c.fd);
    client_open(&c, post("/v1/completions",
                         "{\"model\":\"bytes\",\"prompt\":\"12345\",\"max_tokens\":96}"));
    EXPECT(&c, "you requested 101 tokens (5 in the prompt, 96 in the completion)");
    close(c.fd);
    client_open(&c, post("/v1/completions", "{\"model\":\"bytes\",\"prompt\":\"12345\"}"));
    TURN_UNTIL(w.n_sent == 1);
    assert_int_equal(w.sent[0].max_tokens, 95); /* what is left */
    close(c.fd);
    TURN_UNTIL(w.n_sent == 2);
    client_open(&c, post("/v1/completions", "{\"model\":\"other\",\"prompt\":\"12345\"}"));
    EXPECT(&c, "HTTP/1.1 404 ");
    EXPECT(&c, "\"code\":\"model_not_found\"");
    close(c.fd);
    client_open(&c, post("/v1/completions", "{\"model\":\"bytes\",\"prompt\":[3,259]}"));
    EXPECT(&c, "prompt[1]");
    close(c.fd);
    stop();
}

static void test_pipelined_in_order(void **state)
{
    static char text[8192];
    start((struct router_config){0});
    ready(7, 4);
    text[0] = 0;
    strcat(text, ask(false));
    strcat(text, "GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n");
    strcat(text, ask(true));
    strcat(text, "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n");
    client_open(&c, text);
    TURN_UNTIL(w.n_sent == 1);
    turn(30);
    assert_int_equal(w.n_sent, 1);
    step(&w.sent[0], 0, "one$", FINISH_STOP);
    TURN_UNTIL(w.n_sent == 2);
    step(&w.sent[1], 0, "two$", FINISH_STOP);
    EXPECT(&c, "Unknown request URL: /nothing");
    char *one = strstr(c.text, "\"text\":\"one\""), *live = strstr(c.text, "\"alive\""),
         *two = strstr(c.text, "\"text\":\"two\""), *none = strstr(c.text, "/nothing");
    assert_true(one && live && two && none && one < live && live < two && two < none);
    close(c.fd);
    stop();
}

/* A client that does not read: its stream is given up at the bound, not kept without end. */
static void test_slow_reader(void **state)
{
    start_with((struct router_config){0}, 1 << 20);
    ready(7, 4);
    client_open(&c,
                post("/v1/completions", "{\"model\":\"bytes\",\"prompt\":\"a\",\"stream\":true}"));
    TURN_UNTIL(w.n_sent == 1);
    struct sent s = w.sent[0];
    uint32_t n = 0;
    while (w.n_sent == 1 &&
           n < 200000) { /* some 40 MB of events, far past what the kernel buffers */
        step(&s, n++, "x", FINISH_NONE);
        if (n % 64 == 0)
            uv_run(&w.loop, UV_RUN_NOWAIT);
    }
    assert_true(n < 200000);
    assert_true(w.n_sent == 2 && w.sent[1].is_cancel);
    assert_int_equal(router_n_running(w.router), 0);
    close(c.fd);
    stop();
}

static void test_queue_is_bounded(void **state)
{
    /* No replica: everything waits. The bound is met by the counter, not by 1,024 sockets. */
    start((struct router_config){0});
    w.router->n_waiting = ROUTER_MAX_WAITING;
    client_open(&c, ask(false));
    EXPECT(&c, "\"code\":\"queue_full\"");
    assert_non_null(strstr(c.text, "HTTP/1.1 503 "));
    assert_non_null(strstr(c.text, "retry-after: "));
    w.router->n_waiting = 0;
    close(c.fd);
    stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_stop_string_cancels),
        cmocka_unit_test(test_client_leaves),
        cmocka_unit_test(test_foreign_and_late_entries),
        cmocka_unit_test(test_refused_goes_elsewhere),
        cmocka_unit_test(test_refused_by_the_only_replica),
        cmocka_unit_test(test_waits_for_a_place),
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_not_ready),
        cmocka_unit_test(test_request_timeout),
        cmocka_unit_test(test_silent_worker),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_close_with_running),
        cmocka_unit_test(test_big_body_on_the_pool),
        cmocka_unit_test(test_pipelined_in_order),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_queue_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
