/* paths.c - see paths.h. */
#include "base/paths.h"

#include "base/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int path_cache_dir(char *out, size_t cap, struct err *e)
{
    const char *cache = getenv("EXASERVE_CACHE");
    if (cache && cache[0])
        return path_join(out, cap, e, "%s", cache);
    const char *tmp = getenv("TMPDIR");
    return path_join(out, cap, e, "%s/exaserve-%u", tmp && tmp[0] ? tmp : "/tmp",
                     (unsigned)geteuid());
}

int path_host_name(char *out, size_t cap, struct err *e)
{
    if (gethostname(out, cap) != 0)
        return err_sys(e, errno, "this machine has no name of less than %zu bytes", cap);
    out[cap - 1] = 0; /* POSIX leaves it open whether a cut name ends */
    out[strcspn(out, ".")] = 0;
    return 0;
}
