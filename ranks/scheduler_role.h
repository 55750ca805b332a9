/* scheduler_role.h - rank 0 on the loop thread: carries events to the pure scheduler and its actions to plane and mover. */
#ifndef EXA_RANKS_SCHEDULER_ROLE_H
#define EXA_RANKS_SCHEDULER_ROLE_H

#include "ranks/daemon.h"

int scheduler_role_create(struct scheduler_role **out, struct daemon *d, struct err *e);
void scheduler_role_register(struct scheduler_role *s, const struct msg_register *m);
void scheduler_role_begin(struct scheduler_role *s); /* the world is up */
void scheduler_role_message(struct scheduler_role *s, uint32_t member, uint16_t type,
                            const uint8_t *body, size_t n);
void scheduler_role_lost(struct scheduler_role *s, uint32_t member);
void scheduler_role_up(struct scheduler_role *s, const struct plane_peer *peer); /* came back */
void scheduler_role_task(struct scheduler_role *s, struct task *t); /* a result; borrowed */
void scheduler_role_tick(struct scheduler_role *s, uint64_t now_us);
void scheduler_role_drain(struct scheduler_role *s);
/* Publish the last word (STOPPED, or FAILED stays); call until true: it is in the file. */
bool scheduler_role_stopped(struct scheduler_role *s);

#endif
