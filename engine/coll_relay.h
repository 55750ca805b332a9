/* coll_relay.h - the wire between the shards of one replica on several nodes: bytes go through each shard's own worker.
 *
 * A shard and its worker share a second channel (ring.h) for this: MSG_SHARD records, `to` set by the sender. Workers pass them on over
 * the message plane to the worker of that shard, which puts them into its engine's ring. The ends count bytes: something lost or doubled
 * on the way is ERR_PROTO, not a wrong sum. A worker that sees any shard of the gang end kills its own, so a wait ends by the deadline at the
 * latest and by a signal usually.
 */
#ifndef EXA_ENGINE_COLL_RELAY_H
#define EXA_ENGINE_COLL_RELAY_H

#include "engine/coll_p2p.h"
#include "engine/ring.h"
#include "wire/msg.h"

struct coll_relay;

/* c: the shard's channel to its worker, owned by the relay afterwards. n_shards of the whole replica. */
int coll_relay_create(struct coll_relay **out, struct channel *c, const struct shard_name *name,
                      uint32_t shard, uint32_t n_shards, uint64_t deadline_us, struct err *e);
void coll_relay_destroy(struct coll_relay *r); /* after the groups made on its wire */
struct coll_wire coll_relay_wire(struct coll_relay *r);

#endif
