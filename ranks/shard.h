/* shard.h - one shard's place in a gang: when its engine may start, and whom to tell when it has ended. Pure: words and a clock in,
 * words out; replica.c starts and kills processes.
 *
 *   state     event                                      next      action
 *   idle      tick (other shards)                        idle      HERE to the leader, every SHARD_HERE_US
 *   idle      leader: every other shard was heard        may start START to each, with a new gang number
 *   idle      START                                      may start -
 *   may start the engine was started                     running   -
 *   running   the engine ended                           idle      END: the leader to all, the others to the leader
 *   running   END of this gang, or a peer is lost        running   kill the engine (then as above)
 *
 * The leader is shard 0's worker. Words of another gang number, epoch or sender are dropped.
 */
#ifndef EXA_RANKS_SHARD_H
#define EXA_RANKS_SHARD_H

#include "wire/msg.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    SHARD_HERE_US = 500000,
    SHARD_HEARD_US =
        3 * SHARD_HERE_US, /* a shard not heard for so long may not be there any more */
};

struct shard;

/* Send a word or bytes to a member (the own one too). */
typedef void (*shard_send_fn)(void *ctx, uint32_t member, const struct msg_gang *m);

/* a: n_shards > 1; its peers are copied. */
int shard_create(struct shard **out, const struct msg_assign *a, shard_send_fn send, void *ctx,
                 struct err *e);
void shard_destroy(struct shard *s);

void shard_tick(struct shard *s, uint64_t now_us);
/* May the engine be started now? The leader's answer is true once all others are there. */
bool shard_may_start(const struct shard *s, uint64_t now_us);
/* It is being started: the leader takes a new gang number and tells the others. */
void shard_started(struct shard *s, uint64_t now_us);
/* It has ended; why goes to the others. */
void shard_ended(struct shard *s, const char *why);
/* A word came. Not NULL: kill the engine, for this reason (valid until the next call). */
const char *shard_word(struct shard *s, uint32_t from_member, const struct msg_gang *m,
                       uint64_t now_us);
/* The same when the link to a member broke. */
const char *shard_lost(struct shard *s, uint32_t member);

bool shard_is_leader(const struct shard *s);
uint64_t shard_gang(const struct shard *s); /* number of the gang that runs or is to start */
uint32_t shard_member(const struct shard *s, uint32_t shard); /* whose worker runs that shard */
bool shard_on_one_node(const struct shard *s);
/* Leader: which shards are awaited, for people; "" if none. */
void shard_awaited(const struct shard *s, uint64_t now_us, char *text, size_t cap);

#endif
