/* unicode_set.c - see unicode_set.h. A set is some categories, but for the ranges listed. */
#include "text/unicode_set.h"

#include "text/unicode.h"
#include "text/unicode_set_tables.h"

#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

enum {
    LETTER =
        CAT_BIT(CAT_LU) | CAT_BIT(CAT_LL) | CAT_BIT(CAT_LT) | CAT_BIT(CAT_LM) | CAT_BIT(CAT_LO),
    MARK = CAT_BIT(CAT_MN) | CAT_BIT(CAT_MC) | CAT_BIT(CAT_ME),
    NUMBER = CAT_BIT(CAT_ND) | CAT_BIT(CAT_NL) | CAT_BIT(CAT_NO),
    PUNCT = CAT_BIT(CAT_PC) | CAT_BIT(CAT_PD) | CAT_BIT(CAT_PS) | CAT_BIT(CAT_PE) |
            CAT_BIT(CAT_PI) | CAT_BIT(CAT_PF) | CAT_BIT(CAT_PO),
    SYMBOL = CAT_BIT(CAT_SM) | CAT_BIT(CAT_SC) | CAT_BIT(CAT_SK) | CAT_BIT(CAT_SO),
    SEPARATOR = CAT_BIT(CAT_ZS) | CAT_BIT(CAT_ZL) | CAT_BIT(CAT_ZP),
    OTHER = CAT_BIT(CAT_CN) | CAT_BIT(CAT_CC) | CAT_BIT(CAT_CF) | CAT_BIT(CAT_CO) | CAT_BIT(CAT_CS),
    WORD = LETTER | MARK | CAT_BIT(CAT_ND) | CAT_BIT(CAT_NL) | CAT_BIT(CAT_PC),
    LAST_CODE_POINT = 0x10FFFF,
};

static const struct {
    uint32_t mask;
    const struct code_range *except;
    size_t n;
} SETS[] = {
    [SET_WORD] = {WORD, WORD_EXCEPT, COUNT(WORD_EXCEPT)},
    [SET_ONIG_WORD] = {WORD, ONIG_WORD_EXCEPT, COUNT(ONIG_WORD_EXCEPT)},
    [SET_PUNCT] = {PUNCT, PUNCT_EXCEPT, COUNT(PUNCT_EXCEPT)},
    [SET_DIGIT] = {NUMBER, DIGIT_EXCEPT, COUNT(DIGIT_EXCEPT)},
    [SET_MARK] = {MARK, MARK_EXCEPT, COUNT(MARK_EXCEPT)},
    [SET_BERT_MARK] = {CAT_BIT(CAT_MN), BERT_MARK_EXCEPT, COUNT(BERT_MARK_EXCEPT)},
    [SET_BERT_GONE] = {CAT_BIT(CAT_CC) | CAT_BIT(CAT_CF) | CAT_BIT(CAT_CO), BERT_GONE_EXCEPT,
                       COUNT(BERT_GONE_EXCEPT)},
    [SET_NEVER_DECOMPOSED] = {0, NEVER_DECOMPOSED, COUNT(NEVER_DECOMPOSED)},
};

/* Index of the run of CATEGORY_RUNS that cp is in. */
static size_t run_of(uint32_t cp)
{
    size_t lo = 0, hi = COUNT(CATEGORY_RUNS);
    while (hi - lo > 1) {
        size_t mid = (lo + hi) / 2;
        if (CATEGORY_RUNS[mid] >> 5 <= cp)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

static enum unicode_category category_in(uint32_t run, uint32_t cp)
{
    uint32_t category = run & 31;
    if (category == CAT_ALTERNATING)
        return (cp - (run >> 5)) % 2 ? CAT_LL : CAT_LU;
    return (enum unicode_category)category;
}

enum unicode_category unicode_category(uint32_t cp)
{
    return category_in(CATEGORY_RUNS[run_of(cp)], cp);
}

uint32_t unicode_category_mask(const char *name, size_t n)
{
    static const struct {
        const char *name;
        uint32_t mask;
    } NAMES[] = {
        {"L", LETTER},
        {"M", MARK},
        {"N", NUMBER},
        {"P", PUNCT},
        {"S", SYMBOL},
        {"Z", SEPARATOR},
        {"C", OTHER},
        {"Lu", CAT_BIT(CAT_LU)},
        {"Ll", CAT_BIT(CAT_LL)},
        {"Lt", CAT_BIT(CAT_LT)},
        {"Lm", CAT_BIT(CAT_LM)},
        {"Lo", CAT_BIT(CAT_LO)},
        {"Mn", CAT_BIT(CAT_MN)},
        {"Mc", CAT_BIT(CAT_MC)},
        {"Me", CAT_BIT(CAT_ME)},
        {"Nd", CAT_BIT(CAT_ND)},
        {"Nl", CAT_BIT(CAT_NL)},
        {"No", CAT_BIT(CAT_NO)},
        {"Pc", CAT_BIT(CAT_PC)},
        {"Pd", CAT_BIT(CAT_PD)},
        {"Ps", CAT_BIT(CAT_PS)},
        {"Pe", CAT_BIT(CAT_PE)},
        {"Pi", CAT_BIT(CAT_PI)},
        {"Pf", CAT_BIT(CAT_PF)},
        {"Po", CAT_BIT(CAT_PO)},
        {"Sm", CAT_BIT(CAT_SM)},
        {"Sc", CAT_BIT(CAT_SC)},
        {"Sk", CAT_BIT(CAT_SK)},
        {"So", CAT_BIT(CAT_SO)},
        {"Zs", CAT_BIT(CAT_ZS)},
        {"Zl", CAT_BIT(CAT_ZL)},
        {"Zp", CAT_BIT(CAT_ZP)},
        {"Cc", CAT_BIT(CAT_CC)},
        {"Cf", CAT_BIT(CAT_CF)},
        {"Co", CAT_BIT(CAT_CO)},
        {"Cn", CAT_BIT(CAT_CN)},
    };
    for (size_t i = 0; i < COUNT(NAMES); i++)
        if (strlen(NAMES[i].name) == n && memcmp(NAMES[i].name, name, n) == 0)
            return NAMES[i].mask;
    return 0;
}

bool unicode_in_set(enum unicode_set set, uint32_t cp)
{
    if (set == SET_SPACE)
        return unicode_class(cp) == UNICODE_SPACE;
    bool base = SETS[set].mask && (SETS[set].mask >> unicode_category(cp) & 1);
    return base != unicode_in_ranges(SETS[set].except, SETS[set].n, cp);
}

static bool is_member(enum unicode_set set, uint32_t mask, uint32_t cp)
{
    return set == SET_CATEGORIES ? mask >> unicode_category(cp) & 1 : unicode_in_set(set, cp);
}

/* The next code point above cp where membership may change. */
static uint32_t next_edge(enum unicode_set set, uint32_t cp)
{
    if (set == SET_SPACE)
        return cp < 0x3001 ? cp + 1 : LAST_CODE_POINT + 1; /* none above U+3000 */
    size_t run = run_of(cp);
    if ((CATEGORY_RUNS[run] & 31) == CAT_ALTERNATING)
        return cp + 1;
    uint32_t edge =
        run + 1 < COUNT(CATEGORY_RUNS) ? CATEGORY_RUNS[run + 1] >> 5 : LAST_CODE_POINT + 1;
    for (size_t i = 0; set != SET_CATEGORIES && i < SETS[set].n; i++) {
        const struct code_range *r = &SETS[set].except[i];
        uint32_t change = r->first > cp ? r->first : r->last + 1;
        if (change > cp && change < edge)
            edge = change;
    }
    return edge;
}

bool unicode_set_next(enum unicode_set set, uint32_t mask, uint32_t *first, uint32_t *last)
{
    uint32_t cp = *first;
    while (cp <= LAST_CODE_POINT && !is_member(set, mask, cp))
        cp = next_edge(set, cp);
    if (cp > LAST_CODE_POINT)
        return false;
    *first = cp;
    while (cp <= LAST_CODE_POINT && is_member(set, mask, cp))
        cp = next_edge(set, cp);
    *last = cp - 1;
    return true;
}

size_t unicode_lower_reference(uint32_t cp, uint32_t out[3])
{
    for (size_t i = 0; cp >= 0x1C89 && i < COUNT(LOWER_NEWER); i++)
        if (cp >= LOWER_NEWER[i].first && cp <= LOWER_NEWER[i].last) {
            out[0] = (uint32_t)((int32_t)cp + LOWER_NEWER[i].delta);
            return 1;
        }
    return unicode_lower(cp, out);
}
