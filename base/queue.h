/* queue.h - a bounded queue of pointers between threads, with an eventfd that becomes readable when it holds something.
 *
 * Any number of producers and consumers. Full: queue_push fails at once (ERR_AGAIN), the producer decides.
 * The depth is a gauge for metrics. The queue does not own the items.
 */
#ifndef EXA_BASE_QUEUE_H
#define EXA_BASE_QUEUE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct queue;

int queue_create(struct queue **out, size_t capacity, struct err *e);
void queue_destroy(struct queue *q);         /* what is still in it is the caller's business */
int queue_push(struct queue *q, void *item); /* 0 or ERR_AGAIN when full */
void *
queue_pop(struct queue *q); /* NULL when empty; resets the eventfd when it empties the queue */
void *queue_pop_wait(struct queue *q, uint64_t timeout_us); /* NULL at the deadline */
size_t queue_depth(struct queue *q);
int queue_fd(struct queue *q); /* to poll for reading; owned by the queue */

#endif
