/* Columns of an image's tensors as a file beside it: the right bytes, made once, shared, made anew when damaged or of another plan, gone with
 * its image. */
#include "model/image_derived.h"

#include "model_fixture.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sys/stat.h>

enum { WAIT_US = 60000000 };

struct made { /* a finished image of three tensors */
    char dir[64], path[PATH_MAX];
    struct image img;
    struct buf data;
};

static void make(struct made *m)
{
    struct tensor_info t[3] = {
        {.name = "whole", .type = TENSOR_F32, .n_dims = 2, .dims = {96, 7}},
        {.name = "quant", .type = TENSOR_Q4_1, .n_dims = 2, .dims = {128, 50}},
        {.name = "experts", .type = TENSOR_F16, .n_dims = 3, .dims = {64, 5, 3}},
    };
    struct model_index x;
    struct buf file, meta;
    struct gguf g;
    struct err e = ERR_INIT;
    struct image_writer *w;
    scratch_dir(m->dir);
    tiny_file(&file);
    assert_int_equal(gguf_parse(&g, file.data, file.len, "tiny", &e), 0);
    buf_init(&meta, META_MAX_BYTES);
    assert_int_equal(meta_encode(&g.meta, &meta, &e), 0);
    gguf_close(&g);
    buf_fini(&file);
    assert_int_equal(index_build(&x, t, 3, &e), 0);
    buf_init(&m->data, 1 << 24);
    uint8_t *p = buf_reserve(&m->data, x.image_bytes);
    uint32_t seed = 5;
    for (uint64_t i = 0; i < x.image_bytes; i++) {
        seed = seed * 1664525 + 1013904223;
        p[i] = (uint8_t)(seed >> 24);
    }
    for (uint32_t s = 0; s < x.n_segments; s++) {
        struct segment seg = index_segment(&x, s);
        sha256_of(p + seg.image_offset, seg.n_bytes, x.hashes[s]);
    }
    sha256_of(meta.data, meta.len, x.meta_hash);
    assert_int_equal(index_seal(&x, &e), 0);
    assert_int_equal(image_writer_open(&w, m->dir, &x, meta.data, meta.len, WAIT_US, &e), 0);
    for (uint32_t s = 0; s < x.n_segments; s++) {
        struct segment seg = index_segment(&x, s);
        assert_int_equal(image_writer_put(w, s, p + seg.image_offset, seg.n_bytes, &e), 0);
    }
    assert_int_equal(image_writer_finish(w, m->path, sizeof m->path, &e), 0);
    image_writer_close(w);
    assert_int_equal(image_open(&m->img, m->path, true, &e), 0);
    index_fini(&x);
    buf_fini(&meta);
}

static void unmake(struct made *m)
{
    struct err e = ERR_INIT;
    image_close(&m->img);
    buf_fini(&m->data);
    assert_int_equal(dir_remove(m->dir, &e), 0);
}

static const struct derived_part PARTS[] = {
    {"quant", 32, 64}, {"experts", 16, 48}, {"whole", 0, 1}};
enum { N_PARTS = 3 };

static int open_it(struct image_derived **d, const struct made *m, struct err *e)
{
    return image_derived_open(d, &m->img, m->path, 1, 2, PARTS, N_PARTS, WAIT_US, e);
}

static void check(const struct image_derived *d, const struct made *m)
{
    static const size_t ELEM[] = {20, 2, 4}, BLOCK[] = {32, 1, 1};
    struct err e = ERR_INIT;
    for (uint32_t i = 0; i < N_PARTS; i++) {
        const struct tensor_info *t;
        const uint8_t *from = image_tensor(&m->img, PARTS[i].tensor, &t);
        size_t row, full = t->dims[0] / BLOCK[i] * ELEM[i];
        const uint8_t *got = image_derived_tensor(d, i, &row);
        assert_int_equal(row, PARTS[i].count / BLOCK[i] * ELEM[i]);
        assert_int_equal((uintptr_t)got % 64, 0);
        for (uint64_t r = 0; r < t->dims[1] * t->dims[2]; r++)
            assert_memory_equal(got + r * row,
                                from + r * full + PARTS[i].first / BLOCK[i] * ELEM[i], row);
    }
    assert_int_equal(image_derived_verify(d, &e), 0);
}

static void file_of(char out[PATH_MAX], const struct made *m)
{
    snprintf(out, PATH_MAX, "%.*s/tp-1-of-2", (int)(strrchr(m->path, '/') - m->path), m->path);
}

static void test_columns(void **state)
{
    struct made m;
    struct image_derived *d, *again;
    struct err e = ERR_INIT;
    struct stat a, b;
    char file[PATH_MAX];
    make(&m);
    if (open_it(&d, &m, &e))
        fail_msg("%s", e.text);
    check(d, &m);
    file_of(file, &m);
    assert_int_equal(stat(file, &a), 0);
    assert_int_equal(a.st_mode & 0777, 0600);
    assert_int_equal((uint64_t)a.st_size, image_derived_bytes(d));
    assert_int_equal(open_it(&again, &m, &e), 0);
    check(again, &m);
    assert_int_equal(stat(file, &b), 0);
    assert_true(a.st_ino == b.st_ino &&
                a.st_mtim.tv_nsec == b.st_mtim.tv_nsec); /* not made twice */
    image_derived_close(d);
    /* the image with these columns in place of its own */
    for (uint32_t i = 0; i < N_PARTS; i++) {
        size_t row;
        const struct tensor_info *t;
        const void *want = image_derived_tensor(again, i, &row);
        if (i == 0)
            assert_int_equal(image_derived_apply(&m.img, again, PARTS, &e), 0);
        assert_ptr_equal(image_tensor(&m.img, PARTS[i].tensor, &t), want);
        assert_int_equal(t->dims[0], PARTS[i].count);
        assert_int_equal(t->n_bytes, row * t->dims[1] * t->dims[2]);
    }
    image_derived_close(again);
    unmake(&m);
}

/* A header that does not fit the plan, a short file, garbage: made anew. */
static void test_damaged_or_other_plan_is_made_anew(void **state)
{
    struct made m;
    struct image_derived *d;
    struct err e = ERR_INIT;
    char file[PATH_MAX];
    make(&m);
    file_of(file, &m);
    const struct derived_part other = {"quant", 0, 32};
    assert_int_equal(image_derived_open(&d, &m.img, m.path, 1, 2, &other, 1, WAIT_US, &e), 0);
    image_derived_close(d);
    assert_int_equal(open_it(&d, &m, &e), 0);
    check(d, &m);
    uint64_t bytes = image_derived_bytes(d);
    image_derived_close(d);
    assert_int_equal(truncate(file, (off_t)bytes - 1), 0);
    assert_int_equal(open_it(&d, &m, &e), 0);
    check(d, &m);
    image_derived_close(d);
    int fd = open(file, O_RDWR);
    char was = 0, is = 0;
    assert_int_equal(pread(fd, &was, 1, 20), 1);
    is = (char)(was + 1);
    assert_int_equal(pwrite(fd, &is, 1, 20), 1); /* in the header's digest */
    close(fd);
    assert_int_equal(open_it(&d, &m, &e), 0);
    check(d, &m);
    image_derived_close(d);
    fd = open(file, O_RDONLY);
    assert_int_equal(pread(fd, &is, 1, 20), 1);
    close(fd);
    assert_int_equal(is, was);
    /* other columns, as many of them: the file has its size */
    struct derived_part moved[N_PARTS];
    memcpy(moved, PARTS, sizeof moved);
    moved[0].first = 0;
    assert_int_equal(image_derived_open(&d, &m.img, m.path, 1, 2, moved, N_PARTS, WAIT_US, &e), 0);
    size_t row;
    const void *got = image_derived_tensor(d, 0, &row);
    assert_memory_equal(got, image_tensor(&m.img, "quant", NULL), row);
    image_derived_close(d);
    assert_int_equal(open_it(&d, &m, &e), 0);
    check(d, &m);
    image_derived_close(d);
    fd = open(file, O_WRONLY); /* in the data: seen by those who ask */
    assert_int_equal(pwrite(fd, "\x5a\xa5", 2, 5000), 2);
    close(fd);
    assert_int_equal(open_it(&d, &m, &e), 0);
    assert_int_equal(image_derived_verify(d, &e), ERR_FORMAT);
    image_derived_close(d);
    unmake(&m);
}

static void test_wrong_plans_are_refused(void **state)
{
    static const struct {
        struct derived_part part;
        const char *text;
    } BAD[] = {
        {{"none", 0, 32}, "none: missing"},
        {{"quant", 0, 0}, "columns 0 to 0"},
        {{"quant", 96, 64}, "columns 96 to 160, it has 128"},
        {{"quant", UINT64_MAX, 32}, "it has 128"},
        {{"quant", 16, 32}, "no whole blocks of 32 weights (Q4_1)"},
        {{"quant", 0, 40}, "no whole blocks"},
    };
    struct made m;
    make(&m);
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        struct image_derived *d;
        struct err e = ERR_INIT;
        assert_int_equal(image_derived_open(&d, &m.img, m.path, 0, 2, &BAD[i].part, 1, WAIT_US, &e),
                         ERR_FORMAT);
        if (!strstr(e.text, BAD[i].text))
            fail_msg("%s: expected %s", e.text, BAD[i].text);
    }
    unmake(&m);
}

static void *open_in_thread(void *p)
{
    struct made *m = p;
    struct image_derived *d;
    struct err e = ERR_INIT;
    if (open_it(&d, m, &e))
        abort();
    if (image_derived_verify(d, &e))
        abort();
    image_derived_close(d);
    return NULL;
}

static void test_several_at_once(void **state)
{
    enum { N = 8 };
    struct made m;
    pthread_t t[N];
    make(&m);
    for (int i = 0; i < N; i++)
        pthread_create(&t[i], NULL, open_in_thread, &m);
    for (int i = 0; i < N; i++)
        pthread_join(t[i], NULL);
    unmake(&m);
}

static void test_leaves_with_its_image(void **state)
{
    struct made m;
    struct image_derived *d;
    struct err e = ERR_INIT;
    char file[PATH_MAX];
    make(&m);
    file_of(file, &m);
    assert_int_equal(open_it(&d, &m, &e), 0);
    assert_int_equal(image_evict(m.dir, 0, NULL, &e), 0);
    assert_int_equal(access(file, F_OK), 0); /* its image is open */
    image_derived_close(d);
    image_close(&m.img);
    assert_int_equal(image_evict(m.dir, 0, NULL, &e), 0);
    assert_int_equal(access(file, F_OK), -1);
    assert_int_equal(rmdir(m.dir), 0);
    buf_fini(&m.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_damaged_or_other_plan_is_made_anew),
        cmocka_unit_test(test_wrong_plans_are_refused),
        cmocka_unit_test(test_several_at_once),
        cmocka_unit_test(test_leaves_with_its_image),
    };
    return cmocka_run_group_tests_name("model_image_derived", tests, NULL, NULL);
}
