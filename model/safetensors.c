/* safetensors.c - see safetensors.h. */
#include "model/file_map.h"
#include "model/safetensors.h"

#include "model/hf_json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { LENGTH_BYTES = 8 };

static const struct {
    const char *name;
    uint32_t bytes;
} DTYPES[ST_N_DTYPES] = {
    [ST_BOOL] = {"BOOL", 1},       [ST_U8] = {"U8", 1},   [ST_I8] = {"I8", 1},
    [ST_F8_E4M3] = {"F8_E4M3", 1}, [ST_I16] = {"I16", 2}, [ST_F8_E5M2] = {"F8_E5M2", 1},
    [ST_U16] = {"U16", 2},         [ST_F16] = {"F16", 2}, [ST_BF16] = {"BF16", 2},
    [ST_I32] = {"I32", 4},         [ST_U32] = {"U32", 4}, [ST_F32] = {"F32", 4},
    [ST_F64] = {"F64", 8},         [ST_I64] = {"I64", 8}, [ST_U64] = {"U64", 8},
};

const char *st_dtype_name(enum st_dtype t)
{
    return DTYPES[t].name;
}
uint32_t st_dtype_bytes(enum st_dtype t)
{
    return DTYPES[t].bytes;
}

/* --- one entry of the header ------------------------------------------------------------------- */

/* A name is shown in errors and log lines: no control characters, not endless. JSON has made sure of UTF-8. */
static int check_name(const char *label, const char *name, struct err *e)
{
    size_t n = strlen(name);
    if (n == 0 || n > SAFETENSORS_NAME_BYTES)
        return err_set(e, ERR_FORMAT,
                       "%s: expected tensor names of 1 to %d bytes, found one of %zu", label,
                       SAFETENSORS_NAME_BYTES, n);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < ' ' || name[i] == 0x7f)
            return err_set(
                e, ERR_FORMAT,
                "%s: expected tensor names without control characters, found byte 0x%02x", label,
                (unsigned char)name[i]);
    return 0;
}

static int read_dtype(const char *label, struct st_tensor *t, const json_t *entry, struct err *e)
{
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    if (!dtype)
        return err_set(e, ERR_FORMAT, "%s: tensor %s: expected a text \"dtype\"", label, t->name);
    for (int i = 0; i < ST_N_DTYPES; i++)
        if (strcmp(DTYPES[i].name, dtype) == 0) {
            t->dtype = (enum st_dtype)i;
            return 0;
        }
    char shown[HF_SHOWN_BYTES];
    return err_set(e, ERR_FORMAT, "%s: tensor %s: unknown dtype \"%s\"", label, t->name,
                   hf_shown(dtype, shown));
}

static int read_shape(const char *label, struct st_tensor *t, const json_t *entry, struct err *e)
{
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape) || json_array_size(shape) > SAFETENSORS_MAX_DIMS)
        return err_set(e, ERR_FORMAT, "%s: tensor %s: expected a \"shape\" of at most %d numbers",
                       label, t->name, SAFETENSORS_MAX_DIMS);
    t->n_dims = (uint32_t)json_array_size(shape);
    t->n_weights = 1;
    for (uint32_t i = 0; i < SAFETENSORS_MAX_DIMS; i++) {
        t->dims[i] = 1;
        if (i >= t->n_dims)
            continue;
        const json_t *v = json_array_get(shape, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0)
            return err_set(e, ERR_FORMAT, "%s: tensor %s: dimension %" PRIu32 " is no count", label,
                           t->name, i);
        t->dims[i] = (uint64_t)json_integer_value(v);
        if (__builtin_mul_overflow(t->n_weights, t->dims[i], &t->n_weights))
            return err_set(e, ERR_FORMAT, "%s: tensor %s: number of weights overflows", label,
                           t->name);
    }
    if (__builtin_mul_overflow(t->n_weights, (uint64_t)DTYPES[t->dtype].bytes, &t->n_bytes))
        return err_set(e, ERR_FORMAT, "%s: tensor %s: size in bytes overflows", label, t->name);
    return 0;
}

static int read_offsets(const char *label, struct st_tensor *t, const json_t *entry,
                        const uint8_t *data, uint64_t data_bytes, struct err *e)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *from = json_array_get(offsets, 0), *to = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(from) || !json_is_integer(to) ||
        json_integer_value(from) < 0 || json_integer_value(to) < json_integer_value(from))
        return err_set(e, ERR_FORMAT, "%s: tensor %s: expected \"data_offsets\" [begin, end]",
                       label, t->name);
    uint64_t begin = (uint64_t)json_integer_value(from), end = (uint64_t)json_integer_value(to);
    if (end > data_bytes)
        return err_set(e, ERR_FORMAT,
                       "%s: tensor %s: bytes %" PRIu64 " to %" PRIu64
                       " are not within the file's %" PRIu64 " bytes of tensor data",
                       label, t->name, begin, end, data_bytes);
    if (end - begin != t->n_bytes)
        return err_set(e, ERR_FORMAT,
                       "%s: tensor %s: expected %" PRIu64
                       " bytes for its shape in %s, found %" PRIu64,
                       label, t->name, t->n_bytes, DTYPES[t->dtype].name, end - begin);
    t->data = data + begin;
    return 0;
}

static int read_entry(const char *label, struct st_tensor *t, const char *name, const json_t *entry,
                      const uint8_t *data, uint64_t data_bytes, struct err *e)
{
    static const char *const KNOWN[] = {"dtype", "shape", "data_offsets"};
    t->name = name;
    int rc = check_name(label, name, e);
    if (rc)
        return rc;
    if (!json_is_object(entry))
        return err_set(e, ERR_FORMAT, "%s: tensor %s: expected an object", label, name);
    size_t known = 0;
    for (size_t i = 0; i < sizeof KNOWN / sizeof KNOWN[0]; i++)
        known += json_object_get(entry, KNOWN[i]) != NULL;
    if (known != json_object_size(entry))
        return err_set(e, ERR_FORMAT,
                       "%s: tensor %s: expected only dtype, shape and data_offsets, found more",
                       label, name);
    rc = read_dtype(label, t, entry, e);
    if (!rc)
        rc = read_shape(label, t, entry, e);
    return rc ? rc : read_offsets(label, t, entry, data, data_bytes, e);
}

/* --- all of them -------------------------------------------------------------------------------- */

static int place_order(const void *a, const void *b)
{
    const struct st_tensor *x = a, *y = b;
    if (x->data != y->data)
        return x->data < y->data ? -1 : 1;
    return (x->n_bytes > y->n_bytes) - (x->n_bytes < y->n_bytes); /* empty ones first */
}

static int name_order(const void *a, const void *b)
{
    return strcmp(((const struct st_tensor *)a)->name, ((const struct st_tensor *)b)->name);
}

/* Every byte belongs to one tensor. Sorts by place. */
static int check_places(struct safetensors *s, const uint8_t *data, uint64_t data_bytes,
                        struct err *e)
{
    qsort(s->tensors, s->n_tensors, sizeof *s->tensors, place_order);
    const uint8_t *at = data;
    for (uint32_t i = 0; i < s->n_tensors; i++) {
        const struct st_tensor *t = &s->tensors[i];
        if (t->data < at)
            return err_set(e, ERR_FORMAT, "%s: tensors %s and %s overlap", s->label,
                           s->tensors[i - 1].name, t->name);
        if (t->data > at)
            return err_set(e, ERR_FORMAT,
                           "%s: %zu bytes before tensor %s belong to none: the file is damaged",
                           s->label, (size_t)(t->data - at), t->name);
        at += t->n_bytes;
    }
    if (at != data + data_bytes)
        return err_set(e, ERR_FORMAT, "%s: %zu bytes after the last tensor belong to none",
                       s->label, (size_t)(data + data_bytes - at));
    return 0;
}

static int read_header(struct safetensors *s, json_t *header, const uint8_t *data,
                       uint64_t data_bytes, struct err *e)
{
    size_t n = json_object_size(header);
    if (n > SAFETENSORS_MAX_TENSORS)
        return err_set(e, ERR_LIMIT, "%s: expected at most %d tensors, found %zu", s->label,
                       SAFETENSORS_MAX_TENSORS, n);
    s->tensors = calloc(n + 1, sizeof *s->tensors);
    if (!s->tensors)
        return err_set(e, ERR_NOMEM, "%s: out of memory for %zu tensors", s->label, n);
    const char *name;
    json_t *entry;
    json_object_foreach(header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        int rc = read_entry(s->label, &s->tensors[s->n_tensors], name, entry, data, data_bytes, e);
        if (rc)
            return rc;
        s->n_tensors++;
    }
    int rc = check_places(s, data, data_bytes, e);
    qsort(s->tensors, s->n_tensors, sizeof *s->tensors, name_order);
    return rc;
}

static int parse(struct safetensors *s, const uint8_t *p, size_t n, struct err *e)
{
    uint64_t length = 0;
    for (int i = LENGTH_BYTES - 1; n >= LENGTH_BYTES && i >= 0; i--)
        length = length << 8 | p[i];
    if (n < LENGTH_BYTES || length > n - LENGTH_BYTES)
        return err_set(e, ERR_FORMAT,
                       "%s: not a safetensors file: a header of %" PRIu64
                       " bytes is not within its %zu bytes",
                       s->label, length, n);
    if (length > SAFETENSORS_HEADER_BYTES)
        return err_set(e, ERR_LIMIT, "%s: expected a header of at most %d bytes, found %" PRIu64,
                       s->label, SAFETENSORS_HEADER_BYTES, length);
    json_error_t why;
    json_t *header =
        json_loadb((const char *)p + LENGTH_BYTES, length, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(header)) {
        int rc = header ? err_set(e, ERR_FORMAT, "%s: header: expected a JSON object", s->label)
                        : err_set(e, ERR_FORMAT, "%s: header: at byte %d: %s", s->label,
                                  why.position, hf_json_why(&why));
        json_decref(header);
        return rc;
    }
    s->header = header;
    return read_header(s, header, p + LENGTH_BYTES + length, n - LENGTH_BYTES - length, e);
}

int safetensors_parse(struct safetensors *s, const void *data, size_t n, const char *label,
                      struct err *e)
{
    struct safetensors new = {.label = strdup(label)};
    int rc =
        new.label ? parse(&new, data, n, e) : err_set(e, ERR_NOMEM, "%s: out of memory", label);
    if (rc)
        safetensors_close(&new);
    else
        *s = new;
    return rc;
}

int safetensors_open(struct safetensors *s, const char *path, struct err *e)
{
    void *map;
    size_t n;
    int rc = file_map(&map, &n, path, LENGTH_BYTES, "safetensors", e);
    if (rc)
        return rc;
    rc = safetensors_parse(s, map, n, path, e);
    if (rc) {
        munmap(map, n);
        return rc;
    }
    s->map = map;
    s->map_bytes = n;
    return 0;
}

void safetensors_close(struct safetensors *s)
{
    free(s->tensors);
    json_decref(s->header);
    free(s->label);
    if (s->map)
        munmap(s->map, s->map_bytes);
    *s = (struct safetensors){0};
}

static int name_find(const void *key, const void *item)
{
    return strcmp(key, ((const struct st_tensor *)item)->name);
}

const struct st_tensor *safetensors_find(const struct safetensors *s, const char *name)
{
    if (!s->n_tensors)
        return NULL;
    return bsearch(name, s->tensors, s->n_tensors, sizeof *s->tensors, name_find);
}
