/* router_http_test.c - HTTP heads and bodies as bytes: one table, each case fed whole, byte by
 * byte, and in two parts at every cut. */
#include "router/http_parser.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MAX_BODY = 64 };
#define H "Host: x\r\n"

struct outcome {
    enum http_event last;
    int status;
    int n_requests; /* complete ones */
    bool keep_alive;
    char url[64];
    char body[MAX_BODY + 1];
};

/* Feed in pieces of `piece` bytes (0: one), each from memory of its own so that asan sees a read
 * past it. */
static struct outcome run(const char *text, size_t n, size_t first, size_t piece)
{
    struct http_parser p;
    struct outcome o = {.last = HTTP_NEED_MORE};
    http_parser_init(&p, MAX_BODY);
    for (size_t at = 0; at < n && o.last != HTTP_REFUSED;) {
        size_t len = at < first ? first - at : piece ? piece : n - at;
        if (len > n - at)
            len = n - at;
        char *copy = malloc(len);
        memcpy(copy, text + at, len);
        size_t done = 0;
        while ((done < len || o.last == HTTP_HEAD_DONE) && o.last != HTTP_REFUSED) {
            size_t used;
            o.last = http_parser_feed(&p, copy + done, len - done, &used);
            assert_true(used <= len - done);
            done += used;
            if (o.last == HTTP_BODY_DONE) {
                o.n_requests++;
                o.keep_alive = p.head.keep_alive;
                snprintf(o.url, sizeof o.url, "%.*s", (int)p.head.url.n, p.head.url.p);
                snprintf(o.body, sizeof o.body, "%.*s", (int)p.body.len,
                         p.body.data ? (char *)p.body.data : "");
                http_parser_next(&p);
                o.last = HTTP_NEED_MORE;
            }
        }
        free(copy);
        at += len;
    }
    o.status = p.status;
    http_parser_fini(&p);
    return o;
}

struct http_case {
    const char *text;
    size_t n;   /* 0: strlen */
    int status; /* 0: accepted (or needs more) */
    int n_requests;
    bool keep_alive;
    const char *url, *body;
};

static void check(const struct http_case *c)
{
    size_t n = c->n ? c->n : strlen(c->text);
    for (size_t cut = 0; cut <= n + 1; cut++) {
        /* cut == n + 1: byte by byte */
        struct outcome o = run(c->text, n, cut > n ? 1 : cut, cut > n ? 1 : 0);
        bool ok = o.status == c->status && o.n_requests == c->n_requests;
        if (ok && c->n_requests)
            ok =
                o.keep_alive == c->keep_alive && !strcmp(o.url, c->url) && !strcmp(o.body, c->body);
        if (!ok)
            fail_msg("cut at %zu: '%s': status %d requests %d keep %d url '%s' body '%s'", cut,
                     c->text, o.status, o.n_requests, o.keep_alive, o.url, o.body);
    }
}

static void test_accepted(void **state)
{
    static const struct http_case CASES[] = {
        {"GET / HTTP/1.1\r\n" H "\r\n", 0, 0, 1, true, "/", ""},
        {"GET /a?b HTTP/1.1\r\nhost:x\r\nX: 1\r\nEmpty:\r\n\r\n", 0, 0, 1, true, "/a?b", ""},
        {"GET / HTTP/1.0\r\n\r\n", 0, 0, 1, false, "/", ""},
        {"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 0, 0, 1, true, "/", ""},
        {"GET / HTTP/1.1\r\n" H "Connection: close\r\n\r\n", 0, 0, 1, false, "/", ""},
        {"\r\n\r\nGET / HTTP/1.1\r\n" H "\r\n", 0, 0, 1, true, "/", ""},
        {"GET http://h/p HTTP/1.1\r\n" H "\r\n", 0, 0, 1, true, "http://h/p", ""},
        {"POST /p HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhello", 0, 0, 1, true, "/p", "hello"},
        {"POST /p HTTP/1.1\r\n" H "Content-Length: 0\r\n\r\n", 0, 0, 1, true, "/p", ""},
        {"POST /p HTTP/1.1\r\n" H "\r\n", 0, 0, 1, true, "/p", ""},
        {"POST /p HTTP/1.1\r\n" H
         "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n",
         0, 0, 1, true, "/p", "abcde"},
        {"POST /p HTTP/1.1\r\n" H "transfer-encoding: CHUNKED\r\n\r\n0\r\nTrailer: v\r\n\r\n", 0, 0,
         1, true, "/p", ""},
        {"GET /1 HTTP/1.1\r\n" H "\r\nPOST /2 HTTP/1.1\r\n" H "Content-Length: 2\r\n\r\nhiGET /3 "
         "HTTP/1.1\r\n" H "\r\n",
         0, 0, 3, true, "/3", ""},
        {"GET / HTTP/1.1\r\n" H "Upgrade: h2c\r\nConnection: Upgrade\r\n\r\nGET /2 HTTP/1.1\r\n" H
         "\r\n",
         0, 0, 2, true, "/2", ""},
        {"POST /p HTTP/1.1\r\n" H "Content-Length: 10\r\n\r\nhello", 0, 0, 0, true, "",
         ""}, /* waits */
        {"GET / HT", 0, 0, 0, true, "", ""},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++)
        check(&CASES[i]);
}

static void test_refused(void **state)
{
#define BAD(text, status)                                                                          \
    {                                                                                              \
        text, sizeof text - 1, status, 0, true, "", ""                                             \
    }
    static const struct http_case CASES[] = {
        BAD("GET / HTTP/1.1\r\n\r\n", 400), /* no Host */
        BAD("GET / HTTP/1.1\r\n" H H "\r\n", 400),
        BAD("GET / HTTP/1.0\r\n" H H "\r\n", 400),
        BAD("GET / HTTP/1.1\r\n" H "A: b\r\n c\r\n\r\n", 400), /* obs-fold */
        BAD("GET / HTTP/1.1\r\n" H "A:\r\n\tc\r\n\r\n", 400),
        BAD("GET / HTTP/1.1\r\n Host: x\r\n\r\n", 400),
        BAD("GET / HTTP/1.1\n" H "\r\n", 400), /* bare LF */
        BAD("GET / HTTP/1.1\r\nHost: x\n\r\n", 400),
        BAD("GET / HTTP/1.1\r\n" H "A: b\rc\r\n\r\n", 400), /* bare CR */
        BAD("GET / HTTP/1.1\r\n" H "A: b\0c\r\n\r\n", 400),
        BAD("GET / HTTP/1.1\r\n" H "A : b\r\n\r\n", 400), /* space before the colon */
        BAD("GET / HTTP/1.1\r\n" H ": b\r\n\r\n", 400),
        BAD("GET / HTTP/1.1\r\n" H "A\r\n\r\n", 400),
        BAD("GET / HTTP/1.1\r\n" H "A(: b\r\n\r\n", 400),
        BAD("GET / HTTP/1.1\r\n" H "A: b\x01\r\n\r\n", 400),
        BAD("GET /\r\n\r\n", 505), /* HTTP/0.9 */
        BAD("GET  / HTTP/1.1\r\n" H "\r\n", 400),
        BAD("GET /  HTTP/1.1\r\n" H "\r\n", 400),
        BAD("GET / HTTP/1.1 \r\n" H "\r\n", 505),
        BAD("GET\t/ HTTP/1.1\r\n" H "\r\n", 400),
        BAD("GET /a b HTTP/1.1\r\n" H "\r\n", 400),
        BAD(" GET / HTTP/1.1\r\n" H "\r\n", 400),
        BAD("GET / HTTP/2.0\r\n" H "\r\n", 505),
        BAD("GET / HTTP/1.2\r\n" H "\r\n", 505),
        BAD("GET / HTTP/11\r\n" H "\r\n", 505),
        BAD("GET / FTP/1.1\r\n" H "\r\n", 400),
        BAD("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        BAD("FOO / HTTP/1.1\r\n" H "\r\n", 400),
        BAD("get / HTTP/1.1\r\n" H "\r\n", 400),
        BAD("\x16\x03\x01\x02\x01\x01\x01\xfc\x03\x03\r\n\r\n", 400), /* TLS */
        BAD("\r\n\r\n\r\n\r\n\r\n\r\n", 400),
        BAD("POST / HTTP/1.1\r\n" H "Content-Length: 1\r\nContent-Length: 1\r\n\r\na", 400),
        BAD("POST / HTTP/1.1\r\n" H "Content-Length: 1\r\nContent-Length: 2\r\n\r\na", 400),
        BAD("POST / HTTP/1.1\r\n" H "Content-Length: 1, 1\r\n\r\na", 400),
        BAD("POST / HTTP/1.1\r\n" H "Content-Length: -1\r\n\r\n", 400),
        BAD("POST / HTTP/1.1\r\n" H "Content-Length: +1\r\n\r\na", 400),
        BAD("POST / HTTP/1.1\r\n" H "Content-Length: 0x1\r\n\r\na", 400),
        BAD("POST / HTTP/1.1\r\n" H "Content-Length: 1 1\r\n\r\na", 400),
        BAD("POST / HTTP/1.1\r\n" H "Content-Length:\r\n\r\na", 400),
        BAD("POST / HTTP/1.1\r\n" H "Content-Length: 99999999999999999999999\r\n\r\n", 400),
        BAD("POST / HTTP/1.1\r\n" H "Content-Length: 65\r\n\r\n", 413),
        BAD("POST / HTTP/1.1\r\n" H "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        BAD("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", 400),
        BAD("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked, identity\r\n\r\n", 400),
        BAD("POST / HTTP/1.1\r\n" H "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        BAD("POST / HTTP/1.1\r\n" H "Transfer-Encoding: identity\r\n\r\n", 400),
        BAD("POST / HTTP/1.1\r\n" H "Transfer-Encoding: xchunked\r\n\r\n", 400),
        BAD("POST / HTTP/1.1\r\n" H
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400),
        BAD("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        BAD("POST / HTTP/1.1\r\n" H "Expect: something\r\n\r\n", 417),
        BAD("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        BAD("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n-1\r\n", 400),
        BAD("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n11111111111111111\r\n", 400),
        /* what follows a chunk is CR LF, not just any two bytes */
        BAD("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n2\r\nabXX0\r\n\r\n", 400),
        BAD("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n2\r\nab\n\n0\r\n\r\n", 400),
        BAD("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n2\rXab\r\n0\r\n\r\n", 400),
        BAD("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n0\rX\r\n", 400),
        BAD("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n0\r\n\rX", 400),
        BAD("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n0\r\nA: b\rXC: d\r\n\r\n",
            400),
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++)
        check(&CASES[i]);
}

static char *repeat(const char *head, const char *part, size_t n, const char *tail)
{
    size_t a = strlen(head), b = strlen(part), c = strlen(tail);
    char *s = malloc(a + b * n + c + 1);
    memcpy(s, head, a);
    for (size_t i = 0; i < n; i++)
        memcpy(s + a + i * b, part, b);
    memcpy(s + a + n * b, tail, c + 1);
    return s;
}

static void expect_status(char *text, int status, int n_requests)
{
    struct outcome o = run(text, strlen(text), 0, 0), b = run(text, strlen(text), 1, 1000);
    assert_int_equal(o.status, status);
    assert_int_equal(o.n_requests, n_requests);
    assert_int_equal(b.status, status);
    assert_int_equal(b.n_requests, n_requests);
    free(text);
}

static void test_limits(void **state)
{
    static const char CHUNKED[] = "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n";
    expect_status(repeat("GET /", "a", HTTP_MAX_URL_BYTES - 1, " HTTP/1.1\r\n" H "\r\n"), 0, 1);
    expect_status(repeat("GET /", "a", HTTP_MAX_URL_BYTES, " HTTP/1.1\r\n" H "\r\n"), 414, 0);
    expect_status(repeat("GET /", "a", 100000, ""), 414, 0); /* without an end */
    expect_status(repeat("GET / HTTP/1.1\r\n" H, "A: b\r\n", HTTP_MAX_HEADERS - 1, "\r\n"), 0, 1);
    expect_status(repeat("GET / HTTP/1.1\r\n" H, "A: b\r\n", HTTP_MAX_HEADERS + 1, "\r\n"), 431, 0);
    expect_status(repeat("GET / HTTP/1.1\r\n" H "A: ", "b", HTTP_MAX_HEAD_BYTES, "\r\n\r\n"), 431,
                  0);
    expect_status(repeat("GET / HTTP/1.1\r\n" H "A: ", "b", HTTP_MAX_HEAD_BYTES / 2, "\r\n\r\n"), 0,
                  1);
    expect_status(repeat(CHUNKED, "1\r\na\r\n", MAX_BODY, "0\r\n\r\n"), 0, 1);
    expect_status(repeat(CHUNKED, "1\r\na\r\n", MAX_BODY + 1, "0\r\n\r\n"), 413, 0);
    expect_status(
        repeat("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1;", "x", 100000, ""),
        431, 0);
    expect_status(repeat("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n0\r\n",
                         "T: v\r\n", 10000, "\r\n"),
                  431, 0);
    char big[64 + 65];
    snprintf(big, sizeof big, "%s", "1000\r\n");
    expect_status(repeat(CHUNKED, big, 1, ""), 0,
                  0); /* announces more than allowed, sends none yet */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
