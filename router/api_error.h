/* api_error.h - an error as OpenAI clients expect it: {"error":{"message","type","param","code"}}.
 *
 * Pure. Source: OpenAI API reference, "Error codes".
 */
#ifndef EXA_ROUTER_API_ERROR_H
#define EXA_ROUTER_API_ERROR_H

#include "base/buf.h"

#include <stdint.h>

enum { API_PARAM_BYTES = 96 };

/* `type` values; static strings so that they are spelled once. */
#define API_INVALID      "invalid_request_error"
#define API_SERVER_ERROR "server_error"

struct api_error {
    uint16_t status;             /* HTTP; 0: no error */
    const char *type;            /* static */
    const char *code;            /* static, NULL: null */
    char param[API_PARAM_BYTES]; /* "": null */
    char message[512];           /* cut, never overrun */
    uint16_t retry_after_s;      /* 0: no such header */
    const char *state;    /* static; before READY: the service's state and progress go along */
    const char *progress; /* borrowed until the error is written */
};

/* Fill, return -1: a validator can `return api_fail(...)`. param and code may be NULL. */
int api_fail(struct api_error *a, int status, const char *type, const char *param, const char *code,
             const char *fmt, ...) __attribute__((format(printf, 6, 7)));
/* The whole JSON body. */
void api_error_put(struct buf *b, const struct api_error *a);

#endif
