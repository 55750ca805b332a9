/* chat_stream.h - one streamed chat completion: POST, server-sent events in, text out; stoppable at any moment.
 */
#ifndef EXA_CLI_CHAT_STREAM_H
#define EXA_CLI_CHAT_STREAM_H

#include "cli/http.h"

#include <stdbool.h>
#include <stddef.h>

struct sse { /* parser of one event stream; sse_feed may get any cut of the bytes */
    struct buf line;
    bool done; /* "[DONE]" came */
};
void sse_init(struct sse *s);
void sse_fini(struct sse *s);
/* Calls event for each "data:" payload (NUL-terminated), which returns 0 or an error that is handed back. ERR_LIMIT: a line too long. */
int sse_feed(struct sse *s, const char *data, size_t n,
             int (*event)(void *ctx, const char *payload, size_t n, struct err *e), void *ctx,
             struct err *e);

struct chat_request {
    const char *base_url;
    const char *body;    /* JSON with "stream": true */
    int stop_fd;         /* readable: the user wants the answer to end; -1: none */
    unsigned timeout_ms; /* without a byte from the service */
    /* An error ends the answer and is handed back. */
    int (*on_text)(void *ctx, const char *text, size_t n, struct err *e);
    void *ctx;
};
struct chat_result {
    char finish[32]; /* "stop", "length"; "" when it did not finish */
    bool any;        /* text was shown */
    bool too_long;   /* refused: the conversation does not fit the context */
};
/* ERR_PEER: nobody there, or the connection broke; ERR_CANCELED: stop_fd; others: the service's own error. */
int chat_stream(struct http *h, const struct chat_request *q, struct chat_result *r, struct err *e);

#endif
