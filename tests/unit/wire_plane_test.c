/* wire_plane_test.c - the same cases over both planes: in one process (mem) and over UCX on TCP; then what only UCX can show:
 * children that are killed or stopped, and strangers on the port. */
#include "wire/plane_core.h"

#include "base/clock.h"
#include "base/log.h"

#include <arpa/inet.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { MAX_NODES = 32, DEADLINE_US = 60 * 1000 * 1000 };

static const char SECRET[] = "the secret of this job";

struct node {
    struct plane *plane;
    uint32_t member;
    unsigned n_up, n_lost, n_messages;
    struct plane_peer last_up;
    uint32_t lost_member;
    uint64_t lost_incarnation;
    struct err lost_why;
    uint64_t lost_us;
    char events[256]; /* 'u' up, 'l' lost, 'm' message, in order */
    /* what is expected of messages: type counts up from 0, body is a pattern of it */
    uint32_t next;
    size_t bytes;
    bool bad;
    uint32_t drop_on_message; /* member + 1 */
    bool echo;
};

static struct rig {
    bool ucx;
    struct plane_hub *hub;
    struct node nodes[MAX_NODES];
    unsigned n;
    uint64_t skew_us; /* added to the clock the planes see */
} rig;

static void event_note(struct node *n, char c)
{
    size_t len = strlen(n->events);
    if (len + 1 < sizeof n->events)
        n->events[len] = c;
}

static void on_up(void *ctx, const struct plane_peer *peer)
{
    struct node *n = ctx;
    n->n_up++;
    n->last_up = *peer;
    event_note(n, 'u');
    if (n->echo) { /* a child: whoever started it reads this */
        printf("up %u\n", peer->member);
        fflush(stdout);
    }
}

static void on_lost(void *ctx, uint32_t member, uint64_t incarnation, const struct err *why)
{
    struct node *n = ctx;
    n->n_lost++;
    n->lost_member = member;
    n->lost_incarnation = incarnation;
    n->lost_why = *why;
    n->lost_us = clock_now_us();
    event_note(n, 'l');
}

static uint8_t pattern(uint32_t seed, size_t i)
{
    return (uint8_t)(seed * 31 + i * 7 + (i >> 13));
}

static void on_message(void *ctx, uint32_t member, uint16_t type, const uint8_t *body, size_t n)
{
    struct node *node = ctx;
    node->n_messages++;
    event_note(node, 'm');
    if (type != (uint16_t)node->next)
        node->bad = true;
    for (size_t i = 0; i<n; i += n> 100000 ? 997 : 1)
        if (body[i] != pattern(type, i))
            node->bad = true;
    if (n && body[n - 1] != pattern(type, n - 1))
        node->bad = true;
    node->next++;
    node->bytes += n;
    if (node->drop_on_message == member + 1)
        plane_drop(node->plane, member);
    if (node->echo)
        plane_send(node->plane, member, type, body, n, NULL);
}

static struct plane_self self_of(uint32_t member, uint64_t incarnation, const char *secret)
{
    struct plane_self self = {.member = member, .incarnation = incarnation};
    snprintf(self.build, sizeof self.build, member == 7 ? "test-7" : "test");
    self.secret_bytes = strlen(secret);
    memcpy(self.secret, secret, self.secret_bytes);
    return self;
}

static struct node *node_make(uint32_t member, uint64_t incarnation, const char *secret)
{
    assert_true(rig.n < MAX_NODES);
    struct node *n = &rig.nodes[rig.n++];
    memset(n, 0, sizeof *n);
    n->member = member;
    struct plane_self self = self_of(member, incarnation, secret);
    struct plane_events ev = {n, on_up, on_message, on_lost};
    struct err e = ERR_INIT;
    int rc = rig.ucx ? plane_ucx_create(&n->plane, &self, &ev, &e)
                     : plane_mem_create(&n->plane, rig.hub, &self, &ev, &e);
    if (rc)
        fail_msg("%s", e.text);
    return n;
}

static void node_close(struct node *n)
{
    plane_close(n->plane);
    n->plane = NULL;
}

static void dial(struct node *from, uint32_t member, struct node *to)
{
    struct buf b;
    struct err e = ERR_INIT;
    buf_init(&b, 65535);
    assert_int_equal(plane_address(to->plane, &b, &e), 0);
    if (plane_connect(from->plane, member, b.data, b.len, &e))
        fail_msg("%s", e.text);
    buf_fini(&b);
}

static void advance(void)
{
    for (unsigned i = 0; i < rig.n; i++)
        if (rig.nodes[i].plane)
            plane_progress(rig.nodes[i].plane, clock_now_us() + rig.skew_us);
}

/* Sleep until a plane has work; only behind advance(), which arms the descriptors. */
static void nap(void)
{
    struct pollfd fds[MAX_NODES];
    nfds_t n = 0;
    for (unsigned i = 0; i < rig.n; i++) {
        int fd = rig.nodes[i].plane ? plane_fd(rig.nodes[i].plane) : -1;
        if (fd >= 0)
            fds[n++] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
    if (n)
        poll(fds, n, 10);
}

static void turn(void)
{
    advance();
    nap();
}

#define WAIT_FOR(cond)                                                                             \
    for (uint64_t until_ = clock_now_us() + DEADLINE_US;; nap()) {                                 \
        advance();                                                                                 \
        if (cond)                                                                                  \
            break;                                                                                 \
        if (clock_now_us() > until_)                                                               \
            fail_msg("not within the deadline: %s", #cond);                                        \
    }

static void send_pattern(struct node *from, uint32_t member, uint32_t seed, size_t n)
{
    static uint8_t body[1 << 20];
    assert_true(n <= sizeof body);
    for (size_t i = 0; i < n; i++)
        body[i] = pattern((uint16_t)seed, i);
    struct err e = ERR_INIT;
    if (plane_send(from->plane, member, (uint16_t)seed, body, n, &e))
        fail_msg("%s", e.text);
}

static void pair_up(struct node **low, struct node **high)
{
    *low = node_make(1, 100, SECRET);
    *high = node_make(7, 700, SECRET);
    dial(*high, 1, *low);
    WAIT_FOR((*low)->n_up && (*high)->n_up);
}

static int set_up(bool ucx)
{
    memset(&rig, 0, sizeof rig);
    rig.ucx = ucx;
    return ucx ? 0 : plane_hub_create(&rig.hub, NULL);
}

static int set_up_mem(void **state)
{
    return set_up(false);
}

static int set_up_ucx(void **state)
{
    return set_up(true);
}

static int tear_down(void **state)
{
    /* plane_close waits for the other sides, which stand still here: part first, together */
    for (unsigned i = 0; i < rig.n; i++)
        for (unsigned j = 0; rig.nodes[i].plane && j < rig.n; j++)
            plane_drop(rig.nodes[i].plane, rig.nodes[j].member);
    for (int i = 0; i < 10; i++)
        turn();
    for (unsigned i = 0; i < rig.n; i++)
        plane_close(rig.nodes[i].plane);
    plane_hub_destroy(rig.hub);
    return 0;
}

/* --- cases for both ---------------------------------------------------------------------------------------- */
static void up_and_talk(void **state)
{
    struct node *low, *high;
    pair_up(&low, &high);
    assert_int_equal(low->last_up.member, 7);
    assert_int_equal(low->last_up.incarnation, 700);
    assert_string_equal(low->last_up.build, "test-7");
    assert_int_equal(high->last_up.member, 1);
    assert_int_equal(high->last_up.incarnation, 100);
    assert_string_equal(high->last_up.build, "test");
    assert_true(plane_is_up(low->plane, 7));
    assert_true(plane_is_up(high->plane, 1));
    assert_false(plane_is_up(high->plane, 2));
    assert_int_equal(plane_send(low->plane, 2, 0, "x", 1, NULL), ERR_PEER);
    send_pattern(low, 7, 0, 10);
    send_pattern(high, 1, 0, 0);
    WAIT_FOR(low->n_messages == 1 && high->n_messages == 1);
    assert_false(low->bad || high->bad);
    assert_int_equal(high->bytes, 10);
    /* the lower one never dials */
    assert_int_equal(plane_connect(low->plane, 7, "x", 1, NULL), ERR_CONFIG);
    assert_true(plane_connect(high->plane, 1, "x", 1, NULL) != 0);
}

static void keeps_order(void **state)
{
    static const size_t SIZES[] = {0,     1,     20,    500, 4000,   8192, 9000, 32767, 32768,
                                   32769, 65536, 70001, 3,   300000, 12,   0,    131072};
    struct node *low, *high;
    pair_up(&low, &high);
    size_t total = 0;
    for (uint32_t i = 0; i < 3000; i++) {
        size_t n = SIZES[i % (sizeof SIZES / sizeof SIZES[0])];
        if (n > 1000 && i % 10)
            n = 37;
        total += n;
        send_pattern(high, 1, i, n);
        send_pattern(low, 7, i, n);
        if (i % 50 == 0)
            turn();
    }
    WAIT_FOR(low->n_messages == 3000 && high->n_messages == 3000);
    assert_false(low->bad || high->bad);
    assert_int_equal(low->bytes, total);
    assert_int_equal(high->bytes, total);
    WAIT_FOR(plane_queued_bytes(low->plane, 7) == 0);
}

static void big_messages(void **state)
{
    struct node *low, *high;
    pair_up(&low, &high);
    size_t n = 64 << 20;
    uint8_t *body = malloc(n);
    for (size_t i = 0; i < n; i++)
        body[i] = pattern(0, i);
    assert_int_equal(plane_send(high->plane, 1, 0, body, n, NULL), 0);
    assert_int_equal(plane_send(low->plane, 7, 0, body, n, NULL), 0);
    assert_int_equal(plane_send(high->plane, 1, 0, body, (size_t)PLANE_MAX_MESSAGE + 1, NULL),
                     ERR_LIMIT);
    free(body); /* it was copied */
    send_pattern(high, 1, 1, 5);
    uint64_t from_us = clock_now_us();
    WAIT_FOR(low->n_messages == 2 && high->n_messages == 1);
    print_message("64 MiB each way in %.0f ms\n", (double)(clock_now_us() - from_us) / 1e3);
    assert_false(low->bad || high->bad);
    assert_int_equal(low->bytes, n + 5);
}

static void wrong_secret(void **state)
{
    struct node *low = node_make(1, 100, SECRET);
    struct node *high = node_make(7, 700, "another secret");
    dial(high, 1, low);
    WAIT_FOR(high->n_lost);
    assert_int_equal(high->lost_member, 1);
    assert_int_equal(high->lost_why.code, ERR_PROTO);
    assert_non_null(strstr(high->lost_why.text, "secret"));
    for (int i = 0; i < 20; i++)
        turn();
    assert_string_equal(low->events, "");
    assert_string_equal(high->events, "l");
}

static void wrong_protocol(void **state)
{
    struct node *low = node_make(1, 100, SECRET);
    struct node *high = node_make(7, 700, SECRET);
    plane_set_protocol(high->plane, 41);
    dial(high, 1, low);
    WAIT_FOR(high->n_lost);
    assert_non_null(strstr(high->lost_why.text, "protocol 41"));
    assert_non_null(strstr(high->lost_why.text, "protocol 1"));
    assert_string_equal(low->events, "");
    plane_set_protocol(high->plane, PLANE_PROTOCOL);
    dial(high, 1, low);
    WAIT_FOR(high->n_up && low->n_up);
}

static void new_incarnation(void **state)
{
    struct node *low, *high;
    pair_up(&low, &high);
    struct node *again = node_make(7, 701, SECRET);
    dial(again, 1, low);
    WAIT_FOR(again->n_up && low->n_up == 2 && high->n_lost);
    assert_string_equal(low->events, "ulu");
    assert_int_equal(low->lost_incarnation, 700);
    assert_int_equal(low->last_up.incarnation, 701);
    assert_true(plane_is_up(low->plane, 7));
    assert_int_equal(plane_send(high->plane, 1, 0, "x", 1, NULL), ERR_PEER);
    send_pattern(low, 7, 0, 9);
    WAIT_FOR(again->n_messages == 1);
    assert_int_equal(high->n_messages, 0);
    /* the other way: the lower member comes anew while the old one is still there */
    struct node *low2 = node_make(1, 101, SECRET);
    dial(again, 1, low2);
    WAIT_FOR(low2->n_up && again->n_up == 2);
    assert_string_equal(again->events, "umlu");
    assert_int_equal(again->lost_incarnation, 100);
    assert_int_equal(again->last_up.incarnation, 101);
}

static void last_words(void **state)
{
    struct node *low, *high;
    pair_up(&low, &high);
    for (uint32_t i = 0; i < 20; i++)
        send_pattern(high, 1, i, i == 10 ? 400000 : 100);
    if (rig.ucx) { /* closing sends what is queued while the other side reads: another process does, here a plane cannot */
        WAIT_FOR(plane_queued_bytes(high->plane, 1) == 0);
    }
    uint64_t from_us = clock_now_us();
    node_close(high);
    assert_true(clock_now_us() - from_us < 5 * 1000 * 1000);
    WAIT_FOR(low->n_lost);
    assert_int_equal(low->n_messages, 20);
    assert_false(low->bad);
    assert_int_equal(low->events[strlen(low->events) - 1], 'l');
    assert_int_equal(low->lost_incarnation, 700);
    assert_false(plane_is_up(low->plane, 7));
}

static void queue_limit(void **state)
{
    struct node *low, *high;
    pair_up(&low, &high);
    static uint8_t body[1 << 20];
    for (size_t i = 0; i < sizeof body; i++)
        body[i] = pattern(0, i);
    int rc = 0, sent = 0;
    while (sent < 1000 && (rc = plane_send(high->plane, 1, 0, body, sizeof body, NULL)) == 0)
        sent++;
    assert_int_equal(rc, ERR_LIMIT);
    assert_true(sent >= 127 && sent < 300);
    assert_true(plane_queued_bytes(high->plane, 1) <= PLANE_MAX_QUEUED_BYTES);
    WAIT_FOR(low->n_messages == (unsigned)sent);
    assert_int_equal(low->bytes, (size_t)sent << 20);
    WAIT_FOR(plane_queued_bytes(high->plane, 1) == 0);
    assert_int_equal(plane_send(high->plane, 1, 0, body, sizeof body, NULL), 0);
}

static void drop(void **state)
{
    struct node *low, *high;
    pair_up(&low, &high);
    plane_drop(low->plane, 7);
    assert_false(plane_is_up(low->plane, 7));
    WAIT_FOR(high->n_lost);
    for (int i = 0; i < 5; i++)
        turn();
    assert_int_equal(low->n_lost, 0);
    dial(high, 1, low);
    WAIT_FOR(low->n_up == 2 && high->n_up == 2);
    /* from a handler, with more on the way */
    low->drop_on_message = 7 + 1;
    for (uint32_t i = 0; i < 10; i++)
        send_pattern(high, 1, i, 50);
    WAIT_FOR(high->n_lost == 2);
    assert_int_equal(low->n_messages, 1);
    assert_int_equal(low->n_lost, 0);
    /* a connect that is given up says nothing */
    dial(high, 1, low);
    plane_drop(high->plane, 1);
    for (int i = 0; i < 20; i++)
        turn();
    assert_int_equal(high->n_up, 2);
    assert_int_equal(high->n_lost, 2);
}

static void many_members(void **state)
{
    enum { N = 20 };
    for (uint32_t i = 0; i < N; i++)
        node_make(i, 1000 + i, SECRET);
    for (uint32_t i = 0; i < N; i++)
        for (uint32_t j = 0; j < i; j++)
            dial(&rig.nodes[i], j, &rig.nodes[j]);
    for (uint32_t i = 0; i < N; i++)
        WAIT_FOR(rig.nodes[i].n_up == N - 1);
    for (uint32_t i = 0; i < N; i++)
        for (uint32_t j = 0; j < N; j++)
            if (i != j)
                assert_int_equal(plane_send(rig.nodes[i].plane, j, 0, "", 0, NULL), 0);
    for (uint32_t i = 0; i < N; i++)
        WAIT_FOR(rig.nodes[i].n_messages == N - 1);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(rig.nodes[i].n_lost, 0);
    node_close(&rig.nodes[0]);
    for (uint32_t i = 1; i < N; i++)
        WAIT_FOR(rig.nodes[i].n_lost == 1 && rig.nodes[i].lost_member == 0);
}

static void dead_address(void **state)
{
    struct node *low = node_make(1, 100, SECRET);
    struct node *high = node_make(7, 700, SECRET);
    struct buf b;
    buf_init(&b, 65535);
    assert_int_equal(plane_address(low->plane, &b, NULL), 0);
    node_close(low);
    uint64_t from_us = clock_now_us();
    assert_int_equal(plane_connect(high->plane, 1, b.data, b.len, NULL), 0);
    buf_fini(&b);
    WAIT_FOR(high->n_lost);
    assert_true(clock_now_us() - from_us < (PLANE_HELLO_TIMEOUT_MS + 2000) * UINT64_C(1000));
    assert_int_equal(high->lost_member, 1);
    assert_int_equal(high->lost_incarnation, 0);
}

static void wrong_member(void **state)
{
    struct node *low = node_make(2, 200, SECRET);
    struct node *high = node_make(7, 700, SECRET);
    dial(high, 1, low); /* somebody else got the address meanwhile */
    WAIT_FOR(high->n_lost);
    assert_int_equal(high->lost_member, 1);
    assert_string_equal(low->events, "");
}

static void rejoin_after_loss(void **state)
{
    struct node *low, *high;
    pair_up(&low, &high);
    for (int i = 0; i < 5; i++) {
        node_close(high);
        WAIT_FOR(low->n_lost == (unsigned)i + 1);
        high = node_make(7, 701 + (uint64_t)i, SECRET);
        dial(high, 1, low);
        WAIT_FOR(low->n_up == (unsigned)i + 2 && high->n_up == 1);
    }
}

/* --- only in one process ----------------------------------------------------------------------------------- */
static void mem_cut_and_kill(void **state)
{
    struct node *low, *high;
    pair_up(&low, &high);
    plane_hub_cut(rig.hub, 7, 1, true);
    send_pattern(low, 7, 0, 5);
    for (int i = 0; i < 10; i++)
        turn();
    assert_int_equal(high->n_messages, 0);
    plane_hub_cut(rig.hub, 1, 7, false);
    send_pattern(low, 7, 0, 5);
    WAIT_FOR(high->n_messages == 1);
    plane_hub_cut(rig.hub, 1, 7, true);
    struct node *third = node_make(9, 900, SECRET);
    dial(third, 1, low);
    WAIT_FOR(third->n_up);
    plane_hub_kill(rig.hub, 1);
    WAIT_FOR(high->n_lost && third->n_lost);
    assert_int_equal(plane_send(low->plane, 9, 0, "x", 1, NULL), ERR_PEER);
    assert_int_equal(high->lost_member, 1);
}

static void mem_hello_timeout(void **state)
{
    struct node *low = node_make(1, 100, SECRET);
    struct node *high = node_make(7, 700, SECRET);
    plane_hub_cut(rig.hub, 1, 7, true);
    dial(high, 1, low);
    turn();
    assert_int_equal(high->n_lost, 0);
    rig.skew_us = (PLANE_HELLO_TIMEOUT_MS + 100) * UINT64_C(1000);
    turn();
    assert_int_equal(high->n_lost, 1);
    assert_int_equal(high->lost_why.code, ERR_TIMEOUT);
    assert_string_equal(low->events, "");
}

/* --- only UCX: other processes ----------------------------------------------------------------------------- */
static void hex_address(struct plane *p, char *out, size_t cap)
{
    struct buf b;
    buf_init(&b, 4096);
    assert_int_equal(plane_address(p, &b, NULL), 0);
    assert_true(2 * b.len + 1 <= cap);
    hex_encode(b.data, b.len, out);
    buf_fini(&b);
}

/* In the child: be a member until somebody kills us. argv: child MEMBER [ADDRESS of member 1] */
static int child_main(int argc, char **argv)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN); /* nobody may be reading any more */
    rig.ucx = true;
    struct node *n = node_make((uint32_t)atoi(argv[2]), 5000, SECRET);
    n->echo = true;
    if (argc > 3) {
        uint8_t raw[2048];
        size_t bytes = strlen(argv[3]) / 2;
        if (bytes > sizeof raw || hex_decode(argv[3], raw, bytes) != 0)
            return 1;
        if (plane_connect(n->plane, 1, raw, bytes, NULL))
            return 1;
    }
    char hex[4096];
    hex_address(n->plane, hex, sizeof hex);
    printf("address %s\n", hex);
    fflush(stdout);
    for (;;)
        turn();
}

static pid_t child_start(uint32_t member, const char *address, int *out_fd)
{
    char id[16];
    int fds[2];
    snprintf(id, sizeof id, "%u", member);
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fds[1], STDOUT_FILENO);
        for (int fd = 3; fd < 1024; fd++) /* what the parent's UCX holds must not live on here */
            close(fd);
        execl("/proc/self/exe", "child", "child", id, address, (char *)NULL);
        _exit(1);
    }
    close(fds[1]);
    *out_fd = fds[0];
    return pid;
}

/* The child's address from its output; UCX may print lines of its own. */
static size_t child_address(int fd, uint8_t *raw, size_t cap)
{
    FILE *f = fdopen(fd, "r");
    char line[8192];
    size_t n = 0;
    while (!n && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, "address ", 8) != 0)
            continue;
        n = strlen(line + 8) / 2;
        assert_true(n <= cap);
        assert_int_equal(hex_decode(line + 8, raw, n), 0);
    }
    fclose(f);
    return n;
}

static void child_kill(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static struct node *with_child(bool child_dials, pid_t *pid)
{
    int fd;
    if (child_dials) {
        struct node *low = node_make(1, 100, SECRET);
        char hex[4096];
        hex_address(low->plane, hex, sizeof hex);
        *pid = child_start(9, hex, &fd);
        WAIT_FOR(low->n_up);
        close(fd);
        return low;
    }
    struct node *high = node_make(7, 700, SECRET);
    *pid = child_start(1, NULL, &fd);
    uint8_t raw[2048];
    size_t n = child_address(fd, raw, sizeof raw);
    assert_true(n > 0);
    assert_int_equal(plane_connect(high->plane, 1, raw, n, NULL), 0);
    WAIT_FOR(high->n_up);
    return high;
}

static void killed(bool child_dials)
{
    pid_t pid;
    struct node *n = with_child(child_dials, &pid);
    uint32_t peer = child_dials ? 9 : 1;
    send_pattern(n, peer, 0, 100);
    WAIT_FOR(n->n_messages == 1);
    for (int i = 0; i < 20; i++)
        turn(); /* idle, as most links are most of the time */
    uint64_t from_us = clock_now_us();
    kill(pid, SIGKILL);
    WAIT_FOR(n->n_lost);
    waitpid(pid, NULL, 0);
    assert_int_equal(n->lost_member, peer);
    assert_int_equal(n->lost_incarnation, 5000);
    print_message("loss of a killed %s noticed after %.1f ms: %s\n",
                  child_dials ? "dialer" : "listener", (double)(n->lost_us - from_us) / 1e3,
                  n->lost_why.text);
    assert_true(n->lost_us - from_us <
                1000 * 1000); /* 100 ms is the aim; a loaded machine may stall */
}

static void ucx_dialer_killed(void **state)
{
    killed(true);
}

static void ucx_listener_killed(void **state)
{
    killed(false);
}

static void ucx_killed_while_sending(void **state)
{
    for (int dials = 0; dials < 2; dials++) {
        pid_t pid;
        struct node *n = with_child(dials, &pid);
        static uint8_t body[8 << 20];
        for (size_t i = 0; i < sizeof body; i++)
            body[i] = pattern(0, i);
        for (int i = 0; i < 8; i++)
            assert_int_equal(plane_send(n->plane, dials ? 9 : 1, 0, body, sizeof body, NULL), 0);
        for (int i = 0; i < 3; i++)
            turn();
        child_kill(pid);
        WAIT_FOR(n->n_lost);
        node_close(n);
    }
}

/* A member may die at any moment of HELLO and of UCX's own handshake: nobody else suffers. */
static void ucx_killed_while_connecting(void **state)
{
    struct node *low = node_make(1, 100, SECRET);
    char hex[4096];
    hex_address(low->plane, hex, sizeof hex);
    for (int i = 0; i < 30; i++) {
        int fd;
        pid_t pid = child_start(9, hex, &fd);
        close(fd);
        /* the moment moves through the child's start, HELLO and beyond */
        for (uint64_t until = clock_now_us() + 5000 + 4000u * (unsigned)i; clock_now_us() < until;)
            plane_progress(low->plane, clock_now_us());
        child_kill(pid);
        for (int k = 0; k < 3; k++)
            turn();
        WAIT_FOR(low->n_up == low->n_lost);
    }
    print_message("%u of 30 were up when they died\n", low->n_up);
    struct node *late = node_make(12, 1200, SECRET);
    dial(late, 1, low);
    WAIT_FOR(late->n_up && plane_is_up(low->plane, 12));
}

static void ucx_round_trip(void **state)
{
    enum { N = 2000 };
    pid_t pid;
    struct node *n = with_child(true, &pid);
    uint64_t from_us = clock_now_us();
    for (uint32_t i = 0; i < N; i++) {
        send_pattern(n, 9, i, 64);
        WAIT_FOR(n->n_messages == i + 1);
    }
    print_message("round trip of 64 bytes, asleep in between: %.1f us\n",
                  (double)(clock_now_us() - from_us) / N);
    assert_false(n->bad);
    child_kill(pid);
}

static void ucx_stopped(void **state)
{
    pid_t pid;
    struct node *n = with_child(true, &pid);
    kill(pid, SIGSTOP);
    static uint8_t body[1 << 20];
    int rc = 0, sent = 0;
    while (sent < 1000 && (rc = plane_send(n->plane, 9, 0, body, sizeof body, NULL)) == 0) {
        sent++;
        uint64_t from_us = clock_now_us();
        plane_progress(n->plane, from_us);
        assert_true(clock_now_us() - from_us < 1000 * 1000); /* never blocks */
    }
    assert_int_equal(rc, ERR_LIMIT);
    assert_true(plane_is_up(n->plane, 9));
    uint64_t from_us = clock_now_us();
    node_close(n);
    print_message("closed with %d MiB for a stopped peer in %.0f ms\n", sent,
                  (double)(clock_now_us() - from_us) / 1e3);
    assert_true(clock_now_us() - from_us < 5 * 1000 * 1000);
    child_kill(pid);
}

/* Every TCP port this process listens on. */
static unsigned own_ports(uint16_t *ports, unsigned cap)
{
    unsigned n = 0;
    FILE *f = popen(
        "ls -l /proc/$PPID/fd | sed -n 's/.*socket:.\\([0-9]*\\).*/\\1/p' > /tmp/wire_fds.$$; "
        "for t in tcp tcp6; do awk 'NR==FNR{s[$1]=1;next} $4==\"0A\" && ($10 in s)"
        "{split($2,a,\":\");print a[2]}' /tmp/wire_fds.$$ /proc/net/$t; done; "
        "rm -f /tmp/wire_fds.$$",
        "r");
    assert_non_null(f);
    unsigned port;
    while (n < cap && fscanf(f, "%x", &port) == 1)
        ports[n++] = (uint16_t)port;
    pclose(f);
    return n;
}

static void ucx_strangers(void **state)
{
    enum { EACH = 40 };
    struct node *low, *high;
    pair_up(&low, &high);
    uint16_t ports[16];
    unsigned n_ports = own_ports(ports, 16), n_fds = 0;
    assert_true(n_ports >= 2);
    int fds[16 * EACH];
    for (unsigned i = 0; i < n_ports; i++) {
        for (int k = 0; k < EACH; k++) {
            int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
            struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(ports[i])};
            a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            connect(fd, (struct sockaddr *)&a, sizeof a);
            turn();
            uint8_t noise[3000];
            random_bytes(noise, sizeof noise);
            if (k % 4 == 0) /* a small length first: the start of what a header might be */
                memset(noise, 0, 16);
            if (k % 4 == 1)
                noise[0] = (uint8_t)k, memset(noise + 1, 0, 7);
            send(fd, noise, k % 2 ? sizeof noise : (size_t)k, MSG_NOSIGNAL);
            if (k % 3)
                fds[n_fds++] = fd;
            else
                close(fd);
        }
    }
    for (int i = 0; i < 50; i++)
        turn();
    for (uint32_t i = 0; i < 100; i++)
        send_pattern(high, 1, i, 1000);
    WAIT_FOR(low->n_messages == 100);
    struct node *late = node_make(9, 900, SECRET);
    dial(late, 1, low);
    WAIT_FOR(late->n_up);
    assert_int_equal(low->n_lost + high->n_lost, 0);
    for (unsigned i = 0; i < n_fds; i++)
        close(fds[i]);
    for (int i = 0; i < 20; i++)
        turn();
    print_message("%u ports, %u strangers\n", n_ports, n_ports * EACH);
}

/* More dialers at once than strangers are allowed: all come up in the end. */
static void ucx_storm(void **state)
{
    enum { STORM = 90 };
    static struct plane *planes[STORM];
    static struct node counts;
    memset(&counts, 0, sizeof counts);
    struct node *low = node_make(1, 100, SECRET);
    struct buf b;
    buf_init(&b, 65535);
    assert_int_equal(plane_address(low->plane, &b, NULL), 0);
    struct plane_events ev = {&counts, on_up, on_message, on_lost};
    for (uint32_t i = 0; i < STORM; i++) {
        struct plane_self self = self_of(10 + i, 1000 + i, SECRET);
        assert_int_equal(plane_ucx_create(&planes[i], &self, &ev, NULL), 0);
        assert_int_equal(plane_connect(planes[i], 1, b.data, b.len, NULL), 0);
    }
    buf_fini(&b);
    uint64_t until = clock_now_us() + 30 * 1000 * 1000;
    while (low->n_up < STORM && clock_now_us() < until) {
        for (int i = 0; i < STORM; i++)
            plane_progress(planes[i], clock_now_us());
        turn();
    }
    assert_int_equal(low->n_up, STORM);
    assert_int_equal(counts.n_lost, 0);
    node_close(low);
    for (int i = 0; i < STORM; i++)
        plane_close(planes[i]);
}

static void ucx_hello_timeout(void **state)
{
    /* takes connections and says nothing */
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t len = sizeof a;
    assert_int_equal(bind(fd, (struct sockaddr *)&a, len), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    struct node *low = node_make(1, 100, SECRET);
    struct node *high = node_make(7, 700, SECRET);
    struct buf b;
    buf_init(&b, 65535);
    assert_int_equal(plane_address(low->plane, &b, NULL), 0);
    node_close(low);
    uint16_t port = ntohs(a.sin_port);
    /* version, id, count as published; one entry: loopback, our port */
    size_t id = (size_t)1 + 4 + b.data[1];
    b.len = id;
    buf_u8(&b, 1);
    buf_u8(&b, 1);
    buf_u16(&b, port);
    buf_u8(&b, 4);
    buf_put(&b, &a.sin_addr, 4);
    assert_int_equal(plane_connect(high->plane, 1, b.data, b.len, NULL), 0);
    buf_fini(&b);
    for (int i = 0; i < 20; i++)
        turn();
    assert_int_equal(high->n_lost, 0);
    rig.skew_us = (PLANE_HELLO_TIMEOUT_MS + 100) * UINT64_C(1000);
    WAIT_FOR(high->n_lost);
    assert_int_equal(high->lost_why.code, ERR_TIMEOUT);
    close(fd);
}

#define BOTH(f)                                                                                    \
    {#f " (mem)", f, set_up_mem, tear_down, NULL},                                                 \
    {                                                                                              \
#f " (ucx)", f, set_up_ucx, tear_down, NULL                                                \
    }
#define MEM(f)                                                                                     \
    {                                                                                              \
#f, f, set_up_mem, tear_down, NULL                                                         \
    }
#define UCX(f)                                                                                     \
    {                                                                                              \
#f, f, set_up_ucx, tear_down, NULL                                                         \
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
    if (argc > 2 && strcmp(argv[1], "child") == 0)
        return child_main(argc, argv);
    const struct CMUnitTest tests[] = {
        BOTH(up_and_talk),
        BOTH(keeps_order),
        BOTH(big_messages),
        BOTH(wrong_secret),
        BOTH(wrong_protocol),
        BOTH(new_incarnation),
        BOTH(last_words),
        BOTH(queue_limit),
        BOTH(drop),
        BOTH(many_members),
        BOTH(dead_address),
        BOTH(wrong_member),
        BOTH(rejoin_after_loss),
        MEM(mem_cut_and_kill),
        MEM(mem_hello_timeout),
        UCX(ucx_dialer_killed),
        UCX(ucx_listener_killed),
        UCX(ucx_killed_while_sending),
        UCX(ucx_killed_while_connecting),
        UCX(ucx_round_trip),
        UCX(ucx_stopped),
        UCX(ucx_strangers),
        UCX(ucx_storm),
        UCX(ucx_hello_timeout),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
