/* image_cache.c - see image.h: which images a cache folder holds, and which of them leave. */
#include "model/image.h"

#include "base/file.h"
#include "model/image_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CACHE_MAX_ENTRIES = 4096 }; /* looked at in one go; more are left for the next */

struct entry {
    uint8_t digest[SHA256_BYTES];
    uint64_t bytes;
    struct timespec used;
};

static bool later(struct timespec a, struct timespec b)
{
    return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

static void entry_add_file(struct entry *x, const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return;
    x->bytes += (uint64_t)st.st_size;
    if (later(st.st_mtim, x->used))
        x->used = st.st_mtim;
}

static int entry_order(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return later(x->used, y->used)   ? 1
           : later(y->used, x->used) ? -1
                                     : memcmp(x->digest, y->digest, SHA256_BYTES);
}

/* Columns of the image for shards (image_derived.h) count and leave with it. */
static bool is_derived(const char *name)
{
    return strncmp(name, "tp-", 3) == 0;
}

/* Visit them: add up their bytes, or remove them. */
static void derived_visit(struct entry *x, const char *dir_path, bool remove_them)
{
    DIR *dir = opendir(dir_path);
    struct dirent *d;
    while (dir && (d = readdir(dir))) {
        char path[PATH_MAX];
        if (!is_derived(d->d_name) ||
            path_join(path, sizeof path, NULL, "%s/%s", dir_path, d->d_name) != 0)
            continue;
        if (remove_them)
            unlink(path);
        else
            entry_add_file(x, path);
    }
    if (dir)
        closedir(dir);
}

/* All folders named by a digest, at most max. */
static int scan(const char *cache_dir, struct entry *entries, uint32_t max, uint32_t *count,
                struct err *e)
{
    *count = 0;
    DIR *dir = opendir(cache_dir);
    if (!dir)
        return errno == ENOENT ? 0 : err_sys(e, errno, "cannot read folder %s", cache_dir);
    struct dirent *d;
    while (*count < max && (d = readdir(dir))) {
        struct entry x = {.bytes = 0};
        struct image_paths p;
        if (hex_decode(d->d_name, x.digest, SHA256_BYTES) != 0 ||
            image_paths_make(&p, cache_dir, x.digest, NULL) != 0)
            continue;
        entry_add_file(&x, p.image);
        entry_add_file(&x, p.part);
        derived_visit(&x, p.dir, false);
        entries[(*count)++] = x;
    }
    closedir(dir);
    return 0;
}

/* Remove what the folder holds unless it is in use. true: it is gone. */
static bool entry_remove(const char *cache_dir, const struct entry *x)
{
    struct image_paths p;
    int lock = -1;
    if (image_paths_make(&p, cache_dir, x->digest, NULL) != 0 ||
        image_lock(&lock, &p, 0, NULL) != 0)
        return false;
    bool gone = true;
    int fd = open(p.image, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0) {
        gone = image_flock(fd, LOCK_EX, p.image, NULL) == 1 && unlink(p.image) == 0;
        close(fd);
    }
    if (gone) {
        derived_visit(NULL, p.dir, true);
        unlink(p.part);
        unlink(p.lock);
        rmdir(p.dir);
    }
    close(lock);
    return gone;
}

int image_evict(const char *cache_dir, uint64_t max_bytes, const uint8_t keep_digest[SHA256_BYTES],
                struct err *e)
{
    struct entry *entries = malloc(CACHE_MAX_ENTRIES * sizeof *entries);
    if (!entries)
        return err_set(e, ERR_NOMEM, "image: out of memory");
    uint32_t n;
    int rc = scan(cache_dir, entries, CACHE_MAX_ENTRIES, &n, e);
    uint64_t total = 0;
    for (uint32_t i = 0; i < n; i++)
        total += entries[i].bytes;
    qsort(entries, n, sizeof *entries, entry_order);
    for (uint32_t i = 0; i < n && total > max_bytes; i++) {
        if (keep_digest && memcmp(entries[i].digest, keep_digest, SHA256_BYTES) == 0)
            continue;
        if (entry_remove(cache_dir, &entries[i]))
            total -= entries[i].bytes;
    }
    free(entries);
    return rc;
}

uint32_t image_list(const char *cache_dir, uint8_t (*digests)[SHA256_BYTES], uint32_t max)
{
    struct entry *entries = malloc(CACHE_MAX_ENTRIES * sizeof *entries);
    uint32_t n = 0, found = 0;
    if (entries)
        scan(cache_dir, entries, CACHE_MAX_ENTRIES, &n, NULL);
    for (uint32_t i = 0; i < n && found < max; i++) {
        struct image_paths p;
        struct image_header h;
        if (image_paths_make(&p, cache_dir, entries[i].digest, NULL) != 0)
            continue;
        int fd = open(p.image, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0)
            continue;
        if (image_header_read(&h, fd, p.image, NULL) == 0 &&
            memcmp(h.digest, entries[i].digest, SHA256_BYTES) == 0)
            memcpy(digests[found++], h.digest, SHA256_BYTES);
        close(fd);
    }
    free(entries);
    return found;
}
