/* base_hostlist_test.c - host lists out and back, and what is none. */
#include "base/hostlist.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

/* names joined by spaces */
static void joined(const struct hostlist *h, struct buf *out)
{
    for (size_t i = 0; i < h->n; i++) {
        buf_puts(out, i ? " " : "");
        buf_puts(out, h->names[i]);
    }
}

static void expands(const char *text, const char *names)
{
    struct hostlist h;
    struct err e = ERR_INIT;
    struct buf b, again;
    buf_init(&b, 1 << 20);
    buf_init(&again, 1 << 20);
    if (hostlist_expand(&h, text, HOSTLIST_MAX_HOSTS, &e))
        fail_msg("%s", e.text);
    joined(&h, &b);
    assert_string_equal(buf_cstr(&b), names);
    /* back and forth keeps names and order */
    struct hostlist h2;
    buf_reset(&b);
    assert_int_equal(hostlist_compress(&b, (const char *const *)h.names, h.n, NULL), 0);
    assert_int_equal(hostlist_expand(&h2, buf_cstr(&b), HOSTLIST_MAX_HOSTS, NULL), 0);
    joined(&h2, &again);
    assert_string_equal(buf_cstr(&again), names);
    hostlist_fini(&h);
    hostlist_fini(&h2);
    buf_fini(&b);
    buf_fini(&again);
}

static void lists(void **state)
{
    expands("", "");
    expands("a", "a");
    expands("n[001-003,7],login2", "n001 n002 n003 n7 login2");
    expands("n[8-11]", "n8 n9 n10 n11");
    expands("n[08-11]", "n08 n09 n10 n11");
    expands("r[1-2]n[01-02]", "r1n01 r1n02 r2n01 r2n02");
    expands("n[1-2]-ib,x", "n1-ib n2-ib x");
    expands("n[3,1,2]", "n3 n1 n2");
    expands("n[1,1]", "n1 n1");
    expands("n[5]", "n5");
    expands("n[9,010]", "n9 n010");
    expands("12,13", "12 13");
}

static void compresses(void **state)
{
    static const char *const NAMES[] = {"n001", "n002", "n003", "n7", "login2", "n8",
                                        "n9",   "n10",  "x",    "y1", "y3",     "y4"};
    struct buf b;
    buf_init(&b, 1000);
    assert_int_equal(hostlist_compress(&b, NAMES, sizeof NAMES / sizeof NAMES[0], NULL), 0);
    assert_string_equal(buf_cstr(&b), "n[001-003,7],login2,n[8-10],x,y[1,3-4]");
    buf_reset(&b);
    static const char *const BAD[] = {"a,b"};
    assert_int_equal(hostlist_compress(&b, BAD, 1, NULL), ERR_FORMAT);
    buf_fini(&b);
    buf_init(&b, 3);
    assert_int_equal(hostlist_compress(&b, NAMES, 4, NULL), ERR_LIMIT);
    buf_fini(&b);
}

static void refuses(void **state)
{
    static const struct {
        const char *text;
        int code;
    } BAD[] = {
        {"n[1-3", ERR_FORMAT},
        {"n1-3]", ERR_FORMAT},
        {"n[[1]]", ERR_FORMAT},
        {"n[]", ERR_FORMAT},
        {"n[a]", ERR_FORMAT},
        {"n[1-]", ERR_FORMAT},
        {"n[3-1]", ERR_FORMAT},
        {",a", ERR_FORMAT},
        {"a,,b", ERR_FORMAT},
        {"a,", ERR_FORMAT},
        {"n[1,]", ERR_FORMAT},
        {"a b", ERR_FORMAT},
        {"n[1;2]", ERR_FORMAT},
        {"n[1-2-3]", ERR_FORMAT},
        {"n[0-99999]", ERR_LIMIT},
        {"n[1-999999999999999999]", ERR_LIMIT},
        {"n[9999999999999999999]", ERR_FORMAT},
        {"a[1-999]b[1-999]", ERR_LIMIT},
    };
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        struct hostlist h = {.n = 77};
        struct err e = ERR_INIT;
        int rc = hostlist_expand(&h, BAD[i].text, HOSTLIST_MAX_HOSTS, &e);
        if (rc != BAD[i].code)
            fail_msg("%s: %d %s", BAD[i].text, rc, e.text);
        assert_int_equal(h.n, 0);
        assert_null(h.names);
        assert_non_null(strstr(e.text, "host list"));
    }
    char *longest = malloc(400);
    memset(longest, 'a', 399);
    longest[399] = 0;
    struct hostlist h;
    assert_int_equal(hostlist_expand(&h, longest, 10, NULL), ERR_LIMIT);
    free(longest);
    assert_int_equal(hostlist_expand(&h, "n[1-3]", 2, NULL), ERR_LIMIT);
    assert_int_equal(hostlist_expand(&h, "a,b,c", 2, NULL), ERR_LIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists),
        cmocka_unit_test(compresses),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
