/* cluster.c - see cluster.h. */
#include "slurm/cluster.h"

#include "slurm/command.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ASK_TIMEOUT_US = 10 * 1000 * 1000 };

static bool is_name(const char *s)
{
    size_t n = strlen(s);
    if (n == 0 || n > 63 || *s == '.')
        return false;
    for (; *s; s++)
        if (!isalnum((unsigned char)*s) && !strchr("._-", *s))
            return false;
    return true;
}

/* The line "ClusterName             = NAME". */
static bool ask_controller(char *out, size_t cap)
{
    const char *const argv[] = {"scontrol", "show", "config", NULL};
    const struct command c = {.argv = argv, .timeout_us = ASK_TIMEOUT_US};
    struct command_result r;
    if (command_run(&r, &c, NULL) != 0)
        return false;
    const char *at = r.status == 0 ? strstr(buf_cstr(&r.out), "\nClusterName") : NULL;
    char name[64];
    bool ok = at && sscanf(at, "\nClusterName = %63s", name) == 1 && is_name(name);
    if (ok)
        snprintf(out, cap, "%s", name);
    command_result_fini(&r);
    return ok;
}

void cluster_name(char *out, size_t cap)
{
    const char *set = getenv("SLURM_CLUSTER_NAME");
    if (set && is_name(set))
        snprintf(out, cap, "%s", set);
    else if (!ask_controller(out, cap))
        snprintf(out, cap, "cluster");
}
