/* text_golden_test.c - the real model's tokenizer and chat template against recorded ids and
 * prompts (tests/golden). */
#include "base/file.h"
#include "model/gguf.h"
#include "text/prompt.h"
#include "text/unicode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <jansson.h>

struct real {
    struct gguf g;
    struct tokenizer *tok;
    struct chat_template *tmpl;
};

static const char *golden_folder(void)
{
    const char *env = getenv("EXASERVE_GOLDEN");
    return env ? env : access("tests/golden", R_OK) == 0 ? "tests/golden" : "../shared/golden";
}

static json_t *golden(const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", golden_folder(), name);
    json_error_t error;
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &error);
    if (!root)
        fail_msg("%s: %s", path, error.text);
    return root;
}

static int set_up(void **state)
{
    const char *path = getenv("EXASERVE_TEST_MODEL");
    if (!path)
        path = "build/model/SmolLM2-135M-Instruct.Q4_1.gguf";
    *state = NULL;
    if (access(path, R_OK) != 0) {
        print_message("skipped: no model at %s (set EXASERVE_TEST_MODEL)\n", path);
        return 0;
    }
    struct err e = ERR_INIT;
    struct real *r = calloc(1, sizeof *r);
    int rc = gguf_open(&r->g, path, &e);
    if (rc == 0)
        rc = tokenizer_create(&r->tok, &r->g.meta.tok, &e);
    const char *source = rc == 0 ? r->g.meta.chat_template : NULL;
    if (source)
        rc = chat_template_create(&r->tmpl, source, strlen(source), &e);
    if (rc || !source) {
        print_error("%s: %s\n", path, e.text);
        return -1;
    }
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    struct real *r = *state;
    if (!r)
        return 0;
    chat_template_destroy(r->tmpl);
    tokenizer_destroy(r->tok);
    gguf_close(&r->g);
    free(r);
    return 0;
}

static struct real *need(void **state)
{
    if (!*state)
        skip();
    return *state;
}

static bool same_ids(const struct token_vec *v, const json_t *ids)
{
    if (v->n != json_array_size(ids))
        return false;
    for (size_t i = 0; i < v->n; i++)
        if (v->ids[i] != (uint32_t)json_integer_value(json_array_get(ids, i)))
            return false;
    return true;
}

static void test_tokens(void **state)
{
    struct real *r = need(state);
    json_t *root = golden("tokens.json"), *c;
    size_t i, bad = 0;
    json_array_foreach(root, i, c)
    {
        const json_t *text = json_object_get(c, "text");
        struct token_vec ids = {0};
        struct err e = ERR_INIT;
        int rc = tokenizer_encode(r->tok, json_string_value(text), json_string_length(text),
                                  json_is_true(json_object_get(c, "special")), SIZE_MAX, &ids, &e);
        if (rc || !same_ids(&ids, json_object_get(c, "ids"))) {
            print_error("%s: %s\n", json_string_value(json_object_get(c, "name")),
                        rc ? e.text : "other ids");
            bad++;
        }
        token_vec_fini(&ids);
    }
    json_decref(root);
    assert_true(i >= 90);
    assert_int_equal(bad, 0);
}

/* Ids → text, pushed token by token, gives the text back (but for bytes without a token). */
static void test_round_trip(void **state)
{
    struct real *r = need(state);
    json_t *root = golden("tokens.json"), *c;
    size_t i;
    json_array_foreach(root, i, c)
    {
        const char *name = json_string_value(json_object_get(c, "name"));
        if (strstr(name, "missing") || strstr(name, "plane4") || strstr(name, "control"))
            continue;
        struct buf out;
        struct detok d;
        detok_init(&d);
        buf_init(&out, 1 << 20);
        json_t *ids = json_object_get(c, "ids"), *id;
        size_t k;
        json_array_foreach(ids, k, id)
        {
            size_t n;
            const char *bytes = tokenizer_bytes(r->tok, (uint32_t)json_integer_value(id), true, &n);
            assert_non_null(bytes);
            detok_push(&d, bytes, n, &out);
        }
        detok_finish(&d, &out);
        assert_string_equal(buf_cstr(&out), json_string_value(json_object_get(c, "text")));
        buf_fini(&out);
    }
    json_decref(root);
}

enum { MAX_MESSAGES = 16 };

static size_t read_messages(const json_t *list, struct chat_message *messages)
{
    size_t i;
    json_t *m;
    json_array_foreach(list, i, m)
    {
        const json_t *content = json_object_get(m, "content");
        messages[i] =
            (struct chat_message){json_string_value(json_object_get(m, "role")),
                                  json_string_value(content), json_string_length(content)};
    }
    return i;
}

static void check_chat(struct real *r, const json_t *c)
{
    struct chat_message messages[MAX_MESSAGES];
    size_t n = read_messages(json_object_get(c, "messages"), messages);
    struct buf out;
    struct err e = ERR_INIT;
    struct token_vec ids = {0};
    buf_init(&out, 1 << 20);
    assert_int_equal(
        chat_template_render(r->tmpl, messages, n, "<|im_start|>", "<|im_end|>", true, &out, &e),
        0);
    assert_string_equal(buf_cstr(&out), json_string_value(json_object_get(c, "prompt")));
    assert_int_equal(prompt_from_chat(r->tmpl, r->tok, messages, n, true, 1 << 20, 8192, &ids, &e),
                     0);
    assert_true(same_ids(&ids, json_object_get(c, "prompt_tokens")));
    token_vec_fini(&ids);
    buf_fini(&out);
}

static void test_prompts(void **state)
{
    struct real *r = need(state);
    json_t *root = golden("greedy.json"), *c;
    size_t i, chats = 0;
    json_array_foreach(root, i, c)
    {
        if (strcmp(json_string_value(json_object_get(c, "kind")), "chat") == 0) {
            check_chat(r, c);
            chats++;
            continue;
        }
        const json_t *prompt = json_object_get(c, "prompt");
        struct token_vec ids = {0};
        struct err e = ERR_INIT;
        assert_int_equal(prompt_from_text(r->tok, json_string_value(prompt),
                                          json_string_length(prompt), 8192, &ids, &e),
                         0);
        assert_true(same_ids(&ids, json_object_get(c, "prompt_tokens")));
        token_vec_fini(&ids);
    }
    json_decref(root);
    assert_true(chats >= 6 && i >= 12);
}

static void test_ends_of_generation(void **state)
{
    struct real *r = need(state);
    uint32_t ids[8];
    size_t n = tokenizer_eog_ids(r->tok, ids, 8);
    assert_int_equal(n, 3);
    assert_true(tokenizer_is_eog(r->tok, 0) && tokenizer_is_eog(r->tok, 2) &&
                tokenizer_is_eog(r->tok, 4));
    assert_false(tokenizer_is_eog(r->tok, 1));
    assert_int_equal(tokenizer_bos(r->tok), 1);
    assert_int_equal(tokenizer_eos(r->tok), 2);
    assert_int_equal(tokenizer_vocab(r->tok), 49152);
}

/* Every code point's class is the recorded one. */
static void test_classes(void **state)
{
    static const char *const NAMES[] = {
        [UNICODE_LETTER] = "L", [UNICODE_NUMBER] = "N", [UNICODE_SPACE] = "S"};
    json_t *root = golden("uniclass.json");
    uint8_t *want = calloc(0x110000, 1);
    for (int c = UNICODE_LETTER; c <= UNICODE_SPACE; c++) {
        size_t i;
        json_t *row;
        json_array_foreach(json_object_get(root, NAMES[c]), i,
                           row) for (json_int_t cp = json_integer_value(json_array_get(row, 0));
                                     cp <= json_integer_value(json_array_get(row, 1)); cp++)
            want[cp] = (uint8_t)c;
    }
    for (uint32_t cp = 0; cp < 0x110000; cp++)
        if (unicode_class(cp) != want[cp])
            fail_msg("U+%04X is class %d, expected %d", cp, unicode_class(cp), want[cp]);
    free(want);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens),  cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_prompts), cmocka_unit_test(test_ends_of_generation),
        cmocka_unit_test(test_classes),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
