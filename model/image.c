/* image.c - see image.h: using a finished node image. */
#include "model/image.h"

#include "base/clock.h"
#include "model/image_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LOCK_WAIT_US = 5000000, /* an evictor holds its lock for some system calls only */
    LOCK_POLL_US = 10000,
};

/* Open the file the path leads to and mark it as in use. */
static int open_shared(int *out, const char *path, struct err *e)
{
    uint64_t end = clock_now_us() + LOCK_WAIT_US;
    for (;;) {
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0)
            return err_sys(e, errno, "cannot open image %s", path);
        int rc = image_flock(fd, LOCK_SH, path, e);
        if (rc == 1) {
            *out = fd;
            return 0;
        }
        close(fd);
        if (rc < 0)
            return rc;
        if (clock_now_us() >= end)
            return err_set(e, ERR_TIMEOUT, "%s: still locked by another process after %d ms", path,
                           LOCK_WAIT_US / 1000);
        clock_sleep_us(LOCK_POLL_US);
    }
}

static int read_contents(struct image *img, const struct image_header *h, const char *path,
                         struct err *e)
{
    const uint8_t *index = img->map + h->data_end, *meta = index + h->index_bytes;
    int rc = index_decode(&img->index, index, h->index_bytes, e);
    if (rc)
        return e ? err_prefix(e, "%s: ", path) : rc;
    if (memcmp(img->index.digest, h->digest, SHA256_BYTES) != 0)
        return err_set(e, ERR_FORMAT, "%s: the index's digest differs from the header's", path);
    if (img->index.image_bytes != h->data_end)
        return err_set(e, ERR_FORMAT, "%s: expected tensors up to byte %" PRIu64 ", found %" PRIu64,
                       path, img->index.image_bytes, h->data_end);
    uint8_t sum[SHA256_BYTES];
    sha256_of(meta, h->meta_bytes, sum);
    if (memcmp(sum, img->index.meta_hash, SHA256_BYTES) != 0)
        return err_set(e, ERR_FORMAT, "%s: the hash of the model data differs", path);
    rc = meta_decode(&img->meta, meta, h->meta_bytes, e);
    return rc && e ? err_prefix(e, "%s: ", path) : rc;
}

static int verify_segments(const struct image *img, const char *path, struct err *e)
{
    for (uint32_t s = 0; s < img->index.n_segments; s++) {
        struct segment seg = index_segment(&img->index, s);
        uint8_t sum[SHA256_BYTES];
        sha256_of(img->map + seg.image_offset, seg.n_bytes, sum);
        if (memcmp(sum, img->index.hashes[s], SHA256_BYTES) != 0)
            return err_set(e, ERR_FORMAT, "%s: tensor %s, segment %" PRIu64 ": the hash differs",
                           path, img->index.tensors[seg.tensor].name, seg.offset / SEGMENT_BYTES);
    }
    return 0;
}

int image_open(struct image *img, const char *path, bool verify, struct err *e)
{
    struct image new = {.fd = -1};
    meta_init(&new.meta);
    struct image_header h;
    int rc = open_shared(&new.fd, path, e);
    if (!rc)
        rc = image_header_read(&h, new.fd, path, e);
    if (rc)
        goto fail;
    void *map = mmap(NULL, h.file_bytes, PROT_READ, MAP_SHARED, new.fd, 0);
    if (map == MAP_FAILED) {
        rc = err_sys(e, errno, "cannot map %" PRIu64 " bytes of %s", h.file_bytes, path);
        goto fail;
    }
    new.map = map;
    new.map_bytes = h.file_bytes;
    rc = read_contents(&new, &h, path, e);
    if (!rc && verify)
        rc = verify_segments(&new, path, e);
    if (rc)
        goto fail;
    futimens(new.fd, NULL); /* eviction goes by this time; no matter when it cannot be set */
    *img = new;
    return 0;
fail:
    image_close(&new);
    return rc;
}

void image_close(struct image *img)
{
    meta_fini(&img->meta);
    index_fini(&img->index);
    free(img->moved);
    if (img->map)
        munmap((void *)img->map, img->map_bytes);
    if (img->fd >= 0)
        close(img->fd);
    *img = (struct image){.fd = -1};
    meta_init(&img->meta);
}

const void *image_tensor(const struct image *img, const char *name, const struct tensor_info **info)
{
    const struct tensor_info *t = index_find(&img->index, name);
    if (info)
        *info = t;
    return t ? image_data(img, t) : NULL;
}

const void *image_data(const struct image *img, const struct tensor_info *t)
{
    size_t i = (size_t)(t - img->index.tensors);
    return img->moved && img->moved[i] ? img->moved[i] : img->map + t->image_offset;
}
