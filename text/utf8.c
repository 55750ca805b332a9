/* utf8.c - see utf8.h. */
#include "text/utf8.h"

/* What may follow a lead byte: how many bytes in all, and the range of the second one (the
 * others are 80..BF). */
static size_t lead_bytes(uint8_t lead, uint8_t *lo, uint8_t *hi)
{
    *lo = 0x80;
    *hi = 0xBF;
    if (lead < 0x80)
        return 1;
    if (lead < 0xC2 || lead > 0xF4)
        return 0;
    if (lead < 0xE0)
        return 2;
    if (lead == 0xE0)
        *lo = 0xA0;
    if (lead == 0xED)
        *hi = 0x9F;
    if (lead == 0xF0)
        *lo = 0x90;
    if (lead == 0xF4)
        *hi = 0x8F;
    return lead < 0xF0 ? 3 : 4;
}

/* How many bytes of the character at p are there and right; *want: how many it should have. */
static size_t right_bytes(const uint8_t *p, size_t n, size_t *want)
{
    uint8_t lo, hi;
    *want = lead_bytes(p[0], &lo, &hi);
    if (*want == 0)
        return 0;
    size_t i = 1;
    for (; i < *want && i < n; i++) {
        if (p[i] < lo || p[i] > hi)
            break;
        lo = 0x80;
        hi = 0xBF;
    }
    return i;
}

size_t utf8_next(const char *text, uint32_t *cp)
{
    const uint8_t *p = (const uint8_t *)text;
    if (p[0] < 0x80) {
        *cp = p[0];
        return 1;
    }
    if (p[0] < 0xE0) {
        *cp = (uint32_t)(p[0] & 0x1F) << 6 | (p[1] & 0x3F);
        return 2;
    }
    if (p[0] < 0xF0) {
        *cp = (uint32_t)(p[0] & 0x0F) << 12 | (uint32_t)(p[1] & 0x3F) << 6 | (p[2] & 0x3F);
        return 3;
    }
    *cp = (uint32_t)(p[0] & 0x07) << 18 | (uint32_t)(p[1] & 0x3F) << 12 |
          (uint32_t)(p[2] & 0x3F) << 6 | (p[3] & 0x3F);
    return 4;
}

size_t utf8_decode(const char *p, size_t n, uint32_t *cp)
{
    size_t want;
    size_t got = right_bytes((const uint8_t *)p, n, &want);
    if (got == 0 || got < want)
        return 0;
    return utf8_next(p, cp);
}

size_t utf8_cut(const char *p, size_t n)
{
    size_t want;
    size_t got = right_bytes((const uint8_t *)p, n, &want);
    return got < want && got == n ? got : 0;
}

size_t utf8_encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

size_t utf8_check(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n) {
        if ((uint8_t)p[i] < 0x80) {
            i++;
            continue;
        }
        uint32_t cp;
        size_t len = utf8_decode(p + i, n - i, &cp);
        if (len == 0)
            return i;
        i += len;
    }
    return n;
}

size_t utf8_length(const char *p, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((uint8_t)p[i] & 0xC0) != 0x80;
    return count;
}
