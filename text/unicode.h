/* unicode.h - character classes and case mappings from pinned tables (text/unicode_tables.h),
 * never the C library's. */
#ifndef EXA_TEXT_UNICODE_H
#define EXA_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum unicode_class { UNICODE_OTHER, UNICODE_LETTER, UNICODE_NUMBER, UNICODE_SPACE };

enum unicode_class unicode_class(uint32_t cp);
/* White space as Python's str.isspace() sees it: the class above and U+001C-001F. */
bool unicode_is_python_space(uint32_t cp);

struct code_range; /* of the pinned tables */
/* r: [n], ascending, apart. */
bool unicode_in_ranges(const struct code_range *r, size_t n, uint32_t cp);

enum { UNICODE_CASE_MAX = 3 };
/* Fill out[], return how many code points (1-3). */
size_t unicode_upper(uint32_t cp, uint32_t out[UNICODE_CASE_MAX]);
size_t unicode_title(uint32_t cp, uint32_t out[UNICODE_CASE_MAX]);
size_t unicode_lower(uint32_t cp, uint32_t out[UNICODE_CASE_MAX]);
bool unicode_is_upper(uint32_t cp); /* has another lower form */
bool unicode_is_lower(uint32_t cp); /* has another upper form */

#endif
