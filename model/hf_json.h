/* hf_json.h - JSON files of Hugging Face folders, read key by key. Inside the room only.
 *
 * A key that was taken is gone from the object; what is left at the end is checked against a list of keys known to be
 * harmless and refused by name otherwise: nothing that changes a model is overlooked. `null` is the same as no key.
 */
#ifndef EXA_MODEL_HF_JSON_H
#define EXA_MODEL_HF_JSON_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    HF_JSON_BYTES =
        16 << 20,        /* longest file; the largest real ones list the tensors of all shards */
    HF_SHOWN_BYTES = 96, /* of foreign text in an error */
};

struct hf_keys {
    const char *label;  /* the file, for errors; not owned */
    const char *inside; /* "rope_scaling." for a nested object, else "" */
    json_t *object;     /* borrowed; keys vanish from it */
};

/* The file's JSON object in *out (json_decref it). A missing file: *out is NULL; with `required` an error. */
int hf_json_read(const char *path, bool required, json_t **out, struct err *e);
int hf_json_parse(const void *text, size_t n, const char *label, json_t **out, struct err *e);

/* What is wrong with a text, as a line that a terminal may be shown (jansson quotes its input as it is). */
const char *hf_json_why(json_error_t *why);
/* Foreign text as a line may have it: printable ASCII, others as '?', cut to HF_SHOWN_BYTES - 1. */
const char *hf_shown(const char *text, char out[HF_SHOWN_BYTES]);

/* A new reference, or NULL. */
json_t *hf_take(struct hf_keys *k, const char *key);
/* Without the key *out stays as it is: 0, or with `required` an error. Another type, or a number out of range, is one. */
int hf_take_u32(struct hf_keys *k, const char *key, bool required, uint32_t *out, struct err *e);
int hf_take_f64(struct hf_keys *k, const char *key, bool required, double *out, struct err *e);
int hf_take_bool(struct hf_keys *k, const char *key, bool *out, struct err *e);
/* Cut to cap - 1 bytes: for names that are compared or shown. */
int hf_take_text(struct hf_keys *k, const char *key, char *out, size_t cap, struct err *e);

/* "FILE: key inside.KEY: only EXPECTED is supported, found FOUND" */
int hf_refuse(const struct hf_keys *k, const char *key, const char *expected, const char *found,
              struct err *e);
/* Refuse what is left but for keys of `harmless` (NULL ends it). */
int hf_keys_end(const struct hf_keys *k, const char *const *harmless, struct err *e);

#endif
