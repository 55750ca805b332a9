/* image_writer.c - see image.h: building and repairing a node image.
 *
 * What is already there is believed only after its hash was computed. A finished image that proves
 * bad may be mapped by running engines, so it is never written to: a new part file takes its good
 * segments and replaces it by rename.
 */
#include "model/image.h"

#include "base/file.h"
#include "base/log.h"
#include "model/image_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

struct image_writer {
    struct image_paths paths;
    struct image_header header;
    const struct model_index *index; /* the caller's, outlives the writer */
    uint8_t *meta;                   /* owned [header.meta_bytes] */
    uint8_t *have;                   /* owned, bit s%8 of byte s/8 */
    uint32_t n_have;
    uint8_t *scratch; /* owned [SEGMENT_BYTES] */
    int lock_fd;
    int part_fd;   /* -1: a finished image is there */
    bool finished; /* paths.image is good */
};

static bool have_get(const struct image_writer *w, uint32_t s)
{
    return w->have[s / 8] >> (s % 8) & 1;
}

static void have_set(struct image_writer *w, uint32_t s)
{
    if (!have_get(w, s)) {
        w->have[s / 8] |= (uint8_t)(1u << (s % 8));
        w->n_have++;
    }
}

static void have_clear(struct image_writer *w)
{
    memset(w->have, 0, ((size_t)w->index->n_segments + 7) / 8);
    w->n_have = 0;
}

static bool hash_matches(const struct image_writer *w, uint32_t s, const void *data, size_t n)
{
    uint8_t sum[SHA256_BYTES];
    sha256_of(data, n, sum);
    return memcmp(sum, w->index->hashes[s], SHA256_BYTES) == 0;
}

/* Read segment s of the file into scratch; true when its hash agrees. A read error is a bad
 * segment, like any other. */
static bool segment_good(struct image_writer *w, int fd, const struct segment *seg, uint32_t s)
{
    return image_pread(fd, w->scratch, seg->n_bytes, seg->image_offset, "image", NULL) == 0 &&
           hash_matches(w, s, w->scratch, seg->n_bytes);
}

/* Set the have-bits of what is good in the file. */
static void find_good(struct image_writer *w, int fd)
{
    for (uint32_t s = 0; s < w->index->n_segments; s++) {
        struct segment seg = index_segment(w->index, s);
        if (segment_good(w, fd, &seg, s))
            have_set(w, s);
    }
}

/* Copy what the part file lacks and the bad image has. */
static int take_good(struct image_writer *w, int from, struct err *e)
{
    for (uint32_t s = 0; s < w->index->n_segments; s++) {
        struct segment seg = index_segment(w->index, s);
        if (have_get(w, s) || !segment_good(w, from, &seg, s))
            continue;
        int rc =
            image_pwrite(w->part_fd, w->scratch, seg.n_bytes, seg.image_offset, w->paths.part, e);
        if (rc)
            return rc;
        have_set(w, s);
    }
    return 0;
}

/* Are header, index and meta bytes of the finished image what they must be? */
static bool frame_good(struct image_writer *w, int fd)
{
    struct image_header h;
    if (image_header_read(&h, fd, w->paths.image, NULL) != 0 ||
        memcmp(h.digest, w->header.digest, SHA256_BYTES) != 0 ||
        h.file_bytes != w->header.file_bytes || h.data_end != w->header.data_end ||
        h.index_bytes != w->header.index_bytes)
        return false;
    size_t n = (size_t)h.index_bytes + h.meta_bytes;
    uint8_t *raw = malloc(n);
    uint8_t sum[SHA256_BYTES];
    bool good = raw && image_pread(fd, raw, n, h.data_end, w->paths.image, NULL) == 0;
    if (good) {
        sha256_of(raw, h.index_bytes, sum);
        good = memcmp(sum, w->index->digest, SHA256_BYTES) == 0 &&
               memcmp(raw + h.index_bytes, w->meta, h.meta_bytes) == 0;
    }
    free(raw);
    return good;
}

static uint64_t free_bytes(const char *path)
{
    struct statvfs v;
    return statvfs(path, &v) == 0 ? (uint64_t)v.f_bavail * v.f_frsize : UINT64_MAX;
}

static int disk_full(struct image_writer *w, uint64_t need, struct err *e)
{
    return err_set(e, ERR_LIMIT,
                   "disk full: folder %s needs %" PRIu64 " bytes more, %" PRIu64 " are free",
                   w->paths.dir, need, free_bytes(w->paths.dir));
}

/* Open or create the part file with its whole size reserved. What was in it stays. *existed: it was
 * there. */
static int reserve_part(struct image_writer *w, bool *existed, struct err *e)
{
    const char *path = w->paths.part;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    *existed = fd >= 0;
    if (fd < 0)
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_sys(e, errno, "cannot create %s", path);
    struct stat st;
    int rc = 0;
    if (fstat(fd, &st) != 0)
        rc = err_sys(e, errno, "cannot look at %s", path);
    else if (!S_ISREG(st.st_mode))
        rc = err_set(e, ERR_CONFIG, "%s: expected a file", path);
    if (rc)
        goto fail;
    uint64_t allocated = (uint64_t)st.st_blocks * 512, size = w->header.file_bytes;
    uint64_t need = size > allocated ? size - allocated : 0;
    int errnum = 0;
    if (need >
        free_bytes(
            w->paths.dir)) /* asked first: a failed reservation may fill the disk for a while */
        errnum = ENOSPC;
    else if ((uint64_t)st.st_size != size && ftruncate(fd, (off_t)size) != 0)
        errnum = errno;
    while (errnum == 0 && (errnum = posix_fallocate(fd, 0, (off_t)size)) == EINTR)
        errnum = 0;
    if (errnum == ENOSPC || errnum == EDQUOT)
        rc = disk_full(w, need, e);
    else if (errnum)
        rc = err_sys(e, errnum, "cannot reserve %" PRIu64 " bytes for %s", size, path);
    if (rc)
        goto fail;
    w->part_fd = fd;
    return 0;
fail:
    close(fd);
    if (!*existed)
        unlink(path);
    else if (rc ==
             ERR_LIMIT) /* give back what the failed reservation took; what was in the file stays */
        (void)!truncate(path, st.st_size);
    return rc;
}

/* The finished image is bad: nobody may start with it any more. Who has it mapped keeps it. */
static void drop_image(struct image_writer *w)
{
    if (unlink(w->paths.image) != 0 && errno != ENOENT)
        log_warn("image: cannot remove the bad image path=%s", w->paths.image);
}

static bool in_use(const struct image_writer *w, int fd)
{
    if (image_flock(fd, LOCK_EX, w->paths.image, NULL) != 1)
        return true;
    flock(fd, LOCK_UN);
    return false;
}

/* Start from whatever the folder holds. */
static int take_stock(struct image_writer *w, struct err *e)
{
    int bad_fd = -1;
    int fd = open(w->paths.image, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0) {
        find_good(w, fd);
        if (w->n_have == w->index->n_segments && frame_good(w, fd)) {
            futimens(fd, NULL); /* used now: eviction goes by this time */
            close(fd);
            unlink(w->paths.part); /* of a repair that another has finished */
            w->finished = true;
            return 0;
        }
        log_warn("image: repairing a bad image path=%s good_segments=%" PRIu32 " segments=%" PRIu32,
                 w->paths.image, w->n_have, w->index->n_segments);
        have_clear(w);
        bad_fd = fd;
    } else if (errno != ENOENT) {
        unlink(w->paths.image); /* a link or something else that we never make */
    }
    bool existed;
    int rc = reserve_part(w, &existed, e);
    if (rc == ERR_LIMIT && bad_fd >= 0 && !in_use(w, bad_fd)) {
        drop_image(w); /* no room for both: all its segments are fetched again */
        close(bad_fd);
        bad_fd = -1;
        rc = reserve_part(w, &existed, e);
    }
    if (!rc && existed)
        find_good(w, w->part_fd);
    if (!rc && bad_fd >= 0)
        rc = take_good(w, bad_fd, e);
    if (!rc && bad_fd >= 0)
        drop_image(w);
    if (bad_fd >= 0)
        close(bad_fd);
    return rc;
}

static int writer_init(struct image_writer *w, const char *cache_dir, const struct model_index *x,
                       const void *meta, size_t meta_bytes, struct err *e)
{
    uint8_t sum[SHA256_BYTES];
    sha256_of(meta, meta_bytes, sum);
    if (meta_bytes > META_MAX_BYTES || memcmp(sum, x->meta_hash, SHA256_BYTES) != 0)
        return err_set(e, ERR_FORMAT, "image: the model data's hash differs from the index's");
    struct buf b;
    buf_init(&b, INDEX_MAX_BYTES);
    int rc = index_encode(x, &b, e);
    if (!rc) {
        sha256_of(b.data, b.len, sum);
        if (memcmp(sum, x->digest, SHA256_BYTES) != 0)
            rc = err_set(e, ERR_FORMAT,
                         "image: the index is not sealed: its digest differs from its bytes");
    }
    w->header = (struct image_header){
        .file_bytes = x->image_bytes + b.len + meta_bytes,
        .data_end = x->image_bytes,
        .index_bytes = (uint32_t)b.len,
        .meta_bytes = (uint32_t)meta_bytes,
    };
    buf_fini(&b);
    if (rc)
        return rc;
    memcpy(w->header.digest, x->digest, SHA256_BYTES);
    w->index = x;
    w->meta = malloc(meta_bytes + 1);
    w->have = calloc(((size_t)x->n_segments + 7) / 8, 1);
    w->scratch = malloc(SEGMENT_BYTES);
    if (!w->meta || !w->have || !w->scratch)
        return err_set(e, ERR_NOMEM, "image: out of memory");
    memcpy(w->meta, meta, meta_bytes);
    rc = image_paths_make(&w->paths, cache_dir, x->digest, e);
    return rc ? rc : dir_make_private(cache_dir, e);
}

/* A folder with nothing but its lock is no use to anybody. The lock is held: nobody else is at work
 * here. */
static void drop_empty_dir(const struct image_writer *w)
{
    if (access(w->paths.image, F_OK) != 0 && access(w->paths.part, F_OK) != 0) {
        unlink(w->paths.lock);
        rmdir(w->paths.dir);
    }
}

int image_writer_open(struct image_writer **out, const char *cache_dir, const struct model_index *x,
                      const void *meta, size_t meta_bytes, uint64_t lock_timeout_us, struct err *e)
{
    struct image_writer *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(e, ERR_NOMEM, "image: out of memory");
    w->lock_fd = w->part_fd = -1;
    int rc = writer_init(w, cache_dir, x, meta, meta_bytes, e);
    if (!rc)
        rc = image_lock(&w->lock_fd, &w->paths, lock_timeout_us, e);
    if (!rc) {
        rc = take_stock(w, e);
        if (rc)
            drop_empty_dir(w);
    }
    if (rc) {
        image_writer_close(w);
        return rc;
    }
    *out = w;
    return 0;
}

const uint8_t *image_writer_have(const struct image_writer *w)
{
    return w->have;
}

bool image_writer_complete(const struct image_writer *w)
{
    return w->n_have == w->index->n_segments;
}

int image_writer_put(struct image_writer *w, uint32_t segment, const void *data, size_t n,
                     struct err *e)
{
    if (segment >= w->index->n_segments)
        return err_set(e, ERR_FORMAT, "image: expected a segment below %" PRIu32 ", found %" PRIu32,
                       w->index->n_segments, segment);
    struct segment seg = index_segment(w->index, segment);
    const char *name = w->index->tensors[seg.tensor].name;
    if (n != seg.n_bytes)
        return err_set(e, ERR_FORMAT,
                       "tensor %s, segment %" PRIu64 ": expected %" PRIu32 " bytes, found %zu",
                       name, seg.offset / SEGMENT_BYTES, seg.n_bytes, n);
    if (!hash_matches(w, segment, data, n))
        return err_set(e, ERR_FORMAT, "tensor %s, segment %" PRIu64 ": the hash differs", name,
                       seg.offset / SEGMENT_BYTES);
    if (have_get(w, segment))
        return 0;
    int rc = image_pwrite(w->part_fd, data, n, seg.image_offset, w->paths.part, e);
    if (rc)
        return rc;
    have_set(w, segment);
    return 0;
}

/* Index and meta bytes, the header last, everything on the disk, then the name. */
static int publish(struct image_writer *w, struct err *e)
{
    struct buf b;
    buf_init(&b, INDEX_MAX_BYTES);
    uint8_t head[IMAGE_DATA_OFFSET];
    int rc = index_encode(w->index, &b, e);
    if (!rc)
        rc = image_pwrite(w->part_fd, b.data, b.len, w->header.data_end, w->paths.part, e);
    if (!rc)
        rc = image_pwrite(w->part_fd, w->meta, w->header.meta_bytes, w->header.data_end + b.len,
                          w->paths.part, e);
    buf_fini(&b);
    if (!rc) {
        image_header_encode(&w->header, head);
        rc = image_pwrite(w->part_fd, head, sizeof head, 0, w->paths.part, e);
    }
    if (rc)
        return rc;
    if (fsync(w->part_fd) != 0)
        return err_sys(e, errno, "cannot write %s to the disk", w->paths.part);
    if (rename(w->paths.part, w->paths.image) != 0)
        return err_sys(e, errno, "cannot rename %s to %s", w->paths.part, w->paths.image);
    int dir = open(w->paths.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir >= 0) {
        fsync(dir); /* best effort: a lost rename only means one more check of the part file */
        close(dir);
    }
    close(w->part_fd);
    w->part_fd = -1;
    w->finished = true;
    return 0;
}

int image_writer_finish(struct image_writer *w, char *path, size_t path_cap, struct err *e)
{
    if (!image_writer_complete(w))
        return err_set(e, ERR_AGAIN, "%s: %" PRIu32 " of %" PRIu32 " segments are missing",
                       w->paths.part, w->index->n_segments - w->n_have, w->index->n_segments);
    if (!w->finished) {
        int rc = publish(w, e);
        if (rc)
            return rc;
    }
    return path_join(path, path_cap, e, "%s", w->paths.image);
}

void image_writer_close(struct image_writer *w)
{
    if (!w)
        return;
    if (w->part_fd >= 0)
        close(w->part_fd);
    if (w->lock_fd >= 0)
        close(w->lock_fd);
    free(w->meta);
    free(w->have);
    free(w->scratch);
    free(w);
}
