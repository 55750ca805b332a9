/* check.c - see check.h. The first fault, in the order of the text, is the one reported. */
#include "config/check.h"

#include "config/nearest.h"
#include "config/options.h"
#include "config/walltime.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { QUOTE_BYTES = 64 };

/* A value for a message: one line, cut. */
static const char *quoted(const char *v, char out[QUOTE_BYTES + 8])
{
    size_t n = strlen(v);
    size_t keep = n > QUOTE_BYTES ? QUOTE_BYTES : n;
    out[0] = '"';
    for (size_t i = 0; i < keep; i++)
        out[1 + i] = (unsigned char)v[i] < ' ' || v[i] == 0x7f ? '?' : v[i];
    snprintf(out + 1 + keep, 7, n > keep ? "…\"" : "\"");
    return out;
}

static int unknown_key(const struct scan_entry *x, const char *file, struct err *e)
{
    char group[SCAN_PATH_BYTES], place[SCAN_PATH_BYTES];
    snprintf(group, sizeof group, "%s", x->pattern);
    snprintf(place, sizeof place, "%s", x->path);
    char *dot = strrchr(group, '.'), *at = strrchr(place, '.');
    const char *key = at ? at + 1 : x->path;
    if (dot)
        *dot = 0;
    if (at)
        *at = 0;
    const char *in = dot ? place : "";
    const char *near_group = dot ? group : "";
    struct nearest best = {NULL, 0};
    for (const struct option *o = option_table(); o->path; o++)
        if (option_in_group(o, near_group))
            nearest_try(&best, key, option_key(o));
    for (const struct option *o = option_table(); o->path; o++) /* right word, wrong place */
        if (strcmp(option_key(o), key) == 0)
            best.word = o->path;
    return err_set(e, ERR_CONFIG, "%s:%u: unknown key \"%s\"%s%s%s%s%s", file, x->line, key,
                   *in ? " in " : "", in, best.word ? "; did you mean \"" : "",
                   best.word ? best.word : "", best.word ? "\"?" : "");
}

static int wrong_kind(const struct scan_entry *x, const struct option *o, const char *file,
                      struct err *e)
{
    static const char *const KINDS[] = {
        [SCAN_SCALAR] = "a single value", [SCAN_SEQUENCE] = "a list", [SCAN_MAPPING] = "a mapping"};
    const char *want = o->type == OPTION_GROUP    ? "a mapping of further keys"
                       : o->type == OPTION_MODELS ? "a list of models"
                       : o->type == OPTION_LIST   ? "a list"
                                                  : "a single value";
    if (x->kind == SCAN_SCALAR && x->plain && !x->value[0])
        return err_set(e, ERR_CONFIG, "%s:%u: %s has no value; it must be %s", file, x->line,
                       x->path, want);
    return err_set(e, ERR_CONFIG, "%s:%u: %s must be %s, and is %s", file, x->line, x->path, want,
                   KINDS[x->kind]);
}

static bool kind_fits(const struct scan_entry *x, const struct option *o)
{
    switch (o->type) {
    case OPTION_LIST:
    case OPTION_MODELS:
        return x->kind == SCAN_SEQUENCE;
    case OPTION_GROUP:
        return x->kind == SCAN_MAPPING;
    default:
        return x->kind == SCAN_SCALAR;
    }
}

/* Digits without sign, prefix or leading zero: 010 is eight for some readers and ten for others. */
static bool number_read(const char *v, uint64_t *out)
{
    uint64_t n = 0;
    if (!*v || (v[0] == '0' && v[1]))
        return false;
    for (; *v; v++) {
        if (*v < '0' || *v > '9' || n > (UINT64_MAX - 9) / 10)
            return false;
        n = n * 10 + (uint64_t)(*v - '0');
    }
    *out = n;
    return true;
}

static int check_number(const struct scan_entry *x, const struct option *o, const char *file,
                        struct err *e)
{
    uint64_t n;
    char q[QUOTE_BYTES + 8];
    if (o->type == OPTION_COUNT && strcmp(x->value, o->words[0]) == 0)
        return 0;
    if (x->plain && number_read(x->value, &n) && n >= o->min && n <= o->max)
        return 0;
    char word[40] = "";
    if (o->type == OPTION_COUNT)
        snprintf(word, sizeof word, "\"%s\" or ", o->words[0]);
    return err_set(e, ERR_CONFIG,
                   "%s:%u: %s must be %sa whole number from %" PRIu64 " to %" PRIu64
                   "%s%s, and is %s",
                   file, x->line, x->path, word, o->min, o->max, o->unit ? " " : "",
                   o->unit ? o->unit : "", quoted(x->value, q));
}

static int check_bool(const struct scan_entry *x, const char *file, struct err *e)
{
    static const char *const WORDS[] = {"true", "false", "yes", "no", "on", "off"};
    char q[QUOTE_BYTES + 8];
    for (size_t i = 0; i < sizeof WORDS / sizeof WORDS[0]; i++)
        if (strcasecmp(x->value, WORDS[i]) == 0)
            return 0;
    return err_set(e, ERR_CONFIG, "%s:%u: %s must be true or false, and is %s", file, x->line,
                   x->path, quoted(x->value, q));
}

static int check_words(const struct scan_entry *x, const struct option *o, const char *file,
                       struct err *e)
{
    char q[QUOTE_BYTES + 8], list[128] = "";
    struct nearest best = {NULL, 0};
    for (size_t i = 0; o->words[i]; i++) {
        if (strcmp(x->value, o->words[i]) == 0)
            return 0;
        nearest_try(&best, x->value, o->words[i]);
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s\"%s\"", i ? " or " : "", o->words[i]);
    }
    return err_set(e, ERR_CONFIG, "%s:%u: %s must be %s, and is %s%s%s%s", file, x->line, x->path,
                   list, quoted(x->value, q), best.word ? "; did you mean \"" : "",
                   best.word ? best.word : "", best.word ? "\"?" : "");
}

static int check_string(const struct scan_entry *x, const struct option *o, const char *file,
                        struct err *e)
{
    char q[QUOTE_BYTES + 8];
    size_t n = strlen(x->value);
    if (o->type == OPTION_STRING && (n < o->min || n > o->max))
        return err_set(e, ERR_CONFIG,
                       "%s:%u: %s must have %" PRIu64 " to %" PRIu64 " bytes, and has %zu", file,
                       x->line, x->path, o->min, o->max, n);
    const char *want = o->check ? o->check(x->value) : NULL;
    return want ? err_set(e, ERR_CONFIG, "%s:%u: %s must be %s, and is %s", file, x->line, x->path,
                          want, quoted(x->value, q))
                : 0;
}

static int check_scalar(const struct scan_entry *x, const struct option *o, const char *file,
                        struct err *e)
{
    if (x->plain && (!x->value[0] || !strcmp(x->value, "~") || !strcasecmp(x->value, "null")))
        return err_set(e, ERR_CONFIG, "%s:%u: %s has no value; leave the key out for its default",
                       file, x->line, x->path);
    switch (o->type) {
    case OPTION_UINT:
    case OPTION_COUNT:
        return check_number(x, o, file, e);
    case OPTION_BOOL:
        return check_bool(x, file, e);
    default:
        return o->words ? check_words(x, o, file, e) : check_string(x, o, file, e);
    }
}

/* An entry of a list: the list's own option rules it. */
static int check_item(const struct scan_entry *x, const char *file, struct err *e)
{
    char list[SCAN_PATH_BYTES];
    snprintf(list, sizeof list, "%.*s", (int)(strlen(x->pattern) - 2), x->pattern);
    const struct option *o = option_find(list);
    if (!o || (o->type != OPTION_LIST && o->type != OPTION_MODELS))
        return err_set(e, ERR_CONFIG, "%s:%u: %s: a list is not expected here", file, x->line,
                       x->path);
    if (o->type == OPTION_MODELS)
        return x->kind == SCAN_MAPPING
                   ? 0
                   : err_set(e, ERR_CONFIG, "%s:%u: %s must be a mapping such as `- pack: FILE.h5`",
                             file, x->line, x->path);
    if (x->kind != SCAN_SCALAR)
        return err_set(e, ERR_CONFIG, "%s:%u: %s must be a single value", file, x->line, x->path);
    return check_scalar(x, o, file, e);
}

static int check_entry(const struct scan_entry *x, const char *file, struct err *e)
{
    size_t n = strlen(x->pattern);
    if (n > 2 && strcmp(x->pattern + n - 2, "[]") == 0)
        return check_item(x, file, e);
    const struct option *o = option_find(x->pattern);
    if (!o)
        return unknown_key(x, file, e);
    if (!kind_fits(x, o))
        return wrong_kind(x, o, file, e);
    if (x->kind == SCAN_SCALAR)
        return check_scalar(x, o, file, e);
    if (x->kind == SCAN_SEQUENCE && (x->n_children < o->min || x->n_children > o->max)) {
        if (o->min == o->max)
            return err_set(e, ERR_CONFIG,
                           "%s:%u: %s must have exactly %" PRIu64 " entr%s, and has %u", file,
                           x->line, x->path, o->min, o->min == 1 ? "y" : "ies", x->n_children);
        return err_set(e, ERR_CONFIG,
                       "%s:%u: %s must have %" PRIu64 " to %" PRIu64 " entries, and has %u", file,
                       x->line, x->path, o->min, o->max, x->n_children);
    }
    return 0;
}

/* Required keys of the mapping x. */
static int check_required(const struct scan *s, const struct scan_entry *x, const char *file,
                          struct err *e)
{
    for (const struct option *o = option_table(); o->path; o++) {
        if (!o->required || !option_in_group(o, x->pattern))
            continue;
        char path[2 * SCAN_PATH_BYTES];
        snprintf(path, sizeof path, "%s%s%s", x->path, x->path[0] ? "." : "", option_key(o));
        if (!scan_find(s, path))
            return err_set(e, ERR_CONFIG, "%s:%u: %s is missing", file, x->line, path);
    }
    return 0;
}

int check_entries(const struct scan *s, const char *file, struct err *e)
{
    int rc = 0;
    for (size_t i = 1; i < s->n && !rc; i++)
        rc = check_entry(&s->entries[i], file, e);
    for (size_t i = 0; i < s->n && !rc; i++)
        if (s->entries[i].kind == SCAN_MAPPING)
            rc = check_required(s, &s->entries[i], file, e);
    return rc;
}

static unsigned line_of(const struct scan *s, const char *path)
{
    const struct scan_entry *x = scan_find(s, path);
    return x ? x->line : 1;
}

int check_whole(const struct config *c, const struct scan *s, const char *file, struct err *e)
{
    for (unsigned i = 0; i < c->models_count; i++) {
        const struct config_model *m = &c->models[i];
        char path[SCAN_PATH_BYTES];
        snprintf(path, sizeof path, "models[%u].min_replicas", i);
        if (m->replicas && m->min_replicas > m->replicas)
            return err_set(e, ERR_CONFIG,
                           "%s:%u: %s must not be more than replicas (%u), and is %u", file,
                           line_of(s, path), path, m->replicas, m->min_replicas);
        snprintf(path, sizeof path, "models[%u].pipeline_parallel", i);
        if (m->tensor_parallel * m->pipeline_parallel > 16)
            return err_set(e, ERR_CONFIG,
                           "%s:%u: %s times tensor_parallel (%u) must be at most 16, and is %u",
                           file, line_of(s, path), path, m->tensor_parallel,
                           m->tensor_parallel * m->pipeline_parallel);
        snprintf(path, sizeof path, "models[%u].speculation", i);
        if (!strcmp(m->speculation, "draft") && !m->draft)
            return err_set(e, ERR_CONFIG, "%s:%u: %s is draft, and no draft model is named (draft)",
                           file, line_of(s, path), path);
        snprintf(path, sizeof path, "models[%u].context", i);
        if (m->context && m->context < 16)
            return err_set(e, ERR_CONFIG, "%s:%u: %s must be 0 or at least 16 tokens, and is %u",
                           file, line_of(s, path), path, m->context);
    }
    uint64_t limit = 0;
    if (c->time && walltime_parse(c->time, &limit) && limit) {
        if (c->grace_s >= limit)
            return err_set(e, ERR_CONFIG,
                           "%s:%u: grace (%u s) must be shorter than slurm.time (%" PRIu64 " s)",
                           file, line_of(s, scan_find(s, "grace") ? "grace" : "slurm.time"),
                           c->grace_s, limit);
    }
    if (c->header_timeout_s > c->request_timeout_s)
        return err_set(e, ERR_CONFIG,
                       "%s:%u: limits.header_timeout (%u s) must not be longer than "
                       "limits.request_timeout (%u s)",
                       file,
                       line_of(s, scan_find(s, "limits.header_timeout") ? "limits.header_timeout"
                                                                        : "limits.request_timeout"),
                       c->header_timeout_s, c->request_timeout_s);
    return 0;
}

/* What mpi/layout.c will ask for: one node for the scheduler, as many as there are routers or standbys, one to serve. */
static uint32_t dedicated_nodes(const struct config *c, uint32_t nodes)
{
    enum { BIG = 64 };
    uint32_t routers = c->routers ? c->routers : 2 + nodes / BIG;
    uint32_t standbys = !c->standbys || nodes < 3 ? 0 : nodes < BIG ? 2 : 4;
    return 1 + (routers > standbys ? routers : standbys) + 1;
}

int check_nodes(const struct config *c, uint32_t nodes, const struct scan *s, const char *file,
                struct err *e)
{
    if (c->routers > nodes)
        return err_set(e, ERR_CONFIG,
                       "%s:%u: routers must not be more than the nodes (%u), and is %u", file,
                       line_of(s, "routers"), nodes, c->routers);
    uint32_t need = dedicated_nodes(c, nodes);
    if (c->control == CONTROL_DEDICATED && nodes < need)
        return err_set(e, ERR_CONFIG,
                       "%s:%u: control: dedicated needs at least %u nodes for its scheduler, "
                       "routers and standbys and one to serve, and has %u",
                       file, line_of(s, "control"), need, nodes);
    for (unsigned i = 0; i < c->models_count; i++) {
        char path[SCAN_PATH_BYTES];
        const struct config_model *m = &c->models[i];
        uint32_t shards = m->tensor_parallel * m->pipeline_parallel;
        uint32_t spread = m->shards_per_node && m->shards_per_node < shards
                              ? (shards + m->shards_per_node - 1) / m->shards_per_node
                              : 1;
        snprintf(path, sizeof path, "models[%u].shards_per_node", i);
        if (spread > nodes)
            return err_set(
                e, ERR_CONFIG,
                "%s:%u: %s: %u shards with at most %u a node need %u nodes, there are %u", file,
                line_of(s, path), path, shards, m->shards_per_node, spread, nodes);
        snprintf(path, sizeof path, "models[%u].min_replicas", i);
        if (!c->models[i].replicas && c->models[i].min_replicas > nodes)
            return err_set(e, ERR_CONFIG,
                           "%s:%u: %s must not be more than the nodes (%u) with replicas: fill, "
                           "and is %u",
                           file, line_of(s, path), path, nodes, c->models[i].min_replicas);
    }
    return 0;
}
