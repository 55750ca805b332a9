/* health.h - the bodies of /health/live and /health/ready. */
#ifndef EXA_ROUTER_HEALTH_H
#define EXA_ROUTER_HEALTH_H

#include "router/state.h"

/* READY or DEGRADED, taking requests, and with a replica that this router can reach. */
bool health_is_ready(const struct router *r);
void health_put_live(struct buf *b, const struct router *r);
/* detail: the replicas one by one, for those who have the key. */
void health_put_ready(struct buf *b, const struct router *r, bool detail);

#endif
