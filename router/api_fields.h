/* api_fields.h - the table of request fields. Inside of api_request; pure. */
#ifndef EXA_ROUTER_API_FIELDS_H
#define EXA_ROUTER_API_FIELDS_H

#include "router/api_request.h"

struct api_field {
    const char *name;
    int kinds; /* API_CHAT | API_COMPLETION */
    int (*take)(struct api_request *r, const struct api_field *f, json_t *value,
                struct api_error *a);
    double neutral; /* of fields that are accepted in one value only */
};

/* NULL: this endpoint knows no such field. */
const struct api_field *api_field_find(const char *name, enum api_kind kind);
/* What only shows once all fields are read. */
int api_fields_check(const struct api_request *r, struct api_error *a);

/* api_messages.c: `messages` and `prompt`. */
int api_take_messages(struct api_request *r, const struct api_field *f, json_t *value,
                      struct api_error *a);
int api_take_prompt(struct api_request *r, const struct api_field *f, json_t *value,
                    struct api_error *a);

#endif
