/* grammar_choice.c - a list of texts, of which one is said. */
#include "text/grammar_ir.h"

#include <jansson.h>

struct ir *choice_parse(struct ir_builder *b, const char *text, size_t n)
{
    json_error_t error;
    json_t *list = json_loadb(text, n, JSON_ALLOW_NUL | JSON_DECODE_ANY, &error), *item;
    struct ir_vec parts = {0};
    struct ir *x = NULL;
    size_t i;
    if (!list)
        return ir_fail(b, ERR_FORMAT, "choice: %s (line %d)", error.text, error.line);
    if (!json_is_array(list) || json_array_size(list) == 0)
        ir_fail(b, ERR_CONFIG, "choice: expected a list of texts, with at least one");
    json_array_foreach(list, i, item)
    {
        if (!json_is_string(item))
            ir_fail(b, ERR_CONFIG, "choice: entry %zu is not a text", i);
        else
            ir_push(b, &parts, ir_bytes(b, json_string_value(item), json_string_length(item)));
    }
    if (!b->rc)
        x = ir_list(b, IR_ALT, parts.kids, parts.n);
    json_decref(list);
    return x;
}
