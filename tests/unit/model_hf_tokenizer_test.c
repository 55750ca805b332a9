/* model_hf_tokenizer_test.c - reading tokenizer.json: what is refused, and by which name; the files
 * beside it; hostile ones. */
#include "base/file.h"
#include "model/hf_tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* A small BPE tokenizer of which one part is replaced. */
#define BPE(model)                                                                                 \
    "{\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true}],\"model\":" model "}"
#define VOCAB       "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2}"
#define PLAIN_MODEL "{\"type\":\"BPE\"," VOCAB ",\"merges\":[\"a b\"]}"
#define WITH(part)  "{" part ",\"model\":" PLAIN_MODEL "}"

static int parse(const char *json, struct model_meta *m, struct err *e)
{
    meta_init(m);
    return hf_tokenizer_parse("t.json", json, strlen(json), &m->tok, e);
}

static void test_reads(void **state)
{
    struct model_meta m;
    struct err e = ERR_INIT;
    assert_int_equal(parse(BPE("{\"type\":\"BPE\",\"byte_fallback\":true,\"unk_token\":\"b\"," VOCAB
                               ",\"merges\":[[\"a\",\"b\"]]}"),
                           &m, &e),
                     0);
    const struct tokenizer_data *t = &m.tok;
    assert_string_equal(t->model, "bpe");
    assert_int_equal(t->n_tokens, 4);
    assert_string_equal(t->tokens[3], "<s>");
    assert_int_equal(t->types[3], TOKEN_CONTROL);
    assert_int_equal(t->flags, TOK_BYTE_FALLBACK);
    assert_int_equal(t->unk, 1);
    assert_string_equal(t->merges[0], "a b");
    assert_int_equal(t->n_added, 1);
    assert_int_equal(t->steps[t->n_steps - 1].kind,
                     TOK_DEC_JOIN); /* no decoder: a space between tokens */
    assert_int_equal(meta_validate(&m, NULL) == ERR_FORMAT,
                     1); /* no architecture: not a model yet */
    meta_fini(&m);
    /* Ids with holes, and an added token that the model has, too. */
    assert_int_equal(parse("{\"added_tokens\":[{\"id\":7,\"content\":\"b\",\"normalized\":true}],"
                           "\"model\":{\"type\":"
                           "\"BPE\",\"vocab\":{\"a\":0,\"b\":7},\"merges\":[]}}",
                           &m, &e),
                     0);
    assert_int_equal(m.tok.n_tokens, 8);
    assert_int_equal(m.tok.types[5], TOKEN_UNUSED);
    assert_string_equal(m.tok.tokens[5], "");
    assert_int_equal(m.tok.types[7], TOKEN_USER_DEFINED);
    assert_int_equal(m.tok.added[0].flags, ADDED_NORMALIZED | ADDED_IN_VOCAB);
    meta_fini(&m);
}

static void test_refused_by_name(void **state)
{
    static const struct {
        const char *json, *named;
    } CASES[] = {
        {"", "t.json: line"},
        {"[]", "expected an object"},
        {"{}", "model: expected an object, found nothing"},
        {"{\"model\":{\"type\":\"WordLevel\"}}", "model: the type \"WordLevel\""},
        {"{\"models\":{}}", "the key \"models\""},
        {BPE("{\"type\":\"BPE\",\"dropout\":0.1," VOCAB ",\"merges\":[]}"), "model.dropout"},
        {BPE("{\"type\":\"BPE\",\"cache\":1," VOCAB ",\"merges\":[]}"), "the key \"cache\""},
        {BPE("{\"type\":\"BPE\",\"merges\":[]}"), "model.vocab: expected an object"},
        {BPE("{\"type\":\"BPE\"," VOCAB "}"), "model.merges: expected an array"},
        {BPE("{\"type\":\"BPE\"," VOCAB ",\"merges\":[\"a b\",\"ab\"]}"), "model.merges[1]"},
        {BPE("{\"type\":\"BPE\"," VOCAB ",\"merges\":[[\"a\",\"b\",\"c\"]]}"), "model.merges[0]"},
        {BPE("{\"type\":\"BPE\"," VOCAB ",\"merges\":[],\"unk_token\":\"zz\"}"),
         "\"zz\" is not in"},
        {BPE("{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}"), "both have id 0"},
        {BPE("{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}"), "duplicate"},
        {BPE("{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}"), "id -1"},
        {BPE("{\"type\":\"BPE\",\"vocab\":{\"a\":1.5},\"merges\":[]}"), "expected an id"},
        {BPE("{\"type\":\"BPE\",\"vocab\":{\"\":0},\"merges\":[]}"), "without text"},
        {BPE("{\"type\":\"BPE\",\"vocab\":{\"a\":4000000000},\"merges\":[]}"), "at most 1048576"},
        {BPE("{\"type\":\"BPE\",\"vocab\":{\"<s>\":0},\"merges\":[]}"), "has id 3, and 0"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0],[\"a\",1]],\"unk_id\":0}}",
         "both \"a\""},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]],\"unk_id\":7}}", "unk_id"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]]}}", "unk_id"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]],\"unk_id\":0}}", "vocab[0]"},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}}", "[UNK]"},
        {WITH("\"normalizer\":{\"type\":\"ByteLevel\"}"),
         "normalizer: the normalizer \"ByteLevel\""},
        {WITH(
             "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Glob\":\"*\"},\"content\":\"\"}"),
         "\"Glob\""},
        {WITH("\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"#\"}"),
         "no base64"},
        {WITH("\"normalizer\":{}"), "no type"},
        {WITH("\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}"), "\"UnicodeScripts\""},
        {WITH("\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"X\"}]}"),
         "pre_tokenizer.pretokenizers[0]: the pre-tokenizer \"X\""},
        {WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":"
              "\"Odd\"}"),
         "\"Odd\""},
        {WITH("\"pre_tokenizer\":{\"type\":\"Metaspace\",\"prepend_scheme\":\"maybe\"}"),
         "\"maybe\""},
        {WITH("\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"mode\":1}"), "the key \"mode\""},
        {WITH("\"decoder\":{\"type\":\"CTC\"}"), "\"CTC\""},
        {WITH("\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":0,\"stop\":1}"),
         "decoder.stop"},
        {WITH("\"post_processor\":{\"type\":\"Odd\"}"), "\"Odd\""},
        {WITH("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{"
              "\"id\":\"x\"}}],"
              "\"special_tokens\":{\"x\":{\"ids\":[9]}}}"),
         "id below 3"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct model_meta m;
        struct err e = ERR_INIT;
        int rc = parse(CASES[i].json, &m, &e);
        if ((rc != ERR_FORMAT && rc != ERR_LIMIT) || !strstr(e.text, CASES[i].named))
            fail_msg("%s: %d \"%s\" does not name %s", CASES[i].json, rc, e.text, CASES[i].named);
        meta_fini(&m);
    }
}

/* Nested a thousand times, a step too many, an added token too often: clear errors, no crash. */
static void test_hostile(void **state)
{
    struct buf json;
    buf_init(&json, 1 << 24);
    struct model_meta m;
    struct err e = ERR_INIT;
    buf_puts(&json, "{\"normalizer\":");
    for (int i = 0; i < 50; i++)
        buf_puts(&json, "{\"type\":\"Sequence\",\"normalizers\":[");
    for (int i = 0; i < 50; i++)
        buf_puts(&json, "]}");
    buf_puts(&json, ",\"model\":" PLAIN_MODEL "}");
    assert_int_equal(parse(buf_cstr(&json), &m, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "sequences in each other"));
    meta_fini(&m);

    buf_reset(&json);
    for (int i = 0; i < 100000; i++)
        buf_puts(&json, "[");
    assert_int_equal(parse(buf_cstr(&json), &m, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "depth"));
    meta_fini(&m);

    buf_reset(&json);
    buf_puts(&json, "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[");
    for (int i = 0; i < 200; i++)
        buf_puts(&json, i ? ",{\"type\":\"Whitespace\"}" : "{\"type\":\"Whitespace\"}");
    buf_puts(&json, "]},\"model\":" PLAIN_MODEL "}");
    assert_int_equal(parse(buf_cstr(&json), &m, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "more than 64 steps"));
    meta_fini(&m);
    buf_fini(&json);
}

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[256];
    struct err e = ERR_INIT;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (file_publish(path, text, strlen(text), 0600, &e))
        fail_msg("%s", e.text);
}

static void test_files_beside(void **state)
{
    char folder[64] = "/tmp/exa-test-XXXXXX";
    struct model_meta m;
    struct err e = ERR_INIT;
    assert_non_null(mkdtemp(folder));
    meta_init(&m);
    assert_int_equal(hf_tokenizer_read(folder, &m, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "no tokenizer.json"));
    write_file(folder, "tokenizer.json",
               "{\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true},{\"id\":4,"
               "\"content\":\"</s>\",\"special\":true}],"
               "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{"
               "\"id\":\"<s>\",\"type_id\":0}},"
               "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"SpecialToken\":{\"id\":\"x\",\"type_"
               "id\":0}}],\"pair\":[],"
               "\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[3],\"tokens\":[\"<s>\"]},"
               "\"x\":{\"id\":\"x\",\"ids\":[1],\"tokens\":[\"b\"]}}},"
               "\"model\":" PLAIN_MODEL "}");
    write_file(folder, "tokenizer_config.json",
               "{\"bos_token\":\"<s>\",\"eos_token\":{\"content\":\"</s>\"},\"pad_token\":null,"
               "\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"T\"},{\"name\":"
               "\"default\",\"template\":\"D\"}]}");
    write_file(folder, "generation_config.json", "{\"eos_token_id\":[4,2]}");
    if (hf_tokenizer_read(folder, &m, &e))
        fail_msg("%s", e.text);
    assert_int_equal(m.tok.bos, 3);
    assert_int_equal(m.tok.eos, 4);
    assert_int_equal(m.tok.pad, -1);
    assert_true(m.tok.add_bos && !m.tok.add_eos && m.tok.n_prefix == 0);
    assert_int_equal(m.tok.n_suffix, 1); /* a token that is not eos */
    assert_int_equal(m.tok.suffix[0], 1);
    assert_int_equal(m.tok.n_eog, 2);
    assert_int_equal(m.tok.eog[1], 2);
    assert_string_equal(m.chat_template, "D");
    meta_fini(&m);
    meta_init(&m);
    write_file(folder, "chat_template.jinja", "J");
    assert_int_equal(hf_tokenizer_read(folder, &m, &e), 0);
    assert_string_equal(m.chat_template, "J");
    meta_fini(&m);
    meta_init(&m);
    write_file(folder, "generation_config.json", "{\"eos_token_id\":99}");
    assert_int_equal(hf_tokenizer_read(folder, &m, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "generation_config.json: eos_token_id"));
    meta_fini(&m);
    dir_remove(folder, &e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads),
        cmocka_unit_test(test_refused_by_name),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_files_beside),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
