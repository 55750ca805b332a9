/* hf_at.c - see hf_at.h. */
#include "model/hf_at.h"

#include "base/file.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

int hf_at_parse(const char *label, const char *text, size_t n, json_t **out, struct err *e)
{
    json_error_t error;
    *out = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!*out)
        return err_set(e, ERR_FORMAT, "%s: line %d: %s", label, error.line, error.text);
    return 0;
}

int hf_at_load(const char *folder, const char *name, size_t max, json_t **out, struct err *e)
{
    char path[4096];
    *out = NULL;
    int rc = path_join(path, sizeof path, e, "%s/%s", folder, name);
    if (rc || access(path, F_OK) != 0)
        return rc;
    struct buf text;
    buf_init(&text, max);
    rc = file_read(path, &text, e);
    if (!rc)
        rc = hf_at_parse(path, text.len ? (const char *)text.data : "", text.len, out, e);
    buf_fini(&text);
    return rc;
}

struct hf_at hf_at_get(const struct hf_at *at, const char *key)
{
    struct hf_at to = {.v = json_object_get(at->v, key)};
    if (json_is_null(to.v))
        to.v = NULL;
    size_t n = strlen(at->where);
    bool top = n >= 2 && at->where[n - 1] == ' '; /* "tokenizer.json: " */
    snprintf(to.where, sizeof to.where, "%.100s%s%.56s", at->where, top ? "" : ".", key);
    return to;
}

struct hf_at hf_at_item(const struct hf_at *at, size_t i)
{
    struct hf_at to = {.v = json_array_get(at->v, i)};
    snprintf(to.where, sizeof to.where, "%.130s[%zu]", at->where, i);
    return to;
}

static const char *type_name(const json_t *v)
{
    if (!v)
        return "nothing";
    static const char *const NAMES[] = {"an object", "an array", "a string", "an integer",
                                        "a number",  "true",     "false",    "null"};
    return NAMES[json_typeof(v)];
}

int hf_at_expected(const struct hf_at *at, const char *expected, struct err *e)
{
    return err_set(e, ERR_FORMAT, "%s: expected %s, found %s", at->where, expected,
                   type_name(at->v));
}

int hf_at_refuse(const struct hf_at *at, const char *what, const char *name, struct err *e)
{
    return err_set(e, ERR_FORMAT, "%s: %s \"%.64s\" is not supported", at->where, what, name);
}

int hf_at_only(const struct hf_at *at, const char *const *keys, struct err *e)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)at->v, key, value)
    {
        size_t i = 0;
        while (keys[i] && strcmp(keys[i], key) != 0)
            i++;
        if (!keys[i])
            return hf_at_refuse(at, "the key", key, e);
    }
    return 0;
}

int hf_at_bool(const struct hf_at *at, const char *key, bool *out, struct err *e)
{
    struct hf_at v = hf_at_get(at, key);
    if (v.v && !json_is_boolean(v.v))
        return hf_at_expected(&v, "true or false", e);
    if (v.v)
        *out = json_is_true(v.v);
    return 0;
}

int hf_at_u32(const struct hf_at *at, const char *key, uint32_t *out, struct err *e)
{
    struct hf_at v = hf_at_get(at, key);
    if (!v.v)
        return 0;
    json_int_t n = json_integer_value(v.v);
    if (!json_is_integer(v.v) || n < 0 || n > UINT32_MAX)
        return hf_at_expected(&v, "a whole number of at most 32 bits", e);
    *out = (uint32_t)n;
    return 0;
}

int hf_at_text(const struct hf_at *at, const char *key, const char **out, struct err *e)
{
    struct hf_at v = hf_at_get(at, key);
    if (!v.v)
        return 0;
    if (!json_is_string(v.v))
        return hf_at_expected(&v, "a string", e);
    if (strlen(json_string_value(v.v)) != json_string_length(v.v))
        return err_set(e, ERR_FORMAT, "%s: holds U+0000", v.where);
    *out = json_string_value(v.v);
    return 0;
}
