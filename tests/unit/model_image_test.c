/* model_image_test.c - node images: built, interrupted, shared, damaged, repaired, evicted; full
 * disks. */
#include "tests/unit/model_fixture.h"

#include "base/clock.h"
#include "model/image_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { WAIT_US = 20000000 /* generous: the machine may be busy */ };

/* A model with several segments: one tensor of two and a half, some small ones. */
struct model {
    struct model_index index;
    struct buf meta, data; /* data: the image's tensors at image_offset */
    char dir[64];
};

static const uint8_t *segment_bytes(const struct model *m, uint32_t s, uint32_t *n)
{
    struct segment seg = index_segment(&m->index, s);
    *n = seg.n_bytes;
    return m->data.data + seg.image_offset;
}

static void model_make(struct model *m, uint32_t seed, bool big)
{
    struct tensor_info t[4] = {
        {.name = "small", .type = TENSOR_F32, .n_dims = 1, .dims = {10}},
        {.name = "big", .type = TENSOR_F32, .n_dims = 2, .dims = {1024, big ? 5120 : 2}},
        {.name = "quant", .type = TENSOR_Q4_1, .n_dims = 2, .dims = {64, 100}},
        {.name = "tail", .type = TENSOR_F16, .n_dims = 1, .dims = {3}},
    };
    struct buf file;
    struct gguf g;
    struct err e = ERR_INIT;
    *m = (struct model){.dir = ""};
    tiny_file(&file);
    assert_int_equal(gguf_parse(&g, file.data, file.len, "tiny", &e), 0);
    buf_init(&m->meta, META_MAX_BYTES);
    assert_int_equal(meta_encode(&g.meta, &m->meta, &e), 0);
    gguf_close(&g);
    buf_fini(&file);
    assert_int_equal(index_build(&m->index, t, 4, &e), 0);
    buf_init(&m->data, 1 << 27);
    uint8_t *p = buf_reserve(&m->data, m->index.image_bytes);
    for (uint64_t i = 0; i < m->index.image_bytes; i++) {
        seed = seed * 1664525 + 1013904223;
        p[i] = (uint8_t)(seed >> 24);
    }
    for (uint32_t s = 0; s < m->index.n_segments; s++) {
        uint32_t n;
        const uint8_t *bytes = segment_bytes(m, s, &n);
        sha256_of(bytes, n, m->index.hashes[s]);
    }
    sha256_of(m->meta.data, m->meta.len, m->index.meta_hash);
    assert_int_equal(index_seal(&m->index, &e), 0);
}

static void model_fini(struct model *m)
{
    index_fini(&m->index);
    buf_fini(&m->meta);
    buf_fini(&m->data);
}

static int open_writer(struct image_writer **w, const char *dir, const struct model *m,
                       struct err *e)
{
    return image_writer_open(w, dir, &m->index, m->meta.data, m->meta.len, WAIT_US, e);
}

static bool have(const struct image_writer *w, uint32_t s)
{
    return image_writer_have(w)[s / 8] >> (s % 8) & 1;
}

static uint32_t count_have(const struct image_writer *w, const struct model *m)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < m->index.n_segments; s++)
        n += have(w, s);
    return n;
}

static void put(struct image_writer *w, const struct model *m, uint32_t s)
{
    uint32_t n;
    struct err e = ERR_INIT;
    const uint8_t *bytes = segment_bytes(m, s, &n);
    if (image_writer_put(w, s, bytes, n, &e))
        fail_msg("segment %u: %s", s, e.text);
}

/* Fill what is missing, finish, close. Returns how many segments were missing. */
static uint32_t complete(struct image_writer *w, const struct model *m, char path[PATH_MAX])
{
    struct err e = ERR_INIT;
    uint32_t n = 0;
    for (uint32_t s = 0; s < m->index.n_segments; s++)
        if (!have(w, s)) {
            put(w, m, s);
            n++;
        }
    assert_true(image_writer_complete(w));
    if (image_writer_finish(w, path, PATH_MAX, &e))
        fail_msg("%s", e.text);
    image_writer_close(w);
    return n;
}

static uint32_t build(const char *dir, const struct model *m, char path[PATH_MAX])
{
    struct image_writer *w;
    struct err e = ERR_INIT;
    if (open_writer(&w, dir, m, &e))
        fail_msg("%s", e.text);
    return complete(w, m, path);
}

static void check_image(const char *path, const struct model *m)
{
    struct image img;
    struct err e = ERR_INIT;
    if (image_open(&img, path, true, &e))
        fail_msg("%s", e.text);
    for (uint32_t i = 0; i < m->index.n_tensors; i++) {
        const struct tensor_info *info, *t = &m->index.tensors[i];
        const void *bytes = image_tensor(&img, t->name, &info);
        assert_non_null(bytes);
        assert_int_equal((uintptr_t)bytes % TENSOR_ALIGN, 0);
        assert_int_equal(info->n_bytes, t->n_bytes);
        assert_memory_equal(bytes, m->data.data + t->image_offset, t->n_bytes);
    }
    const struct tensor_info *info;
    assert_null(image_tensor(&img, "none", &info));
    assert_null(info);
    assert_string_equal(img.meta.name, "tiny");
    assert_memory_equal(img.index.digest, m->index.digest, SHA256_BYTES);
    image_close(&img);
}

static void part_path(char out[PATH_MAX], const char *path)
{
    snprintf(out, PATH_MAX, "%.*s.part", PATH_MAX - 8, path);
}

static void flip(const char *path, uint64_t at)
{
    uint8_t b;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &b, 1, (off_t)at), 1);
    b ^= 1;
    assert_int_equal(pwrite(fd, &b, 1, (off_t)at), 1);
    close(fd);
}

static void test_build(void **state)
{
    struct model m;
    char path[PATH_MAX], part[PATH_MAX];
    struct err e = ERR_INIT;
    struct image_writer *w;
    struct stat st;
    model_make(&m, 1, true);
    scratch_dir(m.dir);
    assert_int_equal(open_writer(&w, m.dir, &m, &e), 0);
    assert_int_equal(count_have(w, &m), 0);
    assert_int_equal(image_writer_finish(w, path, sizeof path, &e), ERR_AGAIN);
    assert_non_null(strstr(e.text, "6 of 6 segments are missing"));
    uint32_t n;
    const uint8_t *bytes = segment_bytes(&m, 1, &n);
    assert_int_equal(image_writer_put(w, 0, bytes, 40, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "tensor small, segment 0: the hash differs"));
    assert_int_equal(image_writer_put(w, 1, bytes, n - 1, &e), ERR_FORMAT);
    assert_int_equal(image_writer_put(w, 6, bytes, n, &e), ERR_FORMAT);
    assert_int_equal(count_have(w, &m), 0);
    put(w, &m, 3); /* any order, twice is fine */
    put(w, &m, 3);
    assert_int_equal(count_have(w, &m), 1);
    assert_int_equal(complete(w, &m, path), 5);
    check_image(path, &m);
    part_path(part, path);
    assert_int_equal(access(part, F_OK), -1);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(stat(m.dir, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    /* there already: nothing to do */
    assert_int_equal(open_writer(&w, m.dir, &m, &e), 0);
    assert_true(image_writer_complete(w));
    assert_int_equal(complete(w, &m, path), 0);
    uint8_t found[4][SHA256_BYTES];
    assert_int_equal(image_list(m.dir, found, 4), 1);
    assert_memory_equal(found[0], m.index.digest, SHA256_BYTES);
    assert_int_equal(image_list(m.dir, found, 0), 0);
    assert_int_equal(image_list("/nowhere/at/all", found, 4), 0);
    dir_remove(m.dir, &e);
    model_fini(&m);
}

static void test_unsealed(void **state)
{
    struct model m;
    struct err e = ERR_INIT;
    struct image_writer *w;
    model_make(&m, 1, false);
    scratch_dir(m.dir);
    assert_int_equal(image_writer_open(&w, m.dir, &m.index, "other", 5, WAIT_US, &e), ERR_FORMAT);
    m.index.hashes[0][0] ^= 1;
    assert_int_equal(open_writer(&w, m.dir, &m, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "not sealed"));
    dir_remove(m.dir, &e);
    model_fini(&m);
}

/* What an interrupted writer made is taken over, but for what is damaged. */
static void test_resume(void **state)
{
    struct model m;
    char path[PATH_MAX], part[PATH_MAX];
    struct err e = ERR_INIT;
    struct image_writer *w;
    model_make(&m, 2, true);
    scratch_dir(m.dir);
    assert_int_equal(open_writer(&w, m.dir, &m, &e), 0);
    put(w, &m, 0);
    put(w, &m, 2);
    put(w, &m, 4);
    image_writer_close(w);
    assert_int_equal(open_writer(&w, m.dir, &m, &e), 0);
    assert_int_equal(count_have(w, &m), 3);
    assert_true(have(w, 0) && have(w, 2) && have(w, 4));
    image_writer_close(w);
    char hex[SHA256_HEX];
    hex_encode(m.index.digest, SHA256_BYTES, hex);
    snprintf(part, sizeof part, "%s/%s/image.part", m.dir, hex);
    flip(part, index_segment(&m.index, 2).image_offset + 1234);
    assert_int_equal(open_writer(&w, m.dir, &m, &e), 0);
    assert_int_equal(count_have(w, &m), 2);
    assert_false(have(w, 2));
    image_writer_close(w);
    assert_int_equal(truncate(part, (off_t)index_segment(&m.index, 4).image_offset + 5),
                     0); /* cut */
    assert_int_equal(open_writer(&w, m.dir, &m, &e), 0);
    assert_int_equal(count_have(w, &m), 1);
    assert_int_equal(complete(w, &m, path), 5);
    check_image(path, &m);
    dir_remove(m.dir, &e);
    model_fini(&m);
}

/* A damaged or cut image: refused by image_open, repaired by a writer with just the bad segments
 * fetched, and never written to while an engine has it mapped. */
static void test_repair(void **state)
{
    struct model m;
    char path[PATH_MAX];
    struct err e = ERR_INIT;
    struct image img, other;
    model_make(&m, 3, true);
    scratch_dir(m.dir);
    build(m.dir, &m, path);
    uint64_t at = index_segment(&m.index, 2).image_offset + 77;
    assert_int_equal(image_open(&img, path, true, &e), 0);
    flip(path, at);
    uint8_t damaged = img.map[at];
    assert_int_not_equal(damaged, m.data.data[at]);
    assert_int_equal(image_open(&other, path, true, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "tensor big, segment 1: the hash differs"));
    assert_int_equal(build(m.dir, &m, path), 1);
    check_image(path, &m);
    assert_int_equal(img.map[at], damaged); /* its own file, as it was */
    image_close(&img);

    assert_int_equal(truncate(path, (off_t)index_segment(&m.index, 3).image_offset + 1), 0);
    assert_int_equal(image_open(&img, path, false, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "bytes, found"));
    assert_int_equal(build(m.dir, &m, path), 3);
    check_image(path, &m);

    flip(path, 20); /* the header alone: all segments are good */
    assert_int_equal(image_open(&img, path, false, &e), ERR_FORMAT);
    assert_int_equal(build(m.dir, &m, path), 0);
    check_image(path, &m);
    flip(path, m.index.image_bytes + 30); /* the index at the end */
    assert_int_equal(image_open(&img, path, false, &e), ERR_FORMAT);
    assert_int_equal(build(m.dir, &m, path), 0);
    check_image(path, &m);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(build(m.dir, &m, path), 6);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/etc/passwd", path), 0); /* never followed */
    assert_int_equal(image_open(&img, path, false, &e), ERR_SYS);
    assert_int_equal(build(m.dir, &m, path), 6);
    check_image(path, &m);
    dir_remove(m.dir, &e);
    model_fini(&m);
}

/* An interrupted repair goes on from what its part file and the rest of the bad image have. */
static void test_repair_interrupted(void **state)
{
    struct model m;
    char path[PATH_MAX];
    struct err e = ERR_INIT;
    struct image_writer *w;
    struct image img;
    model_make(&m, 4, true);
    scratch_dir(m.dir);
    build(m.dir, &m, path);
    flip(path, index_segment(&m.index, 1).image_offset);
    flip(path, index_segment(&m.index, 5).image_offset);
    assert_int_equal(open_writer(&w, m.dir, &m, &e), 0);
    assert_int_equal(count_have(w, &m), 4);
    assert_false(have(w, 1) || have(w, 5));
    assert_int_equal(image_open(&img, path, false, &e),
                     ERR_SYS); /* nobody starts with a bad image */
    put(w, &m, 5);
    image_writer_close(w);
    assert_int_equal(build(m.dir, &m, path), 1);
    check_image(path, &m);
    dir_remove(m.dir, &e);
    model_fini(&m);
}

/* Every byte of header and tail counts: changed, the image is refused or is the same image. */
static void test_hostile(void **state)
{
    struct model m;
    char path[PATH_MAX];
    struct err e = ERR_INIT;
    struct image img;
    struct stat st;
    model_make(&m, 5, false);
    scratch_dir(m.dir);
    build(m.dir, &m, path);
    assert_int_equal(stat(path, &st), 0);
    for (uint64_t at = 0; at < (uint64_t)st.st_size; at++) {
        if (at == 128)
            at = m.index.image_bytes; /* from the header to the tail */
        flip(path, at);
        if (image_open(&img, path, false, &e) == 0) {
            assert_in_range(at, 104, 128); /* the header's padding */
            image_close(&img);
        } else {
            assert_non_null(strstr(e.text, path));
        }
        flip(path, at);
    }
    check_image(path, &m);
    /* a file that is no image, and a foreign one under this name */
    assert_int_equal(image_open(&img, "/etc/passwd", false, &e), ERR_FORMAT);
    assert_int_equal(image_open(&img, m.dir, false, &e), ERR_FORMAT);
    dir_remove(m.dir, &e);
    model_fini(&m);
}

/* --- two processes ---------------------------------------------------------------------------- */

/* Run fn in a child; its exit status is returned by child_end. */
static pid_t child_start(int (*fn)(const struct model *m, int in, int out), const struct model *m,
                         int *to, int *from)
{
    int a[2], b[2];
    assert_int_equal(pipe(a), 0);
    assert_int_equal(pipe(b), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(60); /* never outlives the test */
        close(a[1]);
        close(b[0]);
        _exit(fn(m, a[0], b[1]));
    }
    close(a[0]);
    close(b[1]);
    *to = a[1];
    *from = b[0];
    return pid;
}
static int child_end(pid_t pid, int to, int from)
{
    int status;
    close(to);
    close(from);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* Hold the writer, say so, write everything when told. */
static int hold_writer(const struct model *m, int in, int out)
{
    struct image_writer *w;
    char c = 'x', path[PATH_MAX];
    if (open_writer(&w, m->dir, m, NULL) || write(out, &c, 1) != 1 || read(in, &c, 1) != 1)
        return 1;
    for (uint32_t s = 0; s < m->index.n_segments; s++) {
        uint32_t n;
        const uint8_t *bytes = segment_bytes(m, s, &n);
        if (image_writer_put(w, s, bytes, n, NULL))
            return 2;
    }
    if (image_writer_finish(w, path, sizeof path, NULL))
        return 3;
    image_writer_close(w);
    return 0;
}

static void test_two_writers(void **state)
{
    struct model m;
    struct err e = ERR_INIT;
    struct image_writer *w;
    char c;
    int to, from;
    model_make(&m, 6, true);
    scratch_dir(m.dir);
    pid_t pid = child_start(hold_writer, &m, &to, &from);
    assert_int_equal(read(from, &c, 1), 1);
    uint64_t start = clock_now_us();
    assert_int_equal(image_writer_open(&w, m.dir, &m.index, m.meta.data, m.meta.len, 100000, &e),
                     ERR_TIMEOUT);
    assert_true(clock_now_us() - start >= 100000);
    assert_non_null(strstr(e.text, m.dir));
    assert_int_equal(write(to, "x", 1), 1);
    /* waits until the other has finished, and takes its work */
    if (open_writer(&w, m.dir, &m, &e))
        fail_msg("%s", e.text);
    assert_true(image_writer_complete(w));
    image_writer_close(w);
    assert_int_equal(child_end(pid, to, from), 0);
    dir_remove(m.dir, &e);
    model_fini(&m);
}

/* A writer that is killed leaves its part file to the next. */
static void test_killed_writer(void **state)
{
    struct model m;
    struct err e = ERR_INIT;
    char c, path[PATH_MAX];
    int to, from, status;
    model_make(&m, 7, true);
    scratch_dir(m.dir);
    pid_t pid = child_start(hold_writer, &m, &to, &from);
    assert_int_equal(read(from, &c, 1), 1);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(to);
    close(from);
    assert_int_equal(build(m.dir, &m, path), 6);
    check_image(path, &m);
    dir_remove(m.dir, &e);
    model_fini(&m);
}

static int hold_image(const struct model *m, int in, int out)
{
    struct image img;
    char c = 'x', path[PATH_MAX], hex[SHA256_HEX];
    hex_encode(m->index.digest, SHA256_BYTES, hex);
    snprintf(path, sizeof path, "%s/%s/image", m->dir, hex);
    if (image_open(&img, path, false, NULL) || write(out, &c, 1) != 1 || read(in, &c, 1) != 1)
        return 1;
    image_close(&img);
    return 0;
}

static bool listed(const char *dir, const struct model *m)
{
    uint8_t found[8][SHA256_BYTES];
    uint32_t n = image_list(dir, found, 8);
    for (uint32_t i = 0; i < n; i++)
        if (memcmp(found[i], m->index.digest, SHA256_BYTES) == 0)
            return true;
    return false;
}

/* The least recently used leave first; the kept one, those in use or being written never do. */
static void test_evict(void **state)
{
    enum { N = 4 };
    struct model m[N];
    char dir[64], path[N][PATH_MAX], c;
    struct err e = ERR_INIT;
    struct stat st;
    scratch_dir(dir);
    for (uint32_t i = 0; i < N; i++) {
        model_make(&m[i], 100 + i, false);
        memcpy(m[i].dir, dir, sizeof dir);
        build(dir, &m[i], path[i]);
        const struct timespec when[2] = {{1000 + i, 0}, {1000 + i, 0}}; /* 0 is the oldest */
        assert_int_equal(utimensat(AT_FDCWD, path[i], when, 0), 0);
    }
    assert_int_equal(stat(path[0], &st), 0);
    uint64_t one = (uint64_t)st.st_size;
    assert_int_equal(image_evict(dir, N * one, NULL, &e), 0);
    assert_true(listed(dir, &m[0]));
    int to, from;
    pid_t pid = child_start(hold_image, &m[0], &to, &from); /* use makes it the newest, too */
    assert_int_equal(read(from, &c, 1), 1);
    assert_int_equal(image_evict(dir, 3 * one, NULL, &e), 0);
    assert_true(listed(dir, &m[0]) && !listed(dir, &m[1]) && listed(dir, &m[2]) &&
                listed(dir, &m[3]));
    char gone[PATH_MAX];
    snprintf(gone, sizeof gone, "%.*s", (int)(strlen(path[1]) - 6), path[1]);
    assert_int_equal(access(gone, F_OK), -1); /* with its folder */
    struct image_writer *w;
    assert_int_equal(open_writer(&w, dir, &m[1], &e),
                     0); /* being written: stays, and so does its part file */
    assert_int_equal(image_evict(dir, 0, m[3].index.digest, &e), 0);
    assert_true(listed(dir, &m[0]) && !listed(dir, &m[2]) && listed(dir, &m[3]));
    complete(w, &m[1], path[1]);
    check_image(path[1], &m[1]);
    assert_int_equal(write(to, "x", 1), 1);
    assert_int_equal(child_end(pid, to, from), 0);
    assert_int_equal(image_evict(dir, 0, NULL, &e), 0);
    uint8_t found[8][SHA256_BYTES];
    assert_int_equal(image_list(dir, found, 8), 0);
    assert_int_equal(rmdir(dir), 0); /* nothing is left at all */
    for (uint32_t i = 0; i < N; i++)
        model_fini(&m[i]);
}

/* Mapping an image, and finding it good, are uses: both make it the newest. */
static void test_use(void **state)
{
    struct model m[3];
    char dir[64], path[3][PATH_MAX];
    struct err e = ERR_INIT;
    struct image img;
    struct stat st;
    scratch_dir(dir);
    for (uint32_t i = 0; i < 3; i++) {
        model_make(&m[i], 200 + i, false);
        build(dir, &m[i], path[i]);
        const struct timespec when[2] = {{1000 + i, 0}, {1000 + i, 0}};
        assert_int_equal(utimensat(AT_FDCWD, path[i], when, 0), 0);
    }
    assert_int_equal(image_open(&img, path[0], false, &e), 0);
    image_close(&img);
    build(dir, &m[1], path[1]);
    assert_int_equal(stat(path[0], &st), 0);
    assert_int_equal(image_evict(dir, 2 * (uint64_t)st.st_size, NULL, &e), 0);
    assert_true(listed(dir, &m[0]) && listed(dir, &m[1]) && !listed(dir, &m[2]));
    dir_remove(dir, &e);
    for (uint32_t i = 0; i < 3; i++)
        model_fini(&m[i]);
}

/* A lock counts only while the path leads to the locked file: its owner may have removed it. */
static void test_lock_of_removed_file(void **state)
{
    char dir[64], path[PATH_MAX];
    struct err e = ERR_INIT;
    scratch_dir(dir);
    snprintf(path, sizeof path, "%s/lock", dir);
    int old = open(path, O_RDWR | O_CREAT, 0600);
    assert_int_equal(image_flock(old, LOCK_EX, path, &e), 1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(image_flock(old, LOCK_EX, path, &e), 0);
    int new = open(path, O_RDWR | O_CREAT, 0600);
    assert_int_equal(image_flock(old, LOCK_EX, path, &e), 0);
    assert_int_equal(image_flock(new, LOCK_EX, path, &e), 1);
    close(old);
    close(new);
    dir_remove(dir, &e);
}

/* --- a full disk ------------------------------------------------------------------------------ */

/* A small file system of its own, in a mount namespace of this process. */
static bool mount_small(const char *dir, const char *size)
{
    static bool own;
    if (!own &&
        (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0))
        return false;
    own = true;
    return mount("tmpfs", dir, "tmpfs", 0, size) == 0;
}

static void test_disk_full(void **state)
{
    struct model m;
    struct err e = ERR_INIT;
    struct image_writer *w;
    char path[PATH_MAX], filler[PATH_MAX];
    uint8_t found[1][SHA256_BYTES];
    model_make(&m, 8, true); /* 20 MiB */
    scratch_dir(m.dir);
    if (!mount_small(m.dir, "size=12m")) {
        print_message("skipped: no mount is allowed here: %s\n", strerror(errno));
        dir_remove(m.dir, &e);
        model_fini(&m);
        skip();
    }
    assert_int_equal(open_writer(&w, m.dir, &m, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "disk full"));
    assert_non_null(strstr(e.text, m.dir));
    unsigned long long need = 0, left = 0;
    assert_int_equal(
        sscanf(strstr(e.text, "needs"), "needs %llu bytes more, %llu are free", &need, &left), 2);
    assert_in_range(need, 20 << 20, 21 << 20);
    assert_in_range(left, 11 << 20, 12 << 20);
    assert_int_equal(image_list(m.dir, found, 1), 0);
    assert_int_equal(umount(m.dir), 0);

    /* room for one image, not for two: a bad one that nobody uses makes room for its repair */
    assert_true(mount_small(m.dir, "size=24m"));
    build(m.dir, &m, path);
    flip(path, index_segment(&m.index, 2).image_offset);
    struct image img;
    assert_int_equal(image_open(&img, path, false, &e), 0);
    assert_int_equal(open_writer(&w, m.dir, &m, &e), ERR_LIMIT); /* in use: it stays */
    assert_int_equal(access(path, F_OK), 0);
    image_close(&img);
    assert_int_equal(build(m.dir, &m, path), 6);
    check_image(path, &m);
    assert_int_equal(image_evict(m.dir, 0, NULL, &e), 0);

    /* a cut part file whose rest no longer fits keeps what it has */
    assert_int_equal(open_writer(&w, m.dir, &m, &e), 0);
    put(w, &m, 0);
    put(w, &m, 1);
    image_writer_close(w);
    char hex[SHA256_HEX];
    hex_encode(m.index.digest, SHA256_BYTES, hex);
    snprintf(path, sizeof path, "%s/%s/image.part", m.dir, hex);
    assert_int_equal(truncate(path, 10 << 20), 0);
    snprintf(filler, sizeof filler, "%s/filler", m.dir);
    int fd = open(filler, O_RDWR | O_CREAT, 0600);
    assert_int_equal(posix_fallocate(fd, 0, 8 << 20), 0);
    close(fd);
    assert_int_equal(open_writer(&w, m.dir, &m, &e), ERR_LIMIT);
    assert_int_equal(unlink(filler), 0);
    assert_int_equal(open_writer(&w, m.dir, &m, &e), 0);
    assert_int_equal(count_have(w, &m), 2);
    complete(w, &m, path);
    check_image(path, &m);
    assert_int_equal(umount(m.dir), 0);
    dir_remove(m.dir, &e);
    model_fini(&m);
}

static void test_private(void **state)
{
    struct model m;
    struct err e = ERR_INIT;
    struct image_writer *w;
    char link_path[128];
    model_make(&m, 9, false);
    scratch_dir(m.dir);
    snprintf(link_path, sizeof link_path, "%s/link", m.dir);
    assert_int_equal(symlink("/tmp", link_path), 0);
    assert_int_equal(open_writer(&w, link_path, &m, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "symbolic link"));
    dir_remove(m.dir, &e);
    model_fini(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_build),
        cmocka_unit_test(test_unsealed),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_repair),
        cmocka_unit_test(test_repair_interrupted),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_two_writers),
        cmocka_unit_test(test_killed_writer),
        cmocka_unit_test(test_evict),
        cmocka_unit_test(test_use),
        cmocka_unit_test(test_lock_of_removed_file),
        cmocka_unit_test(test_disk_full),
        cmocka_unit_test(test_private),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
