/* plane_hello.h - inside wire/ only: the frames that make a link a peer, as pure functions.
 *
 *   client (higher id)            server (lower id)
 *     HELLO ──────────────────────▶            protocol, who, whom, nonce
 *           ◀────────────────────── CHALLENGE  protocol, who, nonce, proof of the server
 *     PROOF ──────────────────────▶            proof of the client
 *           ◀────────────────────── WAY        how to reach the server for messages, with a sum over it
 *     WAY   ──────────────────────▶            the client has reached the server there, and how to reach the client
 *           ◀────────────────────── READY      the server has reached the client: the first frame that takes the way of messages
 *   either side:  REFUSE (code, text) before it is up, BYE after.
 *
 * A proof is HMAC-SHA-256 with the job secret over a direction label, the protocol, both sides' ids, incarnations and builds, and both
 * nonces: it can be neither replayed nor reflected. The same sum under two more labels gives each direction the token that READY and
 * every later frame carry, so that a stranger cannot speak in the name of a link.
 * The server is up with READY, the client when READY came: nothing overtakes it, as all that follows takes the same way.
 */
#ifndef EXA_WIRE_PLANE_HELLO_H
#define EXA_WIRE_PLANE_HELLO_H

#include "base/buf.h"
#include "base/digest.h"
#include "base/err.h"
#include "wire/plane.h"

enum {
    HELLO_NONCE_BYTES = 32,
    HELLO_MAX_BYTES = 512,  /* the longest frame a stranger may send */
    HELLO_TEXT_BYTES = 320, /* of REFUSE */
    VIA_MAX_BYTES = 16384,  /* a transport's own address, told after the proofs */
};

enum frame_kind {
    FRAME_MESSAGE = 0,
    FRAME_HELLO = 1,
    FRAME_CHALLENGE = 2,
    FRAME_PROOF = 3,
    FRAME_WAY = 4,
    FRAME_READY = 5,
    FRAME_REFUSE = 6,
    FRAME_BYE = 7,
    FRAME_MORE = 8, /* the next piece of a message that did not fit one frame */
};

enum refuse_code {
    REFUSE_PROTOCOL = 1,
    REFUSE_SECRET = 2,
    REFUSE_MEMBER = 3, /* not whom you meant to reach: an address may be somebody else's by now */
    REFUSE_FORMAT = 4,
};

struct hello_side {
    uint32_t member;
    uint64_t incarnation;
    char build[PLANE_BUILD_BYTES];
    uint8_t nonce[HELLO_NONCE_BYTES];
};

struct hello { /* HELLO; CHALLENGE without `to` */
    uint32_t protocol;
    uint32_t to;
    struct hello_side side;
};

enum hello_label {
    PROOF_SERVER,
    PROOF_CLIENT,
    TOKEN_TO_SERVER,
    TOKEN_TO_CLIENT,
    WAY_OF_SERVER,
    WAY_OF_CLIENT,
};

/* One handshake as both sides know it after CHALLENGE. */
struct hello_pair {
    const struct plane_self *key;
    uint32_t protocol;
    const struct hello_side *client, *server;
};
/* extra: what WAY says; n = 0 elsewhere */
void hello_sum(uint8_t out[SHA256_BYTES], enum hello_label label, const struct hello_pair *pair,
               const void *extra, size_t n);
uint64_t hello_token(enum hello_label label, const struct hello_pair *pair);

void hello_put(struct buf *b, const struct hello *h);
/* Of a frame that starts rightly the protocol is always filled, whatever follows in other versions:
 * ERR_PROTO with h->protocol set (not 0) says a foreign version, with 0 no HELLO at all. */
int hello_get(struct hello *h, uint32_t our_protocol, const void *p, size_t n, struct err *e);
void challenge_put(struct buf *b, const struct hello *h, const uint8_t proof[SHA256_BYTES]);
int challenge_get(struct hello *h, uint8_t proof[SHA256_BYTES], uint32_t our_protocol,
                  const void *p, size_t n, struct err *e);
/* This layout never changes: it is how other versions are told so. */
void refuse_put(struct buf *b, uint32_t code, const char *text);
int refuse_get(uint32_t *code, char text[HELLO_TEXT_BYTES], const void *p, size_t n, struct err *e);

#endif
