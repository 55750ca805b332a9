/* plane_ucx_conn.c - see plane_ucx.h: endpoints, and messages as active messages.
 *
 * A message leaves as eager pieces of at most PIECE_BYTES. Rendezvous would need answers for transfers whose peer died half-way, which
 * UCX 1.13 does not always have. Pieces of one endpoint arrive in order; each carries a sequence number and the
 * receiving link's token, and a gap ends the link.
 */
#include "wire/plane_ucx.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

enum {
    HEAD_BYTES = 8 + 4 + 4 + 2 + 1 + 1,
    PIECE_BYTES = 8000, /* payload of one piece: with all heads one 8 KiB segment of UCX */
    MAX_IN_FLIGHT = 64, /* pieces UCX holds for one connection; the rest waits here */
};
_Static_assert(HEAD_BYTES == 20, "frozen by PROTOCOL.md");

struct frame { /* one message on its way: pieces, each with its head before it */
    struct frame *next;
    struct conn *conn;
    size_t n; /* payload */
    uint32_t n_pieces, n_issued, n_done;
    uint32_t flags; /* for UCX */
    uint8_t data[];
};

/* --- endpoints --------------------------------------------------------------------------------------------- */
static void conn_break(struct conn *c, ucs_status_t status)
{
    c->broken = true;
    if (c->link)
        link_fail(c->plane, c->link, ERR_PEER, ucs_status_string(status));
}

static void on_ep_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    conn_break(arg, status);
}

static void on_flushed(void *request, ucs_status_t status, void *arg)
{
    struct conn *c = arg;
    c->n_in_flight--;
    ucp_request_free(request);
    if (status != UCS_OK)
        conn_break(c, status);
    else
        c->reached = c->plane->any_reached = true;
}

/* A flush ends when the transport below is connected; UCX's own question to the other side comes with the first message. */
static int conn_flush(struct conn *c, struct err *e)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.send = on_flushed,
        .user_data = c,
    };
    ucs_status_ptr_t request = ucp_ep_flush_nbx(c->ep, &param);
    if (UCS_PTR_IS_ERR(request))
        return err_set(e, ERR_PEER, "UCX cannot reach member %u: %s", c->link->core.member,
                       ucs_status_string(UCS_PTR_STATUS(request)));
    if (!request)
        return 1;
    c->n_in_flight++;
    return 0;
}

int conn_open(struct plane_ucx *u, struct ucx_link *l, const void *via, size_t n, struct err *e)
{
    if (n == 0)
        return err_set(e, ERR_PROTO, "member %u told no way for messages", l->core.member);
    struct conn *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, ERR_NOMEM, "no memory for a connection");
    c->plane = u;
    c->last = &c->first;
    const ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
        .address = via,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {on_ep_error, c},
    };
    ucs_status_t status = ucp_ep_create(u->worker, &params, &c->ep);
    if (status != UCS_OK) {
        free(c);
        return err_set(e, ERR_PEER, "UCX cannot reach member %u: %s", l->core.member,
                       ucs_status_string(status));
    }
    c->next = u->conns;
    u->conns = c;
    c->link = l;
    l->conn = c;
    return conn_flush(c, e);
}

void conn_part(struct conn *c)
{
    if (!c || !c->link)
        return;
    c->link->conn = NULL;
    c->link = NULL;
    c->broken = true;
    c->plane->any_closing = true;
    for (struct frame *f = c->first, *next; f; f = next) {
        next = f->next;
        f->n_pieces = f->n_issued;
        if (f->n_done == f->n_pieces)
            free(f);
    }
    c->first = NULL;
    c->last = &c->first;
}

static void conn_close(struct conn *c)
{
    const ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                       .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucs_status_ptr_t request = ucp_ep_close_nbx(c->ep, &force);
    c->ep = NULL;
    c->closing = UCS_PTR_IS_PTR(request) ? request : NULL;
}

void conns_sweep(struct plane_ucx *u)
{
    if (!u->any_closing)
        return;
    u->any_closing = false;
    for (struct conn *c = u->conns; c; c = c->next)
        if (!c->link && c->ep)
            conn_close(c);
    for (struct conn **at = &u->conns; *at;) {
        struct conn *c = *at;
        if (c->closing && ucp_request_check_status(c->closing) != UCS_INPROGRESS) {
            ucp_request_free(c->closing);
            c->closing = NULL;
        }
        if (!c->link && !c->closing && !c->n_in_flight) {
            *at = c->next;
            free(c);
            continue;
        }
        if (!c->link)
            u->any_closing = true;
        at = &c->next;
    }
}

/* --- sending ----------------------------------------------------------------------------------------------- */
static void piece_done(struct frame *f)
{
    if (++f->n_done < f->n_pieces)
        return;
    f->conn->queued_bytes -= f->n + PLANE_MESSAGE_COST;
    free(f);
}

static void on_piece_sent(void *request, ucs_status_t status, void *arg)
{
    struct frame *f = arg;
    struct conn *c = f->conn;
    c->n_in_flight--;
    if (c->first)
        c->plane->any_backlog = true;
    ucp_request_free(request);
    if (status != UCS_OK)
        conn_break(c, status);
    piece_done(f);
}

static size_t piece_bytes(const struct frame *f, uint32_t i)
{
    size_t before = (size_t)i * PIECE_BYTES;
    return f->n - before < PIECE_BYTES ? f->n - before : PIECE_BYTES;
}

static void conn_pump(struct conn *c)
{
    while (c->first && c->n_in_flight < MAX_IN_FLIGHT && !c->broken) {
        struct frame *f = c->first;
        uint32_t i = f->n_issued++;
        if (f->n_issued == f->n_pieces) {
            c->first = f->next;
            if (!c->first)
                c->last = &c->first;
        }
        const ucp_request_param_t param = {
            .op_attr_mask =
                UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
            .flags = f->flags,
            .cb.send = on_piece_sent,
            .user_data = f,
        };
        const uint8_t *piece = f->data + (size_t)i * (HEAD_BYTES + PIECE_BYTES);
        ucs_status_ptr_t request =
            ucp_am_send_nbx(c->ep, AM_ID, NULL, 0, piece, HEAD_BYTES + piece_bytes(f, i), &param);
        if (UCS_PTR_IS_PTR(request)) {
            c->n_in_flight++;
            continue;
        }
        if (UCS_PTR_IS_ERR(request))
            conn_break(c, UCS_PTR_STATUS(request));
        piece_done(f);
    }
}

void conns_pump(struct plane_ucx *u)
{
    if (!u->any_backlog)
        return;
    u->any_backlog = false;
    for (struct conn *c = u->conns; c; c = c->next)
        if (c->first)
            conn_pump(c);
}

static void put_le(uint8_t *to, uint64_t v, int n)
{
    for (int i = 0; i < n; i++)
        to[i] = (uint8_t)(v >> (8 * i));
}

static void head_write(uint8_t *to, uint64_t token, uint32_t seq, size_t total, uint16_t type,
                       uint8_t kind)
{
    put_le(to, token, 8);
    put_le(to + 8, seq, 4);
    put_le(to + 12, total, 4);
    put_le(to + 16, type, 2);
    to[18] = kind;
    to[19] = 0;
}

int conn_send(struct conn *c, uint64_t token, uint8_t kind, uint16_t type, const void *body,
              size_t n, struct err *e)
{
    if (c->broken)
        return err_set(e, ERR_PEER, "the connection broke");
    size_t pieces = n ? (n + PIECE_BYTES - 1) / PIECE_BYTES : 1;
    struct frame *f = malloc(sizeof *f + n + pieces * HEAD_BYTES);
    if (!f)
        return err_set(e, ERR_NOMEM, "no memory for a message of %zu bytes", n);
    *f = (struct frame){.conn = c, .n = n, .n_pieces = (uint32_t)pieces};
    f->flags = UCP_AM_SEND_FLAG_EAGER;
    if (kind ==
        FRAME_READY) /* has UCX ask now, while both connections are idle, not with some later message */
        f->flags |= UCP_AM_SEND_FLAG_REPLY;
    for (uint32_t i = 0; i < pieces; i++) {
        uint8_t *to = f->data + (size_t)i * (HEAD_BYTES + PIECE_BYTES);
        head_write(to, token, c->tx_seq++, n, type, i ? FRAME_MORE : kind);
        size_t k = piece_bytes(f, i);
        if (k)
            memcpy(to + HEAD_BYTES, (const uint8_t *)body + (size_t)i * PIECE_BYTES, k);
    }
    c->queued_bytes += n + PLANE_MESSAGE_COST;
    *c->last = f;
    c->last = &f->next;
    conn_pump(c);
    return 0;
}

/* --- receiving --------------------------------------------------------------------------------------------- */
static struct ucx_link **token_bucket(struct plane_ucx *u, uint64_t token)
{
    return &u->by_token[token % TOKEN_BUCKETS]; /* tokens are random */
}

void link_bind(struct plane_ucx *u, struct ucx_link *l)
{
    struct ucx_link **at = token_bucket(u, l->core.rx_token);
    l->next_token = *at;
    *at = l;
    l->bound = true;
}

void link_unbind(struct plane_ucx *u, struct ucx_link *l)
{
    if (!l->bound)
        return;
    struct ucx_link **at = token_bucket(u, l->core.rx_token);
    while (*at != l)
        at = &(*at)->next_token;
    *at = l->next_token;
    l->bound = false;
}

struct head {
    uint64_t token;
    uint32_t seq, total;
    uint16_t type;
    uint8_t kind;
};

static void break_protocol(struct plane_ucx *u, struct ucx_link *l, const char *text)
{
    l->deaf = true;
    link_fail(u, l, ERR_PROTO, text);
}

static void whole_add(struct plane_ucx *u, struct ucx_link *l, const uint8_t *p, size_t n)
{
    if (n == 0 || n > l->whole_bytes - l->whole_have) {
        break_protocol(u, l, "the pieces of a message do not add up");
        return;
    }
    memcpy(l->whole + l->whole_have, p, n);
    l->whole_have += n;
    if (l->whole_have < l->whole_bytes)
        return;
    uint8_t *body = l->whole; /* the handler may drop the link */
    l->whole = NULL;
    core_received(&u->core, &l->core, FRAME_MESSAGE, l->whole_type, body, l->whole_bytes);
    free(body);
}

static void piece_received(struct plane_ucx *u, struct ucx_link *l, const struct head *h,
                           const uint8_t *body, size_t n)
{
    if (h->seq != l->rx_seq++) {
        break_protocol(u, l, "frames came out of order");
    } else if (h->total > core_max_body(&l->core)) {
        break_protocol(u, l, "a message is longer than allowed");
    } else if ((h->kind == FRAME_MORE) != (l->whole != NULL)) {
        break_protocol(u, l, "the pieces of a message are mixed up");
    } else if (h->kind == FRAME_MORE) {
        whole_add(u, l, body, n);
    } else if (h->total == n) {
        if (h->kind == FRAME_MESSAGE || h->kind == FRAME_READY || h->kind == FRAME_BYE)
            core_received(&u->core, &l->core, h->kind, h->type, body, n);
        else
            break_protocol(u, l, "a frame of HELLO came as a message");
    } else if (h->kind != FRAME_MESSAGE || n > h->total || l->core.state != LINK_UP) {
        break_protocol(u, l, "the length of a frame is wrong");
    } else {
        l->whole = malloc(h->total);
        l->whole_bytes = h->total;
        l->whole_have = 0;
        l->whole_type = h->type;
        if (!l->whole)
            break_protocol(u, l, "no memory for a message");
        else
            whole_add(u, l, body, n);
    }
}

ucs_status_t am_received(void *arg, const void *header, size_t header_bytes, void *data, size_t n,
                         const ucp_am_recv_param_t *param)
{
    struct plane_ucx *u = arg;
    if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV || n < HEAD_BYTES)
        return UCS_OK; /* nobody of ours: dropped */
    struct rd r = rd_make(data, n);
    struct head h = {.token = rd_u64(&r)};
    h.seq = rd_u32(&r);
    h.total = rd_u32(&r);
    h.type = rd_u16(&r);
    h.kind = rd_u8(&r);
    struct ucx_link *l = *token_bucket(u, h.token);
    while (l && l->core.rx_token != h.token)
        l = l->next_token;
    if (l && !l->deaf)
        piece_received(u, l, &h, (const uint8_t *)data + HEAD_BYTES, n - HEAD_BYTES);
    return UCS_OK;
}
