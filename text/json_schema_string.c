/* json_schema_string.c - strings: lengths, patterns and formats. Patterned strings are written in plain spelling (json_ir_spell), so
 * that what the pattern says of characters can be said of the text. */
#include "text/json_schema.h"
#include "text/regex_grammar.h"

#include <string.h>

/* Month lengths count, and years that have a 29 February. */
#define DATE                                                                                       \
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-" \
    "9]"                                                                                           \
    "|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|"     \
    "[2468][048]|[13579][26])00)-02-29)"
#define TIME                                                                                       \
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):["  \
    "0-5][0-9])"
#define BYTE  "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4  BYTE "(?:\\." BYTE "){3}"
#define H16   "[0-9a-fA-F]{1,4}"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define HOST  LABEL "(?:\\." LABEL "){0,8}"
/* Mail domains: without the lengths, which cost states and are hardly ever met. */
#define LABELS "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
#define ATOM   "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"

static const struct {
    const char *name, *regex; /* NULL: says nothing about the text */
} FORMATS[] = {
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^(?:" DATE "T" TIME ")$"},
    {"duration",
     "^P(?:[0-9]+W|[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)$|^P(?:[0-9]+Y"
     "(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)?T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|"
     "[0-9]+M(?:[0-9]+S)?|[0-9]+S)$"},
    {"uuid", "^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"},
    {"ipv4", "^" IPV4 "$"},
    {"ipv6",
     "^(?:(?:" H16 ":){7}" H16 "|::(?:" H16 "(?::" H16 "){0,5})?|" H16 "::(?:" H16 "(?::" H16
     "){0,4})?|" H16 ":" H16 "::(?:" H16 "(?::" H16 "){0,3})?|(?:" H16 ":){2}" H16 "::(?:" H16
     "(?::" H16 "){0,2})?|(?:" H16 ":){3}" H16 "::(?:" H16 "(?::" H16 ")?)?)$"},
    {"hostname", "^" HOST "$"},
    {"email", "^" ATOM "(?:\\." ATOM ")*@" LABELS "(?:\\." LABELS ")+$"},
    {"uri", "^[A-Za-z][A-Za-z0-9+.-]{0,20}:(?://[A-Za-z0-9._~:@!$&'()*+,;=\\[\\]-]*(?:/"
            "[A-Za-z0-9._~:@!$&'()*+,"
            ";=%-]*)*|[A-Za-z0-9._~:@!$&'()*+,;=/-]+)(?:\\?[A-Za-z0-9._~:@!$&'()*+,;=/"
            "?-]*)?(?:#[A-Za-z0-9._~:@"
            "!$&'()*+,;=/?-]*)?$"},
    {"json-pointer", "^(?:/(?:[^~/]|~[01])*)*$"},
    {"byte", "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"},
    {"password", NULL},
    {"binary", NULL},
    {"int32", NULL},
    {"int64", NULL},
    {"float", NULL},
    {"double", NULL},
};

static struct ir *pattern(struct schema *c, const char *what, const char *text, size_t n)
{
    struct regex_form form = {.what = what, .search = true, .spell = json_ir_spell};
    return regex_build(c->b, &form, text, n);
}

/* x (NULL: anything so far) and the format's language; failed: NULL with rc set. */
static struct ir *with_format(struct schema *c, json_t *s, struct ir *x)
{
    json_t *format = json_object_get(s, "format");
    if (!format || c->b->rc)
        return x;
    const char *name = json_string_value(format);
    if (!name)
        return schema_fail(c, ERR_FORMAT, "\"format\" is not a text");
    for (size_t i = 0; i < sizeof FORMATS / sizeof *FORMATS; i++)
        if (strcmp(FORMATS[i].name, name) == 0) {
            const char *regex = FORMATS[i].regex;
            struct ir *f = regex ? pattern(c, "format", regex, strlen(regex)) : NULL;
            return !regex ? x : x ? ir_and(c->b, x, f) : f;
        }
    return schema_fail(c, ERR_CONFIG, "the format \"%.60s\" is not supported", name);
}

static struct ir *with_pattern(struct schema *c, json_t *p, struct ir *x)
{
    json_t *item;
    size_t i;
    if (json_is_array(p)) { /* made by merging */
        json_array_foreach(p, i, item)
        {
            x = with_pattern(c, item, x);
        }
        return x;
    }
    if (!json_is_string(p))
        return schema_fail(c, ERR_FORMAT, "\"pattern\" is not a text");
    char what[160];
    snprintf(what, sizeof what, "json schema, at #%.100s: pattern", buf_cstr(&c->path));
    struct ir *y = pattern(c, what, json_string_value(p), json_string_length(p));
    return x ? ir_and(c->b, x, y) : y;
}

struct ir *schema_string(struct schema *c, json_t *s)
{
    struct ir_builder *b = c->b;
    uint32_t least = 0, most = IR_INF;
    schema_count(c, s, "minLength", &least);
    schema_count(c, s, "maxLength", &most);
    json_t *p = json_object_get(s, "pattern");
    struct ir *inside = with_format(c, s, p ? with_pattern(c, p, NULL) : NULL);
    bool bounded = least > 0 || most != IR_INF;
    if (b->rc)
        return NULL;
    if (!inside && !bounded)
        return json_ir_string(&c->json);
    if (!inside)
        inside = ir_repeat(b, json_ir_char(&c->json), least, most);
    else if (bounded)
        inside = ir_and(b, inside,
                        ir_repeat(b, json_ir_spell(b, CP_SET(b, {0, 0x10FFFF})), least, most));
    return ir_seq(b, ir_text(b, "\""), inside, ir_text(b, "\""));
}
