/* plane_hello.c - see plane_hello.h. */
#include "wire/plane_hello.h"

#include <string.h>

enum { HELLO_MAGIC = 0x50415845 /* "EXAP" */ };

void hello_sum(uint8_t out[SHA256_BYTES], enum hello_label label, const struct hello_pair *pair,
               const void *extra, size_t n)
{
    static const char *const LABELS[] = {"exaserve proof of server", "exaserve proof of client",
                                         "exaserve token to server", "exaserve token to client",
                                         "exaserve way of server",   "exaserve way of client"};
    struct buf b;
    buf_init(&b, 1024 + n);
    buf_str(&b, LABELS[label]);
    buf_u32(&b, pair->protocol);
    const struct hello_side *const sides[] = {pair->client, pair->server};
    for (int i = 0; i < 2; i++) {
        buf_u32(&b, sides[i]->member);
        buf_u64(&b, sides[i]->incarnation);
        buf_str(&b, sides[i]->build); /* with its length, so no two lists of fields sum alike */
        buf_put(&b, sides[i]->nonce, HELLO_NONCE_BYTES);
    }
    buf_blob(&b, extra, n);
    CHECK(buf_ok(&b)); /* fits by the bounds of its fields; memory for it is a must */
    hmac_sha256(pair->key->secret, pair->key->secret_bytes, b.data, b.len, out);
    buf_fini(&b);
}

uint64_t hello_token(enum hello_label label, const struct hello_pair *pair)
{
    uint8_t sum[SHA256_BYTES];
    hello_sum(sum, label, pair, NULL, 0);
    struct rd r = rd_make(sum, sizeof sum);
    uint64_t token = rd_u64(&r);
    return token ? token : 1; /* 0 means none */
}

static void side_put(struct buf *b, const struct hello_side *s)
{
    buf_u32(b, s->member);
    buf_u64(b, s->incarnation);
    buf_str(b, s->build);
    buf_put(b, s->nonce, HELLO_NONCE_BYTES);
}

static void side_get(struct rd *r, struct hello_side *s)
{
    s->member = rd_u32(r);
    s->incarnation = rd_u64(r);
    rd_str(r, s->build, sizeof s->build);
    const void *nonce = rd_bytes(r, HELLO_NONCE_BYTES);
    if (nonce)
        memcpy(s->nonce, nonce, HELLO_NONCE_BYTES);
    if (s->incarnation == 0)
        r->failed = true;
}

static int start_get(struct rd *r, struct hello *h, uint32_t our_protocol, const char *what,
                     struct err *e)
{
    memset(h, 0, sizeof *h);
    uint32_t magic = rd_u32(r), protocol = rd_u32(r);
    if (!rd_ok(r) || magic != HELLO_MAGIC)
        return err_set(e, ERR_PROTO, "%s expected, something else came", what);
    h->protocol = protocol;
    if (protocol != our_protocol)
        return err_set(e, ERR_PROTO, "the other side speaks protocol %u, this side protocol %u",
                       protocol, our_protocol);
    return 0;
}

void hello_put(struct buf *b, const struct hello *h)
{
    buf_u32(b, HELLO_MAGIC);
    buf_u32(b, h->protocol);
    buf_u32(b, h->to);
    side_put(b, &h->side);
}

int hello_get(struct hello *h, uint32_t our_protocol, const void *p, size_t n, struct err *e)
{
    struct rd r = rd_make(p, n);
    int rc = start_get(&r, h, our_protocol, "HELLO", e);
    if (rc)
        return rc;
    h->to = rd_u32(&r);
    side_get(&r, &h->side);
    if (!rd_done(&r))
        return err_set(e, ERR_PROTO, "malformed HELLO of %zu bytes", n);
    return 0;
}

void challenge_put(struct buf *b, const struct hello *h, const uint8_t proof[SHA256_BYTES])
{
    buf_u32(b, HELLO_MAGIC);
    buf_u32(b, h->protocol);
    side_put(b, &h->side);
    buf_put(b, proof, SHA256_BYTES);
}

int challenge_get(struct hello *h, uint8_t proof[SHA256_BYTES], uint32_t our_protocol,
                  const void *p, size_t n, struct err *e)
{
    struct rd r = rd_make(p, n);
    int rc = start_get(&r, h, our_protocol, "CHALLENGE", e);
    if (rc)
        return rc;
    side_get(&r, &h->side);
    const void *sum = rd_bytes(&r, SHA256_BYTES);
    if (!rd_done(&r))
        return err_set(e, ERR_PROTO, "malformed CHALLENGE of %zu bytes", n);
    memcpy(proof, sum, SHA256_BYTES);
    return 0;
}

void refuse_put(struct buf *b, uint32_t code, const char *text)
{
    buf_u32(b, code);
    buf_blob(b, text, strnlen(text, HELLO_TEXT_BYTES - 1));
}

int refuse_get(uint32_t *code, char text[HELLO_TEXT_BYTES], const void *p, size_t n, struct err *e)
{
    struct rd r = rd_make(p, n);
    *code = rd_u32(&r);
    rd_str(&r, text, HELLO_TEXT_BYTES);
    if (!rd_done(&r))
        return err_set(e, ERR_PROTO, "malformed REFUSE of %zu bytes", n);
    return 0;
}
