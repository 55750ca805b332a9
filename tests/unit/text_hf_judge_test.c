/* text_hf_judge_test.c - every kind of tokenizer against the `tokenizers` library: tests/tools/tokenizers_judge.py trains one of
 * each, and ids and text must be the same here, for a corpus and for random strings. EXASERVE_JUDGE_FOLDER, EXASERVE_JUDGE_SEED
 * and EXASERVE_JUDGE_STRINGS make other runs of it. */
#include "base/file.h"
#include "model/hf_tokenizer.h"
#include "text/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <jansson.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STRINGS = 150 };
#else
enum { STRINGS = 2500 };
#endif
enum { FIRST_CONTROL = 1, LAST_CONTROL = 4 }; /* of the kinds with null in a case */
enum { SHOWN = 4 };                           /* differences printed of each kind */

/* The columns of a case. */
enum { TEXT, PLAIN, IDS, AROUND, DECODED, DECODED_PLAIN, N_COLUMNS };

static struct tokenizer *load(const char *folder)
{
    struct model_meta m, again;
    struct err e = ERR_INIT;
    struct buf bytes;
    meta_init(&m);
    if (hf_tokenizer_read(folder, &m, &e))
        fail_msg("%s: %s", folder, e.text);
    /* As it travels: bytes that say the same. */
    strcpy(m.params.arch, "llama");
    buf_init(&bytes, META_MAX_BYTES);
    struct tokenizer *t = NULL;
    if (meta_encode(&m, &bytes, &e) || meta_decode(&again, bytes.data, bytes.len, &e) ||
        tokenizer_create(&t, &again.tok, &e))
        fail_msg("%s: %s", folder, e.text);
    meta_fini(&m);
    meta_fini(&again);
    buf_fini(&bytes);
    return t;
}

static bool same_ids(const struct token_vec *v, const json_t *ids)
{
    bool same = v->n == json_array_size(ids);
    for (size_t i = 0; i < v->n && same; i++)
        same = v->ids[i] == (uint32_t)json_integer_value(json_array_get(ids, i));
    return same;
}

static void show(const char *what, const json_t *c, const struct token_vec *v, const json_t *want)
{
    char *text = json_dumps(json_array_get(c, TEXT), JSON_ENCODE_ANY);
    char *ids = json_dumps(want, JSON_ENCODE_ANY | JSON_COMPACT);
    print_error("  %s of %.300s\n    want %.300s\n    have [", what, text, ids);
    for (size_t i = 0; i < v->n && i < 60; i++)
        print_error("%s%u", i ? "," : "", v->ids[i]);
    print_error("]\n");
    free(text);
    free(ids);
}

/* text → ids as one column has them. */
static bool check_ids(const struct tokenizer *t, const json_t *c, int column, bool shown)
{
    static const char *const NAMES[] = {
        [PLAIN] = "plain ids", [IDS] = "ids", [AROUND] = "ids with what is put around"};
    const json_t *text = json_array_get(c, TEXT);
    struct token_vec v = {0};
    struct err e = ERR_INIT;
    size_t n_prefix, n_suffix;
    const uint32_t *prefix = tokenizer_prefix(t, &n_prefix),
                   *suffix = tokenizer_suffix(t, &n_suffix);
    for (size_t i = 0; column == AROUND && i < n_prefix; i++)
        token_vec_push(&v, prefix[i]);
    int rc = tokenizer_encode(t, json_string_value(text), json_string_length(text), column != PLAIN,
                              SIZE_MAX, &v, &e);
    if (rc)
        fail_msg("%s", e.text);
    for (size_t i = 0; column == AROUND && i < n_suffix; i++)
        token_vec_push(&v, suffix[i]);
    bool same = same_ids(&v, json_array_get(c, (size_t)column));
    if (json_is_null(
            json_array_get(c, (size_t)column))) { /* what users write is no control token */
        same = true;
        for (size_t i = 0; i < v.n && same; i++)
            same = v.ids[i] < FIRST_CONTROL || v.ids[i] > LAST_CONTROL;
    }
    if (!same && shown)
        show(NAMES[column], c, &v, json_array_get(c, (size_t)column));
    token_vec_fini(&v);
    return same;
}

/* ids → text as one column has it, token by token. */
static bool check_text(const struct tokenizer *t, const json_t *c, int column, bool shown)
{
    json_t *ids = json_array_get(c, IDS), *id;
    const json_t *want = json_array_get(c, (size_t)column);
    struct buf out;
    struct detok d;
    size_t i;
    detok_init(&d);
    buf_init(&out, 1 << 24);
    json_array_foreach(ids, i, id)
    {
        detok_token(&d, t, (uint32_t)json_integer_value(id), column == DECODED, &out);
    }
    detok_finish(&d, &out);
    bool same = out.len == json_string_length(want) &&
                (out.len == 0 || memcmp(out.data, json_string_value(want), out.len) == 0);
    if (!same && shown)
        print_error("  text%s\n    want %.200s\n    have %.200s\n",
                    column == DECODED ? "" : " without control tokens", json_string_value(want),
                    buf_cstr(&out));
    buf_fini(&out);
    return same;
}

static size_t judge_kind(const char *folder, const char *kind)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, kind);
    struct tokenizer *t = load(path);
    snprintf(path, sizeof path, "%s/%s/cases.json", folder, kind);
    json_error_t error;
    json_t *cases = json_load_file(path, JSON_ALLOW_NUL, &error), *c;
    if (!cases)
        fail_msg("%s: %s", path, error.text);
    size_t i, bad = 0;
    json_array_foreach(cases, i, c)
    {
        size_t before = bad;
        for (int column = PLAIN; column <= AROUND; column++)
            bad += !check_ids(t, c, column, before < SHOWN);
        for (int column = DECODED; column <= DECODED_PLAIN; column++)
            bad += !check_text(t, c, column, before < SHOWN);
    }
    print_message("%s: %zu texts, %zu differences\n", kind, i, bad);
    assert_true(i > 100);
    json_decref(cases);
    tokenizer_destroy(t);
    return bad;
}

static const char *setting(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value ? value : otherwise;
}

static void test_same_as_tokenizers(void **state)
{
    char folder[64] = "/tmp/exa-test-XXXXXX", command[1024], count[16], kind[64];
    snprintf(count, sizeof count, "%d", STRINGS);
    assert_non_null(mkdtemp(folder));
    const char *ready = getenv("EXASERVE_JUDGE_FOLDER");
    snprintf(command, sizeof command, "%s/bin/python tests/tools/tokenizers_judge.py %s %s %s",
             setting("EXASERVE_VENV", "build/venv"), folder, setting("EXASERVE_JUDGE_SEED", "1"),
             setting("EXASERVE_JUDGE_STRINGS", count));
    if (ready)
        snprintf(command, sizeof command, "ls %s", ready);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    size_t kinds = 0, bad = 0;
    while (fscanf(f, "%63s", kind) == 1) {
        bad += judge_kind(ready ? ready : folder, kind);
        kinds++;
    }
    int status = pclose(f);
    struct err e = ERR_INIT;
    dir_remove(folder, &e);
    if (status)
        fail_msg("%s: status %d (is the package tokenizers in the venv?)", command, status);
    assert_true(kinds >= 20 || ready);
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_as_tokenizers)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
