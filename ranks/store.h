/* store.h - the node's image as its worker sees it: asked for by the scheduler, filled in rounds by the mover, looked at when an engine
 * dies, and fetched again when it was lost or damaged meanwhile (somebody cleaned the node's cache). Loop thread only.
 */
#ifndef EXA_RANKS_STORE_H
#define EXA_RANKS_STORE_H

#include "ranks/daemon.h"

struct store;

struct store_events {
    void *ctx;
    void (*ready)(void *ctx); /* the image is complete: store_path */
    void (*lost)(void *ctx,
                 const char *why); /* it was, and is not any more; ready may come again */
};

int store_create(struct store **out, struct daemon *d, const struct store_events *ev,
                 struct err *e);
void store_destroy(struct store *s);
/* MSG_MODEL, MSG_ROUND, MSG_WEIGHTS of the scheduler. */
void store_message(struct store *s, uint16_t type, const uint8_t *body, size_t n);
void store_task(struct store *s, struct task *t); /* a result of the mover; borrowed */
void store_check(struct store *s);                /* an engine died: is it the image? */
void store_scheduler_up(struct store *s); /* the link came back: what was said meanwhile was lost */
const char *
store_path(const struct store *s); /* "" until complete, and while it is fetched again */
const uint8_t *store_digest(const struct store *s);
const char *store_trouble(const struct store *s); /* why it is fetched again; "": it is not */

#endif
