/* bench_image.c - see bench_image.h. */
#include "cli/bench_image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/paths.h"
#include "hdf5io/pack.h"
#include "model/image.h"

enum { LOCK_TIMEOUT_US = 60000000 };

static int read_at(int fd, uint8_t *to, size_t n, uint64_t at, struct err *e)
{
    while (n) {
        ssize_t k = pread(fd, to, n, (off_t)at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return k ? err_sys(e, errno, "reading the pack")
                     : err_set(e, ERR_FORMAT, "the pack ends at byte %llu", (unsigned long long)at);
        to += k;
        at += (uint64_t)k;
        n -= (size_t)k;
    }
    return 0;
}

static int segments_put(struct image_writer *w, const struct pack *p, int fd, struct err *e)
{
    uint8_t *bytes = malloc(SEGMENT_BYTES);
    int rc = bytes ? 0 : err_set(e, ERR_NOMEM, "out of memory");
    const uint8_t *have = image_writer_have(w);
    for (uint32_t s = 0; !rc && s < p->index.n_segments; s++) {
        struct segment seg = index_segment(&p->index, s);
        if (have[s / 8] >> s % 8 & 1)
            continue;
        rc = read_at(fd, bytes, seg.n_bytes, p->file_offset[seg.tensor] + seg.offset, e);
        if (!rc)
            rc = image_writer_put(w, s, bytes, seg.n_bytes, e);
    }
    free(bytes);
    return rc;
}

static int image_make(const struct pack *p, const char *pack, char *path, size_t path_cap,
                      struct err *e)
{
    char cache[4096];
    struct image_writer *w = NULL;
    int fd = open(pack, O_RDONLY | O_CLOEXEC);
    int rc = fd < 0 ? err_sys(e, errno, "%s", pack) : path_cache_dir(cache, sizeof cache, e);
    if (!rc)
        rc = image_writer_open(&w, cache, &p->index, p->meta_bytes, p->meta_n_bytes,
                               LOCK_TIMEOUT_US, e);
    if (!rc && !image_writer_complete(w))
        rc = segments_put(w, p, fd, e);
    if (!rc)
        rc = image_writer_finish(w, path, path_cap, e);
    if (w)
        image_writer_close(w);
    if (fd >= 0)
        close(fd);
    return rc;
}

int bench_image(const char *pack, char *path, size_t path_cap, struct err *e)
{
    struct image img;
    struct pack p;
    if (!image_open(&img, pack, false, NULL)) {
        image_close(&img);
        snprintf(path, path_cap, "%s", pack);
        return 0;
    }
    if (access(pack, R_OK))
        return err_set(e, ERR_CONFIG, "%s: %s", pack, strerror(errno));
    int rc = pack_open(&p, pack, e);
    if (rc)
        return rc;
    rc = image_make(&p, pack, path, path_cap, e);
    pack_close(&p);
    return rc;
}
