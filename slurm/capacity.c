/* capacity.c - see capacity.h. sinfo's rows "PARTITION|NODES"; the default partition carries a star. */
#include "slurm/capacity.h"

#include "slurm/command.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { ASK_TIMEOUT_US = 20 * 1000 * 1000 };

/* The user's own options may choose another partition or cluster, which we do not read. */
static bool is_overridden(const struct config *c)
{
    static const char *const OPTIONS[] = {"--partition", "--clusters", "--cluster"};
    for (unsigned i = 0; i < c->sbatch_args_count; i++) {
        const char *arg = c->sbatch_args[i];
        if (strncmp(arg, "-p", 2) == 0 || strncmp(arg, "-M", 2) == 0)
            return true;
        for (size_t k = 0; k < sizeof OPTIONS / sizeof OPTIONS[0]; k++)
            if (strncmp(arg, OPTIONS[k], strlen(OPTIONS[k])) == 0)
                return true;
    }
    return getenv("SBATCH_CLUSTERS") || getenv("SLURM_CLUSTERS") || getenv("SBATCH_RESERVATION") ||
           c->reservation;
}

/* name is one of the words of list ("a,b"); list NULL: the default partition is meant. */
static bool is_meant(const char *name, bool is_default, const char *list)
{
    if (!list)
        return is_default;
    size_t n = strlen(name);
    for (const char *p = list; *p; p += p[strcspn(p, ",")] ? strcspn(p, ",") + 1 : strcspn(p, ","))
        if (strcspn(p, ",") == n && strncmp(p, name, n) == 0)
            return true;
    return false;
}

/* The largest of the meant partitions; 0: none was listed. */
static uint64_t largest(char *rows, const char *list)
{
    uint64_t most = 0;
    char *rest = NULL;
    for (char *row = strtok_r(rows, "\n", &rest); row; row = strtok_r(NULL, "\n", &rest)) {
        char *bar = strchr(row, '|');
        if (!bar)
            continue;
        *bar = 0;
        size_t n = strlen(row);
        bool is_default = n && row[n - 1] == '*';
        if (is_default)
            row[n - 1] = 0;
        uint64_t nodes = strtoull(bar + 1, NULL, 10);
        if (is_meant(row, is_default, list) && nodes > most)
            most = nodes;
    }
    return most;
}

int capacity_check(const struct config *c, uint32_t nodes, struct err *e)
{
    if (is_overridden(c))
        return 0;
    const char *list = c->partition ? c->partition : getenv("SBATCH_PARTITION");
    const char *const argv[] = {"sinfo", "--noheader", "--format=%P|%D", NULL};
    const struct command command = {.argv = argv, .timeout_us = ASK_TIMEOUT_US};
    struct command_result r;
    if (command_run(&r, &command, NULL) != 0)
        return 0;
    uint64_t most = r.status == 0 ? largest((char *)buf_cstr(&r.out), list) : 0;
    command_result_fini(&r);
    if (!most || nodes <= most)
        return 0;
    return err_set(e, ERR_CONFIG, "%u nodes are more than %s%s has (%llu)", nodes,
                   list ? "partition " : "the default partition", list ? list : "",
                   (unsigned long long)most);
}
