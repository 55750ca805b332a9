/* model_meta_test.c - canonical bytes of a model's data, what is refused, what engines can run. */
#include "tests/unit/model_fixture.h"

static void tiny_meta(struct model_meta *m)
{
    struct buf file;
    struct gguf g;
    struct err e = ERR_INIT;
    tiny_file(&file);
    if (gguf_parse(&g, file.data, file.len, "tiny.gguf", &e))
        fail_msg("%s", e.text);
    *m = g.meta; /* taken */
    meta_init(&g.meta);
    gguf_close(&g);
    buf_fini(&file);
}

static void encode(const struct model_meta *m, struct buf *b)
{
    struct err e = ERR_INIT;
    buf_init(b, META_MAX_BYTES);
    assert_int_equal(meta_encode(m, b, &e), 0);
}

static void test_round_trip(void **state)
{
    struct model_meta m, n;
    struct buf a, b;
    struct err e = ERR_INIT;
    tiny_meta(&m);
    encode(&m, &a);
    if (meta_decode(&n, a.data, a.len, &e))
        fail_msg("%s", e.text);
    encode(&n, &b);
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.data, b.data, a.len);
    assert_string_equal(n.name, "tiny");
    assert_string_equal(n.params.arch, "llama");
    assert_int_equal(n.params.head_dim, 16);
    assert_int_equal(n.tok.n_tokens, FIXTURE_N_TOKENS);
    assert_string_equal(n.tok.tokens[6], "\xc4\xa0"
                                         "a");
    assert_string_equal(n.tok.merges[0], "a b");
    assert_int_equal(n.tok.bos, 1);
    assert_int_equal(n.tok.pad, -1);
    assert_string_equal(n.chat_template, m.chat_template);
    /* no template and an empty one are two things */
    free(n.chat_template);
    n.chat_template = NULL;
    buf_fini(&b);
    encode(&n, &b);
    meta_fini(&n);
    assert_int_equal(meta_decode(&n, b.data, b.len, &e), 0);
    assert_null(n.chat_template);
    meta_fini(&m);
    meta_fini(&n);
    buf_fini(&a);
    buf_fini(&b);
}

static void test_cap(void **state)
{
    struct model_meta m;
    struct buf b;
    struct err e = ERR_INIT;
    tiny_meta(&m);
    buf_init(&b, 40);
    assert_int_equal(meta_encode(&m, &b, &e), ERR_LIMIT);
    buf_fini(&b);
    meta_fini(&m);
}

/* Cut anywhere it is refused; with a byte changed it is refused or another model, and never one
 * that breaks the rules. */
static void test_hostile(void **state)
{
    struct model_meta m, n;
    struct buf a, b;
    struct err e = ERR_INIT;
    struct fence f;
    tiny_meta(&m);
    encode(&m, &a);
    fence_init(&f, a.len + 1);
    for (size_t k = 0; k < a.len; k++) {
        e.text[0] = 0;
        assert_true(meta_decode(&n, fence_put(&f, a.data, k), k, &e) < 0);
        assert_true(e.text[0]);
    }
    for (size_t i = 0; i < a.len; i++)
        for (int v = 0; v < 3; v++) {
            uint8_t *p = fence_put(&f, a.data, a.len);
            p[i] = v == 0 ? 0xff : v == 1 ? 0 : (uint8_t)(p[i] ^ 0x40);
            if (p[i] == a.data[i] || meta_decode(&n, p, a.len, &e) != 0)
                continue;
            assert_int_equal(meta_validate(&n, &e), 0);
            encode(&n, &b); /* canonical: the same bytes come back */
            assert_int_equal(b.len, a.len);
            assert_memory_equal(b.data, p, a.len);
            buf_fini(&b);
            meta_fini(&n);
        }
    uint8_t *longer = fence_put(&f, a.data, a.len) - 1;
    memmove(longer, longer + 1, a.len);
    assert_int_equal(meta_decode(&n, longer, a.len + 1, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "follow the end"));
    fence_fini(&f);
    meta_fini(&m);
    buf_fini(&a);
}

static void test_version(void **state)
{
    struct model_meta m, n;
    struct buf a;
    struct err e = ERR_INIT;
    tiny_meta(&m);
    encode(&m, &a);
    assert_memory_equal(a.data, "EXAMETA\x03", 8); /* frozen */
    a.data[7] = 4;
    assert_int_equal(meta_decode(&n, a.data, a.len, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "version 3, found 4"));
    meta_fini(&m);
    buf_fini(&a);
}

static void check_says(struct model_meta *m, const char *says)
{
    struct err e = ERR_INIT;
    assert_int_equal(meta_check(m, &e), ERR_FORMAT);
    if (!strstr(e.text, says))
        fail_msg("\"%s\" does not say \"%s\"", e.text, says);
}

static void test_check(void **state)
{
    struct model_meta m;
    struct err e = ERR_INIT;
    tiny_meta(&m);
    if (meta_check(&m, &e))
        fail_msg("%s", e.text);
    const struct model_params good = m.params;
#define REFUSES(field, value, says)                                                                \
    m.params.field = value;                                                                        \
    check_says(&m, says);                                                                          \
    m.params = good
    REFUSES(n_layers, 0, "layers");
    REFUSES(n_layers, 100000, "layers");
    REFUSES(n_heads, 0, "heads");
    REFUSES(n_kv_heads, 3, "heads: expected a multiple of the 3 KV heads, found 4");
    REFUSES(rope_dim, 18, "rotated dimensions");
    REFUSES(rope_dim, 15, "rotated dimensions");
    REFUSES(rope_base, -1, "RoPE base");
    REFUSES(rope_base, 0.0f / 0.0f, "RoPE base");
    REFUSES(norm_eps, 0, "norm epsilon");
    REFUSES(n_vocab, 9, "vocabulary");
    REFUSES(n_ctx, 0, "context");
#undef REFUSES
    snprintf(m.params.arch, sizeof m.params.arch, "mamba");
    check_says(&m, "unsupported architecture \"mamba\"");
    m.params = good;
    m.tok.types[3] = 9;
    check_says(&m, "token 3");
    m.tok.types[3] = 1;
    m.tok.eos = FIXTURE_N_TOKENS;
    check_says(&m, "eos");
    meta_fini(&m);
}

static void test_text(void **state)
{
    static const struct {
        const char *text;
        size_t n;
        int rc;
    } cases[] = {
        {"plain", 5, 0},
        {"\xc3\xa9", 2, 0},
        {"\xf0\x9f\x98\x80", 4, 0},
        {"\xc0\x80", 2, -7},
        {"\xed\xa0\x80", 3, -7},
        {"\xf4\x90\x80\x80", 4, -7},
        {"\xe2\x82", 2, -7},
        {"\xff", 1, -7},
        {"a\0b", 3, -7},
        {"\xe0\x9f\xbf", 3, -7},
        {"\xf0\x8f\xbf\xbf", 4, -7},
        {"", 0, 0},
    };
    struct fence f;
    fence_init(&f, 16);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t *p = fence_put(&f, cases[i].text, cases[i].n);
        struct err e = ERR_INIT;
        if (meta_text_check(p, cases[i].n, 16, "it", &e) != cases[i].rc)
            fail_msg("case %zu: %s", i, e.text);
    }
    fence_fini(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_cap),
        cmocka_unit_test(test_hostile),    cmocka_unit_test(test_version),
        cmocka_unit_test(test_check),      cmocka_unit_test(test_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
