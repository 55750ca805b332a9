/* wire_ucx_test.c - what only the plane over UCX can show: children that are killed or stopped, strangers on the port, crowds. */
#include "tests/unit/wire_fixture.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

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

/* Has a link come as far as the proof? From there to READY the two UCX workers get to know each other. */
static bool is_meeting(const struct plane *p)
{
    for (const struct link *l = p->waiting; l; l = l->next)
        if (l->rx_token)
            return true;
    return plane_is_up(p, 1) || plane_is_up(p, 7);
}

/* In the child: be a member until somebody kills us. argv: child MEMBER [ADDRESS of member 1, "-" for none [N]]. With N, stop when N more
 * things have happened behind the proof: the instant at which we are to be killed. */
static int child_main(int argc, char **argv)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN); /* nobody may be reading any more */
    rig.ucx = true;
    struct node *n = node_make((uint32_t)atoi(argv[2]), 5000, SECRET);
    n->echo = true;
    if (argc > 3 && strcmp(argv[3], "-") != 0) {
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
    int left = argc > 4 ? atoi(argv[4]) : -1;
    for (bool woken = true;; woken = nap()) {
        advance();
        if (left >= 0 && is_meeting(n->plane) && (woken || n->n_up) && left-- == 0)
            raise(SIGSTOP);
    }
}

/* stop_after: see child_main; -1 for never */
static pid_t child_start_to_stop(uint32_t member, const char *address, int stop_after, int *out_fd)
{
    char id[16], after[16];
    int fds[2];
    snprintf(id, sizeof id, "%u", member);
    snprintf(after, sizeof after, "%d", stop_after);
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fds[1], STDOUT_FILENO);
        for (int fd = 3; fd < 1024; fd++) /* what the parent's UCX holds must not live on here */
            close(fd);
        execl("/proc/self/exe", "child", "child", id, address ? address : "-", after, (char *)NULL);
        _exit(1);
    }
    close(fds[1]);
    *out_fd = fds[0];
    return pid;
}

static pid_t child_start(uint32_t member, const char *address, int *out_fd)
{
    return child_start_to_stop(member, address, -1, out_fd);
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

static bool has_stopped(pid_t pid)
{
    int status;
    return waitpid(pid, &status, WNOHANG | WUNTRACED) == pid && WIFSTOPPED(status);
}

/* A peer dies at a given step between proof and READY, on either side: UCX must not take us with it. It stops there first, so that all it said
 * has come and all that we answer waits for it. */
static void killed_at_each_step(bool child_dials)
{
    enum { STEPS = 10, ROUNDS = 3, SETTLE = 3 };
    struct node *n = child_dials ? node_make(1, 100, SECRET) : node_make(7, 700, SECRET);
    char hex[4096];
    hex_address(n->plane, hex, sizeof hex);
    unsigned n_up = 0;
    for (int i = 0; i < STEPS * ROUNDS; i++) {
        int fd;
        pid_t pid =
            child_start_to_stop(child_dials ? 9 : 1, child_dials ? hex : NULL, i % STEPS, &fd);
        if (child_dials) {
            close(fd);
        } else {
            uint8_t raw[2048];
            size_t bytes = child_address(fd, raw, sizeof raw);
            assert_true(bytes > 0);
            assert_int_equal(plane_connect(n->plane, 1, raw, bytes, NULL), 0);
        }
        WAIT_FOR(has_stopped(pid));
        for (int k = 0; k < SETTLE; k++)
            turn();
        n_up += plane_is_up(n->plane, child_dials ? 9 : 1);
        child_kill(pid);
        if (child_dials) { /* one that was not up is not told */
            WAIT_FOR(n->n_up == n->n_lost && !n->plane->waiting);
        } else {
            WAIT_FOR(n->n_lost == (unsigned)i + 1);
        }
    }
    print_message("%u of %d were up when they died\n", n_up, STEPS * ROUNDS);
    struct node *late = node_make(child_dials ? 12 : 2, 1200, SECRET);
    if (child_dials)
        dial(late, 1, n);
    else
        dial(n, 2, late);
    WAIT_FOR(late->n_up && plane_is_up(n->plane, late->member));
}

static void ucx_dialer_killed_at_each_step(void **state)
{
    killed_at_each_step(true);
}

static void ucx_listener_killed_at_each_step(void **state)
{
    killed_at_each_step(false);
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

int main(int argc, char **argv)
{
    ucx_settle(argv);
    log_init("test", -1);
    if (argc > 2 && strcmp(argv[1], "child") == 0)
        return child_main(argc, argv);
    const struct CMUnitTest tests[] = {
        UCX(ucx_dialer_killed),
        UCX(ucx_listener_killed),
        UCX(ucx_killed_while_sending),
        UCX(ucx_killed_while_connecting),
        UCX(ucx_dialer_killed_at_each_step),
        UCX(ucx_listener_killed_at_each_step),
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
