/* segbuf.c - see segbuf.h. The trailer's layout (little-endian): magic u32 | segment u32 | state
 * u32 | code i32 | text, NUL-padded. */
#include "mpi/segbuf.h"

#include <stdlib.h>
#include <string.h>

enum { TRAILER_MAGIC = 0x52545845 /* "EXTR" */ };
_Static_assert(TRAILER_BYTES <= (int)TENSOR_ALIGN, "the trailer fits behind a full segment");
_Static_assert(TRAILER_TEXT_BYTES + 16 == TRAILER_BYTES, "trailer layout");

struct segbuf *segbuf_create(void)
{
    struct segbuf *b = calloc(1, sizeof *b);
    if (b)
        b->data = aligned_alloc(TENSOR_ALIGN, SEGMENT_BYTES + TENSOR_ALIGN);
    if (!b || !b->data) {
        free(b);
        return NULL;
    }
    leg_init(&b->lead);
    leg_init(&b->rack);
    return b;
}

void segbuf_free(void *p)
{
    struct segbuf *b = p;
    if (!b)
        return;
    free(b->data);
    free(b);
}

static void put32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

static uint32_t get32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

void trailer_put(struct segbuf *b, const struct trailer *t)
{
    uint8_t *p = b->data + b->at.n_bytes;
    put32(p, TRAILER_MAGIC);
    put32(p + 4, t->segment);
    put32(p + 8, (uint32_t)t->state);
    put32(p + 12, (uint32_t)t->code);
    memset(p + 16, 0, TRAILER_TEXT_BYTES);
    memcpy(p + 16, t->text, strnlen(t->text, TRAILER_TEXT_BYTES - 1));
}

int trailer_get(const struct segbuf *b, struct trailer *t, struct err *e)
{
    const uint8_t *p = b->data + b->at.n_bytes;
    uint32_t state = get32(p + 8);
    if (get32(p) != TRAILER_MAGIC || get32(p + 4) != b->segment || state > READ_GAVE_UP)
        return err_set(e, ERR_PROTO, "segment %u came with the trailer of something else",
                       b->segment);
    t->segment = b->segment;
    t->state = (enum read_state)state;
    t->code = (int)get32(p + 12);
    memcpy(t->text, p + 16, TRAILER_TEXT_BYTES);
    t->text[TRAILER_TEXT_BYTES - 1] = 0;
    return 0;
}
