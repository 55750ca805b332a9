/* detok.c - a stream of token bytes becomes a stream of whole characters.
 *
 * What is wrong becomes U+FFFD once for each longest beginning of a character (Unicode standard,
 * 3.9 "maximal subpart"), which is what Python's incremental decoder with errors="replace" does,
 * wherever the stream is cut.
 */
#include "text/tokenizer.h"

#include "text/utf8.h"

static const char REPLACEMENT[] = "\xEF\xBF\xBD";

void detok_init(struct detok *d)
{
    *d = (struct detok){0};
}

/* Bytes of p that are a wrong sequence as a whole: at least one. */
static size_t wrong_bytes(const char *p, size_t n)
{
    for (size_t len = n < 3 ? n : 3; len > 1; len--)
        if (utf8_cut(p, len))
            return len;
    return 1;
}

/* Put out the whole characters of p[n]; returns how many bytes were used. */
static size_t put_whole(const char *p, size_t n, struct buf *out)
{
    size_t i = 0, from = 0;
    while (i < n) {
        uint32_t cp;
        size_t len = utf8_decode(p + i, n - i, &cp);
        if (len) {
            i += len;
            continue;
        }
        if (i > from)
            buf_put(out, p + from, i - from);
        from = i;
        if (utf8_cut(p + i, n - i))
            return i;
        i += wrong_bytes(p + i, n - i);
        from = i;
        buf_puts(out, REPLACEMENT);
    }
    if (i > from)
        buf_put(out, p + from, i - from);
    return i;
}

void detok_push(struct detok *d, const char *bytes, size_t n, struct buf *out)
{
    /* Held bytes are completed one by one: at most three are needed. */
    while (d->n_held && n) {
        d->held[d->n_held++] = (uint8_t)*bytes++;
        n--;
        size_t used = put_whole((const char *)d->held, d->n_held, out);
        memmove(d->held, d->held + used, d->n_held - used);
        d->n_held = (uint8_t)(d->n_held - used);
    }
    if (!n)
        return;
    size_t used = put_whole(bytes, n, out);
    d->n_held = (uint8_t)(n - used);
    memcpy(d->held, bytes + used, d->n_held);
}

void detok_finish(struct detok *d, struct buf *out)
{
    if (d->n_held)
        buf_puts(out, REPLACEMENT);
    d->n_held = 0;
}
