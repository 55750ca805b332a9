/* flight_parts.h - what the files of flights share. Inside of flights only. */
#ifndef EXA_ROUTER_FLIGHT_PARTS_H
#define EXA_ROUTER_FLIGHT_PARTS_H

#include "router/flight.h"

enum {
    RETRY_AFTER_S = 2,
    WAIT_FULL_MS = 60000,   /* for a place while replicas live but are full */
    WAIT_ABSENT_MS = 10000, /* for a replica when none lives */
    /* A whole answer or one step's events; six bytes for one is the worst that escaping does to the
     * text's own cap. */
    FLIGHT_OUT_MAX_BYTES = 400 << 20,
};

/* flight.c. flight_fail and flight_flush may free f. */
void flight_fail(struct flight *f, const struct api_error *a);
/* All of a frame's entries for f are in its answers: one write, and the end if it has come. */
void flight_flush(struct flight *f);

/* flight_output.c: what clients see. flight_put_* append to b. */
void flight_put_events(struct flight *f, struct buf *b); /* what is new, and the stream's end */
void flight_put_whole(struct flight *f, struct buf *b);

/* flight_dispatch.c. */
/* Let as many choices wait as the window has room for. */
void flight_begin_choices(struct flight *f);
/* The router's queue has room for one more request; else a is filled. */
bool flight_queue_has_room(struct router *r, struct api_error *a);
void choice_waiting_remove(struct choice *c);
/* The replica did not start it: another may. */
void choice_refused(struct choice *c);
/* The current attempt is over as far as this router is concerned: late frames find nobody. Nothing
 * if none runs. */
void choice_attempt_end(struct choice *c);
/* As choice_attempt_end, and the worker is told. */
void choice_attempt_cancel(struct choice *c);

/* flight_events.c: f has output (or its end) from the current frame. */
void flight_dirty_add(struct flight *f);
void flight_dirty_remove(struct flight *f);

#endif
