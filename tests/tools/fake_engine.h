/* fake_engine.h - an engine without a model, for tests of the router: it says the prompt back.
 *
 * The answer is the prompt's tokens (end-of-generation and control ids left out), starting at seed
 * % n where the temperature is not 0, one token a step and request; then the first stop id, or,
 * with ignore_eos, the prompt again until max_tokens. Some seeds ask for trouble.
 *
 * Log-probabilities: -(id % 8) / 4 for a token, its rank is id % 8, and the others are ids i = 0, 1, … with -i / 4. An embedding has 32
 * numbers, all 0 but two: 0.6 at 0, and 0.8 at 1 + n % 31 for n tokens.
 */
#ifndef EXA_TESTS_FAKE_ENGINE_H
#define EXA_TESTS_FAKE_ENGINE_H

#include "engine/engine.h"

enum { FAKE_EMBEDDING = 32 };

enum fake_seed {
    FAKE_ERROR = 900001,     /* fails after three tokens */
    FAKE_SILENT = 900002,    /* never says anything */
    FAKE_BAD_TOKEN = 900003, /* sends an id outside the vocabulary */
};

struct fake_engine;
struct fake_engine *fake_engine_create(uint32_t n_slots, uint32_t n_ctx, uint32_t first_token);
void fake_engine_destroy(struct fake_engine *g);
int fake_engine_submit(struct fake_engine *g, const struct msg_submit *s, struct err *e);
void fake_engine_cancel(struct fake_engine *g, const struct attempt *a);
int fake_engine_step(struct fake_engine *g, step_result_fn fn, void *ctx);
void fake_engine_load(const struct fake_engine *g, struct engine_load *load);

#endif
