/* stops.h - stop strings over a stream of text: what may be the start of one is held back until
 * it is decided.
 *
 * The stop string itself, and everything after it, is never shown (OpenAI API reference,
 * `stop`).
 */
#ifndef EXA_TEXT_STOPS_H
#define EXA_TEXT_STOPS_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

enum { STOPS_MAX = 16, STOPS_MAX_BYTES = 1024 /* of one string */ };

struct stops;
/* n may be 0: nothing is ever held. Empty strings are ERR_CONFIG. Strings are copied. */
int stops_create(struct stops **out, const char *const *strings, const size_t *lens, size_t n,
                 struct err *e);
void stops_destroy(struct stops *s);
/* Feed text; what is safe to show is appended to out. true: a stop string was met (the
 * earliest), feeding ends. */
bool stops_push(struct stops *s, const char *text, size_t n, struct buf *out);
/* The stream ended without a match: show what was held. */
void stops_finish(struct stops *s, struct buf *out);

#endif
