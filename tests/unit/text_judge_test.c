/* text_judge_test.c - chat templates against Jinja2 itself: tests/tools/jinja_judge.py renders
 * every template of the fuzz corpus for several conversations, and the text, or the refusal,
 * must be the same here. */
#include "base/file.h"
#include "text/template.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>
#include <jansson.h>

static const char CORPUS[] = "tests/fuzz/corpus/text_template";
enum { MAX_MESSAGES = 32, MAX_OUT = 1 << 20 };

static json_t *judge(void)
{
    const char *python = access("/usr/bin/python3", X_OK) == 0 ? "/usr/bin/python3" : "python3";
    char command[256];
    snprintf(command, sizeof command, "TZ=UTC %s tests/tools/jinja_judge.py %s", python, CORPUS);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    json_error_t error;
    json_t *root = json_loadf(f, JSON_ALLOW_NUL, &error);
    int status = pclose(f);
    if (!root || status)
        fail_msg("%s: status %d, %s (is python3-jinja2 installed?)", command, status, error.text);
    return root;
}

struct rendered {
    int code;
    struct err e;
    struct buf out;
};

static void render(const json_t *c, struct rendered *r)
{
    struct buf source;
    buf_init(&source, 1 << 20);
    buf_init(&r->out, MAX_OUT);
    r->e = (struct err)ERR_INIT;
    r->code = file_read(json_string_value(json_object_get(c, "file")), &source, &r->e);
    assert_int_equal(r->code, 0);
    struct chat_message messages[MAX_MESSAGES];
    json_t *list = json_object_get(c, "messages"), *m;
    size_t i, n = json_array_size(list);
    json_array_foreach(list, i, m)
    {
        const json_t *content = json_object_get(m, "content");
        messages[i] =
            (struct chat_message){json_string_value(json_object_get(m, "role")),
                                  json_string_value(content), json_string_length(content)};
    }
    struct chat_template *t = NULL;
    r->code = chat_template_create(&t, (const char *)source.data, source.len, &r->e);
    if (r->code == 0)
        r->code = chat_template_render(t, messages, n, json_string_value(json_object_get(c, "bos")),
                                       json_string_value(json_object_get(c, "eos")),
                                       json_is_true(json_object_get(c, "add")), &r->out, &r->e);
    chat_template_destroy(t);
    buf_fini(&source);
}

/* "" when it is as Jinja has it, else what differs. */
static const char *difference(const json_t *c, struct rendered *r)
{
    const json_t *text = json_object_get(c, "text"), *error = json_object_get(c, "error");
    if (text) {
        if (r->code)
            return "failed, and should render";
        return r->out.len == json_string_length(text) &&
                       (r->out.len == 0 ||
                        memcmp(r->out.data, json_string_value(text), r->out.len) == 0)
                   ? ""
                   : "other text";
    }
    if (json_is_string(error))
        return r->code == ERR_CONFIG && strcmp(r->e.text, json_string_value(error)) == 0
                   ? ""
                   : "raise_exception expected";
    return r->code == ERR_FORMAT || r->code == ERR_LIMIT ? "" : "rendered, and should fail";
}

static void show_difference(const json_t *c, struct rendered *r, const char *what)
{
    const char *want = json_string_value(json_object_get(c, "text"));
    size_t at = 0;
    while (want && at < r->out.len && want[at] == (char)r->out.data[at])
        at++;
    print_error("%s, add=%d, %zu messages: %s\n  error %d: %s\n",
                json_string_value(json_object_get(c, "file")),
                json_is_true(json_object_get(c, "add")),
                json_array_size(json_object_get(c, "messages")), what, r->code, r->e.text);
    if (want && r->code == 0) {
        size_t from = at > 40 ? at - 40 : 0;
        print_error("  at byte %zu\n  want …%.100s\n  have …%.100s\n", at, want + from,
                    buf_cstr(&r->out) + from);
    }
}

static void test_same_as_jinja(void **state)
{
    json_t *root = judge(), *c;
    size_t i, bad = 0, rendered = 0, raised = 0;
    json_array_foreach(json_object_get(root, "cases"), i, c)
    {
        struct rendered r;
        render(c, &r);
        const char *what = difference(c, &r);
        if (*what && bad++ < 5)
            show_difference(c, &r, what);
        rendered += json_object_get(c, "text") != NULL;
        raised += json_is_string(json_object_get(c, "error"));
        buf_fini(&r.out);
    }
    print_message("%zu cases: %zu rendered, %zu refused by the template\n", i, rendered, raised);
    json_decref(root);
    assert_int_equal(bad, 0);
    assert_true(rendered >= 200 && raised >= 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_as_jinja)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
