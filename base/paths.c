/* paths.c - see paths.h. */
#include "base/paths.h"

#include "base/file.h"

#include <stdlib.h>
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
