/* hdf5io_pack_test.c - packs: written, opened, verified; foreign and hostile files refused; full
 * disks. */
#include "tests/unit/model_fixture.h"

#include "hdf5io/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

struct fixture {
    char dir[64], path[128];
    struct buf file;
    struct gguf gguf;
};

static void fixture_init(struct fixture *f)
{
    struct err e = ERR_INIT;
    scratch_dir(f->dir);
    snprintf(f->path, sizeof f->path, "%s/tiny.h5", f->dir);
    tiny_file(&f->file);
    assert_int_equal(gguf_parse(&f->gguf, f->file.data, f->file.len, "tiny.gguf", &e), 0);
}

static void fixture_fini(struct fixture *f)
{
    struct err e = ERR_INIT;
    gguf_close(&f->gguf);
    buf_fini(&f->file);
    assert_int_equal(dir_remove(f->dir, &e), 0);
}

static int write_tiny(struct fixture *f, struct err *e)
{
    return pack_write(f->path, &f->gguf.index, &f->gguf.meta, f->gguf.tensor_data, NULL, NULL, e);
}

static void check_refused(const char *path, const char *says)
{
    struct pack p;
    struct err e = ERR_INIT;
    assert_int_equal(pack_open(&p, path, &e), ERR_FORMAT);
    if (!strstr(e.text, says) || !strstr(e.text, path))
        fail_msg("\"%s\" does not say \"%s\"", e.text, says);
    assert_null(strchr(e.text, '\n'));
    assert_int_equal(pack_verify(path, NULL, NULL, NULL), ERR_FORMAT);
}

struct seen {
    uint64_t last, total;
    uint32_t n;
};
static void count_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct seen *s = ctx;
    assert_true(done > s->last && done <= total);
    s->last = done;
    s->total = total;
    s->n++;
}

static void test_round_trip(void **state)
{
    struct fixture f;
    struct pack p;
    struct err e = ERR_INIT;
    struct seen seen = {0};
    fixture_init(&f);
    if (pack_write(f.path, &f.gguf.index, &f.gguf.meta, f.gguf.tensor_data, count_progress, &seen,
                   &e))
        fail_msg("%s", e.text);
    assert_int_equal(seen.last, seen.total);
    assert_true(seen.n >= 4);
    if (pack_open(&p, f.path, &e))
        fail_msg("%s", e.text);
    assert_memory_equal(p.index.digest, f.gguf.index.digest, SHA256_BYTES);
    assert_int_equal(p.index.n_tensors, 4);
    int fd = open(f.path, O_RDONLY);
    for (uint32_t i = 0; i < p.index.n_tensors; i++) {
        uint8_t bytes[8192];
        const struct tensor_info *t = &p.index.tensors[i];
        assert_string_equal(t->name, f.gguf.index.tensors[i].name);
        assert_int_equal(p.file_offset[i] % TENSOR_ALIGN, 0);
        assert_int_equal(pread(fd, bytes, t->n_bytes, (off_t)p.file_offset[i]), t->n_bytes);
        assert_memory_equal(bytes, f.gguf.tensor_data[i], t->n_bytes);
    }
    close(fd);
    struct model_meta m;
    assert_int_equal(meta_decode(&m, p.meta_bytes, p.meta_n_bytes, &e), 0);
    assert_string_equal(m.tok.tokens[4], "ab");
    meta_fini(&m);
    pack_close(&p);
    pack_close(&p); /* closed is closed */
    seen = (struct seen){0};
    if (pack_verify(f.path, count_progress, &seen, &e))
        fail_msg("%s", e.text);
    assert_int_equal(seen.last, f.gguf.index.data_bytes);
    /* a second one replaces it and leaves nothing beside it */
    assert_int_equal(write_tiny(&f, &e), 0);
    char tmp[160];
    snprintf(tmp, sizeof tmp, "%s.tmp", f.path);
    assert_int_equal(access(tmp, F_OK), -1);
    fixture_fini(&f);
}

/* Every single damaged byte of tensor data is found, and named. */
static void test_verify(void **state)
{
    struct fixture f;
    struct pack p;
    struct err e = ERR_INIT;
    fixture_init(&f);
    assert_int_equal(write_tiny(&f, &e), 0);
    assert_int_equal(pack_open(&p, f.path, &e), 0);
    for (uint32_t i = 0; i < p.index.n_tensors; i++) {
        uint8_t b;
        off_t at = (off_t)(p.file_offset[i] + p.index.tensors[i].n_bytes - 1);
        int fd = open(f.path, O_RDWR);
        assert_int_equal(pread(fd, &b, 1, at), 1);
        b ^= 1;
        assert_int_equal(pwrite(fd, &b, 1, at), 1);
        assert_int_equal(pack_verify(f.path, NULL, NULL, &e), ERR_FORMAT);
        assert_non_null(strstr(e.text, p.index.tensors[i].name));
        assert_non_null(strstr(e.text, "segment 1 of 1: the hash differs"));
        b ^= 1;
        assert_int_equal(pwrite(fd, &b, 1, at), 1);
        close(fd);
    }
    assert_int_equal(pack_verify(f.path, NULL, NULL, &e), 0);
    pack_close(&p);
    fixture_fini(&f);
}

static void test_foreign(void **state)
{
    struct fixture f;
    struct pack p;
    struct err e = ERR_INIT;
    fixture_init(&f);
    assert_int_equal(pack_open(&p, "/nowhere/at/all.h5", &e), ERR_SYS);
    assert_int_equal(pack_open(&p, f.dir, &e), ERR_FORMAT);
    assert_int_equal(file_publish(f.path, f.file.data, f.file.len, 0600, &e), 0);
    check_refused(f.path, "not a pack but a GGUF file");
    assert_int_equal(file_publish(f.path, "", 0, 0600, &e), 0);
    check_refused(f.path, "not a pack");
    hid_t file = H5Fcreate(f.path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(file);
    check_refused(f.path, "not a pack: no manifest");
    fixture_fini(&f);
}

/* A cut file is refused wherever it was cut, by pack_open or, where only tensor bytes are gone, at
 * least by verify. */
static void test_cut(void **state)
{
    struct fixture f;
    struct err e = ERR_INIT;
    struct stat st;
    struct buf whole;
    fixture_init(&f);
    assert_int_equal(write_tiny(&f, &e), 0);
    assert_int_equal(stat(f.path, &st), 0);
    buf_init(&whole, 1 << 24);
    assert_int_equal(file_read(f.path, &whole, &e), 0);
    for (off_t n = 0; n < st.st_size; n += 997) {
        assert_int_equal(file_publish(f.path, whole.data, (size_t)n, 0600, &e), 0);
        assert_int_equal(pack_verify(f.path, NULL, NULL, &e), ERR_FORMAT);
        assert_non_null(strstr(e.text, f.path));
    }
    buf_fini(&whole);
    fixture_fini(&f);
}

/* --- packs changed by somebody who knows HDF5 ------------------------------------------------- */

static hid_t open_rw(const char *path)
{
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    assert_true(file >= 0);
    return file;
}

/* In place of dataset `name`: uint8[n] from `data` with this layout (n 0: another item type). */
static void replace_data(hid_t file, const char *name, const void *data, hsize_t n, hid_t type,
                         H5D_layout_t layout)
{
    H5Ldelete(file, name, H5P_DEFAULT);
    hid_t space = H5Screate_simple(1, &n, NULL), list = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_layout(list, layout);
    if (layout == H5D_CHUNKED) {
        hsize_t chunk = n < 16 ? n : 16;
        H5Pset_chunk(list, 1, &chunk);
    }
    hid_t set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
    assert_true(set >= 0);
    if (data)
        assert_true(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
    H5Dclose(set);
    H5Sclose(space);
    H5Pclose(list);
}

static void replace_manifest(hid_t file, const char *text)
{
    H5Adelete(file, "manifest");
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
    H5Tset_size(type, strlen(text) + 1);
    hid_t attr = H5Acreate2(file, "manifest", type, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(attr >= 0 && H5Awrite(attr, type, text) >= 0);
    H5Aclose(attr);
    H5Sclose(space);
    H5Tclose(type);
}

static void test_hostile(void **state)
{
    static const char Q[] = "tensors/blk.0.attn_q.weight";
    static uint8_t zeros[1 << 16];
    struct fixture f;
    struct err e = ERR_INIT;
    hid_t file;
    fixture_init(&f);
    const hsize_t q_bytes = index_find(&f.gguf.index, "blk.0.attn_q.weight")->n_bytes;
/* Write a good pack, change it, expect these words. */
#define CHANGED(change, says)                                                                      \
    do {                                                                                           \
        assert_int_equal(write_tiny(&f, &e), 0);                                                   \
        file = open_rw(f.path);                                                                    \
        change;                                                                                    \
        assert_true(H5Fclose(file) >= 0);                                                          \
        check_refused(f.path, says);                                                               \
    } while (0)
    CHANGED(H5Adelete(file, "manifest"), "not a pack: no manifest");
    CHANGED(replace_manifest(file, "{}"), "not one of exaserve-pack");
    CHANGED(replace_manifest(file, "{\"format\": \"exaserve-pack\", \"version\": 2, "),
            "expected pack version 1, found 2");
    CHANGED(replace_manifest(file,
                             "{\"format\": \"exaserve-pack\", \"version\": 1, \"digest\": \"00\"}"),
            "digest");
    CHANGED(H5Ldelete(file, "index", H5P_DEFAULT), "dataset index is missing");
    CHANGED(H5Ldelete(file, "meta", H5P_DEFAULT), "dataset meta is missing");
    CHANGED(H5Ldelete(file, "tensors", H5P_DEFAULT), "group tensors is missing");
    CHANGED(H5Ldelete(file, Q, H5P_DEFAULT), "dataset blk.0.attn_q.weight is missing");
    CHANGED(replace_data(file, "index", zeros, 100, H5T_NATIVE_UINT8, H5D_CONTIGUOUS),
            "index: does not begin");
    CHANGED(replace_data(file, "meta", zeros, 100, H5T_NATIVE_UINT8, H5D_CONTIGUOUS),
            "hash of /meta");
    CHANGED(replace_data(file, "meta", NULL, UINT64_C(1) << 50, H5T_NATIVE_UINT8, H5D_CONTIGUOUS),
            "meta");
    CHANGED(replace_data(file, "index", zeros, 100, H5T_NATIVE_UINT8, H5D_CHUNKED),
            "index: expected contiguous");
    CHANGED(replace_data(file, Q, zeros, q_bytes, H5T_NATIVE_UINT8, H5D_CHUNKED),
            "attn_q.weight: expected contiguous");
    CHANGED(replace_data(file, Q, zeros, q_bytes, H5T_NATIVE_UINT8, H5D_COMPACT),
            "attn_q.weight: expected contiguous");
    CHANGED(replace_data(file, Q, zeros, q_bytes - 1, H5T_NATIVE_UINT8, H5D_CONTIGUOUS),
            "expected 2560 bytes, found 2559");
    CHANGED(replace_data(file, Q, zeros, q_bytes / 4, H5T_NATIVE_FLOAT, H5D_CONTIGUOUS),
            "items of one byte");
    CHANGED(replace_data(file, Q, NULL, q_bytes, H5T_NATIVE_UINT8, H5D_CONTIGUOUS),
            "bytes of storage");
    /* links that lead elsewhere */
    CHANGED((H5Ldelete(file, Q, H5P_DEFAULT),
             H5Lcreate_external("/etc/passwd", "x", file, Q, H5P_DEFAULT, H5P_DEFAULT)),
            "is a link to elsewhere");
    CHANGED((H5Ldelete(file, Q, H5P_DEFAULT),
             H5Lcreate_soft("/tensors/token_embd.weight", file, Q, H5P_DEFAULT, H5P_DEFAULT)),
            "is a link to elsewhere");
    CHANGED((H5Lmove(file, "tensors", file, "other", H5P_DEFAULT, H5P_DEFAULT),
             H5Lcreate_soft("/other", file, "tensors", H5P_DEFAULT, H5P_DEFAULT)),
            "group tensors is a link to elsewhere");
    /* a group where a dataset should be */
    CHANGED((H5Ldelete(file, Q, H5P_DEFAULT),
             H5Gclose(H5Gcreate2(file, Q, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT))),
            "cannot open dataset blk.0.attn_q.weight");
    /* the storage of a dataset in another file */
    assert_int_equal(write_tiny(&f, &e), 0);
    file = open_rw(f.path);
    H5Ldelete(file, Q, H5P_DEFAULT);
    hid_t space = H5Screate_simple(1, &q_bytes, NULL), list = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_external(list, "/etc/passwd", 0, q_bytes);
    hid_t set = H5Dcreate2(file, Q, H5T_NATIVE_UINT8, space, H5P_DEFAULT, list, H5P_DEFAULT);
    assert_true(set >= 0);
    H5Dclose(set);
    H5Sclose(space);
    H5Pclose(list);
    H5Fclose(file);
    check_refused(f.path, "inside the file");
    /* right size and place, other bytes: found by verify */
    assert_int_equal(write_tiny(&f, &e), 0);
    file = open_rw(f.path);
    replace_data(file, Q, zeros, q_bytes, H5T_NATIVE_UINT8, H5D_CONTIGUOUS);
    H5Fclose(file);
    struct pack p;
    assert_int_equal(pack_open(&p, f.path, &e), 0);
    pack_close(&p);
    assert_int_equal(pack_verify(f.path, NULL, NULL, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "blk.0.attn_q.weight, segment 1 of 1"));
    fixture_fini(&f);
}

/* Bytes changed at random: never a crash, never other contents. In a child: HDF5 1.10 leaks when it
 * meets damaged metadata. */
static int open_damaged(const struct fixture *f, const struct buf *whole)
{
    uint32_t r = 99, refused = 0;
    int fd = open(f->path, O_RDWR);
    for (int round = 0; round < 600; round++) {
        size_t at;
        do { /* mostly where something is written */
            r = r * 1664525 + 1013904223;
            at = (r >> 5) % whole->len;
        } while (whole->data[at] == 0 && r % 8);
        uint8_t b = (uint8_t)(whole->data[at] ^ (1u << (r >> 29)));
        struct pack p;
        struct err e = ERR_INIT;
        if (pwrite(fd, &b, 1, (off_t)at) != 1)
            return 1;
        int rc = pack_open(&p, f->path, &e);
        if (rc == 0) {
            bool same = memcmp(p.index.digest, f->gguf.index.digest, SHA256_BYTES) == 0;
            pack_close(&p);
            if (!same)
                return 2;
        } else if (!strstr(e.text, f->path) || strchr(e.text, '\n')) {
            return 3;
        }
        refused += rc != 0;
        if (H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL) != 0) /* nothing stays open */
            return 4;
        if (pwrite(fd, &whole->data[at], 1, (off_t)at) != 1)
            return 1;
    }
    close(fd);
    return refused > 20 ? 0 : 5;
}

static void test_damaged(void **state)
{
    struct fixture f;
    struct err e = ERR_INIT;
    struct buf whole;
    int status;
    fixture_init(&f);
    assert_int_equal(write_tiny(&f, &e), 0);
    buf_init(&whole, 1 << 24);
    assert_int_equal(file_read(f.path, &whole, &e), 0);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60); /* a file that makes HDF5 run for ever is a fault, too */
        _exit(open_damaged(&f, &whole));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(pack_verify(f.path, NULL, NULL, &e), 0);
    buf_fini(&whole);
    fixture_fini(&f);
}

/* --- writing that fails ----------------------------------------------------------------------- */

static void test_places(void **state)
{
    struct fixture f;
    struct err e = ERR_INIT;
    char tmp[160];
    fixture_init(&f);
    snprintf(tmp, sizeof tmp, "%s.tmp", f.path);
    assert_int_equal(pack_write("/nowhere/at/all.h5", &f.gguf.index, &f.gguf.meta,
                                f.gguf.tensor_data, NULL, NULL, &e),
                     ERR_SYS);
    assert_non_null(strstr(e.text, "/nowhere/at/all.h5"));
    assert_int_equal(
        pack_write(f.dir, &f.gguf.index, &f.gguf.meta, f.gguf.tensor_data, NULL, NULL, &e),
        ERR_CONFIG);
    /* what a killed writer left is taken over */
    assert_int_equal(file_publish(tmp, "rubbish", 7, 0600, &e), 0);
    assert_int_equal(write_tiny(&f, &e), 0);
    assert_int_equal(access(tmp, F_OK), -1);
    /* another writer at work: its file stays as it is */
    int fd = open(tmp, O_RDWR | O_CREAT, 0600);
    assert_int_equal(write(fd, "busy", 4), 4);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(write_tiny(&f, &e), ERR_AGAIN);
    assert_non_null(strstr(e.text, "another process"));
    struct stat st;
    assert_int_equal(stat(tmp, &st), 0);
    assert_int_equal(st.st_size, 4);
    close(fd);
    fixture_fini(&f);
}

/* A write that fails half-way (here at a limit for the size of files): an error, and nothing left. */
static int write_limited(struct fixture *f)
{
    const struct rlimit limit = {60000, 60000};
    struct err e = ERR_INIT;
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
        return 1;
    if (write_tiny(f, &e) != ERR_SYS || !strstr(e.text, strerror(EFBIG)) || strchr(e.text, '\n'))
        return 2;
    return 0;
}

static void test_write_fails(void **state)
{
    struct fixture f;
    char tmp[160];
    int status;
    fixture_init(&f);
    snprintf(tmp, sizeof tmp, "%s.tmp", f.path);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        _exit(write_limited(&f));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(access(f.path, F_OK), -1);
    assert_int_equal(access(tmp, F_OK), -1);
    fixture_fini(&f);
}

static void test_disk_full(void **state)
{
    struct fixture f;
    struct err e = ERR_INIT;
    struct stat st;
    char small[128], path[160];
    fixture_init(&f);
    snprintf(small, sizeof small, "%s/small", f.dir);
    assert_int_equal(mkdir(small, 0700), 0);
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", small, "tmpfs", 0, "size=512k") != 0) {
        print_message("skipped: no mount is allowed here: %s\n", strerror(errno));
        fixture_fini(&f);
        skip();
    }
    snprintf(path, sizeof path, "%s/out.h5", small);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, "old", 3), 3);
    close(fd);
    assert_int_equal(
        pack_write(path, &f.gguf.index, &f.gguf.meta, f.gguf.tensor_data, NULL, NULL, &e),
        ERR_LIMIT);
    unsigned long long need = 0, left = 0;
    assert_non_null(strstr(e.text, path));
    assert_int_equal(
        sscanf(strstr(e.text, "needs"), "needs %llu bytes, %llu are free", &need, &left), 2);
    assert_true(need > 512 * 1024 && left <= 512 * 1024);
    assert_int_equal(stat(path, &st), 0); /* the old one is still there, and nothing else */
    assert_int_equal(st.st_size, 3);
    snprintf(path, sizeof path, "%s/out.h5.tmp", small);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(umount(small), 0);
    fixture_fini(&f);
}

/* A source that makes pieces in the writer's buffer, and may give up. */
struct maker {
    uint32_t n_reads, fail_at, last_tensor;
    uint64_t last_offset;
};
static int maker_read(void *ctx, uint32_t tensor, uint64_t offset, uint32_t n, uint8_t *buf,
                      const uint8_t **bytes, struct err *e)
{
    struct maker *m = ctx;
    if (++m->n_reads == m->fail_at)
        return err_set(e, ERR_FORMAT, "tensor number %u: no more", tensor);
    /* each once, in the index's order, whole segments */
    assert_true(m->n_reads == 1 || tensor > m->last_tensor ||
                (tensor == m->last_tensor && offset == m->last_offset + SEGMENT_BYTES));
    assert_true(offset % SEGMENT_BYTES == 0 && n <= SEGMENT_BYTES);
    m->last_tensor = tensor;
    m->last_offset = offset;
    for (uint32_t i = 0; i < n; i++)
        buf[i] = (uint8_t)(tensor * 7 + (offset + i) / 1000);
    *bytes = buf;
    return 0;
}

static void test_source(void **state)
{
    (void)state;
    struct fixture f;
    struct pack p;
    struct err e = ERR_INIT;
    struct model_index x;
    struct maker m = {0};
    const struct tensor_source source = {maker_read, &m};
    /* two segments and a part of one; three dimensions */
    const struct tensor_info infos[] = {
        {.name = "a", .type = TENSOR_F32, .n_dims = 2, .dims = {1024, 4100, 1, 1}},
        {.name = "x", .type = TENSOR_Q8_0, .n_dims = 3, .dims = {64, 8, 4, 1}},
    };
    fixture_init(&f);
    assert_int_equal(index_build(&x, infos, 2, &e), 0);
    if (pack_write_from(f.path, &x, &f.gguf.meta, &source, NULL, NULL, &e))
        fail_msg("%s", e.text);
    assert_int_equal(m.n_reads, 4);
    assert_int_equal(pack_verify(f.path, NULL, NULL, &e), 0);
    assert_int_equal(pack_open(&p, f.path, &e), 0);
    assert_memory_equal(p.index.digest, x.digest, SHA256_BYTES);
    assert_true(p.index.tensors[1].n_dims == 3 && p.index.tensors[1].dims[2] == 4);
    int fd = open(f.path, O_RDONLY);
    uint8_t byte;
    assert_int_equal(pread(fd, &byte, 1, (off_t)(p.file_offset[0] + SEGMENT_BYTES + 12345)), 1);
    assert_int_equal(byte, (uint8_t)((SEGMENT_BYTES + 12345) / 1000));
    close(fd);
    pack_close(&p);
    /* one that gives up: its own words, and nothing is left; the old pack stays */
    for (uint32_t at = 1; at <= 4; at++) {
        m = (struct maker){.fail_at = at};
        assert_int_equal(pack_write_from(f.path, &x, &f.gguf.meta, &source, NULL, NULL, &e),
                         ERR_FORMAT);
        assert_non_null(strstr(e.text, "no more"));
        char tmp[160];
        snprintf(tmp, sizeof tmp, "%s.tmp", f.path);
        assert_int_not_equal(access(tmp, F_OK), 0);
        assert_int_equal(pack_open(&p, f.path, &e), 0);
        pack_close(&p);
    }
    index_fini(&x);
    fixture_fini(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_verify),
        cmocka_unit_test(test_foreign),    cmocka_unit_test(test_cut),
        cmocka_unit_test(test_hostile),    cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_places),     cmocka_unit_test(test_write_fails),
        cmocka_unit_test(test_disk_full),  cmocka_unit_test(test_source),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
