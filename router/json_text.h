/* json_text.h - JSON written straight into a buffer: escaping (RFC 8259 section 7) and small
 * helpers.
 *
 * Pure. Text that is not valid UTF-8 is repaired with U+FFFD, so what is written is always valid
 * JSON.
 */
#ifndef EXA_ROUTER_JSON_TEXT_H
#define EXA_ROUTER_JSON_TEXT_H

#include "base/buf.h"

/* The inside of a string, without quotes. */
void json_put_escaped(struct buf *b, const char *s, size_t n);
/* With quotes; s NULL writes null. */
void json_put_string(struct buf *b, const char *s);
void json_put_string_n(struct buf *b, const char *s, size_t n);
/* Bytes of the valid UTF-8 sequence at s (1 to 4), or 0: none starts here. Overlong forms and
 * surrogates are none. */
size_t utf8_sequence(const uint8_t *s, size_t n);
/* n when all is valid, else the position of the first bad byte. */
size_t utf8_valid_prefix(const char *s, size_t n);

#endif
