/* model_fixture.h - small synthetic models for tests: a GGUF file built key by key, and scratch
 * folders.
 *
 * Static functions only; a test includes it and uses what it needs.
 */
#ifndef EXA_TESTS_MODEL_FIXTURE_H
#define EXA_TESTS_MODEL_FIXTURE_H

#include "base/buf.h"
#include "base/file.h"
#include "model/gguf.h"
#include "model/image.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

/* --- GGUF, piece by piece --------------------------------------------------------------------- */

struct gguf_maker {
    struct buf keys, tensors, data;
    uint64_t n_keys, n_tensors;
    uint32_t version, alignment;
};

__attribute__((unused)) static void maker_init(struct gguf_maker *m)
{
    *m = (struct gguf_maker){.version = 3, .alignment = 32};
    buf_init(&m->keys, 1 << 24);
    buf_init(&m->tensors, 1 << 24);
    buf_init(&m->data, 1 << 26);
}
__attribute__((unused)) static void maker_fini(struct gguf_maker *m)
{
    buf_fini(&m->keys);
    buf_fini(&m->tensors);
    buf_fini(&m->data);
}
static void put_text(struct buf *b, const char *s)
{
    buf_u64(b, strlen(s));
    buf_puts(b, s);
}
static void put_key(struct gguf_maker *m, const char *key, uint32_t type)
{
    put_text(&m->keys, key);
    buf_u32(&m->keys, type);
    m->n_keys++;
}
__attribute__((unused)) static void key_u32(struct gguf_maker *m, const char *key, uint32_t v)
{
    put_key(m, key, 4);
    buf_u32(&m->keys, v);
}
__attribute__((unused)) static void key_f32(struct gguf_maker *m, const char *key, float v)
{
    put_key(m, key, 6);
    buf_f32(&m->keys, v);
}
__attribute__((unused)) static void key_bool(struct gguf_maker *m, const char *key, uint8_t v)
{
    put_key(m, key, 7);
    buf_u8(&m->keys, v);
}
__attribute__((unused)) static void key_text(struct gguf_maker *m, const char *key, const char *v)
{
    put_key(m, key, 8);
    put_text(&m->keys, v);
}
__attribute__((unused)) static void key_texts(struct gguf_maker *m, const char *key,
                                              const char *const *v, uint64_t n)
{
    put_key(m, key, 9);
    buf_u32(&m->keys, 8);
    buf_u64(&m->keys, n);
    for (uint64_t i = 0; i < n; i++)
        put_text(&m->keys, v[i]);
}
__attribute__((unused)) static void key_i32s(struct gguf_maker *m, const char *key,
                                             const int32_t *v, uint64_t n)
{
    put_key(m, key, 9);
    buf_u32(&m->keys, 5);
    buf_u64(&m->keys, n);
    for (uint64_t i = 0; i < n; i++)
        buf_u32(&m->keys, (uint32_t)v[i]);
}
/* An entry of the tensor table, as told. */
__attribute__((unused)) static void tensor_entry(struct gguf_maker *m, const char *name,
                                                 uint32_t n_dims, const uint64_t *dims,
                                                 uint32_t type, uint64_t offset)
{
    put_text(&m->tensors, name);
    buf_u32(&m->tensors, n_dims);
    for (uint32_t i = 0; i < n_dims; i++)
        buf_u64(&m->tensors, dims[i]);
    buf_u32(&m->tensors, type);
    buf_u64(&m->tensors, offset);
    m->n_tensors++;
}
/* A tensor with bytes that follow from `seed`. */
__attribute__((unused)) static void tensor_add(struct gguf_maker *m, const char *name,
                                               uint32_t type, uint64_t row, uint64_t rows,
                                               uint32_t seed)
{
    const uint64_t dims[2] = {row, rows};
    const struct tensor_type_info *t = tensor_type_info((int)type);
    while (m->data.len % m->alignment)
        buf_u8(&m->data, 0);
    tensor_entry(m, name, rows > 1 ? 2 : 1, dims, type, m->data.len);
    uint64_t n = row / t->block_elems * t->block_bytes * rows;
    uint8_t *p = buf_reserve(&m->data, n);
    assert_non_null(p);
    for (uint64_t i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        p[i] = (uint8_t)(seed >> 24);
    }
    m->data.len += n;
}
/* All of it as one file; the caller owns out. */
__attribute__((unused)) static void maker_file(const struct gguf_maker *m, struct buf *out)
{
    buf_init(out, 1 << 27);
    buf_puts(out, "GGUF");
    buf_u32(out, m->version);
    buf_u64(out, m->n_tensors);
    buf_u64(out, m->n_keys);
    buf_put(out, m->keys.data, m->keys.len);
    buf_put(out, m->tensors.data, m->tensors.len);
    while (out->len % m->alignment)
        buf_u8(out, 0);
    buf_put(out, m->data.data, m->data.len);
    assert_true(buf_ok(out));
}

static const char *const FIXTURE_TOKENS[] = {"<eot>",
                                             "<bos>",
                                             "a",
                                             "b",
                                             "ab",
                                             "\xc4\xa0",
                                             "\xc4\xa0"
                                             "a",
                                             "c"};
enum { FIXTURE_N_TOKENS = 8 };

/* The keys of a small llama but for the ones whose name is in `without` (may be NULL). */
__attribute__((unused)) static void keys_llama(struct gguf_maker *m, const char *without)
{
    static const int32_t types[FIXTURE_N_TOKENS] = {3, 3, 1, 1, 1, 1, 1, 1};
    static const char *const merges[] = {"a b", "\xc4\xa0 a"};
#define WANT(key) (!without || strcmp(without, key) != 0)
    if (WANT("general.architecture"))
        key_text(m, "general.architecture", "llama");
    if (WANT("general.name"))
        key_text(m, "general.name", "tiny");
    const struct {
        const char *key;
        uint32_t value;
    } sizes[] = {
        {"llama.block_count", 1},           {"llama.context_length", 64},
        {"llama.embedding_length", 64},     {"llama.feed_forward_length", 96},
        {"llama.attention.head_count", 4},  {"llama.attention.head_count_kv", 2},
        {"tokenizer.ggml.bos_token_id", 1}, {"tokenizer.ggml.eos_token_id", 0},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (WANT(sizes[i].key))
            key_u32(m, sizes[i].key, sizes[i].value);
    if (WANT("llama.attention.layer_norm_rms_epsilon"))
        key_f32(m, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    if (WANT("tokenizer.ggml.model"))
        key_text(m, "tokenizer.ggml.model", "gpt2");
    if (WANT("tokenizer.ggml.pre"))
        key_text(m, "tokenizer.ggml.pre", "smollm");
    if (WANT("tokenizer.ggml.tokens"))
        key_texts(m, "tokenizer.ggml.tokens", FIXTURE_TOKENS, FIXTURE_N_TOKENS);
    if (WANT("tokenizer.ggml.token_type"))
        key_i32s(m, "tokenizer.ggml.token_type", types, FIXTURE_N_TOKENS);
    if (WANT("tokenizer.ggml.merges"))
        key_texts(m, "tokenizer.ggml.merges", merges, 2);
    if (WANT("tokenizer.chat_template"))
        key_text(m, "tokenizer.chat_template",
                 "{% for m in messages %}{{ m['content'] }}{% endfor %}");
#undef WANT
}

__attribute__((unused)) static void tensors_llama(struct gguf_maker *m)
{
    tensor_add(m, "token_embd.weight", TENSOR_Q8_0, 64, FIXTURE_N_TOKENS, 1);
    tensor_add(m, "blk.0.attn_q.weight", TENSOR_Q4_1, 64, 64, 2);
    tensor_add(m, "blk.0.attn_norm.weight", TENSOR_F32, 64, 1, 3);
    tensor_add(m, "output_norm.weight", TENSOR_F32, 64, 1, 4);
}

/* A whole small model in memory. */
__attribute__((unused)) static void tiny_file(struct buf *out)
{
    struct gguf_maker m;
    maker_init(&m);
    keys_llama(&m, NULL);
    tensors_llama(&m);
    maker_file(&m, out);
    maker_fini(&m);
}

/* --- bytes that end at an unreadable page ----------------------------------------------------- */

struct fence {
    uint8_t *map;
    size_t map_bytes, usable;
};
__attribute__((unused)) static void fence_init(struct fence *f, size_t max)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    f->usable = (max + page - 1) / page * page;
    f->map_bytes = f->usable + page;
    f->map = mmap(NULL, f->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(f->map, MAP_FAILED);
    assert_int_equal(mprotect(f->map + f->usable, page, PROT_NONE), 0);
}
/* n bytes whose end is the fence. */
__attribute__((unused)) static uint8_t *fence_put(struct fence *f, const void *data, size_t n)
{
    uint8_t *p = f->map + f->usable - n;
    memcpy(p, data, n);
    return p;
}
__attribute__((unused)) static void fence_fini(struct fence *f)
{
    munmap(f->map, f->map_bytes);
}

/* --- scratch folders -------------------------------------------------------------------------- */

/* A new folder; remove it with dir_remove. */
__attribute__((unused)) static void scratch_dir(char out[64])
{
    snprintf(out, 64, "/tmp/exa-test-XXXXXX");
    assert_non_null(mkdtemp(out));
}

#endif
