/* fault.c - see fault.h. One line: CODE HOST TEXT. */
#include "slurm/fault.h"

#include "base/buf.h"
#include "base/file.h"
#include "slurm/rundir.h"

#include <stdio.h>
#include <string.h>

enum { FAULT_MAX_BYTES = 4096 };

static int fault_path(char *out, size_t cap, const char *attempt_dir, struct err *e)
{
    return path_join(out, cap, e, "%s/fault", attempt_dir);
}

int fault_write(const char *attempt_dir, const char *host, const char *who, const struct err *why,
                struct err *e)
{
    char path[RUNDIR_PATH_BYTES + 64], text[FAULT_MAX_BYTES];
    int rc = fault_path(path, sizeof path, attempt_dir, e);
    if (rc)
        return rc;
    int n = snprintf(text, sizeof text, "%d %s %s on %s: %s\n", why->code, host[0] ? host : "-",
                     who, host, why->text);
    return file_publish(path, text, (size_t)n, 0600, e);
}

int fault_read(const char *attempt_dir, char host[FAULT_HOST_BYTES], struct err *why)
{
    char path[RUNDIR_PATH_BYTES + 64];
    struct buf b;
    int code, at = 0;
    buf_init(&b, FAULT_MAX_BYTES);
    int rc = fault_path(path, sizeof path, attempt_dir, NULL);
    if (!rc)
        rc = file_read(path, &b, NULL);
    const char *text = rc ? "" : buf_cstr(&b);
    if (sscanf(text, "%d %63s %n", &code, host, &at) != 2 || !at || !text[at] || code >= 0)
        rc = ERR_AGAIN;
    else
        err_set(why, code, "%.*s", (int)strcspn(text + at, "\n"), text + at);
    buf_fini(&b);
    return rc;
}
