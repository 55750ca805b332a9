/* router_world.h - a whole router on loopback, its workers played by the test: every submit and cancel
 * is seen, every frame is written by hand. */
#ifndef EXA_TESTS_ROUTER_WORLD_H
#define EXA_TESTS_ROUTER_WORLD_H

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

static inline int on_submit(void *ctx, uint32_t worker, const void *body, size_t n, struct err *e)
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

static inline int on_cancel(void *ctx, uint32_t worker, const void *body, size_t n, struct err *e)
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

static inline void turn(int ms)
{
    uint64_t until = clock_now_us() + (uint64_t)ms * 1000;
    while (clock_now_us() < until) {
        uv_run(&w.loop, UV_RUN_NOWAIT);
        clock_sleep_us(500);
    }
}

static inline void service(uint8_t state)
{
    struct msg_service s = {.state = state, .n_wanted = 2, .progress = "1 of 2 replicas ready"};
    router_on_service(w.router, &s);
}

static const char *chat_template; /* NULL: the byte model's own */

static inline void model(uint32_t n_ctx)
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
static inline void heartbeat(uint32_t worker, uint64_t epoch, uint32_t incarnation, uint8_t state,
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

static inline void ready(uint32_t worker, uint32_t n_slots)
{
    heartbeat(worker, 5, 1, REPLICA_READY, n_slots);
}

static inline void start_with(struct router_config c, uint32_t n_ctx)
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

static inline void start(struct router_config c)
{
    start_with(c, 100);
}

static inline void on_closed(void *ctx)
{
    w.closed = true;
}

static inline void stop(void)
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

static inline void client_open(struct client *c, const char *request)
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

static inline bool client_read(struct client *c)
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

static inline const char *post(const char *path, const char *body)
{
    static char text[65536];
    snprintf(text, sizeof text,
             "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k\r\nContent-Type: "
             "application/json\r\nContent-Length: %zu\r\nX-Request-Id: my-id\r\n\r\n%s",
             path, strlen(body), body);
    return text;
}

static inline const char *ask(bool stream)
{
    return post("/v1/completions",
                stream
                    ? "{\"model\":\"bytes\",\"prompt\":\"hello\",\"max_tokens\":50,\"stream\":true,"
                      "\"stop\":\"END\",\"seed\":9}"
                    : "{\"model\":\"bytes\",\"prompt\":\"hello\",\"max_tokens\":50,\"stop\":"
                      "\"END\",\"seed\":9}");
}

/* --- a worker --------------------------------------------------------------------------------- */

static inline void put_entry(struct buf *b, const struct sent *s, uint32_t position,
                             const char *text, uint8_t finish)
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

static inline void step_from(uint32_t worker, uint64_t epoch, const struct sent *s,
                             uint32_t position, const char *text, uint8_t finish)
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

static inline void step(const struct sent *s, uint32_t position, const char *text, uint8_t finish)
{
    step_from(s->worker, s->epoch, s, position, text, finish);
}

static struct client c;

#endif
