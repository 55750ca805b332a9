/* wire_hello_test.c - strangers who speak HELLO by hand, each wrong in one thing only: a client against our listening plane, a server against
 * our dialing one. Frames and sums are made here from wire/PROTOCOL.md, so a change that both sides of the plane follow is noticed too. */
#include "wire/plane_core.h"

#include "base/clock.h"
#include "base/log.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    MAGIC = 0x50415845,
    NONCE = 32,
    CLIENT = 7, /* member ids */
    SERVER = 1,
    FRAME_CAP = 32768,
    DEADLINE_US = 30 * 1000 * 1000,
    QUIET_TURNS = 5, /* nothing more comes within these */
};

/* The one thing that is wrong with a proof, and with a way. */
enum {
    FIRST_BIT,
    LAST_BIT,
    NO_SECRET,
    REFLECTED,
    PROTOCOL,
    INCARNATION,
    MEMBER,
    BUILT,
    NONCE_OWN,
    NONCE_THEIRS,
    OTHER_INCARNATION, /* of whom it is said to */
    SWAPPED,
    N_SUMS,
    SHORT = N_SUMS,
    LONG,
    EMPTY,
    N_PROOFS
};
enum { WAY_BIT, WAY_OTHER, WAY_REFLECTED, WAY_OTHER_HANDSHAKE, WAY_SHORT, NO_WAY, N_WAYS };

static const char SECRET[] = "the secret of this job";
static const char BUILD[] = "test";

struct side {
    uint32_t member;
    uint64_t incarnation;
    char build[128];
    uint8_t nonce[NONCE];
};

struct frame {
    uint8_t kind;
    size_t n;
    uint8_t body[FRAME_CAP];
};

static struct rig {
    struct plane *plane; /* the honest one */
    struct plane *way;   /* has a UCX worker whose address the stranger tells as its own way */
    unsigned n_up, n_lost, n_messages;
    uint64_t lost_incarnation;
    struct err lost_why;
    int listen_fd, fd; /* the stranger's */
    int log_fd, stderr_fd;
    uint64_t skew_us; /* added to the clock the honest one sees */
} rig;

/* --- the honest side --------------------------------------------------------------------------------------- */
static void on_up(void *ctx, const struct plane_peer *peer)
{
    rig.n_up++;
}

static void on_message(void *ctx, uint32_t member, uint16_t type, const uint8_t *body, size_t n)
{
    rig.n_messages++;
}

static void on_lost(void *ctx, uint32_t member, uint64_t incarnation, const struct err *why)
{
    rig.n_lost++;
    rig.lost_incarnation = incarnation;
    rig.lost_why = *why;
}

static void plane_make(struct plane **out, uint32_t member, const struct plane_events *ev)
{
    struct plane_self self = {.member = member, .incarnation = 100 + member};
    snprintf(self.build, sizeof self.build, "%s", BUILD);
    self.secret_bytes = strlen(SECRET);
    memcpy(self.secret, SECRET, self.secret_bytes);
    struct err e = ERR_INIT;
    if (plane_ucx_create(out, &self, ev, &e))
        fail_msg("%s", e.text);
}

static void honest_make(uint32_t member)
{
    static const struct plane_events EVENTS = {NULL, on_up, on_message, on_lost};
    plane_make(&rig.plane, member, &EVENTS);
}

/* A way that leads somewhere. */
static void way_make(struct buf *b)
{
    static const struct plane_events NONE;
    if (!rig.way)
        plane_make(&rig.way, 99, &NONE);
    buf_init(b, VIA_MAX_BYTES);
    assert_int_equal(rig.way->ops->via(rig.way, b, NULL), 0);
}

static void turn(void)
{
    plane_progress(rig.plane, clock_now_us() + rig.skew_us);
    if (rig.way)
        plane_progress(rig.way, clock_now_us());
    struct pollfd fd = {.fd = plane_fd(rig.plane), .events = POLLIN};
    poll(&fd, 1, 2);
}

#define WAIT_FOR(cond)                                                                             \
    for (uint64_t until_ = clock_now_us() + DEADLINE_US; !(cond); turn())                          \
        if (clock_now_us() > until_)                                                               \
    fail_msg("not within the deadline: %s", #cond)

/* What was logged since set-up; lines are counted that hold `text`. */
static unsigned log_lines(const char *text)
{
    static char all[1 << 18];
    ssize_t n = pread(rig.log_fd, all, sizeof all - 1, 0);
    assert_true(n >= 0);
    all[n] = 0;
    unsigned count = 0;
    for (char *line = strtok(all, "\n"); line; line = strtok(NULL, "\n"))
        count += strstr(line, text) != NULL;
    return count;
}

static int set_up(void **state)
{
    memset(&rig, 0, sizeof rig);
    rig.listen_fd = rig.fd = -1;
    rig.log_fd = memfd_create("log", MFD_CLOEXEC);
    assert_true(rig.log_fd >= 0);
    fflush(stderr);
    rig.stderr_fd = dup(STDERR_FILENO);
    dup2(rig.log_fd, STDERR_FILENO);
    return 0;
}

static void fd_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static int tear_down(void **state)
{
    fd_close(&rig.fd);
    fd_close(&rig.listen_fd);
    plane_close(rig.plane);
    plane_close(rig.way);
    fflush(stderr);
    dup2(rig.stderr_fd, STDERR_FILENO);
    fd_close(&rig.stderr_fd);
    fd_close(&rig.log_fd);
    return 0;
}

/* --- the stranger's hands ---------------------------------------------------------------------------------- */
static struct side side_make(uint32_t member)
{
    struct side s = {.member = member, .incarnation = 5000 + member};
    snprintf(s.build, sizeof s.build, "%s", BUILD);
    random_bytes(s.nonce, sizeof s.nonce);
    return s;
}

static void side_put(struct buf *b, const struct side *s)
{
    buf_u32(b, s->member);
    buf_u64(b, s->incarnation);
    buf_str(b, s->build);
    buf_put(b, s->nonce, NONCE);
}

/* What a sum is taken over. Each field is right unless a case says otherwise. */
struct sum {
    const char *label, *secret;
    uint32_t protocol;
    struct side client, server;
    const void *extra;
    size_t n;
};

static void sum_take(uint8_t out[SHA256_BYTES], const struct sum *s)
{
    struct buf b;
    buf_init(&b, 65536);
    buf_str(&b, s->label);
    buf_u32(&b, s->protocol);
    side_put(&b, &s->client);
    side_put(&b, &s->server);
    buf_blob(&b, s->extra, s->n);
    assert_true(buf_ok(&b));
    hmac_sha256(s->secret, strlen(s->secret), b.data, b.len, out);
    buf_fini(&b);
}

static struct sum sum_of(const char *label, const struct side *client, const struct side *server)
{
    return (struct sum){label, SECRET, PLANE_PROTOCOL, *client, *server, NULL, 0};
}

/* One field of what a proof is taken over is not what HELLO and CHALLENGE said. own, other: the two in s; reflected: the other's label */
static void sum_spoil(struct sum *s, unsigned how, struct side *own, struct side *other,
                      const char *reflected)
{
    s->secret = how == NO_SECRET ? "the secret of this joc" : SECRET;
    s->label = how == REFLECTED ? reflected : s->label;
    s->protocol += how == PROTOCOL;
    own->incarnation += how == INCARNATION;
    own->member += how == MEMBER;
    own->build[0] = how == BUILT ? 'T' : own->build[0];
    own->nonce[0] ^= how == NONCE_OWN;
    other->nonce[NONCE - 1] ^= how == NONCE_THEIRS;
    other->incarnation += how == OTHER_INCARNATION;
    if (how == SWAPPED) {
        struct side swap = *own;
        *own = *other;
        *other = swap;
    }
}

static void say(uint8_t kind, const void *body, size_t n)
{
    struct buf b;
    buf_init(&b, FRAME_CAP + 8);
    buf_u32(&b, (uint32_t)n);
    buf_u8(&b, kind);
    buf_put(&b, body, n);
    assert_int_equal(send(rig.fd, b.data, b.len, MSG_NOSIGNAL), b.len);
    buf_fini(&b);
}

static void way_say(const char *label, const struct side *client, const struct side *server)
{
    struct buf via, b;
    way_make(&via);
    struct sum s = sum_of(label, client, server);
    s.extra = via.data;
    s.n = via.len;
    uint8_t sum[SHA256_BYTES];
    sum_take(sum, &s);
    buf_init(&b, FRAME_CAP);
    buf_put(&b, sum, sizeof sum);
    buf_put(&b, via.data, via.len);
    say(FRAME_WAY, b.data, b.len);
    buf_fini(&b);
    buf_fini(&via);
}

/* Bytes from the honest side, which runs meanwhile; false: it closed. */
static bool hear_bytes(uint8_t *to, size_t n)
{
    size_t have = 0;
    for (uint64_t until = clock_now_us() + DEADLINE_US; have < n; turn()) {
        ssize_t k = recv(rig.fd, to + have, n - have, MSG_DONTWAIT);
        if (k == 0)
            return false;
        have += k > 0 ? (size_t)k : 0;
        if (clock_now_us() > until)
            fail_msg("nothing came within the deadline");
    }
    return true;
}

static bool hear(struct frame *f)
{
    uint8_t head[5];
    if (!hear_bytes(head, sizeof head))
        return false;
    struct rd r = rd_make(head, sizeof head);
    f->n = rd_u32(&r);
    f->kind = rd_u8(&r);
    assert_true(f->n <= sizeof f->body);
    return hear_bytes(f->body, f->n);
}

static struct side side_get(struct rd *r)
{
    struct side s = {.member = rd_u32(r)};
    s.incarnation = rd_u64(r);
    rd_str(r, s.build, sizeof s.build);
    const void *nonce = rd_bytes(r, NONCE);
    assert_non_null(nonce);
    memcpy(s.nonce, nonce, NONCE);
    return s;
}

static void expect_refusal(uint32_t code, const char *text)
{
    static struct frame f;
    assert_true(hear(&f));
    assert_int_equal(f.kind, FRAME_REFUSE);
    struct rd r = rd_make(f.body, f.n);
    char got[HELLO_TEXT_BYTES];
    assert_int_equal(rd_u32(&r), code);
    rd_str(&r, got, sizeof got);
    assert_true(rd_done(&r));
    if (!strstr(got, text))
        fail_msg("refused with: %s", got);
}

/* Whatever is said after a refusal reaches nobody. */
static void expect_silence(void)
{
    say(FRAME_MESSAGE, "late", 4);
    say(FRAME_READY, NULL, 0);
    for (int i = 0; i < QUIET_TURNS; i++)
        turn();
    assert_int_equal(rig.n_up, 0);
    assert_int_equal(rig.n_messages, 0);
    assert_false(plane_is_up(rig.plane, CLIENT) || plane_is_up(rig.plane, SERVER));
}

/* --- a client by hand -------------------------------------------------------------------------------------- */
static uint16_t plane_port(void)
{
    struct buf b;
    buf_init(&b, 65535);
    assert_int_equal(plane_address(rig.plane, &b, NULL), 0);
    struct rd r = rd_make(b.data, b.len);
    char host[64];
    rd_u8(&r);
    rd_str(&r, host, sizeof host);
    uint16_t port = 0;
    for (unsigned n = rd_u8(&r); n && !port; n--) {
        rd_u8(&r);
        uint16_t at = rd_u16(&r);
        uint8_t bytes = rd_u8(&r);
        rd_bytes(&r, bytes);
        if (bytes == 4)
            port = at;
    }
    assert_true(rd_ok(&r) && port);
    buf_fini(&b);
    return port;
}

static void client_connect(void)
{
    fd_close(&rig.fd);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(plane_port())};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    rig.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(rig.fd, (struct sockaddr *)&a, sizeof a), 0);
}

struct hello_say { /* what HELLO says besides the side */
    uint32_t magic, protocol, to;
    size_t cut, extra; /* bytes off and on at the end */
};

static const struct hello_say HELLO_RIGHT = {MAGIC, PLANE_PROTOCOL, SERVER, 0, 0};

static void client_hello(const struct side *us, const struct hello_say *h)
{
    struct buf b;
    buf_init(&b, 4096);
    buf_u32(&b, h->magic);
    buf_u32(&b, h->protocol);
    buf_u32(&b, h->to);
    side_put(&b, us);
    for (size_t i = 0; i < h->extra; i++)
        buf_u8(&b, 0);
    say(FRAME_HELLO, b.data, b.len - h->cut);
    buf_fini(&b);
}

/* HELLO, and the server as its CHALLENGE shows it, whose proof is checked here. */
static struct side client_challenged(const struct side *us)
{
    static struct frame f;
    client_connect();
    client_hello(us, &HELLO_RIGHT);
    assert_true(hear(&f));
    assert_int_equal(f.kind, FRAME_CHALLENGE);
    struct rd r = rd_make(f.body, f.n);
    assert_int_equal(rd_u32(&r), MAGIC);
    assert_int_equal(rd_u32(&r), PLANE_PROTOCOL);
    struct side server = side_get(&r);
    assert_int_equal(server.member, SERVER);
    assert_int_equal(server.incarnation, 100 + SERVER);
    assert_string_equal(server.build, BUILD);
    struct sum s = sum_of("exaserve proof of server", us, &server);
    uint8_t proof[SHA256_BYTES];
    sum_take(proof, &s);
    const void *theirs = rd_bytes(&r, sizeof proof);
    assert_true(rd_done(&r));
    assert_memory_equal(theirs, proof, sizeof proof);
    return server;
}

static void client_prove(const struct side *us, const struct side *server)
{
    struct sum s = sum_of("exaserve proof of client", us, server);
    uint8_t proof[SHA256_BYTES];
    sum_take(proof, &s);
    say(FRAME_PROOF, proof, sizeof proof);
}

static void hear_way(struct frame *f, const char *label, const struct side *client,
                     const struct side *server)
{
    assert_true(hear(f));
    assert_int_equal(f->kind, FRAME_WAY);
    assert_true(f->n > SHA256_BYTES);
    struct sum s = sum_of(label, client, server);
    s.extra = f->body + SHA256_BYTES;
    s.n = f->n - SHA256_BYTES;
    uint8_t sum[SHA256_BYTES];
    sum_take(sum, &s);
    assert_memory_equal(f->body, sum, sizeof sum);
}

/* The server's WAY, answer to a right proof. */
static void client_hears_way(struct frame *f, const struct side *us, const struct side *server)
{
    hear_way(f, "exaserve way of server", us, server);
}

/* All that the cases below get wrong is right here: the server takes it. Its messages take the other way only. */
static void client_right(void **state)
{
    static struct frame f;
    honest_make(SERVER);
    struct side us = side_make(CLIENT);
    snprintf(us.build, sizeof us.build, "another build");
    struct side server = client_challenged(&us);
    client_prove(&us, &server);
    client_hears_way(&f, &us, &server);
    assert_int_equal(rig.n_up, 0);
    way_say("exaserve way of client", &us, &server);
    WAIT_FOR(rig.n_up);
    WAIT_FOR(plane_queued_bytes(rig.plane, CLIENT) ==
             0); /* READY left: UCX's own meeting is over */
    assert_int_equal(log_lines(" W "), 0);
    assert_int_equal(log_lines("member 7 runs another build peer=another build"), 1);
    say(FRAME_MESSAGE, "hello", 5);
    assert_false(hear(&f));
    assert_int_equal(rig.n_lost, 1);
    assert_int_equal(rig.lost_incarnation, us.incarnation);
    assert_int_equal(rig.n_messages, 0);
}

static void client_hello_wrong(void **state)
{
    struct {
        const char *what;
        struct hello_say hello;
        uint32_t member;
        uint64_t incarnation;
        size_t build_bytes;
        uint32_t code;
        const char *text;
    } cases[] = {
        {"magic", {MAGIC + 1, PLANE_PROTOCOL, SERVER, 0, 0}, 7, 1, 4, 4, "HELLO expected"},
        {"none", {MAGIC, 0, SERVER, 0, 0}, 7, 1, 4, 4, "protocol 0"},
        {"older", {MAGIC, PLANE_PROTOCOL - 1, SERVER, 0, 0}, 7, 1, 4, 1, "protocol 1"},
        {"newer", {MAGIC, PLANE_PROTOCOL + 1, SERVER, 0, 0}, 7, 1, 4, 1, "protocol 3"},
        {"newer, longer", {MAGIC, PLANE_PROTOCOL + 1, SERVER, 0, 9}, 7, 1, 4, 1, "protocol 3"},
        {"wanted member",
         {MAGIC, PLANE_PROTOCOL, SERVER + 1, 0, 0},
         7,
         1,
         4,
         3,
         "this is member 1"},
        {"own member", {MAGIC, PLANE_PROTOCOL, SERVER, 0, 0}, SERVER, 1, 4, 3, "this is member 1"},
        {"lower member", {MAGIC, PLANE_PROTOCOL, SERVER, 0, 0}, 0, 1, 4, 3, "this is member 1"},
        {"incarnation", {MAGIC, PLANE_PROTOCOL, SERVER, 0, 0}, 7, 0, 4, 4, "malformed"},
        {"build", {MAGIC, PLANE_PROTOCOL, SERVER, 0, 0}, 7, 1, PLANE_BUILD_BYTES, 4, "malformed"},
        {"short", {MAGIC, PLANE_PROTOCOL, SERVER, 1, 0}, 7, 1, 4, 4, "malformed"},
        {"long", {MAGIC, PLANE_PROTOCOL, SERVER, 0, 1}, 7, 1, 4, 4, "malformed"},
    };
    honest_make(SERVER);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct side us = side_make(cases[i].member);
        us.incarnation = cases[i].incarnation;
        memset(us.build, 'b', cases[i].build_bytes);
        us.build[cases[i].build_bytes] = 0;
        client_connect();
        client_hello(&us, &cases[i].hello);
        expect_refusal(cases[i].code, cases[i].text);
        expect_silence();
        if (log_lines(" W test plane: refused a connection: ") != i + 1)
            fail_msg("wrong %s: %u lines", cases[i].what, log_lines(" W "));
    }
}

static void client_proof_wrong(void **state)
{
    honest_make(SERVER);
    for (unsigned i = 0; i < N_PROOFS; i++) {
        struct side us = side_make(CLIENT);
        struct side server = client_challenged(&us);
        struct sum s = sum_of("exaserve proof of client", &us, &server);
        sum_spoil(&s, i, &s.client, &s.server, "exaserve proof of server");
        uint8_t proof[SHA256_BYTES + 1] = {0};
        sum_take(proof, &s);
        proof[0] ^= i == FIRST_BIT;
        proof[SHA256_BYTES - 1] ^= i == LAST_BIT;
        say(FRAME_PROOF, proof, i == EMPTY ? 0 : sizeof proof - 1 + (i == LONG) - (i == SHORT));
        expect_refusal(REFUSE_SECRET, "does not know the job secret");
        expect_silence();
        if (log_lines("refused a connection: member 7 (build test) does not know the job secret") !=
            i + 1)
            fail_msg("case %u", i);
    }
    assert_int_equal(log_lines(" W "), N_PROOFS);
}

/* Everything a right client said once is said again to the letter. */
static void client_replays(void **state)
{
    static struct frame f;
    honest_make(SERVER);
    struct side us = side_make(CLIENT);
    struct side server = client_challenged(&us);
    struct sum s = sum_of("exaserve proof of client", &us, &server);
    uint8_t proof[SHA256_BYTES];
    sum_take(proof, &s);
    say(FRAME_PROOF, proof, sizeof proof);
    client_hears_way(&f, &us, &server);
    struct side later = client_challenged(&us);
    assert_memory_not_equal(server.nonce, later.nonce, NONCE);
    say(FRAME_PROOF, proof, sizeof proof);
    expect_refusal(REFUSE_SECRET, "does not know the job secret");
    expect_silence();
    assert_int_equal(log_lines(" W test plane: refused a connection: "), 1);
}

/* A proven client tells a way that is not its own: the sum is wrong, of another handshake, or the server's own. */
static void client_way_wrong(void **state)
{
    static struct frame f;
    honest_make(SERVER);
    for (unsigned i = 0; i < N_WAYS; i++) {
        struct side us = side_make(CLIENT);
        struct side server = client_challenged(&us);
        client_prove(&us, &server);
        client_hears_way(&f, &us, &server);
        struct sum s = sum_of("exaserve way of client", &us, &server);
        s.client.nonce[5] ^= i == WAY_OTHER_HANDSHAKE;
        s.extra = f.body + SHA256_BYTES; /* UCX must never see it, but could */
        s.n = i == NO_WAY ? 0 : f.n - SHA256_BYTES;
        if (i != WAY_REFLECTED)
            sum_take(f.body, &s);
        f.body[0] ^= i == WAY_BIT;
        f.body[f.n - 1] ^= i == WAY_OTHER;
        say(FRAME_WAY, f.body, i == WAY_SHORT ? SHA256_BYTES - 1 : SHA256_BYTES + s.n);
        assert_false(hear(&f)); /* closed */
        WAIT_FOR(!rig.plane->waiting);
        assert_int_equal(rig.n_up, 0);
        assert_int_equal(log_lines("the way to member 7 is not its own"), i < NO_WAY ? i + 1 : i);
    }
    assert_int_equal(log_lines("told no way for messages"), 1);
    assert_int_equal(log_lines(" test plane: "), N_WAYS);
}

/* Frames of a right client, in an order that skips what it must show. */
static void client_skips(void **state)
{
    static const uint8_t KINDS[] = {FRAME_MESSAGE, FRAME_CHALLENGE, FRAME_PROOF, FRAME_WAY,
                                    FRAME_READY,   FRAME_BYE,       FRAME_MORE,  200};
    static struct frame f;
    honest_make(SERVER);
    for (unsigned i = 0; i < sizeof KINDS; i++) {
        struct side us = side_make(CLIENT);
        client_connect();
        say(KINDS[i], us.nonce, sizeof us.nonce);
        assert_false(hear(&f));
        if (KINDS[i] == FRAME_PROOF)
            continue;
        struct side server = client_challenged(&us);
        say(KINDS[i], server.nonce, sizeof server.nonce);
        assert_false(hear(&f));
        assert_int_equal(rig.n_up + rig.n_messages, 0);
    }
    struct side us = side_make(CLIENT); /* a right WAY, but no PROOF */
    struct side server = client_challenged(&us);
    way_say("exaserve way of client", &us, &server);
    assert_false(hear(&f));
    assert_int_equal(rig.n_up, 0);
    assert_int_equal(log_lines("ended before it proved itself"), 2 * sizeof KINDS);
}

/* However many are refused and do not hang up, they hold no more descriptors than strangers may, and a member comes in between. */
static void client_crowd(void **state)
{
    enum { CROWD = 5 * PLANE_MAX_STRANGERS };
    static int fds[CROWD];
    static struct frame f;
    honest_make(SERVER);
    struct side us = side_make(CLIENT);
    struct hello_say wrong = HELLO_RIGHT;
    wrong.magic++;
    for (unsigned i = 0; i < CROWD; i++) {
        rig.fd = -1;
        client_connect();
        client_hello(&us, &wrong);
        fds[i] = rig.fd;
        plane_progress(rig.plane, clock_now_us());
        unsigned n = 0;
        for (const struct link *l = rig.plane->waiting; l; l = l->next)
            n++;
        assert_true(n <= PLANE_MAX_STRANGERS);
    }
    rig.fd = -1;
    uint64_t from_us = clock_now_us();
    struct side server = client_challenged(&us);
    client_prove(&us, &server);
    client_hears_way(&f, &us, &server);
    print_message("a member among strangers got in within %.0f ms\n",
                  (double)(clock_now_us() - from_us) / 1e3);
    for (unsigned i = 0; i < CROWD; i++)
        close(fds[i]);
    assert_int_equal(log_lines(" test plane: "), PLANE_STRANGER_LINES);
    rig.skew_us = 11 * 1000 * 1000;
    client_connect();
    client_hello(&us, &wrong);
    expect_refusal(REFUSE_FORMAT, "HELLO expected");
    assert_int_equal(log_lines("more lines on connections without a proof were left out"), 1);
}

/* Of this thread alone: what others of a loaded machine take does not count. */
static uint64_t cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* A refused one that goes on sending, faster than it can be read, does not hold up the loop and is closed in time. */
static void client_floods(void **state)
{
    static uint8_t frames[5 * 8192]; /* empty ones */
    for (size_t i = 4; i < sizeof frames; i += 5)
        frames[i] = FRAME_HELLO;
    honest_make(SERVER);
    client_connect();
    struct side us = side_make(SERVER);
    client_hello(&us, &HELLO_RIGHT);
    WAIT_FOR(rig.plane->waiting && rig.plane->waiting->state == LINK_LEAVING);
    pid_t pid = fork();
    if (pid == 0) {
        for (int fd = 3; fd < 1024; fd++) /* the plane's end of it among them */
            if (fd != rig.fd)
                close(fd);
        while (send(rig.fd, frames, sizeof frames, MSG_NOSIGNAL) > 0)
            ;
        _exit(0);
    }
    alarm(60); /* a plane that reads on never comes back */
    uint64_t from_us = clock_now_us(), longest_us = 0;
    while (rig.plane->waiting) {
        uint64_t now_us = clock_now_us(), before_us = cpu_us();
        plane_progress(rig.plane, now_us);
        uint64_t took_us = cpu_us() - before_us;
        longest_us = took_us > longest_us ? took_us : longest_us;
        assert_true(now_us - from_us < 20 * 1000 * 1000);
    }
    alarm(0);
    print_message("closed after %.0f ms, longest progress %.1f ms\n",
                  (double)(clock_now_us() - from_us) / 1e3, (double)longest_us / 1e3);
    assert_true(longest_us < 1000 * 1000);
    waitpid(pid, NULL, 0);
}

/* --- a server by hand -------------------------------------------------------------------------------------- */
/* Our plane dials us, the way it dials a member: by a published address. */
static void server_listen(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t len = sizeof a;
    fd_close(&rig.listen_fd);
    rig.listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(rig.listen_fd, (struct sockaddr *)&a, len), 0);
    assert_int_equal(listen(rig.listen_fd, 8), 0);
    assert_int_equal(getsockname(rig.listen_fd, (struct sockaddr *)&a, &len), 0);
    struct buf b;
    buf_init(&b, 65535);
    assert_int_equal(plane_address(rig.plane, &b, NULL), 0);
    b.len = (size_t)1 + 4 +
            b.data[1]; /* version and host as published; one entry: loopback, our port */
    buf_u8(&b, 1);
    buf_u8(&b, 1);
    buf_u16(&b, ntohs(a.sin_port));
    buf_u8(&b, 4);
    buf_put(&b, &a.sin_addr, 4);
    assert_int_equal(plane_connect(rig.plane, SERVER, b.data, b.len, NULL), 0);
    buf_fini(&b);
}

static struct side server_hears_hello(void)
{
    static struct frame f;
    server_listen();
    fd_close(&rig.fd);
    WAIT_FOR((rig.fd = accept4(rig.listen_fd, NULL, NULL, SOCK_CLOEXEC)) >= 0);
    assert_true(hear(&f));
    assert_int_equal(f.kind, FRAME_HELLO);
    struct rd r = rd_make(f.body, f.n);
    assert_int_equal(rd_u32(&r), MAGIC);
    assert_int_equal(rd_u32(&r), PLANE_PROTOCOL);
    assert_int_equal(rd_u32(&r), SERVER);
    struct side client = side_get(&r);
    assert_true(rd_done(&r));
    assert_int_equal(client.member, CLIENT);
    assert_int_equal(client.incarnation, 100 + CLIENT);
    return client;
}

struct challenge_say {
    uint32_t magic, protocol;
    size_t cut, extra;
};

static const struct challenge_say CHALLENGE_RIGHT = {MAGIC, PLANE_PROTOCOL, 0, 0};

static void server_challenge(const struct side *us, const struct challenge_say *c,
                             const uint8_t proof[SHA256_BYTES])
{
    struct buf b;
    buf_init(&b, 4096);
    buf_u32(&b, c->magic);
    buf_u32(&b, c->protocol);
    side_put(&b, us);
    buf_put(&b, proof, SHA256_BYTES);
    for (size_t i = 0; i < c->extra; i++)
        buf_u8(&b, 0);
    say(FRAME_CHALLENGE, b.data, b.len - c->cut);
    buf_fini(&b);
}

static void server_challenge_right(const struct side *us, const struct side *client)
{
    struct sum s = sum_of("exaserve proof of server", client, us);
    uint8_t proof[SHA256_BYTES];
    sum_take(proof, &s);
    server_challenge(us, &CHALLENGE_RIGHT, proof);
}

static void server_hears_proof(const struct side *us, const struct side *client)
{
    static struct frame f;
    assert_true(hear(&f));
    assert_int_equal(f.kind, FRAME_PROOF);
    assert_int_equal(f.n, SHA256_BYTES);
    struct sum s = sum_of("exaserve proof of client", client, us);
    uint8_t proof[SHA256_BYTES];
    sum_take(proof, &s);
    assert_memory_equal(f.body, proof, sizeof proof);
}

static void expect_lost(unsigned n, enum err_code code, const char *text)
{
    WAIT_FOR(rig.n_lost);
    for (int i = 0; i < QUIET_TURNS; i++)
        turn();
    assert_int_equal(rig.n_lost, n);
    assert_int_equal(rig.lost_incarnation, 0);
    assert_int_equal(rig.lost_why.code, code);
    if (!strstr(rig.lost_why.text, text))
        fail_msg("lost because: %s", rig.lost_why.text);
    assert_int_equal(rig.n_up + rig.n_messages, 0);
}

/* Right in all but the last step: READY proves nothing here, it must come from where the messages will. */
static void server_right(void **state)
{
    static struct frame f;
    honest_make(CLIENT);
    struct side client = server_hears_hello();
    struct side us = side_make(SERVER);
    snprintf(us.build, sizeof us.build, "another build");
    server_challenge_right(&us, &client);
    server_hears_proof(&us, &client);
    way_say("exaserve way of server", &client, &us);
    hear_way(&f, "exaserve way of client", &client, &us);
    assert_int_equal(rig.n_up + rig.n_lost, 0);
    say(FRAME_READY, NULL, 0); /* on the wrong way */
    expect_lost(1, ERR_PROTO, "does not belong to HELLO");
}

static void server_challenge_wrong(void **state)
{
    struct {
        const char *what;
        struct challenge_say challenge;
        uint64_t incarnation;
        size_t build_bytes;
        uint32_t code;
        const char *text;
    } cases[] = {
        {"magic", {MAGIC + 1, PLANE_PROTOCOL, 0, 0}, 1, 4, 4, "CHALLENGE expected"},
        {"newer", {MAGIC, PLANE_PROTOCOL + 1, 0, 0}, 1, 4, 1, "protocol 3"},
        {"newer, shorter", {MAGIC, PLANE_PROTOCOL + 1, 40, 0}, 1, 4, 1, "protocol 3"},
        {"incarnation", {MAGIC, PLANE_PROTOCOL, 0, 0}, 0, 4, 4, "malformed"},
        {"build", {MAGIC, PLANE_PROTOCOL, 0, 0}, 1, PLANE_BUILD_BYTES, 4, "malformed"},
        {"short", {MAGIC, PLANE_PROTOCOL, 1, 0}, 1, 4, 4, "malformed"},
        {"long", {MAGIC, PLANE_PROTOCOL, 0, 1}, 1, 4, 4, "malformed"},
    };
    honest_make(CLIENT);
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct side client = server_hears_hello();
        struct side us = side_make(SERVER);
        us.incarnation = cases[i].incarnation;
        memset(us.build, 'b', cases[i].build_bytes);
        us.build[cases[i].build_bytes] = 0;
        struct sum s = sum_of("exaserve proof of server", &client, &us);
        uint8_t proof[SHA256_BYTES];
        sum_take(proof, &s);
        server_challenge(&us, &cases[i].challenge, proof);
        expect_refusal(cases[i].code, cases[i].text);
        expect_silence();
        expect_lost(i + 1, ERR_PROTO, cases[i].text);
    }
    assert_int_equal(log_lines(" W "), 0); /* whoever dialed says it */
}

/* It answers at the address of another member. The proof is right, so it is somebody of this job: it may have got the port meanwhile. */
static void server_other_member(void **state)
{
    static struct frame f;
    honest_make(CLIENT);
    struct side client = server_hears_hello();
    struct side us = side_make(SERVER + 1);
    server_challenge_right(&us, &client);
    assert_false(hear(&f));
    expect_lost(1, ERR_PEER, "member 2 answered at the address of member 1");
}

static void server_proof_wrong(void **state)
{
    honest_make(CLIENT);
    for (unsigned i = 0; i < N_SUMS; i++) {
        struct side client = server_hears_hello();
        struct side us = side_make(SERVER);
        struct sum s = sum_of("exaserve proof of server", &client, &us);
        sum_spoil(&s, i, &s.server, &s.client, "exaserve proof of client");
        uint8_t proof[SHA256_BYTES];
        sum_take(proof, &s);
        proof[0] ^= i == FIRST_BIT;
        proof[SHA256_BYTES - 1] ^= i == LAST_BIT;
        server_challenge(&us, &CHALLENGE_RIGHT, proof);
        expect_refusal(REFUSE_SECRET, "does not know the job secret"); /* and no PROOF before it */
        expect_silence();
        expect_lost(i + 1, ERR_PROTO, "member 1 (build test) does not know the job secret");
    }
}

/* The CHALLENGE of an earlier connection, to the letter. */
static void server_replays(void **state)
{
    honest_make(CLIENT);
    struct side client = server_hears_hello();
    struct side us = side_make(SERVER);
    struct sum s = sum_of("exaserve proof of server", &client, &us);
    uint8_t proof[SHA256_BYTES];
    sum_take(proof, &s);
    server_challenge(&us, &CHALLENGE_RIGHT, proof);
    server_hears_proof(&us, &client);
    fd_close(&rig.fd);
    expect_lost(1, ERR_PEER, "closed");
    struct side later = server_hears_hello();
    assert_memory_not_equal(client.nonce, later.nonce, NONCE);
    server_challenge(&us, &CHALLENGE_RIGHT, proof);
    expect_refusal(REFUSE_SECRET, "does not know the job secret");
    expect_silence();
    expect_lost(2, ERR_PROTO, "does not know the job secret");
}

static void server_way_wrong(void **state)
{
    static struct frame f;
    honest_make(CLIENT);
    for (unsigned i = 0; i < N_WAYS; i++) {
        struct side client = server_hears_hello();
        struct side us = side_make(SERVER);
        server_challenge_right(&us, &client);
        server_hears_proof(&us, &client);
        struct buf b;
        way_make(&b);
        struct sum s = sum_of(
            i == WAY_REFLECTED ? "exaserve way of client" : "exaserve way of server", &client, &us);
        s.server.nonce[5] ^= i == WAY_OTHER_HANDSHAKE;
        s.extra = b.data;
        s.n = i == NO_WAY ? 0 : b.len;
        sum_take(f.body, &s);
        memcpy(f.body + SHA256_BYTES, b.data, b.len);
        f.body[0] ^= i == WAY_BIT;
        f.body[SHA256_BYTES] ^= i == WAY_OTHER;
        say(FRAME_WAY, f.body, i == WAY_SHORT ? SHA256_BYTES - 1 : SHA256_BYTES + s.n);
        buf_fini(&b);
        assert_false(hear(&f)); /* closed: its own way was not told */
        expect_lost(i + 1, ERR_PROTO,
                    i == NO_WAY ? "told no way" : "the way to member 1 is not its own");
    }
}

static void server_skips(void **state)
{
    static const uint8_t KINDS[] = {FRAME_MESSAGE, FRAME_HELLO, FRAME_PROOF, FRAME_WAY,
                                    FRAME_READY,   FRAME_BYE,   FRAME_MORE,  200};
    static struct frame f;
    honest_make(CLIENT);
    unsigned n_lost = 0;
    for (unsigned i = 0; i < sizeof KINDS; i++) {
        struct side client = server_hears_hello();
        say(KINDS[i], client.nonce, sizeof client.nonce);
        assert_false(hear(&f));
        expect_lost(++n_lost, ERR_PROTO, "a frame");
        if (KINDS[i] == FRAME_WAY)
            continue;
        client = server_hears_hello();
        struct side us = side_make(SERVER);
        server_challenge_right(&us, &client);
        server_hears_proof(&us, &client);
        say(KINDS[i], client.nonce, sizeof client.nonce);
        assert_false(hear(&f));
        expect_lost(++n_lost, ERR_PROTO, "a frame");
    }
}

/* REFUSE: told once, whatever it says; a text cannot start a line of its own in a log. */
static void server_refuses(void **state)
{
    honest_make(CLIENT);
    for (unsigned i = 0; i < 3; i++) {
        server_hears_hello();
        struct buf b;
        buf_init(&b, 4096);
        buf_u32(&b, REFUSE_SECRET);
        buf_str(&b, "no\nmore");
        if (i == 1)
            buf_u8(&b, 0);
        say(FRAME_REFUSE, b.data, b.len - (i == 2));
        buf_fini(&b);
        expect_lost(i + 1, ERR_PROTO, i ? "malformed REFUSE" : "refused by member 1: no");
    }
}

#define CASE(f)                                                                                    \
    {                                                                                              \
#f, f, set_up, tear_down, NULL                                                             \
    }

int main(int argc, char **argv)
{
    /* Sanitizers own the signal handlers and the memory calls; UCX reads these when it is loaded. */
    if (!getenv("UCX_MEM_EVENTS")) {
        setenv("UCX_TLS", "tcp,self", 0);
        setenv("UCX_HANDLE_ERRORS", "none", 1);
        setenv("UCX_MEM_MMAP_HOOK_MODE", "none", 1);
        setenv("UCX_MEM_EVENTS", "n", 1);
        execv("/proc/self/exe", argv);
    }
    log_init("test", -1);
    const struct CMUnitTest tests[] = {
        CASE(client_right),           CASE(client_hello_wrong),  CASE(client_proof_wrong),
        CASE(client_replays),         CASE(client_way_wrong),    CASE(client_skips),
        CASE(client_crowd),           CASE(client_floods),       CASE(server_right),
        CASE(server_challenge_wrong), CASE(server_other_member), CASE(server_proof_wrong),
        CASE(server_replays),         CASE(server_way_wrong),    CASE(server_skips),
        CASE(server_refuses),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
