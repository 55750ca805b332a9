/* routes.c - keys, paths and methods. Completions go to flight.c; all else is answered here. */
#include "router/flight.h"
#include "router/health.h"

#include "base/digest.h"
#include "router/json_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <strings.h>

enum { RETRY_AFTER_S = 5, HEALTH_MAX_BYTES = 64 << 20 };

enum route {
    ROUTE_NONE,
    ROUTE_CHAT,
    ROUTE_COMPLETION,
    ROUTE_EMBEDDING,
    ROUTE_MODELS,
    ROUTE_MODEL,
    ROUTE_LIVE,
    ROUTE_READY
};

static const struct {
    const char *path;
    enum route route;
} ROUTES[] = {
    {"/v1/chat/completions", ROUTE_CHAT}, {"/v1/completions", ROUTE_COMPLETION},
    {"/v1/embeddings", ROUTE_EMBEDDING},  {"/v1/models", ROUTE_MODELS},
    {"/health/live", ROUTE_LIVE},         {"/health/ready", ROUTE_READY},
};
static const char MODEL_PREFIX[] = "/v1/models/";

/* --- the request target ----------------------------------------------------------------------- */

/* The path: without "http://host" of the absolute form and without query. */
static struct http_slice url_path(struct http_slice url)
{
    const char *scheme = memmem(url.p, url.n, "://", 3);
    if (url.n && url.p[0] != '/' && scheme) {
        size_t skip = (size_t)(scheme - url.p) + 3;
        const char *slash = memchr(url.p + skip, '/', url.n - skip);
        if (!slash)
            return (struct http_slice){"/", 1};
        url = (struct http_slice){slash, url.n - (size_t)(slash - url.p)};
    }
    for (size_t i = 0; i < url.n; i++)
        if (url.p[i] == '?' || url.p[i] == '#')
            url.n = i;
    return url;
}

static bool starts_with(struct http_slice s, const char *prefix)
{
    size_t n = strlen(prefix);
    return s.n >= n && !memcmp(s.p, prefix, n);
}

static enum route route_of(struct http_slice path)
{
    for (size_t i = 0; i < sizeof ROUTES / sizeof ROUTES[0]; i++)
        if (path.n == strlen(ROUTES[i].path) && !memcmp(path.p, ROUTES[i].path, path.n))
            return ROUTES[i].route;
    if (starts_with(path, MODEL_PREFIX) && path.n > strlen(MODEL_PREFIX))
        return ROUTE_MODEL;
    return ROUTE_NONE;
}

/* The kind of a route that takes requests; 0: none. */
static enum api_kind kind_of(enum route route)
{
    return route == ROUTE_CHAT         ? API_CHAT
           : route == ROUTE_COMPLETION ? API_COMPLETION
           : route == ROUTE_EMBEDDING  ? API_EMBEDDING
                                       : (enum api_kind)0;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Percent-decode into out[cap]; the number of bytes, or 0: malformed, empty or too long. */
static size_t percent_decode(struct http_slice s, char *out, size_t cap)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        int c = (uint8_t)s.p[i];
        if (c == '%') {
            int hi = i + 2 < s.n ? hex_digit(s.p[i + 1]) : -1;
            int lo = hi >= 0 ? hex_digit(s.p[i + 2]) : -1;
            if (lo < 0)
                return 0;
            c = hi << 4 | lo;
            i += 2;
        }
        if (n == cap)
            return 0;
        out[n++] = (char)c;
    }
    return n;
}

/* --- keys and ids ----------------------------------------------------------------------------- */

static bool has_key(const struct router *r, const struct http_head *h)
{
    struct http_slice a = h->authorization;
    uint8_t hash[SHA256_BYTES];
    if (!a.p || a.n < 8 || strncasecmp(a.p, "bearer ", 7))
        return false;
    a.p += 7;
    a.n -= 7;
    while (a.n && *a.p == ' ') {
        a.p++;
        a.n--;
    }
    sha256_of(a.p, a.n, hash);
    return digest_equal(hash, r->key_hash, SHA256_BYTES);
}

void routes_request_id(struct router *r, const struct http_head *h,
                       char out[ROUTER_REQUEST_ID_BYTES])
{
    struct http_slice id = h->request_id;
    bool sane = id.p && id.n && id.n <= HTTP_MAX_REQUEST_ID_BYTES;
    for (size_t i = 0; sane && i < id.n; i++)
        sane = id.p[i] > 0x20 && id.p[i] < 0x7F;
    if (sane)
        snprintf(out, ROUTER_REQUEST_ID_BYTES, "%.*s", (int)id.n, id.p);
    else
        snprintf(out, ROUTER_REQUEST_ID_BYTES, "req_%016" PRIx64 "%016" PRIx64, router_random(r),
                 router_random(r));
}

/* --- answers ---------------------------------------------------------------------------------- */

static void respond_error_with(struct http_conn *c, const struct api_error *a,
                               const char *request_id, const char *header)
{
    struct buf b;
    char extra[ROUTER_REQUEST_ID_BYTES + 128], retry[40] = "";
    if (a->retry_after_s)
        snprintf(retry, sizeof retry, "retry-after: %u\r\n", a->retry_after_s);
    snprintf(extra, sizeof extra, "x-request-id: %s\r\n%s%s", request_id, retry, header);
    buf_init(&b, 16384);
    api_error_put(&b, a);
    http_conn_respond(c, a->status, extra, "application/json", b.data, b.len);
    buf_fini(&b);
}

void routes_respond_error(struct http_conn *c, const struct api_error *a, const char *request_id)
{
    respond_error_with(c, a, request_id, "");
}

void routes_put_error(void *ctx, struct buf *b, int status, const char *reason)
{
    struct api_error a;
    api_fail(&a, status, status >= 500 ? API_SERVER_ERROR : API_INVALID, NULL,
             status == 413   ? "request_too_large"
             : status == 408 ? "request_timeout"
                             : NULL,
             "%s.", reason);
    api_error_put(b, &a);
}

static void respond_json(struct http_conn *c, int status, const struct buf *b, const char *extra)
{
    http_conn_respond(c, status, extra, "application/json", b->data, b->len);
}

static void respond_model(struct router *r, struct http_conn *c, struct http_slice path,
                          struct buf *b, const char *extra, const char *request_id)
{
    size_t skip = strlen(MODEL_PREFIX);
    char name[MSG_MODEL_NAME_BYTES];
    size_t n = percent_decode((struct http_slice){path.p + skip, path.n - skip}, name, sizeof name);
    const struct model *m = n ? model_set_find(r->models, name, n) : NULL;
    if (m) {
        reply_put_model(b, m);
        respond_json(c, 200, b, extra);
        return;
    }
    struct api_error a;
    api_fail(&a, 404, API_INVALID, "model", "model_not_found",
             "The model '%.*s' does not exist or you do not have access to it.", (int)n, name);
    routes_respond_error(c, &a, request_id);
}

static void respond_ready(struct router *r, struct http_conn *c, const struct http_head *h,
                          struct buf *b, const char *extra)
{
    bool ready = health_is_ready(r);
    char more[ROUTER_REQUEST_ID_BYTES + 64];
    snprintf(more, sizeof more, "%sretry-after: %d\r\n", extra, RETRY_AFTER_S);
    health_put_ready(b, r, has_key(r, h));
    respond_json(c, ready ? 200 : 503, b, ready ? extra : more);
}

/* --- handlers --------------------------------------------------------------------------------- */

static bool is_json(struct http_slice type)
{
    static const char JSON[] = "application/json";
    size_t n = strlen(JSON);
    return !type.p || (type.n >= n && !strncasecmp(type.p, JSON, n) &&
                       (type.n == n || type.p[n] == ';' || type.p[n] == ' '));
}

/* What can be said before the body is there. 0: nothing, read on. */
static int check_head(struct router *r, const struct http_head *h, struct api_error *a,
                      const char **header)
{
    struct http_slice path = url_path(h->url);
    enum route route = route_of(path);
    bool post = kind_of(route) != 0;
    bool v1 = starts_with(path, "/v1/") || (path.n == 3 && starts_with(path, "/v1"));
    *header = "";
    if (v1 && !has_key(r, h)) {
        *header = "www-authenticate: Bearer\r\n";
        return api_fail(a, 401, API_INVALID, NULL, "invalid_api_key",
                        h->authorization.p ? "Incorrect API key provided."
                                           : "You didn't provide an API key. Send it in an "
                                             "Authorization header: 'Authorization: Bearer KEY'.");
    }
    if (route == ROUTE_NONE)
        return api_fail(a, 404, API_INVALID, NULL, "unknown_url",
                        "Unknown request URL: %.*s. Please check the URL for typos.",
                        (int)(path.n < 200 ? path.n : 200), path.p);
    if (post ? h->method != HTTP_POST : h->method != HTTP_GET && h->method != HTTP_HEAD) {
        *header = post ? "allow: POST\r\n" : "allow: GET, HEAD\r\n";
        return api_fail(a, 405, API_INVALID, NULL, "method_not_allowed",
                        "Not allowed to %s on %.*s; allowed: %s.", llhttp_method_name(h->method),
                        (int)(path.n < 200 ? path.n : 200), path.p, post ? "POST" : "GET, HEAD");
    }
    if (!post)
        return 0;
    if (!is_json(h->content_type))
        return api_fail(a, 415, API_INVALID, NULL, "unsupported_media_type",
                        "The body must be sent as 'Content-Type: application/json'.");
    return router_refuses(r, a) ? -1 : 0;
}

void routes_on_head(void *ctx, struct http_conn *c, const struct http_head *h)
{
    struct router *r = ctx;
    struct api_error a;
    const char *header;
    char id[ROUTER_REQUEST_ID_BYTES];
    if (!check_head(r, h, &a, &header))
        return;
    routes_request_id(r, h, id);
    respond_error_with(c, &a, id, header);
}

void routes_on_request(void *ctx, struct http_conn *c, const struct http_head *h)
{
    struct router *r = ctx;
    struct http_slice path = url_path(h->url);
    enum route route = route_of(path);
    struct api_error a;
    char id[ROUTER_REQUEST_ID_BYTES], extra[ROUTER_REQUEST_ID_BYTES + 32];
    struct buf b;
    if (kind_of(route)) {
        if (router_refuses(r, &a)) { /* draining began while the body came */
            routes_request_id(r, h, id);
            routes_respond_error(c, &a, id);
        } else {
            flight_start(r, c, h, kind_of(route));
        }
        return;
    }
    routes_request_id(r, h, id);
    snprintf(extra, sizeof extra, "x-request-id: %s\r\n", id);
    buf_init(&b, HEALTH_MAX_BYTES);
    if (route == ROUTE_MODELS) {
        reply_put_models(&b, r->models);
        respond_json(c, 200, &b, extra);
    } else if (route == ROUTE_MODEL) {
        respond_model(r, c, path, &b, extra, id);
    } else if (route == ROUTE_LIVE) {
        health_put_live(&b, r);
        respond_json(c, 200, &b, extra);
    } else {
        respond_ready(r, c, h, &b, extra);
    }
    buf_fini(&b);
}
