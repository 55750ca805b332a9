/* msg_read.h - inside wire/ only: field readers that remember the first field that failed, so that an error names it.
 *
 * Reads past the end, strings over their cap, counts over their bound and values out of range all fail the reader; later
 * reads return zeros. One check at the end (msg_rd_end, msg_rd_part) turns that into ERR_PROTO.
 */
#ifndef EXA_WIRE_MSG_READ_H
#define EXA_WIRE_MSG_READ_H

#include "base/buf.h"
#include "base/digest.h"
#include "base/err.h"

struct attempt;

struct msg_rd {
    struct rd r;
    const char *message;
    const char *bad; /* first field that failed; NULL: none */
};

static inline struct msg_rd msg_rd_make(const char *message, struct rd r)
{
    return (struct msg_rd){r, message, r.failed ? "start" : NULL};
}

void msg_rd_fail(struct msg_rd *m, const char *field);
uint8_t msg_rd_u8(struct msg_rd *m, const char *field);
uint16_t msg_rd_u16(struct msg_rd *m, const char *field);
uint32_t msg_rd_u32(struct msg_rd *m, const char *field);
uint64_t msg_rd_u64(struct msg_rd *m, const char *field);
/* Finite and not negative. */
float msg_rd_ratio(struct msg_rd *m, const char *field);
/* Finite. */
float msg_rd_finite(struct msg_rd *m, const char *field);
/* One byte, 0 or 1. */
bool msg_rd_flag(struct msg_rd *m, const char *field);
/* One byte, first…last: an enum. */
uint8_t msg_rd_enum(struct msg_rd *m, unsigned first, unsigned last, const char *field);
void msg_rd_str(struct msg_rd *m, char *dst, size_t cap, const char *field);
void msg_rd_digest(struct msg_rd *m, uint8_t dst[SHA256_BYTES], const char *field);
void msg_rd_attempt(struct msg_rd *m, struct attempt *a);
/* u32 count of at most max elements, then count * element_bytes in place. */
const uint8_t *msg_rd_array(struct msg_rd *m, uint32_t *count, size_t max, size_t element_bytes,
                            const char *field);
/* u32 count of at most max bits, then ceil(count / 8) bytes in place; bits past count must be 0. */
const uint8_t *msg_rd_bits(struct msg_rd *m, uint32_t *count, size_t max, const char *field);
/* 0, or ERR_PROTO when a field failed (part) or bytes are left over too (end). */
int msg_rd_part(const struct msg_rd *m, struct err *e);
int msg_rd_end(const struct msg_rd *m, struct err *e);

/* The matching writers that buf.h has not. A value over its bound fails the buffer. */
void msg_put_str(struct buf *b, const char *s, size_t cap);
void msg_put_attempt(struct buf *b, const struct attempt *a);
void msg_put_array(struct buf *b, const uint8_t *data, uint32_t count, size_t max,
                   size_t element_bytes);
void msg_put_bits(struct buf *b, const uint8_t *bits, uint32_t count, size_t max);

#endif
