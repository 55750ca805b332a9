/* gguf_doc.c - see gguf_doc.h. Source: ggml/docs/gguf.md, versions 2 and 3, little-endian.
 *
 * The bytes are hostile: every length is compared with what is left before it is used, every count
 * with the least room its items need. Names are shown in errors with unprintable bytes replaced.
 */
#include "model/gguf_doc.h"

#include "base/buf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    GGUF_KEY_BYTES = 65535, /* longest key: the specification */
    GGUF_NAME_BYTES =
        1024,              /* longest tensor name looked at; the index has its own, smaller limit */
    GGUF_MAX_KEYS = 65536, /* real files have some dozens */
    GGUF_MAX_TENSORS = 65536,
    GGUF_MAX_DIMS = 4,
    GGUF_ALIGNMENT = 32, /* when the file names none: the specification */
    GGUF_MAX_ALIGNMENT = 1 << 20,
    KEY_MIN_BYTES = 8 + 1 + 4 + 1,
    TENSOR_MIN_BYTES = 8 + 1 + 4 + 8 + 4 + 8,
    SHOWN_BYTES = 80, /* of a name in an error */
};

/* One type's name and size; 0: not of a fixed size. */
static const struct {
    const char *name;
    uint8_t bytes;
} TYPES[] = {
    [GGUF_U8] = {"u8", 1},       [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2},     [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4},     [GGUF_BOOL] = {"bool", 1}, [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8},   [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};
enum { N_TYPES = sizeof TYPES / sizeof TYPES[0] };

const char *gguf_type_name(uint32_t type)
{
    return type < N_TYPES ? TYPES[type].name : "unknown type";
}

struct shown {
    char text[SHOWN_BYTES + 4];
};
static struct shown show(struct gguf_text t)
{
    struct shown s;
    size_t n = t.n < SHOWN_BYTES ? t.n : SHOWN_BYTES;
    for (size_t i = 0; i < n; i++)
        s.text[i] = t.p[i] >= ' ' && t.p[i] <= '~' ? t.p[i] : '?';
    strcpy(s.text + n, t.n > n ? "…" : "");
    return s;
}

/* The next string, or a NULL text (r has failed or the length is over max). */
static struct gguf_text read_text(struct rd *r, uint64_t max)
{
    uint64_t n = rd_u64(r);
    if (!rd_ok(r) || n > max || n > rd_left(r)) {
        r->failed = true;
        return (struct gguf_text){0};
    }
    return (struct gguf_text){rd_bytes(r, n), n};
}

/* Step over an array's items. */
static bool skip_items(struct rd *r, uint32_t type, uint64_t count)
{
    if (type != GGUF_STRING) {
        size_t size = TYPES[type].bytes;
        return count <= rd_left(r) / size && rd_bytes(r, count * size);
    }
    if (count > rd_left(r) / 8) /* each has its 8-byte length */
        return false;
    for (uint64_t i = 0; i < count && rd_ok(r); i++)
        read_text(r, SIZE_MAX);
    return rd_ok(r);
}

static int parse_value(const struct gguf_doc *d, struct rd *r, struct gguf_key *k, struct err *e)
{
    struct shown name = show(k->name);
    k->type = rd_u32(r);
    if (!rd_ok(r))
        return err_set(e, ERR_FORMAT, "%s: ends inside key %s", d->label, name.text);
    if (k->type >= N_TYPES)
        return err_set(e, ERR_FORMAT, "%s: key %s: expected a value type below %d, found %" PRIu32,
                       d->label, name.text, N_TYPES, k->type);
    if (k->type == GGUF_ARRAY) {
        k->item_type = rd_u32(r);
        k->count = rd_u64(r);
        if (!rd_ok(r))
            return err_set(e, ERR_FORMAT, "%s: ends inside key %s", d->label, name.text);
        if (k->item_type == GGUF_ARRAY)
            return err_set(e, ERR_FORMAT, "%s: key %s: arrays of arrays are not supported",
                           d->label, name.text);
        if (k->item_type >= N_TYPES)
            return err_set(e, ERR_FORMAT,
                           "%s: key %s: expected an item type below %d, found %" PRIu32, d->label,
                           name.text, N_TYPES, k->item_type);
        size_t left = rd_left(r);
        k->value = r->p;
        if (!skip_items(r, k->item_type, k->count))
            return err_set(e, ERR_FORMAT,
                           "%s: key %s: %" PRIu64
                           " items of type %s do not fit in the remaining %zu bytes",
                           d->label, name.text, k->count, gguf_type_name(k->item_type), left);
    } else {
        size_t left = rd_left(r);
        k->value = r->p;
        if (!skip_items(r, k->type, 1))
            return err_set(e, ERR_FORMAT,
                           "%s: key %s: its %s does not fit in the remaining %zu bytes", d->label,
                           name.text, gguf_type_name(k->type), left);
    }
    k->value_end = r->p;
    return 0;
}

static int text_order(struct gguf_text a, struct gguf_text b)
{
    int c = memcmp(a.p, b.p, a.n < b.n ? a.n : b.n);
    return c ? c : (a.n > b.n) - (a.n < b.n);
}

static int key_order(const void *a, const void *b)
{
    return text_order(((const struct gguf_key *)a)->name, ((const struct gguf_key *)b)->name);
}

static int parse_keys(struct gguf_doc *d, struct rd *r, uint64_t n, struct err *e)
{
    d->keys = calloc(n + 1, sizeof *d->keys);
    if (!d->keys)
        return err_set(e, ERR_NOMEM, "%s: out of memory for %" PRIu64 " keys", d->label, n);
    for (; d->n_keys < n; d->n_keys++) {
        struct gguf_key *k = &d->keys[d->n_keys];
        k->name = read_text(r, GGUF_KEY_BYTES);
        if (!rd_ok(r) || k->name.n == 0)
            return err_set(e, ERR_FORMAT,
                           "%s: key number %" PRIu32 " of %" PRIu64
                           " has no name of 1 to %d bytes, or the file ends there",
                           d->label, d->n_keys, n, GGUF_KEY_BYTES);
        int rc = parse_value(d, r, k, e);
        if (rc)
            return rc;
    }
    qsort(d->keys, d->n_keys, sizeof *d->keys, key_order);
    for (uint32_t i = 1; i < d->n_keys; i++)
        if (key_order(&d->keys[i - 1], &d->keys[i]) == 0)
            return err_set(e, ERR_FORMAT, "%s: key %s is there twice", d->label,
                           show(d->keys[i].name).text);
    return 0;
}

static int parse_tensors(struct gguf_doc *d, struct rd *r, uint64_t n, struct err *e)
{
    d->tensors = calloc(n + 1, sizeof *d->tensors);
    if (!d->tensors)
        return err_set(e, ERR_NOMEM, "%s: out of memory for %" PRIu64 " tensors", d->label, n);
    for (; d->n_tensors < n; d->n_tensors++) {
        struct gguf_tensor *t = &d->tensors[d->n_tensors];
        t->name = read_text(r, GGUF_NAME_BYTES);
        if (!rd_ok(r) || t->name.n == 0)
            return err_set(e, ERR_FORMAT,
                           "%s: tensor number %" PRIu32 " of %" PRIu64
                           " has no name of 1 to %d bytes, or the file ends there",
                           d->label, d->n_tensors, n, GGUF_NAME_BYTES);
        t->n_dims = rd_u32(r);
        if (rd_ok(r) && (t->n_dims < 1 || t->n_dims > GGUF_MAX_DIMS))
            return err_set(e, ERR_FORMAT,
                           "%s: tensor %s: expected 1 to %d dimensions, found %" PRIu32, d->label,
                           show(t->name).text, GGUF_MAX_DIMS, t->n_dims);
        for (uint32_t i = 0; rd_ok(r) && i < t->n_dims; i++)
            t->dims[i] = rd_u64(r);
        t->type = rd_u32(r);
        t->offset = rd_u64(r);
        if (!rd_ok(r))
            return err_set(e, ERR_FORMAT, "%s: ends inside the entry of tensor %s", d->label,
                           show(t->name).text);
    }
    return 0;
}

static int find_alignment(struct gguf_doc *d, struct err *e)
{
    d->alignment = GGUF_ALIGNMENT;
    int rc = gguf_doc_u32(d, "general.alignment", false, &d->alignment, e);
    if (rc)
        return rc;
    uint32_t a = d->alignment;
    if (a == 0 || (a & (a - 1)) || a > GGUF_MAX_ALIGNMENT)
        return err_set(
            e, ERR_FORMAT,
            "%s: key general.alignment: expected a power of two up to %d, found %" PRIu32, d->label,
            GGUF_MAX_ALIGNMENT, a);
    return 0;
}

static int parse(struct gguf_doc *d, const void *bytes, size_t n, struct err *e)
{
    struct rd r = rd_make(bytes, n);
    const void *magic = rd_bytes(&r, 4);
    if (!magic || memcmp(magic, "GGUF", 4) != 0)
        return err_set(e, ERR_FORMAT, "%s: not a GGUF file: does not begin with GGUF", d->label);
    d->version = rd_u32(&r);
    if (rd_ok(&r) && d->version && (d->version & 0xffff) == 0)
        return err_set(e, ERR_FORMAT,
                       "%s: expected a little-endian GGUF file, found a big-endian one", d->label);
    if (rd_ok(&r) && d->version != 2 && d->version != 3)
        return err_set(e, ERR_FORMAT, "%s: expected GGUF version 2 or 3, found %" PRIu32, d->label,
                       d->version);
    uint64_t n_tensors = rd_u64(&r), n_keys = rd_u64(&r);
    if (!rd_ok(&r))
        return err_set(e, ERR_FORMAT, "%s: ends inside its header: expected 24 bytes, found %zu",
                       d->label, n);
    if (n_keys > GGUF_MAX_KEYS || n_keys > rd_left(&r) / KEY_MIN_BYTES)
        return err_set(e, ERR_FORMAT,
                       "%s: %" PRIu64 " keys cannot be in a file of %zu bytes (most are %d)",
                       d->label, n_keys, n, GGUF_MAX_KEYS);
    if (n_tensors > GGUF_MAX_TENSORS || n_tensors > rd_left(&r) / TENSOR_MIN_BYTES)
        return err_set(e, ERR_FORMAT,
                       "%s: %" PRIu64 " tensors cannot be in a file of %zu bytes (most are %d)",
                       d->label, n_tensors, n, GGUF_MAX_TENSORS);
    int rc = parse_keys(d, &r, n_keys, e);
    if (!rc)
        rc = parse_tensors(d, &r, n_tensors, e);
    if (!rc)
        rc = find_alignment(d, e);
    if (rc)
        return rc;
    size_t head = n - rd_left(&r), pad = (d->alignment - head % d->alignment) % d->alignment;
    if (pad > rd_left(&r))
        return err_set(e, ERR_FORMAT, "%s: ends before its tensor data", d->label);
    d->data = r.p + pad;
    d->data_bytes = rd_left(&r) - pad;
    return 0;
}

int gguf_doc_parse(struct gguf_doc *d, const void *bytes, size_t n, const char *label,
                   struct err *e)
{
    *d = (struct gguf_doc){.label = label};
    int rc = parse(d, bytes, n, e);
    if (rc)
        gguf_doc_fini(d);
    return rc;
}

void gguf_doc_fini(struct gguf_doc *d)
{
    free(d->keys);
    free(d->tensors);
    *d = (struct gguf_doc){0};
}

/* --- typed reading ---------------------------------------------------------------------------- */

const struct gguf_key *gguf_doc_find(const struct gguf_doc *d, const char *name)
{
    const struct gguf_key wanted = {.name = {name, strlen(name)}};
    return bsearch(&wanted, d->keys, d->n_keys, sizeof *d->keys, key_order);
}

/* 0: *k is the key or NULL (not required). */
static int find(const struct gguf_doc *d, const char *name, bool required,
                const struct gguf_key **k, struct err *e)
{
    *k = gguf_doc_find(d, name);
    if (!*k && required)
        return err_set(e, ERR_FORMAT, "%s: key %s is missing", d->label, name);
    return 0;
}

static int wrong_type(const struct gguf_doc *d, const char *name, const char *expected,
                      const struct gguf_key *k, struct err *e)
{
    return err_set(e, ERR_FORMAT, "%s: key %s: expected %s, found %s", d->label, name, expected,
                   gguf_type_name(k->type));
}

int gguf_doc_u32(const struct gguf_doc *d, const char *key, bool required, uint32_t *out,
                 struct err *e)
{
    const struct gguf_key *k;
    int rc = find(d, key, required, &k, e);
    if (rc || !k)
        return rc;
    struct rd r = rd_make(k->value, (size_t)(k->value_end - k->value));
    uint64_t v;
    int64_t s = 0;
    switch (k->type) {
    case GGUF_U8:
        v = rd_u8(&r);
        break;
    case GGUF_U16:
        v = rd_u16(&r);
        break;
    case GGUF_U32:
        v = rd_u32(&r);
        break;
    case GGUF_U64:
        v = rd_u64(&r);
        break;
    case GGUF_I8:
        v = (uint64_t)(s = (int8_t)rd_u8(&r));
        break;
    case GGUF_I16:
        v = (uint64_t)(s = (int16_t)rd_u16(&r));
        break;
    case GGUF_I32:
        v = (uint64_t)(s = (int32_t)rd_u32(&r));
        break;
    case GGUF_I64:
        v = (uint64_t)(s = (int64_t)rd_u64(&r));
        break;
    default:
        return wrong_type(d, key, "an integer", k, e);
    }
    if (s < 0)
        return err_set(e, ERR_FORMAT, "%s: key %s: expected no negative number, found %" PRId64,
                       d->label, key, s);
    if (v > UINT32_MAX)
        return err_set(e, ERR_FORMAT, "%s: key %s: expected at most %" PRIu32 ", found %" PRIu64,
                       d->label, key, UINT32_MAX, v);
    *out = (uint32_t)v;
    return 0;
}

int gguf_doc_f32(const struct gguf_doc *d, const char *key, bool required, float *out,
                 struct err *e)
{
    const struct gguf_key *k;
    int rc = find(d, key, required, &k, e);
    if (rc || !k)
        return rc;
    if (k->type != GGUF_F32 && k->type != GGUF_F64)
        return wrong_type(d, key, "a floating-point number", k, e);
    struct rd r = rd_make(k->value, (size_t)(k->value_end - k->value));
    double v = k->type == GGUF_F32 ? (double)rd_f32(&r) : rd_f64(&r);
    if (!(v >= -1e30 && v <= 1e30)) /* also what is no number, and what a float cannot hold */
        return err_set(e, ERR_FORMAT, "%s: key %s: expected a finite number up to 1e30, found %g",
                       d->label, key, v);
    *out = (float)v;
    return 0;
}

int gguf_doc_bool(const struct gguf_doc *d, const char *key, bool required, bool *out,
                  struct err *e)
{
    const struct gguf_key *k;
    int rc = find(d, key, required, &k, e);
    if (rc || !k)
        return rc;
    if (k->type != GGUF_BOOL)
        return wrong_type(d, key, "bool", k, e);
    if (*k->value > 1)
        return err_set(e, ERR_FORMAT, "%s: key %s: expected 0 or 1, found %u", d->label, key,
                       *k->value);
    *out = *k->value;
    return 0;
}

int gguf_doc_text(const struct gguf_doc *d, const char *key, bool required, struct gguf_text *out,
                  struct err *e)
{
    const struct gguf_key *k;
    int rc = find(d, key, required, &k, e);
    if (rc || !k)
        return rc;
    if (k->type != GGUF_STRING)
        return wrong_type(d, key, "string", k, e);
    const uint8_t *at = k->value;
    *out = gguf_text_next(&at);
    return 0;
}

int gguf_doc_array(const struct gguf_doc *d, const char *key, bool required, uint32_t item_type,
                   const struct gguf_key **out, struct err *e)
{
    const struct gguf_key *k;
    *out = NULL;
    int rc = find(d, key, required, &k, e);
    if (rc || !k)
        return rc;
    if (k->type != GGUF_ARRAY)
        return wrong_type(d, key, "array", k, e);
    if (k->item_type != item_type)
        return err_set(e, ERR_FORMAT, "%s: key %s: expected an array of %s, found one of %s",
                       d->label, key, gguf_type_name(item_type), gguf_type_name(k->item_type));
    *out = k;
    return 0;
}

struct gguf_text gguf_text_next(const uint8_t **at)
{
    /* parse_value has walked the same bytes: the length is true. */
    struct rd r = rd_make(*at, 8);
    size_t n = rd_u64(&r);
    struct gguf_text t = {(const char *)*at + 8, n};
    *at += 8 + n;
    return t;
}
