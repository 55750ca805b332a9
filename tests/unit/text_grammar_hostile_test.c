/* text_grammar_hostile_test.c - sources that are wrong, endless, exponential or huge: each is refused with a clear text (or
 * compiled within the limits), and none takes long or much memory. */
#include "tests/unit/grammar_support.h"

#include "base/clock.h"

#include <sys/resource.h>

struct hostile {
    enum grammar_kind kind;
    int code;         /* 0: may be compiled */
    const char *says; /* part of the message */
    const char *source;
};
#define SCHEMA GRAMMAR_JSON_SCHEMA
#define REGEX  GRAMMAR_REGEX
#define CHOICE GRAMMAR_CHOICE
#define GBNF   GRAMMAR_GBNF

static const struct hostile TABLE[] = {
    /* GBNF: endless */
    {GBNF, ERR_CONFIG, "\"root\" calls itself", "root ::= root \"a\" | \"a\""},
    {GBNF, ERR_CONFIG, "left recursion", "root ::= a\na ::= b \"x\"\nb ::= c | \"y\"\nc ::= a"},
    {GBNF, ERR_CONFIG, "left recursion", "root ::= n root \"a\" | \"a\"\nn ::= \"b\"? | [c]*"},
    {GBNF, ERR_CONFIG, "left recursion", "root ::= (\"\" root)+ \"x\" | \"y\""},
    {GBNF, ERR_CONFIG, "left recursion", "root ::= a\na ::= a"},
    {GBNF, ERR_CONFIG, "no text at all", "root ::= \"a\" root"},
    {GBNF, ERR_CONFIG, "no text at all", "root ::= [^\\x00-\\U0010FFFF]"},
    /* GBNF: wrong */
    {GBNF, ERR_FORMAT, "\"root\" is missing", ""},
    {GBNF, ERR_FORMAT, "\"root\" is missing", "a ::= \"b\""},
    {GBNF, ERR_FORMAT, "\"b\" is used but not defined", "root ::= b"},
    {GBNF, ERR_FORMAT, "defined twice", "root ::= \"a\"\nroot ::= \"b\""},
    {GBNF, ERR_FORMAT, "line 2, column 10: a literal has no closing quote",
     "root ::= x\nx ::=\"abc"},
    {GBNF, ERR_FORMAT, "no closing bracket", "root ::= [a-z"},
    {GBNF, ERR_FORMAT, "expected \")\"", "root ::= (\"a\" | (\"b\")"},
    {GBNF, ERR_FORMAT, "unknown escape", "root ::= \"\\q\""},
    {GBNF, ERR_FORMAT, "hexadecimal", "root ::= \"\\x4\""},
    {GBNF, ERR_FORMAT, "no character", "root ::= \"\\uD800\""},
    {GBNF, ERR_FORMAT, "runs backwards", "root ::= [z-a]"},
    {GBNF, ERR_FORMAT, "nothing before it", "root ::= * \"a\""},
    {GBNF, ERR_FORMAT, "expected {m}", "root ::= \"a\"{x}"},
    {GBNF, ERR_FORMAT, "the least is more", "root ::= \"a\"{3,2}"},
    {GBNF, ERR_FORMAT, "expected ::=", "root = \"a\""},
    {GBNF, ERR_CONFIG, "token references", "root ::= <think>"},
    {GBNF, ERR_LIMIT, "repetitions", "root ::= \"a\"{4000000000}"},
    {GBNF, ERR_LIMIT, "", "root ::= (((((((\"a\"{1,99}){1,99}){1,99}){1,99}){1,99}){1,99}){1,99})"},
    {GBNF, ERR_LIMIT, "too ambiguous",
     "root ::= a \"x\" | b \"x\"\na ::= c \"x\" | d \"x\"\nb ::= c \"y\" | d \"y\"\n"
     "c ::= e \"x\" | f \"x\"\nd ::= e \"y\" | f \"y\"\ne ::= g \"x\" | h \"x\"\nf ::= g \"y\" | h "
     "\"y\"\n"
     "g ::= i \"x\" | j \"x\"\nh ::= i \"y\" | j \"y\"\ni ::= k \"x\" | l \"x\"\nj ::= k \"y\" | l "
     "\"y\"\n"
     "k ::= m \"x\" | n \"x\"\nl ::= m \"y\" | n \"y\"\nm ::= o \"x\" | p \"x\"\nn ::= o \"y\" | p "
     "\"y\"\n"
     "o ::= \"(\" root \")\" | \"1\"\np ::= \"(\" root \")\" | \"2\""},
    /* regular expressions */
    {REGEX, 0, "", "(a*)*b"},
    {REGEX, 0, "", "(a|a)*"},
    {REGEX, 0, "", "(?:a?){60}a{60}"},
    {REGEX, 0, "", "(x+x+)+y"},
    {REGEX, ERR_LIMIT, "", "(?:(?:.{1,9999}){1,9999}){1,9999}"},
    {REGEX, ERR_FORMAT, "repetition is repeated", ".{1,9999}{1,9999}"},
    {REGEX, ERR_LIMIT, "automaton has more than", "(a|b)*a(a|b){24}"},
    {REGEX, ERR_LIMIT, "repetitions", "a{1000000}"},
    {REGEX, ERR_CONFIG, "back-references (\\1)", "(a)\\1"},
    {REGEX, ERR_CONFIG, "back-references", "(?P<x>a)(?P=x)"},
    {REGEX, ERR_CONFIG, "look-ahead", "(?=a)b"},
    {REGEX, ERR_CONFIG, "look-ahead", "(?!a)b"},
    {REGEX, ERR_CONFIG, "look-behind", "(?<=a)b"},
    {REGEX, ERR_CONFIG, "look-behind", "(?<!a)b"},
    {REGEX, ERR_CONFIG, "word boundaries", "\\bword\\b"},
    {REGEX, ERR_CONFIG, "flags", "(?i)abc"},
    {REGEX, ERR_CONFIG, "possessive", "a*+"},
    {REGEX, ERR_CONFIG, "atomic", "(?>a)"},
    {REGEX, ERR_CONFIG, "Unicode properties", "\\p{L}"},
    {REGEX, ERR_CONFIG, "anchor", "a^b"},
    {REGEX, ERR_FORMAT, "expected \")\"", "(a"},
    {REGEX, ERR_FORMAT, "closes nothing", "a)"},
    {REGEX, ERR_FORMAT, "no closing bracket", "[a"},
    {REGEX, ERR_FORMAT, "backslash ends", "a\\"},
    {REGEX, ERR_FORMAT, "surrogate", "\\ud800x"},
    {REGEX, ERR_FORMAT, "not UTF-8", "a\xFF"},
    /* choices */
    {CHOICE, ERR_CONFIG, "at least one", "[]"},
    {CHOICE, ERR_CONFIG, "entry 1 is not a text", "[\"a\", 1]"},
    {CHOICE, ERR_FORMAT, "choice:", "[\"a\""},
    {GRAMMAR_JSON_OBJECT, ERR_FORMAT, "no source", "{}"},
    /* schemas */
    {SCHEMA, ERR_FORMAT, "json schema:", "{"},
    {SCHEMA, ERR_FORMAT, "at #", "[]"},
    {SCHEMA, ERR_CONFIG, "no text at all", "false"},
    {SCHEMA, ERR_CONFIG, "no text at all",
     "{\"type\":\"object\",\"properties\":{\"a\":false},\"required\":[\"a\"]}"},
    {SCHEMA, ERR_CONFIG, "no text at all", "{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}"},
    {SCHEMA, ERR_CONFIG, "left recursion", "{\"$ref\":\"#\"}"},
    {SCHEMA, ERR_CONFIG, "left recursion",
     "{\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/$defs/a\"}},\"$ref\":\"#/"
     "$defs/a\"}"},
    {SCHEMA, ERR_CONFIG, "left recursion", "{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}"},
    {SCHEMA, ERR_LIMIT, "leads back to itself", "{\"$ref\":\"#\",\"minimum\":1}"},
    {SCHEMA, ERR_LIMIT, "nested deeper", "{\"allOf\":[{\"$ref\":\"#\"}]}"},
    {SCHEMA, ERR_LIMIT, "",
     "{\"$defs\":{\"a\":{\"properties\":{\"x\":{\"allOf\":[{\"$ref\":\"#/$defs/a\"},{\"$ref\":\"#/"
     "$defs/b\"}]}}},"
     "\"b\":{\"properties\":{\"x\":{\"allOf\":[{\"$ref\":\"#/$defs/b\"},{\"$ref\":\"#/$defs/"
     "a\"}]}}}},"
     "\"allOf\":[{\"$ref\":\"#/$defs/a\"},{\"$ref\":\"#/$defs/b\"}]}"},
    {SCHEMA, ERR_CONFIG, "no text at all",
     "{\"type\":\"object\",\"properties\":{\"next\":{\"$ref\":\"#\"}},\"required\":[\"next\"]}"},
    {SCHEMA, ERR_FORMAT, "names nothing", "{\"$ref\":\"#/nowhere\"}"},
    {SCHEMA, ERR_CONFIG, "only references into the schema", "{\"$ref\":\"https://example.org/x\"}"},
    {SCHEMA, ERR_CONFIG, "\"not\" is not supported", "{\"not\":{\"type\":\"null\"}}"},
    {SCHEMA, ERR_CONFIG, "at #/properties/a: the keyword \"if\"",
     "{\"properties\":{\"a\":{\"if\":{}}}}"},
    {SCHEMA, ERR_CONFIG, "\"maxLenght\"", "{\"type\":\"string\",\"maxLenght\":3}"},
    {SCHEMA, ERR_CONFIG, "uniqueItems", "{\"type\":\"array\",\"uniqueItems\":true}"},
    {SCHEMA, ERR_CONFIG, "multipleOf", "{\"type\":\"number\",\"multipleOf\":0.3}"},
    {SCHEMA, ERR_CONFIG, "format \"regex\"", "{\"type\":\"string\",\"format\":\"regex\"}"},
    {SCHEMA, ERR_CONFIG, "may both hold",
     "{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}"},
    {SCHEMA, ERR_CONFIG, "look-ahead", "{\"type\":\"string\",\"pattern\":\"^(?=a)\"}"},
    {SCHEMA, ERR_FORMAT, "no type", "{\"type\":\"text\"}"},
    {SCHEMA, ERR_FORMAT, "not a number of things", "{\"type\":\"string\",\"minLength\":-1}"},
    {SCHEMA, ERR_LIMIT, "maxLength", "{\"type\":\"string\",\"maxLength\":1e9}"},
    {SCHEMA, ERR_FORMAT, "\"enum\" is not a list", "{\"enum\":1}"},
    {SCHEMA, ERR_CONFIG, "no text at all", "{\"enum\":[]}"},
};
enum { N_HOSTILE = sizeof TABLE / sizeof *TABLE };

static long peak_kb(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

/* Far more than any needs, even with a sanitizer on a loaded machine: what is exponential does not end in it. */
enum { SECONDS = 60, MEGABYTES = 800 };

static void try_one(enum grammar_kind kind, const char *source, size_t n, int code,
                    const char *says, const char *shown)
{
    struct grammar *g = NULL;
    struct err e = ERR_INIT;
    struct grammar_limits limits = GRAMMAR_LIMITS;
    if (INSTRUMENTED) /* a step takes ten times as long */
        limits.max_work /= 8;
    uint64_t start = clock_now_us();
    int rc = grammar_create(&g, kind, source, n, &limits, &e);
    uint64_t us = clock_now_us() - start;
    if (getenv("EXASERVE_SHOW"))
        print_message("%8.1f ms %6ld MB %s %s\n", (double)us / 1e3, peak_kb() / 1024, shown,
                      e.text);
    grammar_unref(g);
    if (rc != code || !strstr(e.text, says))
        fail_msg("%s: %s \"%s\", expected %s with \"%s\"", shown, err_name(rc), e.text,
                 err_name(code), says);
    assert_true(us < SECONDS * 1000000ull);
    assert_true(INSTRUMENTED || peak_kb() < MEGABYTES * 1024);
}

static void test_table(void **state)
{
    assert_true(N_HOSTILE >= 40);
    for (int i = 0; i < N_HOSTILE; i++)
        try_one(TABLE[i].kind, TABLE[i].source, strlen(TABLE[i].source), TABLE[i].code,
                TABLE[i].says, TABLE[i].source);
}

/* ---- sources that are made ---- */

static void repeat(struct buf *b, const char *text, int n)
{
    for (int i = 0; i < n; i++)
        buf_puts(b, text);
}

static void many(struct buf *b, const char *fmt, int n)
{
    char line[256];
    for (int i = 0; i < n; i++) {
        snprintf(line, sizeof line, fmt, i, i + 1);
        buf_puts(b, line);
    }
}

static void try_made(enum grammar_kind kind, struct buf *b, int code, const char *says,
                     const char *shown)
{
    assert_true(buf_ok(b));
    try_one(kind, (const char *)b->data, b->len, code, says, shown);
    buf_reset(b);
}

static void test_made(void **state)
{
    struct buf b;
    buf_init(&b, 4 << 20);

    repeat(&b, "(", 500000);
    try_made(REGEX, &b, ERR_LIMIT, "nested deeper than", "500,000 parentheses");
    buf_puts(&b, "root ::= ");
    repeat(&b, "(", 500000);
    try_made(GBNF, &b, ERR_LIMIT, "nested deeper than", "500,000 parentheses in a rule");
    repeat(&b, "[", 500000);
    try_made(SCHEMA, &b, ERR_FORMAT, "", "500,000 brackets");
    repeat(&b, "{\"items\":", 2000);
    buf_puts(&b, "{}");
    repeat(&b, "}", 2000);
    try_made(SCHEMA, &b, ERR_LIMIT, "nested deeper than", "2,000 items in items");
    repeat(&b, "x", (1 << 20) + 1);
    try_made(REGEX, &b, ERR_LIMIT, "at most", "more than a megabyte");
    repeat(&b, "ab", 250000);
    try_made(REGEX, &b, ERR_LIMIT, "", "half a megabyte of letters");
    repeat(&b, "(?:a|b)?", 100000);
    try_made(REGEX, &b, ERR_LIMIT, "", "100,000 optional groups");
    many(&b, "x{0,%d}|", 3000);
    try_made(REGEX, &b, ERR_LIMIT, "", "3,000 long alternatives");

    buf_puts(&b, "root ::= r0\n");
    many(&b, "r%d ::= r%d r1 | \"x\"\n", 20000);
    try_made(GBNF, &b, ERR_LIMIT, "rules", "20,000 rules");
    buf_puts(&b, "root ::= r0\n");
    many(&b, "r%1$d ::= r%2$d r%2$d\n", 60);
    buf_puts(&b, "r60 ::= \"x\"\n");
    try_made(GBNF, &b, 0, "", "two to the 60th of one letter");
    buf_puts(&b, "root ::= r0\n");
    many(&b, "r%1$d ::= r%2$d? \"x\"\n", 8000);
    buf_puts(&b, "r8000 ::= \"x\"\n");
    try_made(GBNF, &b, 0, "", "a chain of 8,000 rules");
    buf_puts(&b, "root ::= \"a\"");
    repeat(&b, "*", 100000);
    try_made(GBNF, &b, ERR_LIMIT, "more than 8 repetitions", "100,000 stars");

    buf_puts(&b, "[\"a\"");
    many(&b, ",\"entry number %d of a list\"", 30000);
    buf_puts(&b, "]");
    try_made(CHOICE, &b, ERR_LIMIT, "", "a list of 30,000 texts");
    buf_puts(&b, "{\"enum\":[1");
    many(&b, ",\"value %d\"", 60000);
    buf_puts(&b, "]}");
    try_made(SCHEMA, &b, ERR_LIMIT, "", "an enum of 60,000 values");
    buf_puts(&b, "{\"properties\":{\"a\":{}");
    many(&b, ",\"p%d\":{\"type\":\"string\"}", 1000);
    buf_puts(&b, "}}");
    try_made(SCHEMA, &b, 0, "", "1,000 optional properties");
    buf_puts(&b, "{\"properties\":{\"a\":{}");
    many(&b, ",\"p%d\":{\"type\":\"string\"}", 25000);
    buf_puts(&b, "}}");
    try_made(SCHEMA, &b, ERR_LIMIT, "", "25,000 optional properties");
    buf_puts(&b, "{\"allOf\":[{}");
    many(&b, ",{\"properties\":{\"p%d\":{\"minimum\":%d}}}", 10000);
    buf_puts(&b, "]}");
    try_made(SCHEMA, &b, ERR_LIMIT, "", "10,000 schemas that must all hold");
    buf_puts(&b, "{\"oneOf\":[{\"const\":-1}");
    many(&b, ",{\"const\":%d}", 20000);
    buf_puts(&b, "]}");
    try_made(SCHEMA, &b, ERR_LIMIT, "", "20,000 exclusive alternatives");
    buf_puts(&b, "{\"type\":\"string\",\"maxLength\":100000,\"pattern\":\"^(a|b)*a(a|b){10}$\"}");
    try_made(SCHEMA, &b, ERR_LIMIT, "", "a pattern and 100,000 characters");
    buf_puts(&b, "{\"$ref\":\"#");
    repeat(&b, "/a", 200000);
    buf_puts(&b, "\"}");
    try_made(SCHEMA, &b, ERR_FORMAT, "names nothing", "a pointer of 200,000 parts");
    buf_fini(&b);
}

/* Two large schemas, named again and again: every merge copies and compares what grows. */
static void test_large_merges(void **state)
{
    struct buf b;
    buf_init(&b, 4 << 20);
    buf_puts(&b, "{\"$defs\":{\"a\":{\"required\":[\"a\"");
    many(&b, ",\"a%d\"", 30000);
    buf_puts(&b, "]},\"b\":{\"required\":[\"b\"");
    many(&b, ",\"b%d\"", 30000);
    buf_puts(&b, "]}},\"allOf\":[{}");
    many(&b, ",{\"$ref\":\"#/$defs/a\"},{\"$ref\":\"#/$defs/b\"}", 300);
    buf_puts(&b, "]}");
    try_made(SCHEMA, &b, ERR_LIMIT, "too complex", "two lists of 30,000 required names");

    buf_puts(&b, "{\"$defs\":{\"a\":{\"properties\":{\"a\":{}");
    many(&b, ",\"a%d\":{}", 30000);
    buf_puts(&b, "}},\"b\":{\"properties\":{\"b\":{}");
    many(&b, ",\"b%d\":{}", 30000);
    buf_puts(&b, "}}},\"allOf\":[{}");
    many(&b, ",{\"$ref\":\"#/$defs/a\"},{\"$ref\":\"#/$defs/b\"}", 300);
    buf_puts(&b, "]}");
    try_made(SCHEMA, &b, ERR_LIMIT, "too complex", "two objects of 30,000 properties");

    buf_puts(&b, "{\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\",\"minLength\":1");
    many(&b, ",\"x-%d\":0", 50000);
    buf_puts(&b, "},\"b\":{\"type\":\"string\"}},\"oneOf\":[{\"type\":\"null\"}");
    many(&b, ",{\"$ref\":\"#/$defs/a\"}", 300);
    buf_puts(&b, "]}");
    try_made(SCHEMA, &b, ERR_LIMIT, "too complex", "300 references to 50,000 annotations");

    buf_puts(&b, "{\"required\":[\"a\"");
    many(&b, ",\"a%d\"", 49000);
    buf_puts(&b, "]}");
    try_made(SCHEMA, &b, ERR_LIMIT, "too complex", "49,000 required names");

    buf_puts(&b, "{\"$defs\":{\"a\":{\"properties\":{\"a\":{}");
    many(&b, ",\"a%d\":{}", 30000);
    buf_puts(&b, "},\"required\":[\"a\"");
    many(&b, ",\"b%d\"", 30000);
    buf_puts(&b, "]}},\"oneOf\":[{\"type\":\"null\"}");
    many(&b, ",{\"$ref\":\"#/$defs/a\"}", 3);
    buf_puts(&b, "]}");
    try_made(SCHEMA, &b, ERR_LIMIT, "too complex", "objects that may exclude each other");
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table), cmocka_unit_test(test_made),
                                       cmocka_unit_test(test_large_merges)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
