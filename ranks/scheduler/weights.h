/* weights.h - who holds which segments of one pack, and what the next broadcast round is. Pure: events and a clock in, a step out.
 *
 * Every worker says what its cache holds (MSG_HAVE, round 0): at the start, and again when it finds that it has lost some. Nodes that hold all are complete at once. The rest go through rounds: all live,
 * healthy, incomplete nodes take part, and the segments that any of them misses are sent. After a round each reports again. A node that
 * cannot go on (full disk, no cache, a pack it cannot read) leaves with its reason; a pack whose bytes are wrong fails all. Rounds are few: WEIGHTS_MAX_ROUNDS,
 * counted anew from each loss.
 */
#ifndef EXA_RANKS_SCHEDULER_WEIGHTS_H
#define EXA_RANKS_SCHEDULER_WEIGHTS_H

#include "base/err.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stdint.h>

enum { WEIGHTS_MAX_ROUNDS = 6 };

enum weights_state {
    WEIGHTS_ASKED = 1,  /* its cache is being looked at */
    WEIGHTS_INCOMPLETE, /* segments are missing; waits for a round */
    WEIGHTS_IN_ROUND,
    WEIGHTS_COMPLETE,
    WEIGHTS_FAILED,
};

struct weights_node {
    uint32_t member;
    uint32_t rack;
    bool live;
    bool told;                 /* the outcome (complete or failed) was handed out by weights_next */
    uint8_t state;             /* enum weights_state */
    uint8_t *have;             /* owned bits, NULL until known */
    uint32_t n_have;           /* bits set there */
    char text[MSG_TEXT_BYTES]; /* why it failed */
};

struct weights {
    uint32_t n_nodes;
    struct weights_node *nodes; /* owned, ascending member ids */
    uint32_t n_segments;
    uint64_t n_bytes;
    uint32_t round;       /* last one begun, 0: none */
    uint32_t last_round;  /* no further one */
    bool give_up;         /* a participant was lost: the round should end now */
    uint64_t deadline_us; /* of what is being waited for */
    uint8_t *missing;     /* owned bits of the round */
};

enum weights_action {
    WEIGHTS_WAIT = 0,
    WEIGHTS_ROUND,   /* begin round w->round with the nodes in WEIGHTS_IN_ROUND and w->missing */
    WEIGHTS_GIVE_UP, /* tell the nodes in WEIGHTS_IN_ROUND to end it */
    WEIGHTS_TELL,    /* node `*which` is complete or failed: tell it */
};

int weights_init(struct weights *w, const uint32_t *members, const uint32_t *racks, uint32_t n,
                 uint32_t n_segments, uint64_t n_bytes, uint64_t now_us, struct err *e);
void weights_fini(struct weights *w);
void weights_have(struct weights *w, const struct msg_have *h, uint64_t now_us);
void weights_lose(struct weights *w, uint32_t member);
/* A lost node is there again. asked: what its cache holds; else it was complete, was told so, and is the same process. */
void weights_return(struct weights *w, uint32_t member, bool asked, uint64_t now_us);
/* Call after every event and at least once a second until WEIGHTS_WAIT. */
enum weights_action weights_next(struct weights *w, uint64_t now_us, uint32_t *which);
/* Share of all segments on all live nodes, 0 … 1. */
double weights_progress(const struct weights *w);
const struct weights_node *weights_find(const struct weights *w, uint32_t member);

#endif
