/* buf.c - see buf.h. Growth doubles, so appending n bytes costs O(n) in all. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { BUF_FIRST_BYTES = 256 };

void buf_init(struct buf *b, size_t max_bytes)
{
    *b = (struct buf){.max = max_bytes};
}

void buf_fini(struct buf *b)
{
    free(b->data);
    *b = (struct buf){.max = b->max};
}

void buf_reset(struct buf *b)
{
    b->len = 0;
    b->failed = false;
}

void *buf_reserve(struct buf *b, size_t n)
{
    if (b->failed)
        return NULL;
    if (n > b->max || b->len > b->max - n ||
        b->len + n > SIZE_MAX / 2) { /* doubling must not wrap */
        b->failed = true;
        return NULL;
    }
    if (!b->data || b->len + n > b->cap) { /* also for nothing: NULL plus 0 is no pointer */
        size_t cap = b->cap ? b->cap : BUF_FIRST_BYTES;
        while (cap < b->len + n)
            cap *= 2;
        uint8_t *data = realloc(b->data, cap);
        if (!data) {
            b->failed = true;
            return NULL;
        }
        b->data = data;
        b->cap = cap;
    }
    return b->data + b->len;
}

void buf_put(struct buf *b, const void *data, size_t n)
{
    void *dst = buf_reserve(b, n);
    if (!dst)
        return;
    if (n)
        memcpy(dst, data, n);
    b->len += n;
}

void buf_puts(struct buf *b, const char *s)
{
    buf_put(b, s, strlen(s));
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *dst = n < 0 ? NULL : buf_reserve(b, (size_t)n + 1);
    if (dst) {
        vsnprintf(dst, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    } else {
        b->failed = true;
    }
    va_end(again);
}

void buf_consume(struct buf *b, size_t n)
{
    if (n >= b->len) {
        b->len = 0;
        return;
    }
    memmove(b->data, b->data + n, b->len - n);
    b->len -= n;
}

const char *buf_cstr(struct buf *b)
{
    char *end = buf_reserve(b, 1);
    if (!end)
        return "";
    *end = 0;
    return (const char *)b->data;
}

uint8_t *buf_take(struct buf *b, size_t *len)
{
    uint8_t *data = b->data;
    *len = b->len;
    *b = (struct buf){.max = b->max};
    return data;
}

static void put_le(struct buf *b, uint64_t v, int n)
{
    uint8_t raw[8];
    for (int i = 0; i < n; i++)
        raw[i] = (uint8_t)(v >> (8 * i));
    buf_put(b, raw, (size_t)n);
}

void buf_u8(struct buf *b, uint8_t v)
{
    put_le(b, v, 1);
}
void buf_u16(struct buf *b, uint16_t v)
{
    put_le(b, v, 2);
}
void buf_u32(struct buf *b, uint32_t v)
{
    put_le(b, v, 4);
}
void buf_u64(struct buf *b, uint64_t v)
{
    put_le(b, v, 8);
}
void buf_f32(struct buf *b, float v)
{
    uint32_t u;
    memcpy(&u, &v, 4);
    put_le(b, u, 4);
}
void buf_f64(struct buf *b, double v)
{
    uint64_t u;
    memcpy(&u, &v, 8);
    put_le(b, u, 8);
}
void buf_blob(struct buf *b, const void *data, size_t n)
{
    if (n > UINT32_MAX) {
        b->failed = true;
        return;
    }
    buf_u32(b, (uint32_t)n);
    buf_put(b, data, n);
}
void buf_str(struct buf *b, const char *s)
{
    buf_blob(b, s, strlen(s));
}

const void *rd_bytes(struct rd *r, size_t n)
{
    if (r->failed || rd_left(r) < n) {
        r->failed = true;
        return NULL;
    }
    const void *p = r->p;
    r->p += n;
    return p;
}

static uint64_t get_le(struct rd *r, int n)
{
    const uint8_t *p = rd_bytes(r, (size_t)n);
    uint64_t v = 0;
    for (int i = 0; p && i < n; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

uint8_t rd_u8(struct rd *r)
{
    return (uint8_t)get_le(r, 1);
}
uint16_t rd_u16(struct rd *r)
{
    return (uint16_t)get_le(r, 2);
}
uint32_t rd_u32(struct rd *r)
{
    return (uint32_t)get_le(r, 4);
}
uint64_t rd_u64(struct rd *r)
{
    return get_le(r, 8);
}
float rd_f32(struct rd *r)
{
    uint32_t u = rd_u32(r);
    float v;
    memcpy(&v, &u, 4);
    return v;
}
double rd_f64(struct rd *r)
{
    uint64_t u = rd_u64(r);
    double v;
    memcpy(&v, &u, 8);
    return v;
}

const void *rd_blob(struct rd *r, size_t max, size_t *n)
{
    *n = 0;
    uint32_t len = rd_u32(r);
    if (len > max) {
        r->failed = true;
        return NULL;
    }
    const void *p = rd_bytes(r, len);
    if (p)
        *n = len;
    return p;
}

void rd_str(struct rd *r, char *dst, size_t cap)
{
    size_t n;
    dst[0] = 0;
    const void *p = rd_blob(r, cap - 1, &n);
    if (!p)
        return;
    if (memchr(p, 0, n)) {
        r->failed = true;
        return;
    }
    memcpy(dst, p, n);
    dst[n] = 0;
}
