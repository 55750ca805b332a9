/* msg_ext.c - see msg.h: what a step entry carries beside its tokens, log-probabilities and embeddings. */
#include "wire/msg.h"

#include "wire/msg_limits.h"
#include "wire/msg_read.h"

#include <math.h>

enum { LOGPROB_MIN_BYTES = 4 + 4 + 1 };
_Static_assert(EXT_ERROR == 1 && EXT_EMBEDDING == 4, "frozen by PROTOCOL.md");
_Static_assert(8 + MSG_LOGPROBS_PER_EXT * MSG_LOGPROB_MAX_BYTES <= MAX_EXT_BYTES, "they fit");
_Static_assert(4 + 4 * MSG_MAX_EMBEDDING <= MAX_EXT_BYTES, "it fits");

void msg_logprobs_begin_put(struct buf *b, uint32_t first, uint32_t n)
{
    buf_u32(b, first);
    buf_u32(b, n);
}

void msg_logprob_put(struct buf *b, float logprob, uint32_t rank, uint32_t n_top,
                     const struct token_logprob *top)
{
    if (n_top > MSG_MAX_TOP_LOGPROBS) {
        b->failed = true;
        return;
    }
    buf_f32(b, logprob);
    buf_u32(b, rank);
    buf_u8(b, (uint8_t)n_top);
    for (uint32_t i = 0; i < n_top; i++) {
        buf_u32(b, top[i].id);
        buf_f32(b, top[i].logprob);
    }
}

static float logprob_read(struct msg_rd *r, const char *field)
{
    float v = msg_rd_finite(r, field);
    if (v > 0)
        msg_rd_fail(r, field);
    return v;
}

static void item_read(struct msg_rd *r, struct msg_logprob *m)
{
    m->logprob = logprob_read(r, "logprob");
    m->rank = msg_rd_u32(r, "rank");
    m->n_top = msg_rd_enum(r, 0, MSG_MAX_TOP_LOGPROBS, "n_top");
    for (uint32_t i = 0; i < m->n_top; i++) {
        m->top[i].id = msg_rd_u32(r, "top.id");
        m->top[i].logprob = logprob_read(r, "top.logprob");
    }
}

int msg_logprobs_begin(struct rd *rd, const void *p, size_t n, uint32_t *first, uint32_t *count,
                       struct err *e)
{
    struct msg_rd r = msg_rd_make("LOGPROBS", rd_make(p, n));
    struct msg_logprob m;
    *first = msg_rd_u32(&r, "first");
    *count = msg_rd_u32(&r, "n");
    if (*count > rd_left(&r.r) / LOGPROB_MIN_BYTES)
        msg_rd_fail(&r, "n");
    *rd = r.r;
    for (uint32_t i = 0; i < *count && !r.r.failed; i++)
        item_read(&r, &m);
    int rc = msg_rd_end(&r, e);
    if (rc)
        *count = 0;
    return rc;
}

int msg_logprobs_next(struct rd *rd, struct msg_logprob *m, struct err *e)
{
    struct msg_rd r = msg_rd_make("LOGPROBS", *rd);
    item_read(&r, m);
    *rd = r.r;
    return msg_rd_part(&r, e);
}

void msg_embedding_put(struct buf *b, const float *values, uint32_t n)
{
    if (n > MSG_MAX_EMBEDDING) {
        b->failed = true;
        return;
    }
    buf_u32(b, n);
    for (uint32_t i = 0; i < n; i++)
        buf_f32(b, values[i]);
}

int msg_embedding_get(struct msg_embedding *m, const void *p, size_t n, struct err *e)
{
    struct msg_rd r = msg_rd_make("EMBEDDING", rd_make(p, n));
    m->values = msg_rd_array(&r, &m->n, MSG_MAX_EMBEDDING, 4, "values");
    for (uint32_t i = 0; i < m->n; i++)
        if (!isfinite(f32_at(m->values, i)))
            msg_rd_fail(&r, "values");
    return msg_rd_end(&r, e);
}
