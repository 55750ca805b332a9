/* frames.h - step frames of a node's replicas on their way to the routers: gathered until the flush, one message a router. Loop thread only.
 *
 * An entry goes only to the router that named its attempt; a router that is gone gets none.
 */
#ifndef EXA_RANKS_FRAMES_H
#define EXA_RANKS_FRAMES_H

#include "ranks/daemon.h"

struct frames;
struct frame_source { /* a replica; an engine does not choose whom it speaks for */
    uint32_t deployment, replica;
    uint64_t epoch;
};

int frames_create(struct frames **out, struct daemon *d, struct err *e);
/* One section as the engine wrote it, checked by the replica before. */
void frames_steps(struct frames *f, const struct frame_source *from, const uint8_t *body, size_t n);
/* The end of an attempt without the engine's word. code, text: for a typed error. */
void frames_refuse(struct frames *f, const struct frame_source *from, const struct attempt *a,
                   uint32_t position, uint8_t finish, int code, const char *text);
void frames_flush(struct frames *f);

#endif
