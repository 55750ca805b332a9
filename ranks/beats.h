/* beats.h - the heartbeats of a worker: its own, and the merged ones of its rack while it leads. Loop thread only.
 *
 * A member sends to its rack's leader, the leader to scheduler and routers. While its leader cannot be reached yet (the last one died,
 * the link to the next is being made) a member reports to scheduler and routers itself: nobody falls silent because another died.
 */
#ifndef EXA_RANKS_BEATS_H
#define EXA_RANKS_BEATS_H

#include "ranks/daemon.h"

struct beats;
/* Add the node's replicas to its own heartbeat. */
typedef void beats_fill_fn(void *ctx, struct msg_heartbeat *h);

int beats_create(struct beats **out, struct daemon *d, beats_fill_fn *fill, void *ctx,
                 struct err *e);
void beats_destroy(struct beats *b);
void beats_hurry(struct beats *b); /* a replica changed its state: not a tick later */
/* MSG_HEARTBEAT of a member of the rack. */
void beats_take(struct beats *b, uint32_t member, const uint8_t *body, size_t n);
void beats_up(struct beats *b, uint32_t member);
void beats_lost(struct beats *b, uint32_t member);
void beats_tick(struct beats *b, uint64_t now_us);
void beats_flush(struct beats *b); /* send at once what is in a hurry */

#endif
