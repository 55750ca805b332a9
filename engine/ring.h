/* ring.h - a single-producer single-consumer record ring in a memfd, and the channel of two rings between a worker and its engine.
 *
 * A record is u16 type (enum msg_type) + body (wire/msg.h), at most RING_MAX_RECORD. The memory is shared with a process that may
 * have gone mad: the reader checks every length and index against the ring and copies before it parses; a nonsense
 * ring is ERR_PROTO, never a crash. Full: ring_write says ERR_AGAIN. Nothing is left after SIGKILL: memfds have no name.
 */
#ifndef EXA_ENGINE_RING_H
#define EXA_ENGINE_RING_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    RING_BYTES = 8 << 20,
    RING_MAX_RECORD = 6 << 20, /* 1 Mi tokens of a submit and its header */
    CHANNEL_FDS = 5,
};

/* Descriptor numbers in the engine process, in the order the worker passes them (after 0, 1, 2). */
enum channel_fd {
    CHANNEL_FD_COMMANDS = 3,    /* memfd, worker → engine */
    CHANNEL_FD_EVENTS = 4,      /* memfd, engine → worker */
    CHANNEL_FD_WAKE_ENGINE = 5, /* eventfd */
    CHANNEL_FD_WAKE_WORKER = 6, /* eventfd */
    CHANNEL_FD_STATUS = 7,      /* memfd, one page: struct channel_status */
    CHANNEL_FD_SHARDS = 8,      /* a second channel, or the segment of coll_shm.h: gangs only */
};

/* Written by the engine after each step, read by the worker for load reports and the watchdog. All relaxed atomics. */
struct channel_status {
    _Atomic uint64_t n_steps, n_tokens, last_step_us,
        step_started_us; /* monotonic clock; step_started_us 0: idle */
    _Atomic uint32_t n_active, n_queued, kv_free_tokens, step_us; /* n_active: without the queued */
    _Atomic uint32_t step_p50_us, step_p99_us;
    _Atomic uint64_t n_prefill, n_reused, n_preempted, n_drafted, n_draft_held;
};

struct channel;
/* Worker's side: makes memfds and eventfds. fds[CHANNEL_FDS]: to pass as 3 … 7 to the child; they stay owned by the channel. */
int channel_create(struct channel **out, int fds[CHANNEL_FDS], struct err *e);
/* Engine's side: maps what lies on first_fd … first_fd + 4, in that order; CHANNEL_FD_COMMANDS is where a worker puts its own,
 * CHANNEL_FD_SHARDS the one for bytes between shards (engine/coll_relay.h). */
int channel_attach(struct channel **out, int first_fd, struct err *e);
void channel_destroy(struct channel *c);

/* Send to the other side and wake it. ERR_AGAIN: full. */
int channel_send(struct channel *c, uint16_t type, const void *body, size_t n, struct err *e);
/* Take the next record into b (replaced). 1: got one, 0: none, negative: ERR_PROTO. */
int channel_recv(struct channel *c, uint16_t *type, struct buf *b, struct err *e);
int channel_fd(const struct channel
                   *c); /* readable when the other side sent; channel_recv returning 0 resets it */
int channel_wait(struct channel *c, uint64_t timeout_us); /* 1 something came, 0 time-out */
struct channel_status *channel_status(struct channel *c);

#endif
