/* grammar_readings.h - sets of readings relative to an unknown chain of calls, and where bytes lead them: a lazily built automaton
 * whose states are numbered. Inside of text/grammar_masks*.c only.
 *
 * A set says which readings are alive, how their calls are nested above the unknown base, and whether one of them has returned
 * from the base (`exits`): what happens then depends on what the base is. Fixed memory: when it is full, everything is
 * forgotten.
 */
#ifndef EXA_TEXT_GRAMMAR_READINGS_H
#define EXA_TEXT_GRAMMAR_READINGS_H

#include "text/grammar_internal.h"

enum { READINGS_UNKNOWN = 0, READINGS_DEAD = 1, READINGS_FIRST = 2 };
static const uint32_t READINGS_FULL = UINT32_MAX;

struct reading {
    uint32_t state, frame; /* frame 0: the base */
};
struct reading_frame {
    uint32_t ret, parent;
};
struct reading_set {
    uint32_t first, n; /* into readings */
    uint32_t hash;
    bool exits;
};
struct readings {
    const struct grammar *g;
    struct reading_set *sets;
    struct reading *readings;
    struct reading_frame *frames;
    uint32_t *rows; /* [cap_sets][g->n_classes]: next set, READINGS_UNKNOWN: not asked yet */
    uint32_t *set_table, *frame_table;
    uint32_t n_sets, n_readings, n_frames;
    uint32_t cap_sets, cap_readings, cap_frames, set_table_cap, frame_table_cap;
};

/* Memory for `bytes` at most; false: no memory. */
bool readings_init(struct readings *r, const struct grammar *g, size_t bytes);
void readings_fini(struct readings *r);
void readings_clear(struct readings *r);
size_t readings_bytes(const struct readings *r); /* in use */

/* Each returns a set or READINGS_FULL. */
uint32_t readings_at(struct readings *r,
                     uint16_t state); /* in that state, ends and calls already followed elsewhere */
uint32_t readings_return(struct readings *r,
                         uint16_t state); /* come back to that state: ends and calls are followed */
uint32_t readings_next(struct readings *r, uint32_t set,
                       uint8_t class); /* the row's entry, found when unknown */

#endif
