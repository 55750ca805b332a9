/* file_map.c - see file_map.h. */
#include "model/file_map.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int file_map(void **out, size_t *n_bytes, const char *path, size_t least_bytes, const char *kind,
             struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_sys(e, errno, "cannot open %s", path);
    int rc = 0;
    struct stat st;
    if (fstat(fd, &st) != 0)
        rc = err_sys(e, errno, "cannot look at %s", path);
    else if (!S_ISREG(st.st_mode))
        rc = err_set(e, ERR_FORMAT, "%s: expected a file", path);
    else if (st.st_size < (off_t)least_bytes)
        rc = err_set(e, ERR_FORMAT, "%s: not a %s file: expected at least %zu bytes, found %lld",
                     path, kind, least_bytes, (long long)st.st_size);
    void *map = rc ? NULL : mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED)
        rc = err_sys(e, errno, "cannot map %s", path);
    close(fd);
    if (rc)
        return rc;
    *out = map;
    *n_bytes = (size_t)st.st_size;
    return 0;
}
