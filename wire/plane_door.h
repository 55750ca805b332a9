/* plane_door.h - inside wire/ only: the TCP sockets at which members meet. HELLO runs over them, before UCX hears of a stranger
 * (UCX 1.13 aborts the process when garbage reaches its own listener); afterwards each stays open and silent as the life line of
 * its link: the kernel closes it when the other process dies, however it dies.
 *
 * Frames: u32 length of the body, u8 kind, body. Nothing here blocks.
 */
#ifndef EXA_WIRE_PLANE_DOOR_H
#define EXA_WIRE_PLANE_DOOR_H

#include "base/buf.h"
#include "base/err.h"

#include <sys/socket.h>

struct door_sock {
    int fd; /* -1: closed */
    bool connecting;
    bool given;     /* the frame in `in` was handed out */
    struct buf in;  /* of the frame that is being read */
    struct buf out; /* said while still connecting */
};

/* A listening socket on any address of the family and a port of the kernel's choice; -1 when the family is not there. */
int door_listen(int family, uint16_t *port, struct err *e);
/* The next connection as a socket of ours: 1. None waits: 0. No descriptor or memory left for it: ERR_LIMIT. */
int door_accept(int listen_fd, struct door_sock *s);
int sock_dial(struct door_sock *s, const struct sockaddr_storage *to, struct err *e);
void sock_close(struct door_sock *s);
int sock_put(struct door_sock *s, uint8_t kind, const void *body, size_t n, struct err *e);
/* The connection is there, or failed: send what was said. */
int sock_connected(struct door_sock *s, struct err *e);
/* 1: a frame, body valid until the next call. 0: not whole yet. ERR_PEER: closed. ERR_PROTO: body over max. */
int sock_get(struct door_sock *s, size_t max_body, uint8_t *kind, const uint8_t **body, size_t *n,
             struct err *e);

#endif
