/* members.h - the roster of the world on each rank: start barrier, who is connected, who leads a rack. Loop thread only.
 *
 * Who connects to whom (the higher member id to the lower one): everybody to the scheduler; routers to the standbys; workers to every
 * router, to their rack's leader, and to those with shards of the same replica. A link that is lost is tried again every RETRY_US, those to lower workers of the
 * rack too (they would lead); only a member that was up and is lost is an event.
 */
#ifndef EXA_RANKS_MEMBERS_H
#define EXA_RANKS_MEMBERS_H

#include "ranks/daemon.h"

int members_init(struct daemon *d, struct err *e);
void members_up(struct daemon *d, const struct plane_peer *peer);
/* true: it was up before (not only a failed attempt to connect). */
bool members_lost(struct daemon *d, uint32_t member, const struct err *why);
/* REGISTER, ROSTER, BARRIER, RELEASE, ABORT of the start. */
void members_message(struct daemon *d, uint32_t member, uint16_t type, const uint8_t *body,
                     size_t n);
void members_task(struct daemon *d, struct task *t); /* CONNECT, REACHED from the mover; borrowed */
void members_tick(struct daemon *d, uint64_t now_us);
uint32_t members_rack_leader(struct daemon *d, uint32_t rack);
/* For rank 0 and routers, which are linked with all of them: most are in reach, so it is not this process that is cut off. */
bool members_most_workers(const struct daemon *d);
/* The start failed: the mover ends the process. */
void members_abort(struct daemon *d, int code, const char *why);

#endif
