/* http_conn.h - listener and connections over libuv: reading, timeouts, keep-alive, pipelining,
 * bounded writing.
 *
 * Requests of one connection are handed out one at a time, so pipelined ones are answered in order
 * and a connection has at most one unanswered request ("busy"). One loop thread. Handlers are
 * called from the loop's top level only, never from inside an http_conn_* call, so a handler may be
 * in the middle of its own lists when it answers.
 */
#ifndef EXA_ROUTER_HTTP_CONN_H
#define EXA_ROUTER_HTTP_CONN_H

#include "base/err.h"
#include "router/http_parser.h"

#include <uv.h>

struct http_server;
struct http_conn;

struct http_config {
    const char *listen; /* "0.0.0.0", "::" */
    uint16_t port;
    uint32_t max_body_bytes, max_connections;
    uint64_t max_bodies_bytes;  /* of all connections together, while unanswered */
    uint32_t header_timeout_ms; /* a head in all, and between two parts of a body */
    uint32_t idle_timeout_ms;   /* between requests, and for a write that does not move */
    uint32_t body_timeout_ms;   /* a body in all */
};

struct http_handler {
    void *ctx;
    /* The head is there; may answer at once (wrong key, unknown path), then on_request is not
     * called. */
    void (*on_head)(void *ctx, struct http_conn *c, const struct http_head *h);
    /* The whole request is there. Answer now or later; c stays valid until it is answered or
     * on_gone. */
    void (*on_request)(void *ctx, struct http_conn *c, const struct http_head *h);
    /* The client of an unanswered request left, or reads too slowly. c is not used any more. */
    void (*on_gone)(void *ctx, struct http_conn *c);
    /* HTTP-level refusal: write the body that goes with status and reason. */
    void (*put_error)(void *ctx, struct buf *b, int status, const char *reason);
    void (*on_tick)(void *ctx, uint64_t now_ms); /* about every 50 ms */
};

int http_server_create(struct http_server **out, uv_loop_t *loop, const struct http_config *c,
                       const struct http_handler *h, struct err *e);
uint16_t http_server_port(const struct http_server *s);
/* Connections with output that the client has not taken yet. */
uint32_t http_server_n_unsent(const struct http_server *s);
uint32_t http_server_n_connections(const struct http_server *s);
/* Answers carry Connection: close from now on; idle connections are closed. */
void http_server_drain(struct http_server *s);
/* Close everything; busy requests get on_gone. Frees when all handles are closed, calls done. */
void http_server_close(struct http_server *s, void (*done)(void *ctx), void *ctx);

void http_conn_set_user(struct http_conn *c, void *user);
void *http_conn_user(const struct http_conn *c);
/* The request's body; may be taken with buf_take. Valid until answered. */
struct buf *http_conn_body(struct http_conn *c);
/* Answer whole. extra: header lines, each ended by CR LF, or NULL. */
void http_conn_respond(struct http_conn *c, int status, const char *extra, const char *content_type,
                       const void *body, size_t n);
/* Answer 200 with an event stream. Data is put, then sent by one flush: one write(2) for a step. */
void http_conn_stream_begin(struct http_conn *c, const char *extra);
void http_conn_stream_put(struct http_conn *c, const void *data, size_t n);
void http_conn_flush(struct http_conn *c);
/* Send what was put and finish. abort: no end mark, and the connection closes, so that nobody takes
 * it for whole. */
void http_conn_stream_end(struct http_conn *c, bool abort);

#endif
