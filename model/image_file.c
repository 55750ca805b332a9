/* image_file.c - see image_file.h. */
#include "model/image_file.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "model/image.h"
#include "model/meta.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char MAGIC[8] = {'E', 'X', 'A', 'I', 'M', 'G', '0', '1'};

enum {
    IMAGE_VERSION = 1,
    HEADER_BYTES = 8 + 4 + 4 + 8 + 8 + 4 + 4 + SHA256_BYTES, /* then their SHA-256, then zeros */
    LOCK_POLL_US = 20000,
};

void image_header_encode(const struct image_header *h, uint8_t *out)
{
    struct buf b;
    buf_init(&b, IMAGE_DATA_OFFSET);
    buf_put(&b, MAGIC, sizeof MAGIC);
    buf_u32(&b, IMAGE_VERSION);
    buf_u32(&b, IMAGE_DATA_OFFSET);
    buf_u64(&b, h->file_bytes);
    buf_u64(&b, h->data_end);
    buf_u32(&b, h->index_bytes);
    buf_u32(&b, h->meta_bytes);
    buf_put(&b, h->digest, SHA256_BYTES);
    memset(out, 0, IMAGE_DATA_OFFSET);
    if (buf_ok(&b)) { /* else out of memory: a header of zeros, which no reader takes */
        memcpy(out, b.data, b.len);
        sha256_of(out, HEADER_BYTES, out + HEADER_BYTES);
    }
    buf_fini(&b);
}

int image_header_read(struct image_header *h, int fd, const char *path, struct err *e)
{
    uint8_t raw[HEADER_BYTES + SHA256_BYTES], sum[SHA256_BYTES];
    struct stat st;
    if (fstat(fd, &st) != 0)
        return err_sys(e, errno, "cannot look at %s", path);
    if (!S_ISREG(st.st_mode) || st.st_size < IMAGE_DATA_OFFSET)
        return err_set(e, ERR_FORMAT, "%s: expected an image file of at least %d bytes, found %lld",
                       path, IMAGE_DATA_OFFSET, (long long)st.st_size);
    int rc = image_pread(fd, raw, sizeof raw, 0, path, e);
    if (rc)
        return rc;
    struct rd r = rd_make(raw, HEADER_BYTES);
    if (memcmp(rd_bytes(&r, sizeof MAGIC), MAGIC, sizeof MAGIC) != 0)
        return err_set(e, ERR_FORMAT, "%s: not a node image: does not begin with %.8s", path,
                       MAGIC);
    uint32_t version = rd_u32(&r), data_offset = rd_u32(&r);
    if (version != IMAGE_VERSION || data_offset != IMAGE_DATA_OFFSET)
        return err_set(e, ERR_FORMAT, "%s: expected image version %d, found %" PRIu32, path,
                       IMAGE_VERSION, version);
    sha256_of(raw, HEADER_BYTES, sum);
    if (memcmp(sum, raw + HEADER_BYTES, SHA256_BYTES) != 0)
        return err_set(e, ERR_FORMAT, "%s: the header's checksum differs", path);
    struct image_header new;
    new.file_bytes = rd_u64(&r);
    new.data_end = rd_u64(&r);
    new.index_bytes = rd_u32(&r);
    new.meta_bytes = rd_u32(&r);
    memcpy(new.digest, rd_bytes(&r, SHA256_BYTES), SHA256_BYTES);
    if (new.index_bytes > INDEX_MAX_BYTES || new.meta_bytes > META_MAX_BYTES ||
        new.data_end < IMAGE_DATA_OFFSET || new.data_end > new.file_bytes ||
        new.file_bytes - new.data_end != (uint64_t) new.index_bytes + new.meta_bytes)
        return err_set(e, ERR_FORMAT, "%s: the header's sizes do not agree", path);
    if ((uint64_t)st.st_size != new.file_bytes)
        return err_set(e, ERR_FORMAT, "%s: expected %" PRIu64 " bytes, found %lld", path,
                       new.file_bytes, (long long)st.st_size);
    *h = new;
    return 0;
}

int image_paths_make(struct image_paths *p, const char *cache_dir,
                     const uint8_t digest[SHA256_BYTES], struct err *e)
{
    char hex[SHA256_HEX];
    hex_encode(digest, SHA256_BYTES, hex);
    int rc = path_join(p->dir, sizeof p->dir, e, "%s/%s", cache_dir, hex);
    if (!rc)
        rc = path_join(p->image, sizeof p->image, e, "%s/image", p->dir);
    if (!rc)
        rc = path_join(p->part, sizeof p->part, e, "%s/image.part", p->dir);
    return rc ? rc : path_join(p->lock, sizeof p->lock, e, "%s/lock", p->dir);
}

int image_flock(int fd, int op, const char *path, struct err *e)
{
    if (flock(fd, op | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK || errno == EINTR)
            return 0;
        return err_sys(e, errno, "cannot lock %s", path);
    }
    struct stat held, there;
    if (fstat(fd, &held) == 0 && lstat(path, &there) == 0 && held.st_dev == there.st_dev &&
        held.st_ino == there.st_ino)
        return 1;
    flock(fd, LOCK_UN);
    return 0;
}

int image_lock(int *out, const struct image_paths *p, uint64_t timeout_us, struct err *e)
{
    uint64_t end = clock_now_us() + timeout_us;
    for (;;) {
        int rc = dir_make_private(p->dir, e);
        if (rc)
            return rc;
        int fd = open(p->lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0 && errno != ENOENT) /* ENOENT: an evictor has just removed the folder */
            return err_sys(e, errno, "cannot open %s", p->lock);
        if (fd >= 0) {
            rc = image_flock(fd, LOCK_EX, p->lock, e);
            if (rc == 1) {
                *out = fd;
                return 0;
            }
            close(fd);
            if (rc < 0)
                return rc;
        }
        if (clock_now_us() >= end)
            return err_set(e, ERR_TIMEOUT,
                           "%s: another process of this node is still writing there after %" PRIu64
                           " ms",
                           p->dir, timeout_us / 1000);
        clock_sleep_us(LOCK_POLL_US);
    }
}

int image_pread(int fd, void *dst, size_t n, uint64_t offset, const char *path, struct err *e)
{
    for (size_t done = 0; done < n;) {
        ssize_t k = pread(fd, (uint8_t *)dst + done, n - done, (off_t)(offset + done));
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return err_sys(e, errno, "cannot read %s at %" PRIu64, path, offset + done);
        if (k == 0)
            return err_set(e, ERR_FORMAT, "%s ends at byte %" PRIu64, path, offset + done);
        done += (size_t)k;
    }
    return 0;
}

int image_pwrite(int fd, const void *src, size_t n, uint64_t offset, const char *path,
                 struct err *e)
{
    for (size_t done = 0; done < n;) {
        ssize_t k = pwrite(fd, (const uint8_t *)src + done, n - done, (off_t)(offset + done));
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && (errno == ENOSPC || errno == EDQUOT))
            return err_set(e, ERR_LIMIT, "disk full while writing %zu bytes of %s", n, path);
        if (k < 0)
            return err_sys(e, errno, "cannot write %s at %" PRIu64, path, offset + done);
        done += (size_t)k;
    }
    return 0;
}
