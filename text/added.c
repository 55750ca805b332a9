/* added.c - see added.h. */
#include "text/added.h"

#include "model/meta.h"
#include "text/unicode_set.h"
#include "text/utf8.h"

#include <stdlib.h>

int added_init(struct added_set *s, size_t n_entries, size_t n_bytes, struct err *e)
{
    *s = (struct added_set){0};
    int rc = trie_init(&s->trie, n_bytes, e);
    if (rc)
        return rc;
    s->entries = calloc(n_entries + 1, sizeof *s->entries);
    return s->entries ? 0 : err_set(e, ERR_NOMEM, "tokenizer: out of memory for added tokens");
}

void added_fini(struct added_set *s)
{
    trie_fini(&s->trie);
    free(s->entries);
    *s = (struct added_set){0};
}

int added_put(struct added_set *s, const char *text, size_t n, struct added_entry entry,
              struct err *e)
{
    uint32_t node = trie_walk(&s->trie, text, n);
    if (node != TRIE_NONE && s->trie.values[node] != TRIE_NONE)
        return 0;
    s->entries[s->n_entries] = entry;
    s->begins[(uint8_t)text[0]] = true;
    return trie_add(&s->trie, text, n, s->n_entries++, e);
}

static size_t last_char(const char *text, size_t end, uint32_t *cp)
{
    size_t at = end - 1;
    while (((uint8_t)text[at] & 0xC0) == 0x80)
        at--;
    utf8_next(text + at, cp);
    return at;
}

static bool is_word_alone(const char *text, size_t n, size_t start, size_t end)
{
    uint32_t before = ' ', after = ' ';
    if (start > 0)
        last_char(text, start, &before);
    if (end < n)
        utf8_next(text + end, &after);
    return !unicode_in_set(SET_WORD, before) && !unicode_in_set(SET_WORD, after);
}

/* Take the white space around [*start, *end): before it not beyond `from`. */
static void take_space(uint8_t flags, const char *text, size_t n, size_t from, size_t *start,
                       size_t *end)
{
    uint32_t cp;
    while ((flags & ADDED_LSTRIP) && *start > from) {
        size_t at = last_char(text, *start, &cp);
        if (!unicode_in_set(SET_SPACE, cp))
            break;
        *start = at;
    }
    while ((flags & ADDED_RSTRIP) && *end < n) {
        size_t len = utf8_next(text + *end, &cp);
        if (!unicode_in_set(SET_SPACE, cp))
            break;
        *end += len;
    }
}

bool added_next(const struct added_set *s, const char *text, size_t n, bool control, size_t *at,
                size_t *from, size_t *start, size_t *end, const struct added_entry **entry)
{
    size_t i = *at;
    while (i < n) {
        uint32_t found;
        if (!s->begins[(uint8_t)text[i]]) {
            i++;
            continue;
        }
        size_t len = trie_longest(&s->trie, TRIE_ROOT, text + i, n - i, &found);
        if (!len) {
            i++;
            continue;
        }
        const struct added_entry *hit = &s->entries[found];
        size_t a = i, b = i + len;
        i = b;
        if ((hit->control && !control) ||
            ((hit->flags & ADDED_SINGLE_WORD) && !is_word_alone(text, n, a, b)))
            continue;
        take_space(hit->flags, text, n, *from, &a, &b);
        *at = i;
        *start = a;
        *end = b;
        *entry = hit;
        return true;
    }
    *at = n;
    return false;
}
