/* utf8.h - strict UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF (Unicode
 * standard, table 3-7). */
#ifndef EXA_TEXT_UTF8_H
#define EXA_TEXT_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the character at p (1-4), its code point in *cp; 0: invalid or cut off. n > 0. */
size_t utf8_decode(const char *p, size_t n, uint32_t *cp);
/* As utf8_decode for text already known to be valid. */
size_t utf8_next(const char *p, uint32_t *cp);
/* Length of the longest beginning of p that is not wrong yet but needs more bytes: 1-3; 0 when
 * p[0] begins no character or p holds a whole one. */
size_t utf8_cut(const char *p, size_t n);
size_t utf8_encode(uint32_t cp, char out[4]);
/* Index of the first byte that is not valid UTF-8; n when all is. */
size_t utf8_check(const char *p, size_t n);
size_t utf8_length(const char *p, size_t n); /* code points of valid text */

#endif
