/* http_answer.c - what a connection sends: whole answers, streams, and how they leave. */
#include "router/http_internal.h"

#include "base/log.h"
#include "router/http_wire.h"

#include <stdlib.h>

enum {
    SWALLOW_BYTES = 64 << 10 /* a refused request's body that is read away to stay connected */
};

/* --- writing ---------------------------------------------------------------------------------- */

size_t http_conn_backlog(const struct http_conn *c)
{
    return c->out.len + uv_stream_get_write_queue_size((const uv_stream_t *)&c->tcp);
}

static void on_written(uv_write_t *w, int status)
{
    struct http_conn *c = w->data;
    free(c->writing);
    c->writing = NULL;
    if (c->state == CONN_CLOSING)
        return;
    c->write_ms = uv_now(c->server->loop);
    if (status < 0) {
        http_conn_fail(c);
        return;
    }
    http_conn_flush(c);
    if (!c->writing)
        http_conn_resume_later(c);
}

void http_conn_flush(struct http_conn *c)
{
    if (c->writing || c->failed || c->state == CONN_CLOSING)
        return;
    if (!buf_ok(&c->out)) {
        http_conn_fail(c);
        return;
    }
    if (!c->out.len)
        return;
    uv_buf_t b = uv_buf_init((char *)c->out.data, (unsigned)c->out.len);
    int n = uv_try_write((uv_stream_t *)&c->tcp, &b, 1);
    if (n < 0 && n != UV_EAGAIN) {
        http_conn_fail(c);
        return;
    }
    if (n > 0)
        buf_consume(&c->out, (size_t)n);
    if (!c->out.len) {
        if (!c->streaming)
            buf_fini(&c->out); /* idle connections hold no buffers */
        return;
    }
    size_t len;
    c->writing = buf_take(&c->out, &len);
    buf_init(&c->out, HTTP_OUT_MAX_BYTES);
    b = uv_buf_init((char *)c->writing, (unsigned)len);
    c->write.data = c;
    c->write_ms = uv_now(c->server->loop);
    if (uv_write(&c->write, (uv_stream_t *)&c->tcp, &b, 1, on_written)) {
        free(c->writing);
        c->writing = NULL;
        http_conn_fail(c);
    }
}

/* --- answering -------------------------------------------------------------------------------- */

/* May the connection go on after this answer? */
static bool conn_may_keep(const struct http_conn *c)
{
    const struct http_head *h = &c->parser.head;
    if (!h->keep_alive || c->server->draining || c->eof || c->overflow)
        return false;
    if (c->state == CONN_BUSY || c->parser.body_complete)
        return true;
    return !h->chunked && !h->expect_continue && h->content_length <= SWALLOW_BYTES;
}

static void answer_done(struct http_conn *c)
{
    c->answered = true;
    c->streaming = false;
    c->user = NULL;
    http_conn_flush(c);
    http_conn_resume_later(c);
}

void http_conn_respond(struct http_conn *c, int status, const char *extra, const char *content_type,
                       const void *body, size_t n)
{
    if (c->answered || c->state == CONN_CLOSING)
        return;
    c->keep_alive = conn_may_keep(c);
    http_put_head(&c->out, status, c->keep_alive, extra);
    http_put_length(&c->out, content_type, n);
    if (!c->head_only)
        buf_put(&c->out, body, n);
    answer_done(c);
}

void http_conn_stream_begin(struct http_conn *c, const char *extra)
{
    if (c->answered || c->state == CONN_CLOSING)
        return;
    c->chunked =
        c->parser.head.minor >= 1; /* HTTP/1.0 knows no chunks: the close ends the stream */
    c->keep_alive = conn_may_keep(c) && c->chunked;
    c->streaming = true;
    http_put_head(&c->out, 200, c->keep_alive, extra);
    http_put_stream(&c->out, c->chunked);
}

void http_conn_stream_put(struct http_conn *c, const void *data, size_t n)
{
    if (!c->streaming || c->failed || !n)
        return;
    if (c->chunked)
        buf_printf(&c->out, "%zx\r\n", n);
    buf_put(&c->out, data, n);
    if (c->chunked)
        buf_put(&c->out, "\r\n", 2);
    if (http_conn_backlog(c) > HTTP_BACKLOG_BYTES + n) {
        log_info("http: client reads too slowly, its stream is given up backlog_bytes=%zu",
                 http_conn_backlog(c));
        http_conn_fail(c);
    }
}

void http_conn_stream_end(struct http_conn *c, bool abort)
{
    if (!c->streaming)
        return;
    if (abort)
        c->keep_alive = false;
    else if (c->chunked)
        buf_put(&c->out, "0\r\n\r\n", 5);
    answer_done(c);
}

void http_conn_refuse(struct http_conn *c, int status, const char *reason)
{
    struct buf b;
    buf_init(&b, 4096);
    c->server->handler.put_error(c->server->handler.ctx, &b, status, reason);
    c->parser.head.keep_alive = false;
    http_conn_respond(c, status, status == 503 ? "retry-after: 5\r\n" : NULL, "application/json",
                      b.data, b.len);
    buf_fini(&b);
}
