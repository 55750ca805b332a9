/* model_safetensors_test.c - the safetensors reader: what it reads, and how it refuses what is wrong. */
#include "tests/unit/hf_fixture.h"

/* Bytes that must be refused with `says`, at the end of readable memory. */
static void check_bytes(const void *data, size_t n, int code, const char *says)
{
    struct fence f;
    struct safetensors s;
    struct err e = ERR_INIT;
    fence_init(&f, n + 1);
    const uint8_t *p = fence_put(&f, data, n);
    int rc = safetensors_parse(&s, p, n, "bad.safetensors", &e);
    if (rc != code)
        fail_msg("expected %d, found %d: %s", code, rc, e.text);
    if (!strstr(e.text, says) || strncmp(e.text, "bad.safetensors: ", 17) != 0 ||
        strchr(e.text, '\n'))
        fail_msg("\"%s\" does not say \"%s\"", e.text, says);
    assert_int_equal(safetensors_parse(&s, p, n, "bad.safetensors", NULL), code);
    fence_fini(&f);
}

/* A file of this header and n bytes of data. */
static void check_header(const char *header, size_t n_data, const char *says)
{
    struct buf b;
    buf_init(&b, 1 << 26);
    buf_u64(&b, strlen(header));
    buf_puts(&b, header);
    for (size_t i = 0; i < n_data; i++)
        buf_u8(&b, 0);
    assert_true(buf_ok(&b));
    check_bytes(b.data, b.len, ERR_FORMAT, says);
    buf_fini(&b);
}

static void test_good(void **state)
{
    (void)state;
    struct st_maker m;
    struct buf file;
    struct safetensors s;
    struct err e = ERR_INIT;
    st_init(&m);
    st_add(&m, "b.weight", "BF16", "3,4", 12, 1);
    st_add(&m, "a.weight", "F32", "5", 5, 2);
    st_add(&m, "empty", "F16", "0,7", 0, 3);
    st_add(&m, "scalar", "F32", "", 1, 4);
    st_add(&m, "f8", "F8_E4M3", "2,2,2", 8, 5);
    st_file(&m, &file);
    if (safetensors_parse(&s, file.data, file.len, "good.safetensors", &e))
        fail_msg("%s", e.text);
    assert_int_equal(s.n_tensors, 5);
    const struct st_tensor *t = safetensors_find(&s, "b.weight");
    assert_non_null(t);
    assert_int_equal(t->dtype, ST_BF16);
    assert_int_equal(t->n_dims, 2);
    assert_true(t->dims[0] == 3 && t->dims[1] == 4 && t->dims[2] == 1);
    assert_int_equal(t->n_bytes, 24);
    assert_true(bfloat_float(t->data + 2 * 7) == fixture_weight(1, 7));
    t = safetensors_find(&s, "scalar");
    assert_int_equal(t->n_dims, 0);
    assert_int_equal(t->n_weights, 1);
    assert_int_equal(safetensors_find(&s, "empty")->n_bytes, 0);
    assert_int_equal(safetensors_find(&s, "f8")->n_bytes, 8);
    assert_null(safetensors_find(&s, "c"));
    assert_null(safetensors_find(&s, "__metadata__"));
    safetensors_close(&s);
    safetensors_close(&s); /* closed is closed */
    buf_fini(&file);
    st_fini(&m);
}

#define T(name, dtype, shape, from, to)                                                            \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]" \
    "}"

static void test_hostile_headers(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t n_data;
        const char *says;
    } table[] = {
        {"", 0, "header"},
        {"{", 0, "header: at byte"},
        {"[]", 0, "expected a JSON object"},
        {"{\"a\":1}", 0, "tensor a: expected an object"},
        {"{\"a\":{}}", 0, "tensor a: expected a text \"dtype\""},
        {"{" T("a", "F32", "[1]", "0", "4") "," T("a", "F32", "[1]", "4", "8") "}", 8,
         "duplicate object key"},
        {"{" T("", "F32", "[1]", "0", "4") "}", 4, "names of 1 to"},
        {"{" T("a\\nb", "F32", "[1]", "0", "4") "}", 4,
         "without control characters, found byte 0x0a"},
        {"{" T("a", "F31", "[1]", "0", "4") "}", 4, "tensor a: unknown dtype \"F31\""},
        {"{" T("a", "F32", "[-1]", "0", "4") "}", 4, "dimension 0 is no count"},
        {"{" T("a", "F32", "[1.5]", "0", "4") "}", 4, "dimension 0 is no count"},
        {"{" T("a", "F32", "[9223372036854775808]", "0", "4") "}", 4, "too big integer"},
        {"{" T("a", "F32", "[9223372036854775807,3]", "0", "4") "}", 4,
         "number of weights overflows"},
        {"{" T("a", "F32", "[9223372036854775807]", "0", "4") "}", 4, "size in bytes overflows"},
        {"{" T("a", "F32", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4, "at most 8 numbers"},
        {"{" T("a", "F32", "1", "0", "4") "}", 4, "expected a \"shape\""},
        {"{" T("a", "F32", "[2]", "0", "4") "}", 4,
         "expected 8 bytes for its shape in F32, found 4"},
        {"{" T("a", "F32", "[1]", "4", "0") "}", 4, "data_offsets"},
        {"{" T("a", "F32", "[1]", "-4", "0") "}", 4, "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4, "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4,
         "found more"},
        {"{" T("a", "F32", "[1]", "0", "4") "}", 3, "not within the file's 3 bytes"},
        {"{" T("a", "F32", "[1]", "0", "4") "}", 5, "1 bytes after the last tensor belong to none"},
        {"{}", 5, "5 bytes after the last tensor belong to none"},
        {"{" T("a", "F32", "[1]", "4", "8") "}", 8, "4 bytes before tensor a belong to none"},
        {"{" T("a", "F32", "[2]", "0", "8") "," T("b", "F32", "[1]", "4", "8") "}", 8,
         "tensors a and b overlap"},
        {"{" T("a", "F32", "[1]", "0", "4") "," T("b", "F32", "[1]", "0", "4") "}", 4, "overlap"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        check_header(table[i].header, table[i].n_data, table[i].says);
    /* thousands of brackets: a depth limit, no stack */
    char *deep = malloc(100001);
    assert_non_null(deep);
    memset(deep, '[', 100000);
    deep[100000] = 0;
    check_header(deep, 0, "header: at byte");
    free(deep);
}

static void test_hostile_lengths(void **state)
{
    (void)state;
    struct buf b;
    for (size_t n = 0; n < 8; n++)
        check_bytes("\1\0\0\0\0\0\0\0", n, ERR_FORMAT, "not a safetensors file");
    static const uint64_t lengths[] = {1, UINT64_MAX, UINT64_MAX - 7, UINT64_C(1) << 63, 1000};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        buf_init(&b, 64);
        buf_u64(&b, lengths[i]);
        check_bytes(b.data, b.len, ERR_FORMAT, "not a safetensors file");
        buf_fini(&b);
    }
    /* a header longer than any is not read */
    size_t n = SAFETENSORS_HEADER_BYTES + 1;
    buf_init(&b, n + 64);
    buf_u64(&b, n);
    uint8_t *p = buf_reserve(&b, n);
    assert_non_null(p);
    memset(p, ' ', n);
    b.len += n;
    check_bytes(b.data, b.len, ERR_LIMIT, "header of at most");
    buf_fini(&b);
}

/* Every cut of a good file, and every byte of its header changed: an error or a file that keeps its promises. */
static void test_damaged(void **state)
{
    (void)state;
    struct st_maker m;
    struct buf file;
    struct safetensors s;
    st_init(&m);
    st_add(&m, "w", "F16", "2,3", 6, 1);
    st_add(&m, "v", "F32", "2", 2, 2);
    st_file(&m, &file);
    struct fence f;
    fence_init(&f, file.len);
    for (size_t n = 0; n < file.len; n++) {
        const uint8_t *p = fence_put(&f, file.data, n);
        assert_true(safetensors_parse(&s, p, n, "cut", NULL) < 0);
    }
    size_t head = file.len - m.data.len;
    for (size_t i = 0; i < head; i++)
        for (int bit = 0; bit < 8; bit++) {
            uint8_t *p = fence_put(&f, file.data, file.len);
            p[i] ^= (uint8_t)(1 << bit);
            if (safetensors_parse(&s, p, file.len, "damaged", NULL))
                continue;
            for (uint32_t t = 0; t < s.n_tensors; t++)
                assert_true(s.tensors[t].data >= p &&
                            s.tensors[t].data + s.tensors[t].n_bytes <= p + file.len);
            safetensors_close(&s);
        }
    fence_fini(&f);
    buf_fini(&file);
    st_fini(&m);
}

static void test_files(void **state)
{
    (void)state;
    char dir[64], path[128];
    struct safetensors s;
    struct st_maker m;
    struct err e = ERR_INIT;
    scratch_dir(dir);
    snprintf(path, sizeof path, "%s/x.safetensors", dir);
    assert_int_equal(safetensors_open(&s, path, &e), ERR_SYS);
    assert_non_null(strstr(e.text, path));
    assert_int_equal(safetensors_open(&s, dir, &e), ERR_FORMAT);
    folder_puts(dir, "x.safetensors", "1234");
    assert_int_equal(safetensors_open(&s, path, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "at least 8 bytes, found 4"));
    st_init(&m);
    st_add(&m, "w", "F32", "4", 4, 9);
    folder_put_st(dir, "x.safetensors", &m);
    if (safetensors_open(&s, path, &e))
        fail_msg("%s", e.text);
    float v;
    memcpy(&v, safetensors_find(&s, "w")->data + 8, 4);
    assert_true(v == fixture_weight(9, 2));
    safetensors_close(&s);
    st_fini(&m);
    assert_int_equal(dir_remove(dir, &e), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_hostile_headers),
        cmocka_unit_test(test_hostile_lengths),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
