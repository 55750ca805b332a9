/* hf_fixture.h - safetensors files and Hugging Face folders for tests, written piece by piece.
 *
 * Static functions only; a test includes it and uses what it needs.
 */
#ifndef EXA_TESTS_HF_FIXTURE_H
#define EXA_TESTS_HF_FIXTURE_H

#include "tests/unit/model_fixture.h"

#include "model/blocks.h"
#include "model/hf_model.h"
#include "model/safetensors.h"

struct st_maker {
    struct buf header, data;
};

__attribute__((unused)) static void st_init(struct st_maker *m)
{
    buf_init(&m->header, 1 << 22);
    buf_init(&m->data, 1 << 24);
    buf_puts(&m->header, "{\"__metadata__\":{\"format\":\"pt\"}");
}
__attribute__((unused)) static void st_fini(struct st_maker *m)
{
    buf_fini(&m->header);
    buf_fini(&m->data);
}
/* An entry of the header, as told. */
__attribute__((unused)) static void st_entry(struct st_maker *m, const char *name,
                                             const char *dtype, const char *shape, uint64_t from,
                                             uint64_t to)
{
    buf_printf(&m->header, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}",
               name, dtype, shape, (unsigned long long)from, (unsigned long long)to);
}
/* n weights of a known row: weight i of a tensor with this seed is fixture_weight(seed, i), exact in all types but F8. */
__attribute__((unused)) static float fixture_weight(uint32_t seed, uint64_t i)
{
    uint32_t s = seed * 2654435761u + (uint32_t)i * 40503u;
    s ^= s >> 13;
    return (float)((int)(s % 97) - 48) / 32.0f;
}
__attribute__((unused)) static void st_add(struct st_maker *m, const char *name, const char *dtype,
                                           const char *shape, uint64_t n, uint32_t seed)
{
    uint64_t from = m->data.len;
    for (uint64_t i = 0; i < n; i++) {
        float v = fixture_weight(seed, i);
        uint8_t two[2];
        if (strcmp(dtype, "F32") == 0) {
            buf_f32(&m->data, v);
        } else if (strcmp(dtype, "F8_E4M3") == 0) {
            buf_u8(&m->data, float_e4m3(v));
        } else {
            if (strcmp(dtype, "F16") == 0)
                float_half(two, v);
            else
                float_bfloat(two, v);
            buf_put(&m->data, two, 2);
        }
    }
    st_entry(m, name, dtype, shape, from, m->data.len);
}
/* The whole file; the caller owns out. */
__attribute__((unused)) static void st_file(const struct st_maker *m, struct buf *out)
{
    buf_init(out, 1 << 25);
    buf_u64(out, m->header.len + 1);
    buf_put(out, m->header.data, m->header.len);
    buf_puts(out, "}");
    buf_put(out, m->data.data, m->data.len);
    assert_true(buf_ok(out));
}

__attribute__((unused)) static void folder_put(const char *dir, const char *name, const void *data,
                                               size_t n)
{
    char path[256];
    struct err e = ERR_INIT;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    char *slash = strrchr(path, '/');
    *slash = 0;
    assert_int_equal(dir_make(path, &e), 0);
    *slash = '/';
    if (file_publish(path, data, n, 0600, &e))
        fail_msg("%s", e.text);
}
__attribute__((unused)) static void folder_puts(const char *dir, const char *name, const char *text)
{
    folder_put(dir, name, text, strlen(text));
}
__attribute__((unused)) static void folder_put_st(const char *dir, const char *name,
                                                  const struct st_maker *m)
{
    struct buf file;
    st_file(m, &file);
    folder_put(dir, name, file.data, file.len);
    buf_fini(&file);
}

/* Stands for the folder's tokenizer: 5 tokens. */
__attribute__((unused)) static int fixture_tokenizer(const char *folder, struct model_meta *m,
                                                     struct err *e)
{
    struct tokenizer_data *t = &m->tok;
    (void)folder;
    (void)e;
    t->tokens = calloc(6, sizeof *t->tokens);
    t->types = malloc(6);
    assert_non_null(t->tokens);
    assert_non_null(t->types);
    memcpy(t->model, "gpt2", 5);
    memcpy(t->pre, "gpt-2", 6);
    for (; t->n_tokens < 5; t->n_tokens++) {
        t->tokens[t->n_tokens] =
            strdup((const char *const[]){"a", "b", "c", "d", "e"}[t->n_tokens]);
        t->types[t->n_tokens] = TOKEN_NORMAL;
    }
    return 0;
}

/* All bytes of a tensor, asked for in pieces of `step`; the caller frees them. */
__attribute__((unused)) static uint8_t *source_all(const struct tensor_source *s,
                                                   const struct model_index *x, const char *name,
                                                   uint32_t step, const struct tensor_info **info)
{
    struct err e = ERR_INIT;
    *info = index_find(x, name);
    if (!*info)
        fail_msg("no tensor %s", name);
    uint64_t n = (*info)->n_bytes;
    uint8_t *out = malloc(n), *buf = malloc(step);
    assert_non_null(out);
    assert_non_null(buf);
    for (uint64_t at = 0; at < n; at += step) {
        uint32_t k = n - at < step ? (uint32_t)(n - at) : step;
        const uint8_t *bytes;
        if (s->read(s->ctx, (uint32_t)(*info - x->tensors), at, k, buf, &bytes, &e))
            fail_msg("%s: %s", name, e.text);
        memcpy(out + at, bytes, k);
    }
    free(buf);
    return out;
}

#endif
