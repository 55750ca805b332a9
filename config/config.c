/* config.c - see config.h.
 *
 * Text → scan (lines, hostile YAML) → checks against the option table → libcyaml into struct config → defaults → checks of the whole.
 * The checks come before libcyaml because its messages carry the line of the last good key, and because it takes any word for true.
 */
#include "config/config.h"

#include "base/buf.h"
#include "base/file.h"
#include "config/check.h"
#include "config/options.h"
#include "config/scan.h"
#include "config/schema.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first line libcyaml logs is its reason; the rest is its way there. */
static void log_keep(cyaml_log_t level, void *ctx, const char *fmt, va_list args)
{
    char *text = ctx;
    if (!text[0]) {
        vsnprintf(text, 200, fmt, args);
        text[strcspn(text, "\n")] = 0;
    }
}

static void cyaml_make(cyaml_config_t *cfg, char text[200], unsigned flags)
{
    text[0] = 0;
    *cfg = (cyaml_config_t){.log_fn = log_keep,
                            .log_ctx = text,
                            .mem_fn = cyaml_mem,
                            .log_level = CYAML_LOG_ERROR,
                            .flags = (cyaml_cfg_flags_t)flags};
}

static int load(struct config **out, const char *text, size_t n, const char *file, struct err *e)
{
    struct schema schema;
    schema_make(&schema);
    char why[200];
    cyaml_config_t cfg;
    cyaml_make(&cfg, why, CYAML_CFG_NO_ALIAS);
    cyaml_data_t *data = NULL;
    cyaml_err_t r = cyaml_load_data((const uint8_t *)text, n, &cfg, &schema.top, &data, NULL);
    if (r == CYAML_ERR_OOM)
        return err_set(e, ERR_NOMEM, "%s: out of memory", file);
    if (r != CYAML_OK || !data)
        return err_set(e, ERR_CONFIG, "%s:1: %s", file, why[0] ? why : cyaml_strerror(r));
    *out = data;
    return 0;
}

/* Where an option's value is; base is the config or one of its models. */
static void preset_one(const struct option *o, char *base, struct err *e)
{
    void *at = base + o->offset;
    switch (o->type) {
    case OPTION_STRING:
        if (!o->preset_text)
            break;
        *(char **)at = strdup(o->preset_text);
        if (!*(char **)at)
            err_set(e, ERR_NOMEM, "out of memory");
        break;
    case OPTION_UINT:
    case OPTION_COUNT:
        if (o->size == sizeof(uint64_t))
            *(uint64_t *)at = o->preset;
        else
            *(uint32_t *)at = (uint32_t)o->preset;
        break;
    case OPTION_BOOL:
        *(bool *)at = o->preset != 0;
        break;
    case OPTION_CHOICE:
        *(int *)at = (int)o->preset;
        break;
    default:
        break;
    }
}

/* Defaults for every key that the text does not have. */
static int preset(struct config *c, const struct scan *s, const char *file, struct err *e)
{
    struct err fault = ERR_INIT;
    for (const struct option *o = option_table(); o->path; o++) {
        if (!option_in_group(o, "models[]")) {
            if (!scan_find(s, o->path))
                preset_one(o, (char *)c, &fault);
            continue;
        }
        for (unsigned i = 0; i < c->models_count; i++) {
            char path[SCAN_PATH_BYTES];
            snprintf(path, sizeof path, "models[%u].%s", i, option_key(o));
            if (!scan_find(s, path))
                preset_one(o, (char *)&c->models[i], &fault);
        }
    }
    return fault.code ? err_set(e, fault.code, "%s: %s", file, fault.text) : 0;
}

/* nodes UINT32_MAX: not asked. */
static int parse(struct config **out, const char *text, size_t n, const char *file, uint32_t nodes,
                 struct err *e)
{
    struct scan s;
    int rc = scan_yaml(&s, text, n, file, e);
    if (rc)
        return rc;
    struct config *c = NULL;
    rc = check_entries(&s, file, e);
    if (!rc)
        rc = load(&c, text, n, file, e);
    if (!rc)
        rc = preset(c, &s, file, e);
    if (!rc)
        rc = check_whole(c, &s, file, e);
    if (!rc && nodes != UINT32_MAX)
        rc = check_nodes(c, nodes ? nodes : c->nodes, &s, file, e);
    scan_fini(&s);
    if (rc) {
        config_free(c);
        return rc;
    }
    *out = c;
    return 0;
}

int config_parse(struct config **out, const char *text, size_t n, const char *file, struct err *e)
{
    return parse(out, text, n, file, UINT32_MAX, e);
}

/* Relative pack paths begin at the folder of the file, so that they mean the same from every folder and node. */
static int packs_anchor(struct config *c, const char *path, struct err *e)
{
    char dir[PATH_MAX];
    if (!realpath(path, dir))
        return err_sys(e, errno, "cannot find the folder of %s", path);
    *(strrchr(dir, '/') + 1) = 0;
    for (unsigned i = 0; i < c->models_count; i++) {
        char full[PATH_MAX];
        if (c->models[i].pack[0] == '/')
            continue;
        int rc = path_join(full, sizeof full, e, "%s%s", dir, c->models[i].pack);
        char *own = rc ? NULL : strdup(full);
        if (!own)
            return rc ? rc : err_set(e, ERR_NOMEM, "%s: out of memory", path);
        free(c->models[i].pack);
        c->models[i].pack = own;
    }
    return 0;
}

static int load_path(struct config **out, const char *path, uint32_t nodes, struct err *e)
{
    struct buf text;
    buf_init(&text, SCAN_MAX_BYTES + 1);
    struct err why = ERR_INIT;
    int rc = file_read(path, &text, &why);
    if (rc == ERR_LIMIT)
        rc = err_set(e, ERR_CONFIG, "%s:1: larger than %d bytes", path, SCAN_MAX_BYTES);
    else if (rc) /* a file that cannot be read is the user's to mend */
        rc = err_set(e, rc == ERR_SYS ? ERR_CONFIG : rc, "%s", why.text);
    struct config *c = NULL;
    if (!rc)
        rc = parse(&c, text.len ? (const char *)text.data : "", text.len, path, nodes, e);
    buf_fini(&text);
    if (!rc)
        rc = packs_anchor(c, path, e);
    if (rc) {
        config_free(c);
        return rc;
    }
    *out = c;
    return 0;
}

int config_load(struct config **out, const char *path, struct err *e)
{
    return load_path(out, path, UINT32_MAX, e);
}

int config_load_for(struct config **out, const char *path, uint32_t nodes, struct err *e)
{
    return load_path(out, path, nodes, e);
}

void config_free(struct config *c)
{
    if (!c)
        return;
    struct schema schema;
    schema_make(&schema);
    char why[200];
    cyaml_config_t cfg;
    cyaml_make(&cfg, why, 0);
    cyaml_free(&cfg, &schema.top, c, 0);
}

int config_dump(const struct config *c, char **text, struct err *e)
{
    struct schema schema;
    schema_make(&schema);
    char why[200];
    cyaml_config_t cfg;
    cyaml_make(&cfg, why, CYAML_CFG_STYLE_BLOCK);
    char *raw = NULL;
    size_t n = 0;
    cyaml_err_t r = cyaml_save_data(&raw, &n, &cfg, &schema.top, c, 0);
    if (r != CYAML_OK)
        return err_set(e, r == CYAML_ERR_OOM ? ERR_NOMEM : ERR_CONFIG,
                       "cannot write the configuration: %s", why[0] ? why : cyaml_strerror(r));
    char *own = realloc(raw, n + 1);
    if (!own) {
        free(raw);
        return err_set(e, ERR_NOMEM, "cannot write the configuration: out of memory");
    }
    own[n] = 0;
    *text = own;
    return 0;
}
