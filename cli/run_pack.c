/* run_pack.c - see run_pack.h. A cached pack is named by the model's name, size and time of change: another model never gets it. */
#include "cli/run_pack.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/paths.h"
#include "cli/pack_guard.h"
#include "hdf5io/pack.h"
#include "model/import.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PROGRESS_US = 1000 * 1000, STEM_BYTES = 80 };

static int cache_dir(char *out, size_t cap, struct err *e)
{
    int rc = path_cache_dir(out, cap, e);
    return rc ? rc : dir_make_private(out, e);
}

static void show_progress(void *ctx, uint64_t done, uint64_t total)
{
    uint64_t *last = ctx, now = clock_now_us();
    pack_guard_own();
    if (now - *last < PROGRESS_US)
        return;
    *last = now;
    fprintf(stderr, "packing: %3.0f %%\n", total ? 100.0 * (double)done / (double)total : 100.0);
}

static bool begins_with(const char *path, const char *magic, size_t n)
{
    char first[8] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool yes = fd >= 0 && read(fd, first, n) == (ssize_t)n && memcmp(first, magic, n) == 0;
    if (fd >= 0)
        close(fd);
    return yes;
}

static bool later(struct timespec a, struct timespec b)
{
    return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

/* Size and last change of a file, or of all files in a folder. */
static int stamp(const char *model, struct stat *st, struct err *e)
{
    if (stat(model, st) != 0)
        return err_sys(e, errno, "cannot look at %s", model);
    if (!S_ISDIR(st->st_mode))
        return 0;
    DIR *d = opendir(model);
    if (!d)
        return err_sys(e, errno, "cannot look into %s", model);
    st->st_size = 0;
    for (struct dirent *entry; (entry = readdir(d));) {
        struct stat file;
        if (fstatat(dirfd(d), entry->d_name, &file, 0) != 0 || !S_ISREG(file.st_mode))
            continue;
        st->st_size += file.st_size;
        if (later(file.st_mtim, st->st_mtim))
            st->st_mtim = file.st_mtim;
    }
    closedir(d);
    return 0;
}

/* CACHE/packs/STEM-SIZE-MTIME.h5 */
static int cached_path(const char *model, char *path, size_t cap, struct err *e)
{
    char dir[PATH_MAX], packs[PATH_MAX], stem[STEM_BYTES];
    struct stat st;
    int rc = stamp(model, &st, e);
    if (rc)
        return rc;
    const char *base = strrchr(model, '/');
    snprintf(stem, sizeof stem, "%.*s", STEM_BYTES - 1, base ? base + 1 : model);
    char *dot = strrchr(stem, '.');
    if (dot && dot != stem && !S_ISDIR(st.st_mode))
        *dot = 0;
    rc = cache_dir(dir, sizeof dir, e);
    char full[PATH_MAX]; /* serve.yaml takes a relative path from its own folder */
    if (!rc && !realpath(dir, full))
        rc = err_sys(e, errno, "cannot look at %s", dir);
    if (!rc)
        rc = path_join(packs, sizeof packs, e, "%s/packs", full);
    if (!rc)
        rc = dir_make_private(packs, e);
    return rc ? rc
              : path_join(path, cap, e, "%s/%s-%lld-%lld.%09ld.h5", packs, stem,
                          (long long)st.st_size, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
}

static int make(const char *model, const char *path, struct err *e)
{
    struct import m;
    int rc = import_open(&m, model, e);
    if (rc)
        return rc;
    uint64_t begin = clock_now_us(), last = begin;
    fprintf(stderr, "packing %s (%.1f MB), once: it is kept in %s\n", model,
            (double)m.index->data_bytes / 1e6, path);
    pack_guard_begin(path);
    rc = pack_write_from(path, m.index, m.meta, &m.source, show_progress, &last, e);
    pack_guard_end();
    import_close(&m);
    return rc;
}

static int name_read(const char *path, char *name, size_t cap, struct err *e)
{
    struct pack p;
    struct model_meta m;
    int rc = pack_open(&p, path, e);
    if (rc)
        return rc;
    rc = meta_decode(&m, p.meta_bytes, p.meta_n_bytes, e);
    if (!rc) {
        snprintf(name, cap, "%s", m.name);
        meta_fini(&m);
    }
    pack_close(&p);
    return rc;
}

int run_pack(const char *model, char *path, size_t cap, char *name, size_t name_cap, struct err *e)
{
    char full[PATH_MAX];
    if (!realpath(model, full))
        return err_set(e, ERR_CONFIG, "%s: %s", model, strerror(errno));
    if (access(full, R_OK) != 0)
        return err_set(e, ERR_CONFIG, "%s: %s", full, strerror(errno));
    struct stat st;
    bool folder = stat(full, &st) == 0 && S_ISDIR(st.st_mode);
    if (!folder && !begins_with(full, "GGUF", 4)) {
        if (!begins_with(full, "\x89HDF\r\n\x1a\n", 8))
            return err_set(e, ERR_CONFIG,
                           "%s is neither a GGUF file nor a pack nor a Hugging Face folder", full);
        int rc = name_read(full, name, name_cap, e);
        return rc ? rc : path_join(path, cap, e, "%s", full);
    }
    int rc = cached_path(full, path, cap, e);
    if (rc)
        return rc;
    if (name_read(path, name, name_cap, NULL) == 0)
        return 0;
    rc = make(full, path, e); /* none yet, or a damaged one: replaced */
    return rc ? rc : name_read(path, name, name_cap, e);
}
