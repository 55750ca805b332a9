/* wire_fixture.h - planes in one process that dial each other, note what they are told and check what they get. For the tests of wire/. */
#ifndef EXA_TESTS_WIRE_FIXTURE_H
#define EXA_TESTS_WIRE_FIXTURE_H

#include "wire/plane_core.h"

#include "base/clock.h"
#include "base/log.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static inline void event_note(struct node *n, char c)
{
    size_t len = strlen(n->events);
    if (len + 1 < sizeof n->events)
        n->events[len] = c;
}

static inline void on_up(void *ctx, const struct plane_peer *peer)
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

static inline void on_lost(void *ctx, uint32_t member, uint64_t incarnation, const struct err *why)
{
    struct node *n = ctx;
    n->n_lost++;
    n->lost_member = member;
    n->lost_incarnation = incarnation;
    n->lost_why = *why;
    n->lost_us = clock_now_us();
    event_note(n, 'l');
}

static inline uint8_t pattern(uint32_t seed, size_t i)
{
    return (uint8_t)(seed * 31 + i * 7 + (i >> 13));
}

static inline void on_message(void *ctx, uint32_t member, uint16_t type, const uint8_t *body,
                              size_t n)
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

static inline struct plane_self self_of(uint32_t member, uint64_t incarnation, const char *secret)
{
    struct plane_self self = {.member = member, .incarnation = incarnation};
    snprintf(self.build, sizeof self.build, member == 7 ? "test-7" : "test");
    self.secret_bytes = strlen(secret);
    memcpy(self.secret, secret, self.secret_bytes);
    return self;
}

static inline struct node *node_make(uint32_t member, uint64_t incarnation, const char *secret)
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

static inline void node_close(struct node *n)
{
    plane_close(n->plane);
    n->plane = NULL;
}

static inline void dial(struct node *from, uint32_t member, struct node *to)
{
    struct buf b;
    struct err e = ERR_INIT;
    buf_init(&b, 65535);
    assert_int_equal(plane_address(to->plane, &b, &e), 0);
    if (plane_connect(from->plane, member, b.data, b.len, &e))
        fail_msg("%s", e.text);
    buf_fini(&b);
}

static inline void advance(void)
{
    for (unsigned i = 0; i < rig.n; i++)
        if (rig.nodes[i].plane)
            plane_progress(rig.nodes[i].plane, clock_now_us() + rig.skew_us);
}

/* Sleep until a plane has work, or 10 ms: false. Only behind advance(), which arms the descriptors. */
static inline bool nap(void)
{
    struct pollfd fds[MAX_NODES];
    nfds_t n = 0;
    for (unsigned i = 0; i < rig.n; i++) {
        int fd = rig.nodes[i].plane ? plane_fd(rig.nodes[i].plane) : -1;
        if (fd >= 0)
            fds[n++] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
    return n && poll(fds, n, 10) > 0;
}

static inline void turn(void)
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

static inline void send_pattern(struct node *from, uint32_t member, uint32_t seed, size_t n)
{
    static uint8_t body[1 << 20];
    assert_true(n <= sizeof body);
    for (size_t i = 0; i < n; i++)
        body[i] = pattern((uint16_t)seed, i);
    struct err e = ERR_INIT;
    if (plane_send(from->plane, member, (uint16_t)seed, body, n, &e))
        fail_msg("%s", e.text);
}

static inline void pair_up(struct node **low, struct node **high)
{
    *low = node_make(1, 100, SECRET);
    *high = node_make(7, 700, SECRET);
    dial(*high, 1, *low);
    WAIT_FOR((*low)->n_up && (*high)->n_up);
}

static inline int set_up(bool ucx)
{
    memset(&rig, 0, sizeof rig);
    rig.ucx = ucx;
    return ucx ? 0 : plane_hub_create(&rig.hub, NULL);
}

static inline int set_up_mem(void **state)
{
    return set_up(false);
}

static inline int set_up_ucx(void **state)
{
    return set_up(true);
}

static inline int tear_down(void **state)
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

#define CASE(name, f, set_up)                                                                      \
    {                                                                                              \
        name, f, set_up, tear_down, NULL                                                           \
    }
#define UCX(f) CASE(#f, f, set_up_ucx)

/* Sanitizers own the signal handlers and the memory calls; UCX reads these when it is loaded. */
static inline void ucx_settle(char **argv)
{
    if (getenv("UCX_MEM_EVENTS"))
        return;
    setenv("UCX_TLS", "tcp,self", 0);
    setenv("UCX_HANDLE_ERRORS", "none", 1);
    setenv("UCX_MEM_MMAP_HOOK_MODE", "none", 1);
    setenv("UCX_MEM_EVENTS", "n", 1);
    execv("/proc/self/exe", argv);
}

#endif
