/* unicode.c - see unicode.h. Binary search in ranges, with ASCII answered first. */
#include "text/unicode.h"

#include "text/unicode_tables.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

bool unicode_in_ranges(const struct code_range *r, size_t n, uint32_t cp)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (cp < r[mid].first)
            hi = mid;
        else if (cp > r[mid].last)
            lo = mid + 1;
        else
            return true;
    }
    return false;
}

static enum unicode_class ascii_class(uint32_t cp)
{
    if ((cp | 32) >= 'a' && (cp | 32) <= 'z')
        return UNICODE_LETTER;
    if (cp >= '0' && cp <= '9')
        return UNICODE_NUMBER;
    return cp == ' ' || (cp >= 9 && cp <= 13) ? UNICODE_SPACE : UNICODE_OTHER;
}

enum unicode_class unicode_class(uint32_t cp)
{
    if (cp < 0x80)
        return ascii_class(cp);
    if (unicode_in_ranges(LETTERS, COUNT(LETTERS), cp))
        return UNICODE_LETTER;
    if (unicode_in_ranges(NUMBERS, COUNT(NUMBERS), cp))
        return UNICODE_NUMBER;
    return unicode_in_ranges(SPACES, COUNT(SPACES), cp) ? UNICODE_SPACE : UNICODE_OTHER;
}

bool unicode_is_python_space(uint32_t cp)
{
    if (cp < 0x80)
        return ascii_class(cp) == UNICODE_SPACE || (cp >= 0x1C && cp <= 0x1F);
    return unicode_in_ranges(SPACES, COUNT(SPACES), cp);
}

/* Ranges overlap where upper and lower letters alternate (step 2), so neighbours of the hit are
 * tried too. */
static uint32_t map_case(const struct case_range *r, size_t n, uint32_t cp)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (r[mid].first <= cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (size_t back = 1; back <= 3 && back <= lo; back++) {
        const struct case_range *row = &r[lo - back];
        if (cp <= row->last && (cp - row->first) % (uint32_t)row->step == 0)
            return (uint32_t)((int32_t)cp + row->delta);
    }
    return cp;
}

static size_t expand(uint32_t cp, uint32_t out[UNICODE_CASE_MAX])
{
    for (size_t i = 0; i < COUNT(UPPER_EXPANSIONS); i++) {
        const struct case_expansion *row = &UPPER_EXPANSIONS[i];
        if (row->from != cp)
            continue;
        size_t n = 0;
        while (n < UNICODE_CASE_MAX && row->to[n]) {
            out[n] = row->to[n];
            n++;
        }
        return n;
    }
    return 0;
}

size_t unicode_upper(uint32_t cp, uint32_t out[UNICODE_CASE_MAX])
{
    out[0] = cp;
    if (cp < 0x80) {
        out[0] = cp >= 'a' && cp <= 'z' ? cp - 32 : cp;
        return 1;
    }
    size_t n = expand(cp, out);
    if (n)
        return n;
    out[0] = map_case(TO_UPPER, COUNT(TO_UPPER), cp);
    return 1;
}

size_t unicode_title(uint32_t cp, uint32_t out[UNICODE_CASE_MAX])
{
    /* The digraphs have title forms of their own; an expansion keeps only its first letter in
     * capitals. */
    static const uint32_t DIGRAPHS[] = {0x1C4, 0x1C7, 0x1CA, 0x1F1};
    for (size_t i = 0; i < COUNT(DIGRAPHS); i++)
        if (cp >= DIGRAPHS[i] && cp <= DIGRAPHS[i] + 2) {
            out[0] = DIGRAPHS[i] + 1;
            return 1;
        }
    size_t n = unicode_upper(cp, out);
    for (size_t i = 1; i < n; i++) {
        uint32_t low[UNICODE_CASE_MAX];
        unicode_lower(out[i], low);
        out[i] = low[0];
    }
    return n;
}

size_t unicode_lower(uint32_t cp, uint32_t out[UNICODE_CASE_MAX])
{
    if (cp == 0x130) { /* the one letter whose small form is two code points */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    if (cp < 0x80)
        out[0] = cp >= 'A' && cp <= 'Z' ? cp + 32 : cp;
    else
        out[0] = map_case(TO_LOWER, COUNT(TO_LOWER), cp);
    return 1;
}

bool unicode_is_upper(uint32_t cp)
{
    uint32_t out[UNICODE_CASE_MAX];
    return unicode_lower(cp, out) != 1 || out[0] != cp;
}

bool unicode_is_lower(uint32_t cp)
{
    uint32_t out[UNICODE_CASE_MAX];
    return unicode_upper(cp, out) != 1 || out[0] != cp;
}
