/* bind.h - which processors an engine's threads run on: a part of those that its process may use, no other engine's of the node. */
#ifndef EXA_ENGINE_BIND_H
#define EXA_ENGINE_BIND_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* Of n allowed processors, in order of locality: the [first, first + n_threads) of engine `index` of `count`. What is left over lies at the
 * beginning, for the loops of the ranks. false: there are too few for all, so they share them. */
bool bind_share(uint32_t n, uint32_t index, uint32_t count, uint32_t n_threads, uint32_t *first);
/* Bind this process, before it makes its threads. *bound: to how many; 0: to no part (too few processors). ERR_SYS: hwloc could not. */
int bind_cores(uint32_t index, uint32_t count, uint32_t n_threads, uint32_t *bound, struct err *e);

#endif
