/* http_internal.h - connection and server as http_conn.c and http_server.c share them. Inside of
 * these two only. */
#ifndef EXA_ROUTER_HTTP_INTERNAL_H
#define EXA_ROUTER_HTTP_INTERNAL_H

#include "router/http_conn.h"

enum {
    HTTP_READ_BYTES = 64 << 10,     /* one buffer for the whole loop */
    HTTP_PIPELINE_BYTES = 64 << 10, /* kept while a request is busy; past it reading stops */
    HTTP_BACKLOG_BYTES = 1 << 20,   /* unread output: past it a stream's reader is too slow */
    HTTP_OUT_MAX_BYTES = 512 << 20, /* a whole answer */
};

enum conn_state { CONN_READING, CONN_BUSY, CONN_LINGER, CONN_CLOSING };

struct http_conn {
    uv_tcp_t tcp;
    struct http_server *server;
    struct http_conn *prev, *next; /* all connections */
    struct http_conn *next_resumed;
    struct http_parser parser;
    struct buf in;  /* input that came while busy */
    struct buf out; /* output not yet handed to libuv */
    uv_write_t write;
    uint8_t *writing; /* owned; what `write` sends */
    void *user;
    uint64_t since_ms;   /* of the current wait: head, body part, idle, linger */
    uint64_t request_ms; /* first byte of the current request */
    uint64_t write_ms;   /* last time the write queue moved */
    size_t write_queue;
    size_t body_bytes; /* this connection's part of the server's */
    uint8_t state;
    bool answered, keep_alive, streaming, chunked, head_only;
    bool failed, eof, resumed, overflow, reading, shut, used;
};

struct http_server {
    uv_loop_t *loop;
    uv_tcp_t listener;
    uv_timer_t tick;
    uv_idle_t idle; /* runs while connections wait in `resumed` */
    struct http_config config;
    struct http_handler handler;
    struct http_conn *conns, *resumed;
    uint32_t n_conns, n_overflow, n_handles;
    uint64_t body_bytes; /* of requests that are not answered yet */
    uint16_t port;
    bool draining, closing;
    void (*done)(void *ctx);
    void *done_ctx;
    char read_buffer[HTTP_READ_BYTES];
};

/* http_answer.c */
void http_conn_refuse(struct http_conn *c, int status, const char *reason);
size_t http_conn_backlog(const struct http_conn *c); /* bytes that have not left yet */

/* http_conn.c. Look at c again, or give it up, from the loop's top level. */
void http_conn_resume_later(struct http_conn *c);
void http_conn_fail(struct http_conn *c);
/* Closing is for the loop's top level only: it may call on_gone. */
void http_conn_close(struct http_conn *c);
void http_conn_set_reading(struct http_conn *c, bool on);
/* http_server.c: one handle less; the last frees s. */
void http_server_handle_closed(struct http_server *s);

#endif
