/* coll_p2p.h - collectives made of nothing but ordered bytes from one shard to another: what a relay, a socket or a test gives.
 *
 * Every rank sends its piece to all others and adds up what comes in the order of ranks: one way's time a piece, the same bits
 * everywhere. Pieces are COLL_PIECE_BYTES, so a wire that holds one piece from each other rank never blocks for ever.
 */
#ifndef EXA_ENGINE_COLL_P2P_H
#define EXA_ENGINE_COLL_P2P_H

#include "engine/coll.h"

enum { COLL_PIECE_BYTES = 64 << 10 };

/* Bytes of one pair arrive in order. Both wait at most the wire's deadline, then ERR_TIMEOUT; ERR_PEER: that shard is gone. After an error
 * the wire stays broken. Shards are numbered over the whole replica. */
struct coll_wire {
    void *ctx;
    int (*send)(void *ctx, uint32_t to, const void *p, size_t n_bytes, struct err *e);
    int (*recv)(void *ctx, uint32_t from, void *p, size_t n_bytes, struct err *e);
    void (*abort)(void *ctx);
};

/* The group of shards first … first + size - 1, of which we are `first + rank`. The wire must outlive it. */
int coll_p2p_create(struct coll **out, const struct coll_wire *wire, uint32_t first, uint32_t size,
                    uint32_t rank, struct err *e);

#endif
