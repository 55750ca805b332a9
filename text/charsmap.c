/* charsmap.c - see charsmap.h. */
#include "text/charsmap.h"

#include "text/utf8.h"

#include <string.h>
#include <utf8proc.h>

enum { LONGEST_GRAPHEME = 5 };

static uint32_t unit_at(const struct charsmap *m, size_t i)
{
    const uint8_t *p = m->trie + i * 4;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

int charsmap_open(struct charsmap *m, const void *data, size_t n, struct err *e)
{
    struct rd r = rd_make(data, n);
    size_t trie_bytes = rd_u32(&r);
    const void *trie = rd_bytes(&r, trie_bytes);
    if (!trie || trie_bytes % 4 || trie_bytes == 0)
        return err_set(e, ERR_FORMAT, "charsmap: a trie of %zu bytes in %zu bytes", trie_bytes, n);
    size_t texts = rd_left(&r);
    const char *p = rd_bytes(&r, texts);
    size_t bad = utf8_check(p, texts);
    if (texts == 0 || bad != texts || p[texts - 1] != 0)
        return err_set(e, ERR_FORMAT, "charsmap: its replacements are wrong at byte %zu", bad);
    *m = (struct charsmap){trie, trie_bytes / 4, p, texts};
    return 0;
}

/* The shortest entry that key[n] begins with: its replacement, or NULL. */
static const char *find(const struct charsmap *m, const char *key, size_t n)
{
    uint32_t unit = unit_at(m, 0);
    size_t at = (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
    for (size_t i = 0; i < n && key[i]; i++) {
        at ^= (uint8_t)key[i];
        if (at >= m->n_units)
            return NULL;
        unit = unit_at(m, at);
        if ((unit & (1u << 31 | 0xFF)) != (uint8_t)key[i])
            return NULL;
        at ^= (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
        if (unit >> 8 & 1) {
            size_t value = at < m->n_units ? unit_at(m, at) & 0x7FFFFFFF : SIZE_MAX;
            /* Inside a character: a broken map. */
            return value < m->n_texts && ((uint8_t)m->texts[value] & 0xC0) != 0x80
                       ? m->texts + value
                       : NULL;
        }
    }
    return NULL;
}

/* One grapheme. */
static void put(const struct charsmap *m, const char *p, size_t n, struct buf *out)
{
    const char *to = n <= LONGEST_GRAPHEME ? find(m, p, n) : NULL;
    if (to) {
        buf_puts(out, to);
        return;
    }
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t cp;
        len = utf8_next(p + i, &cp);
        to = find(m, p + i, len);
        if (to)
            buf_puts(out, to);
        else
            buf_put(out, p + i, len);
    }
}

void charsmap_apply(const struct charsmap *m, const char *text, size_t n, struct buf *out,
                    size_t *head)
{
    size_t from = 0, before = out->len, had = *head;
    utf8proc_int32_t state = 0, last = -1;
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t cp;
        len = utf8_next(text + i, &cp);
        if (last >= 0 && utf8proc_grapheme_break_stateful(last, (utf8proc_int32_t)cp, &state)) {
            put(m, text + from, i - from, out);
            if (from < had)
                *head = out->len - before;
            from = i;
        }
        last = (utf8proc_int32_t)cp;
    }
    if (n > from)
        put(m, text + from, n - from, out);
    if (from < had)
        *head = out->len - before;
}
