/* http_wire.c - see http_wire.h. */
#include "router/http_wire.h"

#include <time.h>

static const struct {
    int status;
    const char *text;
} STATUSES[] = {
    {200, "OK"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
};

const char *http_status_text(int status)
{
    for (size_t i = 0; i < sizeof STATUSES / sizeof STATUSES[0]; i++)
        if (STATUSES[i].status == status)
            return STATUSES[i].text;
    return "Unknown";
}

static void put_date(struct buf *b)
{
    char text[40];
    time_t now = time(NULL);
    struct tm tm;
    gmtime_r(&now, &tm);
    size_t n = strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    buf_puts(b, "date: ");
    buf_put(b, text, n);
    buf_put(b, "\r\n", 2);
}

void http_put_head(struct buf *b, int status, bool keep_alive, const char *extra)
{
    buf_printf(b, "HTTP/1.1 %d %s\r\n", status, http_status_text(status));
    put_date(b);
    buf_puts(b, keep_alive ? "connection: keep-alive\r\n" : "connection: close\r\n");
    if (extra)
        buf_puts(b, extra);
}

void http_put_length(struct buf *b, const char *content_type, size_t n)
{
    buf_printf(b, "content-type: %s\r\ncontent-length: %zu\r\n\r\n", content_type, n);
}

void http_put_stream(struct buf *b, bool chunked)
{
    buf_puts(b, "content-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
                "x-accel-buffering: no\r\n");
    buf_puts(b, chunked ? "transfer-encoding: chunked\r\n\r\n" : "\r\n");
}
