/* gguf_doc.h - the syntax of a GGUF file: its header, keys and tensor table, checked against the
 * real size.
 *
 * Inside the room only: gguf.c makes a model of it. Everything points into the file's bytes.
 */
#ifndef EXA_MODEL_GGUF_DOC_H
#define EXA_MODEL_GGUF_DOC_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* gguf_metadata_value_type */
enum gguf_type {
    GGUF_U8 = 0,
    GGUF_I8 = 1,
    GGUF_U16 = 2,
    GGUF_I16 = 3,
    GGUF_U32 = 4,
    GGUF_I32 = 5,
    GGUF_F32 = 6,
    GGUF_BOOL = 7,
    GGUF_STRING = 8,
    GGUF_ARRAY = 9,
    GGUF_U64 = 10,
    GGUF_I64 = 11,
    GGUF_F64 = 12,
};

struct gguf_text { /* not NUL-terminated */
    const char *p;
    size_t n;
};

struct gguf_key {
    struct gguf_text name;
    uint32_t type;
    uint32_t item_type;               /* of an array */
    uint64_t count;                   /* of an array */
    const uint8_t *value, *value_end; /* an array's value starts at its first item */
};

struct gguf_tensor {
    struct gguf_text name;
    uint32_t n_dims;
    uint64_t dims[4];
    uint32_t type;
    uint64_t offset; /* from data */
};

struct gguf_doc {
    const char *label; /* names the file in errors; not owned */
    uint32_t version;
    struct gguf_key *keys; /* owned, by name */
    uint32_t n_keys;
    struct gguf_tensor *tensors; /* owned, in the file's order */
    uint32_t n_tensors;
    uint32_t alignment;
    const uint8_t *data; /* where tensor data begin */
    uint64_t data_bytes;
};

/* ERR_FORMAT names the file and the key or tensor. Tensor types, sizes and places are not judged
 * here. */
int gguf_doc_parse(struct gguf_doc *d, const void *bytes, size_t n, const char *label,
                   struct err *e);
void gguf_doc_fini(struct gguf_doc *d);

const struct gguf_key *gguf_doc_find(const struct gguf_doc *d, const char *name); /* NULL: none */

/* Typed reading. A missing key leaves *out alone: 0; with `required` it is an error. Another type
 * is always one. */
int gguf_doc_u32(const struct gguf_doc *d, const char *key, bool required, uint32_t *out,
                 struct err *e);
int gguf_doc_f32(const struct gguf_doc *d, const char *key, bool required, float *out,
                 struct err *e);
int gguf_doc_bool(const struct gguf_doc *d, const char *key, bool required, bool *out,
                  struct err *e);
int gguf_doc_text(const struct gguf_doc *d, const char *key, bool required, struct gguf_text *out,
                  struct err *e);
/* An array of that item type; *out stays NULL when it is missing. */
int gguf_doc_array(const struct gguf_doc *d, const char *key, bool required, uint32_t item_type,
                   const struct gguf_key **out, struct err *e);
/* The strings of an array in turn: *at starts at key->value. */
struct gguf_text gguf_text_next(const uint8_t **at);

const char *gguf_type_name(uint32_t type); /* "string"; "unknown type" */

#endif
