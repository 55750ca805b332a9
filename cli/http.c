/* http.c - see http.h. No proxy: services are inside the cluster, and a proxy set for the web outside would hide them. */
#include "cli/http.h"

#include "cli/say.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

int http_init(struct http *h, const char *key, struct err *e)
{
    char line[256];
    memset(h, 0, sizeof *h);
    snprintf(line, sizeof line, "Authorization: Bearer %s", key);
    h->curl = curl_easy_init();
    h->headers = curl_slist_append(NULL, line);
    struct curl_slist *more =
        h->headers ? curl_slist_append(h->headers, "Content-Type: application/json") : NULL;
    if (!h->curl || !more) {
        http_fini(h);
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    return 0;
}

void http_fini(struct http *h)
{
    if (h->curl)
        curl_easy_cleanup(h->curl);
    curl_slist_free_all(h->headers);
    memset(h, 0, sizeof *h);
}

int http_prepare(struct http *h, const char *base_url, const char *path, struct err *e)
{
    char url[512];
    if (snprintf(url, sizeof url, "%s%s", base_url, path) >= (int)sizeof url)
        return err_set(e, ERR_LIMIT, "URL is too long: %.100s…", base_url);
    curl_easy_reset(h->curl);
    h->error[0] = 0;
    if (curl_easy_setopt(h->curl, CURLOPT_URL, url) != CURLE_OK ||
        curl_easy_setopt(h->curl, CURLOPT_PROTOCOLS_STR, "http,https") != CURLE_OK)
        return err_set(e, ERR_NOMEM, "out of memory");
    curl_easy_setopt(h->curl, CURLOPT_HTTPHEADER, h->headers);
    curl_easy_setopt(h->curl, CURLOPT_ERRORBUFFER, h->error);
    curl_easy_setopt(h->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h->curl, CURLOPT_PROXY, "");
    curl_easy_setopt(h->curl, CURLOPT_CONNECTTIMEOUT_MS, (long)HTTP_CONNECT_MS);
    return 0;
}

static size_t take(char *data, size_t size, size_t n, void *ctx)
{
    struct buf *b = ctx;
    buf_put(b, data, size * n);
    return buf_ok(b) ? size * n : 0;
}

int http_fault(struct http *h, CURLcode code, const char *base_url, struct err *e)
{
    const char *why = h->error[0] ? h->error : curl_easy_strerror(code);
    switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
        return err_set(e, ERR_TIMEOUT, "%s: %s", base_url, why);
    case CURLE_WRITE_ERROR:
        return err_set(e, ERR_LIMIT, "%s: the answer is larger than %d bytes", base_url,
                       HTTP_MAX_BODY);
    case CURLE_OUT_OF_MEMORY:
        return err_set(e, ERR_NOMEM, "%s: out of memory", base_url);
    default:
        return err_set(e, ERR_PEER, "%s: %s", base_url, why);
    }
}

int http_get(struct http *h, const char *base_url, const char *path, unsigned timeout_ms,
             struct buf *body, long *status, struct err *e)
{
    int rc = http_prepare(h, base_url, path, e);
    if (rc)
        return rc;
    curl_easy_setopt(h->curl, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
    curl_easy_setopt(h->curl, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(h->curl, CURLOPT_WRITEDATA, body);
    CURLcode code = curl_easy_perform(h->curl);
    if (code != CURLE_OK)
        return http_fault(h, code, base_url, e);
    curl_easy_getinfo(h->curl, CURLINFO_RESPONSE_CODE, status);
    return 0;
}

void http_error_text(const struct buf *body, char *out, size_t cap)
{
    json_t *o = body->len ? json_loadb((const char *)body->data, body->len, 0, NULL) : NULL;
    const json_t *error = json_object_get(o, "error");
    const char *text = json_string_value(json_object_get(error, "message"));
    if (!text)
        text = json_string_value(error);
    if (text)
        snprintf(out, cap, "%s", text);
    else
        snprintf(out, cap, "%.*s", body->len > 200 ? 200 : (int)body->len,
                 body->len ? (const char *)body->data : "");
    say_clean(out);
    json_decref(o);
}

bool http_error_is(const struct buf *body, const char *code)
{
    json_t *o = body->len ? json_loadb((const char *)body->data, body->len, 0, NULL) : NULL;
    const char *found = json_string_value(json_object_get(json_object_get(o, "error"), "code"));
    bool is = found && strcmp(found, code) == 0;
    json_decref(o);
    return is;
}
