/* normalize.c - see normalize.h. */
#include "text/normalize.h"

#include "model/meta.h"
#include "text/unicode_set.h"
#include "text/utf8.h"

#include <string.h>

/* ---- maps of single characters ---- */

/* What cp becomes in out: its length in bytes, 0: nothing. */
typedef size_t (*map_fn)(const struct normalizer *s, uint32_t cp, char out[16]);

static void map_text(const struct normalizer *s, map_fn map, const char *text, size_t n,
                     struct buf *out, size_t *head)
{
    size_t before = out->len, had = *head;
    *head = 0;
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t cp;
        char to[16];
        len = utf8_next(text + i, &cp);
        buf_put(out, to, map(s, cp, to));
        if (i < had)
            *head = out->len - before;
    }
}

/* Normalisation forms: what the first bytes become on their own. */
static void form(const char *text, size_t n, bool compatible, bool compose, struct buf *out,
                 size_t *head)
{
    struct buf first;
    buf_init(&first, out->max);
    normalize_form(text, *head < n ? *head : n, compatible, compose, &first);
    *head = first.len;
    buf_fini(&first);
    normalize_form(text, n, compatible, compose, out);
}

static size_t map_lower(const struct normalizer *s, uint32_t cp, char out[16])
{
    uint32_t low[3];
    size_t n = unicode_lower_reference(cp, low), at = 0;
    for (size_t i = 0; i < n; i++)
        at += utf8_encode(low[i], out + at);
    return at;
}

static size_t map_mark(const struct normalizer *s, uint32_t cp, char out[16])
{
    return unicode_in_set(SET_MARK, cp) ? 0 : utf8_encode(cp, out);
}

static size_t map_bert_mark(const struct normalizer *s, uint32_t cp, char out[16])
{
    return cp >= 0x80 && unicode_in_set(SET_BERT_MARK, cp) ? 0 : utf8_encode(cp, out);
}

static size_t map_bert_clean(const struct normalizer *s, uint32_t cp, char out[16])
{
    if (unicode_in_set(SET_BERT_GONE, cp))
        return 0;
    return utf8_encode(unicode_in_set(SET_SPACE, cp) ? ' ' : cp, out);
}

static bool is_chinese(uint32_t cp) /* what BertNormalizer takes for it */
{
    return (cp >= 0x3400 && cp <= 0x4DBF) || (cp >= 0x4E00 && cp <= 0x9FFF) ||
           (cp >= 0xF900 && cp <= 0xFAFF) || (cp >= 0x20000 && cp <= 0x2A6DF) ||
           (cp >= 0x2A700 && cp <= 0x2B81F) || (cp >= 0x2B920 && cp <= 0x2CEAF) ||
           (cp >= 0x2F800 && cp <= 0x2FA1F);
}

static size_t map_bert_chinese(const struct normalizer *s, uint32_t cp, char out[16])
{
    if (!is_chinese(cp))
        return utf8_encode(cp, out);
    out[0] = ' ';
    size_t n = 1 + utf8_encode(cp, out + 1);
    out[n] = ' ';
    return n + 1;
}

static size_t map_nmt(const struct normalizer *s, uint32_t cp, char out[16])
{
    if ((cp >= 1 && cp <= 8) || cp == 0xB || (cp >= 0xE && cp <= 0x1F) || cp == 0x7F ||
        cp == 0x8F || cp == 0x9F)
        return 0;
    bool space = cp == 9 || cp == 0xA || cp == 0xC || cp == 0xD || cp == 0x1680 ||
                 (cp >= 0x200B && cp <= 0x200F) || cp == 0x2028 || cp == 0x2029 || cp == 0x2581 ||
                 cp == 0xFEFF || cp == 0xFFFD;
    return utf8_encode(space ? ' ' : cp, out);
}

/* ---- the others ---- */

static void strip(const struct normalizer *s, const char *text, size_t n, struct buf *out,
                  size_t *head)
{
    uint32_t cp;
    size_t from = 0;
    while ((s->flags & TOK_LEFT) && from < n) {
        size_t len = utf8_next(text + from, &cp);
        if (!unicode_in_set(SET_SPACE, cp))
            break;
        from += len;
    }
    while ((s->flags & TOK_RIGHT) && n > from) {
        size_t last = n - 1;
        while (((uint8_t)text[last] & 0xC0) == 0x80)
            last--;
        utf8_next(text + last, &cp);
        if (!unicode_in_set(SET_SPACE, cp))
            break;
        n = last;
    }
    *head = from < *head ? *head - from : 0;
    buf_put(out, text + from, n - from);
}

static int replace(const struct normalizer *s, struct pattern_run *run, const char *text, size_t n,
                   struct buf *out, size_t *head, struct err *e)
{
    struct regex_at at = {0};
    size_t from = 0, start, end;
    int rc;
    while ((rc = pattern_next(&s->pattern, run, text, n, &at, &start, &end, e)) == 1) {
        buf_put(out, text + from, start - from);
        buf_put(out, s->text, s->n_text);
        if (start == 0 && *head) /* what stands there now stands for the first character */
            *head = s->n_text + (end < *head ? *head - end : 0);
        from = end;
    }
    if (rc)
        return rc;
    buf_put(out, text + from, n - from);
    return 0;
}

/* Text → text in another buffer, for steps of steps. */
static int bert(const struct normalizer *s, const char *text, size_t n, struct buf *out,
                size_t *head, struct err *e)
{
    static const struct {
        uint8_t flag;
        map_fn map;
    } MAPS[] = {{TOK_BERT_CLEAN, map_bert_clean},
                {TOK_BERT_CHINESE, map_bert_chinese},
                {TOK_BERT_ACCENTS, map_bert_mark},
                {TOK_BERT_LOWERCASE, map_lower}};
    struct buf now, next;
    buf_init(&now, out->max);
    buf_init(&next, out->max);
    buf_put(&now, text, n);
    for (size_t i = 0; i < sizeof MAPS / sizeof MAPS[0]; i++) {
        if (!(s->flags & MAPS[i].flag))
            continue;
        if (MAPS[i].flag == TOK_BERT_ACCENTS) {
            buf_reset(&next);
            form((const char *)now.data, now.len, false, false, &next, head);
            struct buf swap = now;
            now = next;
            next = swap;
        }
        buf_reset(&next);
        map_text(s, MAPS[i].map, (const char *)now.data, now.len, &next, head);
        struct buf swap = now;
        now = next;
        next = swap;
    }
    bool ok = buf_ok(&now) && buf_ok(&next);
    buf_put(out, now.data, now.len);
    buf_fini(&now);
    buf_fini(&next);
    return ok ? 0 : err_set(e, ERR_LIMIT, "tokenizer: the text grows over %zu bytes", out->max);
}

int normalize(const struct normalizer *s, struct pattern_run *run, const char *text, size_t n,
              struct buf *out, size_t *head, struct err *e)
{
    int rc = 0;
    switch (s->kind) {
    case TOK_NFC:
    case TOK_NFD:
    case TOK_NFKC:
    case TOK_NFKD:
        form(text, n, s->kind == TOK_NFKC || s->kind == TOK_NFKD,
             s->kind == TOK_NFC || s->kind == TOK_NFKC, out, head);
        break;
    case TOK_LOWERCASE:
        map_text(s, map_lower, text, n, out, head);
        break;
    case TOK_STRIP_ACCENTS:
        map_text(s, map_mark, text, n, out, head);
        break;
    case TOK_NMT:
        map_text(s, map_nmt, text, n, out, head);
        break;
    case TOK_STRIP:
        strip(s, text, n, out, head);
        break;
    case TOK_PREPEND:
        if (n)
            buf_put(out, s->text, s->n_text);
        *head += n && *head ? s->n_text : 0;
        buf_put(out, text, n);
        break;
    case TOK_REPLACE:
        rc = replace(s, run, text, n, out, head, e);
        break;
    case TOK_BERT:
        rc = bert(s, text, n, out, head, e);
        break;
    case TOK_CHARSMAP:
        charsmap_apply(&s->charsmap, text, n, out, head);
        break;
    }
    if (rc == 0 && !buf_ok(out))
        rc = err_set(e, ERR_LIMIT, "tokenizer: the text grows over %zu bytes", out->max);
    return rc;
}
