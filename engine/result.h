/* result.h - a step's result as entries of the wire: tokens, and what comes with them as extensions. Pure. */
#ifndef EXA_ENGINE_RESULT_H
#define EXA_ENGINE_RESULT_H

#include "base/buf.h"
#include "engine/engine.h"

enum { RESULT_MAX_TOKENS = 512, RESULT_MAX_EXT_BYTES = 1 << 17 };

/* Append the entries of r to out (of at most RESULT_MAX_TOKENS tokens); returns how many. Log-probabilities of a prompt go first, in
 * entries of their own. ext: scratch of at least RESULT_MAX_EXT_BYTES, its contents are lost. A buffer that is too small fails. */
uint32_t result_put(struct buf *out, struct buf *ext, const struct step_result *r);

#endif
