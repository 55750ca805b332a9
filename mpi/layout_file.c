/* layout_file.c - layout.json and the Slurm host file; see layout.h.
 *
 * layout.json:
 * {"format":"exaserve-layout","version":1,"nodes":[{"host","rack","zone"}…],"ranks":[{"role","node"}…]},
 * the index in "ranks" is the rank. Racks are numbered again on reading, so the file cannot
 * contradict itself.
 */
#include "mpi/layout.h"
#include "mpi/layout_priv.h"

#include "base/buf.h"
#include "base/file.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum {
    FILE_MAX_BYTES =
        8 << 20, /* LAYOUT_MAX_NODES nodes of three full names, and their ranks, fit twice */
    FORMAT_VERSION = 1,
    CONTROL_RANKS_MAX =
        8192, /* more than any layout_make gives: bounds what a foreign file may ask for */
};
static const char FORMAT_NAME[] = "exaserve-layout";
static const char *const ROLE_NAMES[] = {NULL, "scheduler", "standby", "router", "worker"};

static void put_json(const struct layout *l, struct buf *b)
{
    buf_printf(b, "{\"format\": \"%s\", \"version\": %d,\n \"nodes\": [", FORMAT_NAME,
               FORMAT_VERSION);
    for (uint32_t i = 0; i < l->n_nodes; i++)
        /* names hold no quote, backslash or control character: layout_check_nodes */
        buf_printf(b, "%s\n  {\"host\": \"%s\", \"rack\": \"%s\", \"zone\": \"%s\"}", i ? "," : "",
                   l->nodes[i].host, l->nodes[i].rack, l->nodes[i].zone);
    buf_puts(b, "\n ],\n \"ranks\": [");
    for (uint32_t r = 0; r < l->n_ranks; r++)
        buf_printf(b, "%s\n  {\"role\": \"%s\", \"node\": %u}", r ? "," : "",
                   ROLE_NAMES[l->ranks[r].role], l->ranks[r].node);
    buf_puts(b, "\n ]}\n");
}

static int publish(const char *path, struct buf *b, struct err *e)
{
    if (!buf_ok(b))
        return err_set(e, ERR_NOMEM, "no memory to write %s", path);
    return file_publish(path, b->data, b->len, 0600, e);
}

int layout_write(const struct layout *l, const char *json_path, const char *hostfile_path,
                 struct err *e)
{
    struct buf b;
    buf_init(&b, FILE_MAX_BYTES);
    put_json(l, &b);
    int rc = publish(json_path, &b, e);
    if (rc == 0 && hostfile_path) {
        buf_reset(&b);
        for (uint32_t r = 0; r < l->n_ranks; r++)
            buf_printf(&b, "%s\n", l->nodes[l->ranks[r].node].host);
        rc = publish(hostfile_path, &b, e);
    }
    buf_fini(&b);
    return rc;
}

static int read_name(json_t *node, const char *key, char *out, uint32_t i, struct err *e)
{
    json_t *v = json_object_get(node, key);
    if (!json_is_string(v) || json_string_length(v) >= LAYOUT_NAME_BYTES ||
        strlen(json_string_value(v)) != json_string_length(v))
        return err_set(e, ERR_FORMAT, "node %u: \"%s\" is no string under %d bytes", i, key,
                       LAYOUT_NAME_BYTES);
    memcpy(out, json_string_value(v), json_string_length(v) + 1);
    return 0;
}

static int read_nodes(struct layout *l, json_t *nodes, struct err *e)
{
    size_t n = json_array_size(nodes);
    if (!json_is_array(nodes) || n == 0 || n > LAYOUT_MAX_NODES)
        return err_set(e, ERR_FORMAT, "\"nodes\" is no list of 1 to %d nodes", LAYOUT_MAX_NODES);
    l->nodes = calloc(n, sizeof *l->nodes);
    if (!l->nodes)
        return err_set(e, ERR_NOMEM, "no memory for %zu nodes", n);
    l->n_nodes = (uint32_t)n;
    for (uint32_t i = 0; i < l->n_nodes; i++) {
        json_t *node = json_array_get(nodes, i);
        int rc = read_name(node, "host", l->nodes[i].host, i, e);
        if (rc == 0)
            rc = read_name(node, "rack", l->nodes[i].rack, i, e);
        if (rc == 0)
            rc = read_name(node, "zone", l->nodes[i].zone, i, e);
        if (rc)
            return rc;
    }
    if (layout_check_nodes(l->nodes, l->n_nodes, e))
        return e ? (e->code = ERR_FORMAT) : ERR_FORMAT;
    return layout_find_racks(l, e);
}

static int role_number(json_t *v)
{
    for (int i = LAYOUT_SCHEDULER; i <= LAYOUT_WORKER; i++)
        if (json_is_string(v) && strcmp(json_string_value(v), ROLE_NAMES[i]) == 0)
            return i;
    return 0;
}

static int read_ranks(struct layout *l, json_t *ranks, struct err *e)
{
    size_t n = json_array_size(ranks);
    if (!json_is_array(ranks) || n == 0 || n > LAYOUT_MAX_NODES + CONTROL_RANKS_MAX)
        return err_set(e, ERR_FORMAT, "\"ranks\" is no list of 1 to %d ranks",
                       LAYOUT_MAX_NODES + CONTROL_RANKS_MAX);
    l->ranks = calloc(n, sizeof *l->ranks);
    uint8_t *has_worker = calloc(l->n_nodes, 1);
    int rc = l->ranks && has_worker ? 0 : err_set(e, ERR_NOMEM, "no memory for %zu ranks", n);
    l->n_ranks = rc == 0 ? (uint32_t)n : 0;
    for (uint32_t r = 0; r < l->n_ranks && rc == 0; r++) {
        json_t *item = json_array_get(ranks, r), *node = json_object_get(item, "node");
        int role = role_number(json_object_get(item, "role"));
        json_int_t at = json_is_integer(node) ? json_integer_value(node) : -1;
        if (role == 0 || at < 0 || at >= (json_int_t)l->n_nodes)
            rc = err_set(e, ERR_FORMAT, "rank %u: role or node is wrong", r);
        else if ((role == LAYOUT_SCHEDULER) != (r == 0))
            rc = err_set(e, ERR_FORMAT, "rank %u: the scheduler is rank 0, and no other", r);
        else if (role == LAYOUT_WORKER && has_worker[at]++)
            rc = err_set(e, ERR_FORMAT, "rank %u: node %s has a worker already", r,
                         l->nodes[at].host);
        else
            l->ranks[r] = (struct layout_rank){(uint32_t)at, (uint8_t)role};
    }
    free(has_worker);
    return rc;
}

static int read_json(struct layout *l, json_t *root, struct err *e)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    json_t *version = json_object_get(root, "version");
    if (!format || strcmp(format, FORMAT_NAME) != 0)
        return err_set(e, ERR_FORMAT, "no %s file", FORMAT_NAME);
    if (json_integer_value(version) != FORMAT_VERSION)
        return err_set(e, ERR_FORMAT, "version %lld, this build reads %d",
                       (long long)json_integer_value(version), FORMAT_VERSION);
    int rc = read_nodes(l, json_object_get(root, "nodes"), e);
    return rc ? rc : read_ranks(l, json_object_get(root, "ranks"), e);
}

int layout_read(struct layout *l, const char *json_path, struct err *e)
{
    struct buf b;
    buf_init(&b, FILE_MAX_BYTES);
    int rc = file_read(json_path, &b, e);
    if (rc) {
        buf_fini(&b);
        return rc;
    }
    json_error_t at;
    json_t *root = json_loadb((const char *)b.data, b.len, JSON_REJECT_DUPLICATES, &at);
    buf_fini(&b);
    if (!root)
        return err_set(e, ERR_FORMAT, "%s: line %d: %s", json_path, at.line, at.text);
    struct layout made = {0};
    rc = read_json(&made, root, e);
    json_decref(root);
    if (rc) {
        layout_fini(&made);
        err_prefix(e, "%s: ", json_path);
        return rc;
    }
    *l = made;
    return 0;
}
