/* file.c - see file.h. */
#include "base/file.h"

#include "base/digest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_STEP_BYTES = 64 * 1024 };

int file_read(const char *path, struct buf *b, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, errno, "cannot open %s", path);
    int rc = 0;
    for (;;) {
        uint8_t *dst = buf_reserve(b, READ_STEP_BYTES);
        size_t want = READ_STEP_BYTES;
        if (!dst) { /* near the cap: read what still fits, plus one byte to see whether there is more */
            b->failed = false;
            want = b->max - b->len;
            dst = want ? buf_reserve(b, want) : NULL;
            if (!dst) {
                uint8_t more;
                ssize_t k = read(fd, &more, 1);
                if (k != 0)
                    rc = err_set(e, ERR_LIMIT, "%s is larger than %zu bytes", path, b->max);
                b->failed = rc != 0;
                break;
            }
        }
        ssize_t k = read(fd, dst, want);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0) {
            rc = err_sys(e, errno, "cannot read %s", path);
            break;
        }
        if (k == 0)
            break;
        b->len += (size_t)k;
    }
    close(fd);
    return rc;
}

static int write_all(int fd, const void *data, size_t n)
{
    const uint8_t *p = data;
    while (n) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return -1;
        p += k;
        n -= (size_t)k;
    }
    return 0;
}

static void fsync_parent(const char *path)
{
    char dir[PATH_MAX];
    snprintf(dir, sizeof dir, "%s", path);
    char *slash = strrchr(dir, '/');
    if (slash && slash != dir)
        *slash = 0;
    else
        snprintf(dir, sizeof dir, slash ? "/" : ".");
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd); /* best effort: some shared file systems refuse it for folders */
        close(fd);
    }
}

int file_publish(const char *path, const void *data, size_t n, mode_t mode, struct err *e)
{
    char tmp[PATH_MAX];
    uint32_t r;
    random_bytes(&r, sizeof r);
    int rc = path_join(tmp, sizeof tmp, e, "%s.tmp.%d.%08x", path, (int)getpid(), r);
    if (rc)
        return rc;
    int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0)
        return err_sys(e, errno, "cannot create %s", tmp);
    if (fchmod(fd, mode) != 0 || write_all(fd, data, n) != 0 || fsync(fd) != 0) {
        rc = err_sys(e, errno, "cannot write %s", tmp);
        close(fd);
        unlink(tmp);
        return rc;
    }
    close(fd);
    if (rename(tmp, path) != 0) {
        rc = err_sys(e, errno, "cannot rename %s to %s", tmp, path);
        unlink(tmp);
        return rc;
    }
    fsync_parent(path);
    return 0;
}

int dir_make(const char *path, struct err *e)
{
    char dir[PATH_MAX];
    int rc = path_join(dir, sizeof dir, e, "%s", path);
    if (rc)
        return rc;
    int parent = 0; /* why a parent could not be made: it may be there all the same */
    for (char *p = dir + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = 0;
        if (mkdir(dir, 0700) != 0 && errno != EEXIST) {
            if (errno != EROFS && errno != EACCES)
                return err_sys(e, errno, "cannot create folder %s", dir);
            parent = errno;
        }
        *p = '/';
    }
    if (mkdir(dir, 0700) != 0 && errno != EEXIST)
        return err_sys(e, errno == ENOENT && parent ? parent : errno, "cannot create folder %s",
                       dir);
    return 0;
}

static bool is_empty(const char *path)
{
    DIR *d = opendir(path);
    int n = 0; /* "." and ".." */
    while (d && n <= 2 && readdir(d))
        n++;
    if (d)
        closedir(d);
    return d && n <= 2;
}

static int make_private(const char *path, bool ours, struct err *e)
{
    int rc = dir_make(path, e);
    if (rc)
        return rc;
    struct stat st;
    if (lstat(path, &st) != 0)
        return err_sys(e, errno, "cannot look at %s", path);
    if (!S_ISDIR(st.st_mode))
        return err_set(e, ERR_CONFIG, "%s must be a folder, and is a %s", path,
                       S_ISLNK(st.st_mode) ? "symbolic link" : "file");
    if (st.st_uid != geteuid())
        return err_set(e, ERR_CONFIG, "%s must belong to user %u, and belongs to user %u", path,
                       (unsigned)geteuid(), (unsigned)st.st_uid);
    /* What is in it may be there for others to read: closing it would take it from them. */
    if ((st.st_mode & 077) && !ours && !is_empty(path))
        return err_set(e, ERR_CONFIG,
                       "%s must be private (mode 0700), and has mode %04o: name a folder that "
                       "nothing else uses, or chmod 700 it",
                       path, (unsigned)st.st_mode & 07777);
    if ((st.st_mode & 0777) != 0700 && chmod(path, 0700) != 0)
        return err_sys(e, errno, "cannot make %s private", path);
    return 0;
}

int dir_make_private(const char *path, struct err *e)
{
    return make_private(path, false, e);
}

int dir_keep_private(const char *path, struct err *e)
{
    return make_private(path, true, e);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path) == 0 || errno == ENOENT ? 0 : -1;
}

int dir_remove(const char *path, struct err *e)
{
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
        return err_sys(e, errno, "cannot remove %s", path);
    return 0;
}

int file_self_dir(char *out, size_t cap, struct err *e)
{
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n < 0)
        return err_sys(e, errno, "cannot read /proc/self/exe");
    exe[n] = 0;
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(exe, '/');
        if (slash)
            *slash = 0;
    }
    return path_join(out, cap, e, "%s", exe[0] ? exe : "/");
}

int path_join(char *out, size_t cap, struct err *e, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(out, cap, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= cap)
        return err_set(e, ERR_LIMIT, "path is longer than %zu bytes: %.200s…", cap - 1, out);
    return 0;
}
