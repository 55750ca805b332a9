/* model_quantize_test.c - quantising a source: which tensor becomes what, the same bytes in any pieces and with any number of
 * threads, and the error that is counted. */
#include "tests/unit/hf_fixture.h"

#include "model/quantize.h"

#include <math.h>

struct model {
    struct tensor_info infos[16];
    uint32_t n;
    uint8_t *data[16];
    struct model_index index;
    struct tensor_source source;
};

static void model_add(struct model *m, const char *name, int type, uint64_t columns, uint64_t rows,
                      uint64_t experts)
{
    struct tensor_info *t = &m->infos[m->n];
    *t = (struct tensor_info){.type = type,
                              .n_dims = experts > 1 ? 3
                                        : rows > 1  ? 2
                                                    : 1,
                              .dims = {columns, rows, experts, 1}};
    snprintf(t->name, sizeof t->name, "%s", name);
    size_t n = columns * rows * experts;
    const struct tensor_type_info *info = tensor_type_info(type);
    float *x = malloc(n * sizeof *x);
    m->data[m->n] = malloc(n / info->block_elems * info->block_bytes);
    assert_non_null(x);
    assert_non_null(m->data[m->n]);
    for (size_t i = 0; i < n; i++)
        x[i] = fixture_weight(m->n + 1, i);
    block_pack(type, m->data[m->n], x, n);
    free(x);
    m->n++;
}

static void model_done(struct model *m)
{
    struct err e = ERR_INIT;
    if (index_build(&m->index, m->infos, m->n, &e))
        fail_msg("%s", e.text);
    m->source = source_mapped((const uint8_t *const *)m->data);
}

static void model_fini(struct model *m)
{
    for (uint32_t i = 0; i < m->n; i++)
        free(m->data[i]);
    index_fini(&m->index);
}

static void model_small(struct model *m, int type)
{
    *m = (struct model){0};
    model_add(m, "token_embd.weight", type, 256, 40, 1);
    model_add(m, "output.weight", type, 256, 40, 1);
    model_add(m, "output_norm.weight", TENSOR_F32, 256, 1, 1);
    model_add(m, "blk.0.attn_q.weight", type, 256, 48, 1);
    model_add(m, "blk.0.attn_k.weight", type, 96, 48, 1);
    model_add(m, "blk.0.attn_v.weight", TENSOR_F32, 40, 8, 1);
    model_add(m, "blk.0.attn_q.bias", TENSOR_F32, 48, 1, 1);
    model_add(m, "blk.0.ffn_gate_inp.weight", TENSOR_F32, 256, 4, 1);
    model_add(m, "blk.0.ffn_up_exps.weight", type, 256, 8, 4);
    model_add(m, "rope_freqs.weight", TENSOR_F32, 32, 1, 1);
    model_done(m);
}

static int became(const struct quantize *q, const char *name)
{
    return index_find(&q->index, name)->type;
}

static void test_choice(void **state)
{
    (void)state;
    static const struct {
        int asked, matrix, embedding, rows96, rows40;
    } table[] = {
        {TENSOR_Q4_0, TENSOR_Q4_0, TENSOR_Q8_0, TENSOR_Q4_0, TENSOR_F16},
        {TENSOR_Q4_K, TENSOR_Q4_K, TENSOR_Q8_0, TENSOR_Q5_0, TENSOR_F16},
        {TENSOR_Q5_K, TENSOR_Q5_K, TENSOR_Q8_0, TENSOR_Q5_1, TENSOR_F16},
        {TENSOR_Q6_K, TENSOR_Q6_K, TENSOR_Q8_0, TENSOR_Q8_0, TENSOR_F16},
        {TENSOR_Q8_0, TENSOR_Q8_0, TENSOR_Q8_0, TENSOR_Q8_0, TENSOR_F16},
        {TENSOR_F8_E4M3, TENSOR_F8_E4M3, TENSOR_Q8_0, TENSOR_F8_E4M3, TENSOR_F16},
        {TENSOR_F16, TENSOR_F16, TENSOR_F16, TENSOR_F16, TENSOR_F16},
        {TENSOR_BF16, TENSOR_BF16, TENSOR_BF16, TENSOR_BF16, TENSOR_BF16},
    };
    struct model m;
    model_small(&m, TENSOR_F32);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct quantize q;
        struct err e = ERR_INIT;
        assert_int_equal(quantize_open(&q, &m.index, &m.source, table[i].asked, 2, &e), 0);
        assert_int_equal(became(&q, "blk.0.attn_q.weight"), table[i].matrix);
        assert_int_equal(became(&q, "blk.0.ffn_up_exps.weight"), table[i].matrix);
        assert_int_equal(became(&q, "token_embd.weight"), table[i].embedding);
        assert_int_equal(became(&q, "output.weight"), table[i].embedding);
        assert_int_equal(became(&q, "blk.0.attn_k.weight"), table[i].rows96);
        assert_int_equal(became(&q, "blk.0.attn_v.weight"), table[i].rows40);
        static const char *const kept[] = {"output_norm.weight", "blk.0.attn_q.bias",
                                           "blk.0.ffn_gate_inp.weight", "rope_freqs.weight"};
        for (size_t k = 0; k < 4; k++)
            assert_int_equal(became(&q, kept[k]), TENSOR_F32);
        assert_int_equal(q.tensors[4].substitute, table[i].rows96 != table[i].matrix);
        quantize_close(&q);
        quantize_close(&q); /* closed is closed */
    }
    model_fini(&m);
    /* nothing grows */
    model_small(&m, TENSOR_Q4_1);
    struct quantize q;
    struct err e = ERR_INIT;
    assert_int_equal(quantize_open(&q, &m.index, &m.source, TENSOR_Q8_0, 2, &e), 0);
    for (uint32_t i = 0; i < m.n; i++)
        if (i != 5) /* the F32 one */
            assert_int_equal(q.tensors[i].from, q.tensors[i].to);
    quantize_close(&q);
    model_fini(&m);
}

/* What block_pack makes of each row, whatever pieces are asked for and however many threads make them. */
static void test_bytes_and_error(void **state)
{
    (void)state;
    static const int types[] = {TENSOR_Q4_0, TENSOR_Q4_K, TENSOR_Q6_K, TENSOR_F16};
    static const char *const names[] = {"blk.0.attn_q.weight", "blk.0.ffn_up_exps.weight",
                                        "token_embd.weight", "blk.0.attn_k.weight"};
    struct model m;
    model_small(&m, TENSOR_BF16);
    for (size_t i = 0; i < 4 * 4; i++) {
        struct err e = ERR_INIT;
        const char *name = names[i % 4];
        uint32_t number = (uint32_t)(index_find(&m.index, name) - m.index.tensors);
        const struct tensor_info *in = &m.index.tensors[number], *out;
        size_t n = in->dims[0] * in->dims[1] * in->dims[2];
        float *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
        uint8_t *want = NULL;
        for (unsigned threads = 1; threads <= 3; threads++)
            for (uint32_t step = 100; step < 1 << 22; step *= 40) {
                struct quantize q;
                assert_int_equal(quantize_open(&q, &m.index, &m.source, types[i / 4], threads, &e),
                                 0);
                struct tensor_source s = quantize_source(&q);
                uint8_t *bytes = source_all(&s, &q.index, name, step, &out);
                if (!want) {
                    block_unpack(in->type, x, m.data[number], n);
                    want = malloc(out->n_bytes);
                    assert_non_null(want);
                    if (out->type == in->type)
                        memcpy(want, m.data[number], in->n_bytes);
                    else
                        block_pack(out->type, want, x, n);
                    block_unpack(out->type, y, want, n);
                }
                assert_memory_equal(bytes, want, out->n_bytes);
                free(bytes);
                double error = 0, square = 0;
                for (size_t k = 0; k < n; k++) {
                    error += ((double)y[k] - (double)x[k]) * ((double)y[k] - (double)x[k]);
                    square += (double)x[k] * (double)x[k];
                }
                if (out->type != in->type) {
                    assert_true(fabs(q.tensors[number].error - error) <= 1e-9 * error);
                    assert_true(fabs(q.tensors[number].square - square) <= 1e-9 * square);
                }
                quantize_close(&q);
            }
        free(want);
        free(x);
        free(y);
    }
    model_fini(&m);
}

static void test_bad_weights(void **state)
{
    (void)state;
    static const struct {
        float value;
        const char *says;
    } table[] = {
        {NAN, "tensor blk.0.attn_q.weight: a weight is not finite"},
        {INFINITY, "tensor blk.0.attn_q.weight: a weight is not finite"},
        {1e9f, "tensor blk.0.attn_q.weight: a weight is too large for Q4_0"},
    };
    for (size_t i = 0; i < 3; i++) {
        struct model m;
        struct quantize q;
        struct err e = ERR_INIT;
        model_small(&m, TENSOR_F32);
        memcpy(m.data[3] + 4 * 1234, &table[i].value, 4);
        assert_int_equal(quantize_open(&q, &m.index, &m.source, TENSOR_Q4_0, 2, &e), 0);
        struct tensor_source s = quantize_source(&q);
        uint8_t *buf = malloc(q.index.tensors[3].n_bytes);
        const uint8_t *bytes;
        assert_non_null(buf);
        assert_int_equal(s.read(s.ctx, 3, 0, (uint32_t)q.index.tensors[3].n_bytes, buf, &bytes, &e),
                         ERR_FORMAT);
        if (!strstr(e.text, table[i].says))
            fail_msg("\"%s\" does not say \"%s\"", e.text, table[i].says);
        free(buf);
        quantize_close(&q);
        model_fini(&m);
    }
}

static void test_names(void **state)
{
    (void)state;
    assert_int_equal(quantize_type("Q4_K"), TENSOR_Q4_K);
    assert_int_equal(quantize_type("q4_k"), TENSOR_Q4_K);
    assert_int_equal(quantize_type("f8_e4m3"), TENSOR_F8_E4M3);
    assert_int_equal(quantize_type("F32"), -1);
    assert_int_equal(quantize_type("Q4"), -1);
    /* the list for people names them all */
    char list[256], *save = NULL;
    snprintf(list, sizeof list, "%s", QUANTIZE_NAMES);
    int n = 0;
    for (char *name = strtok_r(list, ", ", &save); name; name = strtok_r(NULL, ", ", &save), n++)
        assert_true(quantize_type(name) >= 0);
    assert_int_equal(n, 11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_bytes_and_error),
        cmocka_unit_test(test_bad_weights),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
