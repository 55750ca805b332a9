/* settings.h - an engine's settings as one line of text: what serve.yaml says of a model's engine travels so through assignments to the
 * engine's command line, and nobody between has to know what an engine can be set to.
 *
 *   key=value key=value …     one space between; a value has no spaces, except the last one's, `draft`: a path, to the end of the line
 *
 *   kv_type           f32, f16, q8            format of keys and values
 *   memory_fraction   0.01 … 1.00             of the available memory, for KV and scratch
 *   kv_bytes          bytes                   for KV alone
 *   token_budget      1 … 4096                rows of one step
 *   queue             0 … 4096                requests that wait beside those in slots
 *   prefix_cache      on, off
 *   speculation       off, lookup, draft
 *   max_drafts        1 … 15                  guesses of a request in one step
 *   draft             path                    image of the draft model
 */
#ifndef EXA_ENGINE_SETTINGS_H
#define EXA_ENGINE_SETTINGS_H

#include "engine/engine.h"

/* Into c; keys that are not there stay as they are. Texts are kept in `store` [MSG_SETTINGS_BYTES]. ERR_CONFIG: a key that there is not, or a
 * value that it cannot have (both named). */
int settings_read(struct engine_config *c, char *store, const char *text, struct err *e);

#endif
