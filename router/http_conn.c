/* http_conn.c - see http_conn.h.
 *
 * States: READING (head or body) → BUSY (request handed out, further input is kept, bounded) →
 * READING, or LINGER (answer sent, our side shut; input is thrown away so that no reset destroys
 * the answer) → CLOSING.
 */
#include "router/http_internal.h"

#include <stdlib.h>

static void conn_input(struct http_conn *c, const char *data, size_t n);

/* --- the budget of bodies ---------------------------------------------------------------------- */

/* false: together the bodies under way are more than may be held. */
static bool conn_count_body(struct http_conn *c)
{
    struct http_server *s = c->server;
    s->body_bytes += c->parser.body.len - c->body_bytes;
    c->body_bytes = c->parser.body.len;
    return s->body_bytes <= s->config.max_bodies_bytes;
}

static void conn_forget_body(struct http_conn *c)
{
    c->server->body_bytes -= c->body_bytes;
    c->body_bytes = 0;
}

/* --- end of a connection ---------------------------------------------------------------------- */

static void on_conn_closed(uv_handle_t *h)
{
    struct http_conn *c = h->data;
    struct http_server *s = c->server;
    if (c->prev)
        c->prev->next = c->next;
    else
        s->conns = c->next;
    if (c->next)
        c->next->prev = c->prev;
    if (c->overflow)
        s->n_overflow--;
    else
        s->n_conns--;
    conn_forget_body(c);
    http_parser_fini(&c->parser);
    buf_fini(&c->in);
    buf_fini(&c->out);
    free(c);
    http_server_handle_closed(s);
}

static void unlink_resumed(struct http_conn *c)
{
    for (struct http_conn **at = &c->server->resumed; c->resumed && *at; at = &(*at)->next_resumed)
        if (*at == c) {
            *at = c->next_resumed;
            c->resumed = false;
            return;
        }
}

/* Only from the loop's top level: may call on_gone. */
void http_conn_close(struct http_conn *c)
{
    if (c->state == CONN_CLOSING)
        return;
    bool gone = c->state == CONN_BUSY && !c->answered;
    c->state = CONN_CLOSING;
    unlink_resumed(c);
    if (gone)
        c->server->handler.on_gone(c->server->handler.ctx, c);
    uv_close((uv_handle_t *)&c->tcp, on_conn_closed);
}

static void conn_resume(struct http_conn *c);

static void on_idle(uv_idle_t *idle)
{
    struct http_server *s = idle->data;
    struct http_conn *list = s->resumed;
    s->resumed = NULL;
    while (list) { /* those still in the list count as resumed, so their links hold */
        struct http_conn *c = list;
        list = c->next_resumed;
        c->resumed = false;
        conn_resume(c);
    }
    if (!s->resumed)
        uv_idle_stop(idle);
}

/* Look at c again from the loop's top level. */
void http_conn_resume_later(struct http_conn *c)
{
    struct http_server *s = c->server;
    if (c->resumed || s->closing || c->state == CONN_CLOSING)
        return;
    c->resumed = true;
    c->next_resumed = s->resumed;
    s->resumed = c;
    uv_idle_start(&s->idle, on_idle);
}

void http_conn_fail(struct http_conn *c)
{
    c->failed = true;
    http_conn_resume_later(c);
}

/* --- reading ---------------------------------------------------------------------------------- */

static void on_alloc(uv_handle_t *h, size_t want, uv_buf_t *b)
{
    struct http_conn *c = h->data;
    *b = uv_buf_init(c->server->read_buffer, HTTP_READ_BYTES);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *b)
{
    struct http_conn *c = stream->data;
    if (n > 0) {
        if (c->state == CONN_READING || c->state == CONN_BUSY)
            conn_input(c, b->base, (size_t)n);
        return;
    }
    if (!n)
        return;
    c->eof = true;
    if (n == UV_EOF && c->state == CONN_READING && !http_parser_is_idle(&c->parser) &&
        !c->answered) {
        http_conn_refuse(c, 400, "the connection ended inside the request");
        return;
    }
    bool asked =
        c->state == CONN_BUSY && !c->answered; /* who waits for an answer and leaves, leaves */
    if (n == UV_EOF && !asked && (c->answered || c->writing)) {
        uv_read_stop(stream);
        c->reading = false;
        http_conn_resume_later(c); /* what is still to be written goes out first */
        return;
    }
    http_conn_close(c);
}

void http_conn_set_reading(struct http_conn *c, bool on)
{
    if (on == c->reading || c->eof)
        return;
    if (on)
        uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read);
    else
        uv_read_stop((uv_stream_t *)&c->tcp);
    c->reading = on;
}

/* The head is complete: early answers, 100-continue. */
static void conn_head(struct http_conn *c)
{
    struct http_server *s = c->server;
    struct http_head *h = &c->parser.head;
    c->head_only = h->method == HTTP_HEAD;
    c->since_ms = uv_now(s->loop);
    s->handler.on_head(s->handler.ctx, c, h);
    if (!c->answered && h->expect_continue && h->has_body && h->minor >= 1) {
        buf_puts(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
        http_conn_flush(c);
    }
}

static void conn_begin_linger(struct http_conn *c);

/* The request is answered and read: wait for the next, or part. */
static void conn_next(struct http_conn *c)
{
    conn_forget_body(c);
    http_parser_next(&c->parser);
    c->answered = c->head_only = false;
    c->state = CONN_READING;
    c->used = true;
    c->since_ms = c->request_ms = uv_now(c->server->loop);
}

/* One step with data[n]; returns how much was used. */
static size_t conn_step(struct http_conn *c, const char *data, size_t n)
{
    struct http_server *s = c->server;
    size_t used;
    if (http_parser_is_idle(&c->parser) && n)
        c->since_ms = c->request_ms = uv_now(s->loop);
    enum http_event ev = http_parser_feed(&c->parser, data, n, &used);
    if (!conn_count_body(c) && !c->answered) {
        http_conn_refuse(c, 503, "too many request bodies are under way");
        return used;
    }
    switch (ev) {
    case HTTP_NEED_MORE:
        if (!http_parser_in_head(&c->parser) && used)
            c->since_ms = uv_now(s->loop);
        break;
    case HTTP_HEAD_DONE:
        conn_head(c);
        break;
    case HTTP_BODY_DONE:
        if (c->answered)
            break;
        c->state = CONN_BUSY;
        s->handler.on_request(s->handler.ctx, c, &c->parser.head);
        break;
    case HTTP_REFUSED:
        if (!c->answered)
            http_conn_refuse(c, c->parser.status, c->parser.reason);
        else
            c->keep_alive = false; /* the rest of a refused request's body is malformed */
        break;
    }
    return used;
}

/* An answered request whose body is read through may be followed by the next one; else the
 * connection parts. */
static bool conn_turn(struct http_conn *c)
{
    if (!c->answered)
        return c->state == CONN_READING;
    if (!c->keep_alive) {
        conn_begin_linger(c);
        return false;
    }
    if (c->state == CONN_BUSY || c->parser.body_complete) {
        conn_next(c);
        return http_conn_backlog(c) < HTTP_BACKLOG_BYTES;
    }
    return true; /* swallowing the body */
}

static void conn_input(struct http_conn *c, const char *data, size_t n)
{
    size_t at = 0;
    bool more = !c->in.len && conn_turn(c);
    while (more && !c->failed && c->state != CONN_CLOSING) {
        if (at == n && !(c->parser.body_complete && !c->answered))
            break;
        at += conn_step(c, data + at, n - at);
        more = conn_turn(c);
    }
    if (c->state != CONN_READING && c->state != CONN_BUSY)
        return;
    if (at < n)
        buf_put(&c->in, data + at, n - at);
    http_conn_set_reading(c, c->in.len < HTTP_PIPELINE_BYTES);
}

static void on_shutdown(uv_shutdown_t *req, int status)
{
    free(req);
}

static void conn_begin_linger(struct http_conn *c)
{
    if (c->state == CONN_LINGER || c->state == CONN_CLOSING)
        return;
    c->state = CONN_LINGER;
    c->since_ms = uv_now(c->server->loop);
    buf_fini(&c->in);
    conn_forget_body(c);
    http_parser_fini(&c->parser);
    http_conn_set_reading(c, true);
    http_conn_resume_later(c);
}

/* In LINGER: once everything is written, say so; then wait for the client's own end. */
static void conn_linger(struct http_conn *c)
{
    if (c->writing || c->out.len)
        return;
    if (c->eof) {
        http_conn_close(c);
        return;
    }
    if (c->shut)
        return;
    c->shut = true;
    c->since_ms = uv_now(c->server->loop);
    uv_shutdown_t *req = malloc(sizeof *req);
    if (!req || uv_shutdown(req, (uv_stream_t *)&c->tcp, on_shutdown)) {
        free(req);
        http_conn_close(c);
    }
}

static void conn_resume(struct http_conn *c)
{
    if (c->state == CONN_CLOSING)
        return;
    if (c->failed) {
        http_conn_close(c);
        return;
    }
    if (c->state == CONN_LINGER) {
        conn_linger(c);
        return;
    }
    if (c->answered || c->in.len) {
        size_t n;
        uint8_t *in = buf_take(&c->in, &n);
        buf_init(&c->in, HTTP_PIPELINE_BYTES + HTTP_READ_BYTES);
        conn_input(c, (const char *)in, n);
        free(in);
    } else if (c->state == CONN_READING) {
        http_conn_set_reading(c, true);
    }
    if (c->eof && c->state == CONN_READING && !c->writing && !c->answered)
        http_conn_close(c);
}

void http_conn_set_user(struct http_conn *c, void *user)
{
    c->user = user;
}

void *http_conn_user(const struct http_conn *c)
{
    return c->user;
}

struct buf *http_conn_body(struct http_conn *c)
{
    return &c->parser.body;
}
