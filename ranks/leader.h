/* leader.h - a rack leader's merging of heartbeats: deltas only. Pure: no socket, no clock of its own.
 *
 * The live worker with the lowest rank of a rack leads it (derived, never configured). It keeps the last heartbeat of each member
 * of its rack and, at each flush, writes one MSG_HEARTBEATS: whole for those that changed, 20 bytes for those that are only
 * alive, nothing for those not heard since the last flush.
 */
#ifndef EXA_RANKS_LEADER_H
#define EXA_RANKS_LEADER_H

#include "base/buf.h"
#include "base/err.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stdint.h>

struct leader;

struct leader *leader_create(uint32_t self); /* NULL: out of memory */
void leader_destroy(struct leader *l);
/* Take a heartbeat. true: it says something urgent (a replica changed its state): flush at once. ERR_LIMIT is impossible: members are
 * bounded by MSG_MAX_MEMBERS, more are dropped. */
bool leader_take(struct leader *l, const struct msg_heartbeat *h);
void leader_forget(struct leader *l, uint32_t member);
/* Everything is told whole at the next flush (a new listener came, or leadership did). */
void leader_refresh(struct leader *l);
/* Append the message body; returns how many heartbeats it holds (0: nothing was heard; b is untouched). */
uint32_t leader_flush(struct leader *l, struct buf *b);

/* Load apart, do two heartbeats of one member say the same? (state, epoch and incarnation of every replica, draining) */
bool heartbeat_same_state(const struct msg_heartbeat *a, const struct msg_heartbeat *b);

#endif
