/* regex_grammar.h - regular expressions as expressions of a grammar: the subset that Python's re and ECMA-262 share.
 *
 *   characters, . (all but the line end), [class] [^class] with ranges, (group) (?:…) (?<name>…) (?P<name>…), |, * + ? {m} {m,}
 *   {m,n} {,n} and their lazy forms (the same language), ^ $ \A \Z at the ends of the expression or of an alternative there
 *   escapes: \d \w \s \D \W \S (ASCII, as re.ASCII), \n \r \t \f \v \0 \xHH \uHHHH \u{H…} \UHHHHHHHH, and any punctuation
 *
 * Refused by name (ERR_CONFIG), because they are not regular or differ between the dialects: back-references, look-around,
 * word boundaries, possessive and atomic groups, flags, conditions, Unicode properties.
 */
#ifndef EXA_TEXT_REGEX_GRAMMAR_H
#define EXA_TEXT_REGEX_GRAMMAR_H

#include "text/grammar_ir.h"

struct regex_form {
    const char *what; /* begins messages */
    bool search;      /* a match anywhere in the text; else all of it must match */
    /* How a character set is written in the text; NULL: as it is. */
    struct ir *(*spell)(struct ir_builder *b, struct cp_set set);
};
struct ir *regex_build(struct ir_builder *b, const struct regex_form *form, const char *text,
                       size_t n);

#endif
