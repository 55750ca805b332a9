/* flight_parts.h - what flight.c, flight_dispatch.c and flight_events.c share. Inside of flights
 * only. */
#ifndef EXA_ROUTER_FLIGHT_PARTS_H
#define EXA_ROUTER_FLIGHT_PARTS_H

#include "router/flight.h"

enum {
    RETRY_AFTER_S = 2,
    WAIT_FULL_MS = 60000,   /* for a place while replicas live but are full */
    WAIT_ABSENT_MS = 10000, /* for a replica when none lives */
};

/* flight.c. flight_fail and flight_flush may free f. */
void flight_fail(struct flight *f, const struct api_error *a);
/* All of a frame's entries for f are in its answer: one write, and the end if it has come. */
void flight_flush(struct flight *f);

/* flight_dispatch.c. */
void flight_enqueue(struct flight *f);
void flight_waiting_remove(struct flight *f);
/* The replica did not start it: another may. */
void flight_refused(struct flight *f);
/* The current attempt is over as far as this router is concerned: late frames find nobody. Nothing
 * if none runs. */
void flight_attempt_end(struct flight *f);
/* As flight_attempt_end, and the worker is told. */
void flight_attempt_cancel(struct flight *f);

/* flight_events.c: f has output (or its end) from the current frame. */
void flight_dirty_add(struct flight *f);
void flight_dirty_remove(struct flight *f);

#endif
