/* worker.h - a worker rank on the loop thread: node agent, parent of engines, heartbeats, rack leadership. */
#ifndef EXA_RANKS_WORKER_H
#define EXA_RANKS_WORKER_H

#include "ranks/daemon.h"

int worker_create(struct worker **out, struct daemon *d, struct err *e);
void worker_message(struct worker *w, uint32_t member, uint16_t type, const uint8_t *body,
                    size_t n);
void worker_lost(struct worker *w, uint32_t member);
void worker_up(struct worker *w, uint32_t member);
void worker_task(struct worker *w, struct task *t); /* a result; borrowed */
void worker_tick(struct worker *w, uint64_t now_us);
void worker_flush(
    struct worker *w); /* step frames gathered since the last flush leave, one message a router */
/* Kill the engines; false while one is still there. */
bool worker_stop(struct worker *w);

#endif
