/* hf_at.h - typed reading of the JSON files of a Hugging Face folder, with errors that name the place. Inside the room only.
 *
 * A place is named as file and path: "tokenizer.json: model.vocab". Borrowed values live as long as their document.
 */
#ifndef EXA_MODEL_HF_AT_H
#define EXA_MODEL_HF_AT_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hf_at { /* a value and its name for errors */
    const json_t *v;
    char where[160];
};

/* ERR_FORMAT: no JSON, keys twice, nested too deep. The caller owns *out (json_decref). */
int hf_at_parse(const char *label, const char *text, size_t n, json_t **out, struct err *e);
/* FOLDER/NAME; *out stays NULL when there is no such file. At most max bytes. */
int hf_at_load(const char *folder, const char *name, size_t max, json_t **out, struct err *e);

struct hf_at hf_at_get(const struct hf_at *at,
                       const char *key); /* v is NULL when it is not there or null */
struct hf_at hf_at_item(const struct hf_at *at, size_t i);
/* "WHERE: expected EXPECTED, found FOUND". */
int hf_at_expected(const struct hf_at *at, const char *expected, struct err *e);
/* "WHERE: WHAT "NAME" is not supported". */
int hf_at_refuse(const struct hf_at *at, const char *what, const char *name, struct err *e);
/* Only these keys may be in the object (a NULL-terminated list); any other is refused by its name. */
int hf_at_only(const struct hf_at *at, const char *const *keys, struct err *e);

/* Missing (or null): *out stays as it is. Another type is an error. */
int hf_at_bool(const struct hf_at *at, const char *key, bool *out, struct err *e);
int hf_at_u32(const struct hf_at *at, const char *key, uint32_t *out, struct err *e);
/* Without NUL inside; *out borrowed. */
int hf_at_text(const struct hf_at *at, const char *key, const char **out, struct err *e);

#endif
