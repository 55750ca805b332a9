/* pack.c - see pack.h: opening and verifying a pack.
 *
 * The file is judged before it is used: only hard links are followed (an external link would lead
 * into another file), only plain contiguous uint8 datasets inside this file are taken, sizes come
 * from the index, whose digest the manifest must repeat.
 */
#include "hdf5io/pack.h"

#include "hdf5io/h5.h"
#include "hdf5io/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct reader {
    hid_t file, tensors;
    uint64_t file_bytes;
    struct pack pack;
    size_t index_bytes;
};

static int open_file(struct reader *r, const char *path, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_sys(e, errno, "cannot open %s", path);
    struct stat st;
    char magic[4] = "";
    int rc = fstat(fd, &st) != 0 ? err_sys(e, errno, "cannot look at %s", path) : 0;
    if (!rc && S_ISREG(st.st_mode) && pread(fd, magic, sizeof magic, 0) < 0)
        rc = err_sys(e, errno, "cannot read %s", path);
    close(fd);
    if (rc)
        return rc;
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_FORMAT, "%s: not a pack: expected a file", path);
    r->file_bytes = (uint64_t)st.st_size;
    if (H5Fis_hdf5(path) <= 0) {
        H5Eclear2(H5E_DEFAULT);
        if (memcmp(magic, "GGUF", sizeof magic) == 0)
            return err_set(e, ERR_FORMAT,
                           "%s: not a pack but a GGUF file: make a pack of it with `exaserve pack`",
                           path);
        return err_set(e, ERR_FORMAT, "%s: not a pack: not an HDF5 file", path);
    }
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    /* No lock: a pack never changes under its name, and some shared file systems refuse locks. */
    if (access >= 0 && H5Pset_fapl_sec2(access) >= 0 && H5Pset_file_locking(access, 0, 1) >= 0)
        r->file = H5Fopen(path, H5F_ACC_RDONLY, access);
    if (r->file < 0)
        rc = h5_error(e, ERR_FORMAT, "%s: broken HDF5 file", path);
    h5_close_list(access);
    return rc;
}

static int read_manifest(const struct reader *r, char text[MANIFEST_BYTES], struct err *e)
{
    htri_t there = H5Aexists(r->file, "manifest");
    if (there < 0)
        return h5_error(e, ERR_FORMAT, "cannot find the manifest");
    if (there == 0)
        return err_set(e, ERR_FORMAT, "not a pack: no manifest");
    hid_t attr = H5Aopen(r->file, "manifest", H5P_DEFAULT), type = -1, space = -1;
    int rc = 0;
    if (attr >= 0) {
        type = H5Aget_type(attr);
        space = H5Aget_space(attr);
    }
    size_t n = 0;
    bool text_like = type >= 0 && space >= 0 && H5Tget_class(type) == H5T_STRING &&
                     H5Tis_variable_str(type) == 0 &&
                     H5Sget_simple_extent_type(space) == H5S_SCALAR;
    if (text_like)
        n = H5Tget_size(type);
    if (n == 0 || n >= MANIFEST_BYTES)
        rc = err_set(e, ERR_FORMAT, "not a pack: the manifest is no short text");
    else if (H5Aread(attr, type, text) < 0)
        rc = h5_error(e, ERR_FORMAT, "cannot read the manifest");
    else
        text[n] = 0;
    h5_close_type(type);
    h5_close_space(space);
    h5_close_attr(attr);
    return rc;
}

/* 0: name is a hard link below where. */
static int check_link(hid_t where, const char *name, const char *what, struct err *e)
{
    H5L_info_t info;
    htri_t there = H5Lexists(where, name, H5P_DEFAULT);
    if (there < 0)
        return h5_error(e, ERR_FORMAT, "cannot find %s %s", what, name);
    if (there == 0)
        return err_set(e, ERR_FORMAT, "%s %s is missing", what, name);
    if (H5Lget_info(where, name, &info, H5P_DEFAULT) < 0)
        return h5_error(e, ERR_FORMAT, "cannot read the link of %s %s", what, name);
    if (info.type != H5L_TYPE_HARD)
        return err_set(e, ERR_FORMAT, "%s %s is a link to elsewhere", what, name);
    return 0;
}

/* Is it contiguous uint8[*n_bytes] inside this file? offset: where. */
static int check_layout(const struct reader *r, hid_t set, const char *name, uint64_t *n_bytes,
                        uint64_t *offset, struct err *e)
{
    hid_t list = H5Dget_create_plist(set), type = H5Dget_type(set), space = H5Dget_space(set);
    hsize_t dims = 0;
    int rc = 0;
    if (list < 0 || H5Pget_layout(list) != H5D_CONTIGUOUS || H5Pget_external_count(list) != 0)
        rc =
            err_set(e, ERR_FORMAT, "dataset %s: expected contiguous storage inside the file", name);
    else if (type < 0 || H5Tget_class(type) != H5T_INTEGER || H5Tget_size(type) != 1)
        rc = err_set(e, ERR_FORMAT, "dataset %s: expected items of one byte", name);
    else if (space < 0 || H5Sget_simple_extent_type(space) != H5S_SIMPLE ||
             H5Sget_simple_extent_ndims(space) != 1 ||
             H5Sget_simple_extent_dims(space, &dims, NULL) != 1)
        rc = err_set(e, ERR_FORMAT, "dataset %s: expected one dimension", name);
    h5_close_list(list);
    h5_close_type(type);
    h5_close_space(space);
    if (rc)
        return rc;
    haddr_t at = H5Dget_offset(set);
    hsize_t stored = H5Dget_storage_size(set);
    if (at == HADDR_UNDEF || stored != dims)
        return err_set(e, ERR_FORMAT,
                       "dataset %s: expected %" PRIu64 " bytes of storage, found %" PRIu64, name,
                       (uint64_t)dims, at == HADDR_UNDEF ? (uint64_t)0 : (uint64_t)stored);
    if (at > r->file_bytes || dims > r->file_bytes - at)
        return err_set(e, ERR_FORMAT,
                       "dataset %s: %" PRIu64 " bytes at offset %" PRIu64
                       " are not within the file's %" PRIu64 " bytes",
                       name, (uint64_t)dims, (uint64_t)at, r->file_bytes);
    *n_bytes = dims;
    *offset = at;
    return 0;
}

/* The dataset of that name below where, checked and left open. */
static int open_data(const struct reader *r, hid_t where, const char *name, hid_t *set,
                     uint64_t *n_bytes, uint64_t *offset, struct err *e)
{
    int rc = check_link(where, name, "dataset", e);
    if (rc)
        return rc;
    *set = H5Dopen2(where, name, H5P_DEFAULT);
    if (*set < 0)
        return h5_error(e, ERR_FORMAT, "cannot open dataset %s", name);
    rc = check_layout(r, *set, name, n_bytes, offset, e);
    if (rc)
        H5Dclose(*set);
    return rc;
}

/* All bytes of a small dataset. */
static int read_small(const struct reader *r, const char *name, size_t max, uint8_t **bytes,
                      size_t *n, struct err *e)
{
    hid_t set;
    uint64_t n_bytes, offset;
    int rc = open_data(r, r->file, name, &set, &n_bytes, &offset, e);
    if (rc)
        return rc;
    uint8_t *data = NULL;
    if (n_bytes == 0 || n_bytes > max)
        rc = err_set(e, ERR_FORMAT, "dataset %s: expected 1 to %zu bytes, found %" PRIu64, name,
                     max, n_bytes);
    else if (!(data = malloc(n_bytes)))
        rc = err_set(e, ERR_NOMEM, "out of memory for %" PRIu64 " bytes of %s", n_bytes, name);
    else if (H5Dread(set, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
        rc = h5_error(e, ERR_FORMAT, "cannot read dataset %s", name);
    H5Dclose(set);
    if (rc) {
        free(data);
        return rc;
    }
    *bytes = data;
    *n = n_bytes;
    return 0;
}

static int read_index(struct reader *r, struct err *e)
{
    uint8_t *bytes;
    int rc = read_small(r, "index", INDEX_MAX_BYTES, &bytes, &r->index_bytes, e);
    if (rc)
        return rc;
    rc = index_decode(&r->pack.index, bytes, r->index_bytes, e);
    free(bytes);
    return rc;
}

static int read_meta(struct reader *r, struct err *e)
{
    struct pack *p = &r->pack;
    int rc = read_small(r, "meta", META_MAX_BYTES, &p->meta_bytes, &p->meta_n_bytes, e);
    if (rc)
        return rc;
    uint8_t sum[SHA256_BYTES];
    sha256_of(p->meta_bytes, p->meta_n_bytes, sum);
    if (memcmp(sum, p->index.meta_hash, SHA256_BYTES) != 0)
        return err_set(e, ERR_FORMAT, "the hash of /meta differs from the one in /index");
    struct model_meta m;
    rc = meta_decode(&m, p->meta_bytes, p->meta_n_bytes, e);
    if (!rc)
        meta_fini(&m);
    return rc;
}

static int find_tensors(struct reader *r, struct err *e)
{
    struct pack *p = &r->pack;
    int rc = check_link(r->file, "tensors", "group", e);
    if (rc)
        return rc;
    r->tensors = H5Gopen2(r->file, "tensors", H5P_DEFAULT);
    if (r->tensors < 0)
        return h5_error(e, ERR_FORMAT, "cannot open group tensors");
    p->file_offset = calloc(p->index.n_tensors, sizeof *p->file_offset);
    if (!p->file_offset)
        return err_set(e, ERR_NOMEM, "out of memory for %" PRIu32 " offsets", p->index.n_tensors);
    for (uint32_t i = 0; i < p->index.n_tensors; i++) {
        const struct tensor_info *t = &p->index.tensors[i];
        hid_t set;
        uint64_t n_bytes;
        rc = open_data(r, r->tensors, t->name, &set, &n_bytes, &p->file_offset[i], e);
        if (rc)
            return rc;
        H5Dclose(set);
        if (n_bytes != t->n_bytes)
            return err_set(e, ERR_FORMAT, "dataset %s: expected %" PRIu64 " bytes, found %" PRIu64,
                           t->name, t->n_bytes, n_bytes);
    }
    return 0;
}

static int read_pack(struct reader *r, struct err *e)
{
    char found[MANIFEST_BYTES], expected[MANIFEST_BYTES];
    int rc = read_manifest(r, found, e);
    if (!rc)
        rc = read_index(r, e);
    if (!rc)
        rc = read_meta(r, e);
    if (rc)
        return rc;
    manifest_make(expected, &r->pack.index, r->index_bytes, r->pack.meta_n_bytes);
    rc = manifest_check(found, expected, e);
    return rc ? rc : find_tensors(r, e);
}

int pack_open(struct pack *p, const char *path, struct err *e)
{
    struct reader r = {.file = -1, .tensors = -1};
    struct h5_quiet quiet;
    h5_quiet_begin(&quiet);
    int rc = open_file(&r, path, e);
    if (!rc) {
        rc = read_pack(&r, e);
        if (rc && e)
            err_prefix(e, "%s: ", path);
    }
    h5_close_group(r.tensors);
    if (r.file >= 0)
        H5Fclose(r.file);
    h5_quiet_end(&quiet);
    if (rc)
        pack_close(&r.pack);
    else
        *p = r.pack;
    return rc;
}

void pack_close(struct pack *p)
{
    index_fini(&p->index);
    free(p->meta_bytes);
    free(p->file_offset);
    *p = (struct pack){0};
}

static int read_whole(int fd, uint8_t *dst, size_t n, uint64_t at, const char *path, struct err *e)
{
    while (n) {
        ssize_t k = pread(fd, dst, n, (off_t)at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return err_sys(e, errno, "cannot read %s at byte %" PRIu64, path, at);
        if (k == 0)
            return err_set(e, ERR_FORMAT, "%s ends at byte %" PRIu64, path, at);
        dst += k;
        n -= (size_t)k;
        at += (uint64_t)k;
    }
    return 0;
}

static int verify_segments(const struct pack *p, int fd, uint8_t *scratch, const char *path,
                           pack_progress_fn progress, void *ctx, struct err *e)
{
    uint64_t done = 0;
    for (uint32_t s = 0; s < p->index.n_segments; s++) {
        struct segment seg = index_segment(&p->index, s);
        uint8_t sum[SHA256_BYTES];
        int rc =
            read_whole(fd, scratch, seg.n_bytes, p->file_offset[seg.tensor] + seg.offset, path, e);
        if (rc)
            return rc;
        sha256_of(scratch, seg.n_bytes, sum);
        if (memcmp(sum, p->index.hashes[s], SHA256_BYTES) != 0)
            return err_set(e, ERR_FORMAT,
                           "%s: tensor %s, segment %" PRIu64 " of %" PRIu32 ": the hash differs",
                           path, p->index.tensors[seg.tensor].name, seg.offset / SEGMENT_BYTES + 1,
                           p->index.tensors[seg.tensor].n_segments);
        done += seg.n_bytes;
        if (progress)
            progress(ctx, done, p->index.data_bytes);
    }
    return 0;
}

int pack_verify(const char *path, pack_progress_fn progress, void *ctx, struct err *e)
{
    struct pack p;
    int rc = pack_open(&p, path, e);
    if (rc)
        return rc;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    uint8_t *scratch = malloc(SEGMENT_BYTES);
    if (fd < 0)
        rc = err_sys(e, errno, "cannot open %s", path);
    else if (!scratch)
        rc = err_set(e, ERR_NOMEM, "out of memory for verifying %s", path);
    else
        rc = verify_segments(&p, fd, scratch, path, progress, ctx, e);
    if (fd >= 0)
        close(fd);
    free(scratch);
    pack_close(&p);
    return rc;
}
