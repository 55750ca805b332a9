/* http.h - one HTTP request by libcurl, with deadlines, a bounded answer and the key.
 */
#ifndef EXA_CLI_HTTP_H
#define EXA_CLI_HTTP_H

#include "base/buf.h"
#include "base/err.h"

#include <curl/curl.h>
#include <stdbool.h>

enum { HTTP_MAX_BODY = 16 << 20, HTTP_CONNECT_MS = 5000 };

struct http {
    CURL *curl; /* kept for keep-alive */
    struct curl_slist *headers;
    char error[CURL_ERROR_SIZE];
};

int http_init(struct http *h, const char *key, struct err *e);
void http_fini(struct http *h);
/* Address of BASE with PATH, and common settings; the caller may set more before it performs. */
int http_prepare(struct http *h, const char *base_url, const char *path, struct err *e);
/* GET. status: the HTTP status. ERR_PEER: nobody answers there; ERR_TIMEOUT; ERR_LIMIT: body over HTTP_MAX_BODY. */
int http_get(struct http *h, const char *base_url, const char *path, unsigned timeout_ms,
             struct buf *body, long *status, struct err *e);
/* What a failed transfer means. */
int http_fault(struct http *h, CURLcode code, const char *base_url, struct err *e);
/* The sentence in an OpenAI error body ({"error":{"message":…}}), or the body's begin. */
void http_error_text(const struct buf *body, char *out, size_t cap);
/* Does the body of an error answer carry that code? */
bool http_error_is(const struct buf *body, const char *code);

#endif
