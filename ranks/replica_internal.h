/* replica_internal.h - a replica's own struct, shared by replica.c (its process, its restarts, its attempts) and replica_gang.c (its place
 * among the shards of a gang).
 */
#ifndef EXA_RANKS_REPLICA_INTERNAL_H
#define EXA_RANKS_REPLICA_INTERNAL_H

#include "ranks/replica.h"
#include "ranks/shard.h"

enum {
    RECORD_MAX_BYTES = RING_MAX_RECORD,
};

struct live_attempt {
    struct attempt attempt;
    uint32_t position; /* next one expected */
};

struct replica {
    struct replica_host host;
    struct msg_assign assign;
    char image_path[1024];
    uint32_t n_threads;
    uint8_t state;
    uint32_t incarnation;
    struct channel *channel;
    uv_process_t process;
    bool process_open; /* handle is open: not reaped or not closed yet */
    bool alive;        /* the process runs */
    uv_poll_t poll;
    bool poll_open;
    bool stopping, destroying, held, hung, said_awaited;
    uint64_t ticked_us,
        resumed_us; /* resumed: when this process went on after a pause of its own */
    uint64_t started_us, restart_at_us;
    uint64_t moved_us, n_steps; /* when it last did something for its attempts: a record, a step */
    uint64_t deaths_us[REPLICA_MAX_DEATHS];
    char last_words[MSG_TEXT_BYTES]; /* of the engine, or why it was killed */
    char trouble[MSG_TEXT_BYTES];
    struct msg_engine_ready ready;
    struct shard *shard;  /* owned; NULL: a gang of one */
    struct channel *side; /* bytes between shards on several nodes; NULL: none */
    uv_poll_t side_poll;
    bool side_open;
    struct buf waiting; /* records for the engine's ring when that has room again … */
    size_t waiting_at;  /* … from here on */
    int segment;        /* leader of a gang on one node: its shared memory; -1: none */
    uint32_t n_attempts;
    struct live_attempt attempts[REPLICA_MAX_ATTEMPTS];
    struct buf record;
};

void replica_maybe_free(
    struct replica *r); /* once it is being destroyed and its last handle is closed */
int replica_poll_open(struct replica *r, struct channel *c, uv_poll_t *poll, uv_poll_cb cb,
                      struct err *e);

/* --- replica_gang.c ---------------------------------------------------------------------------------------- */
/* What the shards talk through: fills fds[0 … *n) and says whether it is shared memory. */
int replica_shards_connect(struct replica *r, int *fds, int *n, bool *shared, struct err *e);
void replica_side_close(struct replica *r);
void replica_segment_close(struct replica *r);
void replica_waiting_drop(struct replica *r);
void replica_gang_tick(struct replica *r, uint64_t now_us);
/* To the others, of this shard. */
void replica_tell_word(void *ctx, uint32_t member, const struct msg_gang *m);

#endif
