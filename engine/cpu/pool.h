/* pool.h - the compute threads of one engine: run a function over a range of items, on all threads, and return when all are done.
 *
 * Threads are made once. They wait by a bounded spin (steps follow each other within microseconds), then sleep on a futex: an
 * idle engine uses no processor. Items are handed out in grains, so a thread that lost its core holds up one grain only;
 * which thread computes an item must not matter to the result.
 */
#ifndef EXA_ENGINE_CPU_POOL_H
#define EXA_ENGINE_CPU_POOL_H

#include "base/err.h"

#include <stdint.h>

enum { POOL_MAX_THREADS = 256 };

struct pool;
/* Items [begin, end); thread: 0 … n_threads - 1, for scratch memory. */
typedef void (*pool_fn)(void *ctx, uint32_t begin, uint32_t end, uint32_t thread);

/* n_threads counts the caller's own. */
int pool_create(struct pool **out, uint32_t n_threads, struct err *e);
void pool_destroy(struct pool *p);
uint32_t pool_threads(const struct pool *p);
/* One caller at a time. */
void pool_for(struct pool *p, uint32_t n_items, uint32_t grain, pool_fn fn, void *ctx);

#endif
