/* msg_read.c - see msg_read.h. */
#include "wire/msg_read.h"

#include "wire/msg.h"

#include <math.h>

void msg_rd_fail(struct msg_rd *m, const char *field)
{
    m->r.failed = true;
    if (!m->bad)
        m->bad = field;
}

static void note(struct msg_rd *m, const char *field)
{
    if (m->r.failed && !m->bad)
        m->bad = field;
}

static uint64_t noted(struct msg_rd *m, uint64_t v, const char *field)
{
    note(m, field);
    return v;
}

uint8_t msg_rd_u8(struct msg_rd *m, const char *field)
{
    return (uint8_t)noted(m, rd_u8(&m->r), field);
}

uint16_t msg_rd_u16(struct msg_rd *m, const char *field)
{
    return (uint16_t)noted(m, rd_u16(&m->r), field);
}

uint32_t msg_rd_u32(struct msg_rd *m, const char *field)
{
    return (uint32_t)noted(m, rd_u32(&m->r), field);
}

uint64_t msg_rd_u64(struct msg_rd *m, const char *field)
{
    return noted(m, rd_u64(&m->r), field);
}

float msg_rd_finite(struct msg_rd *m, const char *field)
{
    float v = rd_f32(&m->r);
    note(m, field);
    if (!isfinite(v)) {
        msg_rd_fail(m, field);
        return 0;
    }
    return v;
}

float msg_rd_ratio(struct msg_rd *m, const char *field)
{
    float v = msg_rd_finite(m, field);
    if (v < 0) {
        msg_rd_fail(m, field);
        return 0;
    }
    return v;
}

bool msg_rd_flag(struct msg_rd *m, const char *field)
{
    return msg_rd_enum(m, 0, 1, field) != 0;
}

uint8_t msg_rd_enum(struct msg_rd *m, unsigned first, unsigned last, const char *field)
{
    uint8_t v = msg_rd_u8(m, field);
    if (v < first || v > last) {
        msg_rd_fail(m, field);
        return 0;
    }
    return v;
}

void msg_rd_str(struct msg_rd *m, char *dst, size_t cap, const char *field)
{
    rd_str(&m->r, dst, cap);
    note(m, field);
}

void msg_rd_digest(struct msg_rd *m, uint8_t dst[SHA256_BYTES], const char *field)
{
    const void *p = rd_bytes(&m->r, SHA256_BYTES);
    note(m, field);
    if (p)
        memcpy(dst, p, SHA256_BYTES);
    else
        memset(dst, 0, SHA256_BYTES);
}

void msg_rd_attempt(struct msg_rd *m, struct attempt *a)
{
    a->router = msg_rd_u32(m, "attempt.router");
    a->router_inc = msg_rd_u32(m, "attempt.router_inc");
    a->slot = msg_rd_u32(m, "attempt.slot");
    a->generation = msg_rd_u32(m, "attempt.generation");
}

const uint8_t *msg_rd_array(struct msg_rd *m, uint32_t *count, size_t max, size_t element_bytes,
                            const char *field)
{
    uint32_t n = msg_rd_u32(m, field);
    *count = 0;
    if (n > max || n > rd_left(&m->r) / element_bytes) {
        msg_rd_fail(m, field);
        return NULL;
    }
    const uint8_t *p = rd_bytes(&m->r, (size_t)n * element_bytes);
    if (p)
        *count = n;
    return p;
}

const uint8_t *msg_rd_bits(struct msg_rd *m, uint32_t *count, size_t max, const char *field)
{
    uint32_t n = msg_rd_u32(m, field);
    *count = 0;
    const uint8_t *p = n > max ? NULL : rd_bytes(&m->r, ((size_t)n + 7) / 8);
    if (!p || (n % 8 && p[n / 8] >> (n % 8))) {
        msg_rd_fail(m, field);
        return NULL;
    }
    *count = n;
    return p;
}

int msg_rd_part(const struct msg_rd *m, struct err *e)
{
    if (m->r.failed)
        return err_set(e, ERR_PROTO, "message %s: field %s is missing or out of range", m->message,
                       m->bad ? m->bad : "?");
    return 0;
}

int msg_rd_end(const struct msg_rd *m, struct err *e)
{
    int rc = msg_rd_part(m, e);
    if (rc)
        return rc;
    if (rd_left(&m->r))
        return err_set(e, ERR_PROTO, "message %s: %zu bytes after the last field", m->message,
                       rd_left(&m->r));
    return 0;
}

void msg_put_str(struct buf *b, const char *s, size_t cap)
{
    size_t n = strnlen(s, cap);
    if (n == cap) /* no NUL within its array */
        b->failed = true;
    buf_blob(b, s, n);
}

void msg_put_attempt(struct buf *b, const struct attempt *a)
{
    buf_u32(b, a->router);
    buf_u32(b, a->router_inc);
    buf_u32(b, a->slot);
    buf_u32(b, a->generation);
}

void msg_put_array(struct buf *b, const uint8_t *data, uint32_t count, size_t max,
                   size_t element_bytes)
{
    if (count > max)
        b->failed = true;
    buf_u32(b, count);
    buf_put(b, data, (size_t)count * element_bytes);
}

void msg_put_bits(struct buf *b, const uint8_t *bits, uint32_t count, size_t max)
{
    if (count > max)
        b->failed = true;
    buf_u32(b, count);
    buf_put(b, bits, ((size_t)count + 7) / 8);
}
