/* memory.c - see memory.h. Slurm confines a job by a control group: the machine's free memory is not ours to take. */
#include "engine/memory.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool read_number(const char *path, uint64_t *out)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    bool ok = fscanf(f, "%" SCNu64, out) == 1; /* "max" is no number: no limit */
    fclose(f);
    return ok;
}

static uint64_t machine_available(void)
{
    char line[256];
    uint64_t kib = 0;
    FILE *f = fopen("/proc/meminfo", "re");
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f))
        found = sscanf(line, "MemAvailable: %" SCNu64 " kB", &kib) == 1;
    if (f)
        fclose(f);
    return found ? kib * 1024 : UINT64_MAX;
}

/* A page cache page of ours is counted as used, though it would be given up: inactive_file is added back. */
static uint64_t reclaimable(const char *dir, const char *key)
{
    char path[1200], line[256];
    uint64_t v = 0;
    snprintf(path, sizeof path, "%s/memory.stat", dir);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        size_t n = strlen(key);
        if (!strncmp(line, key, n) && line[n] == ' ' && sscanf(line + n, "%" SCNu64, &v) == 1)
            break;
    }
    if (f)
        fclose(f);
    return v;
}

static uint64_t group_available(const char *dir, const char *limit_file, const char *used_file,
                                const char *key)
{
    char path[1200];
    uint64_t limit, used;
    snprintf(path, sizeof path, "%s/%s", dir, limit_file);
    if (!read_number(path, &limit))
        return UINT64_MAX;
    snprintf(path, sizeof path, "%s/%s", dir, used_file);
    if (!read_number(path, &used))
        return UINT64_MAX;
    uint64_t back = reclaimable(dir, key);
    used = used > back ? used - back : 0;
    return limit > used ? limit - used : 0;
}

/* The limits of a group and of every group above it hold. */
static uint64_t groups_available(const char *root, const char *group, bool v2)
{
    uint64_t least = UINT64_MAX;
    char rel[1024];
    snprintf(rel, sizeof rel, "%s", group);
    for (;;) {
        char dir[1100];
        snprintf(dir, sizeof dir, "%.64s%.1024s", root, rel);
        uint64_t n = v2 ? group_available(dir, "memory.max", "memory.current", "inactive_file")
                        : group_available(dir, "memory.limit_in_bytes", "memory.usage_in_bytes",
                                          "total_inactive_file");
        least = n < least ? n : least;
        char *slash = strrchr(rel, '/');
        if (!slash)
            return least;
        *slash = 0;
    }
}

uint64_t memory_available(void)
{
    uint64_t least = machine_available();
    char line[1100];
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && fgets(line, sizeof line, f)) { /* "7:memory:/a/b" or "0::/a/b" */
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':'),
             *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = 0;
        uint64_t n = UINT64_MAX;
        if (!strcmp(controllers, ":"))
            n = groups_available("/sys/fs/cgroup", group, true);
        else if (strstr(controllers, "memory"))
            n = groups_available("/sys/fs/cgroup/memory", group, false);
        least = n < least ? n : least;
    }
    if (f)
        fclose(f);
    return least;
}
