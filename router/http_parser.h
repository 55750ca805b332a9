/* http_parser.h - HTTP/1.x requests from bytes: heads, bodies and limits, without sockets.
 *
 * llhttp reads the grammar; this adds what it leaves open: size limits, Host required, no obs-fold,
 * no bare CR or LF in a head (RFC 9112 sections 2.2 and 5.2 allow refusing both), one transfer
 * coding. Each message starts a fresh llhttp, so nothing leaks from one request of a connection to
 * the next. Not thread-safe; memory is only held while a request is under way.
 */
#ifndef EXA_ROUTER_HTTP_PARSER_H
#define EXA_ROUTER_HTTP_PARSER_H

#include "base/buf.h"

#include <llhttp.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    HTTP_MAX_URL_BYTES = 4096,
    HTTP_MAX_HEAD_BYTES = 32 << 10,
    HTTP_MAX_HEADERS = 100,
    HTTP_MAX_TRAILER_BYTES = 4096, /* trailers and chunk extensions of one message */
    HTTP_MAX_REQUEST_ID_BYTES = 128,
};

struct http_slice {
    const char *p; /* NULL: absent */
    size_t n;
};

struct http_head {  /* slices point into the parser's memory: valid until http_parser_next */
    uint8_t method; /* enum llhttp_method */
    uint8_t minor;  /* HTTP/1.minor */
    bool keep_alive;
    bool has_body; /* a body with at least one byte is announced, or a chunked one */
    bool chunked;
    bool expect_continue, expect_unknown;
    uint64_t content_length;
    struct http_slice url, host, authorization, content_type, request_id;
};

enum http_event {
    HTTP_NEED_MORE, /* all input was consumed */
    HTTP_HEAD_DONE, /* head is filled; feed on for the body (also when there is none) */
    HTTP_BODY_DONE, /* the request is complete; http_parser_next before more is fed */
    HTTP_REFUSED,   /* see status and reason: answer and close */
};

struct http_parser {
    llhttp_t llhttp;
    struct buf raw_head; /* request line and header lines */
    struct buf body;
    struct http_head head;
    size_t max_body_bytes;
    const char *reason; /* static sentence */
    uint16_t status;    /* of HTTP_REFUSED */
    uint8_t phase;
    uint8_t line_state;          /* of the head scanner */
    uint32_t line_bytes;         /* of the current head line */
    uint32_t n_lines, n_leading; /* lines of the head; empty ones before it */
    uint32_t n_hosts, n_length_headers;
    uint32_t n_trailer_bytes;
    struct http_slice field;
    struct http_slice transfer_encoding;
    bool body_complete;
};

void http_parser_init(struct http_parser *p, size_t max_body_bytes);
void http_parser_fini(struct http_parser *p);
/* Give up the finished request and wait for the next head. */
void http_parser_next(struct http_parser *p);
/* Consume some of data[n]; *used says how much. Call again with the rest while the event is
 * HTTP_HEAD_DONE. */
enum http_event http_parser_feed(struct http_parser *p, const char *data, size_t n, size_t *used);
/* No byte of a request has arrived yet. */
bool http_parser_is_idle(const struct http_parser *p);
bool http_parser_in_head(const struct http_parser *p);
/* Case-insensitive comparison with a lower-case word. */
bool http_slice_is(struct http_slice s, const char *word);

#endif
