#include "text/grammar_scan.h"
struct ir *regex_parse(struct ir_builder *b, const char *text, size_t n)
{
    return ir_fail(b, ERR_CONFIG, "this kind of grammar is not supported");
}
struct ir *choice_parse(struct ir_builder *b, const char *text, size_t n)
{
    return ir_fail(b, ERR_CONFIG, "this kind of grammar is not supported");
}
struct ir *json_schema_parse(struct ir_builder *b, const char *text, size_t n)
{
    return ir_fail(b, ERR_CONFIG, "this kind of grammar is not supported");
}
