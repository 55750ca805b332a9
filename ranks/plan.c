/* plan.c - see plan.h. */
#include "ranks/plan.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/paths.h"
#include "config/config.h"
#include "mpi/layout.h"
#include "slurm/job.h"
#include "slurm/rundir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROBE_MARK "EXASERVE-NODE"

enum { NODES_FILE_MAX_BYTES = 4 << 20 };

int plan_probe(struct err *e)
{
    char host[LAYOUT_NAME_BYTES], rack[LAYOUT_NAME_BYTES], zone[LAYOUT_NAME_BYTES];
    int rc = path_host_name(host, sizeof host, e);
    if (rc)
        return rc;
    topology_of_task(rack, sizeof rack, zone, sizeof zone);
    printf("%s %s %s %s\n", PROBE_MARK, host, rack[0] ? rack : "-", zone[0] ? zone : "-");
    return fflush(stdout) ? err_set(e, ERR_SYS, "cannot write to standard output") : 0;
}

int plan_prepare(const char *config_path, const char *run_dir, struct err *e)
{
    struct config *c = NULL;
    char *text = NULL;
    char yaml[RUNDIR_PATH_BYTES + 32];
    int rc = config_load(&c, config_path, e);
    if (!rc)
        rc = rundir_create(run_dir, e);
    if (!rc)
        rc = config_dump(c, &text,
                         e); /* not a copy: relative paths are meant from the original's folder */
    if (!rc)
        rc = path_join(yaml, sizeof yaml, e, "%s/serve.yaml", run_dir);
    if (!rc)
        rc = file_publish(yaml, text, strlen(text), 0600, e);
    free(text);
    config_free(c);
    return rc;
}

static bool is_excluded(const char *host, const char *exclude)
{
    size_t n = strlen(host);
    for (const char *p = exclude; p && *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == n && memcmp(p, host, n) == 0)
            return true;
    return false;
}

static void set_name(char dst[LAYOUT_NAME_BYTES], const char *src)
{
    snprintf(dst, LAYOUT_NAME_BYTES, "%s", strcmp(src, "-") == 0 ? "" : src);
}

static int compare_nodes(const void *a, const void *b)
{
    return strverscmp(((const struct layout_node *)a)->host, ((const struct layout_node *)b)->host);
}

/* Lines with the marker if there are any, else all lines: srun may mix other text into its tasks' output. */
static int read_nodes(const char *path, const char *exclude, struct layout_node **out, uint32_t *n,
                      struct err *e)
{
    struct buf text;
    buf_init(&text, NODES_FILE_MAX_BYTES);
    int rc = file_read(path, &text, e);
    struct layout_node *nodes = rc ? NULL : calloc(LAYOUT_MAX_NODES, sizeof *nodes);
    if (!rc && !nodes)
        rc = err_set(e, ERR_NOMEM, "no memory for the nodes");
    bool marked = !rc && strstr(buf_cstr(&text), PROBE_MARK);
    char *save = NULL;
    *n = 0;
    for (char *line = rc ? NULL : strtok_r((char *)buf_cstr(&text), "\n", &save); line && !rc;
         line = strtok_r(NULL, "\n", &save)) {
        char mark[32] = "", host[LAYOUT_NAME_BYTES] = "", rack[LAYOUT_NAME_BYTES] = "-",
             zone[LAYOUT_NAME_BYTES] = "-";
        int k = marked ? sscanf(line, "%31s %63s %63s %63s", mark, host, rack, zone) - 1
                       : sscanf(line, "%63s %63s %63s", host, rack, zone);
        if (k < 1 || (marked && strcmp(mark, PROBE_MARK) != 0) || is_excluded(host, exclude))
            continue;
        if (*n == LAYOUT_MAX_NODES) {
            rc = err_set(e, ERR_LIMIT, "%s names more than %d nodes", path, LAYOUT_MAX_NODES);
            break;
        }
        set_name(nodes[*n].host, host);
        set_name(nodes[*n].rack, rack);
        set_name(nodes[*n].zone, zone);
        (*n)++;
    }
    buf_fini(&text);
    if (!rc && !*n)
        rc = err_set(e, ERR_CONFIG, "%s names no node", path);
    if (rc) {
        free(nodes);
        return rc;
    }
    qsort(nodes, *n, sizeof *nodes, compare_nodes);
    *out = nodes;
    return 0;
}

int plan_make(const char *config_path, const char *run_dir, uint32_t attempt,
              const char *nodes_file, const char *exclude, struct err *e)
{
    struct config *c = NULL;
    struct layout_node *nodes = NULL;
    struct layout l = {0};
    uint32_t n = 0;
    char dir[RUNDIR_PATH_BYTES], json[RUNDIR_PATH_BYTES + 32], hosts[RUNDIR_PATH_BYTES + 32];
    int rc = config_load(&c, config_path, e);
    if (!rc)
        rc = read_nodes(nodes_file, exclude, &nodes, &n, e);
    if (!rc) {
        struct layout_wish wish = {c->control == CONTROL_DEDICATED, c->routers, c->standbys};
        rc = layout_make(&l, nodes, n, &wish, e);
    }
    if (!rc)
        rc = path_join(dir, sizeof dir, e, "%s/attempt-%u", run_dir, attempt);
    if (!rc)
        rc = dir_make(dir, e);
    if (!rc)
        rc = path_join(json, sizeof json, e, "%s/layout.json", dir);
    if (!rc)
        rc = path_join(hosts, sizeof hosts, e, "%s/hosts", dir);
    if (!rc)
        rc = layout_write(&l, json, hosts, e);
    if (!rc)
        printf("%u\n%u\n", l.n_ranks, l.n_nodes);
    layout_fini(&l);
    free(nodes);
    config_free(c);
    return rc;
}
