/* text_gguf_kinds_test.c - the tokenizers of GGUF files that are not byte-level BPE: SentencePiece BPE by scores ("llama"),
 * unigram ("t5"), WordPiece ("bert"), from the file's keys to ids and back. */
#include "model/gguf.h"
#include "tests/unit/model_fixture.h"
#include "text/prompt.h"
#include "text/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define SIGN "\xE2\x96\x81"

struct vocab {
    const char *texts[300];
    int32_t types[300];
    float scores[300];
    char bytes[256][8];
    uint64_t n;
};

static uint32_t add(struct vocab *v, const char *text, int32_t type, float score)
{
    v->texts[v->n] = text;
    v->types[v->n] = type;
    v->scores[v->n] = score;
    return (uint32_t)v->n++;
}

static uint32_t add_bytes(struct vocab *v)
{
    for (unsigned b = 0; b < 256; b++) {
        snprintf(v->bytes[b], sizeof v->bytes[b], "<0x%02X>", b);
        add(v, v->bytes[b], TOKEN_BYTE, 0);
    }
    return (uint32_t)v->n - 256;
}

static void key_f32s(struct gguf_maker *m, const char *key, const float *v, uint64_t n)
{
    put_key(m, key, 9);
    buf_u32(&m->keys, 6);
    buf_u64(&m->keys, n);
    for (uint64_t i = 0; i < n; i++)
        buf_f32(&m->keys, v[i]);
}

/* The keys that all have; more are added by the caller. */
static void begin(struct gguf_maker *m, const char *model, const struct vocab *v)
{
    static const struct {
        const char *key;
        uint32_t value;
    } SIZES[] = {{"llama.block_count", 1},          {"llama.context_length", 64},
                 {"llama.embedding_length", 64},    {"llama.feed_forward_length", 96},
                 {"llama.attention.head_count", 4}, {"llama.attention.head_count_kv", 2}};
    maker_init(m);
    key_text(m, "general.architecture", "llama");
    for (size_t i = 0; i < sizeof SIZES / sizeof SIZES[0]; i++)
        key_u32(m, SIZES[i].key, SIZES[i].value);
    key_f32(m, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    key_text(m, "tokenizer.ggml.model", model);
    key_texts(m, "tokenizer.ggml.tokens", v->texts, v->n);
    key_i32s(m, "tokenizer.ggml.token_type", v->types, v->n);
    key_f32s(m, "tokenizer.ggml.scores", v->scores, v->n);
}

static struct tokenizer *finish(struct gguf_maker *m)
{
    struct buf file;
    struct gguf g;
    struct tokenizer *t = NULL;
    struct err e = ERR_INIT;
    char path[] = "/tmp/exa-test-XXXXXX";
    tensors_llama(m);
    maker_file(m, &file);
    maker_fini(m);
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, file.data, file.len) == (ssize_t)file.len);
    close(fd);
    if (gguf_open(&g, path, &e) || tokenizer_create(&t, &g.meta.tok, &e))
        fail_msg("%s", e.text);
    gguf_close(&g);
    unlink(path);
    buf_fini(&file);
    return t;
}

static void expect(const struct tokenizer *t, const char *text, const char *back, size_t n,
                   const uint32_t *want)
{
    struct token_vec ids = {0};
    struct err e = ERR_INIT;
    struct buf out;
    struct detok d;
    if (tokenizer_encode(t, text, strlen(text), true, SIZE_MAX, &ids, &e))
        fail_msg("%s", e.text);
    for (size_t i = 0; i < ids.n && i < n; i++)
        if (ids.ids[i] != want[i])
            fail_msg("\"%s\": id %zu is %u, expected %u", text, i, ids.ids[i], want[i]);
    assert_int_equal(ids.n, n);
    buf_init(&out, 1 << 16);
    detok_init(&d);
    for (size_t i = 0; i < ids.n; i++)
        detok_token(&d, t, ids.ids[i], true, &out);
    detok_finish(&d, &out);
    assert_string_equal(buf_cstr(&out), back);
    buf_fini(&out);
    token_vec_fini(&ids);
}
#define EXPECT(t, text, back, ...)                                                                 \
    expect(t, text, back, sizeof((uint32_t[]){__VA_ARGS__}) / 4, (uint32_t[]){__VA_ARGS__})

static void test_llama(void **state)
{
    struct vocab v = {0};
    struct gguf_maker m;
    add(&v, "<unk>", TOKEN_UNKNOWN, 0);
    uint32_t bos = add(&v, "<s>", TOKEN_CONTROL, 0);
    uint32_t bytes = add_bytes(&v);
    uint32_t ab = add(&v, "ab", TOKEN_NORMAL, -1), sa = add(&v, SIGN "a", TOKEN_NORMAL, -2);
    uint32_t sab = add(&v, SIGN "ab", TOKEN_NORMAL, -3), ss = add(&v, SIGN SIGN, TOKEN_NORMAL, -4);
    uint32_t s = add(&v, SIGN, TOKEN_NORMAL, -5), a = add(&v, "a", TOKEN_NORMAL, -6);
    uint32_t b = add(&v, "b", TOKEN_NORMAL, -7), tool = add(&v, "<tool>", TOKEN_USER_DEFINED, 0);
    begin(&m, "llama", &v);
    key_u32(&m, "tokenizer.ggml.unknown_token_id", 0);
    key_u32(&m, "tokenizer.ggml.bos_token_id", bos);
    struct tokenizer *t = finish(&m);
    EXPECT(t, "ab", "ab", sab);        /* "ab" is made before "▁a", and then both */
    EXPECT(t, "a b", "a b", sa, s, b); /* no space is made up inside */
    EXPECT(t, "  ab", "  ab", ss, sab);
    EXPECT(t, "b\xC3\xA9", "b\xC3\xA9", s, b, bytes + 0xC3, bytes + 0xA9);
    EXPECT(t, "a<s>ab", "a<s> ab", sa, bos, sab); /* each section begins with a space */
    EXPECT(t, "<tool>", "<tool>", tool);
    size_t n, n_prefix;
    assert_memory_equal(tokenizer_bytes(t, sab, false, &n), " ab", 3); /* wherever it stands */
    assert_memory_equal(tokenizer_bytes(t, bytes + 0xC3, false, &n), "\xC3", 1);
    assert_int_equal(n, 1);
    assert_int_equal(tokenizer_prefix(t, &n_prefix)[0],
                     bos); /* this model's files leave it out and mean yes */
    assert_int_equal(n_prefix, 1);
    tokenizer_destroy(t);
    begin(&m, "llama", &v);
    key_bool(&m, "tokenizer.ggml.add_space_prefix", 0);
    key_bool(&m, "tokenizer.ggml.add_bos_token", 0);
    t = finish(&m);
    EXPECT(t, "ab", "ab", ab);
    EXPECT(t, " a", " a", sa);
    EXPECT(t, "aa", "aa", a, a);
    tokenizer_prefix(t, &n_prefix);
    assert_int_equal(n_prefix, 0);
    tokenizer_destroy(t);
}

static void test_t5(void **state)
{
    struct vocab v = {0};
    struct gguf_maker m;
    uint32_t unk = add(&v, "<unk>", TOKEN_UNKNOWN, 0), eos = add(&v, "</s>", TOKEN_CONTROL, 0);
    uint32_t s = add(&v, SIGN, TOKEN_NORMAL, -3), sa = add(&v, SIGN "a", TOKEN_NORMAL, -2);
    uint32_t a = add(&v, "a", TOKEN_NORMAL, -4), aa = add(&v, "aa", TOKEN_NORMAL, -5);
    begin(&m, "t5", &v);
    key_u32(&m, "tokenizer.ggml.unknown_token_id", unk);
    key_u32(&m, "tokenizer.ggml.eos_token_id", eos);
    key_bool(&m, "tokenizer.ggml.remove_extra_whitespaces", 1);
    struct tokenizer *t = finish(&m);
    EXPECT(t, "aaa", "aaa", sa, aa); /* -7: better than ▁ aa a, ▁a a a */
    EXPECT(t, "  a   a ", "a a", sa, sa);
    EXPECT(t, "xyz", "<unk>", s, unk); /* unknown letters are one */
    EXPECT(t, "a</s>", "a</s>", sa, eos);
    EXPECT(t, "xa", "<unk>a", s, unk, a);
    tokenizer_destroy(t);
}

static void test_bert(void **state)
{
    struct vocab v = {0};
    struct gguf_maker m;
    uint32_t unk = add(&v, "[UNK]", TOKEN_UNKNOWN, 0), cls = add(&v, "[CLS]", TOKEN_CONTROL, 0);
    uint32_t sep = add(&v, "[SEP]", TOKEN_CONTROL, 0), the = add(&v, SIGN "the", TOKEN_NORMAL, 0);
    uint32_t run = add(&v, SIGN "run", TOKEN_NORMAL, 0), ning = add(&v, "ning", TOKEN_NORMAL, 0);
    uint32_t dot = add(&v, SIGN ".", TOKEN_NORMAL, 0);
    begin(&m, "bert", &v);
    key_u32(&m, "tokenizer.ggml.unknown_token_id", unk);
    key_u32(&m, "tokenizer.ggml.cls_token_id", cls);
    key_u32(&m, "tokenizer.ggml.seperator_token_id", sep);
    struct tokenizer *t = finish(&m);
    EXPECT(t, "The R\xC3\x9Anning.", "the running.", the, run, ning, dot);
    EXPECT(t, "therunning the", "[UNK] the", unk, the);
    size_t n;
    assert_int_equal(tokenizer_prefix(t, &n)[0], cls);
    assert_int_equal(tokenizer_suffix(t, &n)[0], sep);
    assert_memory_equal(tokenizer_bytes(t, ning, false, &n), "ning", 4);
    assert_memory_equal(tokenizer_bytes(t, run, false, &n), " run", 4);
    tokenizer_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama),
        cmocka_unit_test(test_t5),
        cmocka_unit_test(test_bert),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
