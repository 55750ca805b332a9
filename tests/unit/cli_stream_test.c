/* cli_stream_test.c - the event stream of an answer, in any cut; and the option table. */
#include "cli/chat_stream.h"
#include "cli/opt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka needs these before it */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

struct seen {
    char text[512];
    int stop_at; /* fail at this event; 0: never */
    int n;
};

static int event(void *ctx, const char *payload, size_t n, struct err *e)
{
    struct seen *s = ctx;
    size_t at = strlen(s->text);
    assert_int_equal(strnlen(payload, n + 1) >= n, 1);
    snprintf(s->text + at, sizeof s->text - at, "<%.*s>", (int)n, payload);
    s->n++;
    return s->n == s->stop_at ? err_set(e, ERR_PROTO, "event %d", s->n) : 0;
}

static const char STREAM[] = ": comment\n\n"
                             "event: x\nid: 1\ndata: one\n\n"
                             "data:two\r\n\r\n"
                             "data: \n\n"
                             "data:  three\n\n"
                             "datax: no\ndata\n"
                             "data: [DONE]\n\n"
                             "data: late\n\n";

static void any_cut_gives_the_same(void **state)
{
    for (size_t step = 1; step < sizeof STREAM; step++) {
        struct sse s;
        struct seen got = {.text = ""};
        sse_init(&s);
        for (size_t at = 0; at < sizeof STREAM - 1; at += step) {
            size_t n = sizeof STREAM - 1 - at < step ? sizeof STREAM - 1 - at : step;
            assert_int_equal(sse_feed(&s, STREAM + at, n, event, &got, NULL), 0);
        }
        assert_string_equal(got.text, "<one><two><>< three>");
        assert_true(s.done);
        sse_fini(&s);
    }
}

static void faults_are_handed_back(void **state)
{
    struct sse s;
    struct err e = ERR_INIT;
    struct seen got = {.text = "", .stop_at = 2};
    sse_init(&s);
    assert_int_equal(sse_feed(&s, STREAM, sizeof STREAM - 1, event, &got, &e), ERR_PROTO);
    assert_string_equal(e.text, "event 2");
    sse_fini(&s);
}

static void a_line_has_an_end(void **state)
{
    struct sse s;
    struct err e = ERR_INIT;
    struct seen got = {.text = ""};
    char block[65536];
    memset(block, 'x', sizeof block);
    sse_init(&s);
    int rc = 0;
    for (int i = 0; i < 64 && !rc; i++)
        rc = sse_feed(&s, block, sizeof block, event, &got, &e);
    assert_int_equal(rc, ERR_LIMIT);
    assert_true(s.line.cap <= 4 << 20);
    sse_fini(&s);
}

struct values {
    bool flag;
    const char *text;
    uint64_t number;
    double real;
    const char *operand[OPT_MAX_OPERANDS];
};

static int parse(struct values *v, const char *a, const char *b, const char *c, const char *d)
{
    static const struct command COMMAND = {
        .name = "test", .operands = "[X]", .max_operands = 1, .details = ""};
    const struct opt opts[] = {
        {"flag", 'f', OPT_FLAG, .value = &v->flag, .help = ""},
        {"text", 't', OPT_TEXT, "T", &v->text, .help = ""},
        {"number", 'n', OPT_UINT, "N", &v->number, 3, 9, ""},
        {"real", 0, OPT_NUMBER, "R", &v->real, 0, 2, ""},
        {.name = NULL},
    };
    char *argv[] = {(char *)"test", (char *)a, (char *)b, (char *)c, (char *)d, NULL};
    int argc = 1;
    while (argv[argc])
        argc++;
    *v = (struct values){.text = "preset", .number = 1, .real = 1};
    return opt_parse(&COMMAND, opts, argc, argv, v->operand);
}

static void options_are_read(void **state)
{
    struct values v;
    assert_int_equal(parse(&v, NULL, NULL, NULL, NULL), OPT_GO_ON);
    assert_string_equal(v.text, "preset");
    assert_int_equal(v.number, 1);
    assert_null(v.operand[0]);
    assert_int_equal(parse(&v, "x", "--flag", "--text=a=b", "-n7"), OPT_GO_ON);
    assert_string_equal(v.operand[0], "x");
    assert_true(v.flag);
    assert_string_equal(v.text, "a=b");
    assert_int_equal(v.number, 7);
    assert_int_equal(parse(&v, "-t", "--flag", "--real", "0.5"), OPT_GO_ON);
    assert_string_equal(v.text, "--flag"); /* a value may look like an option */
    assert_false(v.flag);
    assert_true(v.real == 0.5);
    assert_int_equal(parse(&v, "--", "--flag", NULL, NULL), OPT_GO_ON);
    assert_string_equal(v.operand[0], "--flag");
    assert_int_equal(parse(&v, "-", NULL, NULL, NULL), OPT_GO_ON);
    assert_string_equal(v.operand[0], "-");
    assert_int_equal(parse(&v, "--text=", NULL, NULL, NULL), OPT_GO_ON);
    assert_string_equal(v.text, "");
}

static void wrong_lines_are_refused(void **state)
{
    static const char *const LINES[][3] = {
        {"--number", "2"},
        {"--number", "10"},
        {"--number", "+5"},
        {"--number", " 5"},
        {"--number", "5x"},
        {"--number", ""},
        {"--number", "99999999999999999999"},
        {"--real", "nan"},
        {"--real", "inf"},
        {"--real", "2.1"},
        {"--real", ""},
        {"--number"},
        {"--nope"},
        {"-z"},
        {"--fla"},
        {"--flag=1"},
        {"-fx"},
        {"a", "b"},
        {"---flag"},
    };
    struct values v;
    for (size_t i = 0; i < sizeof LINES / sizeof LINES[0]; i++)
        assert_int_equal(parse(&v, LINES[i][0], LINES[i][1], LINES[i][2], NULL), EXIT_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_cut_gives_the_same),  cmocka_unit_test(faults_are_handed_back),
        cmocka_unit_test(a_line_has_an_end),       cmocka_unit_test(options_are_read),
        cmocka_unit_test(wrong_lines_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
