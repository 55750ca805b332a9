/* json_grammar.h - the parts of JSON that schemas and json_object are made of. Inside of text/ only.
 *
 * White space: models may write JSON compactly, with one space, or over lines with indentation, but not without end: after
 * "{", "[", "," and ":" and before "}" and "]" there may be one space, or one line end and up to JSON_INDENT spaces or tabs.
 */
#ifndef EXA_TEXT_JSON_GRAMMAR_H
#define EXA_TEXT_JSON_GRAMMAR_H

#include "text/grammar_ir.h"

enum { JSON_INDENT = 32 };

/* Rules that are made once a grammar, when they are first needed. */
struct json_rules {
    struct ir_builder *b;
    uint32_t space, string, number, value; /* rule + 1; 0: not made yet */
};

struct ir *json_ir_space(struct json_rules *j);
struct ir *json_ir_string(struct json_rules *j); /* any string */
struct ir *json_ir_char(struct json_rules *j); /* one character inside a string, in any spelling */
struct ir *json_ir_number(struct json_rules *j); /* any number */
struct ir *json_ir_value(struct json_rules *j);  /* anything */
struct ir *json_ir_any_object(struct json_rules *j);
struct ir *json_ir_any_array(struct json_rules *j);
/* "{" members "}", "[" items "]": `inside` with white space around; empty: also nothing. */
struct ir *json_ir_braces(struct json_rules *j, const char *open, struct ir *inside, bool empty,
                          const char *close);
/* One character of the set inside a string, in its plain spelling: escaped only where it must be (as Python's json.dumps with
 * ensure_ascii=False writes it). */
struct ir *json_ir_spell(struct ir_builder *b, struct cp_set set);
/* The string `text` with its quotes, in its plain spelling. */
struct ir *json_ir_literal(struct ir_builder *b, const char *text, size_t n);
struct ir *json_ir_comma(struct json_rules *j); /* with the white space after it */
struct ir *json_ir_member(struct json_rules *j, struct ir *key, struct ir *value);

#endif
