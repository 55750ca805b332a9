/* text_judge_test.c - chat templates against Jinja2 itself: tests/tools/jinja_judge.py renders the
 * templates of the fuzz corpus, those that two Python packages publish (tests/tools/get_templates.sh),
 * and random ones from a seed. The text, or the refusal, must be the same here. */
#include "base/file.h"
#include "text/template.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { MAX_OUT = 1 << 20, MAX_SHOWN = 6 };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { RANDOM_CASES = 2000, PUBLISHED_STRIDE = 7 }; /* the same code, some ten times slower */
#else
enum { RANDOM_CASES = 12000, PUBLISHED_STRIDE = 1 };
#endif

static const char CORPUS[] = "corpus tests/fuzz/corpus/text_template";

static json_t *judge(const char *args)
{
    const char *python = access("/usr/bin/python3", X_OK) == 0 ? "/usr/bin/python3" : "python3";
    char command[512];
    snprintf(command, sizeof command,
             "TZ=UTC PYTHONDONTWRITEBYTECODE=1 %s -W ignore tests/tools/jinja_judge.py %s", python,
             args);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    json_error_t error;
    json_t *root = json_loadf(f, JSON_ALLOW_NUL, &error);
    int status = pclose(f);
    if (!root || status)
        fail_msg("%s: status %d, %s (is python3-jinja2 installed?)", command, status, error.text);
    return root;
}

/* The template of the case before is kept: many cases share one. */
struct judged {
    struct chat_template *tmpl;
    char *source;
    struct buf text; /* of the file */
    int code;
    struct err e;
    struct buf out;
    size_t bad, rendered, raised, limited, n;
};

static void load(struct judged *j, const json_t *c)
{
    const char *file = json_string_value(json_object_get(c, "file"));
    const char *source = json_string_value(json_object_get(c, "source"));
    const char *key = file ? file : source;
    size_t n = json_string_length(json_object_get(c, "source"));
    j->e = (struct err)ERR_INIT;
    if (j->source && strcmp(j->source, key) == 0)
        return;
    chat_template_destroy(j->tmpl);
    j->tmpl = NULL;
    free(j->source);
    j->source = NULL;
    buf_reset(&j->text);
    if (file) {
        assert_int_equal(file_read(file, &j->text, &j->e), 0);
        source = (const char *)j->text.data;
        n = j->text.len;
    }
    j->code = chat_template_create(&j->tmpl, source ? source : "", n, &j->e);
    if (j->code == 0)
        j->source = strdup(key);
}

static void render(struct judged *j, const json_t *c, const json_t *in, int64_t now)
{
    load(j, c);
    buf_reset(&j->out);
    if (!j->tmpl)
        return;
    json_t *given = json_object_get(in, "kwargs"), *more = json_object_get(c, "kwargs");
    json_t *kwargs = given ? json_copy(given) : json_object();
    if (more)
        json_object_update(kwargs, more);
    struct chat_inputs inputs = {
        .messages = json_object_get(in, "messages"),
        .tools = json_object_get(in, "tools"),
        .documents = json_object_get(in, "documents"),
        .kwargs = kwargs,
        .bos = json_string_value(json_object_get(in, "bos_token")),
        .eos = json_string_value(json_object_get(in, "eos_token")),
        .add_generation_prompt = json_is_true(json_object_get(in, "add_generation_prompt")),
        .now_s = now,
    };
    j->code = chat_template_render_inputs(j->tmpl, &inputs, &j->out, &j->e);
    json_decref(kwargs);
}

/* "" when it is as Jinja has it, else what differs. */
static const char *difference(struct judged *j, const json_t *c, bool is_random)
{
    const json_t *text = json_object_get(c, "text"), *error = json_object_get(c, "error");
    if (text) {
        if (is_random && j->code == ERR_LIMIT) { /* Python's integers have no end */
            j->limited++;
            return "";
        }
        if (j->code)
            return "failed, and should render";
        return j->out.len == json_string_length(text) &&
                       (j->out.len == 0 ||
                        memcmp(j->out.data, json_string_value(text), j->out.len) == 0)
                   ? ""
                   : "other text";
    }
    if (json_is_string(error))
        return j->code == ERR_CONFIG && strncmp(j->e.text, json_string_value(error), 380) == 0
                   ? ""
                   : "raise_exception expected";
    return j->code == ERR_FORMAT || j->code == ERR_LIMIT ? "" : "rendered, and should fail";
}

static void show_difference(struct judged *j, const json_t *c, const char *what)
{
    const char *want = json_string_value(json_object_get(c, "text"));
    const char *file = json_string_value(json_object_get(c, "file"));
    char *kwargs = json_dumps(json_object_get(c, "kwargs"), JSON_ENCODE_ANY);
    size_t at = 0;
    while (want && at < j->out.len && want[at] == (char)j->out.data[at])
        at++;
    print_error("%s, input %lld, kwargs %s: %s\n  here: error %d: %s\n  Jinja: %s\n",
                file ? file : json_string_value(json_object_get(c, "source")),
                (long long)json_integer_value(json_object_get(c, "input")), kwargs ? kwargs : "",
                what, j->code, j->e.text, json_string_value(json_object_get(c, "why")));
    free(kwargs);
    size_t from = at > 40 ? at - 40 : 0;
    if (want)
        print_error("  at byte %zu\n  want …%.100s\n", at, want + from);
    if (j->code == 0)
        print_error("  have …%.100s\n", buf_cstr(&j->out) + (want ? from : 0));
}

static void judge_all(struct judged *j, const char *args, size_t stride, bool is_random)
{
    json_t *root = judge(args), *inputs = json_object_get(root, "inputs"), *c;
    size_t i;
    int64_t now = json_integer_value(json_object_get(root, "now"));
    *j = (struct judged){0};
    buf_init(&j->text, 1 << 20);
    buf_init(&j->out, MAX_OUT);
    json_array_foreach(json_object_get(root, "cases"), i, c)
    {
        if (i % stride)
            continue;
        size_t input = (size_t)json_integer_value(json_object_get(c, "input"));
        render(j, c, json_array_get(inputs, input), now);
        const char *what = difference(j, c, is_random);
        if (*what && j->bad++ < MAX_SHOWN)
            show_difference(j, c, what);
        j->rendered += json_object_get(c, "text") != NULL;
        j->raised += json_is_string(json_object_get(c, "error"));
        j->n++;
    }
    print_message("%zu cases: %zu rendered, %zu refused by the template, %zu differ\n", j->n,
                  j->rendered, j->raised, j->bad);
    chat_template_destroy(j->tmpl);
    free(j->source);
    buf_fini(&j->text);
    buf_fini(&j->out);
    json_decref(root);
    assert_int_equal(j->bad, 0);
}

static void test_corpus(void **state)
{
    struct judged j;
    judge_all(&j, CORPUS, 1, false);
    assert_true(j.rendered >= 200 && j.raised >= 20);
}

static void test_published(void **state)
{
    const char *build = getenv("EXASERVE_BUILD_DIR");
    char folder[400], args[420];
    snprintf(folder, sizeof folder, "%s/templates", build ? build : "build");
    if (access(folder, R_OK) != 0) {
        print_message("SKIP: no published templates in %s: \"make templates\" fetches them\n",
                      folder);
        skip();
    }
    snprintf(args, sizeof args, "published %s", folder);
    struct judged j;
    judge_all(&j, args, PUBLISHED_STRIDE, false);
    assert_true(j.rendered >= 15000 / PUBLISHED_STRIDE && j.raised >= 2000 / PUBLISHED_STRIDE);
}

static void test_random(void **state)
{
    const char *seed = getenv("EXASERVE_SEED");
    char args[80];
    snprintf(args, sizeof args, "random %s %d", seed ? seed : "1", RANDOM_CASES);
    struct judged j;
    judge_all(&j, args, 1, true);
    assert_true(j.rendered >= RANDOM_CASES / 3);
    assert_true(j.limited <= RANDOM_CASES / 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_corpus),
        cmocka_unit_test(test_published),
        cmocka_unit_test(test_random),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    setenv("TZ", "UTC", 1); /* as the judge */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
