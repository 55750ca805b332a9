/* router_role.h - a router rank on the loop thread: ties router/ to the message plane and watches workers' heartbeats. */
#ifndef EXA_RANKS_ROUTER_ROLE_H
#define EXA_RANKS_ROUTER_ROLE_H

#include "ranks/daemon.h"

int router_role_create(struct router_role **out, struct daemon *d, struct err *e);
void router_role_url(const struct router_role *r, char *out, size_t cap);
void router_role_roster(struct router_role *r); /* members are known */
void router_role_message(struct router_role *r, uint32_t member, uint16_t type, const uint8_t *body,
                         size_t n);
void router_role_lost(struct router_role *r, uint32_t member);
void router_role_up(struct router_role *r, uint32_t member);
void router_role_tick(struct router_role *r, uint64_t now_us);
void router_role_drain(struct router_role *r, uint32_t grace_ms);

#endif
