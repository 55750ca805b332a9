/* hf_pooling.c - what sentence-transformers keeps beside a model: how hidden states become one vector (hf_config.h). */
#include "model/hf_config.h"

#include "base/file.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* FOLDER/<path>/config.json of the Pooling module: one mode, last token or mean. */
static int read_modes(const char *path, struct model_params *p, struct err *e)
{
    static const struct {
        const char *key, *name;
        enum pooling pooling;
    } MODES[] = {
        {"pooling_mode_lasttoken", "lasttoken", POOLING_LAST},
        {"pooling_mode_mean_tokens", "mean", POOLING_MEAN},
        {"pooling_mode_cls_token", "cls", POOLING_NONE},
        {"pooling_mode_max_tokens", "max", POOLING_NONE},
        {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len", POOLING_NONE},
        {"pooling_mode_weightedmean_tokens", "weightedmean", POOLING_NONE},
    };
    json_t *config;
    int rc = hf_json_read(path, true, &config, e);
    if (rc)
        return rc;
    struct hf_keys k = {path, "", config};
    char mode[32] = ""; /* newer files: one name */
    rc = hf_take_text(&k, "pooling_mode", mode, sizeof mode, e);
    int n = 0;
    for (size_t i = 0; i < sizeof MODES / sizeof MODES[0] && !rc; i++) {
        bool on = false;
        rc = hf_take_bool(&k, MODES[i].key, &on, e);
        on = on || strcmp(mode, MODES[i].name) == 0;
        if (!rc && on && MODES[i].pooling == POOLING_NONE)
            rc = hf_refuse(&k, MODES[i].key, "false", "true", e);
        if (on) {
            p->pooling = (uint8_t)MODES[i].pooling;
            n++;
        }
    }
    if (!rc && n != 1)
        rc =
            err_set(e, ERR_FORMAT,
                    "%s: expected one of pooling_mode_lasttoken and pooling_mode_mean_tokens to be "
                    "true, found %d",
                    path, n);
    static const char *const HARMLESS[] = {"word_embedding_dimension", "embedding_dimension",
                                           "include_prompt", NULL};
    if (!rc)
        rc = hf_keys_end(&k, HARMLESS, e);
    json_decref(config);
    return rc;
}

/* A module's class by its last name, and its folder. */
static int read_module(const char *folder, const char *label, const json_t *module,
                       struct model_params *p, struct err *e)
{
    const char *type = json_string_value(json_object_get(module, "type"));
    const char *path = json_string_value(json_object_get(module, "path"));
    const char *dot = type ? strrchr(type, '.') : NULL, *name = dot ? dot + 1 : type;
    if (!type || !path || strstr(path, "..") || path[0] == '/')
        return err_set(e, ERR_FORMAT,
                       "%s: expected modules with a type and a path inside the folder", label);
    /* Vectors are brought to length 1 by the service in any case. */
    if (strcmp(name, "Transformer") == 0 || strcmp(name, "Normalize") == 0)
        return 0;
    char shown[HF_SHOWN_BYTES];
    if (strcmp(name, "Pooling") != 0)
        return err_set(e, ERR_FORMAT,
                       "%s: only modules Transformer, Pooling and Normalize are supported, found "
                       "%s",
                       label, hf_shown(name, shown));
    char config[PATH_MAX];
    int rc = path_join(config, sizeof config, e, "%s/%s/config.json", folder, path);
    return rc ? rc : read_modes(config, p, e);
}

int hf_pooling_read(const char *folder, struct model_params *p, struct err *e)
{
    char path[PATH_MAX];
    int rc = path_join(path, sizeof path, e, "%s/modules.json", folder);
    struct buf text;
    buf_init(&text, HF_JSON_BYTES);
    if (rc || access(path, F_OK) != 0)
        goto out;
    rc = file_read(path, &text, e);
    if (rc)
        goto out;
    json_error_t why;
    json_t *modules = json_loadb((const char *)text.data, text.len, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_array(modules))
        rc = err_set(e, ERR_FORMAT, "%s: expected a JSON list of modules%s%s", path,
                     modules ? "" : ": ", modules ? "" : hf_json_why(&why));
    size_t i;
    json_t *module;
    json_array_foreach(modules, i, module)
    {
        if (!rc)
            rc = read_module(folder, path, module, p, e);
    }
    json_decref(modules);
out:
    buf_fini(&text);
    return rc;
}
