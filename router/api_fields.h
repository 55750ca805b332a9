/* api_fields.h - the table of request fields, and what its functions share. Inside of api_request;
 * pure. */
#ifndef EXA_ROUTER_API_FIELDS_H
#define EXA_ROUTER_API_FIELDS_H

#include "router/api_request.h"

enum { API_PRIORITY_USUAL = 128 };

struct api_field {
    const char *name;
    int kinds; /* of enum api_kind */
    int (*take)(struct api_request *r, const struct api_field *f, json_t *value,
                struct api_error *a);
    double least, most; /* of fields that are one number … */
    size_t at;          /* … where it goes in struct api_request */
};
#define TAKE_FIELD(fn)                                                                             \
    int fn(struct api_request *r, const struct api_field *f, json_t *value, struct api_error *a)

/* NULL: this endpoint knows no such field. */
const struct api_field *api_field_find(const char *name, enum api_kind kind);
/* What only shows once all fields are read. */
int api_fields_check(struct api_request *r, struct api_error *a);

/* Errors and plain values; all return 0 or -1. */
int api_fail_type(const struct api_field *f, const char *expected, struct api_error *a);
int api_fail_value(const struct api_field *f, const char *expected, struct api_error *a);
int api_fail_unsupported(const struct api_field *f, struct api_error *a);
int api_get_int(const struct api_field *f, json_t *value, int64_t min, int64_t max, int64_t *out,
                struct api_error *a);
int api_get_bool(const struct api_field *f, json_t *value, bool *out, struct api_error *a);

/* api_messages.c, api_prompt.c. */
TAKE_FIELD(api_take_messages);
TAKE_FIELD(api_take_tools);
TAKE_FIELD(api_take_tool_choice);
TAKE_FIELD(api_take_template_kwargs);
TAKE_FIELD(api_take_prompt);
/* api_sampling.c: what changes the choice of tokens and what is told of it. */
TAKE_FIELD(api_take_number); /* a float at f->at */
TAKE_FIELD(api_take_count);  /* a uint32_t at f->at */
TAKE_FIELD(api_take_top_k);
TAKE_FIELD(api_take_seed);
TAKE_FIELD(api_take_logit_bias);
TAKE_FIELD(api_take_stop_token_ids);
TAKE_FIELD(api_take_logprobs_flag);
TAKE_FIELD(api_take_logprobs_count);
TAKE_FIELD(api_take_top_logprobs);
TAKE_FIELD(api_take_priority);
TAKE_FIELD(api_take_user);
int api_sampling_check(struct api_request *r, struct api_error *a);
/* api_constraint.c: what the answer must be. */
TAKE_FIELD(api_take_response_format);
TAKE_FIELD(api_take_guided_json);
TAKE_FIELD(api_take_guided_regex);
TAKE_FIELD(api_take_guided_choice);
TAKE_FIELD(api_take_guided_grammar);
TAKE_FIELD(api_take_structured_outputs);

#endif
