/* ring_half.h - one ring as one of its two sides sees it; inside engine/ only. channel.c puts two together. */
#ifndef EXA_ENGINE_RING_HALF_H
#define EXA_ENGINE_RING_HALF_H

#include <fcntl.h>
#include <stdatomic.h>

#include "engine/ring.h"

struct ring_header; /* in shared memory: read once, checked, never trusted twice */
struct ring {
    const char *name; /* static string, for errors */
    struct ring_header *header;
    uint8_t *data;
    uint64_t count; /* producer: bytes put in; consumer: bytes taken out */
};

/* Sealed memfd of that size; returns the descriptor (close-on-exec) or a negative error. */
int ring_memfd(const char *name, size_t n_bytes, struct err *e);
/* Map a sealed memfd of exactly that size; NULL with e set: it is none. */
void *ring_map(int fd, size_t n_bytes, const char *name, struct err *e);

int ring_create(struct ring *r, const char *name, int *fd, struct err *e);
/* ERR_PROTO: no ring, or somebody read (to_read) or wrote (else) as our side before. */
int ring_attach(struct ring *r, const char *name, int fd, bool to_read, struct err *e);
void ring_unmap(struct ring *r);

int ring_write(struct ring *r, uint16_t type, const void *body, size_t n, struct err *e);
/* 1: the next record is in b. 0: none. ERR_PROTO: the other side wrote nonsense. */
int ring_read(struct ring *r, uint16_t *type, struct buf *b, struct err *e);
bool ring_is_empty(const struct ring *r);

static inline uint32_t u32_at_ring(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

#endif
