/* pretok.c - see pretok.h. */
#include "text/pretok.h"

#include "text/unicode.h"
#include "text/utf8.h"

#include <string.h>

bool pretok_find(const char *name, enum pretok *out)
{
    static const struct {
        const char *name;
        enum pretok kind;
    } NAMES[] = {
        {"smollm", PRETOK_SMOLLM},
        {"gpt2", PRETOK_GPT2},
        {"gpt-2", PRETOK_GPT2},
        {"default", PRETOK_GPT2},
    };
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++)
        if (strcmp(name, NAMES[i].name) == 0) {
            *out = NAMES[i].kind;
            return true;
        }
    return false;
}

static size_t contraction(const char *p, size_t n)
{
    if (n < 2 || p[0] != '\'')
        return 0;
    if (strchr("stmd", p[1]) && p[1])
        return 2;
    if (n >= 3 && (!memcmp(p + 1, "re", 2) || !memcmp(p + 1, "ve", 2) || !memcmp(p + 1, "ll", 2)))
        return 3;
    return 0;
}

/* From byte `at`, where a character of class `c` begins, to the end of its run. */
static size_t run_end(const char *p, size_t n, size_t at, enum unicode_class c)
{
    while (at < n) {
        uint32_t cp;
        size_t len = utf8_next(p + at, &cp);
        if (unicode_class(cp) != c)
            break;
        at += len;
    }
    return at;
}

/* A run of white space leaves its last character to what follows it, when something does. */
static size_t space_run(enum pretok kind, const char *p, size_t n)
{
    size_t end = run_end(p, n, 0, UNICODE_SPACE);
    if (end == n)
        return end;
    uint32_t cp;
    utf8_next(p + end, &cp);
    if (kind == PRETOK_SMOLLM && unicode_class(cp) == UNICODE_NUMBER)
        return end;
    size_t last = end - 1;
    while (((unsigned char)p[last] & 0xC0) == 0x80)
        last--;
    return last ? last : end;
}

size_t pretok_next(enum pretok kind, const char *p, size_t n)
{
    size_t short_form = contraction(p, n);
    if (short_form)
        return short_form;
    uint32_t cp;
    size_t len = utf8_next(p, &cp);
    enum unicode_class c = unicode_class(cp);
    size_t at = 0;
    if (cp == ' ' && n > 1) {
        uint32_t next;
        utf8_next(p + 1, &next);
        enum unicode_class after = unicode_class(next);
        if (after != UNICODE_SPACE && !(after == UNICODE_NUMBER && kind == PRETOK_SMOLLM)) {
            c = after;
            at = 1;
        }
    }
    if (c == UNICODE_SPACE)
        return space_run(kind, p, n);
    if (c == UNICODE_NUMBER && kind == PRETOK_SMOLLM)
        return len;
    return run_end(p, n, at, c);
}
