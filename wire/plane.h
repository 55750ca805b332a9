/* plane.h - the message plane: small typed messages between members of one service, over UCX active messages (plane_ucx)
 * or inside one process (plane_mem, for tests and the simulator). Same interface, same order and loss rules:
 *
 * - A member is (member id, incarnation). Member ids of the MPI world are its ranks; later joiners get higher numbers.
 * - Messages of one pair arrive in order, whole, once, or the peer is lost. After on_lost no message of that incarnation comes.
 * - A peer exists only after HELLO: protocol version equal, and the job secret proved in both directions by HMAC-SHA-256 over both
 *   sides' nonces, ids, incarnations and builds. A peer that fails is refused, logged by name, and never seen by handlers.
 * - The higher member id connects to the lower one, so a pair never connects twice. A new incarnation of a member
 *   replaces the old one (on_lost for the old first).
 * - Bounded: PLANE_MAX_MESSAGE a message, PLANE_MAX_QUEUED_BYTES waiting to leave per peer, where each message counts
 *   PLANE_MESSAGE_COST more than its bytes; past it plane_send says ERR_LIMIT.
 *
 * One thread owns a plane: every call and every handler runs on it. Handlers may call plane_send and plane_drop, not
 * plane_close. Nothing here blocks.
 */
#ifndef EXA_WIRE_PLANE_H
#define EXA_WIRE_PLANE_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PLANE_PROTOCOL = 2,
    PLANE_MAX_MESSAGE = 96 << 20,
    PLANE_MAX_QUEUED_BYTES = 128 << 20,
    PLANE_MESSAGE_COST = 128, /* about what an empty message takes in memory */
    PLANE_BUILD_BYTES = 48,
    PLANE_MAX_SECRET = 64,
    PLANE_HELLO_TIMEOUT_MS = 10000,
};

struct plane_self {
    uint32_t member;
    uint64_t incarnation; /* random, nonzero */
    char build[PLANE_BUILD_BYTES];
    uint8_t secret[PLANE_MAX_SECRET];
    size_t secret_bytes;
};

struct plane_peer {
    uint32_t member;
    uint64_t incarnation;
    char build[PLANE_BUILD_BYTES];
};

struct plane_events {
    void *ctx;
    void (*on_up)(void *ctx, const struct plane_peer *peer);
    /* body is valid during the call only */
    void (*on_message)(void *ctx, uint32_t member, uint16_t type, const uint8_t *body, size_t n);
    /* also for a plane_connect that did not come up: incarnation 0 */
    void (*on_lost)(void *ctx, uint32_t member, uint64_t incarnation, const struct err *why);
};

struct plane;

/* The implementations. plane_mem: planes made from one hub reach each other; they all belong to one thread, and a frame sent is
 * handled in the receiver's next plane_progress. */
int plane_ucx_create(struct plane **out, const struct plane_self *self,
                     const struct plane_events *ev, struct err *e);
struct plane_hub;
int plane_hub_create(struct plane_hub **out, struct err *e);
void plane_hub_destroy(struct plane_hub *h);
int plane_mem_create(struct plane **out, struct plane_hub *hub, const struct plane_self *self,
                     const struct plane_events *ev, struct err *e);
/* Faults for tests: cut = messages between the two vanish until healed; kill = the member is gone (peers get on_lost). */
void plane_hub_cut(struct plane_hub *h, uint32_t a, uint32_t b, bool cut);
void plane_hub_kill(struct plane_hub *h, uint32_t member);

/* --- the interface both implement ------------------------------------------------------------------------ */
/* Says goodbye and lets what is queued leave first, for at most a second (plane_ucx). No events. */
void plane_close(struct plane *p);
/* How others reach this member: opaque bytes, under 64 KiB. */
int plane_address(struct plane *p, struct buf *out, struct err *e);
/* Begin a connection to a member (our id must be the higher). The outcome is on_up or on_lost within PLANE_HELLO_TIMEOUT_MS.
 * A connection to the member that is still being made gives way to this one; one that is up is replaced when this one comes up. */
int plane_connect(struct plane *p, uint32_t member, const void *address, size_t n, struct err *e);
/* Queue a message. ERR_PEER: no such peer (yet, or any more). ERR_LIMIT: its queue is full, nothing was queued. The body is copied. */
int plane_send(struct plane *p, uint32_t member, uint16_t type, const void *body, size_t n,
               struct err *e);
void plane_drop(struct plane *p, uint32_t member); /* forget a peer; no on_lost */
bool plane_is_up(const struct plane *p, uint32_t member);
size_t plane_queued_bytes(const struct plane *p, uint32_t member);
/* File descriptor that becomes readable when there is work; -1: poll by timer. */
int plane_fd(struct plane *p);
/* Do all work there is, call handlers, arm the descriptor. Call when plane_fd is readable, before each sleep of the loop (uv_prepare), and at
 * least every 100 ms (HELLO deadlines). */
void plane_progress(struct plane *p, uint64_t now_us);

#endif
