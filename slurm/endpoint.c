/* endpoint.c - endpoint.json: where a service is and how it fares. Readers check every field: the file may be cut or edited. */
#include "slurm/endpoint.h"

#include "base/file.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { ENDPOINT_BYTES = 64 * 1024, ENDPOINT_TEXT_BYTES = 1024, ENDPOINT_VERSION = 1 };

/* Text fields by name; numbers likewise below: one table for writing and reading. */
static const struct text_field {
    const char *name;
    size_t offset, cap;
} TEXTS[] = {
#define TEXT(f)                                                                                    \
    {                                                                                              \
#f, offsetof(struct endpoint, f), sizeof(((struct endpoint *)0)->f)                        \
    }
    TEXT(job), TEXT(cluster), TEXT(name), TEXT(state), TEXT(progress), TEXT(key), TEXT(model),
};
static const struct number_field {
    const char *name;
    size_t offset;
    bool wide; /* uint64_t */
} NUMBERS[] = {
#define NUMBER(f)                                                                                  \
    {                                                                                              \
#f, offsetof(struct endpoint, f), sizeof(((struct endpoint *)0)->f) == 8                   \
    }
    NUMBER(n_ready), NUMBER(n_wanted),       NUMBER(n_min),
    NUMBER(attempt), NUMBER(updated_wall_s), NUMBER(end_wall_s),
};
enum {
    N_TEXTS = sizeof TEXTS / sizeof TEXTS[0],
    N_NUMBERS = sizeof NUMBERS / sizeof NUMBERS[0],
};

bool endpoint_ended(const struct endpoint *p)
{
    return strcmp(p->state, "STOPPED") == 0 || strcmp(p->state, "FAILED") == 0;
}

/* Sentences are cut to length, and quote others that were: inside a character, they are not UTF-8 any more. At the end it is left out. */
static json_t *text_encode(const char *text, size_t cap)
{
    char ascii[ENDPOINT_TEXT_BYTES];
    size_t n = strnlen(text, cap - 1), whole = n;
    json_t *s = json_stringn(text, n);
    for (int cut = 0; !s && n && cut < 4; cut++)
        s = json_stringn(text, --n);
    if (s || cap > sizeof ascii)
        return s ? s : json_string("?");
    for (size_t i = 0; i < whole; i++)
        ascii[i] = text[i] & 0x80 ? '?' : text[i];
    return json_stringn(ascii, whole);
}

static json_t *encode(const struct endpoint *p)
{
    json_t *o = json_object();
    int rc = json_object_set_new(o, "version", json_integer(ENDPOINT_VERSION));
    for (int i = 0; i < N_TEXTS; i++) {
        const char *text = (const char *)p + TEXTS[i].offset;
        rc |= json_object_set_new(o, TEXTS[i].name, text_encode(text, TEXTS[i].cap));
    }
    json_t *urls = json_array();
    for (uint32_t i = 0; i < p->n_urls && i < ENDPOINT_MAX_URLS; i++)
        rc |= json_array_append_new(urls, json_string(p->urls[i]));
    rc |= json_object_set_new(o, "urls", urls);
    for (int i = 0; i < N_NUMBERS; i++) {
        const char *at = (const char *)p + NUMBERS[i].offset;
        uint64_t v = NUMBERS[i].wide ? *(const uint64_t *)at : *(const uint32_t *)at;
        rc |= json_object_set_new(o, NUMBERS[i].name, json_integer((json_int_t)v));
    }
    if (rc) {
        json_decref(o);
        return NULL;
    }
    return o;
}

int endpoint_write(const char *run_dir, const struct endpoint *p, struct err *e)
{
    char path[RUNDIR_PATH_BYTES];
    int rc = path_join(path, sizeof path, e, "%s/endpoint.json", run_dir);
    if (rc)
        return rc;
    json_t *o = encode(p);
    char *text = o ? json_dumps(o, JSON_INDENT(2)) : NULL;
    json_decref(o);
    if (!text)
        return err_set(e, ERR_NOMEM, "cannot write %s: out of memory", path);
    rc = file_publish(path, text, strlen(text), 0600, e);
    explicit_bzero(text, strlen(text));
    free(text);
    return rc;
}

static int decode(const json_t *o, struct endpoint *p, const char *path, struct err *e)
{
    const json_t *version = json_object_get(o, "version");
    if (!json_is_integer(version) || json_integer_value(version) != ENDPOINT_VERSION)
        return err_set(e, ERR_FORMAT, "%s: expected version %d", path, ENDPOINT_VERSION);
    for (int i = 0; i < N_TEXTS; i++) {
        const char *text = json_string_value(json_object_get(o, TEXTS[i].name));
        if (!text || strlen(text) >= TEXTS[i].cap)
            return err_set(e, ERR_FORMAT, "%s: field \"%s\" is missing or too long", path,
                           TEXTS[i].name);
        strcpy((char *)p + TEXTS[i].offset, text);
    }
    const json_t *urls = json_object_get(o, "urls");
    if (!json_is_array(urls) || json_array_size(urls) > ENDPOINT_MAX_URLS)
        return err_set(e, ERR_FORMAT, "%s: field \"urls\" is missing or too long", path);
    for (size_t i = 0; i < json_array_size(urls); i++) {
        const char *url = json_string_value(json_array_get(urls, i));
        if (!url || strlen(url) >= sizeof p->urls[0] || strncmp(url, "http", 4) != 0)
            return err_set(e, ERR_FORMAT, "%s: URL %zu is none", path, i);
        strcpy(p->urls[p->n_urls++], url);
    }
    for (int i = 0; i < N_NUMBERS; i++) {
        const json_t *v = json_object_get(o, NUMBERS[i].name);
        json_int_t n = json_integer_value(v);
        if (!json_is_integer(v) || n < 0 || (!NUMBERS[i].wide && n > UINT32_MAX))
            return err_set(e, ERR_FORMAT, "%s: field \"%s\" is missing or not a count", path,
                           NUMBERS[i].name);
        char *at = (char *)p + NUMBERS[i].offset;
        if (NUMBERS[i].wide)
            *(uint64_t *)at = (uint64_t)n;
        else
            *(uint32_t *)at = (uint32_t)n;
    }
    return 0;
}

int endpoint_read(const char *run_dir, struct endpoint *p, struct err *e)
{
    char path[RUNDIR_PATH_BYTES];
    int rc = path_join(path, sizeof path, e, "%s/endpoint.json", run_dir);
    if (rc)
        return rc;
    char *text = malloc(ENDPOINT_BYTES + 1);
    size_t n;
    if (!text)
        return err_set(e, ERR_NOMEM, "cannot read %s: out of memory", path);
    rc = private_read(path, text, ENDPOINT_BYTES + 1, &n, e);
    if (!rc) {
        json_error_t why;
        json_t *o = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
        struct endpoint *own = calloc(1, sizeof *own); /* *p stays as it was on failure */
        if (!o)
            rc = err_set(e, ERR_FORMAT, "%s:%d: %s", path, why.line, why.text);
        else if (!own)
            rc = err_set(e, ERR_NOMEM, "cannot read %s: out of memory", path);
        else
            rc = decode(o, own, path, e);
        if (!rc)
            *p = *own;
        free(own);
        json_decref(o);
    }
    free(text);
    return rc;
}
