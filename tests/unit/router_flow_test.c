/* router_flow_test.c - a whole router on loopback, its workers played by the test: every submit and
 * cancel is seen, every frame is written by hand. */
#include "base/clock.h"
#include "router/state.h" /* counters */
#include "tests/tools/byte_model.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { DEADLINE_MS = 10000, MAX_SENT = 64, DEPLOYMENT = 1 };

struct sent {
    bool is_cancel;
    uint32_t worker;
    struct attempt attempt;
    uint32_t replica, n_tokens, max_tokens, n_stop_ids;
    uint64_t epoch, seed;
    uint8_t *body; /* of a submit, owned */
    size_t n_body;
};

static struct world {
    uv_loop_t loop;
    struct router *router;
    int submit_rc; /* what the link answers */
    struct sent sent[MAX_SENT];
    int n_sent;
    uint64_t seq;
    bool drained, closed;
} w;

static int on_submit(void *ctx, uint32_t worker, const void *body, size_t n, struct err *e)
{
    struct msg_submit m;
    assert_int_equal(msg_submit_get(&m, body, n, e), 0);
    assert_true(w.n_sent < MAX_SENT);
    free(w.sent[w.n_sent].body);
    w.sent[w.n_sent++] = (struct sent){.worker = worker,
                                       .attempt = m.attempt,
                                       .replica = m.replica,
                                       .epoch = m.epoch,
                                       .seed = m.sampling.seed,
                                       .n_tokens = m.n_tokens,
                                       .max_tokens = m.max_tokens,
                                       .n_stop_ids = m.n_stop_ids,
                                       .body = malloc(n),
                                       .n_body = n};
    memcpy(w.sent[w.n_sent - 1].body, body, n);
    return w.submit_rc ? err_set(e, w.submit_rc, "the test says no") : 0;
}

static int on_cancel(void *ctx, uint32_t worker, const void *body, size_t n, struct err *e)
{
    struct msg_cancel m;
    assert_int_equal(msg_cancel_get(&m, body, n, e), 0);
    assert_true(w.n_sent < MAX_SENT);
    free(w.sent[w.n_sent].body);
    w.sent[w.n_sent++] = (struct sent){
        .is_cancel = true, .worker = worker, .attempt = m.attempt, .replica = m.replica};
    return 0;
}

/* Turn the loop until cond, or fail at the deadline. */
#define TURN_UNTIL(cond)                                                                           \
    do {                                                                                           \
        uint64_t until_ = clock_now_us() + DEADLINE_MS * 1000;                                     \
        while (!(cond)) {                                                                          \
            uv_run(&w.loop, UV_RUN_NOWAIT);                                                        \
            if (clock_now_us() > until_)                                                           \
                fail_msg("not within the deadline: %s", #cond);                                    \
            clock_sleep_us(200);                                                                   \
        }                                                                                          \
    } while (0)

static void turn(int ms)
{
    uint64_t until = clock_now_us() + (uint64_t)ms * 1000;
    while (clock_now_us() < until) {
        uv_run(&w.loop, UV_RUN_NOWAIT);
        clock_sleep_us(500);
    }
}

static void service(uint8_t state)
{
    struct msg_service s = {.state = state, .n_wanted = 2, .progress = "1 of 2 replicas ready"};
    router_on_service(w.router, &s);
}

static const char *chat_template; /* NULL: the byte model's own */

static void model(uint32_t n_ctx)
{
    struct model_meta meta;
    struct buf b;
    byte_model_meta(&meta);
    if (chat_template) {
        free(meta.chat_template);
        meta.chat_template = strdup(chat_template);
    }
    buf_init(&b, META_MAX_BYTES);
    assert_int_equal(meta_encode(&meta, &b, NULL), 0);
    struct msg_model m = {.deployment = DEPLOYMENT,
                          .name = "bytes",
                          .meta = b.data,
                          .meta_bytes = (uint32_t)b.len,
                          .n_ctx = n_ctx};
    router_on_model(w.router, &m);
    router_on_model(w.router, &m); /* said again by a new scheduler */
    buf_fini(&b);
    meta_fini(&meta);
    TURN_UNTIL(w.router->n_building == 0);
    assert_int_equal(w.router->models->n, 1);
}

/* Worker `worker` has replica number `worker` with this many slots. */
static void heartbeat(uint32_t worker, uint64_t epoch, uint32_t incarnation, uint8_t state,
                      uint32_t n_slots)
{
    static struct msg_heartbeat h;
    h = (struct msg_heartbeat){.member = worker, .incarnation = 1, .seq = ++w.seq, .n_replicas = 1};
    h.replicas[0] = (struct replica_load){.deployment = DEPLOYMENT,
                                          .replica = worker,
                                          .epoch = epoch,
                                          .incarnation = incarnation,
                                          .state = state,
                                          .n_slots = n_slots,
                                          .kv_free_tokens = 1000,
                                          .kv_total_tokens = 1000};
    router_on_heartbeat(w.router, &h, true, clock_now_us());
}

static void ready(uint32_t worker, uint32_t n_slots)
{
    heartbeat(worker, 5, 1, REPLICA_READY, n_slots);
}

static void start_with(struct router_config c, uint32_t n_ctx)
{
    struct err e = ERR_INIT;
    struct router_link link = {NULL, on_submit, on_cancel};
    memset(&w, 0, sizeof w);
    uv_loop_init(&w.loop);
    c.listen = "127.0.0.1";
    c.key = "k";
    c.member = 3;
    c.incarnation = 0x1122334455667788;
    if (router_create(&w.router, &w.loop, &c, &link, &e))
        fail_msg("%s", e.text);
    model(n_ctx);
    service(SERVICE_READY);
}

static void start(struct router_config c)
{
    start_with(c, 100);
}

static void on_closed(void *ctx)
{
    w.closed = true;
}

static void stop(void)
{
    router_close(w.router, on_closed, NULL);
    TURN_UNTIL(w.closed);
    uv_run(&w.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w.loop), 0);
    for (int i = 0; i < MAX_SENT; i++)
        free(w.sent[i].body);
}

/* --- a client --------------------------------------------------------------------------------- */

struct client {
    int fd;
    size_t n;
    bool eof;
    char text[1 << 20];
};

static void client_open(struct client *c, const char *request)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(router_port(w.router))};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    c->n = 0;
    c->eof = false;
    c->text[0] = 0;
    assert_int_equal(connect(c->fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(send(c->fd, request, strlen(request), MSG_NOSIGNAL), (ssize_t)strlen(request));
}

static bool client_read(struct client *c)
{
    ssize_t n = recv(c->fd, c->text + c->n, sizeof c->text - 1 - c->n, MSG_DONTWAIT);
    if (n > 0)
        c->n += (size_t)n;
    if (n == 0)
        c->eof = true;
    c->text[c->n] = 0;
    return n > 0;
}

#define EXPECT(c, needle) TURN_UNTIL((client_read(c), strstr((c)->text, needle)))

static const char *post(const char *path, const char *body)
{
    static char text[65536];
    snprintf(text, sizeof text,
             "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k\r\nContent-Type: "
             "application/json\r\nContent-Length: %zu\r\nX-Request-Id: my-id\r\n\r\n%s",
             path, strlen(body), body);
    return text;
}

static const char *ask(bool stream)
{
    return post("/v1/completions",
                stream
                    ? "{\"model\":\"bytes\",\"prompt\":\"hello\",\"max_tokens\":50,\"stream\":true,"
                      "\"stop\":\"END\",\"seed\":9}"
                    : "{\"model\":\"bytes\",\"prompt\":\"hello\",\"max_tokens\":50,\"stop\":"
                      "\"END\",\"seed\":9}");
}

/* --- a worker --------------------------------------------------------------------------------- */

static void put_entry(struct buf *b, const struct sent *s, uint32_t position, const char *text,
                      uint8_t finish)
{
    struct buf ids;
    buf_init(&ids, 1 << 20);
    for (const char *p = text; *p; p++)
        buf_u32(&ids, *p == '$' ? BYTE_MODEL_EOS : BYTE_MODEL_FIRST + (uint8_t)*p);
    struct step_entry entry = {.attempt = s->attempt,
                               .position = position,
                               .n_tokens = (uint16_t)(ids.len / 4),
                               .tokens = ids.data,
                               .finish = finish};
    msg_entry_put(b, &entry);
    buf_fini(&ids);
}

static void step_from(uint32_t worker, uint64_t epoch, const struct sent *s, uint32_t position,
                      const char *text, uint8_t finish)
{
    struct buf b;
    struct step_section sec = {.deployment = DEPLOYMENT, .replica = s->replica, .epoch = epoch};
    buf_init(&b, 1 << 20);
    msg_section_put(&b, &sec);
    put_entry(&b, s, position, text, finish);
    msg_section_patch(&b, 0, 1);
    router_on_steps(w.router, worker, b.data, b.len);
    buf_fini(&b);
}

static void step(const struct sent *s, uint32_t position, const char *text, uint8_t finish)
{
    step_from(s->worker, s->epoch, s, position, text, finish);
}

/* --- tests ------------------------------------------------------------------------------------ */

static struct client c, d;

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
