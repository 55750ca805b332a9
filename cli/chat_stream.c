/* chat_stream.c - see chat_stream.h. libcurl's multi interface, because it can wait for our stop_fd beside the socket. */
#include "cli/chat_stream.h"

#include "base/clock.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { LINE_BYTES = 1 << 20, ERROR_BYTES = 64 * 1024, POLL_MS = 1000 };

void sse_init(struct sse *s)
{
    buf_init(&s->line, LINE_BYTES);
    s->done = false;
}

void sse_fini(struct sse *s)
{
    buf_fini(&s->line);
}

/* A whole line, without its end. Only "data" fields carry anything here; one line is one payload in this API. */
static int line_take(struct sse *s, int (*event)(void *, const char *, size_t, struct err *),
                     void *ctx, struct err *e)
{
    const char *line = buf_cstr(&s->line);
    size_t n = s->line.len;
    if (n && line[n - 1] == '\r')
        n--;
    int rc = 0;
    if (n >= 5 && memcmp(line, "data:", 5) == 0) {
        size_t skip = n > 5 && line[5] == ' ' ? 6 : 5;
        if (n - skip == 6 && memcmp(line + skip, "[DONE]", 6) == 0)
            s->done = true;
        else if (!s->done)
            rc = event(ctx, line + skip, n - skip, e);
    }
    buf_reset(&s->line);
    return rc;
}

int sse_feed(struct sse *s, const char *data, size_t n,
             int (*event)(void *ctx, const char *payload, size_t n, struct err *e), void *ctx,
             struct err *e)
{
    while (n) {
        const char *end = memchr(data, '\n', n);
        size_t k = end ? (size_t)(end - data) : n;
        buf_put(&s->line, data, k);
        if (!buf_ok(&s->line) || s->line.len + 1 >= LINE_BYTES)
            return err_set(e, ERR_LIMIT, "the service sent a line of more than %d bytes",
                           LINE_BYTES);
        if (!end)
            return 0;
        int rc = line_take(s, event, ctx, e);
        if (rc)
            return rc;
        data += k + 1;
        n -= k + 1;
    }
    return 0;
}

struct stream {
    const struct chat_request *q;
    struct chat_result *r;
    struct http *h;
    struct sse sse;
    struct buf error_body; /* of an answer that is not 200 */
    struct err fault;
    uint64_t last_us; /* when the last bytes came */
};

static int fault_event(const json_t *error, struct err *e)
{
    const char *text = json_string_value(json_object_get(error, "message"));
    return err_set(e, ERR_PEER, "the service broke the answer off: %.300s",
                   text ? text : "without a reason");
}

static int event_take(void *ctx, const char *payload, size_t n, struct err *e)
{
    struct stream *s = ctx;
    json_t *o = json_loadb(payload, n, JSON_ALLOW_NUL, NULL);
    if (!o)
        return err_set(e, ERR_PROTO, "the service sent an event that is not JSON");
    const json_t *error = json_object_get(o, "error");
    int rc = error ? fault_event(error, e) : 0;
    const json_t *choice = json_array_get(json_object_get(o, "choices"), 0);
    const json_t *text = json_object_get(json_object_get(choice, "delta"), "content");
    const char *finish = json_string_value(json_object_get(choice, "finish_reason"));
    if (!rc && json_string_length(text)) {
        s->r->any = true;
        rc = s->q->on_text(s->q->ctx, json_string_value(text), json_string_length(text), e);
    }
    if (!rc && finish)
        snprintf(s->r->finish, sizeof s->r->finish, "%s", finish);
    json_decref(o);
    return rc;
}

static size_t bytes_take(char *data, size_t size, size_t n, void *ctx)
{
    struct stream *s = ctx;
    long status = 0;
    s->last_us = clock_now_us();
    curl_easy_getinfo(s->h->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status == 200)
        return sse_feed(&s->sse, data, size * n, event_take, s, &s->fault) ? 0 : size * n;
    buf_put(&s->error_body, data, size * n);
    return size * n; /* past the cap it is dropped: the begin holds the reason */
}

/* Until the transfer ends; the outcome in *code. */
static int drive(struct stream *s, CURLM *multi, CURLcode *code, struct err *e)
{
    struct curl_waitfd stop = {.fd = s->q->stop_fd, .events = CURL_WAIT_POLLIN};
    int running = 1;
    s->last_us = clock_now_us();
    while (running) {
        if (curl_multi_perform(multi, &running) != CURLM_OK)
            return err_set(e, ERR_SYS, "libcurl failed");
        if (!running)
            break;
        uint64_t silent_ms = (clock_now_us() - s->last_us) / 1000;
        if (silent_ms >= s->q->timeout_ms)
            return err_set(e, ERR_TIMEOUT, "%s: nothing came for %u s", s->q->base_url,
                           s->q->timeout_ms / 1000);
        stop.revents = 0;
        curl_multi_poll(multi, &stop, stop.fd >= 0 ? 1 : 0, POLL_MS, NULL);
        if (stop.fd >= 0 && stop.revents)
            return err_set(e, ERR_CANCELED, "stopped");
    }
    int left;
    const CURLMsg *m = curl_multi_info_read(multi, &left);
    *code = m && m->msg == CURLMSG_DONE ? m->data.result : CURLE_RECV_ERROR;
    return 0;
}

/* What a finished transfer amounts to. */
static int verdict(struct stream *s, CURLcode code, struct err *e)
{
    long status = 0;
    char text[300];
    curl_easy_getinfo(s->h->curl, CURLINFO_RESPONSE_CODE, &status);
    if (s->fault.code)
        return err_set(e, s->fault.code, "%s", s->fault.text);
    if (code != CURLE_OK)
        return http_fault(s->h, code, s->q->base_url, e);
    if (status == 200)
        return s->sse.done ? 0
                           : err_set(e, ERR_PEER, "%s: the answer ended too early", s->q->base_url);
    http_error_text(&s->error_body, text, sizeof text);
    s->r->too_long = http_error_is(&s->error_body, "context_length_exceeded");
    return err_set(e, status >= 500 || status == 429 ? ERR_AGAIN : ERR_CONFIG,
                   "the service refused (%ld): %s", status, text);
}

int chat_stream(struct http *h, const struct chat_request *q, struct chat_result *r, struct err *e)
{
    struct stream s = {.q = q, .r = r, .h = h};
    memset(r, 0, sizeof *r);
    int rc = http_prepare(h, q->base_url, "/v1/chat/completions", e);
    if (rc)
        return rc;
    CURLM *multi = curl_multi_init();
    if (!multi)
        return err_set(e, ERR_NOMEM, "out of memory");
    sse_init(&s.sse);
    buf_init(&s.error_body, ERROR_BYTES);
    curl_easy_setopt(h->curl, CURLOPT_POSTFIELDS, q->body);
    curl_easy_setopt(h->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(q->body));
    curl_easy_setopt(h->curl, CURLOPT_WRITEFUNCTION, bytes_take);
    curl_easy_setopt(h->curl, CURLOPT_WRITEDATA, &s);
    curl_multi_add_handle(multi, h->curl);
    CURLcode code = CURLE_OK;
    rc = drive(&s, multi, &code, e);
    curl_multi_remove_handle(multi, h->curl); /* an unfinished one: its connection is closed */
    if (!rc)
        rc = verdict(&s, code, e);
    curl_multi_cleanup(multi);
    sse_fini(&s.sse);
    buf_fini(&s.error_body);
    return rc;
}
