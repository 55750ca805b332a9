/* model_index_test.c - layout, segments, canonical bytes, and refusal of hostile ones. */
#include "tests/unit/model_fixture.h"

static struct tensor_info tensor(const char *name, int type, uint64_t row, uint64_t rows)
{
    struct tensor_info t = {.type = type, .n_dims = 2, .dims = {row, rows, 1, 1}};
    snprintf(t.name, sizeof t.name, "%s", name);
    return t;
}

static void check_refused(struct tensor_info t, const char *says)
{
    struct model_index x;
    struct err e = ERR_INIT;
    assert_int_equal(index_build(&x, &t, 1, &e), ERR_FORMAT);
    if (!strstr(e.text, says))
        fail_msg("\"%s\" does not say \"%s\"", e.text, says);
    assert_int_equal(index_build(&x, &t, 1, NULL), ERR_FORMAT); /* no error wanted is fine, too */
}

/* The file of ggml's block sizes, as GGUF files have them. */
static void test_types(void **state)
{
    assert_int_equal(tensor_type_info(TENSOR_Q4_1)->block_bytes, 20);
    assert_int_equal(tensor_type_info(TENSOR_Q8_0)->block_bytes, 34);
    assert_int_equal(tensor_type_info(TENSOR_Q6_K)->block_elems, 256);
    assert_string_equal(tensor_type_info(TENSOR_BF16)->name, "BF16");
    assert_null(tensor_type_info(4)); /* a number that ggml has withdrawn */
    assert_null(tensor_type_info(-1));
}

static void test_layout(void **state)
{
    const struct tensor_info in[] = {
        tensor("one", TENSOR_F32, 3, 1),               /* 12 bytes */
        tensor("big", TENSOR_F32, 1024, 2 * 2048 + 1), /* 16 MiB + 4 KiB: three segments */
        tensor("exact", TENSOR_F32, 1024, 2048),       /* 8 MiB: one segment */
        tensor("last", TENSOR_Q4_1, 64, 2),            /* 80 bytes */
    };
    struct model_index x;
    struct err e = ERR_INIT;
    assert_int_equal(index_build(&x, in, 4, &e), 0);
    assert_int_equal(x.n_segments, 1 + 3 + 1 + 1);
    assert_int_equal(x.tensors[0].image_offset, IMAGE_DATA_OFFSET);
    assert_int_equal(x.tensors[3].n_bytes, 80);
    uint64_t sum = 0;
    uint32_t s = 0;
    for (uint32_t t = 0; t < 4; t++) {
        assert_int_equal(x.tensors[t].image_offset % TENSOR_ALIGN, 0);
        assert_int_equal(x.tensors[t].first_segment, s);
        uint64_t at = 0;
        for (uint32_t k = 0; k < x.tensors[t].n_segments; k++, s++) {
            struct segment seg = index_segment(&x, s);
            assert_int_equal(seg.tensor, t);
            assert_int_equal(seg.offset, at);
            assert_int_equal(seg.image_offset, x.tensors[t].image_offset + at);
            assert_in_range(seg.n_bytes, 1, SEGMENT_BYTES);
            at += seg.n_bytes;
        }
        assert_int_equal(at, x.tensors[t].n_bytes);
        if (t)
            assert_true(x.tensors[t].image_offset >=
                        x.tensors[t - 1].image_offset + x.tensors[t - 1].n_bytes);
        sum += at;
    }
    assert_int_equal(x.data_bytes, sum);
    assert_true(x.image_bytes >= x.tensors[3].image_offset + 80);
    assert_ptr_equal(index_find(&x, "exact"), &x.tensors[2]);
    assert_null(index_find(&x, "exac"));
    index_fini(&x);
}

static void test_refusals(void **state)
{
    check_refused(tensor("t", 999, 32, 1), "unsupported type 999 (no known name)");
    check_refused(tensor("t", TENSOR_Q4_1, 48, 1), "whole Q4_1 blocks of 32");
    check_refused(tensor("t", TENSOR_F32, 0, 1), "dimension 0 is 0");
    check_refused(tensor("t", TENSOR_F32, UINT64_C(1) << 40, UINT64_C(1) << 40), "overflows");
    check_refused(tensor("t", TENSOR_F32, UINT64_C(1) << 31, UINT64_C(1) << 31), "overflows");
    check_refused(tensor("", TENSOR_F32, 1, 1), "found none");
    check_refused(tensor("../etc/passwd", TENSOR_F32, 1, 1), "'/'");
    check_refused(tensor("..", TENSOR_F32, 1, 1), "reserved");
    check_refused(tensor("a\nb", TENSOR_F32, 1, 1), "0x0a");
    struct tensor_info t = tensor("t", TENSOR_F32, 1, 1);
    t.n_dims = 0;
    check_refused(t, "0");
    t.n_dims = 5;
    check_refused(t, "5");
    memset(t.name, 'x', sizeof t.name); /* no NUL */
    check_refused(t, "more");
    struct model_index x;
    struct err e = ERR_INIT;
    const struct tensor_info twice[] = {tensor("same", TENSOR_F32, 1, 1),
                                        tensor("other", TENSOR_F32, 1, 1),
                                        tensor("same", TENSOR_F32, 2, 1)};
    assert_int_equal(index_build(&x, twice, 3, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "same is there twice"));
    assert_int_equal(index_build(&x, twice, 0, &e), ERR_FORMAT);
    const struct tensor_info huge = tensor("huge", TENSOR_F32, 1 << 30, 1 << 15); /* 128 TiB */
    assert_int_equal(index_build(&x, &huge, 1, &e), ERR_LIMIT);
}

static void sealed_index(struct model_index *x)
{
    const struct tensor_info in[] = {tensor("first", TENSOR_F32, 1024, 4096),
                                     tensor("second", TENSOR_Q8_0, 64, 3)};
    struct err e = ERR_INIT;
    assert_int_equal(index_build(x, in, 2, &e), 0);
    for (uint32_t s = 0; s < x->n_segments; s++)
        sha256_of(&s, sizeof s, x->hashes[s]);
    sha256_of("meta", 4, x->meta_hash);
    assert_int_equal(index_seal(x, &e), 0);
}

static void test_round_trip(void **state)
{
    struct model_index x, y;
    struct err e = ERR_INIT;
    struct buf b, again;
    buf_init(&b, INDEX_MAX_BYTES);
    buf_init(&again, INDEX_MAX_BYTES);
    sealed_index(&x);
    assert_int_equal(index_encode(&x, &b, &e), 0);
    assert_int_equal(index_decode(&y, b.data, b.len, &e), 0);
    assert_memory_equal(x.digest, y.digest, SHA256_BYTES);
    assert_memory_equal(x.hashes, y.hashes, (size_t)x.n_segments * SHA256_BYTES);
    assert_int_equal(x.image_bytes, y.image_bytes);
    assert_string_equal(y.tensors[1].name, "second");
    assert_int_equal(index_encode(&y, &again, &e), 0);
    assert_int_equal(b.len, again.len);
    assert_memory_equal(b.data, again.data, b.len);
    /* every part of it is in the digest */
    uint8_t before[SHA256_BYTES];
    memcpy(before, x.digest, SHA256_BYTES);
    x.hashes[1][0] ^= 1;
    assert_int_equal(index_seal(&x, &e), 0);
    assert_memory_not_equal(before, x.digest, SHA256_BYTES);
    index_fini(&x);
    index_fini(&y);
    buf_fini(&b);
    buf_fini(&again);
}

/* Golden bytes: these are in packs and caches that users keep. */
static void test_golden(void **state)
{
    const struct tensor_info in = tensor("t", TENSOR_Q4_1, 32, 2);
    struct model_index x;
    struct err e = ERR_INIT;
    assert_int_equal(index_build(&x, &in, 1, &e), 0);
    memset(x.hashes[0], 0xaa, SHA256_BYTES);
    memset(x.meta_hash, 0xbb, SHA256_BYTES);
    struct buf b;
    buf_init(&b, 1024);
    assert_int_equal(index_encode(&x, &b, &e), 0);
    static const uint8_t head[] = {'E', 'X', 'A', 'I', 'D', 'X', '0', '1', 1, 0, 0, 0,  1, 0,
                                   0,   0,   't', 3,   0,   0,   0,   2,   0, 0, 0, 32, 0, 0,
                                   0,   0,   0,   0,   0,   2,   0,   0,   0, 0, 0, 0,  0};
    assert_int_equal(b.len, sizeof head + 2 * SHA256_BYTES);
    assert_memory_equal(b.data, head, sizeof head);
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        assert_int_equal(b.data[sizeof head + i], 0xaa);
        assert_int_equal(b.data[sizeof head + SHA256_BYTES + i], 0xbb);
    }
    index_fini(&x);
    buf_fini(&b);
}

/* Cut anywhere, and with any byte changed, it is refused or gives another digest; never a read past
 * the end. */
static void test_hostile(void **state)
{
    struct model_index x, y;
    struct err e = ERR_INIT;
    struct buf b;
    struct fence f;
    buf_init(&b, INDEX_MAX_BYTES);
    sealed_index(&x);
    assert_int_equal(index_encode(&x, &b, &e), 0);
    fence_init(&f, b.len + 1);
    for (size_t n = 0; n < b.len; n++) {
        assert_true(index_decode(&y, fence_put(&f, b.data, n), n, &e) < 0);
        assert_true(e.text[0]);
    }
    for (size_t i = 0; i < b.len; i++)
        for (int bit = 0; bit < 8; bit++) {
            uint8_t *p = fence_put(&f, b.data, b.len);
            p[i] ^= (uint8_t)(1 << bit);
            if (index_decode(&y, p, b.len, &e) == 0) {
                assert_memory_not_equal(x.digest, y.digest, SHA256_BYTES);
                index_fini(&y);
            }
        }
    uint8_t *longer = fence_put(&f, b.data, b.len) - 1;
    memmove(longer, longer + 1, b.len);
    assert_int_equal(index_decode(&y, longer, b.len + 1, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "more follows"));
    fence_fini(&f);
    index_fini(&x);
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),    cmocka_unit_test(test_layout),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_golden),   cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
