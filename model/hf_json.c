/* hf_json.c - see hf_json.h. */
#include "model/hf_json.h"

#include "base/file.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *hf_json_why(json_error_t *why)
{
    for (char *c = why->text; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
    return why->text;
}

const char *hf_shown(const char *text, char out[HF_SHOWN_BYTES])
{
    size_t n = 0;
    for (; text[n] && n < HF_SHOWN_BYTES - 1; n++)
        out[n] = text[n] >= ' ' && text[n] <= '~' ? text[n] : '?';
    out[n] = 0;
    return out;
}

int hf_json_parse(const void *text, size_t n, const char *label, json_t **out, struct err *e)
{
    json_error_t why;
    json_t *j = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    if (!j)
        return err_set(e, ERR_FORMAT, "%s: line %d: %s", label, why.line, hf_json_why(&why));
    if (!json_is_object(j)) {
        json_decref(j);
        return err_set(e, ERR_FORMAT, "%s: expected a JSON object", label);
    }
    *out = j;
    return 0;
}

int hf_json_read(const char *path, bool required, json_t **out, struct err *e)
{
    *out = NULL;
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return required ? err_set(e, ERR_FORMAT, "%s is missing", path) : 0;
    struct buf b;
    buf_init(&b, HF_JSON_BYTES);
    int rc = file_read(path, &b, e);
    if (!rc)
        rc = hf_json_parse(b.data, b.len, path, out, e);
    buf_fini(&b);
    return rc;
}

json_t *hf_take(struct hf_keys *k, const char *key)
{
    json_t *v = json_incref(json_object_get(k->object, key));
    json_object_del(k->object, key);
    if (json_is_null(v)) {
        json_decref(v);
        return NULL;
    }
    return v;
}

/* A value as JSON, cut to what fits a line. */
static void show(const json_t *v, char out[HF_SHOWN_BYTES])
{
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
    snprintf(out, HF_SHOWN_BYTES, "%s", text ? text : "?");
    free(text);
}

static int wrong(const struct hf_keys *k, const char *key, const char *expected, const json_t *v,
                 struct err *e)
{
    char found[HF_SHOWN_BYTES] = "none";
    if (v)
        show(v, found);
    return err_set(e, ERR_FORMAT, "%s: key %s%s: expected %s, found %s", k->label, k->inside, key,
                   expected, found);
}

int hf_take_u32(struct hf_keys *k, const char *key, bool required, uint32_t *out, struct err *e)
{
    json_t *v = hf_take(k, key);
    int rc = 0;
    if (!v)
        return required ? wrong(k, key, "a number", v, e) : 0;
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > UINT32_MAX)
        rc = wrong(k, key, "a whole number from 0 to 4294967295", v, e);
    else
        *out = (uint32_t)json_integer_value(v);
    json_decref(v);
    return rc;
}

int hf_take_f64(struct hf_keys *k, const char *key, bool required, double *out, struct err *e)
{
    json_t *v = hf_take(k, key);
    int rc = 0;
    if (!v)
        return required ? wrong(k, key, "a number", v, e) : 0;
    if (!json_is_number(v) || !(fabs(json_number_value(v)) <= 1e30))
        rc = wrong(k, key, "a finite number", v, e);
    else
        *out = json_number_value(v);
    json_decref(v);
    return rc;
}

int hf_take_bool(struct hf_keys *k, const char *key, bool *out, struct err *e)
{
    json_t *v = hf_take(k, key);
    int rc = 0;
    if (!v)
        return 0;
    if (!json_is_boolean(v))
        rc = wrong(k, key, "true or false", v, e);
    else
        *out = json_is_true(v);
    json_decref(v);
    return rc;
}

int hf_take_text(struct hf_keys *k, const char *key, char *out, size_t cap, struct err *e)
{
    json_t *v = hf_take(k, key);
    int rc = 0;
    if (!v)
        return 0;
    if (!json_is_string(v))
        rc = wrong(k, key, "a text", v, e);
    else
        snprintf(out, cap, "%s", json_string_value(v));
    json_decref(v);
    return rc;
}

int hf_refuse(const struct hf_keys *k, const char *key, const char *expected, const char *found,
              struct err *e)
{
    char shown[HF_SHOWN_BYTES];
    return err_set(e, ERR_FORMAT, "%s: key %s%s: only %s is supported, found %s", k->label,
                   k->inside, key, expected, hf_shown(found, shown));
}

static bool listed(const char *key, const char *const *list)
{
    for (size_t i = 0; list[i]; i++)
        if (strcmp(list[i], key) == 0)
            return true;
    return false;
}

int hf_keys_end(const struct hf_keys *k, const char *const *harmless, struct err *e)
{
    const char *key;
    json_t *v;
    json_object_foreach(k->object, key, v)
    {
        if (json_is_null(v) || listed(key, harmless))
            continue;
        char name[HF_SHOWN_BYTES], found[HF_SHOWN_BYTES];
        show(v, found);
        return err_set(e, ERR_FORMAT,
                       "%s: key %s%s = %s is not known for this architecture: its meaning would be "
                       "lost",
                       k->label, k->inside, hf_shown(key, name), found);
    }
    return 0;
}
