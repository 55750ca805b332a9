/* image_derived.c - see image_derived.h.
 *
 * Layout: header (4096 bytes), then the parts in order, each 64-byte aligned; integers little-endian.
 */
#include "model/image_derived.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "model/image_file.h"

static const char MAGIC[8] = {'E', 'X', 'A', 'D', 'R', 'V', '0', '1'};
enum {
    HEADER_BYTES = 4096,
    USED_BYTES = 8 + 8 + 3 * SHA256_BYTES, /* magic, file bytes, three hashes; then their SHA-256 */
    PART_ALIGN = 64,
    COPY_BYTES = 4 << 20, /* written at once */
};

struct place {
    const uint8_t *from; /* first row's piece in the image */
    size_t from_stride, row_bytes;
    uint64_t n_rows, offset; /* in the file */
};

struct image_derived {
    uint32_t n_parts;
    struct place *places; /* owned */
    uint64_t file_bytes;
    uint8_t digest[SHA256_BYTES], plan[SHA256_BYTES], data[SHA256_BYTES];
    const uint8_t *map;
    char path[PATH_MAX];
};

/* --- the plan ---------------------------------------------------------------------------------------------- */

static int place_part(struct place *p, const struct image *img, const struct derived_part *part,
                      uint64_t *at, struct err *e)
{
    const struct tensor_info *t = NULL;
    const uint8_t *data = image_tensor(img, part->tensor, &t);
    if (!data)
        return err_set(e, ERR_FORMAT, "tensor %s: missing", part->tensor);
    const struct tensor_type_info *type = tensor_type_info(t->type);
    uint64_t cols = t->dims[0], rows = t->dims[1] * t->dims[2] * t->dims[3];
    if (!part->count || part->first > cols || part->count > cols - part->first)
        return err_set(e, ERR_FORMAT,
                       "tensor %s: columns %" PRIu64 " to %" PRIu64 ", it has %" PRIu64,
                       part->tensor, part->first, part->first + part->count, cols);
    if (part->first % type->block_elems || part->count % type->block_elems)
        return err_set(
            e, ERR_FORMAT,
            "tensor %s: columns %" PRIu64 " to %" PRIu64 " are no whole blocks of %u weights (%s)",
            part->tensor, part->first, part->first + part->count, type->block_elems, type->name);
    p->from_stride = t->n_bytes / rows;
    p->from = data + part->first / type->block_elems * type->block_bytes;
    p->row_bytes = part->count / type->block_elems * type->block_bytes;
    p->n_rows = rows;
    p->offset = *at;
    *at = (*at + p->row_bytes * rows + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
    return 0;
}

static int plan_make(struct image_derived *d, const struct image *img,
                     const struct derived_part *parts, struct err *e)
{
    struct buf b;
    int rc = 0;
    uint64_t at = HEADER_BYTES;
    buf_init(&b, INDEX_MAX_BYTES);
    for (uint32_t i = 0; i < d->n_parts && !rc; i++) {
        rc = place_part(&d->places[i], img, &parts[i], &at, e);
        buf_str(&b, parts[i].tensor);
        buf_u64(&b, parts[i].first);
        buf_u64(&b, parts[i].count);
    }
    if (!rc && !buf_ok(&b))
        rc = err_set(e, ERR_NOMEM, "a plan of %u tensors: out of memory", d->n_parts);
    if (!rc)
        sha256_of(b.data, b.len, d->plan);
    memcpy(d->digest, img->index.digest, SHA256_BYTES);
    d->file_bytes = at;
    buf_fini(&b);
    return rc;
}

/* --- the file ---------------------------------------------------------------------------------------------- */

static void header_encode(const struct image_derived *d, uint8_t out[HEADER_BYTES])
{
    memset(out, 0, HEADER_BYTES);
    memcpy(out, MAGIC, sizeof MAGIC);
    for (int i = 0; i < 8; i++)
        out[8 + i] = (uint8_t)(d->file_bytes >> 8 * i);
    memcpy(out + 16, d->digest, SHA256_BYTES);
    memcpy(out + 16 + SHA256_BYTES, d->plan, SHA256_BYTES);
    memcpy(out + 16 + 2 * SHA256_BYTES, d->data, SHA256_BYTES);
    sha256_of(out, USED_BYTES, out + USED_BYTES);
}

/* Map a finished file if it is there, whole, and of this plan. 1: it is; 0: it must be made (anew). */
static int try_map(struct image_derived *d, struct err *e)
{
    struct stat st;
    uint8_t have[HEADER_BYTES], want[HEADER_BYTES];
    int fd = open(d->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT ? 0 : err_sys(e, errno, "cannot open %s", d->path);
    int rc = 0;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == d->file_bytes &&
        image_pread(fd, have, sizeof have, 0, d->path, NULL) == 0) {
        memcpy(d->data, have + 16 + 2 * SHA256_BYTES, SHA256_BYTES);
        header_encode(d, want);
        rc = memcmp(have, want, sizeof want) == 0;
    }
    if (rc) {
        void *p = mmap(NULL, d->file_bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
            rc = err_sys(e, errno, "cannot map %s", d->path);
        else
            d->map = p;
    }
    close(fd);
    return rc;
}

/* Write what was gathered, hashing it; *at moves on. */
static int flush(struct buf *b, struct sha256 *hash, int fd, uint64_t *at, const char *path,
                 struct err *e)
{
    if (!buf_ok(b))
        return err_set(e, ERR_NOMEM, "%s: out of memory", path);
    sha256_update(hash, b->data, b->len);
    int rc = image_pwrite(fd, b->data, b->len, *at, path, e);
    *at += b->len;
    buf_reset(b);
    return rc;
}

static int write_parts(struct image_derived *d, int fd, struct sha256 *hash, const char *path,
                       struct err *e)
{
    struct buf b;
    uint64_t at = HEADER_BYTES;
    int rc = 0;
    static const uint8_t ZEROS[PART_ALIGN];
    buf_init(&b, 2 * (size_t)COPY_BYTES + HEADER_BYTES * 64);
    for (uint32_t i = 0; i < d->n_parts && !rc; i++) {
        const struct place *p = &d->places[i];
        for (uint64_t row = 0; row < p->n_rows && !rc; row++) {
            const uint8_t *from = p->from + row * p->from_stride;
            for (size_t done = 0; done < p->row_bytes && !rc;) {
                size_t n = p->row_bytes - done < COPY_BYTES ? p->row_bytes - done : COPY_BYTES;
                buf_put(&b, from + done, n);
                done += n;
                if (b.len >= COPY_BYTES)
                    rc = flush(&b, hash, fd, &at, path, e);
            }
        }
        uint64_t end = i + 1 < d->n_parts ? d->places[i + 1].offset : d->file_bytes;
        if (!rc)
            buf_put(&b, ZEROS, end - at - b.len);
    }
    if (!rc)
        rc = flush(&b, hash, fd, &at, path, e);
    buf_fini(&b);
    return rc;
}

static int write_file(struct image_derived *d, int fd, const char *path, struct err *e)
{
    struct sha256 *hash = sha256_create();
    uint8_t header[HEADER_BYTES];
    int rc = hash ? posix_fallocate(fd, 0, (off_t)d->file_bytes) : ENOMEM;
    if (rc == ENOSPC || rc == EDQUOT || rc == EFBIG)
        rc = err_set(e, ERR_LIMIT, "disk full: %s needs %" PRIu64 " bytes", path, d->file_bytes);
    else if (rc)
        rc = err_sys(e, rc, "cannot make room for %s", path);
    if (!rc) {
        sha256_begin(hash);
        rc = write_parts(d, fd, hash, path, e);
        sha256_end(hash, d->data);
    }
    sha256_destroy(hash);
    if (rc)
        return rc;
    header_encode(d, header);
    rc = image_pwrite(fd, header, sizeof header, 0, path, e);
    return rc ? rc : fsync(fd) ? err_sys(e, errno, "cannot flush %s", path) : 0;
}

/* The folder's lock is held: nobody else makes or removes anything there. */
static int make(struct image_derived *d, const char *dir, struct err *e)
{
    char part[PATH_MAX];
    int rc = path_join(part, sizeof part, e, "%s.part", d->path);
    if (rc)
        return rc;
    int fd = open(part, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_sys(e, errno, "cannot make %s", part);
    rc = write_file(d, fd, part, e);
    close(fd);
    if (!rc && rename(part, d->path))
        rc = err_sys(e, errno, "cannot rename %s", part);
    if (rc) {
        unlink(part);
        return rc;
    }
    int folder = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) {
        fsync(folder);
        close(folder);
    }
    return 0;
}

static int open_or_make(struct image_derived *d, const char *image_path, uint32_t rank,
                        uint32_t n_ranks, uint64_t lock_timeout_us, struct err *e)
{
    struct image_paths p;
    int lock;
    const char *slash = strrchr(image_path, '/');
    int rc = path_join(p.dir, sizeof p.dir, e, "%.*s", slash ? (int)(slash - image_path) : 1,
                       slash ? image_path : ".");
    if (!rc)
        rc = path_join(p.lock, sizeof p.lock, e, "%s/lock", p.dir);
    if (!rc)
        rc = path_join(d->path, sizeof d->path, e, "%s/tp-%u-of-%u", p.dir, rank, n_ranks);
    if (!rc)
        rc = try_map(d, e);
    if (rc)
        return rc < 0 ? rc : 0;
    rc = image_lock(&lock, &p, lock_timeout_us, e);
    if (rc)
        return rc;
    rc = try_map(d, e); /* another has made it while we waited */
    if (rc == 0) {
        rc = make(d, p.dir, e);
        if (!rc && (rc = try_map(d, e)) == 0)
            rc = err_set(e, ERR_FORMAT, "%s: not what was just written", d->path);
    }
    close(lock);
    return rc < 0 ? rc : 0;
}

int image_derived_open(struct image_derived **out, const struct image *img, const char *path,
                       uint32_t rank, uint32_t n_ranks, const struct derived_part *parts,
                       uint32_t n_parts, uint64_t lock_timeout_us, struct err *e)
{
    struct image_derived *d = calloc(1, sizeof *d);
    if (d)
        d->places = calloc(n_parts + 1, sizeof *d->places);
    if (!d || !d->places) {
        free(d);
        return err_set(e, ERR_NOMEM, "columns of %u tensors: out of memory", n_parts);
    }
    d->n_parts = n_parts;
    int rc = plan_make(d, img, parts, e);
    if (!rc)
        rc = open_or_make(d, path, rank, n_ranks, lock_timeout_us, e);
    if (rc) {
        image_derived_close(d);
        return rc;
    }
    *out = d;
    return 0;
}

void image_derived_close(struct image_derived *d)
{
    if (!d)
        return;
    if (d->map)
        munmap((void *)d->map, d->file_bytes);
    free(d->places);
    free(d);
}

const void *image_derived_tensor(const struct image_derived *d, uint32_t i, size_t *row_bytes)
{
    *row_bytes = d->places[i].row_bytes;
    return d->map + d->places[i].offset;
}

int image_derived_apply(struct image *img, const struct image_derived *d,
                        const struct derived_part *parts, struct err *e)
{
    if (!img->moved)
        img->moved = calloc(img->index.n_tensors, sizeof *img->moved);
    if (!img->moved)
        return err_set(e, ERR_NOMEM, "columns of %u tensors: out of memory", d->n_parts);
    for (uint32_t i = 0; i < d->n_parts; i++) {
        const struct place *p = &d->places[i];
        size_t at = (size_t)(index_find(&img->index, parts[i].tensor) - img->index.tensors);
        struct tensor_info *t = &img->index.tensors[at];
        t->dims[0] = parts[i].count;
        t->n_bytes = p->row_bytes * p->n_rows;
        img->moved[at] = d->map + p->offset;
    }
    return 0;
}

uint64_t image_derived_bytes(const struct image_derived *d)
{
    return d->file_bytes;
}

int image_derived_verify(const struct image_derived *d, struct err *e)
{
    uint8_t found[SHA256_BYTES];
    sha256_of(d->map + HEADER_BYTES, d->file_bytes - HEADER_BYTES, found);
    if (memcmp(found, d->data, sizeof found))
        return err_set(e, ERR_FORMAT, "%s: its data do not have the hash they were made with",
                       d->path);
    return 0;
}
