/* model_gguf_test.c - the GGUF reader: what it reads, and how it refuses what is wrong. */
#include "tests/unit/model_fixture.h"

#include <fcntl.h>
#include <sys/stat.h>

/* Parse the maker's file; on refusal the sentence must hold every part of `says`. */
static void check_file(const struct gguf_maker *m, int code, const char *const *says)
{
    struct buf file;
    struct gguf g;
    struct err e = ERR_INIT;
    struct fence f;
    maker_file(m, &file);
    fence_init(&f, file.len);
    int rc = gguf_parse(&g, fence_put(&f, file.data, file.len), file.len, "bad.gguf", &e);
    if (rc == 0)
        gguf_close(&g);
    if (rc != code)
        fail_msg("expected %d, found %d: %s", code, rc, e.text);
    for (; says && *says; says++)
        if (!strstr(e.text, *says))
            fail_msg("\"%s\" does not say \"%s\"", e.text, *says);
    if (code) {
        if (strncmp(e.text, "bad.gguf: ", 10) != 0)
            fail_msg("\"%s\" does not begin with the file", e.text);
        assert_null(strchr(e.text, '\n'));
        assert_int_equal(gguf_parse(&g, file.data, file.len, "bad.gguf", NULL), code);
    }
    fence_fini(&f);
    buf_fini(&file);
}
#define REFUSED(m, ...) check_file(m, ERR_FORMAT, (const char *const[]){__VA_ARGS__, NULL})

static void begin(struct gguf_maker *m)
{
    maker_init(m);
    keys_llama(m, NULL);
}

static void test_tiny(void **state)
{
    struct buf file;
    struct gguf g;
    struct err e = ERR_INIT;
    for (uint32_t version = 2; version <= 3; version++) {
        tiny_file(&file);
        file.data[4] = (uint8_t)version;
        if (gguf_parse(&g, file.data, file.len, "dir/tiny.gguf", &e))
            fail_msg("%s", e.text);
        const struct model_params *p = &g.meta.params;
        assert_string_equal(g.meta.name, "tiny");
        assert_int_equal(p->n_layers, 1);
        assert_int_equal(p->n_embd, 64);
        assert_int_equal(p->n_ff, 96);
        assert_int_equal(p->n_kv_heads, 2);
        assert_int_equal(p->head_dim, 16);
        assert_int_equal(p->rope_dim, 16);
        assert_int_equal(p->n_vocab, FIXTURE_N_TOKENS);
        assert_true(p->rope_base == 10000.0f); /* the specification's default */
        assert_true(p->tied_embeddings);
        assert_false(g.meta.tok.add_bos); /* gpt2's default */
        assert_int_equal(g.index.n_tensors, 4);
        const struct tensor_info *t = index_find(&g.index, "blk.0.attn_q.weight");
        assert_int_equal(t->type, TENSOR_Q4_1);
        assert_int_equal(t->n_bytes, 64 / 32 * 20 * 64);
        const uint8_t *at = g.tensor_data[t - g.index.tensors];
        assert_true(at >= file.data && at + t->n_bytes <= file.data + file.len);
        /* tensor_add's bytes of seed 2 */
        assert_int_equal(at[0], (uint8_t)((2u * 1664525u + 1013904223u) >> 24));
        gguf_close(&g);
        buf_fini(&file);
    }
}

static void test_variants(void **state)
{
    struct gguf_maker m;
    begin(&m); /* untied, other alignment, unknown keys of all shapes, integers of other widths */
    m.alignment = 64;
    key_u32(&m, "general.alignment", 64);
    tensors_llama(&m);
    tensor_add(&m, "output.weight", TENSOR_F16, 64, FIXTURE_N_TOKENS, 9);
    key_texts(&m, "general.languages", (const char *const[]){"en", ""}, 2);
    key_i32s(&m, "x.none", NULL, 0);
    put_key(&m, "llama.attention.key_length", 10); /* u64 */
    buf_u64(&m.keys, 32);
    put_key(&m, "llama.attention.value_length", 1); /* i8 */
    buf_u8(&m.keys, 32);
    put_key(&m, "llama.rope.freq_base", 12); /* f64 */
    buf_f64(&m.keys, 5e5);
    key_u32(&m, "llama.rope.dimension_count", 8);
    key_text(&m, "llama.rope.scaling.type", "none");
    key_f32(&m, "llama.rope.scaling.factor", 1);
    key_u32(&m, "llama.expert_count", 0);
    key_bool(&m, "tokenizer.ggml.add_bos_token", 1);
    struct buf file;
    struct gguf g;
    struct err e = ERR_INIT;
    maker_file(&m, &file);
    if (gguf_parse(&g, file.data, file.len, "v.gguf", &e))
        fail_msg("%s", e.text);
    assert_false(g.meta.params.tied_embeddings);
    assert_int_equal(g.meta.params.head_dim, 32);
    assert_int_equal(g.meta.params.rope_dim, 8);
    assert_true(g.meta.params.rope_base == 5e5f);
    assert_true(g.meta.tok.add_bos);
    gguf_close(&g);
    buf_fini(&file);
    maker_fini(&m);

    maker_init(&m); /* no name: the file's */
    keys_llama(&m, "general.name");
    tensors_llama(&m);
    maker_file(&m, &file);
    assert_int_equal(gguf_parse(&g, file.data, file.len, "some/where/nameless.gguf", &e), 0);
    assert_string_equal(g.meta.name, "nameless.gguf");
    gguf_close(&g);
    buf_fini(&file);
    maker_fini(&m);
}

static void test_missing_keys(void **state)
{
    static const char *const keys[] = {
        "general.architecture",
        "llama.block_count",
        "llama.context_length",
        "llama.embedding_length",
        "llama.feed_forward_length",
        "llama.attention.head_count",
        "llama.attention.layer_norm_rms_epsilon",
        "tokenizer.ggml.model",
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.token_type",
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        struct gguf_maker m;
        maker_init(&m);
        keys_llama(&m, keys[i]);
        tensors_llama(&m);
        REFUSED(&m, keys[i], "is missing");
        maker_fini(&m);
    }
}

static void test_header(void **state)
{
    struct gguf g;
    struct err e = ERR_INIT;
    assert_int_equal(gguf_parse(&g, "GGML...", 7, "old.bin", &e), ERR_FORMAT);
    assert_string_equal(e.text, "old.bin: not a GGUF file: does not begin with GGUF");
    assert_int_equal(gguf_parse(&g, "", 0, "empty", &e), ERR_FORMAT);
    struct gguf_maker m;
    begin(&m);
    tensors_llama(&m);
    m.version = 1;
    REFUSED(&m, "expected GGUF version 2 or 3, found 1");
    m.version = 0x03000000;
    REFUSED(&m, "big-endian");
    m.version = 3;
    uint64_t keys = m.n_keys;
    m.n_keys = UINT64_MAX;
    REFUSED(&m, "18446744073709551615 keys cannot be");
    m.n_keys = UINT64_C(1) << 61;
    REFUSED(&m, "keys cannot be");
    m.n_keys = keys;
    m.n_tensors = UINT64_MAX / 8;
    REFUSED(&m, "tensors cannot be");
    m.n_tensors = 0;
    REFUSED(&m, "expected 1 to 65536 tensors, found 0");
    maker_fini(&m);
}

/* One more key after a good model's. */
#define WITH_KEY(put, ...)                                                                         \
    do {                                                                                           \
        struct gguf_maker m;                                                                       \
        begin(&m);                                                                                 \
        tensors_llama(&m);                                                                         \
        put;                                                                                       \
        REFUSED(&m, __VA_ARGS__);                                                                  \
        maker_fini(&m);                                                                            \
    } while (0)

static void put_array(struct gguf_maker *m, const char *key, uint32_t item_type, uint64_t count)
{
    put_key(m, key, 9);
    buf_u32(&m->keys, item_type);
    buf_u64(&m->keys, count);
}

static void test_keys(void **state)
{
    WITH_KEY(key_text(&m, "general.name", "again"), "general.name", "twice");
    WITH_KEY(put_key(&m, "x.odd", 13), "x.odd", "found 13");
    WITH_KEY(put_key(&m, "x.odd", UINT32_MAX), "x.odd", "4294967295");
    WITH_KEY(put_array(&m, "x.a", 9, 1), "x.a", "arrays of arrays");
    WITH_KEY(put_array(&m, "x.a", 77, 0), "x.a", "found 77");
    WITH_KEY(put_array(&m, "x.a", 10, UINT64_MAX / 8 + 1), "x.a", "do not fit");
    WITH_KEY(put_array(&m, "x.a", 8, UINT64_MAX), "x.a", "do not fit");
    WITH_KEY(put_array(&m, "x.a", 0, UINT64_C(1) << 40), "x.a", "items of type u8 do not fit");
    WITH_KEY((put_key(&m, "x.s", 8), buf_u64(&m.keys, UINT64_MAX - 7)), "x.s",
             "its string does not fit");
    WITH_KEY(key_u32(&m, "", 1), "has no name");
    WITH_KEY(key_u32(&m, "general.alignment", 0), "general.alignment", "power of two", "found 0");
    WITH_KEY(key_u32(&m, "general.alignment", 24), "general.alignment", "found 24");
    WITH_KEY(key_u32(&m, "general.alignment", 1u << 31), "general.alignment", "found 2147483648");
    WITH_KEY(key_text(&m, "general.alignment", "32"), "expected an integer, found string");
    /* a name is shown without what a terminal would obey */
    WITH_KEY((key_u32(&m, "x.\n\x1b[31m", 1), key_u32(&m, "x.\n\x1b[31m", 1)),
             "key x.??[31m is there twice");
}

static void test_keys_that_change_results(void **state)
{
    WITH_KEY(key_text(&m, "llama.rope.scaling.type", "dynamic"), "llama.rope.scaling.type",
             "only none, linear, yarn or longrope", "found dynamic");
    WITH_KEY(key_u32(&m, "llama.expert_count", 8), "llama.expert_used_count is missing");
    WITH_KEY(key_u32(&m, "llama.expert_shared_count", 1), "llama.expert_shared_count", "found 1");
    WITH_KEY(key_u32(&m, "llama.pooling_type", 2), "llama.pooling_type", "found 2");
    WITH_KEY(key_u32(&m, "llama.attention.sliding_window_pattern", 6),
             "llama.attention.sliding_window_pattern is not known");
    WITH_KEY(key_u32(&m, "split.count", 2), "split.count", "found 2 files");
    WITH_KEY(key_u32(&m, "llama.what.ever", 0), "llama.what.ever is not known");
    WITH_KEY(key_f32(&m, "llama.rope.scaling.yarn_log_multiplier", 0.1f), "yarn_log_multiplier");
    WITH_KEY(key_bool(&m, "llama.attention.causal", 0), "llama.attention.causal");
    WITH_KEY(key_f32(&m, "llama.logit_scale", 0.5f), "llama.logit_scale", "found 0.5");
    WITH_KEY(key_bool(&m, "llama.use_parallel_residual", 2), "expected 0 or 1, found 2");
    WITH_KEY(key_u32(&m, "llama.attention.value_length", 8), "value_length",
             "expected the key length 16, found 8");
    WITH_KEY(key_u32(&m, "llama.attention.key_length", 8), "value_length");
    WITH_KEY(key_u32(&m, "llama.rope.dimension_count", 17), "rotated dimensions");
    WITH_KEY(key_u32(&m, "llama.vocab_size", 7), "vocabulary");
    WITH_KEY(key_f32(&m, "llama.rope.freq_base", 1.0f / 0.0f), "llama.rope.freq_base", "finite");
}

/* A model without `key`, then another value for it. */
#define INSTEAD(key, put, ...)                                                                     \
    do {                                                                                           \
        struct gguf_maker m;                                                                       \
        maker_init(&m);                                                                            \
        keys_llama(&m, key);                                                                       \
        tensors_llama(&m);                                                                         \
        put;                                                                                       \
        REFUSED(&m, __VA_ARGS__);                                                                  \
        maker_fini(&m);                                                                            \
    } while (0)

static void test_values(void **state)
{
    static const int32_t seven[7] = {1, 1, 1, 1, 1, 1, 1}, zero[8] = {1, 1, 1, 0, 1, 1, 1, 1};
    INSTEAD("general.architecture", key_text(&m, "general.architecture", "mamba"),
            "unsupported architecture \"mamba\"");
    INSTEAD("general.architecture",
            key_text(&m, "general.architecture", "x123456789x123456789x123456789x1"),
            "general.architecture", "at most 31 bytes");
    INSTEAD("llama.block_count", key_text(&m, "llama.block_count", "1"),
            "expected an integer, found string");
    INSTEAD("llama.block_count", key_u32(&m, "llama.block_count", 0), "llama.block_count",
            "found 0");
    INSTEAD("llama.block_count", key_u32(&m, "llama.block_count", UINT32_MAX), "layers");
    INSTEAD("llama.block_count",
            (put_key(&m, "llama.block_count", 11), buf_u64(&m.keys, UINT64_MAX)),
            "no negative number, found -1");
    INSTEAD("llama.block_count",
            (put_key(&m, "llama.block_count", 10), buf_u64(&m.keys, UINT64_C(1) << 32)),
            "found 4294967296");
    INSTEAD("llama.attention.head_count", key_u32(&m, "llama.attention.head_count", 7),
            "no multiple of the 7 heads");
    INSTEAD("llama.attention.head_count_kv", key_u32(&m, "llama.attention.head_count_kv", 0),
            "KV heads");
    INSTEAD("llama.attention.head_count_kv",
            key_i32s(&m, "llama.attention.head_count_kv", (const int32_t[]){2, 1}, 2),
            "llama.attention.head_count_kv: layers that differ", "2 in the first, 1 in layer 1");
    INSTEAD("llama.attention.head_count_kv",
            key_texts(&m, "llama.attention.head_count_kv", FIXTURE_TOKENS, 1),
            "expected an integer");
    INSTEAD("llama.attention.head_count_kv",
            key_i32s(&m, "llama.attention.head_count_kv", seven, 0), "head_count_kv", "and some");
    INSTEAD("llama.attention.layer_norm_rms_epsilon",
            key_u32(&m, "llama.attention.layer_norm_rms_epsilon", 1),
            "expected a floating-point number, found u32");
    INSTEAD("tokenizer.ggml.token_type", key_i32s(&m, "tokenizer.ggml.token_type", seven, 7),
            "expected one for each of 8 tokens, found 7");
    INSTEAD("tokenizer.ggml.token_type", key_i32s(&m, "tokenizer.ggml.token_type", zero, 8),
            "token 3", "found 0");
    INSTEAD("tokenizer.ggml.token_type",
            key_texts(&m, "tokenizer.ggml.token_type", FIXTURE_TOKENS, 8),
            "array of i32, found one of string");
    INSTEAD("tokenizer.ggml.bos_token_id", key_u32(&m, "tokenizer.ggml.bos_token_id", 8),
            "bos_token_id", "below 8, found 8");
    INSTEAD("tokenizer.ggml.merges",
            key_texts(&m, "tokenizer.ggml.merges", (const char *const[]){"\xff\xfe"}, 1),
            "tokenizer.ggml.merges", "item 0", "0xff");
    INSTEAD("general.name", key_text(&m, "general.name", "\xc3("), "general.name", "UTF-8");
    INSTEAD("tokenizer.ggml.tokens",
            (put_array(&m, "tokenizer.ggml.tokens", 8, 8), buf_u64(&m.keys, 3),
             buf_put(&m.keys, "a\0b", 3), put_text(&m.keys, "b"), put_text(&m.keys, "c"),
             put_text(&m.keys, "d"), put_text(&m.keys, "e"), put_text(&m.keys, "f"),
             put_text(&m.keys, "g"), put_text(&m.keys, "h")),
            "tokens", "item 0", "0x00");
}

/* One more tensor entry after a good model's. */
#define WITH_TENSOR(name, n_dims, type, offset, dims, ...)                                         \
    do {                                                                                           \
        struct gguf_maker m;                                                                       \
        begin(&m);                                                                                 \
        tensors_llama(&m);                                                                         \
        const uint64_t d[8] = {OPEN dims};                                                         \
        tensor_entry(&m, name, n_dims, d, type, offset);                                           \
        REFUSED(&m, __VA_ARGS__);                                                                  \
        maker_fini(&m);                                                                            \
    } while (0)
#define OPEN(...) __VA_ARGS__

static void test_tensors(void **state)
{
    const uint64_t end = 1 << 20; /* past all data */
    WITH_TENSOR("output_norm.weight", 1, TENSOR_F32, end, (1), "output_norm.weight is there twice");
    WITH_TENSOR("x", 0, TENSOR_F32, 0, (1), "tensor x", "found 0");
    WITH_TENSOR("x", 5, TENSOR_F32, 0, (1, 1, 1, 1, 1), "tensor x", "1 to 4 dimensions, found 5");
    WITH_TENSOR("x", 3, TENSOR_F32, 0, (1, 0, 1), "tensor x");
    WITH_TENSOR("x", 2, TENSOR_F32, 0, (4, 0), "tensor x", "dimension 1 is 0");
    WITH_TENSOR("x", 1, 20, 0, (32), "tensor x", "unsupported type 20 (IQ4_NL)");
    WITH_TENSOR("x", 1, UINT32_MAX, 0, (32), "tensor x", "unsupported type");
    WITH_TENSOR("x", 1, TENSOR_Q8_0, 0, (33), "tensor x", "whole Q8_0 blocks of 32", "rows of 33");
    WITH_TENSOR("x", 2, TENSOR_F32, 0, (UINT64_MAX, 2), "tensor x", "overflows");
    WITH_TENSOR("x", 4, TENSOR_F32, 0, (1u << 31, 1u << 31, 1u << 31, 1u << 31), "tensor x",
                "overflows");
    WITH_TENSOR("x", 1, TENSOR_F32, end, (4), "tensor x", "16 bytes at offset 1048576",
                "not within");
    WITH_TENSOR("x", 1, TENSOR_F32, UINT64_MAX - 31, (4), "tensor x", "not within");
    WITH_TENSOR("x", 2, TENSOR_F32, 0, (1 << 20, 1 << 20), "tensor x", "not within");
    WITH_TENSOR("x", 1, TENSOR_F32, 4, (4), "tensor x", "multiple of 32, found 4");
    WITH_TENSOR("x", 1, TENSOR_F32, 32, (4), "token_embd.weight and x overlap at offset 32");
    WITH_TENSOR("../x", 1, TENSOR_F32, end, (4), "'/'");
    WITH_TENSOR("", 1, TENSOR_F32, end, (4), "has no name");
    char longer[TENSOR_NAME_BYTES + 1];
    memset(longer, 'n', sizeof longer);
    longer[TENSOR_NAME_BYTES] = 0;
    WITH_TENSOR(longer, 1, TENSOR_F32, end, (4), "at most 95 bytes", "found 96");
}

/* A file cut at any byte is refused, and nothing past the cut is read. */
static void test_truncated(void **state)
{
    struct buf file;
    struct fence f;
    tiny_file(&file);
    fence_init(&f, file.len);
    for (size_t n = 0; n < file.len; n++) {
        struct gguf g;
        struct err e = ERR_INIT;
        assert_int_equal(gguf_parse(&g, fence_put(&f, file.data, n), n, "cut.gguf", &e),
                         ERR_FORMAT);
        assert_memory_equal(e.text, "cut.gguf: ", 10);
    }
    struct gguf g;
    struct err e = ERR_INIT;
    assert_int_equal(gguf_parse(&g, fence_put(&f, file.data, file.len), file.len, "cut.gguf", &e),
                     0);
    gguf_close(&g);
    fence_fini(&f);
    buf_fini(&file);
}

/* What is read after damage keeps all the promises that users of struct gguf build on. */
static void check_promises(const struct gguf *g, const uint8_t *start, size_t n)
{
    struct err e = ERR_INIT;
    assert_int_equal(meta_check(&g->meta, &e), 0);
    for (uint32_t i = 0; i < g->index.n_tensors; i++) {
        const struct tensor_info *t = &g->index.tensors[i];
        assert_true(g->tensor_data[i] >= start && t->n_bytes <= n);
        assert_true((size_t)(g->tensor_data[i] - start) <= n - t->n_bytes);
    }
}

static void test_damaged(void **state)
{
    struct buf file;
    struct fence f;
    tiny_file(&file);
    fence_init(&f, file.len);
    uint32_t r = 12345, accepted = 0;
    for (int round = 0; round < 20000; round++) {
        uint8_t *p = fence_put(&f, file.data, file.len);
        for (int k = 0; k <= round % 3; k++) { /* mostly the head, where everything is decided */
            r = r * 1664525 + 1013904223;
            size_t at = (r >> 8) % (round % 8 ? 1300 : file.len);
            r = r * 1664525 + 1013904223;
            p[at] = round % 2 ? (uint8_t)(r >> 24) : (uint8_t)(p[at] ^ (1u << (r >> 29)));
        }
        struct gguf g;
        struct err e = ERR_INIT;
        if (gguf_parse(&g, p, file.len, "damaged.gguf", &e) == 0) {
            check_promises(&g, p, file.len);
            gguf_close(&g);
            accepted++;
        } else {
            assert_memory_equal(e.text, "damaged.gguf: ", 14);
        }
    }
    assert_in_range(accepted, 100, 19000); /* else the damage proves nothing */
    fence_fini(&f);
    buf_fini(&file);
}

static void test_files(void **state)
{
    char dir[64], path[128];
    struct gguf g;
    struct err e = ERR_INIT;
    scratch_dir(dir);
    assert_int_equal(gguf_open(&g, "/nowhere/at/all.gguf", &e), ERR_SYS);
    assert_non_null(strstr(e.text, "/nowhere/at/all.gguf"));
    assert_int_equal(gguf_open(&g, dir, &e), ERR_FORMAT);
    snprintf(path, sizeof path, "%s/short.gguf", dir);
    assert_int_equal(file_publish(path, "GGUF", 4, 0600, &e), 0);
    assert_int_equal(gguf_open(&g, path, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "short.gguf"));
    struct buf file;
    tiny_file(&file);
    snprintf(path, sizeof path, "%s/tiny.gguf", dir);
    assert_int_equal(file_publish(path, file.data, file.len, 0600, &e), 0);
    if (gguf_open(&g, path, &e))
        fail_msg("%s", e.text);
    assert_non_null(g.map);
    check_promises(&g, g.map, g.map_bytes);
    gguf_close(&g);
    buf_fini(&file);
    assert_int_equal(dir_remove(dir, &e), 0);
}

/* The real model, as golden/README.md describes it. */
static void test_real(void **state)
{
    const char *path = getenv("EXASERVE_TEST_MODEL");
    struct gguf g;
    struct err e = ERR_INIT;
    if (!path)
        path = "build/model/SmolLM2-135M-Instruct.Q4_1.gguf";
    if (gguf_open(&g, path, &e))
        fail_msg("%s", e.text);
    const struct model_params *p = &g.meta.params;
    assert_int_equal(p->n_layers, 30);
    assert_int_equal(p->n_embd, 576);
    assert_int_equal(p->n_ff, 1536);
    assert_int_equal(p->n_heads, 9);
    assert_int_equal(p->n_kv_heads, 3);
    assert_int_equal(p->head_dim, 64);
    assert_int_equal(p->rope_dim, 64);
    assert_int_equal(p->n_ctx, 8192);
    assert_int_equal(p->n_vocab, 49152);
    assert_true(p->rope_base == 100000.0f && p->norm_eps == 1e-5f && p->tied_embeddings);
    assert_int_equal(g.meta.tok.n_merges, 48900);
    assert_int_equal(g.meta.tok.bos, 1);
    assert_int_equal(g.meta.tok.eos, 2);
    assert_string_equal(g.meta.tok.pre, "smollm");
    assert_string_equal(g.meta.tok.tokens[1], "<|im_start|>");
    assert_int_equal(g.index.n_tensors, 272);
    uint32_t counts[32] = {0};
    for (uint32_t i = 0; i < g.index.n_tensors; i++)
        counts[g.index.tensors[i].type]++;
    assert_int_equal(counts[TENSOR_Q4_1], 210);
    assert_int_equal(counts[TENSOR_F32], 61);
    assert_int_equal(counts[TENSOR_Q8_0], 1);
    gguf_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiny),         cmocka_unit_test(test_variants),
        cmocka_unit_test(test_missing_keys), cmocka_unit_test(test_header),
        cmocka_unit_test(test_keys),         cmocka_unit_test(test_keys_that_change_results),
        cmocka_unit_test(test_values),       cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_truncated),    cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_files),        cmocka_unit_test(test_real),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
