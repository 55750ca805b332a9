/* buf.h - a growable byte buffer with a hard cap, and the little-endian put/get all formats are written with.
 *
 * Writers append to a `struct buf`; a failed append (cap or memory) marks the buffer `failed` and every later append is
 * a no-op, so a writer checks once at the end with buf_ok(). Readers walk a `struct rd`; a read past the end marks it
 * `failed`, returns zeros, and is checked once at the end with rd_ok(). No reader allocates.
 */
#ifndef EXA_BASE_BUF_H
#define EXA_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct buf {
    uint8_t *data; /* owned; NULL while empty */
    size_t len;
    size_t cap; /* allocated */
    size_t max; /* hard cap in bytes */
    bool failed;
};

void buf_init(struct buf *b, size_t max_bytes);
void buf_fini(struct buf *b);
void buf_reset(struct buf *b); /* len = 0, memory kept */
static inline bool buf_ok(const struct buf *b)
{
    return !b->failed;
}
/* Make room for n more bytes and return where they go, or NULL (failed is set). Does not change len. */
void *buf_reserve(struct buf *b, size_t n);
void buf_put(struct buf *b, const void *data, size_t n);
void buf_puts(struct buf *b, const char *s);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_consume(struct buf *b, size_t n); /* drop the first n bytes */
/* NUL-terminated view (the NUL is not counted in len); "" when it failed. */
const char *buf_cstr(struct buf *b);
/* Hand over the memory to the caller (free() it); the buffer is empty after. */
uint8_t *buf_take(struct buf *b, size_t *len);

void buf_u8(struct buf *b, uint8_t v);
void buf_u16(struct buf *b, uint16_t v);
void buf_u32(struct buf *b, uint32_t v);
void buf_u64(struct buf *b, uint64_t v);
void buf_f32(struct buf *b, float v);
void buf_f64(struct buf *b, double v);
/* u32 length, then the bytes */
void buf_blob(struct buf *b, const void *data, size_t n);
void buf_str(struct buf *b, const char *s);

struct rd {
    const uint8_t *p, *end;
    bool failed;
};
static inline struct rd rd_make(const void *data, size_t n)
{
    return (struct rd){data, (const uint8_t *)data + n, false};
}
static inline size_t rd_left(const struct rd *r)
{
    return (size_t)(r->end - r->p);
}
/* true when nothing failed and every byte was read */
static inline bool rd_done(const struct rd *r)
{
    return !r->failed && r->p == r->end;
}
static inline bool rd_ok(const struct rd *r)
{
    return !r->failed;
}
/* The next n bytes in place, or NULL (failed is set). */
const void *rd_bytes(struct rd *r, size_t n);
uint8_t rd_u8(struct rd *r);
uint16_t rd_u16(struct rd *r);
uint32_t rd_u32(struct rd *r);
uint64_t rd_u64(struct rd *r);
float rd_f32(struct rd *r);
double rd_f64(struct rd *r);
/* u32 length, then that many bytes in place; length over max fails. */
const void *rd_blob(struct rd *r, size_t max, size_t *n);
/* As rd_blob, copied with a NUL into dst[cap] (fails when it does not fit or holds a NUL). */
void rd_str(struct rd *r, char *dst, size_t cap);

#endif
