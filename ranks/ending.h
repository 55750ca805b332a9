/* ending.h - how a service ends: nothing new, running requests finish within a grace time, engines go, processes leave with status 0.
 *
 * A rank that is told to end (SIGTERM, SIGINT, SIGUSR1 or MSG_STOP) tells every member it is connected with, so it works without a
 * scheduler too. Routers drain and say so; workers leave when every router has drained or is gone; the scheduler leaves last and
 * publishes the last word. Whoever has for long neither the scheduler in reach nor anybody to work with (a worker no router, a router no
 * worker) ends by itself, with status 1. Every wait has a deadline: grace + ENDING_MARGIN_MS at most.
 */
#ifndef EXA_RANKS_ENDING_H
#define EXA_RANKS_ENDING_H

#include "ranks/daemon.h"

void ending_signal(struct daemon *d, int signum);
void ending_message(struct daemon *d, uint32_t member, const uint8_t *body,
                    size_t n); /* MSG_BARRIER while serving */
void ending_stop(struct daemon *d, uint32_t member, const uint8_t *body, size_t n); /* MSG_STOP */
void ending_tick(struct daemon *d, uint64_t now_us);

#endif
