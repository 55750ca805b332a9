/* mpi_source_test.c - the reading lane: bytes and trailer, and every way a read can fail, told
 * in the trailer. */
#include "mpi/source.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 100000, AT = 123, CAPACITY = 4, WAIT_US = 20 * 1000 * 1000 };

struct fixture {
    char path[64];
    uint8_t *bytes; /* [BYTES] */
    struct segbuf *b;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    f->bytes = malloc(BYTES);
    for (int i = 0; i < BYTES; i++)
        f->bytes[i] = (uint8_t)(i * 7 + i / 251);
    snprintf(f->path, sizeof f->path, "/tmp/exa-source-XXXXXX");
    int fd = mkstemp(f->path);
    if (fd < 0 || pwrite(fd, f->bytes, BYTES, AT) != BYTES)
        return -1;
    close(fd);
    f->b = segbuf_create();
    f->b->segment = 7;
    f->b->at = (struct segment){.tensor = 1, .offset = 1000, .n_bytes = 50001};
    f->b->file_offset = AT;
    snprintf(f->b->tensor, sizeof f->b->tensor, "blk.1.weight");
    sha256_of(f->bytes + 1000, 50001, f->b->hash);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    unlink(f->path);
    segbuf_free(f->b);
    free(f->bytes);
    free(f);
    return 0;
}

static struct trailer read_once(struct lane *l, struct segbuf *b)
{
    struct trailer t;
    uint64_t until = clock_now_us() + WAIT_US;
    void *job = NULL;
    lane_push(l, b);
    while (!(job = lane_pop(l)) && clock_now_us() < until)
        clock_sleep_us(100);
    assert_ptr_equal(job, b);
    assert_int_equal(trailer_get(b, &t, NULL), 0);
    return t;
}

static struct lane *open_source(const char *path)
{
    struct lane *l = NULL;
    assert_int_equal(source_start(&l, path, 3, CAPACITY, NULL), 0);
    return l;
}

static void good_bytes_are_read(void **state)
{
    struct fixture *f = *state;
    struct lane *l = open_source(f->path);
    struct trailer t = read_once(l, f->b);
    assert_int_equal(t.state, READ_OK);
    assert_int_equal(t.code, 0);
    assert_int_equal(f->b->n_read, 50001);
    assert_memory_equal(f->b->data, f->bytes + 1000, 50001);
    assert_true(lane_stop(l, WAIT_US));
}

static void a_wrong_hash_is_told(void **state)
{
    struct fixture *f = *state;
    f->b->hash[5] ^= 1;
    struct lane *l = open_source(f->path);
    struct trailer t = read_once(l, f->b);
    assert_int_equal(t.state, READ_FAILED);
    assert_int_equal(t.code, ERR_FORMAT);
    assert_non_null(strstr(t.text, f->path));
    assert_non_null(strstr(t.text, "blk.1.weight"));
    assert_non_null(strstr(t.text, "segment 7"));
    assert_non_null(strstr(t.text, "rank 3"));
    f->b->hash[5] ^= 1;
    assert_int_equal(read_once(l, f->b).state, READ_OK);
    /* a file that is bad throughout is given up */
    f->b->hash[5] ^= 1;
    enum read_state last = READ_FAILED;
    for (int i = 0; i < 10 && last == READ_FAILED; i++)
        last = read_once(l, f->b).state;
    assert_int_equal(last, READ_GAVE_UP);
    assert_true(lane_stop(l, WAIT_US));
}

static void a_cut_file_is_told(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(truncate(f->path, AT + 1000 + 400), 0);
    struct lane *l = open_source(f->path);
    struct trailer t = read_once(l, f->b);
    assert_int_equal(t.state, READ_FAILED);
    assert_int_equal(t.code, ERR_FORMAT);
    assert_non_null(strstr(t.text, "49601 bytes too early"));
    assert_int_equal(f->b->n_read, 400);
    assert_true(lane_stop(l, WAIT_US));
}

static void no_file_gives_up_at_once(void **state)
{
    struct fixture *f = *state;
    struct lane *l = open_source("/nonexistent/pack.h5");
    struct trailer t = read_once(l, f->b);
    assert_int_equal(t.state, READ_GAVE_UP);
    assert_int_equal(t.code, ERR_SYS);
    assert_non_null(strstr(t.text, "/nonexistent/pack.h5"));
    assert_true(lane_stop(l, WAIT_US));
}

static void trailers_of_others_are_refused(void **state)
{
    struct fixture *f = *state;
    struct trailer t = {.segment = 7, .state = READ_FAILED, .code = ERR_SYS}, back;
    struct err e = ERR_INIT;
    memset(t.text, 'x', sizeof t.text); /* no NUL: cut, never overrun */
    trailer_put(f->b, &t);
    assert_int_equal(trailer_get(f->b, &back, &e), 0);
    assert_int_equal(back.code, ERR_SYS);
    assert_int_equal(strlen(back.text), TRAILER_TEXT_BYTES - 1);
    f->b->segment = 8;
    assert_int_equal(trailer_get(f->b, &back, &e), ERR_PROTO);
    f->b->segment = 7;
    f->b->data[f->b->at.n_bytes] ^= 1;
    assert_int_equal(trailer_get(f->b, &back, &e), ERR_PROTO);
    f->b->data[f->b->at.n_bytes] ^= 1;
    f->b->data[f->b->at.n_bytes + 8] = 9;
    assert_int_equal(trailer_get(f->b, &back, &e), ERR_PROTO);
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(good_bytes_are_read),
        CASE(a_wrong_hash_is_told),
        CASE(a_cut_file_is_told),
        CASE(no_file_gives_up_at_once),
        CASE(trailers_of_others_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
