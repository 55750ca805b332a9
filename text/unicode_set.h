/* unicode_set.h - general categories, and the sets of characters that the parts of the `tokenizers` library go by.
 *
 * Those parts follow different versions of Unicode; the pinned tables (text/unicode_set_tables.h) were asked of the library.
 */
#ifndef EXA_TEXT_UNICODE_SET_H
#define EXA_TEXT_UNICODE_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum unicode_category {
    CAT_CN,
    CAT_LU,
    CAT_LL,
    CAT_LT,
    CAT_LM,
    CAT_LO,
    CAT_MN,
    CAT_MC,
    CAT_ME,
    CAT_ND,
    CAT_NL,
    CAT_NO,
    CAT_PC,
    CAT_PD,
    CAT_PS,
    CAT_PE,
    CAT_PI,
    CAT_PF,
    CAT_PO,
    CAT_SM,
    CAT_SC,
    CAT_SK,
    CAT_SO,
    CAT_ZS,
    CAT_ZL,
    CAT_ZP,
    CAT_CC,
    CAT_CF,
    CAT_CO,
    CAT_CS,
    CAT_ALTERNATING, /* in the table only: Lu, Ll, Lu, … */
};
#define CAT_BIT(c) (1u << (c))

enum unicode_category unicode_category(uint32_t cp);
/* The bits of "L", "Lu", "N" …; 0: no such category. */
uint32_t unicode_category_mask(const char *name, size_t n);

enum unicode_set {
    SET_CATEGORIES, /* those of a mask */
    SET_SPACE,      /* white space: \s, char::is_whitespace */
    SET_WORD,       /* \w of Rust's expressions */
    SET_ONIG_WORD,  /* \w of Oniguruma */
    SET_PUNCT,      /* what the pre-tokenizers split at */
    SET_DIGIT,      /* what the pre-tokenizer Digits splits at */
    SET_MARK,       /* what StripAccents removes; only these have combining classes there */
    SET_BERT_MARK,
    SET_BERT_GONE, /* what BertNormalizer's clean_text removes */
    SET_NEVER_DECOMPOSED,
};
bool unicode_in_set(enum unicode_set set, uint32_t cp);

/* The first run of code points at or above *first that is in the set (of SET_CATEGORIES: in the mask): false when there is none. */
bool unicode_set_next(enum unicode_set set, uint32_t mask, uint32_t *first, uint32_t *last);

/* Small letters as the library's Lowercase has them: 1 or 2 code points. */
size_t unicode_lower_reference(uint32_t cp, uint32_t out[3]);

#endif
