/* base_buf_test.c - the cap, sticky failure, little-endian both ways, and readers that stop at the end of memory. */
#include "base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static void puts_little_endian(void **state)
{
    struct buf b;
    buf_init(&b, 1000);
    buf_u8(&b, 0x01);
    buf_u16(&b, 0x0302);
    buf_u32(&b, 0x07060504);
    buf_u64(&b, 0x0f0e0d0c0b0a0908);
    for (size_t i = 0; i < 15; i++)
        assert_int_equal(b.data[i], i + 1);
    buf_f32(&b, 1.0f);
    buf_f64(&b, -2.0);
    assert_memory_equal(b.data + 15, "\x00\x00\x80\x3f\x00\x00\x00\x00\x00\x00\x00\xc0", 12);
    buf_blob(&b, "ab", 2);
    buf_str(&b, "c");
    assert_memory_equal(b.data + 27,
                        "\x02\x00\x00\x00"
                        "ab\x01\x00\x00\x00"
                        "c",
                        11);
    struct rd r = rd_make(b.data, b.len);
    assert_int_equal(rd_u8(&r), 0x01);
    assert_int_equal(rd_u16(&r), 0x0302);
    assert_int_equal(rd_u32(&r), 0x07060504);
    assert_int_equal(rd_u64(&r), 0x0f0e0d0c0b0a0908);
    assert_true(rd_f32(&r) == 1.0f);
    assert_true(rd_f64(&r) == -2.0);
    size_t n;
    assert_memory_equal(rd_blob(&r, 10, &n), "ab", 2);
    char s[2];
    assert_false(rd_done(&r));
    rd_str(&r, s, sizeof s);
    assert_string_equal(s, "c");
    assert_true(rd_done(&r));
    buf_fini(&b);
}

static void holds_the_cap(void **state)
{
    struct buf b;
    buf_init(&b, 10);
    buf_put(&b, "0123456789", 10);
    assert_true(buf_ok(&b));
    buf_u8(&b, 1);
    assert_false(buf_ok(&b));
    assert_int_equal(b.len, 10);
    buf_reset(&b); /* failure is forgotten, memory kept */
    assert_true(buf_ok(&b));
    buf_u32(&b, 1);
    buf_u64(&b, 1); /* 4 + 8 > 10: nothing of it is written */
    assert_int_equal(b.len, 4);
    buf_u8(&b, 1); /* would fit, but a hole would follow */
    assert_int_equal(b.len, 4);
    assert_string_equal(buf_cstr(&b), "");
    buf_fini(&b);
    buf_init(&b, SIZE_MAX);
    assert_null(buf_reserve(&b, SIZE_MAX - 10)); /* doubling to it would wrap */
    assert_false(buf_ok(&b));
    buf_fini(&b);
    buf_init(&b, 100);
    buf_blob(&b, "x", (size_t)UINT32_MAX + 1); /* a length that has no u32 */
    assert_false(buf_ok(&b));
    buf_fini(&b);
}

static void prints_and_consumes(void **state)
{
    struct buf b;
    buf_init(&b, 1000);
    buf_printf(&b, "%d-%s", 42, "x");
    assert_string_equal(buf_cstr(&b), "42-x");
    assert_int_equal(b.len, 4);
    for (int i = 0; i < 100; i++)
        buf_puts(&b, "abc");
    assert_int_equal(b.len, 304);
    buf_consume(&b, 302);
    assert_string_equal(buf_cstr(&b), "bc");
    buf_consume(&b, 99);
    assert_int_equal(b.len, 0);
    buf_puts(&b, "kept");
    size_t len;
    uint8_t *data = buf_take(&b, &len);
    assert_int_equal(len, 4);
    assert_memory_equal(data, "kept", 4);
    assert_int_equal(b.len, 0);
    assert_null(b.data);
    free(data);
    buf_fini(&b);
    buf_init(&b, 4);
    buf_printf(&b, "12345");
    assert_false(buf_ok(&b));
    buf_fini(&b);
}

/* n bytes that end where memory ends */
static uint8_t *edge_map(size_t n, void **map)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *m = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(m != MAP_FAILED);
    assert_int_equal(mprotect(m + page, page, PROT_NONE), 0);
    *map = m;
    return m + page - n;
}

static void reads_no_further(void **state)
{
    void *map;
    uint8_t *p = edge_map(3, &map);
    memcpy(p, "\x01\x02\x03", 3);
    struct rd r = rd_make(p, 3);
    assert_int_equal(rd_u32(&r), 0);
    assert_false(rd_ok(&r));
    assert_int_equal(rd_u8(&r), 0); /* failed once, failed for good */
    r = rd_make(p, 3);
    assert_int_equal(rd_u64(&r), 0);
    r = rd_make(p, 3);
    assert_int_equal(rd_u16(&r), 0x0201);
    assert_int_equal(rd_u16(&r), 0);
    assert_false(rd_done(&r));
    r = rd_make(p, 3);
    assert_null(rd_bytes(&r, 4));
    r = rd_make(p, 3);
    assert_null(rd_bytes(&r, SIZE_MAX));
    r = rd_make(p, 3);
    assert_ptr_equal(rd_bytes(&r, 3), p);
    assert_true(rd_done(&r));
    assert_ptr_equal(rd_bytes(&r, 0), p + 3);
    munmap(map, 2 * (size_t)sysconf(_SC_PAGESIZE));
}

static void refuses_bad_blobs(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        bool ok; /* as a string into char[4] */
    } CASES[] = {
        {"\x03\x00\x00\x00"
         "abc",
         7, true},
        {"\x00\x00\x00\x00", 4, true},
        {"\x04\x00\x00\x00"
         "abcd",
         8, false}, /* no room for the NUL */
        {"\x03\x00\x00\x00"
         "a\0c",
         7, false},
        {"\x03\x00\x00\x00"
         "ab",
         6, false},
        {"\xff\xff\xff\xff", 4, false},
        {"\x03\x00\x00", 3, false},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        void *map;
        uint8_t *p = edge_map(CASES[i].n, &map);
        memcpy(p, CASES[i].bytes, CASES[i].n);
        struct rd r = rd_make(p, CASES[i].n);
        char s[4] = "zzz";
        rd_str(&r, s, sizeof s);
        assert_int_equal(rd_ok(&r), CASES[i].ok);
        if (!CASES[i].ok)
            assert_string_equal(s, "");
        munmap(map, 2 * (size_t)sysconf(_SC_PAGESIZE));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(puts_little_endian),  cmocka_unit_test(holds_the_cap),
        cmocka_unit_test(prints_and_consumes), cmocka_unit_test(reads_no_further),
        cmocka_unit_test(refuses_bad_blobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
