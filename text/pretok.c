/* pretok.c - see pretok.h. */
#include "text/pretok.h"

#include "text/unicode.h"
#include "text/unicode_set.h"
#include "text/utf8.h"

#include <string.h>

#define CONTRACTIONS "'s|'t|'re|'ve|'m|'ll|'d"
#define WORD         "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define UPPER        "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER        "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define NO_LETTER    "[^\\r\\n\\p{L}\\p{N}]?"
#define TAIL         "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define FOLDED       "(?i:" CONTRACTIONS ")"

const char PRETOK_GPT2[] =
    CONTRACTIONS "| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
static const char LLAMA3[] = FOLDED "|" WORD "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" TAIL;
static const char QWEN2[] = FOLDED "|" WORD "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" TAIL;
static const char TEKKEN[] = NO_LETTER UPPER "*" LOWER "+|" NO_LETTER UPPER "+" LOWER
                                             "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" TAIL;
static const char GPT4O[] =
    NO_LETTER UPPER "*" LOWER "+" FOLDED "?|" NO_LETTER UPPER "+" LOWER "*" FOLDED
                    "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" TAIL;
/* cl100k as tiktoken and some files write it: the same language. */
static const char CL100K[] =
    FOLDED "|" WORD "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+";

static const char DEEPSEEK3_DIGITS[] = "\\p{N}{1,3}";
static const char DEEPSEEK3_CJK[] = "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F"
                                    "\xE3\x82\xA0-\xE3\x83\xBF]+";
static const char DEEPSEEK3_REST[] =
    "[!\"#$%&'()*+,\\-./"
    ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
    " ?[\\p{P}\\p{S}]+[\\r\\n]*" TAIL;

static const struct {
    const char *expression;
    struct pretok_rules rules;
} KNOWN[] = {
    {PRETOK_GPT2, {.contraction = CONTRACTION_LOWER, .gpt2 = true}},
    {LLAMA3, {.contraction = CONTRACTION_FOLD, .digits = 3}},
    {QWEN2, {.contraction = CONTRACTION_FOLD, .digits = 1}},
    {TEKKEN, {.cased = true, .slash = true, .digits = 1}},
    {GPT4O, {.contraction = CONTRACTION_SUFFIX, .cased = true, .slash = true, .digits = 3}},
};

const struct pretok_rules *pretok_find(const char *expression, size_t n)
{
    for (size_t i = 0; i < sizeof KNOWN / sizeof KNOWN[0]; i++)
        if (strlen(KNOWN[i].expression) == n && memcmp(KNOWN[i].expression, expression, n) == 0)
            return &KNOWN[i].rules;
    return NULL;
}

const struct pretok_preset *pretok_preset(const char *name)
{
    static const struct pretok_preset PRESETS[] = {
        {"gpt-2", false, false, {PRETOK_GPT2}},
        {"gpt2", false, false, {PRETOK_GPT2}},
        {"default", false, false, {PRETOK_GPT2}},
        {"phi-2", false, false, {PRETOK_GPT2}},
        {"olmo", false, false, {PRETOK_GPT2}},
        {"jina-v2-en", false, false, {PRETOK_GPT2}},
        {"smollm", true, false, {PRETOK_GPT2}},
        {"starcoder", true, false, {PRETOK_GPT2}},
        {"refact", true, false, {PRETOK_GPT2}},
        {"command-r", true, false, {PRETOK_GPT2}},
        {"codeshell", true, false, {PRETOK_GPT2}},
        {"llama-bpe", false, true, {LLAMA3}},
        {"llama3", false, true, {LLAMA3}},
        {"llama-v3", false, true, {LLAMA3}},
        {"smaug-bpe", false, false, {LLAMA3}},
        {"dbrx", false, false, {LLAMA3}},
        {"qwen2", false, false, {QWEN2}},
        {"deepseek-r1-qwen", false, false, {QWEN2}},
        {"stablelm2", false, false, {QWEN2}},
        {"megrez", false, false, {QWEN2}},
        {"tekken", false, true, {TEKKEN}},
        {"pixtral", false, true, {TEKKEN}},
        {"gpt-4o", false, false, {GPT4O}},
        {"llama4", false, false, {GPT4O}},
        {"chatglm-bpe", false, false, {CL100K}},
        {"deepseek-v3", false, false, {DEEPSEEK3_DIGITS, DEEPSEEK3_CJK, DEEPSEEK3_REST}},
    };
    for (size_t i = 0; i < sizeof PRESETS / sizeof PRESETS[0]; i++)
        if (strcmp(name, PRESETS[i].name) == 0)
            return &PRESETS[i];
    return NULL;
}

/* ---- characters ---- */

enum { O = UNICODE_OTHER, L = UNICODE_LETTER, N = UNICODE_NUMBER, S = UNICODE_SPACE };
static const uint8_t ASCII[128] = {
    O, O, O, O, O, O, O, O, O, S, S, S, S, S, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O,
    S, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, N, N, N, N, N, N, N, N, N, N, O, O, O, O, O, O,
    O, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O,
    O, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O,
};

/* Class and length of the character at p. */
static inline uint8_t class_at(const char *p, size_t *len)
{
    if ((uint8_t)*p < 0x80) {
        *len = 1;
        return ASCII[(uint8_t)*p];
    }
    uint32_t cp;
    *len = utf8_next(p, &cp);
    return (uint8_t)unicode_class(cp);
}

/* From byte `at` to the end of the run of class c that may be there. */
static size_t run_end(const char *p, size_t n, size_t at, uint8_t c)
{
    size_t len;
    while (at < n && class_at(p + at, &len) == c)
        at += len;
    return at;
}

static size_t newlines_end(const char *p, size_t n, size_t at, bool slash)
{
    while (at < n && (p[at] == '\r' || p[at] == '\n' || (slash && p[at] == '/')))
        at++;
    return at;
}

/* ---- parts of expressions ---- */

static size_t contraction(const char *p, size_t n, bool fold)
{
    if (n < 2 || p[0] != '\'')
        return 0;
    char a = fold ? (char)(p[1] | 32) : p[1];
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    if (fold && n >= 3 && (uint8_t)p[1] == 0xC5 && (uint8_t)p[2] == 0xBF) /* the long s */
        return 3;
    if (n < 3)
        return 0;
    char b = fold ? (char)(p[2] | 32) : p[2];
    return ((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* \s*[\r\n]+ (unless gpt2), else \s+(?!\S), else \s+: p begins with white space. */
static size_t space_run(const struct pretok_rules *r, const char *p, size_t n)
{
    size_t end = run_end(p, n, 0, UNICODE_SPACE);
    for (size_t at = end; !r->gpt2 && at > 0; at--)
        if (p[at - 1] == '\r' || p[at - 1] == '\n')
            return at;
    if (end == n)
        return end;
    size_t last = end - 1; /* the last one is left to what follows */
    while (((uint8_t)p[last] & 0xC0) == 0x80)
        last--;
    return last ? last : end;
}

static size_t number(const struct pretok_rules *r, const char *p, size_t n)
{
    size_t at = 0, len;
    for (unsigned k = 0; at < n && (!r->digits || k < r->digits); k++) {
        if (class_at(p + at, &len) != UNICODE_NUMBER)
            break;
        at += len;
    }
    return at;
}

enum { UPPER_BIT = 1, LOWER_BIT = 2 };

/* Which of the two classes of a cased word the character at p is in. */
static unsigned case_of(const char *p, size_t *len)
{
    if ((uint8_t)*p < 0x80) {
        *len = 1;
        return *p >= 'A' && *p <= 'Z' ? UPPER_BIT : *p >= 'a' && *p <= 'z' ? LOWER_BIT : 0;
    }
    uint32_t cp;
    *len = utf8_next(p, &cp);
    uint32_t bit = CAT_BIT(unicode_category(cp));
    enum {
        BOTH =
            CAT_BIT(CAT_LM) | CAT_BIT(CAT_LO) | CAT_BIT(CAT_MN) | CAT_BIT(CAT_MC) | CAT_BIT(CAT_ME)
    };
    return (bit & (BOTH | CAT_BIT(CAT_LU) | CAT_BIT(CAT_LT)) ? UPPER_BIT : 0u) |
           (bit & (BOTH | CAT_BIT(CAT_LL)) ? LOWER_BIT : 0u);
}

/* UPPER*LOWER+ from `at`: its end, or 0. *upper: the end of the first run. */
static size_t word_lower(const char *p, size_t n, size_t at, size_t *upper)
{
    size_t len, both_end = 0;
    while (at < n) {
        unsigned c = case_of(p + at, &len);
        if (!(c & UPPER_BIT))
            break;
        at += len;
        if (c & LOWER_BIT)
            both_end = at; /* where the second run may begin when nothing smaller follows */
    }
    *upper = at;
    size_t end = at;
    while (end < n && case_of(p + end, &len) & LOWER_BIT)
        end += len;
    return end > at ? end : both_end;
}

/* Both alternatives of a cased word, each with and without the character before it. */
static size_t word_cased(const struct pretok_rules *r, const char *p, size_t n)
{
    size_t len, upper[2] = {0, 0}, from[2] = {0, 0}, end = 0;
    uint8_t c = class_at(p, &len);
    bool prefix = c != UNICODE_LETTER && c != UNICODE_NUMBER && *p != '\r' && *p != '\n';
    from[0] = prefix ? len : 0;
    for (int i = prefix ? 0 : 1; i < 2 && !end; i++)
        end = word_lower(p, n, from[i], &upper[i]);
    for (int i = prefix ? 0 : 1; i < 2 && !end; i++)
        end = upper[i] > from[i] ? upper[i] : 0;
    if (end && r->contraction == CONTRACTION_SUFFIX)
        end += contraction(p + end, n - end, true);
    return end;
}

static size_t word(const struct pretok_rules *r, const char *p, size_t n)
{
    if (r->cased)
        return word_cased(r, p, n);
    size_t len;
    uint8_t c = class_at(p, &len);
    if (c == UNICODE_LETTER)
        return run_end(p, n, len, UNICODE_LETTER);
    if (c == UNICODE_NUMBER || *p == '\r' || *p == '\n' || len == n)
        return 0;
    size_t end = run_end(p, n, len, UNICODE_LETTER);
    return end > len ? end : 0;
}

static size_t next_gpt2(const struct pretok_rules *r, const char *p, size_t n)
{
    size_t len, at = p[0] == ' ' && n > 1;
    uint8_t c = class_at(p + at, &len);
    if (c == UNICODE_SPACE)
        return space_run(r, p, n);
    return run_end(p, n, at + len, c);
}

size_t pretok_next(const struct pretok_rules *r, const char *p, size_t n)
{
    if (*p == '\'' && (r->contraction == CONTRACTION_LOWER || r->contraction == CONTRACTION_FOLD)) {
        size_t short_form = contraction(p, n, r->contraction == CONTRACTION_FOLD);
        if (short_form)
            return short_form;
    }
    if (r->gpt2)
        return next_gpt2(r, p, n);
    size_t end = word(r, p, n);
    if (!end)
        end = number(r, p, n);
    if (end)
        return end;
    size_t at = p[0] == ' ';
    end = run_end(p, n, at, UNICODE_OTHER);
    return end > at ? newlines_end(p, n, end, r->slash) : space_run(r, p, n);
}
