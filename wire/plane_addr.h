/* plane_addr.h - inside wire/ only: which socket addresses a member publishes, and in which order another one tries them.
 *
 * A published address names the network namespace it was made in, so that members of one namespace meet on loopback and all
 * others never try it. UCX_NET_DEVICES, where a user sets it, limits which interfaces are published.
 */
#ifndef EXA_WIRE_PLANE_ADDR_H
#define EXA_WIRE_PLANE_ADDR_H

#include "base/buf.h"
#include "base/err.h"

#include <netinet/in.h>
#include <sys/socket.h>

enum { ADDR_MAX = 16, ADDR_TEXT_BYTES = 64 };

struct addr_list {
    unsigned n;
    struct sockaddr_storage a[ADDR_MAX];
};

/* Ports in host order; 0: no listener of that family. */
int addr_publish(struct buf *out, uint16_t port4, uint16_t port6, struct err *e);
/* The published addresses that this process may reach, best first. ERR_PEER when there is none. */
int addr_choose(struct addr_list *out, const void *p, size_t n, struct err *e);
socklen_t addr_len(const struct sockaddr_storage *a);
void addr_text(const struct sockaddr_storage *a, char out[ADDR_TEXT_BYTES]);

#endif
