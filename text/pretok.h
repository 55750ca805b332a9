/* pretok.h - expressions that published byte-level BPE models cut text by, scanned by hand.
 *
 * Each covers a text without gaps, so a scanner only says where the first piece ends. All are of two families: GPT-2's
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * and that of cl100k, whose parts vary (struct pretok_rules). An expression is known by its exact text, so what is not meant is
 * never taken for it; any other goes to text/regex.h. How to add one: docs/internals/tokenizers.md.
 */
#ifndef EXA_TEXT_PRETOK_H
#define EXA_TEXT_PRETOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pretok_contraction {
    CONTRACTION_NONE,
    CONTRACTION_LOWER,  /* 's|'t|'re|'ve|'m|'ll|'d */
    CONTRACTION_FOLD,   /* (?i:…) */
    CONTRACTION_SUFFIX, /* (?i:…)? behind a word */
};

struct pretok_rules {
    enum pretok_contraction contraction;
    bool
        gpt2; /* " ?" before words and numbers; else a word takes [^\r\n\p{L}\p{N}]? and a number nothing */
    bool cased;     /* a word is capitals, then small letters, with marks */
    bool slash;     /* [\r\n/]* behind punctuation */
    uint8_t digits; /* most in one number; 0: any */
};

/* The scanner of this expression, or NULL. */
const struct pretok_rules *pretok_find(const char *expression, size_t n);
/* Bytes of the first piece of text[n], valid UTF-8, n > 0. */
size_t pretok_next(const struct pretok_rules *r, const char *text, size_t n);

/* GGUF's tokenizer.ggml.pre: which expressions a model of this name cuts by, one after the other. */
struct pretok_preset {
    const char *name;
    bool digits;               /* every digit alone first */
    bool ignore_merges;        /* a piece that is a token stays whole */
    const char *expression[3]; /* NULL: the ones before are all */
};
const struct pretok_preset *pretok_preset(const char *name); /* NULL: not known here */
extern const char PRETOK_GPT2[];

#endif
