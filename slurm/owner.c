/* owner.c - see owner.h. */
#include "slurm/owner.h"

#include "base/buf.h"
#include "base/file.h"
#include "slurm/endpoint.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct identity {
    int pid;
    uint64_t start_ticks; /* since boot: field 22 of /proc/PID/stat */
    char boot[48];
};

static int identity_read(struct identity *id, int pid)
{
    char path[64];
    struct buf b;
    buf_init(&b, 64 * 1024);
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int rc = file_read(path, &b, NULL);
    const char *p =
        rc ? NULL : strrchr(buf_cstr(&b), ')'); /* the name before it may hold anything */
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    if (!p || sscanf(p, " %" SCNu64, &id->start_ticks) != 1)
        rc = ERR_AGAIN;
    id->pid = pid;
    buf_reset(&b);
    id->boot[0] = 0;
    if (!rc && file_read("/proc/sys/kernel/random/boot_id", &b, NULL) == 0)
        snprintf(id->boot, sizeof id->boot, "%.36s", buf_cstr(&b));
    buf_fini(&b);
    return rc;
}

int owner_write(const char *run_dir, struct err *e)
{
    struct identity me;
    char path[RUNDIR_PATH_BYTES], text[160];
    if (identity_read(&me, (int)getpid()) != 0)
        return err_set(e, ERR_SYS, "cannot read /proc/%d/stat", (int)getpid());
    int rc = path_join(path, sizeof path, e, "%s/owner", run_dir);
    if (rc)
        return rc;
    int n = snprintf(text, sizeof text, "%d %" PRIu64 " %s\n", me.pid, me.start_ticks, me.boot);
    return file_publish(path, text, (size_t)n, 0600, e);
}

int owner_find(const char *run_dir, pid_t *pid, struct err *e)
{
    struct identity want = {0}, now;
    char path[RUNDIR_PATH_BYTES], text[256];
    size_t n;
    int rc = path_join(path, sizeof path, e, "%s/owner", run_dir);
    if (!rc)
        rc = private_read(path, text, sizeof text, &n, e);
    if (rc)
        return rc;
    if (sscanf(text, "%d %" SCNu64 " %47s", &want.pid, &want.start_ticks, want.boot) != 3 ||
        want.pid <= 1)
        return err_set(e, ERR_FORMAT, "%s must hold pid, start time and boot", path);
    if (identity_read(&now, want.pid) != 0 || now.start_ticks != want.start_ticks ||
        strcmp(now.boot, want.boot) != 0)
        return err_set(e, ERR_AGAIN, "process %d, which ran the service, is gone", want.pid);
    *pid = want.pid;
    return 0;
}
