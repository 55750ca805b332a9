/* json_text.c - see json_text.h. Runs of plain bytes are copied whole; only what must be escaped is
 * looked at singly. */
#include "router/json_text.h"

#include <stdbool.h>

size_t utf8_sequence(const uint8_t *s, size_t n)
{
    if (!n)
        return 0;
    uint8_t c = s[0];
    if (c < 0x80)
        return 1;
    if (c < 0xC2 || c > 0xF4)
        return 0;
    size_t len = c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    if (n < len)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    if ((c == 0xE0 && s[1] < 0xA0) || (c == 0xED && s[1] > 0x9F)) /* overlong; surrogates */
        return 0;
    if ((c == 0xF0 && s[1] < 0x90) || (c == 0xF4 && s[1] > 0x8F)) /* overlong; past U+10FFFF */
        return 0;
    return len;
}

size_t utf8_valid_prefix(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        size_t len = utf8_sequence((const uint8_t *)s + i, n - i);
        if (!len)
            return i;
        i += len;
    }
    return n;
}

static void escape_one(struct buf *b, uint8_t c)
{
    switch (c) {
    case '"':
        buf_put(b, "\\\"", 2);
        break;
    case '\\':
        buf_put(b, "\\\\", 2);
        break;
    case '\n':
        buf_put(b, "\\n", 2);
        break;
    case '\r':
        buf_put(b, "\\r", 2);
        break;
    case '\t':
        buf_put(b, "\\t", 2);
        break;
    default:
        buf_printf(b, "\\u%04x", c);
    }
}

void json_put_escaped(struct buf *b, const char *s, size_t n)
{
    const uint8_t *p = (const uint8_t *)s;
    size_t from = 0, i = 0;
    while (i < n) {
        uint8_t c = p[i];
        size_t len = c < 0x80 ? 1 : utf8_sequence(p + i, n - i);
        bool plain = len && c >= 0x20 && c != '"' && c != '\\' && c != 0x7F;
        if (plain) {
            i += len;
            continue;
        }
        buf_put(b, s + from, i - from);
        if (len)
            escape_one(b, c);
        else
            buf_puts(b, "\xEF\xBF\xBD");
        from = ++i;
    }
    buf_put(b, s + from, n - from);
}

void json_put_string_n(struct buf *b, const char *s, size_t n)
{
    buf_put(b, "\"", 1);
    json_put_escaped(b, s, n);
    buf_put(b, "\"", 1);
}

void json_put_string(struct buf *b, const char *s)
{
    if (s)
        json_put_string_n(b, s, strlen(s));
    else
        buf_puts(b, "null");
}
