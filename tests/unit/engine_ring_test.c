/* engine_ring_test.c - the channel: order, wrap, full, a peer that writes nonsense, two threads, a real child. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/ring_half.h"

enum { HEADER_BYTES = 4096, HEAD_AT = 64, TAIL_AT = 128, LONG_US = 60000000 };

/* One ring, both sides in this process; raw: the same memory, for scribbling. */
struct pair {
    struct ring writer, reader;
    int fd;
    uint8_t *raw;
    struct buf b;
};

static void pair_make(struct pair *p)
{
    struct err e = ERR_INIT;
    assert_int_equal(ring_create(&p->writer, "test", &p->fd, &e), 0);
    assert_int_equal(ring_attach(&p->reader, "test", p->fd, true, &e), 0);
    p->raw = mmap(NULL, HEADER_BYTES + RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, p->fd, 0);
    assert_true(p->raw != MAP_FAILED);
    buf_init(&p->b, RING_MAX_RECORD);
}

static void pair_drop(struct pair *p)
{
    ring_unmap(&p->writer);
    ring_unmap(&p->reader);
    munmap(p->raw, HEADER_BYTES + RING_BYTES);
    close(p->fd);
    buf_fini(&p->b);
}

static void set64(uint8_t *at, uint64_t v)
{
    memcpy(at, &v, sizeof v);
}

static void fill(uint8_t *p, size_t n, uint32_t salt)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)((i * 31 + salt * 17) >> 2);
}

static void test_records_come_out_in_order_over_many_wraps(void **state)
{
    struct pair p;
    pair_make(&p);
    struct err e = ERR_INIT;
    static uint8_t body[RING_MAX_RECORD], want[RING_MAX_RECORD];
    uint64_t total = 0;
    for (uint32_t i = 0; total < 5ull * RING_BYTES; i++) {
        size_t n = (i * 7919u) % 300000;
        n = i % 50 == 0 ? RING_MAX_RECORD - 2 : i % 7 == 0 ? i % 3 : n;
        fill(body, n, i);
        assert_int_equal(ring_write(&p.writer, (uint16_t)i, body, n, &e), 0);
        uint16_t type = 0;
        assert_int_equal(ring_read(&p.reader, &type, &p.b, &e), 1);
        fill(want, n, i);
        assert_int_equal(type, (uint16_t)i);
        assert_int_equal(p.b.len, n);
        assert_memory_equal(p.b.data, want, n);
        total += n;
    }
    uint16_t type;
    assert_int_equal(ring_read(&p.reader, &type, &p.b, &e), 0);
    pair_drop(&p);
}

static void test_full_says_again_and_goes_on_after_a_read(void **state)
{
    struct pair p;
    pair_make(&p);
    struct err e = ERR_INIT;
    static uint8_t body[1000];
    uint32_t n = 0, k;
    uint16_t type;
    int rc;
    while (!(rc = ring_write(&p.writer, (uint16_t)n, body, sizeof body, &e)))
        n++;
    assert_int_equal(rc, ERR_AGAIN);
    assert_true(n == RING_BYTES / 1008);
    assert_int_equal(ring_write(&p.writer, 1, body, sizeof body, &e), ERR_AGAIN);
    assert_int_equal(ring_read(&p.reader, &type, &p.b, &e), 1);
    assert_int_equal(ring_write(&p.writer, (uint16_t)n, body, sizeof body, &e), 0);
    for (k = 1; k <= n; k++) {
        assert_int_equal(ring_read(&p.reader, &type, &p.b, &e), 1);
        assert_int_equal(type, (uint16_t)k);
    }
    assert_int_equal(ring_read(&p.reader, &type, &p.b, &e), 0);
    assert_int_equal(ring_write(&p.writer, 1, body, RING_MAX_RECORD, &e), ERR_LIMIT);
    pair_drop(&p);
}

/* Whatever the other side does to head, tail and lengths: an error or a record within bounds, never more. */
static void test_nonsense_from_the_peer_is_an_error(void **state)
{
    struct err e = ERR_INIT;
    uint16_t type;
    static const uint64_t HEADS[] = {
        4, 7, RING_BYTES + 8, 1ull << 63, UINT64_MAX, UINT64_MAX - 7, RING_BYTES * 2ull};
    for (size_t i = 0; i < sizeof HEADS / sizeof HEADS[0]; i++) {
        struct pair p;
        pair_make(&p);
        set64(p.raw + HEAD_AT, HEADS[i]);
        assert_int_equal(ring_read(&p.reader, &type, &p.b, &e), ERR_PROTO);
        pair_drop(&p);
    }
    static const uint64_t TAILS[] = {1ull << 40, UINT64_MAX, 8};
    for (size_t i = 0; i < sizeof TAILS / sizeof TAILS[0]; i++) {
        struct pair p;
        pair_make(&p);
        set64(p.raw + TAIL_AT, TAILS[i]); /* ahead of what was ever written */
        assert_int_equal(ring_write(&p.writer, 1, "x", 1, &e), ERR_PROTO);
        pair_drop(&p);
    }
    static const uint32_t LENGTHS[] = {0, 1, 13, RING_MAX_RECORD + 1, RING_BYTES, UINT32_MAX};
    for (size_t i = 0; i < sizeof LENGTHS / sizeof LENGTHS[0]; i++) {
        struct pair p;
        pair_make(&p);
        assert_int_equal(ring_write(&p.writer, 1, "123456", 6, &e), 0); /* 16 bytes in the ring */
        memcpy(p.raw + HEADER_BYTES, &LENGTHS[i], 4);
        assert_int_equal(ring_read(&p.reader, &type, &p.b, &e), ERR_PROTO);
        assert_int_equal(ring_read(&p.reader, &type, &p.b, &e), ERR_PROTO); /* and stays so */
        pair_drop(&p);
    }
}

static void test_a_peer_cannot_shrink_the_memory(void **state)
{
    struct pair p;
    pair_make(&p);
    assert_int_equal(ftruncate(p.fd, 0), -1);
    assert_int_equal(errno, EPERM);
    pair_drop(&p);
}

static void test_attach_refuses_what_is_no_ring(void **state)
{
    struct err e = ERR_INIT;
    struct ring r;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    assert_int_equal(ring_attach(&r, "test", null, true, &e), ERR_PROTO);
    close(null);
    int fd = ring_memfd("blank", HEADER_BYTES + RING_BYTES, &e);
    assert_true(fd >= 0);
    assert_int_equal(ring_attach(&r, "test", fd, true, &e), ERR_PROTO);
    close(fd);
    struct pair p;
    pair_make(&p);
    set64(p.raw + TAIL_AT, 8);
    assert_int_equal(ring_attach(&r, "test", p.fd, true, &e), ERR_PROTO);
    assert_non_null(strstr(e.text, "before"));
    pair_drop(&p);
}

/* --- two threads ----------------------------------------------------------------------------------------- */

enum { THREAD_RECORDS = 20000 };

static void *producer(void *arg)
{
    struct ring *r = arg;
    uint8_t body[4096];
    for (uint32_t i = 0; i < THREAD_RECORDS; i++) {
        size_t n = i * 37 % sizeof body;
        fill(body, n, i);
        int rc;
        while ((rc = ring_write(r, (uint16_t)i, body, n, NULL)) == ERR_AGAIN)
            sched_yield();
        if (rc)
            return arg;
    }
    return NULL;
}

static void test_two_threads(void **state)
{
    struct pair p;
    pair_make(&p);
    pthread_t thread;
    struct err e = ERR_INIT;
    uint8_t want[4096];
    assert_int_equal(pthread_create(&thread, NULL, producer, &p.writer), 0);
    uint64_t end = clock_now_us() + LONG_US;
    for (uint32_t i = 0; i < THREAD_RECORDS;) {
        uint16_t type;
        int rc = ring_read(&p.reader, &type, &p.b, &e);
        assert_true(rc >= 0);
        assert_true(clock_now_us() < end);
        if (!rc) {
            sched_yield();
            continue;
        }
        size_t n = i * 37 % sizeof want;
        fill(want, n, i);
        assert_int_equal(type, (uint16_t)i);
        assert_int_equal(p.b.len, n);
        assert_memory_equal(p.b.data, want, n);
        i++;
    }
    void *failed;
    pthread_join(thread, &failed);
    assert_null(failed);
    pair_drop(&p);
}

/* --- a real child ---------------------------------------------------------------------------------------- */

/* Sends back what it gets, type + 1, until a record of type 0. Exit codes tell what went wrong. */
static int echo_child(const int fds[CHANNEL_FDS])
{
    int high[CHANNEL_FDS];
    for (int i = 0; i < CHANNEL_FDS; i++)
        if ((high[i] = fcntl(fds[i], F_DUPFD, 100)) < 0)
            return 10;
    for (int i = 0; i < CHANNEL_FDS; i++)
        if (dup2(high[i], CHANNEL_FD_COMMANDS + i) < 0)
            return 11;
    struct channel *c;
    struct buf b;
    struct err e = ERR_INIT;
    if (channel_attach(&c, CHANNEL_FD_COMMANDS, &e))
        return 12;
    buf_init(&b, RING_MAX_RECORD);
    atomic_store(&channel_status(c)->n_steps, 77);
    for (;;) {
        uint16_t type;
        int rc = channel_recv(c, &type, &b, &e);
        if (rc < 0)
            return 13;
        if (!rc) {
            if (!channel_wait(c, LONG_US))
                return 14;
            continue;
        }
        if (!type)
            return 0;
        if (channel_send(c, (uint16_t)(type + 1), b.data, b.len, &e))
            return 15;
    }
}

static void test_a_real_child_answers(void **state)
{
    struct channel *c;
    struct err e = ERR_INIT;
    int fds[CHANNEL_FDS];
    assert_int_equal(channel_create(&c, fds, &e), 0);
    /* sent before the child is there: it must find it */
    assert_int_equal(channel_send(c, 41, "early", 5, &e), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid)
        _exit(echo_child(fds));
    struct buf b;
    buf_init(&b, RING_MAX_RECORD);
    for (uint32_t i = 0; i < 200; i++) {
        uint16_t type = 0;
        int rc;
        while (!(rc = channel_recv(c, &type, &b, &e)))
            assert_int_equal(channel_wait(c, LONG_US), 1);
        assert_int_equal(rc, 1);
        assert_int_equal(type, 42 + (i > 0));
        if (!i)
            assert_memory_equal(b.data, "early", 5);
        else
            assert_int_equal(b.len, 4);
        assert_int_equal(channel_send(c, 42, &i, sizeof i, &e), 0);
    }
    assert_int_equal(atomic_load(&channel_status(c)->n_steps), 77);
    assert_int_equal(channel_send(c, 0, NULL, 0, &e), 0);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    buf_fini(&b);
    channel_destroy(c);
}

static void test_recv_of_nothing_resets_the_descriptor(void **state)
{
    struct channel *c;
    struct err e = ERR_INIT;
    int fds[CHANNEL_FDS];
    struct buf b;
    uint16_t type;
    assert_int_equal(channel_create(&c, fds, &e), 0);
    buf_init(&b, RING_MAX_RECORD);
    struct pollfd p = {.fd = channel_fd(c), .events = POLLIN};
    uint64_t one = 1;
    assert_int_equal(channel_wait(c, 1000), 0);
    assert_int_equal(write(fds[CHANNEL_FD_WAKE_WORKER - CHANNEL_FD_COMMANDS], &one, 8), 8);
    assert_int_equal(poll(&p, 1, 0), 1);
    assert_int_equal(channel_recv(c, &type, &b, &e), 0);
    assert_int_equal(poll(&p, 1, 0), 0);
    buf_fini(&b);
    channel_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records_come_out_in_order_over_many_wraps),
        cmocka_unit_test(test_full_says_again_and_goes_on_after_a_read),
        cmocka_unit_test(test_nonsense_from_the_peer_is_an_error),
        cmocka_unit_test(test_a_peer_cannot_shrink_the_memory),
        cmocka_unit_test(test_attach_refuses_what_is_no_ring),
        cmocka_unit_test(test_two_threads),
        cmocka_unit_test(test_a_real_child_answers),
        cmocka_unit_test(test_recv_of_nothing_resets_the_descriptor),
    };
    return cmocka_run_group_tests_name("engine_ring", tests, NULL, NULL);
}
