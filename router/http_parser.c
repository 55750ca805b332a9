/* http_parser.c - see http_parser.h.
 *
 * The head is gathered first, up to its empty line, by a small scanner that enforces the limits;
 * llhttp then sees it whole, so its spans are contiguous and can be kept as slices. The body is fed
 * as it comes.
 */
#include "router/http_parser.h"

#include <strings.h>

enum { PHASE_HEAD, PHASE_BODY, PHASE_COMPLETE, PHASE_REFUSED };
enum { LINE_START, LINE_TEXT, LINE_CR, LINE_END_CR };
/* Empty lines before a request line are skipped (RFC 9112 section 2.2), but not without end. */
enum { MAX_LEADING_LINES = 4, FIRST_LINE_SLACK = 32 /* method and version beside the URL */ };

static enum http_event refuse(struct http_parser *p, int status, const char *reason)
{
    p->phase = PHASE_REFUSED;
    p->status = (uint16_t)status;
    p->reason = reason;
    return HTTP_REFUSED;
}

bool http_slice_is(struct http_slice s, const char *word)
{
    return s.p && s.n == strlen(word) && !strncasecmp(s.p, word, s.n);
}

static struct http_slice slice_trim(struct http_slice s)
{
    while (s.n && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t'))
        s.n--;
    return s;
}

/* --- llhttp callbacks ------------------------------------------------------------------------- */

static struct http_parser *self(llhttp_t *l)
{
    return l->data;
}

static int on_url(llhttp_t *l, const char *at, size_t n)
{
    self(l)->head.url = (struct http_slice){at, n};
    return 0;
}

static int count_trailer(struct http_parser *p, size_t n)
{
    p->n_trailer_bytes += (uint32_t)n;
    return p->n_trailer_bytes > HTTP_MAX_TRAILER_BYTES ? HPE_USER : 0;
}

/* RFC 9110 section 5.6.2; llhttp's loose build lets spaces through ("Content-Length : 5"). */
static bool is_token(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] <= ' ' || s[i] >= 0x7F || strchr("\"(),/:;<=>?@[\\]{}", s[i]))
            return false;
    return n > 0;
}

static int on_field(llhttp_t *l, const char *at, size_t n)
{
    struct http_parser *p = self(l);
    if (p->phase == PHASE_BODY)
        return count_trailer(p, n);
    if (!is_token(at, n))
        return HPE_USER;
    p->field = (struct http_slice){at, n};
    return 0;
}

static int on_value(llhttp_t *l, const char *at, size_t n)
{
    struct http_parser *p = self(l);
    if (p->phase == PHASE_BODY)
        return count_trailer(p, n);
    struct http_slice v = slice_trim((struct http_slice){at, n});
    if (http_slice_is(p->field, "host")) {
        p->head.host = v;
        p->n_hosts++;
    } else if (http_slice_is(p->field, "authorization")) {
        p->head.authorization = v;
    } else if (http_slice_is(p->field, "content-type")) {
        p->head.content_type = v;
    } else if (http_slice_is(p->field, "content-length")) {
        p->n_length_headers++;
    } else if (http_slice_is(p->field, "transfer-encoding")) {
        if (p->transfer_encoding.p)
            return HPE_USER;
        p->transfer_encoding = v;
    } else if (http_slice_is(p->field, "expect")) {
        if (http_slice_is(v, "100-continue"))
            p->head.expect_continue = true;
        else
            p->head.expect_unknown = true;
    } else if (http_slice_is(p->field, "x-request-id")) {
        p->head.request_id = v;
    }
    return 0;
}

static int on_headers_complete(llhttp_t *l)
{
    struct http_parser *p = self(l);
    struct http_head *h = &p->head;
    h->method = l->method;
    h->minor = l->http_minor;
    h->keep_alive = llhttp_should_keep_alive(l);
    h->chunked = l->flags & F_CHUNKED;
    h->content_length = l->flags & F_CONTENT_LENGTH ? l->content_length : 0;
    h->has_body = h->chunked || h->content_length > 0;
    l->upgrade = 0; /* an Upgrade header is an offer that we decline by answering as usual */
    return 0;
}

static int on_body(llhttp_t *l, const char *at, size_t n)
{
    buf_put(&self(l)->body, at, n);
    return buf_ok(&self(l)->body) ? 0 : HPE_USER;
}

static int on_chunk_extra(llhttp_t *l, const char *at, size_t n)
{
    return count_trailer(self(l), n);
}

static int on_message_complete(llhttp_t *l)
{
    self(l)->body_complete = true;
    return HPE_PAUSED;
}

static const llhttp_settings_t SETTINGS = {
    .on_url = on_url,
    .on_header_field = on_field,
    .on_header_value = on_value,
    .on_headers_complete = on_headers_complete,
    .on_body = on_body,
    .on_chunk_extension_name = on_chunk_extra,
    .on_chunk_extension_value = on_chunk_extra,
    .on_message_complete = on_message_complete,
};

/* --- the head --------------------------------------------------------------------------------- */

static enum http_event llhttp_refusal(struct http_parser *p)
{
    switch (llhttp_get_errno(&p->llhttp)) {
    case HPE_PAUSED_H2_UPGRADE:
    case HPE_INVALID_VERSION:
        return refuse(p, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    case HPE_INVALID_METHOD:
        return refuse(p, 400, "unknown HTTP method");
    case HPE_INVALID_URL:
        return refuse(p, 400, "malformed request target");
    case HPE_INVALID_HEADER_TOKEN:
    case HPE_UNEXPECTED_SPACE:
        return refuse(p, 400, "malformed header line");
    case HPE_INVALID_CONTENT_LENGTH:
    case HPE_UNEXPECTED_CONTENT_LENGTH:
        return refuse(p, 400, "bad or repeated Content-Length");
    case HPE_INVALID_TRANSFER_ENCODING:
        return refuse(p, 400, "bad Transfer-Encoding");
    case HPE_INVALID_CHUNK_SIZE:
    case HPE_STRICT:
        return refuse(p, 400, "malformed chunk");
    default:
        return refuse(p, 400, "malformed HTTP request");
    }
}

static enum http_event check_head(struct http_parser *p)
{
    struct http_head *h = &p->head;
    if (p->llhttp.http_major != 1 || h->minor > 1)
        return refuse(p, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    if (h->url.p[-2] == ' ' || memcmp(h->url.p + h->url.n, " HTTP/", 6))
        return refuse(p, 400, "malformed request line"); /* llhttp takes several spaces */
    if (h->url.n > HTTP_MAX_URL_BYTES)
        return refuse(p, 414, "request target too long");
    if (p->n_hosts > 1 || (h->minor == 1 && p->n_hosts != 1))
        return refuse(p, 400, "exactly one Host header is required");
    if (p->transfer_encoding.p && !http_slice_is(p->transfer_encoding, "chunked"))
        return refuse(p, 501, "the only transfer coding understood is chunked");
    if (p->transfer_encoding.p && (p->n_length_headers || h->minor == 0))
        return refuse(p, 400, "Transfer-Encoding beside Content-Length or in HTTP/1.0");
    if (p->n_length_headers > 1)
        return refuse(p, 400, "bad or repeated Content-Length");
    if (h->content_length > p->max_body_bytes)
        return refuse(p, 413, "request body larger than the limit");
    if (h->expect_unknown)
        return refuse(p, 417, "the only expectation understood is 100-continue");
    return HTTP_HEAD_DONE;
}

static enum http_event parse_head(struct http_parser *p)
{
    llhttp_init(&p->llhttp, HTTP_REQUEST, &SETTINGS);
    p->llhttp.data = p;
    llhttp_errno_t rc = llhttp_execute(&p->llhttp, (const char *)p->raw_head.data, p->raw_head.len);
    if (rc != HPE_OK && !(rc == HPE_PAUSED && p->body_complete))
        return llhttp_refusal(p);
    if (!p->head.url.p)
        return refuse(p, 400, "malformed HTTP request");
    enum http_event ev = check_head(p);
    if (ev == HTTP_HEAD_DONE)
        p->phase = PHASE_BODY;
    return ev;
}

/* Look at one byte of the head. 0: go on, 1: that was the last, -1: refused. */
static int scan_head(struct http_parser *p, uint8_t c)
{
    if (c == 0)
        return refuse(p, 400, "NUL byte in the request head"), -1;
    switch (p->line_state) {
    case LINE_START:
        if (p->n_lines && (c == ' ' || c == '\t'))
            return refuse(p, 400, "folded header lines are not accepted"), -1;
        if (c == '\r') {
            p->line_state = LINE_END_CR;
            return 0;
        }
        p->line_state = LINE_TEXT;
        p->line_bytes = 0;
        /* fallthrough */
    case LINE_TEXT:
        if (c == '\n')
            return refuse(p, 400, "lines of the request head must end in CR LF"), -1;
        if (c == '\r')
            p->line_state = LINE_CR;
        else if (++p->line_bytes > HTTP_MAX_URL_BYTES + FIRST_LINE_SLACK && !p->n_lines)
            return refuse(p, 414, "request target too long"), -1;
        return 0;
    case LINE_CR:
        if (c != '\n')
            return refuse(p, 400, "lines of the request head must end in CR LF"), -1;
        if (p->n_lines++ > HTTP_MAX_HEADERS)
            return refuse(p, 431, "too many header lines"), -1;
        p->line_state = LINE_START;
        return 0;
    default: /* LINE_END_CR */
        if (c != '\n')
            return refuse(p, 400, "lines of the request head must end in CR LF"), -1;
        p->line_state = LINE_START;
        if (p->n_lines)
            return 1;
        if (++p->n_leading > MAX_LEADING_LINES)
            return refuse(p, 400, "malformed HTTP request"), -1;
        return 0;
    }
}

static enum http_event feed_head(struct http_parser *p, const char *data, size_t n, size_t *used)
{
    size_t i = 0;
    int done = 0;
    while (i < n && !done) {
        done = scan_head(p, (uint8_t)data[i]);
        i++;
        if (!done && p->raw_head.len + i > HTTP_MAX_HEAD_BYTES)
            return *used = i, refuse(p, 431, "request head larger than the limit");
    }
    *used = i;
    if (done < 0)
        return HTTP_REFUSED;
    buf_put(&p->raw_head, data, i);
    if (!buf_ok(&p->raw_head))
        return refuse(p, 431, "request head larger than the limit");
    if (!p->n_lines && p->line_state == LINE_START) {
        buf_reset(&p->raw_head); /* empty lines before the request line */
        return HTTP_NEED_MORE;
    }
    if (!done)
        return HTTP_NEED_MORE;
    return parse_head(p);
}

/* --- the body --------------------------------------------------------------------------------- */

static enum http_event feed_body(struct http_parser *p, const char *data, size_t n, size_t *used)
{
    *used = 0;
    if (!p->body_complete) {
        if (!n)
            return HTTP_NEED_MORE;
        llhttp_errno_t rc = llhttp_execute(&p->llhttp, data, n);
        *used = n;
        if (rc == HPE_PAUSED && p->body_complete) {
            *used = (size_t)(llhttp_get_error_pos(&p->llhttp) - data);
        } else if (rc != HPE_OK) {
            if (!buf_ok(&p->body))
                return refuse(p, 413, "request body larger than the limit");
            if (p->n_trailer_bytes > HTTP_MAX_TRAILER_BYTES)
                return refuse(p, 431, "trailers or chunk extensions larger than the limit");
            return llhttp_refusal(p);
        }
    }
    if (!p->body_complete)
        return HTTP_NEED_MORE;
    p->phase = PHASE_COMPLETE;
    return HTTP_BODY_DONE;
}

/* --- public ----------------------------------------------------------------------------------- */

void http_parser_init(struct http_parser *p, size_t max_body_bytes)
{
    *p = (struct http_parser){.max_body_bytes = max_body_bytes};
    buf_init(&p->raw_head, HTTP_MAX_HEAD_BYTES + 4);
    buf_init(&p->body, max_body_bytes);
}

void http_parser_fini(struct http_parser *p)
{
    buf_fini(&p->raw_head);
    buf_fini(&p->body);
}

void http_parser_next(struct http_parser *p)
{
    size_t max = p->max_body_bytes;
    http_parser_fini(p);
    http_parser_init(p, max);
}

bool http_parser_is_idle(const struct http_parser *p)
{
    return p->phase == PHASE_HEAD && p->line_state == LINE_START && !p->n_lines;
}

bool http_parser_in_head(const struct http_parser *p)
{
    return p->phase == PHASE_HEAD;
}

enum http_event http_parser_feed(struct http_parser *p, const char *data, size_t n, size_t *used)
{
    *used = 0;
    switch (p->phase) {
    case PHASE_HEAD:
        return feed_head(p, data, n, used);
    case PHASE_BODY:
        return feed_body(p, data, n, used);
    case PHASE_COMPLETE:
        return HTTP_BODY_DONE;
    default:
        return HTTP_REFUSED;
    }
}
