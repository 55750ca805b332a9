/* http_server.c - listening, accepting, and what time does to connections. See http_conn.h. */
#include "router/http_internal.h"

#include "base/log.h"

#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>

enum {
    LINGER_MS = 2000,
    TICK_MS = 50,
    MAX_OVERFLOW = 64, /* connections over the limit that are told 503 rather than just closed */
    BACKLOG = 1024,
};

void http_server_handle_closed(struct http_server *s)
{
    if (--s->n_handles)
        return;
    if (s->done)
        s->done(s->done_ctx);
    free(s);
}

/* --- time ------------------------------------------------------------------------------------- */

/* While reading is stopped no EOF is seen: ask the kernel whether the client has left. */
static bool conn_peer_left(const struct http_conn *c)
{
    uv_os_fd_t fd;
    struct tcp_info info;
    socklen_t n = sizeof info;
    if (c->reading || c->eof || uv_fileno((const uv_handle_t *)&c->tcp, &fd) ||
        getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n))
        return false;
    return info.tcpi_state != TCP_ESTABLISHED;
}

static void conn_tick_reading(struct http_conn *c, uint64_t now)
{
    const struct http_config *cfg = &c->server->config;
    uint64_t waited = now - c->since_ms;
    if (c->answered) {
        /* the body of a refused request does not come, or drips: it has as long as a head */
        if (waited > cfg->header_timeout_ms || now - c->request_ms > 2 * cfg->header_timeout_ms)
            http_conn_close(c);
    } else if (http_parser_is_idle(&c->parser)) {
        bool fresh = !c->used;
        if (waited > (fresh ? cfg->header_timeout_ms : cfg->idle_timeout_ms) ||
            (c->server->draining && !c->writing && !c->out.len && !fresh))
            http_conn_close(c);
    } else if (http_parser_in_head(&c->parser)) {
        if (now - c->request_ms > cfg->header_timeout_ms)
            http_conn_refuse(c, 408, "the request head did not arrive in time");
    } else if (waited > cfg->header_timeout_ms || now - c->request_ms > cfg->body_timeout_ms) {
        http_conn_refuse(c, 408, "the request body did not arrive in time");
    }
}

static void conn_tick(struct http_conn *c, uint64_t now)
{
    if (c->writing) {
        size_t queue = uv_stream_get_write_queue_size((uv_stream_t *)&c->tcp);
        if (queue != c->write_queue)
            c->write_ms = now;
        c->write_queue = queue;
        if (now - c->write_ms > c->server->config.idle_timeout_ms) {
            http_conn_close(c);
            return;
        }
    }
    if (c->state == CONN_LINGER && c->shut && now - c->since_ms > LINGER_MS)
        http_conn_close(c);
    else if (c->state == CONN_READING)
        conn_tick_reading(c, now);
    else if (c->state == CONN_BUSY && conn_peer_left(c))
        http_conn_close(c);
}

static void on_tick(uv_timer_t *t)
{
    struct http_server *s = t->data;
    uint64_t now = uv_now(s->loop);
    for (struct http_conn *c = s->conns, *next; c; c = next) {
        next = c->next; /* closing unlinks only after the loop turns */
        if (c->state != CONN_CLOSING)
            conn_tick(c, now);
    }
    s->handler.on_tick(s->handler.ctx, now);
}

/* --- accepting -------------------------------------------------------------------------------- */

static struct http_conn *conn_create(struct http_server *s)
{
    struct http_conn *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    if (uv_tcp_init(s->loop, &c->tcp)) {
        free(c);
        return NULL;
    }
    c->tcp.data = c;
    c->server = s;
    http_parser_init(&c->parser, s->config.max_body_bytes);
    buf_init(&c->in, HTTP_PIPELINE_BYTES + HTTP_READ_BYTES);
    buf_init(&c->out, HTTP_OUT_MAX_BYTES);
    c->since_ms = c->request_ms = uv_now(s->loop);
    c->next = s->conns;
    if (s->conns)
        s->conns->prev = c;
    s->conns = c;
    s->n_handles++;
    c->overflow = s->n_conns >= s->config.max_connections;
    if (c->overflow)
        s->n_overflow++;
    else
        s->n_conns++;
    return c;
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct http_server *s = listener->data;
    if (status < 0 || s->closing) {
        log_warn("http: accept failed: %s", uv_strerror(status));
        return;
    }
    struct http_conn *c = conn_create(s);
    if (!c) {
        log_warn("http: out of memory for a connection");
        return;
    }
    if (uv_accept(listener, (uv_stream_t *)&c->tcp) ||
        (c->overflow && s->n_overflow > MAX_OVERFLOW)) {
        http_conn_close(c);
        return;
    }
    uv_tcp_nodelay(&c->tcp, 1);
    http_conn_set_reading(c, true);
    if (c->overflow)
        http_conn_refuse(c, 503, "too many connections");
}

static int server_listen(struct http_server *s, struct err *e)
{
    const struct http_config *cfg = &s->config;
    struct sockaddr_storage addr;
    if (uv_ip4_addr(cfg->listen, cfg->port, (struct sockaddr_in *)&addr) &&
        uv_ip6_addr(cfg->listen, cfg->port, (struct sockaddr_in6 *)&addr))
        return err_set(e, ERR_CONFIG, "listen address %s is no IPv4 or IPv6 address", cfg->listen);
    int rc = uv_tcp_bind(&s->listener, (struct sockaddr *)&addr, 0);
    if (!rc)
        rc = uv_listen((uv_stream_t *)&s->listener, BACKLOG, on_connection);
    if (rc)
        return err_set(e, ERR_SYS, "cannot listen on %s port %u: %s", cfg->listen, cfg->port,
                       uv_strerror(rc));
    int len = sizeof addr;
    uv_tcp_getsockname(&s->listener, (struct sockaddr *)&addr, &len);
    s->port = ntohs(addr.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&addr)->sin6_port
                                               : ((struct sockaddr_in *)&addr)->sin_port);
    return 0;
}

int http_server_create(struct http_server **out, uv_loop_t *loop, const struct http_config *cfg,
                       const struct http_handler *h, struct err *e)
{
    struct http_server *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_NOMEM, "out of memory for the HTTP server");
    s->loop = loop;
    s->config = *cfg;
    s->handler = *h;
    if (uv_tcp_init(loop, &s->listener)) {
        free(s);
        return err_set(e, ERR_SYS, "cannot make a socket");
    }
    uv_timer_init(loop, &s->tick);
    uv_idle_init(loop, &s->idle);
    s->listener.data = s->tick.data = s->idle.data = s;
    s->n_handles = 3;
    int rc = server_listen(s, e);
    if (rc) {
        http_server_close(s, NULL, NULL);
        return rc;
    }
    uv_timer_start(&s->tick, on_tick, TICK_MS, TICK_MS);
    *out = s;
    return 0;
}

static void on_server_handle_closed(uv_handle_t *h)
{
    http_server_handle_closed(h->data);
}

void http_server_close(struct http_server *s, void (*done)(void *ctx), void *ctx)
{
    s->closing = true;
    s->done = done;
    s->done_ctx = ctx;
    for (struct http_conn *c = s->conns, *next; c; c = next) {
        next = c->next;
        http_conn_close(c);
    }
    uv_close((uv_handle_t *)&s->listener, on_server_handle_closed);
    uv_close((uv_handle_t *)&s->tick, on_server_handle_closed);
    uv_close((uv_handle_t *)&s->idle, on_server_handle_closed);
}

void http_server_drain(struct http_server *s)
{
    s->draining = true;
}

uint16_t http_server_port(const struct http_server *s)
{
    return s->port;
}

uint32_t http_server_n_connections(const struct http_server *s)
{
    return s->n_conns;
}

uint32_t http_server_n_unsent(const struct http_server *s)
{
    uint32_t n = 0;
    for (const struct http_conn *c = s->conns; c; c = c->next)
        n += c->state != CONN_CLOSING && (c->writing || c->out.len);
    return n;
}
